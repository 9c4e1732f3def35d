"""Where threads are kept."""

from __future__ import annotations

from jianmu.stores.memory import MemoryStore
from jianmu.stores.postgres import PostgresStore
from jianmu.stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "PostgresStore", "SQLiteStore"]
