"""Threads in a file of SQLite.

1. One connection, used under a lock. What runs on an event loop waits for the store's thread, one at a time per loop.
2. A transaction that has to survive a power cut is written through to the disk, with all that came before it.
3. After an error that the connection may not have survived it is closed; the next use opens another.
4. A forked process closes what it has got of the connection before it uses the store: SQLite's locks are its parent's.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar  # Any: what SQLite takes as a value, and refuses otherwise
from weakref import WeakSet

from anyio import CancelScope

from jianmu.errors import CorruptRecordError, SetupError, StoreError
from jianmu.stores import tables
from jianmu.stores.sql import SQLStore
from jianmu.stores.tables import Dialect, Mode, Say, Texts
from jianmu.stores.worker import Worker

T = TypeVar("T")

BUSY = 30.0
"""Seconds to wait for another process that writes."""

OLDEST = (3, 35)
"""The first version that knows RETURNING."""

DIALECT = Dialect(
    value="?",
    key="INTEGER PRIMARY KEY",
    id="TEXT",
    now="store_now()",
    lock="",
    fences=("CREATE TABLE fences (last BIGINT NOT NULL)", "INSERT INTO fences (last) VALUES (0)"),
    fence="UPDATE fences SET last = last + 1 RETURNING last",
)

_CLOSED = "the file or its folder cannot be written: let this process write both, or give the store another path"
_CAUSES = {
    sqlite3.SQLITE_NOTADB: "it is no database: put back a copy of the store, or give it another path",
    sqlite3.SQLITE_CORRUPT: "it is torn: put back a copy of the store, or give it another path",
    sqlite3.SQLITE_FULL: "the disk is full: make room, then recover(thread_id) goes on from what is stored",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written: look after it, then recover(thread_id)",
    sqlite3.SQLITE_BUSY: "another process keeps it locked: let that one end its transaction",
    sqlite3.SQLITE_READONLY: _CLOSED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_PERM: _CLOSED,
    sqlite3.SQLITE_MISMATCH: "a value cannot be kept: numbers have at most 64 bits, texts no lone surrogates",
    sqlite3.SQLITE_TOOBIG: "a text is too large: SQLite keeps up to 1 GB in one",
    sqlite3.SQLITE_CONSTRAINT: "a row with an id of the call is there already, in this thread or another",
}
_TORN = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
_HARMLESS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, None}


class Forks:
    """Stops what databases do while the process is forked, so that the child gets them at rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: WeakSet[Database] = WeakSet()
        self._stopped: list[Database] = []
        if sys.platform != "win32":
            os.register_at_fork(before=self._stop, after_in_parent=self._go_on, after_in_child=self._begin)

    def add(self, database: Database) -> None:
        """Know of a database from now on."""
        with self._lock:
            self._all.add(database)

    def _stop(self) -> None:
        self._lock.acquire()
        self._stopped = list(self._all)
        for database in self._stopped:
            database.lock.acquire()

    def _go_on(self) -> None:
        for database in self._stopped:
            database.lock.release()
        self._stopped = []
        self._lock.release()

    def _begin(self) -> None:
        for database in self._stopped:
            database.forked()
        self._go_on()


_forks = Forks()


