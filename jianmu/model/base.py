"""What a language model is to jianmu: a request in, a stream of deltas and a final message out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol  # Any: JSON, and what only one provider knows

from jianmu.engine.clock import Clock, RealClock
from jianmu.errors import BadReplyError
from jianmu.message import Message, Usage

Reason = Literal["stop", "length", "tool_calls", "content_filter", "error"]
"""Why a model ended: it was done, ran out of tokens, wants tools, was stopped by a policy, or broke off."""

REAL = RealClock()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told about a tool.

    Attributes:
        name: what the model calls it by.
        description: what it does and when to use it.
        schema: the JSON schema of its arguments, an object.
    """

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The form that the text of a reply has to have.

    Attributes:
        schema: a JSON schema; the reply's text is to be JSON that fits it. Nobody has validated it yet.
        name: the schema's name, as the model sees it.
        description: what it is for.
    """

    schema: Mapping[str, Any]
    name: str = "output"
    description: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is to answer; None leaves it to the provider.

    Attributes:
        max_tokens: the most tokens of the reply.
        temperature: from 0, the likeliest words, to about 2.
        top_p: the share of the likeliest words that is drawn from.
        seed: a number that makes replies repeatable, where the provider can.
        stop: texts at which the reply ends.
        thinking: whether or how hard to think before the answer, where the model can.
        tool_choice: "auto", "none", "required", or the name of a tool that must be called.
        timeout: seconds for a whole request; then it is a `ModelUnavailableError`.
        first_token: seconds for the first part of the reply, as `timeout`.
        extra: what only one provider knows, by its name there.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    thinking: bool | Literal["minimal", "low", "medium", "high", "xhigh"] | None = None
    tool_choice: str | None = None
    timeout: float | None = None
    first_token: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked.

    Attributes:
        messages: the conversation, the oldest first; each tool call is followed by its result.
        tools: what the model may call.
        output: the form of the reply's text, or None for free text.
        settings: how to answer.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    output: OutputSpec | None = None
    settings: Settings = Settings()


class Delta(NamedTuple):
    """A piece of a reply, as it comes in.

    Attributes:
        text: the piece: of the answer, of the reasoning, or of a tool call's arguments as JSON.
        kind: what it is a piece of.
        number: which of the reply's tool calls it belongs to, from 0.
        call_id: the tool call's id; in the first piece of a call.
        name: the tool's name; in the first piece of a call.
    """

    text: str
    kind: Literal["text", "reasoning", "call"] = "text"
    number: int = 0
    call_id: str = ""
    name: str = ""


class Again(NamedTuple):
    """The request failed and is sent again: all deltas so far are void.

    Attributes:
        error: why it failed.
        wait: seconds until it is sent again.
        model: who is asked then.
    """

    error: Exception
    wait: float
    model: str


class Finish(NamedTuple):
    """The end of a reply, and the last that a stream yields.

    Attributes:
        message: the whole reply.
        usage: what it cost, attempts that failed left out.
        reason: why the model ended.
        model: the name of the model that answered, as the provider calls it.
    """

    message: Message
    usage: Usage
    reason: Reason
    model: str


Event = Delta | Again | Finish
Stream = AbstractAsyncContextManager[AsyncIterator[Event]]


class ChatModel(Protocol):
    """A language model. Derive from this class to get `open` and `close`.

    One object serves any number of runs and event loops.

    Attributes:
        name: what it is called in errors and logs.
    """

    name: str

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Return the reply to a request as a block to iterate over.

            async with model.stream(request) as events:
                async for event in events:
                    ...

        The last event is the `Finish`. Leaving the block early, also by cancellation, ends the request; when the
        block is left, nothing of it is alive. A stream has no cancel scope or task group open between two events.

        Args:
            request: what to ask.
            clock: the time by which a model waits before it tries again; what a provider does takes real time.

        Raises:
            ModelError: on entry or from the iterator; one of its families.
        """
        ...

    async def open(self) -> None:
        """Get ready for requests on this event loop; what is opened is closed as often."""

    async def close(self) -> None:
        """Let go of connections when nobody on this event loop has the model open any more."""


async def complete(model: ChatModel, request: ModelRequest, *, clock: Clock = REAL) -> Finish:
    """Return the end of a reply, for those who don't watch it come in.

    Raises:
        ModelError: the request failed.
    """
    async with model.stream(request, clock=clock) as events:
        async for event in events:
            if isinstance(event, Finish):
                return event
    raise BadReplyError("the stream ended without a Finish", model=model.name)
