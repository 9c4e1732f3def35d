"""Questions as rows of a store: what is asked never changes, how it ends is written apart from it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any  # Any: JSON

from pydantic import ValidationError
from pydantic_core import to_json

from jianmu.engine.checkpoint import Move, QuestionRow
from jianmu.engine.questions import Origin
from jianmu.engine.record import Record
from jianmu.errors import CorruptRecordError

COLUMNS = ("id", "thread_id", "status", "assignee", "expires_at", "reason")
_UNSAID = {"id": ..., "payload": None, "action": "accept", "by": None, "key": None, "metadata": None}
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # `json.dumps` would make one each time


def row_of(record: Record, *, came: int, consumed: int | None = None, went: int | None = None) -> QuestionRow:
    """Return the row of a question that came, was delivered and done with at some numbers of the log."""
    question = record.question
    shown = question.model_dump(mode="json", exclude_defaults=True, exclude=set(COLUMNS))
    steps = [step.model_dump(mode="json", exclude_defaults=True) for step in record.steps]
    asked = {"q": shown, "o": [record.origin.run, record.origin.path, record.origin.rounds], "c": record.count}
    asked |= {"s": steps} if steps else {}
    asked |= {"p": record.private} if record.private is not None else {}
    return QuestionRow(
        id=record.id,
        thread_id=record.origin.thread_id,
        asked=text_of(asked),
        status=record.status,
        reason=question.reason,
        assignee=question.assignee,
        asked_at=record.asked_at.timestamp(),
        next_at=seconds(record.next_at),
        expires_at=seconds(question.expires_at),
        taken=record.taken,
        ended=ended_of(record),
        unused=record.unused,
        came=came,
        consumed=consumed,
        went=went,
    )


def record_of(row: QuestionRow) -> Record:
    """Return a question from its row.

    Raises:
        CorruptRecordError: the row cannot be read.
    """
    try:
        asked: dict[str, Any] = json.loads(row.asked)
        run, path, rounds = asked["o"]
        origin = Origin(row.thread_id, run, path, tuple((loop, number) for loop, number in rounds))
        columns = {name: getattr(row, name) for name in COLUMNS} | {"expires_at": instant(row.expires_at)}
        found = {
            "question": asked["q"] | columns,
            "origin": origin,
            "count": asked["c"],
            "steps": tuple(asked.get("s", ())),
            "private": asked.get("p"),
            "asked_at": instant(row.asked_at),
            "taken": row.taken,
            "unused": row.unused,
            "consumed_at": None if row.consumed is None or row.unused else instant(row.asked_at),
        }
        return Record.model_validate(found | (json.loads(row.ended) if row.ended else {}))
    except ValidationError as error:
        problem = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        problem = type(error).__name__
    raise CorruptRecordError(f"question '{row.id}' of the store cannot be read: {problem}", thread_id=row.thread_id)


def ended_of(record: Record) -> str | None:
    """Return how a question ended, as the text of its row."""
    if record.status == "open":
        return None
    answer, at = record.answer and vars(record.answer), record.ended_at
    said = answer and {name: answer[name] for name, unsaid in _UNSAID.items() if answer[name] != unsaid}
    told = {"answer": said, "ended_at": at and at.isoformat().replace("+00:00", "Z"), "source": record.source}
    return text_of({name: value for name, value in {**told, "why": record.why}.items() if value is not None})


def move_of(before: Record, after: Record, *, now: datetime | None, by: str | None = None) -> Move:
    """Return the step from one record of a question to the next.

    Args:
        before: the question as it is.
        after: as it is to be.
        now: where the step is a person's: when; it comes too late at the deadline.
        by: whose step it is, where a claim counts.
    """
    return Move(
        id=before.id,
        taken=before.taken,
        status=after.status,
        ended=ended_of(after),
        now=seconds(now),
        by=by,
        assignee=after.question.assignee,
        next_at=seconds(after.next_at),
        taken_after=after.taken,
    )


def text_of(value: object) -> str:
    """Return a JSON value as compact text."""
    try:
        return to_json(value).decode()
    except ValueError:  # half characters, which the store refuses with an error of its own
        return _COMPACT.encode(value)


def seconds(at: datetime | None) -> float | None:
    """Return an instant as seconds since 1970."""
    return None if at is None else at.timestamp()


def instant(at: float | None) -> datetime | None:
    """Return the instant of some seconds since 1970, UTC."""
    return None if at is None else datetime.fromtimestamp(at, UTC)
