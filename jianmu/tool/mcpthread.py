"""An event loop in a thread of its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import anyio
from anyio.from_thread import BlockingPortal


class LoopThread:
    """A thread with an event loop; it ends with `stop`, or with the process, which it does not hold up.

    anyio's `start_blocking_portal` would hold it up: it waits at the exit for a loop that nobody has stopped.
    """

    def __init__(self, name: str) -> None:
        self._begun: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> BlockingPortal:
        """Start the thread and return the way to its loop; waits."""
        self._thread.start()
        return self._begun.result()

    def stop(self) -> None:
        """End the loop when its tasks have ended; waits."""
        portal = self._begun.result()
        portal.call(portal.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            anyio.run(self._hold)
        except BaseException as error:
            if self._begun.done():
                raise
            self._begun.set_exception(error)

    async def _hold(self) -> None:
        async with BlockingPortal() as portal:
            self._begun.set_result(portal)
            await portal.sleep_until_stopped()
