"""A transaction as one statement does what the statements of the other stores do one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jianmu.engine.checkpoint import Delivery, Kind, Lease, QuestionRow, Row, Sought, Transaction
from jianmu.errors import StoreError
from jianmu.stores import MemoryStore, PostgresStore
from jianmu.stores.onestatement import statement
from tests.postgres import Server, empty

IDS = st.sampled_from(["a", "b"])
KEYS = st.tuples(st.sampled_from(get_args(Kind)), IDS)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(0, 2**63 - 1)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.builds(lambda key, *rest: Row(*key, *rest), KEYS, TEXTS, NUMBERS, st.none() | NUMBERS)
QUESTIONS = st.builds(
    QuestionRow,
    id=IDS,
    thread_id=st.just("t"),
    asked=TEXTS,
    status=st.just("open"),
    reason=TEXTS,
    assignee=st.none() | TEXTS,
    asked_at=TIMES,
    next_at=st.none() | TIMES,
    expires_at=st.none() | TIMES,
    taken=NUMBERS,
    ended=st.none(),
    unused=st.just(False),
    claimed_by=st.none() | TEXTS,
    claimed_until=st.none() | TIMES,
    came=NUMBERS,
)
DELIVERIES = st.builds(Delivery, IDS, st.none() | TEXTS, st.booleans(), st.booleans(), st.booleans())
PARTS = st.fixed_dictionaries(
    {
        "body": st.none() | TEXTS,
        "status": TEXTS,
        "record": TEXTS,
        "wake_at": st.none() | TIMES,
        "questions": st.lists(QUESTIONS, max_size=3).map(tuple),
        "delivered": st.lists(DELIVERIES, max_size=4).map(tuple),
        "rows": st.lists(ROWS, max_size=4).map(tuple),
        "closed": st.lists(KEYS, max_size=3).map(tuple),
        "gone": st.lists(KEYS, max_size=3).map(tuple),
        "seen": st.none() | st.integers(0, 2),
    }
)


async def outcome(store: PostgresStore | MemoryStore, steps: list[dict[str, object]]) -> object:
    """Return what a store has of a thread after some transactions, without the times at which they were written."""
    lease = await store.acquire("t", "{}", 600, create=True)
    for number, parts in enumerate(steps):
        assert await store.commit(Transaction(lease, number, **parts))
    found = await store.read("t")
    assert found is not None
    thread = (found.thread.number, found.thread.status, found.thread.record, found.thread.wake_at, found.thread.mail)
    rows = [await store.row("t", kind, id) for kind in get_args(Kind) for id in ("a", "b")]
    questions = await store.questions(Sought(status=None))
    return thread, rows, sorted(questions, key=lambda row: row.id), await store.log("t")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=20)
@given(steps=st.lists(PARTS, min_size=1, max_size=3))
def test_one_statement_does_what_many_do(postgres: Server, backend: str, steps: list[dict[str, object]]) -> None:
    """Whatever a transaction says, of one row more than once too, PostgreSQL has what SQLite has after it."""

    async def both() -> None:
        async with MemoryStore() as one, PostgresStore(postgres.dsn, schema="many") as other:
            await other.mail("t")
            empty(postgres.dsn, "many")
            assert await outcome(other, steps) == await outcome(one, steps)

    anyio.run(both, backend=backend)


@pytest.mark.anyio
async def test_nothing_is_written_if_one_part_cannot_be(postgres: Server, schema: str) -> None:
    """A question whose id another thread has is refused, and all that was written with it."""
    asked = QuestionRow("q", "t", "{}", "open", "input", None, 1.0, None, None)
    parts = {"questions": (asked,), "rows": (Row("input", "i", "{}"),)}
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        other = await store.acquire("other", "{}", 600, create=True)
        assert await store.commit(Transaction(other, 0, "[1]", "running", "{}", None, **parts))
        step = Transaction(await store.acquire("t", "{}", 600, create=True), 0, "[1]", "running", "{}", None, **parts)
        with pytest.raises(StoreError, match="the id of a question is that of another thread's question"):
            await store.commit(step)
        assert await store.read("t") is None
        assert await store.row("t", "input", "i") is None


def test_what_a_transaction_does_not_have_is_not_sent() -> None:
    """A pass that only moves on is one update; each thing it has is one part, however many there are."""
    step = Transaction(Lease("t", 1, 0, 0), 0, None, "running", "{}", None)
    assert statement(step)[0].count(" AS (") == 1
    rows = tuple(Row("effect", str(number), "{}") for number in range(9))
    assert statement(replace(step, body="[1]", rows=rows))[0].count(" AS (") == 3
