"""Connections to PostgreSQL: opened late, never shared with a child, and errors that give nothing away."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from threading import Barrier

import anyio
import anyio.lowlevel
import psycopg
import pytest
from psycopg import conninfo

from jianmu.engine.checkpoint import Lease, QuestionRow, Row, Transaction
from jianmu.errors import CorruptRecordError, MissingExtraError, SchemaVersionError, StoreError
from jianmu.stores import PostgresStore, reading
from jianmu.stores.tables import Say
from tests.postgres import Server, fresh_schema

anyio_test = pytest.mark.anyio


@asynccontextmanager
async def opened(postgres: Server) -> AsyncIterator[PostgresStore]:
    """A store over tables that were just made."""
    async with PostgresStore(postgres.dsn, schema=fresh_schema()) as store:
        await store.mail("t")
        yield store


def behind(postgres: Server, text: str, store: PostgresStore) -> None:
    """Carry out statements behind a store's back."""
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', quote_ident(%s), false)", (store._schema,))
        connection.execute(text.encode())


def python(text: str, *arguments: str) -> list[str]:
    """Return the lines that a program prints; it has to end well and to say nothing else."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(text), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def first(lease: Lease, **fields: object) -> Transaction:
    """Return a thread's first transaction."""
    return Transaction(lease, 0, "[1]", "running", "{}", None, **fields)


def test_the_driver_is_imported_for_a_store_alone() -> None:
    """`jianmu.stores` works without psycopg, and does not load it."""
    found = python("import sys; from jianmu.stores import PostgresStore; print('psycopg' in sys.modules)")
    assert found == ["False"]


def test_a_missing_driver_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg a store cannot be made; the error has the line that installs it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"PostgresStore needs the extra 'postgres': pip install") as caught:
        PostgresStore("host=nowhere.invalid")
    assert caught.value.extra == "postgres"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://user:hunter@2hunter@host/name",
        "postgresql://user:hunter/2@host/name",
        "postgresql://user:hunter%2@host/name",
        "postgresql://user:hunter2\0@host/name",
        "postgresql://user:hunter2\ud800@host/name",
        "password=hunter2 hunter",
        "hunter2",
    ],
)
def test_a_dsn_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    """The error tells how to write one, and nothing of this one, in which there may be a password."""
    with pytest.raises(StoreError, match="the dsn cannot be read: write postgresql://user:password@host") as caught:
        PostgresStore(dsn)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 64, "a\0b", "木" * 22])
def test_a_name_that_postgresql_would_cut_off_is_refused(name: str) -> None:
    """A schema's name has 1 to 63 bytes."""
    with pytest.raises(StoreError, match="a schema's name has 1 to 63 bytes"):
        PostgresStore("", schema=name)


def test_a_store_without_connections_is_refused() -> None:
    """It would wait for one for ever."""
    with pytest.raises(StoreError, match="at least one connection"):
        PostgresStore("", connections=0)


@anyio_test
async def test_a_server_that_was_never_reached_is_told_at_once(postgres: Server) -> None:
    """A wrong name or address is no server that is away: the error has PostgreSQL's words, and no password."""
    wrong = conninfo.make_conninfo(postgres.dsn, dbname="nowhere", password="hunter2")
    with pytest.raises(StoreError, match=r'not reached: .* failed: FATAL:  database "nowhere" does not exist; look'):
        await PostgresStore(wrong, patience=3600).mail("t")
    with pytest.raises(StoreError, match="PostgreSQL was not reached: ") as caught:
        await PostgresStore("postgresql://u:hunter2@127.0.0.1:1/name", patience=3600).mail("t")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@anyio_test
async def test_a_name_is_taken_as_it_is(postgres: Server) -> None:
    """A schema may have any name."""
    name = f'{fresh_schema()} "%s" ? {{now}} $1 É'
    async with PostgresStore(postgres.dsn, schema=name) as store:
        assert await store.commit(first(await store.acquire("t", "{}", 60, create=True)))
    async with PostgresStore(postgres.dsn, schema=name) as store:
        assert await store.mail("t") == 0


def test_processes_that_open_at_once_make_the_tables_once(postgres: Server) -> None:
    """The tables are made under a lock, whoever comes first."""
    schema, barrier = fresh_schema(), Barrier(6, timeout=30)

    def use(_: int) -> int:
        store = PostgresStore(postgres.dsn, schema=schema)
        barrier.wait()
        try:
            return store.work("look", lambda say: reading.mail(say, "t"))
        finally:
            store._connections.close()

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(use, range(6))) == [-1] * 6


@anyio_test
async def test_tables_of_a_newer_jianmu_are_left_alone(postgres: Server) -> None:
    """A store that a newer version has made is a SchemaVersionError."""
    async with opened(postgres) as store:
        behind(postgres, "UPDATE meta SET value = 99", store)
    with pytest.raises(SchemaVersionError, match="the store has version 99"):
        await store.mail("t")
    await store.close()


