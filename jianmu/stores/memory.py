"""Threads in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio.lowlevel import checkpoint_if_cancelled

from jianmu.stores.sqlite import Database
from jianmu.stores.tables import Mode, Say

T = TypeVar("T")


class MemoryStore(Database):
    """Keeps the same bytes as a file would, so that nothing is shared with those who use it.

    Agents that are given the same store, in any thread and on any event loop, go on with each other's
    threads. What it keeps ends with the process.
    """

    def __init__(self) -> None:
        super().__init__(":memory:")

    def drop(self) -> None:
        """Keep the connection: what it holds is nowhere else."""

    async def call(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do a piece of work at once."""
        await checkpoint_if_cancelled()
        return self.work(mode, work)

    async def close(self) -> None:
        """Do nothing: what a store in memory keeps ends with it."""
