"""check_store on the stores that need no server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from jianmu.engine.checkpoint import Checkpointer
from jianmu.stores import MemoryStore, SQLiteStore
from jianmu.testing import STORE_CHECKS, check_store

pytestmark = pytest.mark.anyio
GROWTH = ["a_transaction_stays_small", "stored_bytes_are_bounded"]


@pytest.fixture(params=["memory", "sqlite"])
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., object]:
    """check_store on one kind of store; a store in memory is the same object under the same name."""
    kept: dict[str, MemoryStore] = {}

    @asynccontextmanager
    async def in_memory(name: str) -> AsyncIterator[Checkpointer]:
        yield kept.setdefault(name, MemoryStore())

    async def size(name: str) -> int:
        return (tmp_path / f"{name}.db").stat().st_size

    def in_a_file(name: str) -> SQLiteStore:
        return SQLiteStore(tmp_path / f"{name}.db")

    return partial(check_store, in_memory) if request.param == "memory" else partial(check_store, in_a_file, size=size)


@pytest.mark.parametrize("name", STORE_CHECKS)
async def test_a_store_keeps_its_promises(check: Callable[..., object], name: str) -> None:
    """Each promise of check_store is kept by each store, on both backends; the test's name says which."""
    await check(only=[name])
