"""The questions of all threads of a store: looked through, claimed and answered without loading a thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

from pydantic import BaseModel, ConfigDict, JsonValue

from jianmu.engine import decisions
from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer, QuestionRow, Sought
from jianmu.engine.decisions import Decision
from jianmu.engine.log import log
from jianmu.engine.outside import admit, is_claimed, settle
from jianmu.engine.questionrows import instant, record_of
from jianmu.engine.questions import Answer, Suspension
from jianmu.engine.record import Record
from jianmu.errors import (
    AmbiguousAnswerError,
    ClaimedError,
    CorruptRecordError,
    InvalidAnswerError,
    StoreError,
    UnknownSuspensionError,
)
from jianmu.stores.threads import page_of, present

PAGE = 1000
"""How many questions are read at a time where all are wanted."""

AGES = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


class Pending(Suspension):
    """An open question in an inbox.

    Attributes:
        asked_at: when it was asked, UTC.
        claimed_by: who has claimed it, or None.
        claimed_until: when the claim ends, UTC.
        cursor: what the next page begins after.
    """

    asked_at: datetime
    claimed_by: str | None = None
    claimed_until: datetime | None = None

    @property
    def cursor(self) -> str:
        """What the next page begins after."""
        return f"{self.asked_at.isoformat()}|{self.id}"


class Counts(BaseModel):
    """How many questions are open.

    Attributes:
        open: all of them.
        by_assignee: by who is to answer; None is nobody in particular.
        by_reason: by what kind of question they are.
        older_than: how many were asked more than an `hour`, a `day`, a `week` ago.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    open: int
    by_assignee: dict[str | None, int]
    by_reason: dict[str, int]
    older_than: dict[str, int]


