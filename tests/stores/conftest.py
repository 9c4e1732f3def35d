"""What tests of stores share: a place for a file, an open store of each kind, and other processes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jianmu.stores import MemoryStore, PostgresStore, SQLiteStore
from jianmu.stores.base import Store
from tests import forks
from tests.forks import Process
from tests.postgres import Server

Start = Callable[..., Process]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a store's file may be; it is not there yet."""
    return tmp_path / "store.db"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, anyio_backend: str, place: Path, postgres: Server
) -> AsyncIterator[Store]:
    """One kind of store after the other, empty."""
    kinds = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(place),
        "postgres": lambda: PostgresStore(postgres.dsn, schema=request.getfixturevalue("schema")),
    }
    async with kinds[request.param]() as opened:
        yield opened


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program in a process of its own, which talks by lines; what still runs after the test is killed."""
    started: list[Process] = []

    def run(program: str, *arguments: object) -> Process:
        started.append(forks.started("tests.forks:run_text", program, *map(str, arguments)))
        return started[-1]

    yield run
    for process in started:
        with process, suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too
