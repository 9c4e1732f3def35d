"""What a store reads, as functions of the transaction at hand."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any  # Any: a row, whose columns are the statement's

from jianmu.engine.checkpoint import Kind, QuestionRow, Row, Sought, Stored, ThreadRow
from jianmu.engine.holders import is_held
from jianmu.errors import StoreError
from jianmu.stores.tables import Say

COLUMNS = tuple(field.name for field in fields(QuestionRow))
THREAD = """SELECT thread_id, number, mail, status, record, wake_at, holder, fence, lease_until, {now}, created_at,
    updated_at, pk FROM threads"""
ROW = "SELECT kind, id, body, came, went FROM rows"
# CROSS JOIN: SQLite begins with the question then, and looks up its thread
QUESTION = """SELECT q.id, t.thread_id, q.asked, q.status, q.reason, q.assignee, q.asked_at, q.next_at, q.expires_at,
    q.taken, q.ended, q.unused, q.claimed_by, q.claimed_until, q.came, q.consumed, q.went
    FROM questions AS q CROSS JOIN threads AS t WHERE t.pk = q.thread AND """
COUNT = "SELECT COUNT(*) FROM questions AS q WHERE "
PK = "(SELECT pk FROM threads WHERE thread_id = ? AND number > 0)"
LOG = f"SELECT number, body FROM log WHERE thread = {PK} AND number > ? ORDER BY number LIMIT ?"  # noqa: S608  # ours
DUE = """SELECT thread_id, holder, lease_until, {now}, wake_at AS since FROM threads
    WHERE number > 0 AND wake_at <= ?
    UNION ALL SELECT thread_id, holder, lease_until, {now}, COALESCE(lease_until, updated_at) FROM threads
    WHERE number > 0 AND status = 'running' AND (wake_at IS NULL OR wake_at > ?)
    ORDER BY since, thread_id LIMIT ? OFFSET ?"""


def thread(say: Say, thread_id: str) -> ThreadRow | None:
    """Return how a thread stands."""
    found = say(f"{THREAD} WHERE thread_id = ? AND number > 0", (thread_id,)).fetchone()
    return found and _thread(found)


def threads(say: Say, status: str | None, after: str | None, limit: int) -> list[ThreadRow]:
    """Return threads in the order of their ids."""
    text, values = f"{THREAD} WHERE number > 0 AND thread_id > ?", [after or ""]
    if status is not None:
        text, values = f"{text} AND status = ?", [*values, status]
    return [_thread(row) for row in say(f"{text} ORDER BY thread_id LIMIT ?", [*values, limit]).fetchall()]


def _thread(row: Any) -> ThreadRow:
    id, number, mail, status, record, wake_at, holder, fence, until, now, made, written, _ = row
    is_now_held = is_held(holder, until, now)
    return ThreadRow(id, number, mail, status, record, wake_at, holder, fence, until, is_now_held, made, written)


def mail(say: Say, thread_id: str) -> int:
    """Return the thread's mail, or -1."""
    found = say("SELECT mail FROM threads WHERE thread_id = ? AND number > 0", (thread_id,)).fetchone()
    return -1 if found is None else found[0]


def due(say: Say, now: float, limit: int) -> list[str]:
    """Return the threads to drive; who holds a lease is looked at here, since the database knows no processes."""
    free: list[str] = []
    for page in itertools.count():
        rows = say(DUE, (now, now, limit, page * limit)).fetchall()
        free += [id for id, holder, until, clock, _ in rows if not is_held(holder, until, clock)]
        if len(rows) < limit or len(free) >= limit:
            break
    return free[:limit]


def log(say: Say, thread_id: str, after: int, limit: int) -> list[tuple[int, str]]:
    """Return the thread's log after a number."""
    return [(number, body) for number, body in say(LOG, (thread_id, after, limit)).fetchall()]


def row(say: Say, thread_id: str, kind: Kind, id: str) -> Row | None:
    """Return a kept row."""
    found = say(f"{ROW} WHERE thread = {PK} AND kind = ? AND id = ?", (thread_id, kind, id)).fetchone()
    return found and Row(*found)


def rows(say: Say, thread_id: str, kind: Kind) -> list[Row]:
    """Return the kept rows of a kind that are not done with."""
    text = f"{ROW} WHERE thread = {PK} AND kind = ? AND went IS NULL ORDER BY seq"
    return [Row(*found) for found in say(text, (thread_id, kind)).fetchall()]


