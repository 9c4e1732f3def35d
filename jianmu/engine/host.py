"""Where the coroutines of a run live: a group of tasks out of reach of the caller's cancellation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from anyio.abc import TaskGroup


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
        self._wanted: tuple[AsyncExitStack, Callable[[], None]] | None = None

    @property
    def is_open(self) -> bool:
        """Whether coroutines can live here."""
        return self._closing is not None

    def at_hand(self, opened: Callable[[], None]) -> AsyncExitStack:
        """Return a block at whose end the group closes that `ready` has opened: a run that never waits needs none.

        Args:
            opened: called when it was opened.
        """
        stack = AsyncExitStack()
        stack.callback(self._forget)
        self._wanted = stack, opened
        return stack

    def _forget(self) -> None:
        self._wanted = None

    async def ready(self) -> None:
        """Open the group in a block of `at_hand`, unless it is open."""
        if self._wanted is not None and not self.is_open:
            stack, opened = self._wanted
            await stack.enter_async_context(self.opened())
            opened()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Hold the group open; inside of an open one it changes nothing."""
        if self.is_open:
            yield
            return
        raised: BaseException | None = None
        closing = self._closing = anyio.Event()
        async with anyio.create_task_group() as rim:
            try:
                is_open = anyio.Event()
                rim.start_soon(self._serve, is_open, closing)
                await is_open.wait()
                yield
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  # raised outside of the group, which would wrap it
                raised = error
            finally:
                closing.set()
        if raised is not None:
            raise raised

    async def _serve(self, is_open: anyio.Event, closing: anyio.Event) -> None:
        """Hold the group open until `closing` is set, which may have happened already."""
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    self._moved(group)
                    group.start_soon(self._pump)
                    is_open.set()
                    await closing.wait()
                    self._moved(None)
                    group.cancel_scope.cancel()
        finally:
            self._moved(None)
            self._closing = None
