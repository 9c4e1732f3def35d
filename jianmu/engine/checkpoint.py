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
from dataclasses import dataclass, field
from typing import Literal, Protocol

from jianmu.errors import StoreError

Kind = Literal["tree", "base", "cache", "effect", "input"]
"""What a kept row is: the paths and classes of a tree; a snapshot that the log begins with; a snapshot that spares
reading the log from its beginning; an entry of the journal; an input."""


@dataclass(frozen=True)
class Row:
    """A text kept beside the log.

    Attributes:
        kind: what it is.
        id: what it is known by in its thread, with its kind.
        body: the JSON text.
        came: the log number with which it came; of a snapshot the number at which it was taken.
        went: the log number with which it was done with, or None: it is needed to go on.
    """

    kind: Kind
    id: str
    body: str = field(repr=False)
    came: int = 0
    went: int | None = None


@dataclass(frozen=True)
class QuestionRow:
    """A question.

    Attributes:
        id: its id, unique in the store.
        thread_id: the thread.
        asked: the question as it was asked, JSON text; it never changes.
        status: open, answered, expired or withdrawn; it leaves `open` once.
        reason: what kind of question it is.
        assignee: who is to answer.
        asked_at: when it was asked.
        next_at: when its next step is due, or None.
        expires_at: when it ends by itself, or None.
        taken: how many of its steps were carried out.
        ended: how it ended (the answer, when, by whom), JSON text, or None while it is open.
        unused: whether the tree gave up the node that asked before it was told.
        claimed_by: who has claimed it, or None.
        claimed_until: when the claim ends.
        came: the log number with which it was asked.
        consumed: the log number with which its end was delivered to its node, or with which nobody waited for it.
        went: the log number with which it was done with, or None.
    """

    id: str
    thread_id: str
    asked: str = field(repr=False)
    status: str
    reason: str
    assignee: str | None
    asked_at: float
    next_at: float | None
    expires_at: float | None
    taken: int = 0
    ended: str | None = field(default=None, repr=False)
    unused: bool = False
    claimed_by: str | None = None
    claimed_until: float | None = None
    came: int = 0
    consumed: int | None = None
    went: int | None = None


@dataclass(frozen=True)
class Delivery:
    """What the run has done with a question: the part of its row that is the run's to change.

    Attributes:
        id: the question.
        ended: where the tree gave it up while it was open: how it ended; it is withdrawn then, unless an end came
            first, which stays.
        consumed: whether its end was delivered, or nobody waits for it any more.
        unused: whether nobody was told its end.
        is_gone: whether the run needs it no more.
    """

    id: str
    ended: str | None = field(default=None, repr=False)
    consumed: bool = False
    unused: bool = False
    is_gone: bool = False


@dataclass(frozen=True)
class Move:
    """A step of an open question, from outside of its run or inside: its end, or an escalation.

    Attributes:
        id: the question.
        taken: how many of its steps were carried out so far; if it is another number nothing is changed.
        status: the status after it.
        ended: how it ended; None for an escalation.
        now: an answer comes too late where the question's `expires_at` is not later; None for what a deadline does.
        by: who does it, where a claim of somebody else's refuses it; None: claims do not count.
        assignee: the assignee after it.
        next_at: when the next step is due after it.
        taken_after: how many of its steps are carried out after it.
    """

    id: str
    taken: int
    status: str
    ended: str | None = field(repr=False)
    now: float | None
    by: str | None
    assignee: str | None
    next_at: float | None
    taken_after: int


@dataclass(frozen=True)
class ThreadRow:
    """How a thread stands.

    Attributes:
        thread_id: its id.
        number: the number of its log's last transaction.
        mail: counts what has come from outside.
        status: running, suspended, interrupted, idle, finished, failed.
        record: what `list` and `show` tell of it, JSON text.
        wake_at: when somebody has to drive it, or None.
        holder: who holds the lease, JSON text, or None.
        fence: the fence of the lease that was given last.
        lease_until: when the lease ends by the store's clock, or None.
        is_held: whether the lease holds now, by the store's clock.
        created_at: when it was made.
        updated_at: when its log was written last.
    """

    thread_id: str
    number: int
    mail: int
    status: str
    record: str = field(repr=False)
    wake_at: float | None
    holder: str | None
    fence: int
    lease_until: float | None
    is_held: bool
    created_at: float
    updated_at: float


