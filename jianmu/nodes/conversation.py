"""The conversation in the field `messages`, as the nodes of this folder read and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast  # Any: the value of a field, of the user's schema

from jianmu.engine.context import NodeContext
from jianmu.engine.state import StateManager
from jianmu.engine.typefit import fits
from jianmu.errors import SetupError
from jianmu.message import Message, Usage

FIELD = "messages"
USAGE = "usage"


def require(manager: StateManager[Any], path: str) -> None:
    """Refuse a schema without a conversation.

    Raises:
        SetupError: with the line to write.
    """
    if not fits(list[Message], manager.schema.types.get(FIELD, int)):
        model, line = manager.schema.model.__name__, f"{FIELD}: Annotated[list[Message], operator.add] = []"
        raise SetupError(f"node '{path}' keeps the conversation in '{FIELD}', which {model} lacks: {line}", path=path)


def messages_of(context: NodeContext) -> Sequence[Message]:
    """Return the conversation as it is now."""
    messages: Sequence[Message] | None = context.manager.read(FIELD)
    return messages or ()


def append(context: NodeContext, new: Sequence[Message], more: Mapping[str, Any] | None = None) -> None:
    """Write messages to the end of the conversation, and more fields, in the name of the node; one write if it can be.

    A conversation without a reducer is a write of its own.
    """
    fields = dict(more or {})
    if context.manager.has_reducer(FIELD):
        fields[FIELD] = [*new]
    else:
        context.transform_field(FIELD, lambda old: [*(old or ()), *new])
    if fields:
        context.write_state(fields)


def counted(context: NodeContext, used: Usage) -> dict[str, Any]:
    """Return the write that adds to what the thread has used: the field `usage`, where the schema has it as a Usage."""
    manager = context.manager
    if manager.schema.types.get(USAGE) is not Usage:
        return {}
    return {USAGE: used if manager.has_reducer(USAGE) else manager.read(USAGE) + used}


def last_reply(messages: Sequence[Message]) -> Message | None:
    """Return what the model has said last, or None."""
    return next((one for one in reversed(messages) if one.role == "ai"), None)


def answered_since(messages: Sequence[Message], reply: str) -> set[str]:
    """Return the ids of the calls that were answered after the reply with this id."""
    found: set[str] = set()
    for message in reversed(messages):
        if message.id == reply:
            break
        if message.tool_call_id is not None:
            found.add(message.tool_call_id)
    return found


def answered_in(input: Mapping[str, Any]) -> list[object]:
    """Return the ids of the calls whose results a caller's input has; messages may be JSON there."""
    given: object = input.get(FIELD)
    new = cast("Sequence[object]", given) if isinstance(given, list | tuple) else ()
    return [_answers(one) for one in new]


def _answers(message: object) -> object:
    if isinstance(message, Mapping):
        return cast("Mapping[str, Any]", message).get("tool_call_id")
    return getattr(message, "tool_call_id", None)
