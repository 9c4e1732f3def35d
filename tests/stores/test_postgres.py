"""PostgresStore on a real server, which is stopped and started under it."""

from __future__ import annotations

import pytest

from jianmu.stores import PostgresStore
from jianmu.testing import STORE_CHECKS, check_store
from tests.postgres import Server

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", STORE_CHECKS)
async def test_a_store_keeps_its_promises(postgres: Server, name: str) -> None:
    """Each promise of check_store is kept, on both backends; the test's name says which."""
    await check_store(lambda schema: PostgresStore(postgres.dsn, schema=schema), only=[name])