@dataclass(frozen=True)
class Stored:
    """What is needed to go on with a thread, from one moment.

    Attributes:
        thread: how it stands.
        snapshot: the newest snapshot at or before the number asked for, or None.
        log: (number, body) after the snapshot, in order.
        rows: trees, effects and inputs that are not done with at that number.
        questions: those that are not done with at that number, in the order in which they were asked.
    """

    thread: ThreadRow
    snapshot: Row | None
    log: tuple[tuple[int, str], ...]
    rows: tuple[Row, ...]
    questions: tuple[QuestionRow, ...]


@dataclass(frozen=True)
class Lease:
    """The right to write a thread's log.

    Attributes:
        thread_id: the thread.
        fence: the lease's number, larger than all before it in this store.
        number: the number of the thread's log, 0 for a new one.
        mail: as in `ThreadRow`.
    """

    thread_id: str
    fence: int
    number: int
    mail: int


@dataclass(frozen=True)
class Transaction:
    """One step of a thread's log, all or nothing.

    Attributes:
        lease: whose thread and fence it is written under.
        expected: the number that the log has to have; it has one more afterwards.
        body: what is added to the log, JSON text; None for a number without a row.
        status: how the thread stands after it.
        record: what `list` and `show` tell of it, JSON text.
        wake_at: when somebody has to drive the thread, or None.
        questions: new ones.
        delivered: what became of others.
        rows: kept rows, each in the place of the one with its kind and id.
        closed: (kind, id) of kept rows that are done with from now on: their `went` is this number.
        gone: (kind, id) of kept rows that are removed.
        has_to_last: whether it has to survive a power cut too.
        releases: whether the lease ends with it.
        seen: the `mail` that the run has read: if there is more, a transaction that releases changes nothing;
            None: it does not matter.
    """

    lease: Lease
    expected: int
    body: str | None = field(repr=False)
    status: str
    record: str = field(repr=False)
    wake_at: float | None
    questions: tuple[QuestionRow, ...] = ()
    delivered: tuple[Delivery, ...] = ()
    rows: tuple[Row, ...] = ()
    closed: tuple[tuple[Kind, str], ...] = ()
    gone: tuple[tuple[Kind, str], ...] = ()
    has_to_last: bool = False
    releases: bool = False
    seen: int | None = None


@dataclass(frozen=True)
class Sought:
    """Which questions are sought; None means any.

    Attributes:
        ids: their ids.
        thread_id: their thread.
        status: their status.
        assignee: who is to answer.
        reason: what kind of question.
        asked_before: an instant before which they were asked.
        due: an instant at or before which their next step is due.
        after: (asked_at, id) of the last one of the page before.
        limit: how many at most.
    """

    ids: tuple[str, ...] | None = None
    thread_id: str | None = None
    status: str | None = "open"
    assignee: str | None = None
    reason: str | None = None
    asked_before: float | None = None
    due: float | None = None
    after: tuple[float, str] | None = None
    limit: int = 100


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
            holder: who takes it, as JSON text; a holder on this host whose process is gone holds nothing any more.
            seconds: how long it lasts unless it is renewed.
            create: whether to make a thread that is not there; until its first transaction nobody else sees it.

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

        Removed are log rows up to `base.came`, other snapshots taken before or at it, and questions, effects,
        inputs and trees that were done with at or before it; in one transaction.
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


def check_thread_id(thread_id: object) -> str:
    """Return a thread's id, if it is one.

    Raises:
        StoreError: it is not a text of 1 to 512 characters without NUL and lone surrogates.
    """
    if isinstance(thread_id, str) and 1 <= len(thread_id) <= 512 and "\0" not in thread_id and _is_unicode(thread_id):
        return thread_id
    raise StoreError("a thread's id is a text of 1 to 512 characters, without NUL and lone surrogates")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
