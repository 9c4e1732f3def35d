"""Where threads are kept."""

from __future__ import annotations

from jianmu.stores.base import Store
from jianmu.stores.inbox import Inbox
from jianmu.stores.memory import MemoryStore
from jianmu.stores.postgres import PostgresStore
from jianmu.stores.sql import SQLStore
from jianmu.stores.sqlite import SQLiteStore
from jianmu.stores.tables import Dialect, Texts

__all__ = ["Dialect", "Inbox", "MemoryStore", "PostgresStore", "SQLStore", "SQLiteStore", "Store", "Texts"]
