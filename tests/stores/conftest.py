"""The stores that the tests of operations run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jianmu.stores import MemoryStore, SQLiteStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> AsyncIterator[object]:
    """One kind of store after the other, empty."""
    async with MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db") as opened:
        yield opened
