"""Connections to PostgreSQL, and what its errors mean for a store.

Who needs a connection takes one that lies idle, or opens one: so a failure tells its cause to the one who meets it, no
thread runs beside, and a process that was forked opens connections of its own.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any  # Any: what a column holds

from jianmu.errors import CorruptRecordError, MissingExtraError, StoreError

if TYPE_CHECKING:  # an extra: it may be absent
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

OPTIONS = {
    "application_name": "jianmu",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How to connect where the dsn says nothing else: that a server has vanished is noticed in half a minute."""

# what was committed survives a power cut, and what lost its client holds no locks, whatever the role's settings are
BEGIN = """SELECT set_config('search_path', quote_ident(%s), false),
    set_config('jianmu.connection', 'sent ' || gen_random_uuid(), false),
    set_config('idle_in_transaction_session_timeout', '10s', false),
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"""

AGAIN = {"40001", "40P01", "55P03"}  # could not be serialized, deadlock, a lock was not had: nothing was done
TORN = {"42P01", "42703", "XX001", "XX002"}  # tables or columns are missing, or their bytes are wrong
OF_VALUES = ("22", "23")  # classes of errors whose texts may hold a value
CAUSE = re.compile(r"failed: (.*)")


class LostError(Exception):
    """A connection broke, or could not be had: what was sent was done, or not."""


class Connections:
    """The connections of one store.

    Args:
        dsn: what to connect to.
        schema: where the store's tables stand.
        most: how many are open at the same time.
    """

    def __init__(self, dsn: str, schema: str, most: int) -> None:
        try:
            import psycopg  # noqa: PLC0415  # an extra
            from psycopg import conninfo  # noqa: PLC0415  # the same
        except ImportError:
            raise MissingExtraError("PostgresStore", "postgres") from None
        self._psycopg = psycopg
        self._conninfo = conninfo
        self._dsn = self._read(dsn)
        self._schema = schema
        self._most = most
        self._was_reached = False
        self._idle: list[Connection] = []
        self._begin()

    def _begin(self) -> None:
        self._of_parent = self._idle  # kept by a child: closing them would end them for its parent too
        self._idle = []
        self._process = os.getpid()
        self._places = threading.BoundedSemaphore(self._most)

    def _read(self, dsn: str) -> str:
        """Return a dsn with our options; whatever is wrong with it, the error shows nothing of it."""
        try:
            parts = OPTIONS | self._conninfo.conninfo_to_dict(dsn) | {"client_encoding": "utf8"}
            # libpq takes the rest of a password with an @ or a / in it for a host or a port, and would print it
            port = str(parts.get("port", "")).replace(",", "")
            is_sound = "@" not in str(parts.get("host", "")) and (not port or port.isdecimal()) and "\0" not in dsn
        except (self._psycopg.Error, ValueError, TypeError):
            is_sound = False
        else:
            if is_sound:
                return self._conninfo.make_conninfo("", **parts)
        raise StoreError("the dsn cannot be read: write postgresql://user:password@host:5432/name, with %40 for @")

    @contextmanager
    def one(self) -> Generator[Connection]:
        """Lend a connection.

        Raises:
            LostError: it broke, or none can be had at the moment.
            StoreError: the server was never reached, or it refused what was sent.
        """
        if self._process != os.getpid():
            self._begin()
        with self._places:
            idle = self._idle
            connection = _last(idle) or self._open()
            try:
                yield connection
            except self._psycopg.Error as error:
                raise self._told(error, connection) from None
            except UnicodeEncodeError:
                raise StoreError("PostgreSQL keeps no lone surrogates: leave them out of ids and names") from None
            finally:
                self._put_back(connection, idle)

    def close(self) -> None:
        """Close those that are not in use, and the others when they come back."""
        idle, self._idle = self._idle, []
        while (connection := _last(idle)) is not None:
            connection.close()

    def _open(self) -> Connection:
        try:
            connection = self._psycopg.connect(self._dsn, autocommit=True)
            connection.execute(BEGIN, (self._schema,))
        except (self._psycopg.Error, ValueError) as error:
            found = CAUSE.search(str(error))
            text = f"PostgreSQL was not reached: {found[1] if found else type(error).__name__}"
        else:
            self._was_reached = True
            return connection
        if self._was_reached:
            raise LostError(text)
        raise StoreError(f"{text}; look at the dsn, and whether the server is there")

    def _put_back(self, connection: Connection, idle: list[Connection]) -> None:
        status = connection.pgconn.transaction_status
        if idle is self._idle and status == self._psycopg.pq.TransactionStatus.IDLE:
            idle.append(connection)
        else:
            connection.close()

    def _told(self, error: psycopg.Error, connection: Connection) -> Exception:
        """Return an error of psycopg as one of jianmu's, without what may be a user's value in it."""
        code = error.sqlstate or ""
        if connection.closed or code in AGAIN:
            return LostError(f"the connection to PostgreSQL was lost ({type(error).__name__})")
        if not code and isinstance(error, self._psycopg.DataError):
            return StoreError("PostgreSQL keeps no NUL in a text: leave it out of ids and names")
        if error.diag.column_name == "thread":
            return StoreError("the id of a question is that of another thread's question")
        text = "" if code.startswith(OF_VALUES) else f": {error.diag.message_primary}"
        kind = CorruptRecordError if code in TORN else StoreError
        return kind(f"PostgreSQL refused this ({type(error).__name__} {code}){text}")


def _last(idle: list[Connection]) -> Connection | None:
    """Take one from a list that other threads take from too."""
    try:
        return idle.pop()
    except IndexError:
        return None
