"""SQLiteStore on files that are torn, foreign, of another version, closed to it, or on a full disk."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from jianmu.engine.checkpoint import Checkpointer, Row, Sought
from jianmu.errors import CorruptRecordError, JianmuError, SchemaVersionError, StoreError
from jianmu.stores import SQLiteStore, tables
from jianmu.testing.store_scene import NOON, answer, begin, picture, question, story, take
from tests.forks import Process

pytestmark = pytest.mark.anyio
Start = Callable[..., Process]


def put(place: Path, content: bytes, wal: bytes | None = None) -> None:
    """Write a store's file, and no other beside it but the log that SQLite keeps of its last writes."""
    for path in place.parent.glob(f"{place.name}*"):
        path.unlink()
    place.write_bytes(content)
    if wal is not None:
        place.with_name(f"{place.name}-wal").write_bytes(wal)


async def told(place: Path) -> list[str]:
    """Return what each call of a store over a file comes to: the names of errors, or ''."""
    found: list[str] = []
    async with SQLiteStore(place) as store:
        for call in (
            lambda: store.acquire("t", "{}", 30, create=True),
            lambda: store.read("t"),
            lambda: store.due(NOON),
            lambda: store.questions(Sought(status=None)),
            lambda: store.move([answer("q")], wake_at=NOON),
            lambda: store.enqueue("t", Row("input", "in", "[]"), wake_at=NOON),
            lambda: store.trim("t", Row("base", "b", "[]", 1)),
            lambda: store.delete("t"),
        ):
            try:
                await call()
                found.append("")
            except JianmuError as error:
                found.append(type(error).__name__)
    return found


async def made(place: Path) -> bytes:
    """Return the bytes of a store with a thread."""
    async with SQLiteStore(place) as store:
        await story(store, "t")
    return read(place)


def read(place: Path) -> bytes:
    """Return what a file holds."""
    return place.read_bytes()


def foreign(place: Path, *texts: str) -> bytes:
    """Return the bytes of a database that another program has made."""
    with closing(sqlite3.connect(place)) as other:
        for text in texts:
            other.execute(text)
        other.commit()
    return read(place)


# Torn and foreign files


async def test_a_torn_file_is_told(place: Path) -> None:
    """Wherever a file is cut off after its first byte, every call says that it is torn, and the file stays as it is."""
    with anyio.fail_after(60):
        whole = await made(place)
        for cut in (2, 50, 99, 100, 500, 4095, 4096, 4097, *range(8_000, len(whole) - 4096, 9_001)):
            put(place, whole[:cut])
            assert await told(place) == ["CorruptRecordError"] * 8, f"cut at {cut} of {len(whole)}"
            assert read(place) == whole[:cut]


async def test_a_damaged_file_breaks_nothing_else(place: Path) -> None:
    """Whatever bytes are changed, a call is done or is a typed error; no other error comes out."""
    with anyio.fail_after(60):
        whole = await made(place)
        for turn in range(60):
            damaged = bytearray(whole)
            for spot in range(17 * turn, len(whole), 1_009 + 31 * turn):
                damaged[spot] ^= 1 + (spot * 31 + turn) % 255
            put(place, bytes(damaged))
            assert set(await told(place)) <= {"", "CorruptRecordError", "StoreError", "ThreadBusyError"}


async def test_a_torn_log_of_writes_keeps_whole_transactions(place: Path) -> None:
    """Wherever SQLite's own log is cut off or damaged, what is left is a thread as it stood at one of its numbers."""
    with anyio.fail_after(60):
        async with SQLiteStore(place) as store:
            writer = await take(store, "t")
            for number in range(1, 13):
                asked = (question(f"q{number}", "t", came=number),)
                await writer.write(questions=asked, rows=(Row("effect", str(number), "[]", number),))
            whole, log = read(place), read(place.with_name(f"{place.name}-wal"))
        numbers: set[int] = set()
        for cut in range(0, len(log) + 1, 7_919):
            for after in (b"", b"\xff" * (len(log) - cut)):
                put(place, whole, log[:cut] + after)
                async with SQLiteStore(place) as store:
                    stored = await store.read("t")
                if stored is not None:
                    count = stored.thread.number
                    assert len(stored.log) == len(stored.rows) == len(stored.questions) == count
                    numbers.add(count)
        assert len(numbers) > 6


