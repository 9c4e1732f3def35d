"""Stands for a payment service: another program, which a kill of this one does not touch."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.to_thread

LATENCY = 0.12


class Gateway:
    """Pays once for each idempotency key, however often it is asked; it takes a while, and refuses closed accounts.

    Args:
        ledger: the file of what was paid, one JSON object a line.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    async def pay(self, key: str, id: str, account: str) -> bool:
        """Return whether a refund was paid, now or before."""
        await anyio.sleep(LATENCY)
        if account != "open":
            return False
        await anyio.to_thread.run_sync(self._enter, key, id)
        return True

    def _enter(self, key: str, id: str) -> None:
        line = json.dumps({"key": key, "paid": id})
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        with self._ledger.open("a+", encoding="utf-8") as ledger:
            ledger.seek(0)
            if line not in ledger.read().splitlines():
                ledger.write(f"{line}\n")
