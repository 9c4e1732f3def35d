"""The fields that the nodes of this folder write, but for the conversation, which a schema keeps in its own way."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, JsonValue

from jianmu.engine.state import Ephemeral, Internal
from jianmu.message import Usage
from jianmu.tool.types import ToolCall


class RepliesState(BaseModel):
    """What the nodes write that ask the model and call its tools.

    Attributes:
        final_answer: the answer of this run, or None.
        done: whether there is one.
        actions: the calls of the last reply.
        rounds: the replies of this run.
        streaming_output: the text of the reply that is coming in.
        usage: what the thread has used.
        approvals: what people have decided for the whole thread; no input can write it.
    """

    final_answer: Annotated[str | None, Ephemeral(scope="run")] = None
    done: Annotated[bool, Ephemeral(scope="run")] = False
    actions: Annotated[list[ToolCall], Ephemeral(scope="step")] = Field(default_factory=list[ToolCall])
    rounds: Annotated[int, Ephemeral(scope="run")] = 0
    streaming_output: Annotated[str, Ephemeral(scope="call")] = ""
    usage: Usage = Field(default_factory=Usage)
    approvals: Annotated[dict[str, JsonValue], Internal()] = Field(default_factory=dict[str, JsonValue])
