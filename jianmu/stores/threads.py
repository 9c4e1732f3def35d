"""How threads stand, as those see it who look after them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, get_args  # Any: JSON

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from jianmu.engine.checkpoint import Checkpointer, Sought, ThreadRow, check_thread_id
from jianmu.engine.limits import Usage
from jianmu.engine.questionrows import instant
from jianmu.errors import CorruptRecordError, StoreError

ThreadStatus = Literal["running", "crashed", "suspended", "interrupted", "idle", "finished", "failed"]
Info = TypeVar("Info", bound="ThreadInfo")
ASKING = ("running", "crashed", "suspended", "interrupted")
"""How a thread stands that may have an open question."""


TOLD = ("run", "error", "waiting", "passes", "usage")
"""What the record of a thread tells."""


class ThreadInfo(BaseModel):
    """How a thread stands.

    Attributes:
        thread_id: its id.
        number: the number of its log's last transaction, or the one that was asked for.
        status: how it stands; `crashed` is one that was running when its holder's lease ran out.
        run: the number of the run in the thread.
        error: type, text and path of what ended the run, or None.
        waiting: the paths of the nodes that wait.
        questions: how many of its questions are open.
        holder: who holds its lease, or held it when it crashed.
        lease_until: when that lease ends, or has ended.
        wake_at: when somebody has to drive it, or None.
        passes: how many passes the call that wrote its log last had made.
        created_at: when it was made.
        updated_at: when its log was written last.
        usage: what its run has used.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    thread_id: str
    number: int
    status: ThreadStatus
    run: int = 0
    error: dict[str, str | None] | None = None
    waiting: tuple[str, ...] = ()
    questions: int = 0
    holder: JsonValue = None
    lease_until: datetime | None = None
    wake_at: datetime | None = None
    passes: int = 0
    created_at: datetime
    updated_at: datetime
    usage: Usage = Field(default_factory=Usage)


def present(now: datetime | None) -> datetime:
    """Return an instant that was given, in UTC, or the real present.

    Raises:
        StoreError: it is no instant with a time zone.
    """
    if now is None:
        return datetime.now(UTC)
    if not isinstance(now, datetime) or now.tzinfo is None:  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's
        raise StoreError("now is a datetime with its time zone: datetime.now(UTC)")
    return now.astimezone(UTC)


def seconds_of(now: datetime | float | None) -> float:
    """Return an instant that was given, or the real present, as seconds since 1970."""
    return float(now) if isinstance(now, int | float) else present(now).timestamp()


def page_of(limit: object) -> int:
    """Return how many rows a page has at most, if it is a number of rows."""
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise StoreError("limit is a whole number from 1 up")


async def list_threads(
    store: Checkpointer, status: str | None, after: str | None, limit: int
) -> tuple[ThreadInfo, ...]:
    """Return how threads stand, in the order of their ids, those after the id `after`."""
    if status is not None and status not in get_args(ThreadStatus):
        raise StoreError(f"status is one of {', '.join(get_args(ThreadStatus))}")
    limit, after = page_of(limit), None if after is None else check_thread_id(after)
    kept = "running" if status == "crashed" else status
    found: list[ThreadRow] = []
    is_more = True
    while is_more and len(found) < limit:
        page = await store.threads(status=kept, after=after, limit=limit)
        found += [row for row in page if status in (None, status_of(row))]
        is_more = len(page) == limit
        after = page[-1].thread_id if page else after
    return tuple([await info_of(store, row, ThreadInfo) for row in found[:limit]])


def status_of(row: ThreadRow) -> str:
    """Return how a thread stands."""
    return "crashed" if row.status == "running" and not row.is_held else row.status


async def info_of(store: Checkpointer, row: ThreadRow, kind: type[Info], **known: Any) -> Info:
    """Return how a thread stands, with what is known better than by its row.

    Raises:
        CorruptRecordError: its row cannot be read.
    """
    status = status_of(row)
    is_asking = status in ASKING and "questions" not in known
    fields: dict[str, Any] = {
        "thread_id": row.thread_id,
        "number": row.number,
        "status": status,
        "questions": await store.count(Sought(thread_id=row.thread_id)) if is_asking else 0,
        "lease_until": instant(row.lease_until),
        "wake_at": instant(row.wake_at),
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
    }
    try:
        told = json.loads(row.record)
        fields |= {name: value for name, value in told.items() if name in TOLD}
        fields["holder"] = row.holder and json.loads(row.holder)
        return kind.model_validate(fields | known)
    except ValidationError as error:
        problem = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        problem = type(error).__name__
    raise CorruptRecordError(f"the row of a thread cannot be read: {problem}", thread_id=row.thread_id)
