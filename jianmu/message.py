"""Messages of a conversation, and the functions that make them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Literal  # Any: JSON, and the user's own types

from pydantic import BaseModel, ConfigDict, Field

from jianmu.tool.types import ToolCall, ToolResult


def _new_id() -> str:
    return uuid.uuid4().hex


class Message(BaseModel):
    """One message of a conversation.

    Attributes:
        id: minted when the message is made; it stays the same when it is stored.
        role: who speaks: a person, the model, the system prompt, or a tool.
        content: a text, or a list of parts as JSON objects (texts, images).
        name: who speaks, where several have the same role.
        tool_calls: the calls that the model asks for.
        tool_result: what came of a call; of messages with the role "tool" only.
        metadata: what else belongs to it; JSON values.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    id: str = Field(default_factory=_new_id)
    role: Literal["human", "ai", "system", "tool"]
    content: str | tuple[dict[str, Any], ...] = ""  # Any: JSON values
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_result: ToolResult | None = None
    metadata: dict[str, Any] | None = None  # Any: JSON values


def human(content: Any, **more: Any) -> Message:  # Any: a text or parts, and Message's other fields
    """Return a message of a person."""
    return Message(role="human", content=content, **more)


def ai(content: Any = "", *, tool_calls: Iterable[ToolCall] = (), **more: Any) -> Message:  # Any: as for human
    """Return a message of the model."""
    return Message(role="ai", content=content, tool_calls=tuple(tool_calls), **more)


def system(content: Any, **more: Any) -> Message:  # Any: as for human
    """Return a system prompt."""
    return Message(role="system", content=content, **more)


def tool_result(
    call_id: str, content: Any, *, is_error: bool = False, **more: Any
) -> Message:  # Any: JSON, as for human
    """Return the message that answers a tool call.

    Args:
        call_id: the id of the call.
        content: what the tool returned; a text is also the message's content.
        is_error: whether it failed; `content` then says why.
        more: Message's other fields.
    """
    result = ToolResult(call_id=call_id, content=content, is_error=is_error)
    return Message(role="tool", content=content if isinstance(content, str) else "", tool_result=result, **more)
