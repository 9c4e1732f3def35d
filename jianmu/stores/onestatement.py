"""A transaction as one statement of PostgreSQL: one way to the server and back, and all or nothing by itself.

Its first part writes the thread's row, if fence, number and mail are as expected; every other part hangs on the row
that comes out of it. The parts see the tables as they were before, and none of them may change a row that another
changes too: so what a transaction says of one row more than once is put together first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jianmu.engine.checkpoint import Delivery, Kind, QuestionRow, Row, Transaction
from jianmu.stores.writing import advance, delivery_values, question_values, row_values

LOG = "INSERT INTO log (thread, number, body) SELECT pk, ?, ? FROM step"
ASK = """INSERT INTO questions (thread, id, asked, status, reason, assignee, asked_at, next_at, expires_at, taken,
    ended, unused, claimed_by, claimed_until, came, consumed, went)
    SELECT step.pk, new.* FROM step, unnest(?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::float8[],
    ?::float8[], ?::float8[], ?::bigint[], ?::text[], ?::bigint[], ?::text[], ?::float8[], ?::bigint[], ?::bigint[],
    ?::bigint[]) AS new ON CONFLICT (id) DO UPDATE SET asked = excluded.asked, reason = excluded.reason,
    assignee = excluded.assignee, status = CASE questions.status WHEN 'open' THEN excluded.status
    ELSE questions.status END, ended = COALESCE(questions.ended, excluded.ended),
    consumed = COALESCE(questions.consumed, excluded.consumed), unused = questions.unused | excluded.unused,
    went = COALESCE(questions.went, excluded.went),
    thread = CASE questions.thread WHEN excluded.thread THEN questions.thread END"""
DELIVER = """UPDATE questions AS q SET status = CASE WHEN q.status = 'open' THEN told.status ELSE q.status END,
    ended = COALESCE(q.ended, told.ended), consumed = COALESCE(q.consumed, told.consumed),
    unused = q.unused | told.unused, went = COALESCE(q.went, told.went)
    FROM step, unnest(?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::text[])
    AS told (status, ended, consumed, unused, went, id) WHERE q.id = told.id AND q.thread = step.pk"""
DROP = """DELETE FROM rows USING step, unnest(?::text[], ?::text[]) AS gone (kind, id)
    WHERE rows.thread = step.pk AND rows.kind = gone.kind AND rows.id = gone.id"""
PUT = """INSERT INTO rows (thread, kind, id, came, went, body) SELECT step.pk, new.*
    FROM step, unnest(?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::text[]) AS new
    ON CONFLICT (thread, kind, id) DO UPDATE SET came = excluded.came, went = excluded.went, body = excluded.body"""
CLOSE = """UPDATE rows SET went = ? FROM step, unnest(?::text[], ?::text[]) AS closed (kind, id)
    WHERE rows.thread = step.pk AND rows.kind = closed.kind AND rows.id = closed.id AND rows.went IS NULL"""


def statement(step: Transaction) -> tuple[str, list[object]]:
    """Return a transaction's statement, which returns one row if it was carried out, and its values."""
    number = step.expected + 1
    asked, told = _questions(step, number)
    rows, closed, gone = _rows(step, number)
    parts: list[tuple[str, Sequence[object]]] = [advance(step)]
    if step.body is not None:
        parts.append((LOG, (number, step.body)))
    if asked:
        parts.append((ASK, _columns([question_values(each) for each in asked])))
    if told:
        parts.append((DELIVER, _columns([(*delivery_values(each, number), each.id) for each in told])))
    if gone:
        parts.append((DROP, _columns(gone)))
    if rows:
        parts.append((PUT, _columns([row_values(each) for each in rows])))
    if closed:
        parts.append((CLOSE, (number, *_columns(closed))))
    (first, values), *others = parts
    texts = [f"step AS ({first} RETURNING pk)", *(f"part{place} AS ({text})" for place, (text, _) in enumerate(others))]
    text = f"WITH {', '.join(texts)} SELECT pk FROM step"  # noqa: S608  # ours
    return text, [*values, *(value for _, more in others for value in more)]


def _columns(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _questions(step: Transaction, number: int) -> tuple[list[QuestionRow], list[Delivery]]:
    """Return the new questions with what became of them, and what became of others, one delivery for each."""
    told: dict[str, Delivery] = {}
    for each in step.delivered:
        told[each.id] = _both(told.get(each.id, Delivery(each.id)), each)
    asked: dict[str, QuestionRow] = {}
    for each in step.questions:
        first = asked.get(each.id, each)
        asked[each.id] = replace(first, asked=each.asked, reason=each.reason, assignee=each.assignee)
    new = [_after(each, told.pop(each.id, Delivery(each.id)), number) for each in asked.values()]
    return new, list(told.values())


def _both(first: Delivery, then: Delivery) -> Delivery:
    return Delivery(
        first.id,
        ended=then.ended if first.ended is None else first.ended,
        consumed=first.consumed or then.consumed,
        unused=first.unused or then.unused,
        is_gone=first.is_gone or then.is_gone,
    )


def _after(asked: QuestionRow, told: Delivery, number: int) -> QuestionRow:
    """Return a new question as a delivery in its own transaction leaves it."""
    is_withdrawn = told.ended is not None and asked.status == "open"
    return replace(
        asked,
        status="withdrawn" if is_withdrawn else asked.status,
        ended=told.ended if asked.ended is None else asked.ended,
        consumed=number if told.consumed and asked.consumed is None else asked.consumed,
        unused=asked.unused or told.unused,
        went=number if told.is_gone and asked.went is None else asked.went,
    )


def _rows(step: Transaction, number: int) -> tuple[list[Row], list[tuple[Kind, str]], list[tuple[Kind, str]]]:
    """Return the rows to put, to close and to remove, none of them twice."""
    gone = dict.fromkeys(step.gone)
    rows = {(each.kind, each.id): each for each in step.rows}
    closed = dict.fromkeys(key for key in step.closed if key not in gone)
    put = [replace(row, went=number) if key in closed and row.went is None else row for key, row in rows.items()]
    kept = [row for row in put if (row.kind, row.id) not in gone]
    return kept, [key for key in closed if key not in rows], list(gone)
