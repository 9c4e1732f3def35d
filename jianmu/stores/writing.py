"""What a store writes, as functions of the transaction at hand.

1. Who needs more than one row locks the thread's row first, then others: nobody waits in a circle.
2. What is refused raises, and all that was done before it is taken back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf

from jianmu.engine.checkpoint import Delivery, Known, Lease, Move, QuestionRow, Row, Taken, Transaction
from jianmu.engine.holders import is_held
from jianmu.errors import LeaseLostError, StoreError, ThreadBusyError, UnknownThreadError
from jianmu.stores import reading
from jianmu.stores.tables import Say

# DO UPDATE: it locks the row that is there, which else could go before it is read
MAKE = """INSERT INTO threads (thread_id, number, mail, heard, status, record, fence, created_at, updated_at)
    VALUES (?, 0, 0, 0, 'idle', '', 0, {now}, {now}) ON CONFLICT (thread_id) DO UPDATE SET mail = threads.mail"""
HOLD = "SELECT pk, number, mail, holder, fence, lease_until, {now}, created_at FROM threads WHERE thread_id = ?{lock}"
TAKE = "UPDATE threads SET holder = ?, fence = ?, lease_until = {now} + ? WHERE pk = ? AND fence = ?"
RENEW = "UPDATE threads SET lease_until = {now} + ? WHERE thread_id = ? AND fence = ? AND holder IS NOT NULL"
RELEASE = "UPDATE threads SET holder = NULL, lease_until = NULL WHERE thread_id = ? AND fence = ?"

# mail that the run has not read has set `wake_at`, and keeps it: else a crash now would leave it in nobody's hands
ADVANCE = """UPDATE threads SET number = ?, status = ?, record = ?, updated_at = {now}, heard = COALESCE(?, heard),
    wake_at = CASE WHEN mail > COALESCE(?, heard) AND wake_at <= COALESCE(?, wake_at) THEN wake_at ELSE ? END
    WHERE thread_id = ? AND fence = ? AND number = ? AND holder IS NOT NULL"""
FINISH = """UPDATE threads SET number = ?, status = ?, record = ?, updated_at = {now}, heard = mail, wake_at = ?,
    holder = NULL, lease_until = NULL WHERE thread_id = ? AND fence = ? AND number = ? AND holder IS NOT NULL
    AND mail <= COALESCE(?, mail)"""
LOG = "INSERT INTO log (thread, number, body) VALUES (?, ?, ?)"
ASK = """INSERT INTO questions (thread, id, asked, status, reason, assignee, asked_at, next_at, expires_at, taken,
    ended, unused, claimed_by, claimed_until, came, consumed, went)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
    SET asked = excluded.asked, reason = excluded.reason, assignee = excluded.assignee
    WHERE questions.thread = excluded.thread"""
DELIVER = """UPDATE questions SET status = CASE WHEN status = 'open' THEN ? ELSE status END, ended = COALESCE(ended, ?),
    consumed = COALESCE(consumed, ?), unused = unused | ?, went = COALESCE(went, ?) WHERE id = ? AND thread = ?"""
DROP = "DELETE FROM rows WHERE thread = ? AND kind = ? AND id = ?"
CLOSE = "UPDATE rows SET went = ? WHERE thread = ? AND kind = ? AND id = ? AND went IS NULL"
PUT = """INSERT INTO rows (thread, kind, id, came, went, body) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (thread, kind, id) DO UPDATE SET came = excluded.came, went = excluded.went, body = excluded.body"""
ADD = """INSERT INTO rows (thread, kind, id, came, went, body) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (thread, kind, id) DO NOTHING"""

POST = """UPDATE threads SET mail = mail + 1, wake_at = CASE WHEN wake_at <= ? THEN wake_at ELSE ? END
    WHERE pk = ? AND number > 0"""
MOVE = """UPDATE questions SET status = ?, ended = ?, assignee = ?, next_at = ?, taken = ?
    WHERE id = ? AND status = 'open' AND taken = ? AND (expires_at IS NULL OR expires_at > ?)
    AND (claimed_by IS NULL OR claimed_by = ? OR claimed_until <= ?)"""
CLAIM = """UPDATE questions SET claimed_by = ?, claimed_until = ?
    WHERE id = ? AND status = 'open' AND (claimed_by IS NULL OR claimed_by = ? OR claimed_until <= ?)"""
LOCK = "SELECT pk, number, holder, lease_until, {now} FROM threads WHERE thread_id = ? AND number > 0{lock}"


class RefusedError(Exception):
    """A compare-and-set found something else; what was done before it is taken back."""


def acquire(say: Say, thread_id: str, holder: str, seconds: float, *, create: bool) -> Lease:
    """Take the lease of a thread, compared and set on the fence that was seen."""
    if create:
        say(MAKE, (thread_id,))
    found = say(HOLD, (thread_id,)).fetchone()
    if found is None or (found[1] == 0 and not create):
        raise unknown(thread_id)
    pk, number, mail, other, seen, until, now, made_at = found
    if other != holder and is_held(other, until, now):
        raise _busy(thread_id, other, until - now)
    fence: int = say("{fence}").fetchall()[0][0]
    if say(TAKE, (holder, fence, seconds, pk, seen)).rowcount != 1:
        raise _busy(thread_id, None, seconds)
    return Lease(thread_id, fence, number, mail, made_at, pk)


def go_on(say: Say, lease: Lease, known: Known | None, moves: Sequence[Move], wake_at: float) -> Taken:
    """Do what comes first under a lease that was just taken: read what memory has not, or carry out steps."""
    is_known = known is not None and (lease.number, lease.made_at) == (known.number, known.made_at)
    if known is None or not is_known:
        stored = reading.read(say, lease.thread_id, None) if lease.number else None
        return Taken(lease, is_known=False, stored=stored)
    has_moved = bool(moves) and lease.mail == known.mail
    if has_moved:
        move(say, moves, wake_at)
    return Taken(lease, is_known=True, has_moved=has_moved)


def renew(say: Say, lease: Lease, seconds: float) -> bool:
    """Have a lease last from now, if it is still this one."""
    return say(RENEW, (seconds, lease.thread_id, lease.fence)).rowcount == 1


def release(say: Say, lease: Lease) -> None:
    """Give a lease back, if it is still this one; a thread that has no transaction goes with it."""
    say("DELETE FROM threads WHERE thread_id = ? AND fence = ? AND number = 0", (lease.thread_id, lease.fence))
    say(RELEASE, (lease.thread_id, lease.fence))


def commit(say: Say, step: Transaction) -> bool:
    """Carry out a transaction; the thread's row decides whether."""
    if say(*advance(step)).rowcount != 1:
        return explain(say, step)
    pk, number = step.lease.key, step.expected + 1
    if step.body is not None:
        say(LOG, (pk, number, step.body))
    for asked in step.questions:
        if say(ASK, (pk, *question_values(asked))).rowcount != 1:
            raise StoreError(f"question '{asked.id}' is another thread's", thread_id=step.lease.thread_id)
    for told in step.delivered:
        say(DELIVER, (*delivery_values(told, number), told.id, pk))
    for kept in step.rows:
        say(PUT, (pk, *row_values(kept)))
    for kind, id in step.closed:
        say(CLOSE, (number, pk, kind, id))
    for kind, id in step.gone:
        say(DROP, (pk, kind, id))
    return True


