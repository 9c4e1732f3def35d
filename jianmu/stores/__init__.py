"""Where threads are kept."""

from __future__ import annotations

from jianmu.stores.base import Store
from jianmu.stores.inbox import Inbox
from jianmu.stores.memory import MemoryStore
from jianmu.stores.postgres import PostgresStore
from jianmu.stores.sqlite import SQLiteStore

__all__ = ["Inbox", "MemoryStore", "PostgresStore", "SQLiteStore", "Store"]
