"""PostgresStore on a real server, which is stopped and started under it, and over a wire that is cut."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import LiteralString

import anyio
import psycopg
import pytest
from anyio import to_thread

from jianmu.engine.checkpoint import Known, Lease, Move, QuestionRow, Row, Sought, Transaction
from jianmu.errors import LeaseLostError, StoreError, ThreadBusyError
from jianmu.stores import PostgresStore, writing
from jianmu.stores.connections import LostError
from jianmu.stores.tables import Cursor, Say
from jianmu.testing import STORE_CHECKS, check_store
from tests.postgres import Server
from tests.stores.wire import Wire

pytestmark = pytest.mark.anyio
WRITE = b"UPDATE threads SET number"
COMMIT = b"COMMIT\x00"
ASKED = QuestionRow("q", "t", "{}", "open", "input", None, 1.0, None, None, came=1)
ANSWER = Move("q", 0, "answered", '{"payload":1}', 2.0, None, None, None, 0)


@pytest.fixture
def wire(postgres: Server) -> Iterator[Wire]:
    """A wire to the server."""
    with Wire(postgres.dsn) as wire:
        yield wire


def next_of(lease: object, number: int, **fields: object) -> Transaction:
    """Return a transaction whose body tells its number."""
    usual = Transaction(lease, number, f"[{number + 1}]", "running", "{}", None)
    return replace(usual, **fields)


@pytest.mark.parametrize("name", STORE_CHECKS)
async def test_a_store_keeps_its_promises(postgres: Server, schema: str, name: str) -> None:
    """Each promise of check_store is kept, on both backends; the test's name says which."""
    names: set[str] = set()

    def store(data: str) -> PostgresStore:
        names.add(data)
        assert len(names) == 1
        return PostgresStore(postgres.dsn, schema=schema)

    await check_store(store, only=[name])


async def test_a_server_restarted_in_mid_run_loses_nothing(postgres: Server, schema: str, full: bool) -> None:
    """While a thread writes its log the server is ended, each second time as by a crash: each number is there once."""
    done = anyio.Event()

    async def restart() -> None:
        for mode in ("fast", "immediate") * (20 if full else 2):
            with anyio.CancelScope(shield=True):  # whatever becomes of this test, the others need the server
                await to_thread.run_sync(postgres.stop, mode)
                await to_thread.run_sync(postgres.start)
        done.set()

    with anyio.fail_after(600 if full else 100):
        async with PostgresStore(postgres.dsn, schema=schema) as store, anyio.create_task_group() as group:
            lease = await store.acquire("t", "{}", 600, create=True)
            group.start_soon(restart)
            for number in itertools.count():
                asked = replace(ASKED, id=f"q{number}", came=number + 1)
                row = Row("effect", str(number), "{}", number + 1)
                assert await store.commit(next_of(lease, number, questions=(asked,), rows=(row,)))
                assert await store.move([replace(ANSWER, id=f"q{number}")], wake_at=1.0)
                if done.is_set():
                    break
            last = number + 1
            assert await store.log("t", limit=last + 1) == [(n, f"[{n}]") for n in range(1, last + 1)]
            assert await store.count(Sought(status="answered")) == last
            assert await store.mail("t") == last
            assert [row.id for row in await store.rows("t", "effect")] == [str(n) for n in range(last)]


def crash(server: Server) -> None:
    """Kill a server, start it, and have another session commit under the numbers that it gives anew."""
    server.kill()
    server.start()
    with psycopg.connect(server.dsn, autocommit=True) as other:
        for _ in range(20):
            other.execute("SELECT pg_current_xact_id()")


@pytest.mark.parametrize("is_sent", [False, True])
async def test_after_a_crash_nothing_is_taken_for_kept_that_was_not(
    postgres: Server, schema: str, wire: Wire, is_sent: bool
) -> None:
    """A transaction's number may be another's after a crash: what was lost is sent again, what was kept is not."""
    cut = partial(wire.cut_after if is_sent else wire.cut_before, COMMIT, partial(crash, postgres))
    async with PostgresStore(wire.dsn, schema=schema) as store:
        with anyio.fail_after(100):
            await store.mail("t")
            cut()
            lease = await store.acquire("t", "{}", 600, create=True)
            assert await store.commit(next_of(lease, 0, questions=(ASKED,)))
            cut()
            assert await store.move([ANSWER], wake_at=1.0)
        assert wire.cuts == 2
        assert await store.count(Sought(status="answered")) == 1
        assert await store.mail("t") == 1


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_the_end_of_a_transaction_that_is_under_way_is_waited_for(
    postgres: Server, schema: str, end: LiteralString
) -> None:
    """Whether it was carried out is not told before."""
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        await store.mail("t")
        with psycopg.connect(postgres.dsn, autocommit=True) as other:
            other.execute("SELECT set_config('search_path', quote_ident(%s), false)", (schema,))
            other.execute("BEGIN")
            other.execute("INSERT INTO meta VALUES ('sent by another', 7)")
            with anyio.fail_after(30):
                with pytest.raises(LostError):  # the call tries it again until its patience ends
                    await to_thread.run_sync(store._was_committed, "sent by another", 7)
                other.execute(end)
                was = await to_thread.run_sync(store._was_committed, "sent by another", 7)
        assert was == (end == "COMMIT")


