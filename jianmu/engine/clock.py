"""Time as the runtime sees it: the real clock, and one that is turned by hand."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint, current_token


class Clock(Protocol):
    """What the runtime needs of a clock; one object serves any number of runs."""

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def utc(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, at least one scheduling point."""
        ...

    async def wait(self, event: anyio.Event, until: float | None) -> None:
        """Wait until `event` is set or `now()` has reached `until` (None: no limit)."""
        ...

    async def pump(self) -> None:
        """Serve the clock while a run is on; returns at once where time passes by itself."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Return a context in which a worker thread is at work for a run; a clock turned by hand stands still."""
        ...


class RealClock:
    """The time of this machine."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def utc(self) -> datetime:
        """Return the present instant in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of real time."""
        await anyio.sleep(max(0.0, seconds))

    async def wait(self, event: anyio.Event, until: float | None) -> None:
        """Wait until `event` is set or `now()` has reached `until`."""
        if until is None:
            await event.wait()
            return
        with anyio.move_on_after(max(0.0, until - time.monotonic())):
            await event.wait()

    async def pump(self) -> None:
        """Return at once: real time needs no help."""

    def working(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing: real time waits for nobody."""
        return nullcontext()


class _Turn:
    """Whose turn it is, on one event loop, to look whether every task waits; two that look keep each other awake."""

    def __init__(self, token: object) -> None:
        self.token = token
        self.lock = anyio.Lock()
        self.fresh = anyio.Event()


class VirtualClock:
    """A clock that stands still until it is turned: `await clock.advance(seconds)`.

    With `autojump`, a run that uses the clock turns it by itself: whenever every task waits, time
    jumps to the next moment somebody waits for. A worker thread at work counts as waiting.

    Args:
        autojump: jump by itself while a run is on.
        start: the instant at which the clock starts; by default the first of January 2030, in UTC.
    """

    def __init__(self, autojump: bool = False, *, start: datetime | None = None) -> None:
        self.autojump = autojump
        self._start = start or datetime(2030, 1, 1, tzinfo=UTC)
        self._now = 0.0
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._order = itertools.count()
        self._turn: _Turn | None = None
        self._at_work = 0
        self._is_idle: anyio.Event | None = None

    def now(self) -> float:
        """Return the seconds that this clock was turned by so far."""
        return self._now

    def utc(self) -> datetime:
        """Return the start of the clock plus what it was turned by."""
        return self._start + timedelta(seconds=self._now)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was turned by `seconds`."""
        if seconds <= 0:
            await checkpoint()
            return
        await self.wait(anyio.Event(), self._now + seconds)

    async def wait(self, event: anyio.Event, until: float | None) -> None:
        """Wait until `event` is set or the clock stands at `until` or later."""
        if until is None:
            await event.wait()
            return
        if until <= self._now:
            await checkpoint()
            return
        entry = (until, next(self._order), event)
        heapq.heappush(self._sleepers, entry)
        self._here().fresh.set()
        try:
            await event.wait()
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Turn the clock by `seconds`, stopping at each moment that somebody waits for.

        Returns when all that became due has had its turn.
        """
        async with self._here().lock:
            target = self._now + seconds
            await self._quiet()
            while self._sleepers and self._sleepers[0][0] <= target:
                self._jump()
                await self._quiet()
            self._now = max(self._now, target)
            await self._quiet()

    async def pump(self) -> None:
        """Jump from sleeper to sleeper while a run is on, if `autojump` is set."""
        turn = self._here()
        while self.autojump:
            async with turn.lock:
                await self._quiet()
                if self._sleepers:
                    self._jump()
                    continue
                if turn.fresh.is_set():
                    turn.fresh = anyio.Event()
            await turn.fresh.wait()

    @contextmanager
    def working(self) -> Generator[None]:
        """Keep the clock from being turned while a worker thread is at work for a run."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work and self._is_idle is not None:
                self._is_idle.set()

    async def _quiet(self) -> None:
        """Wait until every task waits for something that is no worker thread of a run."""
        await quiet()
        while self._at_work:
            if self._is_idle is None or self._is_idle.is_set():
                self._is_idle = anyio.Event()
            await self._is_idle.wait()
            await quiet()

    def _here(self) -> _Turn:
        """Return what belongs to the event loop that is on."""
        token = current_token().native_token
        if self._turn is None or self._turn.token is not token:
            self._turn = _Turn(token)
        return self._turn

    def _jump(self) -> None:
        """Go to the next sleeper and rouse all that wait for this moment."""
        self._now = max(self._now, self._sleepers[0][0])
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].set()


async def quiet() -> None:
    """Wait until every other task of this event loop waits for something.

    anyio's own call of this kind looks every tenth of a second on asyncio; here the loop's queue of
    ready callbacks is asked where the loop has one.
    """
    loop = current_token().native_token
    ready = getattr(loop, "_ready", None)
    if ready is None:
        await anyio.wait_all_tasks_blocked()
        return
    await checkpoint()
    while ready:
        await checkpoint()
