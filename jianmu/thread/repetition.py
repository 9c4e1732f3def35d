"""How often a run has made the same call, and to no effect: what LoopGuard goes by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from jianmu.engine.questions import digest
from jianmu.message import Message
from jianmu.thread.outputs import FOLDER
from jianmu.tool.types import Content, ToolCall

Made: TypeAlias = tuple[ToolCall, Content | None]
"""A call and what came of it; None where it was not made."""
NOT_CALLED = "was not called"
"""What the results of calls have in them that were refused, rejected or left out."""
_FILE = re.compile(re.escape(FOLDER) + r"/\S+")


def key_of(call: ToolCall) -> str:
    """Return the key of `repeats` under which equal calls are counted: of one tool, with the same arguments."""
    return f"call:{digest(call.name, call.arguments, call.raw)[:16]}"


def wishes(call: ToolCall, messages: Sequence[Message], repeats: Mapping[str, int]) -> tuple[int, int]:
    """Return which request of the run for the same call this one is, and how many of the last ones are a repetition.

    One is that has brought the same as the others, or nothing, and was followed by no call that the run has made once.

    Args:
        call: one of the last reply.
        messages: the conversation.
        repeats: the counts, with those of the whole reply.
    """
    key, alike = key_of(call), 0
    number = repeats.get(key, 0)
    known: Content | None = None
    for one, content in _equal(key, messages, repeats):
        if alike == 0 and one != call:
            number -= 1  # it comes later in the reply
            continue
        if content is not None and known is not None and content != known:
            break
        known, alike = content if known is None else known, alike + 1
        if alike >= number:
            break
    return number, alike


def _equal(key: str, messages: Sequence[Message], repeats: Mapping[str, int]) -> Iterator[Made]:
    """Yield equal calls, the newest first, until there is a reply in which something new was done."""
    for place, reply in enumerate(_replies(messages)):
        if place and any(content is not None and repeats.get(key_of(one)) == 1 for one, content in reply):
            return
        yield from (made for made in reply if key_of(made[0]) == key)


def _replies(messages: Sequence[Message]) -> Iterator[list[Made]]:
    """Yield the calls of each reply and what came of them, the newest first."""
    results: dict[str, Message] = {}
    for message in reversed(messages):
        if message.tool_call_id is not None:
            results[message.tool_call_id] = message
        if message.tool_calls:
            yield [(call, _content(results.get(call.id))) for call in reversed(message.tool_calls)]


def _content(result: Message | None) -> Content | None:
    """Return a result without the name of a file that is its own."""
    if result is None or (result.is_error and NOT_CALLED in result.text):
        return None
    return _FILE.sub("", result.content) if isinstance(result.content, str) else result.content
