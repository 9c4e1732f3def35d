"""SQLiteStore: one file, several processes, forks, threads, and what is written through to the disk."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Event

import anyio
import pytest
from anyio import to_thread

from jianmu.engine.checkpoint import Row
from jianmu.engine.holders import this_process
from jianmu.errors import LeaseLostError, StoreError, ThreadBusyError
from jianmu.stores import SQLiteStore, sqlite
from jianmu.stores.tables import Mode, Say
from jianmu.testing.store_scene import NOON, answer, begin, story, take
from tests.forks import Process

pytestmark = pytest.mark.anyio
Start = Callable[..., Process]

PROGRAM = """
import os, sys, anyio
from jianmu.engine.checkpoint import Row
from jianmu.engine.holders import this_process
from jianmu.stores import SQLiteStore
from jianmu.testing.store_scene import Writer, begin, take

store = SQLiteStore(sys.argv[1])

def tell(text):
    print(text, flush=True)
    return sys.stdin.readline()
"""


async def heard(process: Process) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    return (await to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)).strip()


async def ended(process: Process) -> int:
    """Return the exit code of a process."""
    return await to_thread.run_sync(process.wait, abandon_on_cancel=True)


def said(process: Process) -> None:
    """Let a process that has told something go on."""
    assert process.stdin is not None
    process.stdin.write("go on\n")


def names(place: Path) -> list[str]:
    """Return the names of the files in a store's folder."""
    return sorted(path.name for path in place.parent.iterdir())


def rename(old: Path, new: Path) -> None:
    """Put a file in the place of another."""
    old.replace(new)


def remove(place: Path) -> None:
    """Remove a store's files."""
    for path in place.parent.glob(f"{place.name}*"):
        path.unlink()


def mode_of(place: Path) -> int:
    """Return who may do what with a file."""
    return stat.S_IMODE(place.stat().st_mode)


# The file


async def test_a_store_opens_itself_on_first_use(place: Path) -> None:
    """Nothing is touched before; then folders and file are made, and all that SQLite writes is the owner's alone."""
    place = place.parent / "a" / "b" / place.name
    store = SQLiteStore(place)
    assert not place.parent.exists()
    with anyio.fail_after(10):
        await begin(store, "t")
        files = {name: mode_of(place.with_name(name)) for name in names(place)}
        assert files == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)
        await store.close()
    assert names(place) == [place.name]


async def test_the_mode_of_a_file_that_is_there_stays(place: Path) -> None:
    """Who has made the file has said who may read it."""
    os.close(os.open(place, os.O_CREAT, 0o640))
    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            await begin(store, "t")
    assert mode_of(place) == 0o640


async def test_a_relative_path_stays_where_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the working folder does not move the store."""
    monkeypatch.chdir(place.parent)
    with anyio.fail_after(10):
        async with SQLiteStore(place.name) as store:
            await begin(store, "t")
            monkeypatch.chdir("/")
            assert await store.mail("t") == 0


async def test_a_closed_store_opens_again(place: Path) -> None:
    """Closing twice, and closing what was never open, does nothing; the next use opens the file again."""
    store = SQLiteStore(place)
    with anyio.fail_after(10):
        await store.close()
        writer = await begin(store, "t")
        await store.close()
        await store.close()
        await writer.write()
        assert [number for number, _ in await store.log("t")] == [1, 2]
        await store.close()


async def test_a_store_closes_in_a_cancelled_task(place: Path) -> None:
    """`async with` leaves no open file behind, however it is left."""
    with anyio.CancelScope() as scope:
        async with SQLiteStore(place) as store:
            await begin(store, "t")
            scope.cancel()
    assert names(place) == [place.name]


def test_a_store_that_nobody_has_any_more_is_closed(place: Path) -> None:
    """A forgotten store keeps no file open."""
    SQLiteStore(place).work("write", lambda say: None)
    assert names(place) == [place.name]


async def test_a_file_that_was_replaced_is_opened_anew(place: Path) -> None:
    """Nothing is written into a file that has lost its name: the next call sees the file that has it now, if any."""
    with anyio.fail_after(10):
        async with SQLiteStore(place) as store, SQLiteStore(place.with_name("copy.db")) as other:
            await begin(other, "kept")
            await other.close()
            writer = await begin(store, "t")
            remove(place)
            rename(place.with_name("copy.db"), place)
            with pytest.raises(LeaseLostError):
                await writer.write()
            assert await store.mail("kept") == 0
            remove(place)
            assert await store.threads() == []
            await begin(store, "new")
            assert names(place) == ["store.db", "store.db-shm", "store.db-wal"]


async def test_only_what_has_to_last_is_written_through(place: Path) -> None:
    """What has to survive a power cut is committed with `synchronous=FULL`, all else with NORMAL, in any order."""
    levels: dict[Mode, int] = {"write": 1, "last": 2}
    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            for mode in ("write", "last", "last", "write", "write", "last", "write", "last"):
                assert await store.call("read", lambda say: say("SELECT 1").fetchone()) == (1,)
                assert await store.call(mode, lambda say: say("PRAGMA synchronous").fetchone()) == (levels[mode],)


async def test_what_comes_from_outside_lasts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers, claims, inputs, deletions, and transactions that say so, survive a power cut."""
    modes: list[str] = []
    work = SQLiteStore.work

    def note(self: SQLiteStore, mode: Mode, do: Callable[..., object]) -> object:
        modes.append(mode)
        return work(self, mode, do)

    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            writer = await begin(store, "t", "q")
            monkeypatch.setattr(SQLiteStore, "work", note)
            await store.claim("q", "ann", NOON, now=0)
            await store.move([answer("q")], wake_at=NOON)
            await store.enqueue("t", Row("input", "in", "[]"), wake_at=NOON)
            await writer.write(has_to_last=True)
            await writer.write()
            await writer.end()
            await store.delete("t")
    assert modes == ["last"] * 4 + ["write"] * 2 + ["last"]