def advance(step: Transaction) -> tuple[str, tuple[object, ...]]:
    """Return the statement that writes the thread's row if all is as expected, and its values."""
    row = (step.expected + 1, step.status, step.record)
    guard = (step.lease.thread_id, step.lease.fence, step.expected)
    if step.releases:
        return FINISH, (*row, step.wake_at, *guard, step.seen)
    return ADVANCE, (*row, step.seen, step.seen, step.wake_at, step.wake_at, *guard)


def explain(say: Say, step: Transaction) -> bool:
    """Tell why a transaction changed nothing: False if it is refused for its mail, else an error."""
    lease = step.lease
    found = say("SELECT fence, holder, number FROM threads WHERE thread_id = ?", (lease.thread_id,)).fetchone()
    if found is None or found[0] != lease.fence or found[1] is None:
        raise LeaseLostError(
            f"the lease on thread {lease.thread_id[:80]!r} was lost: another holder has it, it was given back, or the"
            " thread was deleted; recover(thread_id) goes on from what is stored",
            thread_id=lease.thread_id,
        )
    if found[2] != step.expected:
        raise StoreError(
            f"the log of thread {lease.thread_id[:80]!r} is at number {found[2]}, not {step.expected}: two write under"
            " one lease; give each writer a lease of its own",
            thread_id=lease.thread_id,
        )
    return False


def question_values(asked: QuestionRow) -> tuple[object, ...]:
    """Return the values of a new question, without its thread."""
    ended = (asked.ended, int(asked.unused), asked.claimed_by, asked.claimed_until)
    times = (asked.asked_at, asked.next_at, asked.expires_at, asked.taken)
    head = (asked.id, asked.asked, asked.status, asked.reason, asked.assignee)
    return (*head, *times, *ended, asked.came, asked.consumed, asked.went)


