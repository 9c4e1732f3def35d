"""Conversations as every provider takes them: each tool call has exactly one result, right after it, in call order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jianmu.message import Message, tool_result
from jianmu.tool.types import ToolCall

LOST = "This call was cut off: it has no result, and whether it took effect is not known."


def paired(messages: Iterable[Message]) -> list[Message]:
    """Return a conversation in which each tool call has exactly one result, next to it, in call order.

    A result that stands elsewhere is moved, a second one and one for no call are left out, a missing one says so. A
    call whose id another call had before gets an id of its own. All other messages stay as they are, in their order,
    and what is paired already comes out the same.
    """
    given = [*messages]
    if _is_paired(given):
        return given
    results = _results(given)
    made: list[Message] = []
    taken: set[str] = set()
    for place, message in enumerate(given):
        if message.role == "tool":
            continue
        whole = with_own_ids(message, taken)
        made.append(whole)
        for number, call in enumerate(whole.tool_calls):
            result = results.get((place, number))
            made.append(_for(call.id, result))
    return made


def _is_paired(messages: Sequence[Message]) -> bool:
    """Whether a conversation is as it should be already, as it is most often: a long one is looked at each time."""
    taken: set[str] = set()
    awaited: list[str] = []
    for message in messages:
        if message.tool_call_id is not None and awaited and awaited[-1] == message.tool_call_id:
            awaited.pop()
            continue
        if awaited or message.role == "tool":
            return False
        if message.tool_calls:
            awaited = _taken(message.tool_calls, taken)
            if not awaited:
                return False
    return not awaited


def _taken(calls: Sequence[ToolCall], taken: set[str]) -> list[str]:
    """Return the ids of calls, the last one first, which are taken then; none if one of them is empty or was taken."""
    ids: list[str] = []
    for call in calls:
        if not call.id or call.id in taken:
            return []
        taken.add(call.id)
        ids.insert(0, call.id)
    return ids


def with_own_ids(message: Message, taken: set[str]) -> Message:
    """Return a message none of whose calls has an id that is taken; its ids are taken then."""
    names: list[str] = []
    for call in message.tool_calls:
        names.append(next(name for name in _names(call.id) if name not in taken))
        taken.add(names[-1])
    if all(call.id == name for call, name in zip(message.tool_calls, names, strict=True)):
        return message
    calls = zip(message.tool_calls, names, strict=True)
    return message.model_copy(
        update={"tool_calls": tuple(call.model_copy(update={"id": name}) for call, name in calls)}
    )


def without_half(message: Message) -> Message:
    """Return a reply that was cut off without what stands for the arguments of a last call that has none yet.

    Such a call may have been meant to have some: it is one whose arguments are no JSON object.
    """
    calls = message.tool_calls
    if not calls or calls[-1].arguments or calls[-1].raw is not None:
        return message
    return message.model_copy(update={"tool_calls": (*calls[:-1], calls[-1].model_copy(update={"raw": ""}))})


def call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all calls of a conversation."""
    return {call.id for message in messages for call in message.tool_calls}


def _names(id: str) -> Iterator[str]:
    """Yield an id, and then others like it."""
    number = 1
    yield id or "call"
    while True:
        number += 1
        yield f"{id or 'call'}_{number}"


def _results(messages: Sequence[Message]) -> dict[tuple[int, int], Message]:
    """Return the result of each call, by the place of its message and its number there.

    A result belongs to the nearest call before it with its id that has none yet; one that has no call before it, to the
    first one after it.
    """
    found: dict[tuple[int, int], Message] = {}
    open_calls: dict[str, list[tuple[int, int]]] = {}
    early: dict[str, Message] = {}
    for place, message in enumerate(messages):
        known = [call.id for call in message.tool_calls]
        for id in {*known}:
            places = [(place, number) for number, other in enumerate(known) if other == id]
            if id in early:
                found[places.pop(0)] = early.pop(id)
            open_calls[id] = places
        id = message.tool_call_id
        if id is None:
            continue
        if id not in open_calls:
            early.setdefault(id, message)
        elif open_calls[id]:
            found[open_calls[id].pop(0)] = message
    return found


def _for(id: str, result: Message | None) -> Message:
    """Return a result as that of this call."""
    if result is None:
        return tool_result(id, LOST, is_error=True, id=f"lost-{id}")
    return result if result.tool_call_id == id else result.model_copy(update={"tool_call_id": id})
