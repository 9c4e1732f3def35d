"""Where threads are kept."""

from __future__ import annotations

from jianmu.stores.memory import MemoryStore

__all__ = ["MemoryStore"]