class Inbox:
    """The open questions of a store; `now` is an instant with its time zone, None the present.

    Args:
        store: where they are.
    """

    def __init__(self, store: Checkpointer) -> None:
        self._store = store

    async def pending(
        self,
        *,
        assignee: str | None = None,
        reason: str | None = None,
        older_than: float | None = None,
        thread_id: str | None = None,
        after: str | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> tuple[Pending, ...]:
        """Return open questions, the oldest first; what is private is left out.

        One whose row cannot be read is passed over, and logged.

        Args:
            assignee: who is to answer; None: anybody.
            reason: what kind of question; None: any.
            older_than: seconds that have to have passed since they were asked.
            thread_id: the thread; None: any.
            after: the `cursor` of the last one of the page before.
            limit: how many at most.
            now: the present.

        Raises:
            StoreError: the cursor, the limit or the age is none.
        """
        now = present(now)
        sought = _sought(assignee, reason, older_than, thread_id, now)
        rows = await self._store.questions(replace(sought, after=_place(after), limit=page_of(limit)))
        return tuple(found for row in rows if (found := _readable(row, now)) is not None)

    async def count(
        self,
        *,
        assignee: str | None = None,
        reason: str | None = None,
        older_than: float | None = None,
        thread_id: str | None = None,
        now: datetime | None = None,
    ) -> int:
        """Return how many questions are open; the arguments are those of `pending`."""
        return await self._store.count(_sought(assignee, reason, older_than, thread_id, present(now)))

    async def counts(self, *, now: datetime | None = None) -> Counts:
        """Return how many questions are open, by assignee, by reason and by age."""
        now = present(now)
        rows = await _all(self._store, Sought(limit=PAGE))
        asked = [row.asked_at for row in rows]
        return Counts(
            open=len(rows),
            by_assignee=dict(Counter(row.assignee for row in rows)),
            by_reason=dict(Counter(row.reason for row in rows)),
            older_than={age: sum(at < (now - span).timestamp() for at in asked) for age, span in AGES.items()},
        )

    async def claim(self, id: str, by: str, *, seconds: float = 900, now: datetime | None = None) -> Pending:
        """Keep others from answering an open question for some seconds; again by the same person it lasts anew.

        Raises:
            ClaimedError: somebody else has claimed it.
            InteractionError: it is not open.
        """
        now = present(now)
        until = now.timestamp() + _seconds(seconds)
        done = await self._store.claim(_id(id), _name(by), until, now=now.timestamp())
        row = await self._row(id)
        decisions.refuse_if_ended(_public(record_of(row)), now)
        if not done or row.claimed_by != by:
            raise ClaimedError(f"question '{id}' is claimed by somebody else: wait, or have it released", id=id)
        return _pending(row, now)

    async def release(self, id: str, by: str, *, now: datetime | None = None) -> None:
        """Give a claim up; of a question that is not claimed nothing is changed.

        Raises:
            ClaimedError: it is somebody else's.
            UnknownSuspensionError: there is no such question.
        """
        now = present(now)
        if await self._store.claim(_id(id), _name(by), None, now=now.timestamp()):
            return
        row = await self._row(id)
        if row.status == "open" and is_claimed(row, now, by):
            raise ClaimedError(f"question '{id}' is claimed by somebody else, who can release it", id=id)

    async def answer(self, *answers: Answer, now: datetime | None = None) -> tuple[Record, ...]:
        """Take one or several answers, all or none; they are durable when this returns. It runs nothing.

        Raises:
            InteractionError: one of them was refused, and nothing was changed.
        """
        now = present(now)
        if any(not isinstance(one, Answer) for one in cast("tuple[object, ...]", answers)):
            raise InvalidAnswerError(None, "answer takes Answer(id, payload)")
        ids = [await self._id_of(answer) for answer in answers]
        return await self._settled(list(zip(ids, [admit(answer, now) for answer in answers], strict=True)), now)

    async def approve(
        self,
        id: str | None = None,
        *,
        edited: JsonValue = None,
        by: str | None = None,
        remember: bool = False,
        now: datetime | None = None,
    ) -> Record:
        """Approve what a question shows, with `edited` arguments if given; see `answer`."""
        payload: JsonObject = {"approved": True, "editedArgs": edited, "reason": None, "remember": remember}
        return await self._decide(id, payload, by, now, is_bare=edited is None and not remember)

    async def reject(
        self, id: str | None = None, reason: str | None = None, *, by: str | None = None, now: datetime | None = None
    ) -> Record:
        """Reject what a question shows; see `answer`."""
        payload: JsonObject = {"approved": False, "editedArgs": None, "reason": reason, "remember": False}
        return await self._decide(id, payload, by, now, is_bare=reason is None)

    async def withdraw(
        self, id: str, reason: str = "withdrawn", *, by: str | None = None, now: datetime | None = None
    ) -> Record:
        """End an open question without an answer; its node is told the reason. With `by`, others' claims count.

        Raises:
            InteractionError: it is not open, or somebody else has claimed it; nothing was changed.
        """
        now = present(now)
        return (await self._settled([(_id(id), decisions.withdraw(now, reason))], now, by))[0]

    async def _decide(
        self, id: str | None, payload: JsonObject, by: str | None, now: datetime | None, *, is_bare: bool
    ) -> Record:
        row = await self._row(await self._id_of(Answer(id, by=by)))
        is_bool = record_of(row).question.response_schema.get("type") == "boolean"
        answer = Answer(row.id, payload["approved"] if is_bool and is_bare else payload, by=by)
        return (await self.answer(answer, now=now))[0]

    async def _settled(
        self, decided: list[tuple[str, Decision]], now: datetime, by: str | None = None
    ) -> tuple[Record, ...]:
        """Carry out decisions, all or none, and return how their questions stand."""
        stands: dict[str, Record] = {}

        def noting(decide: Decision) -> Decision:
            def noted(record: Record) -> Record | None:
                record = _public(record)
                after = decide(record)
                stands[record.id] = after or record
                return after

            return noted

        noted = [(id, noting(decide)) for id, decide in decided]
        await settle(self._store, noted, now=now, wake_at=now.timestamp(), by=by)
        return tuple(stands[id] for id, _ in decided)

    async def _row(self, id: str) -> QuestionRow:
        rows = await self._store.questions(Sought((id,), status=None))
        if not rows:
            raise UnknownSuspensionError(id, [row.id for row in await self._store.questions(Sought())])
        return rows[0]

    async def _id_of(self, answer: Answer) -> str:
        """Return the question that an answer is for: by its id, its key, or as the only open one."""
        if answer.id is not None:
            return answer.id
        known: list[str] = []
        if answer.key is not None:
            ended = await _all(self._store, Sought(status="answered", limit=PAGE))
            known = [row.id for row in ended if decisions.is_repeated(record_of(row), answer)]
        known = known or [row.id for row in await self._store.questions(Sought())]
        if len(known) == 1:
            return known[0]
        raise AmbiguousAnswerError(known) if known else UnknownSuspensionError(None)


def _sought(
    assignee: str | None, reason: str | None, older_than: float | None, thread_id: str | None, now: datetime
) -> Sought:
    before = None if older_than is None else now.timestamp() - _seconds(older_than)
    return Sought(thread_id=thread_id, assignee=assignee, reason=reason, asked_before=before)


def _place(cursor: str | None) -> tuple[float, str] | None:
    """Return what a cursor stands for."""
    if cursor is None:
        return None
    at, bar, id = str(cursor).partition("|")
    try:
        return datetime.fromisoformat(at).timestamp(), id if bar else ""
    except ValueError:
        pass
    raise StoreError("after is the cursor of a pending question: pending(after=page[-1].cursor)")


def _readable(row: QuestionRow, now: datetime) -> Pending | None:
    """Return a question of a page; one that cannot be read does not hide the others."""
    try:
        return _pending(row, now)
    except CorruptRecordError as error:
        log.warning("a question is passed over", thread=row.thread_id, question=row.id, problem=str(error))
        return None


def _pending(row: QuestionRow, now: datetime) -> Pending:
    claim = (row.claimed_by, instant(row.claimed_until)) if is_claimed(row, now) else (None, None)
    asked_at = instant(row.asked_at) or datetime.fromtimestamp(0, UTC)
    question = dict(record_of(row).question)
    return Pending(**question, asked_at=asked_at, claimed_by=claim[0], claimed_until=claim[1])


def _public(record: Record) -> Record:
    return record.model_copy(update={"private": None})


async def _all(store: Checkpointer, sought: Sought) -> list[QuestionRow]:
    """Return all questions that are sought, whatever the limit of one page."""
    found = page = await store.questions(sought)
    while len(page) == sought.limit:
        page = await store.questions(replace(sought, after=(page[-1].asked_at, page[-1].id)))
        found = [*found, *page]
    return found


def _id(id: str) -> str:
    return Answer(id).id or ""


def _name(by: str) -> str:
    if isinstance(by, str) and by and by.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's
        return by
    raise StoreError("by is the name of who claims a question: a printable text that is not empty")


def _seconds(value: float) -> float:
    if isinstance(value, int | float) and 0 <= value < 1e10:  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's
        return value
    raise StoreError("seconds are a number from 0 up")
