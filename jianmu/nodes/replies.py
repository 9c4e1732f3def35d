"""What the nodes that ask a model share: one reply, within the run's limits, shown as it comes in."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias, cast  # Any: snapshots, functions and output types are the users'

import anyio
from py_trees.common import Status

from jianmu.engine.events import Retried
from jianmu.engine.node import AsyncNode
from jianmu.errors import (
    BadReplyError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    RateLimitedError,
    SetupError,
)
from jianmu.message import Message, Usage, system
from jianmu.model import lookup
from jianmu.model.base import ChatModel, Delta, Event, Finish, ModelRequest, Settings
from jianmu.nodes.base import TEXT, Option, call_of
from jianmu.nodes.output import Output, correction
from jianmu.nodes.pairing import Pairing
from jianmu.nodes.projections import projected, projections_of
from jianmu.nodes.streaming import Pausing, Shown

Prompt: TypeAlias = str | Callable[[Any], str | None] | None

FAILS = (ModelRefusedError, ContextTooLongError, RateLimitedError, ModelUnavailableError, BadReplyError)
"""Errors that a tree can answer; all others are the program's, and end the run."""

_NOTHING = Usage.model_construct()  # see model/scripted.py: nothing is validated at import
_REQUEST = Usage.model_construct(requests=1)


