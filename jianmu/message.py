"""Messages of a conversation, and the functions that make them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import inf
from typing import Annotated, Any, Literal, Self, TypeAlias, cast  # Any: Message's other fields

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from jianmu.tool.types import (
    PARTS,
    Content,
    FilePart,
    ImagePart,
    TextPart,
    ToolCall,
    ToolResult,
    content_of,
    of_valid,
    whole_json,
)

__all__ = ["FilePart", "ImagePart", "Message", "TextPart", "Usage", "ai", "human", "system", "tool_result"]

Given: TypeAlias = (
    str | TextPart | ImagePart | FilePart | Iterable[str | TextPart | ImagePart | FilePart | Mapping[str, Any]]
)
"""What a content is made of: a text, a part, or several of these; parts may be JSON objects."""
_FROZEN = ConfigDict(defer_build=True, frozen=True, extra="forbid", allow_inf_nan=False)


def _new_id() -> str:
    return os.urandom(16).hex()


class Usage(BaseModel):
    """What one reply of a model has cost, or several together.

    Attributes:
        input_tokens: tokens of the request, cached ones too.
        output_tokens: tokens of the reply, those of its reasoning too.
        cache_read_tokens: those of the request that came from a cache.
        cache_write_tokens: those of the request that were put into one.
        reasoning_tokens: those of the reply that are reasoning.
        cost: money, in the unit that the model reports; None where it does not.
        requests: requests to models, failed ones too; of sums only.
        tool_calls: calls of tools; of sums only.
    """

    model_config = _FROZEN

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cache_read_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=None, ge=0)
    requests: int = Field(default=0, ge=0)
    tool_calls: int = Field(default=0, ge=0)

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        """Return both together; a cost that one of them does not know is left out."""
        mine, theirs = self.__dict__, other.__dict__
        sums = {name: theirs[name] if mine[name] is None else mine[name] + (theirs[name] or 0) for name in _COUNTED}
        return of_valid(Usage, sums, sums) if sums["cost"] != inf else Usage.model_validate(sums)


_COUNTED = tuple(Usage.model_fields)  # a subclass may have more


class Message(BaseModel):
    """One message of a conversation; as JSON and back it is the same.

    Attributes:
        id: minted when the message is made; it stays the same when it is stored.
        role: who speaks: a person, the model, the system prompt, or a tool.
        content: a text, or parts: texts, images and files, the latter two by reference.
        name: who speaks, where several have the same role.
        tool_calls: the calls that the model asks for; of `ai` only.
        tool_call_id: the id of the call that this answers; of `tool`, which always has it.
        is_error: whether that call failed.
        usage: what the reply has cost, where the model says so.
        metadata: what else belongs to it, JSON: what a provider wants back, such as the signatures of reasoning.
    """

    model_config = _FROZEN

    id: str = Field(default_factory=_new_id, min_length=1)
    role: Literal["human", "ai", "system", "tool"]
    content: Content = ""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False
    usage: Usage | None = None
    metadata: Annotated[dict[str, JsonValue], AfterValidator(whole_json)] | None = None

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.tool_calls and self.role != "ai":
            raise ValueError("only a message of the model has tool_calls")
        if (self.tool_call_id is None) is (self.role == "tool"):
            raise ValueError("a message of a tool has the tool_call_id of the call that it answers, no other has one")
        return self

    @property
    def text(self) -> str:
        """The texts of the content, one a line."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def tool_result(self) -> ToolResult | None:
        """What came of the call that this message answers, or None."""
        if self.tool_call_id is None:
            return None
        return ToolResult(call_id=self.tool_call_id, content=self.content, is_error=self.is_error)


def _content(given: Any) -> Any:
    """Return what was given as a text or a tuple; what is neither is left to the validation."""
    if isinstance(given, str):
        return given
    if isinstance(given, PARTS):
        return (given,)
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        return cast("object", given)
    return tuple(TextPart(text=item) if isinstance(item, str) else item for item in cast("Iterable[object]", given))


def human(content: Given, **more: Any) -> Message:
    """Return a message of a person: `human("hello")`, `human(["What is this?", ImagePart(path="cat.png")])`."""
    return Message(role="human", content=_content(content), **more)


def ai(content: Given = "", *, tool_calls: Iterable[ToolCall] = (), **more: Any) -> Message:
    """Return a message of the model."""
    return Message(role="ai", content=_content(content), tool_calls=tuple(tool_calls), **more)


def system(content: Given, **more: Any) -> Message:
    """Return a system prompt."""
    return Message(role="system", content=_content(content), **more)


def tool_result(call_id: str, content: object, *, is_error: bool = False, **more: Any) -> Message:
    """Return the message that answers a tool call.

    Args:
        call_id: the id of the call.
        content: what the tool returned: a text, parts, or anything else that has a JSON form, which is shown as JSON.
        is_error: whether it failed; `content` then says why.
        more: Message's other fields.

    Raises:
        ValueError: the content has no JSON form.
    """
    return Message(role="tool", content=content_of(content), tool_call_id=call_id, is_error=is_error, **more)


def answered(call: ToolCall, content: Content, *, is_error: bool) -> Message:
    """Return the message of a tool that answers a call, with a content that was validated."""
    values = {"content": content, "tool_call_id": call.id, "is_error": is_error}
    return of_valid(Message, {**_ANSWER, "id": _new_id(), **values}, ("role", *values))


_ANSWER = Message.model_construct(id="", role="tool").__dict__
