"""Who looks after a thread while its run is on: one task saves behind the run, another looks for mail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any  # Any: what a coroutine is sent, which is of no use

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint


class Turn:
    """Lets one task at a time into its block."""

    _is_taken = False
    _is_free: anyio.Event | None = None  # made by who has to wait

    async def __aenter__(self) -> None:
        """Wait for the turn."""
        while self._is_taken:
            self._is_free = self._is_free or anyio.Event()
            await self._is_free.wait()
        self._is_taken = True

    async def __aexit__(self, *_: object) -> None:
        """Let the next one in."""
        self._is_taken, is_free, self._is_free = False, self._is_free, None
        if is_free is not None:
            is_free.set()


class Attendance:
    """Two tasks in the group of a run's coroutines; a run that never waits has none.

    Args:
        save: saves what there is; what it raises was told to the run, which ends with it.
        look: looks for mail, and does whatever else has to be done again and again.
        pause: seconds between two looks.
    """

    def __init__(
        self, save: Callable[[], Awaitable[None]] | None, look: Callable[[], Awaitable[None]], pause: float
    ) -> None:
        self._save = save
        self._look = look
        self._pause = pause
        self._group: TaskGroup | None = None
        self._scope: anyio.CancelScope | None = None
        self._is_stirred = False
        self._stirred: anyio.Event | None = None

    def be_in(self, group: TaskGroup, guard: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Have the tasks live in a group, as soon as they are needed; `guard` awaits what they do."""
        self._group, self._guard = group, guard

    def begin(self) -> None:
        """Begin, unless it is on."""
        if self._scope is None and self._group is not None:
            self._scope = anyio.CancelScope()
            self._group.start_soon(self._guard, self._attend, self._scope)

    def stir(self) -> None:
        """Tell that there is something to save."""
        self._is_stirred = True
        if self._stirred is not None:
            self._stirred.set()

    def end(self) -> None:
        """Begin nothing more; a commit that is under way comes to its end."""
        self._group = self._stirred = None
        self._is_stirred = False
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None

    async def _attend(self, scope: anyio.CancelScope) -> None:
        with scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._guard, self._look_again)
                if self._save is not None:
                    group.start_soon(self._guard, self._save_behind, self._save)

    async def _look_again(self) -> None:
        while True:
            await anyio.sleep(self._pause)
            await self._look()

    async def _save_behind(self, save: Callable[[], Awaitable[None]]) -> None:
        while True:
            if not self._is_stirred:
                self._stirred = anyio.Event()
                await self._stirred.wait()
            await checkpoint()  # what others do in this turn of the loop is saved with it
            self._is_stirred = False
            try:
                await save()
            except Exception:  # noqa: BLE001  # the run was told
                return
