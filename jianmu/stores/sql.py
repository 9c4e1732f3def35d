"""A store in tables: what SQLite and PostgreSQL share.

A subclass says how a piece of work is done in a transaction, and in which words. What it can do better than by the
shared statements, it overrides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from jianmu.engine.checkpoint import (
    Kind,
    Known,
    Lease,
    Move,
    QuestionRow,
    Row,
    Sought,
    Stored,
    Taken,
    ThreadRow,
    Transaction,
    check_thread_id,
)
from jianmu.stores import reading, writing
from jianmu.stores.base import Store
from jianmu.stores.tables import Mode, Say
from jianmu.stores.threads import seconds_of

T = TypeVar("T")


class SQLStore(Store, ABC):
    """Threads in the tables of a database; its methods are those of `jianmu.engine.checkpoint.Checkpointer`."""

    @abstractmethod
    def work(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do a piece of work in one transaction, opening the store first if it is not open.

        When the work raises, nothing of it stays. An error of the database is raised as a `StoreError`.
        """

    @abstractmethod
    async def call(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do the same from a task; what has begun is finished, also when the task is cancelled."""

    @abstractmethod
    async def close(self) -> None:
        """Close what is open; the next use opens it again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Leases

    async def acquire(self, thread_id: str, holder: str, seconds: float, *, create: bool = False) -> Lease:
        """Take the lease of a thread."""
        check_thread_id(thread_id)
        return await self.call("write", lambda say: writing.acquire(say, thread_id, holder, seconds, create=create))

    async def take(
        self,
        thread_id: str,
        holder: str,
        seconds: float,
        *,
        create: bool = False,
        known: Known | None = None,
        moves: Sequence[Move] = (),
        wake_at: float = 0.0,
    ) -> Taken:
        """Take the lease of a thread, and read what memory has not, or carry out steps."""
        check_thread_id(thread_id)

        def work(say: Say, moves: Sequence[Move] = moves) -> Taken:
            lease = writing.acquire(say, thread_id, holder, seconds, create=create)
            return writing.go_on(say, lease, known, moves, wake_at)

        try:
            return await self.call("last" if moves else "write", work)
        except writing.RefusedError:
            return await self.call("write", partial(work, moves=()))

    def renew(self, lease: Lease, seconds: float) -> bool:
        """Have a lease last `seconds` from now; whether it still was this holder's."""
        return self.work("write", lambda say: writing.renew(say, lease, seconds))

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        await self.call("write", lambda say: writing.release(say, lease))

    # What a run writes and reads

    async def commit(self, transaction: Transaction) -> bool:
        """Carry out a transaction; it is durable when this returns."""
        mode = "last" if transaction.has_to_last else "write"
        return await self.call(mode, lambda say: writing.commit(say, transaction))

    async def read(self, thread_id: str, *, at: int | None = None) -> Stored | None:
        """Return what is needed to go on with a thread, or None if there is none."""
        check_thread_id(thread_id)
        return await self.call("read", lambda say: reading.read(say, thread_id, at))

    async def mail(self, thread_id: str) -> int:
        """Return how much has come from outside, or -1."""
        check_thread_id(thread_id)
        return await self.call("look", lambda say: reading.mail(say, thread_id))

    # What comes from outside

    async def move(self, moves: Sequence[Move], *, wake_at: float) -> bool:
        """Carry out steps of questions, all or none."""
        try:
            await self.call("last", lambda say: writing.move(say, moves, wake_at))
        except writing.RefusedError:
            return False
        return True

    async def claim(self, id: str, by: str, until: float | None, *, now: float) -> bool:
        """Claim an open question until an instant, or give one's claim up."""
        return await self.call("last", lambda say: writing.claim(say, id, by, until, now))

    async def enqueue(self, thread_id: str, row: Row, *, wake_at: float) -> bool:
        """Add an input from outside, unless the thread has one with its id."""
        check_thread_id(thread_id)
        return await self.call("last", lambda say: writing.enqueue(say, thread_id, row, wake_at))

    # What others look at

    async def row(self, thread_id: str, kind: Kind, id: str) -> Row | None:
        """Return one kept row, done with or not."""
        check_thread_id(thread_id)
        return await self.call("look", lambda say: reading.row(say, thread_id, kind, id))

    async def rows(self, thread_id: str, kind: Kind) -> list[Row]:
        """Return a thread's kept rows of one kind that are not done with, the oldest first."""
        check_thread_id(thread_id)
        return await self.call("look", lambda say: reading.rows(say, thread_id, kind))

    async def questions(self, sought: Sought) -> list[QuestionRow]:
        """Return questions, the oldest first."""
        return await self.call("look", lambda say: reading.questions(say, sought))

    async def count(self, sought: Sought) -> int:
        """Return how many questions there are, whatever the limit."""
        return await self.call("look", lambda say: reading.count(say, sought))

    async def thread(self, thread_id: str) -> ThreadRow | None:
        """Return how a thread stands, or None."""
        check_thread_id(thread_id)
        return await self.call("look", lambda say: reading.thread(say, thread_id))

    async def threads(
        self, *, status: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        """Return threads in the order of their ids."""
        return await self.call("look", lambda say: reading.threads(say, status, after, limit))

    async def due(self, now: float | datetime | None = None, *, limit: int = 100) -> list[str]:
        """Return the threads that somebody has to drive, the longest due first; None is the present."""
        return await self.call("read", lambda say: reading.due(say, seconds_of(now), limit))

    async def log(self, thread_id: str, *, after: int = 0, limit: int = 100) -> list[tuple[int, str]]:
        """Return (number, body) of a thread's log, the oldest first."""
        check_thread_id(thread_id)
        return await self.call("look", lambda say: reading.log(say, thread_id, after, limit))

    async def trim(self, thread_id: str, base: Row) -> None:
        """Put a snapshot at the beginning of a thread's log, and remove what only numbers up to it needed."""
        check_thread_id(thread_id)
        await self.call("write", lambda say: writing.trim(say, thread_id, base))

    async def delete(self, thread_id: str) -> bool:
        """Remove a thread and every row of it; whether there was one."""
        check_thread_id(thread_id)
        return await self.call("last", lambda say: writing.delete(say, thread_id))