def questions(say: Say, sought: Sought) -> list[QuestionRow]:
    """Return the questions that are sought."""
    where, values = _where(sought)
    # a plus keeps SQLite from reading all open questions in their order to find the few that are due
    order = "q.asked_at, q.id" if sought.due is None else "+q.asked_at, q.id"
    rows = say(f"{QUESTION}{where} ORDER BY {order} LIMIT ?", [*values, sought.limit]).fetchall()
    return [_question(row) for row in rows]


def count(say: Say, sought: Sought) -> int:
    """Return how many questions are sought."""
    where, values = _where(sought)
    return say(f"{COUNT}{where}", values).fetchone()[0]


def _where(sought: Sought) -> tuple[str, list[object]]:
    """Return the condition of a search and its values; `open` is a word of the text, for the indexes of open ones."""
    parts: list[tuple[str, tuple[object, ...] | None]] = [
        ("q.status = 'open'", () if sought.status == "open" else None),
        ("q.status = ?", None if sought.status in {None, "open"} else (sought.status,)),
        (f"q.id IN ({', '.join('?' * len(sought.ids or ()))})", sought.ids),
        (f"q.thread = {PK}", None if sought.thread_id is None else (sought.thread_id,)),
        ("q.assignee = ?", None if sought.assignee is None else (sought.assignee,)),
        ("q.reason = ?", None if sought.reason is None else (sought.reason,)),
        ("q.asked_at < ?", None if sought.asked_before is None else (sought.asked_before,)),
        ("q.next_at <= ?", None if sought.due is None else (sought.due,)),
        ("(q.asked_at, q.id) > (?, ?)", sought.after),
    ]
    if sought.ids == ():
        return "1 = 0", []
    wanted = [(text, values) for text, values in parts if values is not None] or [("1 = 1", ())]
    return " AND ".join(text for text, _ in wanted), [value for _, values in wanted for value in values]


def _question(row: Any) -> QuestionRow:
    columns: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    columns["unused"] = bool(columns["unused"])
    return QuestionRow(**columns)


def read(say: Say, thread_id: str, at: int | None) -> Stored | None:
    """Return what is needed to go on with a thread."""
    found = say(f"{THREAD} WHERE thread_id = ? AND number > 0", (thread_id,)).fetchone()
    if found is None:
        return None
    pk, stands = found[-1], _thread(found)
    number = stands.number if at is None else at
    snapshot = say(
        f"{ROW} WHERE thread = ? AND kind IN ('base', 'cache') AND came <= ? ORDER BY came DESC, kind LIMIT 1",
        (pk, min(number, stands.number)),
    ).fetchone()
    if at is not None:
        _check_reach(say, pk, stands, number, has_snapshot=snapshot is not None)
    since = snapshot[3] if snapshot else 0
    text = "SELECT number, body FROM log WHERE thread = ? AND number > ? AND number <= ? ORDER BY number"
    log = [(number, body) for number, body in say(text, (pk, since, number)).fetchall()]
    needed, values = ("went IS NULL", ()) if at is None else ("came <= ? AND (went IS NULL OR went > ?)", (at, at))
    rows = say(f"{ROW} WHERE thread = ? AND kind NOT IN ('base', 'cache') AND {needed} ORDER BY seq", (pk, *values))
    kept = tuple(Row(*row) for row in rows.fetchall())
    needed = needed.replace("came", "q.came").replace("went", "q.went")
    asked = say(f"{QUESTION}q.thread = ? AND {needed} ORDER BY q.seq", (pk, *values)).fetchall()
    return Stored(stands, snapshot and Row(*snapshot), tuple(log), kept, tuple(map(_question, asked)))


def _check_reach(say: Say, pk: int, stands: ThreadRow, number: int, *, has_snapshot: bool) -> None:
    """Raise StoreError if the log does not have a number."""
    first = say("SELECT MIN(came) FROM rows WHERE thread = ? AND kind = 'base'", (pk,)).fetchone()[0] or 0
    if number > stands.number or (number < first and not has_snapshot) or number < 1:
        raise StoreError(
            f"the log of {stands.thread_id[:80]!r} has the numbers {first or 1} to {stands.number}, not {number}",
            thread_id=stands.thread_id,
        )
