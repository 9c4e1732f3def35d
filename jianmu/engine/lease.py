"""A lease that is kept while a loop turns: renewed from a thread of its own, since a busy loop would come too late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jianmu.engine.checkpoint import Checkpointer, Lease
from jianmu.engine.log import log

SECONDS = 30.0
"""How long a lease lasts unless it is renewed."""

EVERY = 10.0
"""Seconds between two renewals."""


class Keeper:
    """Renews a lease every ten seconds, until it is stopped, the lease is lost, or the loop has stood still.

    Args:
        store: gave the lease.
        lease: the lease.
        max_block: seconds without a `beat` after which it is no longer renewed.
        lost: called once, in the keeper's thread, when the lease is another holder's.
    """

    def __init__(self, store: Checkpointer, lease: Lease, max_block: float, lost: Callable[[], None]) -> None:
        self._store = store
        self._lease = lease
        self._max_block = max_block
        self._lost = lost
        self._is_over = threading.Event()
        self._beaten = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name=f"jianmu lease {lease.fence}", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Tell that the loop turns."""
        self._beaten = time.monotonic()

    def stop(self) -> None:
        """Renew no more; a renewal that has begun is not waited for."""
        self._is_over.set()

    def _keep(self) -> None:
        while not self._is_over.wait(EVERY):
            if time.monotonic() - self._beaten > self._max_block:
                log.warning("a lease is not renewed: the event loop stands still", thread=self._lease.thread_id)
                return
            try:
                is_kept = self._store.renew(self._lease, SECONDS)
            except Exception as error:  # noqa: BLE001  # the store may be back before the lease has run out
                log.warning("a lease was not renewed", thread=self._lease.thread_id, error=type(error).__name__)
                continue
            if not is_kept:
                self._lost()
                return
