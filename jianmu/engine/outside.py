"""Steps of questions from outside of their run: decided by what is stored, carried out in one compare-and-set.

1. All or none: when one decision raises, nothing is changed.
2. A step that lost a race is decided again by what is there then, so exactly one of racing ends wins.
3. No lease is needed and nothing is run: the thread has mail then, and is due.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

import anyio

from jianmu.engine import decisions
from jianmu.engine.answers import Door, door_of_stored, wants
from jianmu.engine.checkpoint import Checkpointer, Lease, Move, QuestionRow, Sought
from jianmu.engine.decisions import Change, Decision, deed
from jianmu.engine.holders import this_process
from jianmu.engine.lease import SECONDS
from jianmu.engine.questionrows import move_of, record_of
from jianmu.engine.questions import Answer
from jianmu.engine.record import Record
from jianmu.errors import ClaimedError, InvalidAnswerError, JianmuError, StoreError, UnknownSuspensionError

TRIES = 100
"""How often a step is decided anew; each lost race is a change of the question, and it has few of them."""


async def settle(
    store: Checkpointer,
    decided: Sequence[tuple[str, Decision]],
    *,
    now: datetime,
    wake_at: float,
    by: str | None = None,
    thread_id: str | None = None,
    expected: Sequence[Record] = (),
) -> list[Change]:
    """Carry out all these decisions or, when one raises, none; what was changed is durable when this returns.

    Args:
        store: where the questions are.
        decided: ids of questions, and what to decide about each.
        now: the present; what a person does comes too late at a deadline.
        wake_at: when their threads are due.
        by: who withdraws, where somebody else's claim refuses it; an answer says itself who gives it.
        thread_id: the thread whose questions they are; None: of any.
        expected: all these questions as the caller knows them, open: it is tried with them before the store is read.

    Raises:
        UnknownSuspensionError: one of them is not there.
        ClaimedError: somebody else has claimed one of them.
        JianmuError: whatever a decision raises.
    """
    ids = tuple(dict.fromkeys(id for id, _ in decided))
    known, rows = {record.id: record for record in expected}, dict[str, QuestionRow]()
    for _ in range(TRIES):
        if not known:
            rows = await _rows(store, ids, thread_id)
        changes, moves = _weighed(known or {id: record_of(row) for id, row in rows.items()}, rows, decided, now, by)
        known = {}
        if not moves or await store.move(moves, wake_at=wake_at):
            return changes
    raise StoreError("the store refuses each step of a question, though nothing forbids it: is the store itself sound?")


class Foreseen(NamedTuple):
    """What a decision comes to if a question is as it is known here, and the steps for a store."""

    changes: Sequence[Change] = ()
    moves: Sequence[Move] = ()


def foreseen(
    answer: Answer, find: Callable[[Answer], Record], door: Callable[[Record], Door], now: datetime
) -> Foreseen:
    """Return what an answer comes to if its question is open, as it is known here; nothing where it is refused."""
    try:
        record = find(answer)
        is_open = record.status == "open"
        decided = [(record.id, admit(answer, now, door))]
        return Foreseen(*_weighed({record.id: record}, {}, decided, now, None)) if is_open else Foreseen()
    except JianmuError:
        return Foreseen()


def admit(answer: Answer, now: datetime, door: Callable[[Record], Door] | None = None) -> Decision:
    """Return the decision to take an answer, if it fits what was asked for.

    Args:
        answer: the answer.
        now: the present.
        door: gives a question's door; by default that of its stored schema.
    """

    def decide(record: Record) -> Record | None:
        after = decisions.accept(answer, now)(record)
        if after is None or answer.action != "accept":
            return after
        schema = record.question.response_schema
        problem = (door_of_stored(schema) if door is None else door(record)).check(answer.payload)
        if problem is not None:
            raise InvalidAnswerError(record.id, problem, wants(schema))
        return after

    return decide


async def _rows(store: Checkpointer, ids: tuple[str, ...], thread_id: str | None) -> dict[str, QuestionRow]:
    """Return the questions with these ids; all of them have to be there."""
    found = await store.questions(Sought(ids, thread_id, status=None, limit=len(ids))) if ids else []
    rows = {row.id: row for row in found}
    unknown = next((id for id in ids if id not in rows), None)
    if unknown is not None:
        waiting = await store.questions(Sought(thread_id=thread_id))
        raise UnknownSuspensionError(unknown, [row.id for row in waiting])
    return rows


def _weighed(
    before: Mapping[str, Record],
    rows: Mapping[str, QuestionRow],
    decided: Sequence[tuple[str, Decision]],
    now: datetime,
    by: str | None,
) -> tuple[list[Change], list[Move]]:
    """Return what the decisions come to; the rows tell of claims, where they were read."""
    after = dict(before)
    for id, decide in decided:
        after[id] = decide(after[id]) or after[id]
    moved = [(before[id], record) for id, record in after.items() if record is not before[id]]
    moves = [_move(rows.get(new.id), old, new, now, by) for old, new in moved]
    return [Change(deed(old, new), new) for old, new in moved], moves


def _move(row: QuestionRow | None, before: Record, after: Record, now: datetime, by: str | None) -> Move:
    """Return a step as the store has to carry it out; claims count where a person does it."""
    if after.source != "person":
        return move_of(before, after, now=None)
    by = by if after.answer is None else after.answer.by or ""
    if by is not None and row is not None and is_claimed(row, now, by):
        raise ClaimedError(f"question '{row.id}' is claimed by somebody else: wait, or have it released", id=row.id)
    return move_of(before, after, now=now, by=by)


def is_claimed(row: QuestionRow, now: datetime, by: str | None = None) -> bool:
    """Whether somebody else than `by` has claimed a question."""
    is_held = row.claimed_until is not None and row.claimed_until > now.timestamp()
    return is_held and row.claimed_by not in (None, by)


@asynccontextmanager
async def held(store: Checkpointer, thread_id: str, *, create: bool = False) -> AsyncGenerator[Lease]:
    """Hold a thread's lease for a moment.

    Raises:
        ThreadBusyError: somebody else holds it.
        UnknownThreadError: there is none, and `create` is False.
    """
    lease = await store.acquire(thread_id, this_process(uuid.uuid4().hex), SECONDS, create=create)
    try:
        yield lease
    finally:
        with anyio.CancelScope(shield=True):
            await store.release(lease)