def delivery_values(told: Delivery, number: int) -> tuple[object, ...]:
    """Return what a delivery sets: status if open, ended if open, consumed, unused, went."""
    status = "open" if told.ended is None else "withdrawn"
    return (status, told.ended, number if told.consumed else None, int(told.unused), number if told.is_gone else None)


def row_values(kept: Row) -> tuple[object, ...]:
    """Return the values of a kept row, without its thread."""
    return (kept.kind, kept.id, kept.came, kept.went, kept.body)


def move(say: Say, moves: Sequence[Move], wake_at: float) -> None:
    """Carry out steps of questions, or raise RefusedError."""
    moves = sorted(moves, key=lambda each: each.id)
    found = [say("SELECT thread FROM questions WHERE id = ?", (each.id,)).fetchone() for each in moves]
    if None in found:
        raise RefusedError
    for pk in sorted({row[0] for row in found}):
        say(POST, (wake_at, wake_at, pk))
    for each in moves:
        after = (each.status, each.ended, each.assignee, each.next_at, each.taken_after)
        claim = (None, inf) if each.by is None else (each.by, -inf if each.now is None else each.now)
        if say(MOVE, (*after, each.id, each.taken, -inf if each.now is None else each.now, *claim)).rowcount != 1:
            raise RefusedError


def claim(say: Say, id: str, by: str, until: float | None, now: float) -> bool:
    """Claim an open question, or give a claim up."""
    return say(CLAIM, (None if until is None else by, until, id, by, now)).rowcount == 1


def enqueue(say: Say, thread_id: str, row: Row, wake_at: float) -> bool:
    """Add an input from outside, unless it is there."""
    pk = _lock(say, thread_id)[0]
    if say(ADD, (pk, *row_values(row))).rowcount != 1:
        return False
    say(POST, (wake_at, wake_at, pk))
    return True


def trim(say: Say, thread_id: str, base: Row) -> None:
    """Put a snapshot at the beginning of the log, and remove what only numbers up to it needed."""
    pk, number = _lock(say, thread_id)[:2]
    text = "SELECT COALESCE(MAX(came), 0) FROM rows WHERE thread = ? AND kind = 'base'"
    first = say(text, (pk,)).fetchone()[0]
    if not first <= base.came <= number:
        raise StoreError(
            f"thread {thread_id[:80]!r} cannot be trimmed at {base.came}: its log has the numbers {first} to {number}",
            thread_id=thread_id,
        )
    say("DELETE FROM log WHERE thread = ? AND number <= ?", (pk, base.came))
    say("DELETE FROM rows WHERE thread = ? AND kind IN ('base', 'cache') AND came <= ?", (pk, base.came))
    say("DELETE FROM rows WHERE thread = ? AND kind <> 'input' AND went <= ?", (pk, base.came))
    say("DELETE FROM questions WHERE thread = ? AND went <= ?", (pk, base.came))
    say(PUT, (pk, *row_values(base)))


def delete(say: Say, thread_id: str) -> bool:
    """Remove a thread that nobody holds, and all of it."""
    try:
        pk, _, holder, until, now = _lock(say, thread_id)
    except UnknownThreadError:
        return False
    if is_held(holder, until, now):
        raise _busy(thread_id, holder, until - now)
    for table in ("log", "rows", "questions"):
        say(f"DELETE FROM {table} WHERE thread = ?", (pk,))  # noqa: S608  # the names are those above
    say("DELETE FROM threads WHERE pk = ?", (pk,))
    return True


def _lock(say: Say, thread_id: str) -> tuple[int, int, str | None, float, float]:
    """Return key, number, holder, lease's end and the store's clock of a thread that nobody else changes now."""
    found = say(LOCK, (thread_id,)).fetchone()
    if found is None:
        raise unknown(thread_id)
    return found


def unknown(thread_id: str) -> UnknownThreadError:
    """Return the error for a thread that is not there."""
    text = f"there is no thread {thread_id[:80]!r} in the store: run(input, thread_id=…) makes one"
    return UnknownThreadError(text, thread_id=thread_id)


def _busy(thread_id: str, holder: str | None, seconds: float) -> ThreadBusyError:
    return ThreadBusyError(
        f"thread {thread_id[:80]!r} is held{_whom(holder)} for {max(seconds, 0):.0f} s more, or longer: answer its"
        " questions with answer(…), which needs no lease, or wait for it with recover(thread_id, wait=True)",
        thread_id=thread_id,
    )


def _whom(holder: str | None) -> str:
    """Return which process a holder is, if its text tells."""
    try:
        told: dict[str, object] = json.loads(holder or "")
        return f" by process {told['pid']} on {str(told['host']).partition(' ')[0]}"
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
