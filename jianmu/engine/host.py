"""Where the coroutines of a run live: a group of tasks out of reach of the caller's cancellation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup, TaskStatus


class Host:
    """Holds a shielded task group open inside a task of its own.

    A group in the driver's own task would have to be shielded together with the driver; this way a
    cancellation reaches the driver at once and the coroutines only when the driver halts them.

    Args:
        pump: serves the clock while the group is open.
        moved: told the group when it opens, and None when it closes.
    """

    def __init__(
        self, pump: Callable[[], Coroutine[None, None, None]], moved: Callable[[TaskGroup | None], None]
    ) -> None:
        self._pump = pump
        self._moved = moved
        self._closing: anyio.Event | None = None

    @property
    def is_open(self) -> bool:
        """Whether coroutines can live here."""
        return self._closing is not None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Hold the group open; inside of an open one it changes nothing.

        The body must raise nothing but cancellation, which groups do not wrap.
        """
        if self.is_open:
            yield
            return
        async with anyio.create_task_group() as rim:
            await rim.start(self._serve)
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        """Let the group end; no coroutine may live any more."""
        if self._closing is not None:
            self._closing.set()

    async def _serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Hold the group open until it is closed."""
        self._closing = anyio.Event()
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    self._moved(group)
                    group.start_soon(self._pump)
                    task_status.started()
                    await self._closing.wait()
                    self._moved(None)
                    group.cancel_scope.cancel()
        finally:
            self._moved(None)
            self._closing = None
