"""A call of a tool, as a model asks for it, and its result."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ToolCall(BaseModel):
    """A model's wish to have a tool called.

    Attributes:
        id: what the result refers to.
        name: the tool's name.
        arguments: by parameter; JSON values.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)  # Any: JSON values


class ToolResult(BaseModel):
    """What came of a call.

    Attributes:
        call_id: the id of the call.
        content: what the tool returned; JSON values.
        is_error: whether it failed; `content` then says why.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    call_id: str
    content: Any = None  # Any: a JSON value
    is_error: bool = False
