"""Leases that are kept while a loop turns: renewed from a thread of its own, since a busy loop would come too late.

1. One thread keeps all leases of a store: to start one for each would cost more than to take the lease.
2. It ends soon after the last of them. A forked process keeps no lease of its parent's.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from jianmu.engine.checkpoint import Checkpointer, Lease
from jianmu.engine.log import log

SECONDS = 30.0
"""How long a lease lasts unless it is renewed."""

EVERY = 10.0
"""Seconds between two renewals."""

IDLE = 1.0
"""Seconds after which a thread that keeps no lease ends."""


class Keeper:
    """Renews a lease every ten seconds, until it is stopped, the lease is lost, or the loop has stood still.

    Args:
        store: gave the lease.
        lease: the lease.
        max_block: seconds without a `beat` after which it is no longer renewed.
        lost: called once, in the store's thread, when the lease is another holder's.
    """

    def __init__(self, store: Checkpointer, lease: Lease, max_block: float, lost: Callable[[], None]) -> None:
        self._store = store
        self._lease = lease
        self._max_block = max_block
        self._lost = lost
        self._is_over = False
        self.beat()
        _rounds.add(id(store), self)

    def beat(self) -> None:
        """Tell that the loop turns."""
        self._beaten = time.monotonic()

    def stop(self) -> None:
        """Renew no more; a renewal that has begun is not waited for."""
        self._is_over = True
        _rounds.drop(id(self._store), self)

    def renew(self) -> bool:
        """Renew the lease; whether it will be renewed again."""
        if self._is_over:
            return False
        if time.monotonic() - self._beaten > self._max_block:
            log.warning("a lease is not renewed: the event loop stands still", thread=self._lease.thread_id)
            return False
        try:
            is_kept = self._store.renew(self._lease, SECONDS)
        except Exception as error:  # noqa: BLE001  # the store may be back before the lease has run out
            log.warning("a lease was not renewed", thread=self._lease.thread_id, error=type(error).__name__)
            return True
        if not (is_kept or self._is_over):
            self._lost()
        return is_kept


class Rounds:
    """Goes round among the leases of each store."""

    def __init__(self) -> None:
        self._begin()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._keepers = dict[int, dict[Keeper, None]]()

    def add(self, store: int, keeper: Keeper) -> None:
        """Keep a lease too."""
        with self._lock:
            has_thread = store in self._keepers
            self._keepers.setdefault(store, {})[keeper] = None
        if not has_thread:
            threading.Thread(target=self._go, args=(store,), name="jianmu leases", daemon=True).start()

    def drop(self, store: int, keeper: Keeper) -> None:
        """Keep a lease no more."""
        with self._lock:
            self._keepers.get(store, {}).pop(keeper, None)

    def _go(self, store: int) -> None:
        due = time.monotonic() + EVERY
        while (keepers := self._left(store)) is not None:
            if time.monotonic() >= due:
                due += EVERY
                for keeper in [keeper for keeper in keepers if not keeper.renew()]:
                    self.drop(store, keeper)

    def _left(self, store: int) -> list[Keeper] | None:
        """Wait a moment; return what is to be kept then, or None if it is nothing, and the thread has to end."""
        time.sleep(min(IDLE, EVERY))
        with self._lock:
            if self._keepers[store]:
                return [*self._keepers[store]]
            del self._keepers[store]
            return None


_rounds = Rounds()
