"""Threads in the memory of this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from anyio.lowlevel import checkpoint_if_cancelled

from jianmu.engine.answers import JsonObject, json_text
from jianmu.engine.checkpoint import check_thread_id
from jianmu.errors import StoreError
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
        self._records: dict[str, bytes] = {}

    def drop(self) -> None:
        """Keep the connection: what it holds is nowhere else."""

    async def call(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do a piece of work at once."""
        await checkpoint_if_cancelled()
        return self.work(mode, work)

    async def close(self) -> None:
        """Do nothing: what a store in memory keeps ends with it."""

    async def save(self, thread_id: str, record: JsonObject) -> None:
        """Keep a record in the place of the one before.

        Raises:
            StoreError: the id is no thread's id, or the record is not JSON.
        """
        try:
            text = json_text(record)
        except ValueError as error:
            problem = str(error)
        else:
            self._records[check_thread_id(thread_id)] = text.encode()
            return
        raise StoreError(f"a record has to be JSON, not {problem}", thread_id=check_thread_id(thread_id))

    async def load(self, thread_id: str) -> JsonObject | None:
        """Return a copy of the record saved last, or None for an unknown thread."""
        kept = self._records.get(check_thread_id(thread_id))
        return None if kept is None else json.loads(kept)
