"""What a thread's log tells: how it stands at a number, and what its transactions did."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, cast  # Any: JSON

from pydantic import BaseModel, ConfigDict, JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer, QuestionRow, Stored, check_thread_id
from jianmu.engine.journal import Entry, read_entries
from jianmu.engine.point import run_record, stored_point
from jianmu.engine.positions import whole
from jianmu.engine.questionrows import record_of
from jianmu.engine.questions import Suspension
from jianmu.engine.runrecord import RunRecord
from jianmu.errors import CorruptRecordError, StoreError, UnknownThreadError
from jianmu.stores.threads import ThreadInfo, info_of, page_of

UNKNOWN = ("started", "unknown")
"""How a journal entry stands of which nobody knows whether it happened."""


class ThreadView(ThreadInfo):
    """How a thread stands, or stood at an earlier number, with all that a person can read of it.

    Attributes:
        fields: the fields of its state, JSON.
        inner: the same of the agents inside of it, by path.
        position: the status of each node that is not INVALID, by path.
        asked: the questions that were not answered; those that were not delivered, at an earlier number.
        unknown: the effects of which nobody knows whether they happened.
        inputs: inputs that wait to be applied, JSON.
    """

    fields: JsonObject
    inner: dict[str, JsonObject]
    position: dict[str, str]
    asked: tuple[Suspension, ...]
    unknown: tuple[Entry, ...]
    inputs: tuple[JsonValue, ...]


class Written(BaseModel):
    """What one transaction of a log did.

    Attributes:
        number: its number.
        time: when it was written.
        what: what for.
        status: how the thread stood after it, where that has changed.
        fields: the fields of the state that were written; those of an agent inside of it after its path.
        nodes: the paths of the nodes of which something else is kept since.
        size: the bytes of its text.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    number: int
    time: datetime | None
    what: str | None
    status: str | None
    fields: tuple[str, ...]
    nodes: tuple[str, ...]
    size: int


def check_number(number: object, least: int = 1) -> int:
    """Return the number of a transaction, if it is one."""
    if isinstance(number, int) and not isinstance(number, bool) and number >= least:
        return number
    raise StoreError(f"the number of a transaction is a whole number from {least} up")


async def stored_at(store: Checkpointer, thread_id: str, at: int | None) -> Stored:
    """Return what is needed to go on with a thread from a number.

    Raises:
        UnknownThreadError: there is no such thread.
        StoreError: the log does not have that number.
    """
    stored = await store.read(check_thread_id(thread_id), at=None if at is None else check_number(at))
    if stored is None:
        raise UnknownThreadError(f"there is no thread '{thread_id}' in the store", thread_id=thread_id)
    return stored


def record_at(stored: Stored) -> RunRecord:
    """Return the record of a run, whatever the version of its schema: no value of it is read as one of the schema."""
    return run_record(stored, schema_version=sys.maxsize)


def waits_at(row: QuestionRow, number: int) -> bool:
    """Whether a question was not delivered yet at a number of its log."""
    return row.consumed is None or row.consumed > number


async def show(store: Checkpointer, thread_id: str, at: int | None) -> ThreadView:
    """Return how a thread stands, or stood at an earlier number."""
    stored = await stored_at(store, thread_id, at)
    last = stored.thread.number
    number = last if at is None else at
    record = record_at(stored)
    asked = [row for row in stored.questions if (row.status == "open" if number == last else waits_at(row, number))]
    known: dict[str, Any] = {
        "number": number,
        "run": record.run,
        "error": record.error,
        "usage": record.usage,
        "questions": len(asked),
        "fields": {} if record.state is None else record.state.fields,
        "inner": {path: state.fields for path, state in record.inner.items()},
        "position": _statuses(record.position),
        "asked": [record_of(row).question.model_copy(update={"status": "open"}) for row in asked],
        "unknown": [entry for entry in read_entries(record.journal) if entry.state in UNKNOWN],
        "inputs": _queued(stored) if number == last else (),
    }
    if number != last:
        status = stored_point(stored).values.get("status", "running")
        known |= {"status": status, "waiting": [question.path for question in known["asked"]], "wake_at": None}
    return await info_of(store, stored.thread, ThreadView, **known)


def _queued(stored: Stored) -> list[JsonValue]:
    """Return the inputs that no transaction has applied yet."""
    bodies = [row.body for row in stored.rows if row.kind == "input" and row.came == 0]
    return [_loaded(body, stored.thread.thread_id).get("input") for body in bodies]


def _statuses(position: Any) -> dict[str, str]:
    """Return the statuses of a position, by path."""
    nodes = position["nodes"].items() if position else ()
    return {position["paths"][int(number)]: entry["status"] for number, entry in nodes if "status" in entry}


async def history(store: Checkpointer, thread_id: str, after: int, limit: int) -> tuple[Written, ...]:
    """Return what the transactions after a number did, the oldest first."""
    log = await store.log(check_thread_id(thread_id), after=check_number(after, 0), limit=page_of(limit))
    if not log and await store.thread(thread_id) is None:
        raise UnknownThreadError(f"there is no thread '{thread_id}' in the store", thread_id=thread_id)
    tree = stored_point(await stored_at(store, thread_id, log[0][0])).tree if log else None
    found: list[Written] = []
    paths: dict[str | None, Sequence[str]] = {None: ()}
    for number, text in log:
        body = _loaded(text, thread_id)
        tree = body.get("tree", tree)
        if tree not in paths:
            row = await store.row(thread_id, "tree", tree)
            paths[tree] = () if row is None else cast("list[str]", whole(row.body, {}, 0)["paths"])
        found.append(_written(number, text, body, paths[tree], thread_id))
    return tuple(found)


def _loaded(text: str, thread_id: str) -> dict[str, Any]:
    try:
        return dict[str, Any](json.loads(text))
    except (ValueError, TypeError, RecursionError):
        pass
    raise CorruptRecordError("a row of a thread is no JSON object: something else changed it", thread_id=thread_id)


def _written(number: int, text: str, body: dict[str, Any], paths: Sequence[str], thread_id: str) -> Written:
    try:
        return Written(
            number=number,
            time=body.get("time"),
            what=body.get("what"),
            status=body.get("status"),
            fields=tuple(dict.fromkeys(_fields(body))),
            nodes=tuple(paths[int(node)] for node in body.get("nodes") or () if int(node) < len(paths)),
            size=len(text.encode()),
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        problem = type(error).__name__
    raise CorruptRecordError(f"number {number} of the log cannot be read ({problem})", thread_id=thread_id)


def _fields(body: dict[str, Any]) -> Iterator[str]:
    """Yield the full names of the fields that a body writes."""
    states: dict[str, Any] = ({"": body["state"]} if body.get("state") else {}) | (body.get("inner") or {})
    deltas: dict[str, Any] = ({"": (0, body["s"])} if "s" in body else {}) | (body.get("i") or {})
    written = [(path, name) for path, state in states.items() for name in state["fields"]]
    written += [(path, delta[0]) for path, (_, made) in deltas.items() for delta in made if delta[0]]
    yield from (f"{path}.{name}" if path else name for path, name in written)