async def test_marks_go_a_day_after_their_connection(postgres: Server, schema: str) -> None:
    """Each connection keeps a row of a few bytes; those of processes that are gone do not gather."""
    left = "INSERT INTO meta VALUES ('sent long ago', 1), ('sent just now', 2e15)"
    names = "SELECT name FROM meta WHERE strpos(name, '-') = 0 ORDER BY name"
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        await store.call("write", lambda say: say(left))
        assert await store.call("look", lambda say: say(names).fetchall()) == [("jianmu",), ("sent just now",)]


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_transaction_whose_reply_is_lost_is_carried_out_once(schema: str, wire: Wire, is_sent: bool) -> None:
    """Whether the connection breaks before the statement or after it, the log has the number once."""
    async with PostgresStore(wire.dsn, schema=schema) as store:
        lease = await store.acquire("t", "{}", 600, create=True)
        assert await store.commit(next_of(lease, 0))
        (wire.cut_after if is_sent else wire.cut_before)(WRITE)
        with anyio.fail_after(30):
            assert await store.commit(next_of(lease, 1, questions=(ASKED,)))
        assert wire.cuts == 1
        assert await store.log("t") == [(1, "[1]"), (2, "[2]")]
        (wire.cut_after if is_sent else wire.cut_before)(WRITE)
        with anyio.fail_after(30):
            assert await store.commit(next_of(lease, 2, status="finished", releases=True, seen=0))
        found = await store.thread("t")
        assert found is not None
        assert (found.number, found.holder, wire.cuts) == (3, None, 2)


async def test_after_a_lost_reply_another_holder_is_seen(postgres: Server, schema: str, wire: Wire) -> None:
    """If somebody else has the lease when the store looks, the lease is lost, whatever became of the transaction."""
    other = PostgresStore(postgres.dsn, schema=schema)

    def take() -> None:
        other.work("write", lambda say: writing.acquire(say, "t", "{}", 600, create=False))

    async with PostgresStore(wire.dsn, schema=schema) as store, other:
        lease = await store.acquire("t", "{}", 0, create=True)
        assert await store.commit(next_of(lease, 0))
        wire.cut_after(WRITE, take)
        with anyio.fail_after(30), pytest.raises(LeaseLostError):
            await store.commit(next_of(lease, 1))
        assert wire.cuts == 1


async def test_mail_that_came_while_the_reply_was_lost_changes_nothing(
    postgres: Server, schema: str, wire: Wire
) -> None:
    """A release that was carried out stays carried out if an answer comes before the store looks."""
    other = PostgresStore(postgres.dsn, schema=schema)

    def answer() -> None:
        other.work("write", lambda say: writing.move(say, [ANSWER], 1.0))

    async with PostgresStore(wire.dsn, schema=schema) as store, other:
        lease = await store.acquire("t", "{}", 600, create=True)
        assert await store.commit(next_of(lease, 0, questions=(ASKED,)))
        wire.cut_after(WRITE, answer)
        with anyio.fail_after(30):
            assert await store.commit(next_of(lease, 1, status="suspended", releases=True, seen=0))
        assert await store.mail("t") == 1
        lease = await store.acquire("t", "{}", 600)
        wire.cut_before(WRITE)
        with anyio.fail_after(30):
            assert not await store.commit(next_of(lease, 2, status="suspended", releases=True, seen=0))


@pytest.mark.parametrize("is_sent", [False, True])
async def test_what_comes_from_outside_is_carried_out_once(schema: str, wire: Wire, is_sent: bool) -> None:
    """An answer, an input and a lease whose COMMIT is cut are what their callers are told, and are there once."""
    cut = wire.cut_after if is_sent else wire.cut_before
    async with PostgresStore(wire.dsn, schema=schema) as store:
        with anyio.fail_after(30):
            await store.mail("t")
            cut(COMMIT)
            lease = await store.acquire("t", "{}", 600, create=True)
            asked = (ASKED, replace(ASKED, id="r"))
            assert await store.commit(next_of(lease, 0, questions=asked))
            cut(COMMIT)
            assert await store.claim("q", "ann", 9.0, now=1.0)
            cut(COMMIT)
            assert await store.move([replace(ANSWER, by="ann")], wake_at=1.0)
            cut(COMMIT)
            assert await store.enqueue("t", Row("input", "i", "{}", 1), wake_at=1.0)
            cut(COMMIT)
            known = Known(1, 2, lease.made_at)
            taken = await store.take("t", "{}", 600, known=known, moves=[replace(ANSWER, id="r")])
            assert taken.has_moved
            assert await store.mail("t") == 3
            cut(COMMIT)
            await store.trim("t", Row("base", "1", "{}", 1))
            cut(COMMIT)
            assert await to_thread.run_sync(store.renew, taken.lease, 600)
            cut(COMMIT)
            await store.release(taken.lease)
            cut(COMMIT)
            assert await store.delete("t")
        assert wire.cuts == 9


WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def acquire_while(store: PostgresStore, word: str, meanwhile: Callable[[Say], object], *, create: bool) -> Lease:
    """Take the lease of a thread; after the first statement with a word, another thread does something or waits."""
    others: list[Thread] = []

    def work(say: Say) -> Lease:
        def say_and_let(text: str, values: Sequence[object] = (), /) -> Cursor:
            cursor = say(text, values)
            if word in text and not others:
                others.append(Thread(target=store.work, args=("write", meanwhile), daemon=True))
                others[0].start()
                while others[0].is_alive() and not store.work("look", lambda say: say(WAITING).fetchall()):
                    pass
            return cursor

        return writing.acquire(say_and_let, "t", "{}", 600, create=create)

    try:
        return store.work("write", work)
    finally:
        others[0].join(30)


async def test_a_lease_knows_what_its_predecessor_wrote_last(postgres: Server, schema: str) -> None:
    """A holder whose lease has run out writes before its successor looks, or not at all."""
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        old = await store.acquire("t", "{}", 0, create=True)
        assert await store.commit(next_of(old, 0))

        def write(say: Say) -> None:
            with contextlib.suppress(LeaseLostError):
                writing.commit(say, next_of(old, 1))

        with anyio.fail_after(30):
            new = await to_thread.run_sync(partial(acquire_while, store, "SELECT", write, create=False))
        found = await store.thread("t")
        assert found is not None
        assert (new.number, new.fence) == (found.number, found.fence)


async def test_a_thread_that_is_given_back_meanwhile_is_busy_and_not_unknown(postgres: Server, schema: str) -> None:
    """A thread without a transaction goes with its lease, but not while somebody else takes it."""
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        first = await store.acquire("t", '"another"', 600, create=True)

        def release(say: Say) -> None:
            writing.release(say, first)

        with anyio.fail_after(30), pytest.raises(ThreadBusyError):
            await to_thread.run_sync(partial(acquire_while, store, "INSERT", release, create=True))
        assert (await store.acquire("t", "{}", 600, create=True)).number == 0


async def test_a_lost_read_is_read_again(schema: str, wire: Wire) -> None:
    """A connection that breaks while something is read is nobody's trouble."""
    async with PostgresStore(wire.dsn, schema=schema) as store:
        lease = await store.acquire("t", "{}", 600, create=True)
        await store.commit(next_of(lease, 0))
        with anyio.fail_after(30):
            wire.cut_after(b"SELECT mail")
            assert await store.mail("t") == 0
            wire.cut_after(b"SELECT number, body")
            assert await store.read("t") is not None
        assert wire.cuts == 2


async def test_a_server_that_stays_away_is_given_up(postgres: Server, schema: str) -> None:
    """When the patience has run out the call raises a StoreError that tells the cause; then the store goes on."""
    async with PostgresStore(postgres.dsn, schema=schema, patience=0.3) as store:
        lease = await store.acquire("t", "{}", 600, create=True)
        await to_thread.run_sync(postgres.stop)
        try:
            with anyio.fail_after(30), pytest.raises(StoreError, match=r"it did not come back in 0\.3 s"):
                await store.commit(next_of(lease, 0))
        finally:
            await to_thread.run_sync(postgres.start)
        assert await store.commit(next_of(lease, 0))


async def test_waiting_for_the_server_can_be_cancelled(postgres: Server, schema: str) -> None:
    """A task that is cancelled while the server is away does not wait for it, and `renew` never does."""
    async with PostgresStore(postgres.dsn, schema=schema, patience=3600) as store:
        lease = await store.acquire("t", "{}", 600, create=True)
        assert store.renew(lease, 600)
        await to_thread.run_sync(postgres.stop)
        try:
            with anyio.fail_after(30), anyio.move_on_after(0.2):
                await store.commit(next_of(lease, 0))
            with pytest.raises(StoreError):
                store.renew(lease, 600)
        finally:
            await to_thread.run_sync(postgres.start)
        assert store.renew(lease, 600)
        assert await store.commit(next_of(lease, 0))


async def test_connections_that_lay_idle_are_not_tried_one_by_one(postgres: Server, schema: str) -> None:
    """After a restart even `renew`, which does not wait, finds the server, however many connections broke with it."""
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        lease = await store.acquire("t", "{}", 600, create=True)

        def use(most: int) -> object:
            return store.work("look", lambda _: use(most - 1)) if most else None

        await to_thread.run_sync(use, 4)
        await to_thread.run_sync(postgres.stop)
        await to_thread.run_sync(postgres.start)
        assert store.renew(lease, 600)
