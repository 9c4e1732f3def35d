"""PostgresStore keeps the promises of all stores."""

from __future__ import annotations

import pytest

from jianmu.stores import PostgresStore
from jianmu.testing import STORE_CHECKS, check_store
from tests.postgres import Server

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", STORE_CHECKS)
async def test_a_store_keeps_its_promises(postgres: Server, schema: str, name: str) -> None:
    """Each promise of check_store is kept, on both backends; the test's name says which."""
    names: set[str] = set()

    def store(data: str) -> PostgresStore:
        names.add(data)
        assert len(names) == 1
        return PostgresStore(postgres.dsn, schema=schema)

    await check_store(store, only=[name])