@pytest.mark.parametrize(
    "texts",
    [
        ["CREATE TABLE recipes (name TEXT)"],
        ["CREATE TABLE meta (name TEXT, value BIGINT)"],
        ["CREATE TABLE meta (name TEXT, value TEXT)", "INSERT INTO meta VALUES ('jianmu', 'os.system')"],
        ["CREATE TABLE meta (name TEXT, value TEXT)", "INSERT INTO meta VALUES ('jianmu', x'80049563')"],
        ["CREATE TABLE meta (key TEXT)"],
    ],
    ids=["other tables", "no version", "a text", "pickled bytes", "other columns"],
)
async def test_another_programs_database_is_left_alone(place: Path, texts: list[str]) -> None:
    """K07: a database that is no store is told to be none, and not one byte of it changes."""
    before = await to_thread.run_sync(foreign, place, *texts)
    with anyio.fail_after(10):
        assert await told(place) == ["CorruptRecordError"] * 8
    assert read(place) == before


@pytest.mark.parametrize("content", [b"hello", b"SQLite format 3\0", b"\x80\x04\x95" * 99, b"{}\n" * 9_999], ids=len)
async def test_what_is_no_database_is_left_alone(place: Path, content: bytes) -> None:
    """A file of another kind is told to be none, and stays as it is."""
    put(place, content)
    with anyio.fail_after(10):
        assert await told(place) == ["CorruptRecordError"] * 8
        with pytest.raises(CorruptRecordError, match="give it another path"):
            await SQLiteStore(place).mail("t")
    assert read(place) == content


async def test_a_repaired_file_is_used_by_the_same_store(place: Path) -> None:
    """When a torn file was replaced by a copy, the store object that has met the torn one goes on."""
    with anyio.fail_after(10):
        whole = await made(place)
        put(place, whole[:20_000])
        async with SQLiteStore(place) as store:
            with pytest.raises(CorruptRecordError):
                await store.mail("t")
            put(place, whole)
            assert await store.mail("t") == 1


# Versions


async def test_a_newer_version_is_refused(place: Path) -> None:
    """A store of a newer jianmu is a SchemaVersionError that says so, and not one byte of it changes."""
    with anyio.fail_after(10):
        await made(place)
        await to_thread.run_sync(foreign, place, f"UPDATE meta SET value = {tables.VERSION + 1}")
        before = read(place)
        assert await told(place) == ["SchemaVersionError"] * 8
        with pytest.raises(SchemaVersionError, match="install a newer jianmu"):
            await SQLiteStore(place).mail("t")
    assert read(place) == before


async def test_an_older_version_is_brought_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that a store has not seen are made once, in order, and what it holds stays."""
    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            await (await story(store, "t")).end()
            before = await picture(store, "t")
        steps = (
            *tables.MIGRATIONS,
            ("CREATE TABLE more (n BIGINT)",),
            ("INSERT INTO more VALUES (?)".replace("?", "7"),),
        )
        monkeypatch.setattr(tables, "MIGRATIONS", steps)
        monkeypatch.setattr(tables, "VERSION", len(steps))
        for _ in range(2):
            async with SQLiteStore(place) as store:
                assert await picture(store, "t") == before
                assert await store.call("look", lambda say: say("SELECT n FROM more").fetchall()) == [(7,)]


async def test_a_step_that_fails_leaves_the_older_version(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are one transaction: a store that cannot be brought up is as it was, and today's jianmu opens it."""
    with anyio.fail_after(10):
        await made(place)
        with monkeypatch.context() as later:
            steps = (*tables.MIGRATIONS, ("CREATE TABLE more (n BIGINT)", "DROP TABLE nothing"))
            later.setattr(tables, "MIGRATIONS", steps)
            later.setattr(tables, "VERSION", len(steps))
            assert "" not in await told(place)
        async with SQLiteStore(place) as store:
            assert await store.mail("t") == 1
            found = "SELECT name FROM sqlite_master WHERE name = 'more'"
            assert await store.call("look", lambda say: say(found).fetchall()) == []