async def test_an_old_sqlite_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python was built with a SQLite that lacks what the statements need, the error names both versions."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with anyio.fail_after(10), pytest.raises(StoreError, match=rf"{sqlite3.sqlite_version}: a store needs 3\.35"):
        await SQLiteStore(place).mail("t")


async def test_a_connection_that_may_be_harmed_is_given_up(place: Path) -> None:
    """After an error of the disk another connection is opened; after one that harms nothing the same is used."""

    def fail(say: Say, code: int) -> None:
        error = sqlite3.OperationalError("it failed")
        error.sqlite_errorcode = code
        raise error

    def is_same(say: Say) -> bool:
        return say("SELECT COUNT(*) FROM sqlite_temp_master").fetchone() == (1,)

    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            await begin(store, "t")
            await store.call("look", lambda say: say("CREATE TEMP TABLE mark (n)"))
            for code, stays in ((sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_IOERR_FSYNC, False)):
                with pytest.raises(StoreError, match="the disk "):
                    await store.call("write", partial(fail, code=code))
                assert await store.call("look", is_same) == stays
                assert await store.mail("t") == 0


# Other processes


async def test_processes_share_a_file(place: Path, start: Start) -> None:
    """Three processes make one file at the same moment, and write, each a thread of its own and inputs for all."""
    program = """
async def work(me):
    tell("ready")
    writer = await begin(store, me)
    tell("made")
    for number in range(10):
        await writer.write()
        for each in "abc":
            await store.enqueue(each, Row("input", f"{me}{number}", "[]"), wake_at=0)
    await store.close()

anyio.run(work, sys.argv[2])
"""
    processes = [start(PROGRAM + program, place, name) for name in "abc"]
    with anyio.fail_after(60):
        for word in ("ready", "made"):
            assert [await heard(each) for each in processes] == [word] * 3
            for each in processes:
                said(each)
        assert [await ended(each) for each in processes] == [0] * 3
        async with SQLiteStore(place) as store:
            found = [(thread.thread_id, thread.number, thread.mail) for thread in await store.threads()]
            assert found == [(name, 11, 30) for name in "abc"]
            assert len({thread.fence for thread in await store.threads()}) == 3


async def test_a_holder_that_was_killed_holds_nothing(place: Path, start: Start) -> None:
    """While the other process lives its thread is busy; after its death the thread is free and due at once."""
    program = """
async def work():
    writer = Writer(store, await store.acquire("t", this_process("a run"), 600, create=True))
    await writer.write()
    tell("held")

anyio.run(work)
"""
    process = start(PROGRAM + program, place)
    with anyio.fail_after(60):
        async with SQLiteStore(place) as store:
            assert await heard(process) == "held"
            with pytest.raises(ThreadBusyError, match=f"'t' is held by process {process.pid} on .* answer") as busy:
                await store.acquire("t", this_process("another"), 30)
            assert busy.value.thread_id == "t"
            assert await store.due(NOON) == []
            process.kill()
            await ended(process)
            thread = await store.thread("t")
            assert thread is not None
            assert not thread.is_held
            assert await store.due(NOON) == ["t"]
            lease = await store.acquire("t", this_process("another"), 30)
            assert (lease.fence, lease.number) == (thread.fence + 1, 1)


