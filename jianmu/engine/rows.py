"""What a store keeps of a thread: rows of JSON text with what has to be looked for in columns of their own.

Nothing of it is changed once made; what each transaction needs is not `frozen`, which would take three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from jianmu.engine.answers import ID, is_id
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
        asked: the question as it was asked, JSON text.
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


@dataclass
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


@dataclass
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
        made_at: when the thread was made, where the store can tell: one that was deleted and made anew is another.
        key: what the store knows the thread by, where that is something else.
    """

    thread_id: str
    fence: int
    number: int
    mail: int
    made_at: float | None = None
    key: int | None = None


@dataclass(frozen=True)
class Known:
    """Where memory stands with a thread.

    Attributes:
        number: the number of its log.
        mail: as in `ThreadRow`.
        made_at: when the thread was made, or None.
    """

    number: int
    mail: int
    made_at: float | None


@dataclass(frozen=True)
class Taken:
    """A thread that was taken.

    Attributes:
        lease: the lease.
        is_known: whether the log stands where memory does.
        stored: what is needed to go on, where it does not; None for a thread that is new.
        has_moved: whether the moves were carried out.
    """

    lease: Lease
    is_known: bool
    stored: Stored | None = None
    has_moved: bool = False


@dataclass
class Transaction:
    """One step of a thread's log, all or nothing.

    Attributes:
        lease: whose thread and fence it is written under.
        expected: the number that the log has to have; it has one more afterwards.
        body: what is added to the log, JSON text; None for a number without a row.
        status: how the thread stands after it.
        record: what `list` and `show` tell of it, JSON text.
        wake_at: when somebody has to drive the thread, or None.
        questions: new ones; of one that the thread has already, `asked`, `reason` and `assignee` are replaced (after a
            migration), and nothing else.
        delivered: what became of others.
        rows: kept rows, each in the place of the one with its kind and id.
        closed: (kind, id) of kept rows that are done with from now on: their `went` is this number.
        gone: (kind, id) of kept rows that are removed.
        has_to_last: whether it has to survive a power cut too.
        releases: whether the lease ends with it.
        seen: the `mail` that the run has read. If there is more, a transaction that releases changes nothing, and
            another one keeps an earlier `wake_at`. None: with a release it does not matter, else none was read.
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


def check_thread_id(thread_id: object) -> str:
    """Return a thread's id, if it is one.

    Raises:
        StoreError: it is not a text of 1 to 512 characters without NUL and lone surrogates.
    """
    if isinstance(thread_id, str) and is_id(thread_id):
        return thread_id
    raise StoreError(f"a thread's id is {ID}")
