"""A store in a file that takes turns of the loop for each call, and fails where it is told to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from anyio.lowlevel import checkpoint

from jianmu.engine.checkpoint import Sought
from jianmu.errors import StoreError
from jianmu.stores.sqlite import Database
from jianmu.stores.tables import Mode, Say

T = TypeVar("T")


class HopStore(Database):
    """Threads in a file of SQLite, used on the loop itself, so that each run of a test goes the same way.

    Args:
        path: the file.
        hops: turns of the loop before each call is carried out, and again before it returns.

    Attributes:
        count: the calls so far.
        fail_at: the number of the call that fails.
        fails_after: whether it was carried out then.
    """

    def __init__(self, path: Path, hops: int = 2) -> None:
        super().__init__(str(path))
        self.place = path
        self.hops = hops
        self.count = 0
        self.fail_at: Collection[int] = ()
        self.fails_after = False

    async def call(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do a piece of work at once, between turns of the loop."""
        self.count += 1
        is_bad = self.count in self.fail_at
        await self._turns()
        if is_bad and not self.fails_after:
            raise StoreError("broken on purpose")
        result = self.work(mode, work)
        await self._turns()
        if is_bad:
            raise StoreError("broken on purpose")
        return result

    async def _turns(self) -> None:
        for _ in range(self.hops):
            await checkpoint()

    async def close(self) -> None:
        """Close the file."""
        with self.lock:
            self.drop()

    def again(self) -> HopStore:
        """Return another store on the same file."""
        return HopStore(self.place, self.hops)

    async def asked(self) -> list[tuple[str, bool]]:
        """Return of each question how it stands, and whether its end was delivered."""
        rows: Any = await self.questions(Sought(status=None))
        return [(row.status, row.consumed is not None) for row in sorted(rows, key=lambda row: row.came)]

    async def stands(self, thread_id: str) -> tuple[str, bool] | None:
        """Return how a thread stands, and whether it is held."""
        row = await self.thread(thread_id)
        return None if row is None else (row.status, row.is_held)
