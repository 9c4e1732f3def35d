"""Stores for tests of runs: one kind after the other, opened as often as a test likes, as other processes would.

A test that takes `any_store` runs on a file of SQLite, and in `make test-full` on the other kinds too; one with the
mark `each_store` runs on every kind always.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jianmu.stores import MemoryStore, PostgresStore, SQLiteStore
from jianmu.stores.sql import SQLStore
from tests.postgres import Server, empty, fresh_schema

TABLES = ("threads", "log", "rows", "questions")
THREAD = "SELECT pk, number, mail, status, record, wake_at, created_at, updated_at FROM threads WHERE thread_id = ?"
each_store = pytest.mark.parametrize("any_store", ["sqlite", "memory", "postgres"], indirect=True)
"""The mark of a test for which the kind of store matters."""


def opened(kind: str, place: str, schema: str = "") -> SQLStore:
    """Return a store, from what another process may be told of it."""
    return SQLiteStore(place) if kind == "sqlite" else PostgresStore(place, schema=schema)


class Stores:
    """Opens stores of one kind, on the same threads wherever the name is the same.

    Args:
        kind: `memory`, `sqlite` or `postgres`.
        folder: where files may be.
        server: gives the PostgreSQL, when it is wanted.
    """

    def __init__(self, kind: str, folder: Path, server: Callable[[], Server]) -> None:
        self.kind = kind
        self._folder = folder
        self._server = server
        self._memories: dict[str, MemoryStore] = {}
        self._schemas: dict[str, str] = {}
        self._opened: list[SQLStore] = []
        self._readers: dict[str, SQLStore] = {}
        self._apart = 0

    def __call__(self, name: str = "store") -> SQLStore:
        """Return one more store on the threads under a name; in memory there is only the one."""
        if self.kind == "memory":
            return self._memories.setdefault(name, MemoryStore())
        self._opened.append(opened(self.kind, *self.place(name)))
        return self._opened[-1]

    def reader(self, name: str = "store") -> SQLStore:
        """Return a store on the threads under a name, always the same one."""
        if name not in self._readers:
            self._readers[name] = self(name)
        return self._readers[name]

    def place(self, name: str = "store") -> tuple[str, ...]:
        """Return where the threads are, as `opened` takes it."""
        if self.kind != "postgres":
            return (str(self._folder / f"{name}.db"),)
        server = self._server()
        if name not in self._schemas:
            self._schemas[name] = server.free.pop() if server.free else fresh_schema()
        return server.dsn, self._schemas[name]

    def apart(self) -> str:
        """Return a name that was not used yet."""
        self._apart += 1
        return f"apart {self._apart}"

    def rows(self, thread_id: str, name: str = "store") -> dict[str, list[Any]]:
        """Return all that is kept of a thread but its lease, by table; empty where nothing is left."""

        def read(say: Any) -> dict[str, list[Any]]:
            found = say(THREAD, (thread_id,)).fetchall()
            if not found:
                return {}
            pk = found[0][0]
            rest = {one: f"SELECT * FROM {one} WHERE thread = ? ORDER BY 1, 2, 3" for one in TABLES[1:]}
            return {"threads": found} | {one: say(text, (pk,)).fetchall() for one, text in rest.items()}

        return self.reader(name).work("read", read)

    def count(self, name: str = "store") -> dict[str, int]:
        """Return how many rows each table has."""

        def read(say: Any) -> dict[str, int]:
            return {one: say(f"SELECT COUNT(*) FROM {one}").fetchone()[0] for one in TABLES}

        return self.reader(name).work("read", read)

    async def close(self) -> None:
        """Close what was opened, and leave no thread on the server."""
        for store in self._opened:
            await store.close()
        schemas = [*self._schemas.values()]
        self._schemas.clear()
        for schema in schemas:
            server = self._server()
            with psycopg.connect(server.dsn) as connection:
                is_made = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
            if is_made:
                empty(server.dsn, schema)
            server.free.append(schema)


@pytest.fixture(
    params=["sqlite", pytest.param("memory", marks=pytest.mark.full), pytest.param("postgres", marks=pytest.mark.full)]
)
async def any_store(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> AsyncIterator[Stores]:
    """One kind of store after the other, without threads."""
    stores = Stores(request.param, tmp_path, lambda: request.getfixturevalue("postgres"))
    stores.place()  # the server starts before any time is taken
    yield stores
    await stores.close()
