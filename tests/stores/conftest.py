"""What tests of stores share: a place for a file, an open store of each kind, and other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jianmu.stores import MemoryStore, PostgresStore, SQLiteStore
from jianmu.stores.base import Store
from tests.postgres import Server

ROOT = Path(__file__).parents[2]
Start = Callable[..., "subprocess.Popen[str]"]


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
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process, suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too