# What the system refuses


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def allow(folder: Path, mode: int, each: int) -> None:
    """Set who may do what with a folder and the files in it."""
    folder.chmod(mode)
    for path in folder.iterdir():
        path.chmod(each)


async def test_a_folder_that_cannot_be_written_is_told(folder: Path, start: Start) -> None:
    """A file that can be neither made nor written is a StoreError that says what to do, for reading and writing."""
    program = """
import os, sys, anyio
from jianmu.errors import StoreError
from jianmu.stores import SQLiteStore

async def work():
    await anyio.to_thread.run_sync(int)  # what is imported late
    if os.geteuid() == 0:
        os.setuid(65534)
    for name in sys.argv[1:]:
        store = SQLiteStore(name)
        for call in (store.acquire("t", "{}", 30, create=True), store.delete("t")):
            try:
                await call
                print("done", flush=True)
            except StoreError as error:
                print(error, flush=True)

anyio.run(work)
"""
    with anyio.fail_after(60):
        await made(folder / "old.db")
        allow(folder, 0o555, 0o444)
        process = start(program, folder / "old.db", folder / "new.db", folder / "sub" / "new.db")
        lines, _ = await to_thread.run_sync(process.communicate, abandon_on_cancel=True)
        allow(folder, 0o755, 0o644)
    assert len(lines.splitlines()) == 6
    assert all("cannot be written: let this process write both" in line for line in lines.splitlines())


async def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    """A path that is no file's, and one below a file, are StoreErrors."""
    (tmp_path / "file").touch()
    with anyio.fail_after(10):
        for place in (tmp_path, tmp_path / "file" / "store.db"):
            with pytest.raises(StoreError, match="give the store another path"):
                await SQLiteStore(place).mail("t")


async def fill(store: SQLiteStore) -> None:
    """Let a store's file not grow any more."""
    await store.call("look", lambda say: say("PRAGMA max_page_count = 1").fetchone())


async def test_a_full_disk_is_told(place: Path) -> None:
    """When there is no room nothing is changed, what is there can be read, and with room the same run goes on."""
    with anyio.fail_after(10):
        async with SQLiteStore(place) as store:
            writer = await story(store, "t")
            await fill(store)
            before = await picture(store, "t")
            large = {"body": '"' + "x" * 100_000 + '"', "rows": (Row("effect", "new", "[]", 7),)}
            for mode in (True, False):
                with pytest.raises(StoreError, match="the disk is full: make room"):
                    await store.commit(writer.step(**large, has_to_last=mode))
                assert await picture(store, "t") == before
            await store.call("look", lambda say: say("PRAGMA max_page_count = 100000").fetchone())
            await writer.write(**large)


async def test_a_disk_that_fails_is_told(place: Path, start: Start) -> None:
    """When a file can grow no more, what was committed is there and all else is a typed error."""
    program = """
import resource, sys, anyio
from jianmu.errors import StoreError
from jianmu.stores import SQLiteStore
from jianmu.testing.store_scene import begin

async def work():
    async with SQLiteStore(sys.argv[1]) as store:
        writer = await begin(store, "t")
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        for _ in range(3):
            try:
                while True:
                    await writer.write(body='"' + "x" * 10_000 + '"')
            except StoreError as error:
                print(error, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await writer.write()
        print(writer.number, flush=True)

anyio.run(work)
"""
    process = start(program, place)
    with anyio.fail_after(60):
        lines, _ = await to_thread.run_sync(process.communicate, abandon_on_cancel=True)
        *errors, number = lines.splitlines()
        assert len(errors) == 3
        assert all("the disk " in error for error in errors)
        async with SQLiteStore(place) as store:
            assert len(await store.log("t", limit=1_000)) == int(number)