class ModelNode(AsyncNode):
    """A node that asks a model.

    Args:
        name: the node's name.
        model: who is asked, or its name as `lookup` takes it.
        system: the system prompt, or a function of the snapshot that returns it.
        settings: how to answer.
        output: the type of the answer.
    """

    can_be_late: ClassVar[bool] = True

    def __init__(
        self,
        name: str | None,
        *,
        model: ChatModel | str,
        system: Prompt = None,
        settings: Settings | None = None,
        output: Any = None,
    ) -> None:
        super().__init__(name)
        self._model = lookup(model) if isinstance(model, str) else model
        if not callable(getattr(cast("object", self._model), "stream", None)):
            raise SetupError(f"{call_of(self, 'model')} takes a ChatModel or the name of one, not {model!r}")
        if settings is not None and not isinstance(cast("object", settings), Settings):
            raise SetupError(f"{call_of(self, 'settings')} takes Settings(...), not {settings!r}")
        self._settings = settings or Settings()
        self._system = Option(self, "system", system, TEXT)
        self._output = None if output in (None, str) else Output(output, call_of(self, "output"))
        self._opened = 0
        self._spent = _NOTHING
        self._live: Shown | None = None
        self._pair = Pairing()

    async def open(self) -> None:
        """Open the model for as long as the tree is open."""
        await self._model.open()
        self._opened += 1

    async def close(self) -> None:
        """Close what `open` has opened."""
        self._opened -= 1
        await self._model.close()

    def update(self) -> Status:
        """Show what of a text was held back, and return the coroutine's result, or RUNNING."""
        if self._live is not None:
            self._live.catch_up()
        return super().update()

    async def update_async(self) -> Status:
        """Ask, and say by the status what came of it."""
        self.feedback_message = ""
        self._spent = _NOTHING
        try:
            if self._opened:
                return await self._asked()
            async with self._ready():
                return await self._asked()
        except FAILS as error:
            self.feedback_message = str(error)
            self.context.log.warning("the model failed", error=type(error).__name__, reason=str(error))
        self._failed()
        return Status.FAILURE

    async def _asked(self) -> Status:
        """Do the work; tell the projections above of a request that has failed."""
        try:
            return await self._work()
        except ModelError as error:
            for above in projections_of(self):
                above.on_failed(error)
            raise

    @abstractmethod
    async def _work(self) -> Status:
        """Ask, and write what came of it."""

    def _failed(self) -> None:
        """Put the state in order after a failure."""

    def _shown(self) -> Shown:
        """Return what shows the text of a reply."""
        return Shown(self.context, None)

    @asynccontextmanager
    async def _ready(self) -> AsyncGenerator[None]:
        """Have open what is needed, in a node that was put in late."""
        await self.open()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()

    def _request(self, messages: Sequence[Message], **more: Any) -> ModelRequest:
        """Return the request for a conversation, as the model is to see it."""
        prompt = self._prompt()
        first = [system(prompt, id=f"system:{self.context.path}")] if prompt else []
        output = self._output.spec if self._output is not None else None
        request = ModelRequest([*first, *messages], output=output, settings=self._settings, **more)
        return projected(self, request, self._pair)

    def _prompt(self) -> str:
        """Return the system prompt."""
        return self._system() or ""

    async def _reply(self, request: ModelRequest, shown: Shown) -> Finish:
        """Return the model's reply, counted.

        Raises:
            ModelError: it failed, was stopped, or has nothing in it.
            LimitExceeded: the run may ask no more.
        """
        self._admit()
        self._live = shown
        try:
            reply = await Pausing(self._followed(request, shown), shown.show)
            self._count(reply)
            _refuse_empty(reply)
        except ModelError:
            shown.void()
            shown.write()
            raise
        finally:
            self._live = None
        shown.tell()
        if reply.reason == "length":
            self.feedback_message = "the reply was cut off: it has as many tokens as it may have"
        return reply

    async def _fitting(self, request: ModelRequest, shown: Shown) -> tuple[Finish, Any]:
        """Return a reply and its value of the type asked for; one that does not fit is sent back once.

        Raises:
            BadReplyError: the second one does not fit either.
        """
        reply = await self._reply(request, shown)
        if self._output is None or reply.message.tool_calls:
            return reply, reply.message.text
        try:
            return reply, self._output.read(reply.message.text)
        except ValueError as error:
            fault = correction(str(error))
        shown.void()
        reply = await self._reply(replace(request, messages=[*request.messages, reply.message, fault]), shown)
        if reply.message.tool_calls:
            return reply, reply.message.text
        try:
            return reply, self._output.read(reply.message.text)
        except ValueError as error:
            problem = f"the answer is no {self._output.spec.name}, also when asked for again: {error}"
        shown.void()
        shown.write()
        raise BadReplyError(problem, model=reply.model)

    async def _followed(self, request: ModelRequest, shown: Shown) -> Finish:
        """Return the end of a reply and show what comes in before it."""
        end: Finish | None = None
        async with self._model.stream(request, clock=self.context.clock) as events:
            async for event in events:
                end = self._take(event, shown) or end
        if end is None:
            raise BadReplyError("the stream ended without a Finish", model=self._model.name)
        return end

    def _take(self, event: Event, shown: Shown) -> Finish | None:
        """Take a piece of a reply, or its end, or note that its attempt has failed, if the run may have another one."""
        if isinstance(event, Delta):
            if event.kind == "text" and event.text:
                shown.take(event.text)
            elif event.kind == "reasoning" and event.text:
                shown.think(event.text)
            return None
        if isinstance(event, Finish):
            return event
        shown.void()
        self.context.emit(Retried(reason=str(event.error), wait=event.wait, model=event.model))
        self._admit()
        return None

    def _admit(self) -> None:
        """Count a request that is about to be sent, if the run may send it."""
        self.context.spend(requests=1, tokens=None, cost=None)
        self._spent = _REQUEST if self._spent is _NOTHING else self._spent + _REQUEST

    def _count(self, reply: Finish) -> None:
        """Count what a reply has cost, also beyond the run's limits: it is spent."""
        run = self.context.run
        self._spent += reply.usage
        run.usage.tokens += reply.usage.tokens
        run.usage.cost += reply.usage.cost or 0
        if run.limits.cost is not None and reply.usage.cost is None:
            self.context.log.warning("cost is not counted: the model does not report it", model=reply.model)


def _refuse_empty(reply: Finish) -> None:
    """Raise the error that a reply is which was stopped, broke off, or has nothing in it."""
    if reply.reason == "content_filter":
        raise ModelRefusedError("the provider's policy stopped the reply", model=reply.model)
    if reply.reason == "error":
        raise BadReplyError("the reply broke off", model=reply.model)
    message = reply.message
    parts = () if isinstance(message.content, str) else message.content
    if message.tool_calls or message.text.strip() or any(part.type != "text" for part in parts):
        return
    hint = ": all the tokens it may have went into its reasoning" if reply.reason == "length" else ""
    raise BadReplyError(f"the model answered nothing{hint}", model=reply.model)