class Database(SQLStore):
    """One connection to a database of SQLite.

    Attributes:
        lock: held by the thread that uses the connection.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._texts = Texts(DIALECT.render)
        self._connection: sqlite3.Connection | None = None
        self._level = ""
        self.lock = threading.Lock()
        _forks.add(self)

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def forked(self) -> None:
        """Leave to the parent, in a process that was forked, what is its."""
        self.drop()

    def drop(self) -> None:
        """Close the connection, if there is one; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def work(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do a piece of work in one transaction, opening the database first if it is not open."""
        with self.lock:
            try:
                return self._transact(self._current(), mode, work)
            except (sqlite3.Error, OverflowError, UnicodeError, OSError) as error:
                if _code(error) not in _HARMLESS:
                    self.drop()
                raise _told(error, self._path) from error

    def _transact(self, connection: sqlite3.Connection, mode: Mode, work: Callable[[Say], T]) -> T:
        say = self._speaker(connection)
        if mode == "look":
            return work(say)
        if mode != "read":
            self._set_level(connection, "FULL" if mode == "last" else "NORMAL")
        connection.execute("BEGIN" if mode == "read" else "BEGIN IMMEDIATE")
        try:
            result = work(say)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _speaker(self, connection: sqlite3.Connection) -> Say:
        texts, execute = self._texts, connection.execute

        def say(text: str, values: Sequence[Any] = (), /) -> sqlite3.Cursor:
            return execute(texts[text], values)

        return say

    def _set_level(self, connection: sqlite3.Connection, level: str) -> None:
        """Have the next transactions written through to the disk (FULL), or survive the process alone (NORMAL)."""
        if level != self._level:
            connection.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def _current(self) -> sqlite3.Connection:
        return self._connection or self._open()

    def _open(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreError(f"this Python has SQLite {sqlite3.sqlite_version}: a store needs 3.35 or a newer one")
        connection = sqlite3.connect(self._path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            connection.create_function("store_now", 0, time.time)
            self._level = ""
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables, or bring them to today's version; a database of somebody else's is left as it is."""
        say = self._speaker(connection)
        if _is_empty(say) or tables.version(say) < tables.VERSION:
            _set_wal(connection)
            self._transact(connection, "last", _migrate)


def _place(path: object) -> Path:
    """Return where a store's file is.

    Raises:
        SetupError: it is no path of a file.
    """
    if isinstance(path, str | Path) and str(path) not in ("", ":memory:"):
        return Path(path).absolute()
    hint = "MemoryStore() keeps threads in memory" if path == ":memory:" else 'write SQLiteStore("runs.db")'
    raise SetupError(f"SQLiteStore(path) takes the path of a file, not {path!r}: {hint}")


class SQLiteStore(Database):
    """Keeps threads in a file, which several processes of a host can use at once.

    The file and its folder are made on first use; a new file can be read and written by its owner alone.
    Beside it SQLite keeps two more, with `-wal` and `-shm` at the end of their names, which belong to it.

    Args:
        path: where the file is.
    """

    def __init__(self, path: str | Path) -> None:
        self._place = _place(path)
        self._file: tuple[int, int] | None = None
        self._worker = Worker()
        super().__init__(str(self._place))

    async def call(self, mode: Mode, work: Callable[[Say], T]) -> T:
        """Do a piece of work in a thread; what has begun is finished, also when the task is cancelled."""
        return await self._worker.do(partial(self.work, mode, work))

    async def close(self) -> None:
        """Close the file; the next use opens it again."""
        with CancelScope(shield=True):
            await self._worker.do(self._close)

    def _close(self) -> None:
        with self.lock:
            self.drop()

    def forked(self) -> None:
        """Leave connection and thread to the parent."""
        super().forked()
        self._worker.renew()

    def _current(self) -> sqlite3.Connection:
        # a file that was removed or replaced takes writes like any other, and nobody would ever see them
        if self._connection is not None and self._file != _file(self._path):
            self.drop()
        return super()._current()

    def _open(self) -> sqlite3.Connection:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        if not self._place.exists():
            os.close(os.open(self._place, os.O_CREAT | os.O_RDWR, 0o600))
        self._file = _file(self._path)
        return super()._open()


def _file(path: str) -> tuple[int, int] | None:
    """Return which file a path names now, if any."""
    try:
        found = os.stat(path)  # noqa: PTH116  # a Path would cost twice as much, with each transaction
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_empty(say: Say) -> bool:
    """Whether a database has no tables.

    Raises:
        CorruptRecordError: it has those of another program.
    """
    names = {row[0] for row in say("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    if names and "meta" not in names:
        raise CorruptRecordError("the file is another program's database: give the store a path of its own")
    return not names


def _migrate(say: Say) -> None:
    if _is_empty(say):
        tables.create(say, DIALECT)
    tables.migrate(say)


def _set_wal(connection: sqlite3.Connection) -> None:
    """Let others read while one writes; SQLite does not wait by itself for another process that does this too."""
    until = time.monotonic() + BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _code(error: Exception) -> int | None:
    """Return SQLite's code of an error, without what it adds to it; None for what never came to SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _told(error: Exception, path: str) -> StoreError:
    """Return an error of the database as one of jianmu's."""
    code = _code(error)
    if isinstance(error, OSError):
        code = sqlite3.SQLITE_FULL if error.errno == errno.ENOSPC else sqlite3.SQLITE_CANTOPEN
    elif isinstance(error, OverflowError | UnicodeEncodeError | sqlite3.ProgrammingError):
        code = sqlite3.SQLITE_MISMATCH
    elif code is None or (code == sqlite3.SQLITE_ERROR and "no such" in str(error)):
        code = sqlite3.SQLITE_CORRUPT
    cause = _CAUSES.get(code, f"SQLite says {error}")
    return (CorruptRecordError if code in _TORN else StoreError)(f"the store '{path}' cannot do this: {cause}")