@anyio_test
@pytest.mark.parametrize(
    "statement", ["DROP TABLE threads", "ALTER TABLE threads DROP mail", "DROP SEQUENCE fences", "DELETE FROM meta"]
)
async def test_tables_that_are_not_whole_are_told(postgres: Server, statement: str) -> None:
    """What is missing in the tables is a CorruptRecordError."""
    async with opened(postgres) as store:
        behind(postgres, statement, store)
    with pytest.raises(CorruptRecordError):
        await store.acquire("t", "{}", 60, create=True)
    await store.close()


@anyio_test
async def test_a_role_that_may_not_is_told(postgres: Server) -> None:
    """A refusal has PostgreSQL's words; a role that may only use the tables needs no right to make any."""
    async with opened(postgres) as store:
        behind(postgres, "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN", store)
        guest = conninfo.make_conninfo(postgres.dsn, user="guest")
        async with PostgresStore(guest, schema=fresh_schema()) as other:
            with pytest.raises(StoreError, match=r"refused this \(InsufficientPrivilege 42501\): permission denied"):
                await other.mail("t")
        grant = "GRANT USAGE ON SCHEMA {} TO guest; GRANT ALL ON ALL TABLES IN SCHEMA {} TO guest"
        behind(postgres, grant.replace("{}", f'"{store._schema}"'), store)
        async with PostgresStore(guest, schema=store._schema) as other:
            assert await other.mail("t") == -1
        behind(postgres, "DROP OWNED BY guest; DROP ROLE guest", store)


@anyio_test
async def test_what_postgresql_cannot_keep_is_refused(postgres: Server, schema: str) -> None:
    """NUL and lone surrogates in ids, numbers beyond 64 bits: a StoreError without the value."""
    async with PostgresStore(postgres.dsn, schema=schema) as store:
        lease = await store.acquire("t", "{}", 60, create=True)
        asked = QuestionRow("hunter2", "t", "{}", "open", "input", None, 1.0, None, None)
        for fields, told in (
            ({"rows": (Row("effect", "hunter2\0", "{}"),)}, "no NUL"),
            ({"questions": (replace(asked, id="hunter2\ud800"),)}, "no lone surrogates"),
            ({"rows": (Row("effect", "hunter2", "{}", 2**70),)}, "NumericValueOutOfRange 22003"),
        ):
            with pytest.raises(StoreError, match=told) as caught:
                await store.commit(first(lease, **fields))
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))
        assert await store.commit(first(lease, questions=(asked,)))


@anyio_test
async def test_settings_of_a_role_do_no_harm(postgres: Server, schema: str) -> None:
    """What is committed lasts and is read as written, whatever a role has set."""
    settings = "-c synchronous_commit=off -c default_transaction_isolation=serializable -c client_encoding=latin1"
    async with PostgresStore(conninfo.make_conninfo(postgres.dsn, options=settings), schema=schema) as store:
        lease = await store.acquire("线程", "{}", 60, create=True)
        assert await store.commit(replace(first(lease), body='"线程"'))
        assert await store.log("线程") == [(1, '"线程"')]
        found = store.work("look", lambda say: say("SHOW synchronous_commit").fetchall())
        assert found == [("on",)]


def test_a_forked_process_has_connections_of_its_own(postgres: Server) -> None:
    """Parent and child go on with one store, and never talk on one connection."""
    program = """
        import os, sys
        from jianmu.stores import PostgresStore

        def backend():
            found = store.work("look", lambda say: say("SELECT pg_backend_pid()").fetchone()[0])
            print(found, flush=True)

        store = PostgresStore(sys.argv[1], schema=sys.argv[2])
        backend()
        if os.fork() == 0:
            backend()
            backend()
            sys.exit()
        os.wait()
        backend()
    """
    parent, child, again, after = python(program, postgres.dsn, fresh_schema())
    assert child == again != parent == after


def test_a_store_that_is_not_closed_holds_nobody_up(postgres: Server) -> None:
    """A program ends with its last line, without a word, though its store is open; there are no threads."""
    program = """
        import anyio, sys, threading
        from jianmu.stores import PostgresStore

        store = PostgresStore(sys.argv[1], schema=sys.argv[2])
        store.work("look", lambda say: say("SELECT 1"))
        print(threading.active_count())
        anyio.run(store.mail, "t")
    """
    assert python(program, postgres.dsn, fresh_schema()) == ["1"]


@anyio_test
async def test_a_closed_store_has_no_connections(postgres: Server, schema: str) -> None:
    """`close` closes them all, also one that is in use at that moment, when it is done."""
    count = "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = ?"
    name = f"count {schema}"
    store = PostgresStore(conninfo.make_conninfo(postgres.dsn, application_name=name), schema=schema)

    def close(say: Say) -> None:
        say("SELECT 1")
        store._connections.close()

    async with PostgresStore(postgres.dsn, schema=schema) as other:
        await store.mail("t")
        assert other.work("look", lambda say: say(count, (name,)).fetchone()) == (1,)
        await store.call("look", close)
        await store.close()
        with anyio.fail_after(30):  # a backend goes a moment after its connection
            while other.work("look", lambda say: say(count, (name,)).fetchone()) != (0,):
                await anyio.lowlevel.checkpoint()
        assert await store.mail("t") == -1
        await store.close()
