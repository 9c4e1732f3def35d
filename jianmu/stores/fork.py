"""New threads out of points of others, and logs that begin at one of their points.

1. A fork is one snapshot with rows of its own: it needs nothing of its source, and changes nothing there.
2. The ids of questions and effects are digests that hold the thread's id: a fork has its own, wherever they stand.
3. What was done in the world stays done: entries of the journal keep their idempotency keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast  # Any: JSON

from pydantic import JsonValue

from jianmu.engine.checkpoint import Checkpointer, QuestionRow, Row, Transaction, check_thread_id
from jianmu.engine.journal import Entry, read_entries
from jianmu.engine.outside import held
from jianmu.engine.point import Point, stored_point
from jianmu.engine.questionrows import record_of, row_of, text_of
from jianmu.engine.questions import question_id
from jianmu.engine.record import Record
from jianmu.errors import StoreError
from jianmu.stores.history import record_at, stored_at, waits_at


async def fork(store: Checkpointer, thread_id: str, new_id: str, at: int | None, now: datetime) -> None:
    """Make a thread that goes on from a number of another one.

    Raises:
        StoreError: the log does not have that number, or there is a thread with the new id.
        UnknownThreadError: there is no such thread.
    """
    check_thread_id(new_id)
    stored = await stored_at(store, thread_id, at)
    number = stored.thread.number if at is None else at
    records = {row.id: _forked(row, new_id, number) for row in stored.questions}
    point = _begun(stored_point(stored), {old: record.id for old, record in records.items()})
    entries = read_entries(record_at(stored).journal)
    trees = [replace(row, came=1, went=None) for row in stored.rows if row.kind == "tree" and row.id == point.tree]
    waiting = [record for record in records.values() if record.status == "open"]
    asked = [row_of(record, came=1, consumed=None if record.status == "open" else 1) for record in records.values()]
    async with held(store, new_id, create=True) as lease:
        if lease.number:
            raise StoreError(f"there is a thread '{new_id}' already: give the fork another id", thread_id=new_id)
        await store.commit(
            Transaction(
                lease=lease,
                expected=0,
                body=None,
                status=cast("str", point.values["status"]),
                record=text_of(_told(point, waiting)),
                wake_at=_wake_at(point, waiting, now),
                questions=tuple(asked),
                rows=(Row("base", "fork", point.body(), came=1), *trees, *_effects(entries, new_id)),
                has_to_last=True,
                releases=True,
            )
        )


async def prune(store: Checkpointer, thread_id: str, at: int | None) -> int:
    """Have a thread's log begin at a number, and return that number."""
    stored = await stored_at(store, thread_id, at)
    number = stored.thread.number if at is None else at
    await store.trim(thread_id, Row("base", str(number), stored_point(stored).body(), came=number))
    return number


def _forked(row: QuestionRow, thread_id: str, number: int) -> Record:
    """Return a question as one of another thread; open, if it was not delivered yet at a number of its log."""
    record = record_of(row)
    origin = replace(record.origin, thread_id=thread_id)
    id = question_id(origin, record.question.key, record.count)
    record = record.model_copy(update={"origin": origin}).with_question(id=id, thread_id=thread_id)
    if waits_at(row, number):
        return _reopened(record)
    answer = record.answer and replace(record.answer, id=id)
    return record.model_copy(update={"answer": answer})


def _reopened(record: Record) -> Record:
    """Return a question without its end; a deadline that has ended it is due again."""
    taken = record.taken - (record.source == "deadline")
    return record.with_question(status="open").model_copy(update={"taken": taken, "unused": False})


def _begun(point: Point, ids: Mapping[str, str]) -> Point:
    """Return a point as the beginning of a thread of its own, with these ids in the places of others."""
    if point.values.get("status", "running") == "running":
        point.values["status"] = "interrupted"
    point.nodes = cast("dict[str, JsonValue]", _with_ids(point.nodes, ids))
    return point


def _with_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """Return JSON with ids exchanged, wherever a node has kept one."""
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, list):
        return [_with_ids(each, ids) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _with_ids(each, ids) for key, each in cast("dict[str, Any]", value).items()}
    return value


def _effects(entries: Iterable[Entry], thread_id: str) -> list[Row]:
    """Return the rows of effects as those of another thread."""
    moved = [entry.model_copy(update={"origin": replace(entry.origin, thread_id=thread_id)}) for entry in entries]
    return [Row("effect", entry.id, entry.model_dump_json(exclude_defaults=True), came=1) for entry in moved]


def _told(point: Point, waiting: list[Record]) -> dict[str, Any]:
    """Return what is told of the thread in a list."""
    values = point.values
    paths = sorted({record.question.path for record in waiting})
    return {"waiting": paths} | {name: values[name] for name in ("run", "error", "usage") if name in values}


def _wake_at(point: Point, waiting: list[Record], now: datetime) -> float | None:
    """Return when somebody has to drive the thread."""
    if point.values["status"] == "interrupted":
        return now.timestamp()
    return min((record.next_at.timestamp() for record in waiting if record.next_at), default=None)
