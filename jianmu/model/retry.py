"""Models that try again, and models that step in for others.

Rules:
1. Only a `ModelError` that is transient is tried again, and never sooner than its `retry_after`.
2. What was given out is not silently replaced: an attempt that breaks after a delta raises, with `shown` on the error.
   `after_text=True` allows another attempt; `Again` then tells the reader that all deltas so far are void.
3. `Again` comes before the wait, so that whoever reads can say why nothing happens.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from jianmu.engine.clock import Clock
from jianmu.errors import BadReplyError, ModelError, ModelUnavailableError, RateLimitedError, SetupError
from jianmu.model.base import REAL, Again, ChatModel, Delta, Event, Finish, ModelRequest, Stream


class Step(NamedTuple):
    """The next attempt: who is asked, after how many seconds."""

    model: ChatModel
    wait: float = 0.0


class _Plan(Protocol):
    """Decides about the attempts of a request."""

    after_text: bool

    def step(self, failed: Sequence[ModelError]) -> Step | None:
        """Return the attempt after those that failed, or None to give up; the first when none has failed yet."""
        ...


class _Several(ChatModel):
    """What models that are made of models share."""

    def __init__(self, models: Sequence[ChatModel], *, after_text: bool) -> None:
        self._models = models
        self.after_text = after_text

    async def open(self) -> None:
        """Open all models, or none if one fails."""
        async with AsyncExitStack() as opened:
            for model in self._models:
                await model.open()
                opened.push_async_callback(model.close)
            opened.pop_all()

    async def close(self) -> None:
        """Close all models, also if one fails."""
        async with AsyncExitStack() as closing:
            for model in self._models:
                closing.push_async_callback(model.close)


class Retrying(_Several):
    """A model that sends a request again after errors that pass.

    Args:
        model: who is asked.
        attempts: the most attempts of a request, the first included.
        backoff: seconds before the second attempt; each further one waits `factor` times as long, up to `longest`.
        factor: how the waits grow.
        longest: the longest wait in seconds; a provider that asks for more is not waited for, and its error raised.
        jitter: the share of a wait of our own that is left to chance.
        after_text: try again also when a part of the reply was given out already; see `Again`.
        draw: where chance comes from: a number from 0 to 1.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        attempts: int = 4,
        backoff: float = 0.5,
        factor: float = 2.0,
        longest: float = 60.0,
        jitter: float = 0.5,
        after_text: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if attempts < 1:
            raise SetupError(f"Retrying: attempts={attempts} never asks the model; give 1 or more")
        super().__init__((model,), after_text=after_text)
        self.name = model.name
        self._model = model
        self._attempts = attempts
        self._backoff = backoff
        self._factor = factor
        self._longest = longest
        self._jitter = jitter
        self._draw = draw

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Return the reply of the first attempt that does not fail."""
        return _Attempts(self, request, clock)

    def step(self, failed: Sequence[ModelError]) -> Step | None:
        """Return the next attempt, if the last error passes and none of the limits is reached."""
        if not failed:
            return Step(self._model)
        last = failed[-1]
        if not last.is_transient or len(failed) >= self._attempts:
            return None
        if last.retry_after is not None:
            return Step(self._model, last.retry_after) if last.retry_after <= self._longest else None
        wait = min(self._longest, self._backoff * self._factor ** (len(failed) - 1))
        return Step(self._model, wait * (1 - self._jitter * self._draw()))


class Fallback(_Several):
    """A model, and others that step in when it fails: `Fallback(Retrying(first), second)`.

    Args:
        models: who is asked, one after the other.
        on: the errors after which the next one is asked.
        after_text: go on also when a part of a reply was given out already; see `Again`.
    """

    def __init__(
        self,
        *models: ChatModel,
        on: tuple[type[ModelError], ...] = (RateLimitedError, ModelUnavailableError, BadReplyError),
        after_text: bool = False,
    ) -> None:
        if not models:
            raise SetupError("Fallback() has no model: Fallback(first, second)")
        super().__init__(models, after_text=after_text)
        self.name = models[0].name
        self._on = on

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Return the reply of the first model that does not fail."""
        return _Attempts(self, request, clock)

    def step(self, failed: Sequence[ModelError]) -> Step | None:
        """Return the model after those that failed, if the last error is one to go on after."""
        if failed and not isinstance(failed[-1], self._on):
            return None
        return Step(self._models[len(failed)]) if len(failed) < len(self._models) else None


class _Attempts:
    """The stream of a request that is sent again by a plan."""

    def __init__(self, plan: _Plan, request: ModelRequest, clock: Clock) -> None:
        self._plan = plan
        self._request = request
        self._clock = clock
        self._failed: list[ModelError] = []
        self._shown = 0
        self._is_over = False
        self._next = plan.step(())
        self._block: Stream | None = None
        self._events: AsyncIterator[Event] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block, self._events = self._block, None, None
        if block is not None:
            await block.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._is_over:
            raise StopAsyncIteration
        try:
            event = await self._event()
        except ModelError as error:
            return await self._again(error)
        if isinstance(event, Again):
            self._shown = 0
        self._shown += isinstance(event, Delta)
        self._is_over = isinstance(event, Finish)
        return event

    async def _event(self) -> Event:
        """Return what comes next from the attempt that is on; begin it, if it is not yet."""
        if self._events is None:
            assert self._next is not None
            model, wait = self._next
            if self._failed:
                await self._clock.sleep(wait)
            block = model.stream(self._request, clock=self._clock)
            self._events = await block.__aenter__()
            self._block = block
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            raise BadReplyError("the stream ended without a Finish") from None

    async def _again(self, error: ModelError) -> Again:
        """End the attempt that failed and announce the next one, or give up."""
        await self.__aexit__(type(error), error, error.__traceback__)
        self._failed.append(error)
        self._next = self._plan.step(self._failed)
        if self._next is None or (self._shown and not self._plan.after_text):
            self._is_over = True
            raise self._told(error)
        self._shown = 0
        return Again(error, self._next.wait, self._next.model.name)

    def _told(self, error: ModelError) -> ModelError:
        """Return an error that tells what there was before it."""
        error.shown = max(error.shown, self._shown)
        if self._next is not None:
            error.add_note(
                f"{error.shown} pieces of the reply had been given out, so it was not asked for again; "
                f"after_text=True does that, and tells by Again that they are void"
            )
        elif len(self._failed) > 1:
            error.add_note(f"all {len(self._failed)} attempts failed, the first with: {self._failed[0]}")
        return error
