"""What a store keeps of a thread, and the Protocol of a store.

A store keeps rows of JSON text under a thread and a number. It knows no schema, no tree, and reads none of the
texts; what it has to look for or to compare stands in columns of its own.

1. A thread has one log. Its number grows by one with each transaction, and a transaction is all or nothing.
2. Who writes the log holds the thread's lease. Fences come from one counter of the store and never repeat; a
   transaction with another fence, or another number than it expects, changes nothing.
3. What comes from outside (the end of a question, an input) needs no lease: it changes its own row in one
   compare-and-set, counts up the thread's `mail` and makes the thread due.
4. Instants are seconds since 1970, UTC. Leases are timed by the store's clock, all else is given by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jianmu.engine.rows import (
    Delivery,
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

__all__ = [
    "Checkpointer",
    "Delivery",
    "Kind",
    "Known",
    "Lease",
    "Move",
    "QuestionRow",
    "Row",
    "Sought",
    "Stored",
    "Taken",
    "ThreadRow",
    "Transaction",
    "check_thread_id",
]


class Checkpointer(Protocol):
    """What a store does for runs, and for those who look after them; it opens itself on first use.

    Every method raises a `StoreError` when it cannot do its work (`CorruptRecordError` for a file that is torn or none
    of its own, `SchemaVersionError` for one of a newer jianmu); then nothing was changed. All may be called from any
    task, on asyncio and on trio, and from several event loops one after another.
    """

    async def acquire(self, thread_id: str, holder: str, seconds: float, *, create: bool = False) -> Lease:
        """Take the lease of a thread.

        Args:
            thread_id: the thread.
            holder: who takes it, as JSON text; a holder on this host whose process is gone holds nothing any more, and
                one whose lease could not be given back takes it anew.
            seconds: how long it lasts unless it is renewed.
            create: whether to make a thread that is not there; until its first transaction nobody else sees it.

        Raises:
            ThreadBusyError: somebody else holds it.
            UnknownThreadError: there is none, and `create` is False.
        """
        ...

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
        """Take the lease of a thread and do what comes first under it, in one transaction.

        Args:
            thread_id: the thread.
            holder: as in `acquire`.
            seconds: the same.
            create: the same.
            known: where memory stands. If it is not where the log does, what is needed to go on is returned.
            moves: steps of the thread's questions. If nothing is new, neither in the log nor from outside, they are
                carried out as by `move`, all or none.
            wake_at: as in `move`.

        Raises:
            ThreadBusyError: somebody else holds it.
            UnknownThreadError: there is none, and `create` is False.
        """
        ...

    def renew(self, lease: Lease, seconds: float) -> bool:
        """Have a lease last `seconds` from now; whether it still was this holder's. Called from a plain thread."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back; of one that was lost nothing is changed. A thread that has no transaction yet is gone."""
        ...

    async def commit(self, transaction: Transaction) -> bool:
        """Carry out a transaction; it is durable when this returns.

        Returns:
            Whether it was carried out; False if it releases the lease and there is mail that the run has not read.

        Raises:
            LeaseLostError: the lease is another holder's, or the thread is gone.
        """
        ...

    async def read(self, thread_id: str, *, at: int | None = None) -> Stored | None:
        """Return what is needed to go on with a thread, or None if there is none.

        Args:
            thread_id: the thread.
            at: the log number to go on from; None: the last one. What came after it is left out.

        Raises:
            StoreError: the log no longer, or not yet, has that number.
        """
        ...

    async def mail(self, thread_id: str) -> int:
        """Return the thread's `mail`, cheaply; -1 if there is no such thread."""
        ...

    async def move(self, moves: Sequence[Move], *, wake_at: float) -> bool:
        """Carry out steps of questions, all or none; it survives a power cut when this returns.

        Their threads have mail then, and are due at `wake_at` at the latest. Returns whether it was done: not if one
        question is not as its move says, which the caller finds out by looking again.
        """
        ...

    async def claim(self, id: str, by: str, until: float | None, *, now: float) -> bool:
        """Claim an open question until an instant, or (None) give one's claim up; whether it was done.

        It is not where the question is not open, or somebody else's claim lasts longer than `now`.
        """
        ...

    async def enqueue(self, thread_id: str, row: Row, *, wake_at: float) -> bool:
        """Add an input from outside, unless the thread has one with its id; the thread has mail then, and is due.

        Returns:
            Whether it was added. It survives a power cut when this returns.

        Raises:
            UnknownThreadError: there is no such thread.
        """
        ...

    async def row(self, thread_id: str, kind: Kind, id: str) -> Row | None:
        """Return one kept row, done with or not."""
        ...

    async def rows(self, thread_id: str, kind: Kind) -> list[Row]:
        """Return a thread's kept rows of one kind that are not done with, the oldest first."""
        ...

    async def questions(self, sought: Sought) -> list[QuestionRow]:
        """Return questions, the oldest first."""
        ...

    async def count(self, sought: Sought) -> int:
        """Return how many questions there are, whatever the limit."""
        ...

    async def thread(self, thread_id: str) -> ThreadRow | None:
        """Return how a thread stands, or None."""
        ...

    async def threads(
        self, *, status: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[ThreadRow]:
        """Return threads in the order of their ids, those after the id `after`."""
        ...

    async def due(self, now: float, *, limit: int = 100) -> list[str]:
        """Return the threads that somebody has to drive, the longest due first.

        Those are the ones whose `wake_at` has come, and those that are running and whose lease has run out; not those
        that somebody holds.
        """
        ...

    async def log(self, thread_id: str, *, after: int = 0, limit: int = 100) -> list[tuple[int, str]]:
        """Return (number, body) of a thread's log, the oldest first."""
        ...

    async def trim(self, thread_id: str, base: Row) -> None:
        """Put a snapshot at the beginning of a thread's log, and remove all that only numbers up to it needed.

        Removed are log rows up to `base.came`, other snapshots taken before or at it, and questions, effects and
        trees that were done with at or before it; in one transaction. Inputs stay: one that is delivered again has
        to be known.
        """
        ...

    async def delete(self, thread_id: str) -> bool:
        """Remove a thread and every row of it; whether there was one.

        Raises:
            ThreadBusyError: somebody holds its lease.
        """
        ...

    async def close(self) -> None:
        """Close what is open; the next use opens it again."""
        ...