# What it costs


async def steps(store: SQLiteStore, call: Callable[[Checkpointer], object]) -> int:
    """Return how many steps SQLite's machine makes for a call."""
    connection = store._connection  # pyright: ignore[reportPrivateUsage]  # SQLite tells its steps to its owner alone
    assert connection is not None
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(step, 1)
    await call(store)  # pyright: ignore[reportGeneralTypeIssues]  # each is a coroutine
    connection.set_progress_handler(None, 1)
    return count


CALLS: dict[str, Callable[[SQLiteStore], object]] = {
    "a page of the inbox": lambda store: store.questions(Sought(limit=10)),
    "the page after it": lambda store: store.questions(Sought(after=(20.0, "q20"), limit=10)),
    "for one person": lambda store: store.questions(Sought(assignee="p3", limit=5)),
    "for one reason": lambda store: store.questions(Sought(reason="input", limit=10)),
    "the old ones": lambda store: store.questions(Sought(asked_before=10.0)),
    "questions that are due": lambda store: store.questions(Sought(due=NOON + 3)),
    "questions of a thread": lambda store: store.questions(Sought(thread_id="t50")),
    "questions by id": lambda store: store.questions(Sought(ids=("q1", "q50"), status=None)),
    "threads that are due": lambda store: store.due(NOON + 3),
    "a page of threads": lambda store: store.threads(after="t", limit=10),
    "a load": lambda store: store.read("t50"),
    "a look": lambda store: store.mail("t50"),
    "a log": lambda store: store.log("t50"),
    "an answer": lambda store: store.move([answer("q50")], wake_at=NOON),
    "a lease": lambda store: store.acquire("t50", "{}", 30),
}


async def test_calls_cost_the_same_whatever_else_is_stored(tmp_path: Path) -> None:
    """Pages, due queries, loads and answers take as many steps at 100 suspended threads as at 1,000."""
    found: dict[int, dict[str, int]] = {}
    with anyio.fail_after(60):
        for count in (100, 1_000):
            async with SQLiteStore(tmp_path / f"{count}.db") as store:
                await suspended(store, count)
                found[count] = {name: await steps(store, call) for name, call in CALLS.items()}
    assert {name: found[1_000][name] for name in CALLS if found[1_000][name] > 1.1 * found[100][name] + 20} == {}


async def suspended(store: SQLiteStore, count: int) -> None:
    """Make threads that wait for an answer."""
    for number in range(count):
        writer = await take(store, f"t{number}")
        fields = {"assignee": f"p{number % 10}", "asked_at": float(number), "next_at": NOON + number, "came": 1}
        asked = question(f"q{number}", f"t{number}", reason=("input", "approval")[number % 2], **fields)
        await writer.end("suspended", questions=(asked,), wake_at=NOON + number)


async def test_what_is_done_with_costs_a_load_nothing(tmp_path: Path) -> None:
    """A load of a thread takes as many steps after 1,000 questions and effects that are done with as after 100."""
    found: list[int] = []
    with anyio.fail_after(60):
        for count in (100, 1_000):
            async with SQLiteStore(tmp_path / f"{count}.db") as store:
                writer = await begin(store, "t")
                past = tuple(Row("effect", f"e{number}", "[]", 2, 2) for number in range(count))
                asked = tuple(question(f"q{number}", "t", came=2, consumed=2, went=2) for number in range(count))
                await writer.write(
                    rows=(*past, Row("effect", "kept", "[]", 2), Row("cache", "2", "[]", 2)), questions=asked
                )
                found.append(await steps(store, lambda store: store.read("t")))
    assert found[1] <= found[0] + 20
