"""The events of a run, as they happen: `async with agent.stream(...) as events`."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

import anyio
from anyio.abc import TaskGroup

from jianmu.engine.events import Event, Events, Token
from jianmu.engine.wake import Wake
from jianmu.errors import RunError

LAG = 100


class Stream:
    """One run and its events; leaving the block halts the run and waits for its end.

    A slow reader slows no run: nothing is dropped, and pieces of text are merged once it lags.

    Args:
        events: where the events come from.
        run: starts the run.
        halt: ends it.
        path: gives the events of this node and those below it only.
    """

    def __init__(
        self, events: Events, run: Callable[[], Awaitable[object]], halt: Callable[[], None], path: str | None
    ) -> None:
        self._events = events
        self._run = run
        self._halt = halt
        self._path = path
        self._buffer: deque[Event] = deque()
        self._wake = Wake()
        self._is_on = self._is_over = self._is_left = False
        self._error: BaseException | None = None
        self._group: TaskGroup | None = None
        self._remove: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Self:
        """Start the run."""
        if self._group is not None:
            raise RunError("a stream is read once: call agent.stream(...) again for the next run")
        self._wake.attach()
        self._remove = self._events.add(self._take)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._drive)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Halt the run if it is still on, and wait until it is quiet; an exception of the block comes out as it is."""
        self._is_left = True
        if self._is_on:
            self._halt()
        try:
            if self._group is not None:
                await self._group.__aexit__(None, None, None)
        finally:
            self._remove()
        if error is None and self._error is not None:
            raised, self._error = self._error, None
            raise raised

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Event:
        """Return the next event; after the last one, raise what the run raised."""
        while not self._buffer:
            if self._is_over:
                if self._error is not None:
                    raised, self._error = self._error, None
                    raise raised
                raise StopAsyncIteration
            self._wake.take()
            if not self._buffer and not self._is_over:
                await self._wake.armed().wait()
        return self._buffer.popleft()

    async def _drive(self) -> None:
        """Run, unless the block was left before, and note how it ended."""
        try:
            self._is_on = not self._is_left
            if self._is_on:
                await self._run()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # told to the reader, not to the group, which would wrap it
            self._error = error
        finally:
            self._is_on, self._is_over = False, True
            self._wake.set()

    def _take(self, event: Event) -> None:
        """Take an event; called under the hub's lock, from any thread."""
        if self._path is not None and not _is_below(event.path, self._path):
            return
        last = self._buffer[-1] if len(self._buffer) > LAG else None
        if isinstance(last, Token) and isinstance(event, Token) and (last.path, last.kind) == (event.path, event.kind):
            merged = {"text": last.text + event.text, "count": last.count + event.count}
            self._buffer[-1] = event.model_copy(update=merged)
        else:
            self._buffer.append(event)
        self._wake.set()


def _is_below(path: str | None, top: str) -> bool:
    """Whether a path is `top` or below it; events of the whole run have no path and pass too."""
    return path is None or path == top or path.startswith(f"{top}/")
