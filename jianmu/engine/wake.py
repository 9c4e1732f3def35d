"""The bell of a run: set now, from any thread, heard later by the one that waits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import current_token


def call_soon(token: Any, function: Callable[[], object]) -> None:  # Any: the loop object of asyncio or trio
    """Have `function` called by the event loop of `token`, without waiting for it.

    anyio can only call into a loop and wait for the result, which would block the writer's thread. A
    loop that has ended meanwhile has nobody to tell.
    """
    soon = getattr(token, "call_soon_threadsafe", None) or token.run_sync_soon
    with contextlib.suppress(RuntimeError):
        soon(function)


class Wake:
    """A flag that many may set and one waits for; setting it while nobody waits is not lost."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_set = False
        self._event: anyio.Event | None = None
        self._token: Any = None  # Any: the loop object of asyncio or trio
        self._thread = 0
        self._new_event = anyio.Event

    @property
    def is_set(self) -> bool:
        """Whether it was set since it was last taken."""
        return self._is_set

    def set(self) -> None:
        """Set the flag and rouse the waiter; safe from every thread, also when no loop runs any more."""
        if self._is_set and self._event is None:
            return
        with self._lock:
            self._is_set, event = True, self._event
            if event is None:
                return
            if threading.get_ident() == self._thread:
                event.set()
            else:
                call_soon(self._token, event.set)
            self._event = None  # only now: after a Ctrl-C in between the next one sets it

    def set_from_anywhere(self) -> None:
        """Set the flag, also from a handler of a signal, which may come while the loop sleeps or this lock is held."""
        self.set()
        if self._token is not None:
            call_soon(self._token, self.set)

    def take(self) -> bool:
        """Return whether the flag was set, and clear it."""
        if not self._is_set:
            return False
        with self._lock:
            was, self._is_set = self._is_set, False
        return was

    def attach(self) -> None:
        """Make this event loop the one that waits."""
        self._thread, token = threading.get_ident(), current_token().native_token
        if token is not self._token:
            self._token = token
            self._new_event = type(anyio.Event())  # the loop's own class: anyio looks it up anew for each event

    def armed(self) -> anyio.Event:
        """Return an event that the next `set()` sets, or that is set if the flag is; `attach` comes first."""
        event = self._new_event()
        with self._lock:
            if self._is_set:
                event.set()
                return event
            self._event = event
            if self._is_set:  # by a handler of a signal, just now
                event.set()
        return event