async def test_a_killed_writer_leaves_whole_transactions(place: Path, start: Start) -> None:
    """A process that is killed while it writes leaves what it was told to be durable, and at most one more."""
    program = """
async def work():
    writer = Writer(store, await store.acquire("t", this_process("a run"), 600, create=True))
    while True:
        await writer.write(body='"' + "x" * 300_000 + '"', rows=(Row("effect", str(writer.number + 1), "[]"),))
        print(writer.number, flush=True)

anyio.run(work)
"""
    process = start(PROGRAM + program, place)
    with anyio.fail_after(60):
        while (number := int(await heard(process))) < 5:
            pass
        process.kill()
        await ended(process)
        number = max(number, *(int(line) for line in process.stdout or ()), 0)
        async with SQLiteStore(place) as store:
            stored = await store.read("t")
            assert stored is not None
            assert stored.thread.number in {number, number + 1}
            assert len(stored.log) == len(stored.rows) == stored.thread.number


async def test_a_forked_child_has_a_connection_of_its_own(place: Path, start: Start) -> None:
    """Children forked while a thread writes go on with the same object; they and their parent lose nothing."""
    program = """
import threading

def write(name):
    anyio.run(begin, store, name)

def keep_writing():
    number = 0
    while not is_over.is_set():
        write(f"parent{number}")
        number += 1
    print(number, flush=True)

is_over = threading.Event()
write("first")
thread = threading.Thread(target=keep_writing)
thread.start()
for number in range(10):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            write(f"child{number}")
            store.drop()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
is_over.set()
thread.join()
"""
    process = start(PROGRAM + program, place)
    with anyio.fail_after(60):
        written = int(await heard(process))
        assert await ended(process) == 0
        async with SQLiteStore(place) as store:
            names = [thread.thread_id for thread in await store.threads(limit=100_000)]
            assert await store.call("read", lambda say: say("PRAGMA integrity_check").fetchall()) == [("ok",)]
    wanted = ["first", *(f"child{n}" for n in range(10)), *(f"parent{n}" for n in range(written))]
    assert names == sorted(wanted)


async def test_a_writer_elsewhere_is_waited_for_and_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that keeps the file locked is a StoreError in the end; then the store works on."""
    monkeypatch.setattr(sqlite, "BUSY", 0.01)
    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            writer = await begin(store, "t")
            other = sqlite3.connect(place, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another process keeps it locked"):
                await writer.write()
            assert await store.mail("t") == 0
            other.execute("ROLLBACK")
            other.close()
            await writer.write()


# Threads and tasks


async def test_threads_use_one_store_at_once(place: Path) -> None:
    """Eight threads with event loops of their own, on both backends, work with one object; nothing is lost."""
    store, barrier = SQLiteStore(place), Barrier(8, timeout=30)

    async def work(me: int) -> None:
        barrier.wait()
        writer = await take(store, f"t{me}")
        for number in range(25):
            await writer.write()
            assert await store.enqueue(f"t{me}", Row("input", str(number), "[]"), wake_at=NOON)
            assert await to_thread.run_sync(store.renew, writer.lease, 60)
            stored = await store.read(f"t{me}")
            assert stored is not None
            assert len(stored.log) == len(stored.rows) == number + 1

    def turn(me: int) -> None:
        anyio.run(work, me, backend=("asyncio", "trio")[me % 2])

    with anyio.fail_after(60), ThreadPoolExecutor(8) as pool:
        await to_thread.run_sync(lambda: list(pool.map(turn, range(8))))
        assert [(thread.number, thread.mail) for thread in await store.threads()] == [(25, 25)] * 8
        await store.close()


async def test_work_of_others_does_not_keep_a_store_waiting(place: Path) -> None:
    """A store works while functions of the user have taken all threads that anyio gives out."""
    is_over, is_on = Event(), Event()

    def busy() -> None:
        is_on.set()
        is_over.wait(30)

    limiter = to_thread.current_default_thread_limiter()
    limiter.total_tokens, before = 1, limiter.total_tokens
    try:
        with anyio.fail_after(10):
            async with SQLiteStore(place) as store, anyio.create_task_group() as group:
                group.start_soon(to_thread.run_sync, busy)
                while not is_on.is_set():
                    await anyio.lowlevel.checkpoint()
                await begin(store, "t")
                assert await store.mail("t") == 0
                is_over.set()
    finally:
        is_over.set()
        limiter.total_tokens = before


async def test_a_cancelled_call_is_finished_once_it_has_begun(place: Path) -> None:
    """What the thread has begun is done, and the caller gets its result; what has not begun is not done."""
    is_on, is_over = Event(), Event()
    found: list[str] = []

    def slow(say: Callable[[str, Sequence[object]], object]) -> str:
        is_on.set()
        is_over.wait(30)
        return "done"

    async def call(store: SQLiteStore) -> None:
        found.append(await store.call("write", slow))

    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            async with anyio.create_task_group() as group:
                group.start_soon(call, store)
                while not is_on.is_set():
                    await anyio.lowlevel.checkpoint()
                group.start_soon(partial(store.acquire, "t", "{}", 30, create=True))
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
                is_over.set()
            assert found == ["done"]
            assert await store.call("look", lambda say: say("SELECT * FROM threads").fetchall()) == []
            await story(store, "t")
