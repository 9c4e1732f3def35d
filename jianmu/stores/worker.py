"""A thread that does a store's work, for tasks on any event loop.

1. One piece of work at a time, in the order in which they came; of one event loop one at a time is handed over.
2. It begins with the first piece, and ends when none has come for a while. A forked process begins its own.
3. What waits for its turn can be cancelled; what was handed over is done, and its caller waits for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from math import inf
from typing import Any, Generic, TypeVar  # Any: the loop object of asyncio or trio
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from jianmu.engine.wake import call_soon

T = TypeVar("T")

IDLE = 5.0
"""Seconds after which a thread that has nothing to do ends."""


class Piece(Generic[T]):
    """A piece of work and what came of it.

    Args:
        work: what is to be done.
        token: the event loop whose task waits.
        done: set when it is done.
    """

    __slots__ = ("_error", "_token", "_work", "done", "result")

    result: T

    def __init__(self, work: Callable[[], T], token: Any, done: anyio.Event) -> None:
        self._work = work
        self._token = token
        self.done = done
        self._error: BaseException | None = None

    def do(self) -> None:
        """Do it, in the thread."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001  # it is the caller's
            self._error = error
        call_soon(self._token, self.done.set)

    def found(self) -> T:
        """Return its result, or raise what it has raised."""
        error, self._error = self._error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


class Worker:
    """Does pieces of work in a thread of its own."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin without a thread: this is a forked process, and what was handed over is its parent's."""
        self._lock = threading.Lock()
        self._pieces = queue.SimpleQueue[Piece[Any]]()
        self._is_on = False
        self._loops = WeakKeyDictionary[Any, tuple[anyio.Lock, type[anyio.Event]]]()

    async def do(self, work: Callable[[], T]) -> T:
        """Return what a function has returned in the thread."""
        await checkpoint_if_cancelled()
        token = current_token().native_token
        gate, new_event = self._loops.get(token) or self._meet(token)
        piece = Piece(work, token, new_event())
        del work
        await gate.acquire() if gate.locked() else gate.acquire_nowait()
        try:
            self._hand_over(piece)
            await piece.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await piece.done.wait()
            if anyio.current_effective_deadline() > -inf:  # the task itself was cancelled, which is told once
                raise
        finally:
            gate.release()
        return piece.found()

    def _meet(self, token: Any) -> tuple[anyio.Lock, type[anyio.Event]]:
        """Return what lets the calls of an event loop through one by one, and its own class of events."""
        return self._loops.setdefault(token, (anyio.Lock(fast_acquire=True), type(anyio.Event())))

    def _hand_over(self, piece: Piece[Any]) -> None:
        with self._lock:
            if not self._is_on:  # where none can be started, nothing was handed over
                threading.Thread(target=self._go, args=(self._pieces,), name="jianmu store", daemon=True).start()
                self._is_on = True
            self._pieces.put(piece)

    def _go(self, pieces: queue.SimpleQueue[Piece[Any]]) -> None:
        is_on = True
        while is_on:
            try:
                pieces.get(timeout=IDLE).do()  # no name keeps what it was about
            except queue.Empty:
                is_on = self._goes_on(pieces)

    def _goes_on(self, pieces: queue.SimpleQueue[Piece[Any]]) -> bool:
        """Whether something has come in the last moment; else the next piece begins another thread."""
        with self._lock:
            self._is_on = not pieces.empty()
            return self._is_on
