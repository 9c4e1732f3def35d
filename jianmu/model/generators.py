"""Async generators that a library begins and leaves behind: they are closed here, in the task that used them.

An event loop closes a generator that nobody has read to its end some time later in a task of its own (asyncio), or
warns and gives it up (trio). Here those that are begun in a call belong to an `Owner`, which closes them at once.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import suppress
from typing import Any, Generic, TypeVar  # Any: what a coroutine yields to its event loop, and what it gets
from weakref import WeakSet

T = TypeVar("T")


class Owner:
    """Owns the async generators that are begun in its calls."""

    def __init__(self) -> None:
        self._begun: WeakSet[AsyncGenerator[object, Any]] = WeakSet()
        self._dropped: list[AsyncGenerator[object, Any]] = []

    def call(self, coroutine: Coroutine[Any, Any, T]) -> Call[T]:
        """Return what is to be awaited instead of a coroutine."""
        return Call(coroutine, self._begun.add, self._dropped.append)

    async def close(self) -> None:
        """Close the generators that are left; what they raise was told before, or is about being closed."""
        for generator in [*self._begun, *self._dropped]:
            with suppress(Exception):
                await generator.aclose()
        self._dropped.clear()


class Call(Generic[T]):
    """Runs a coroutine; whenever it is its turn, new generators are told to an owner and not to the event loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], begun: Any, dropped: Any) -> None:
        self._coroutine = coroutine
        self._begun = begun
        self._dropped = dropped

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass all that is yielded and sent on."""
        given: Any = None
        error: BaseException | None = None
        while True:
            hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(self._begun, self._dropped)
            try:
                asked = self._coroutine.send(given) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                sys.set_asyncgen_hooks(*hooks)
            given, error = None, None
            try:
                given = yield asked
            except BaseException as thrown:  # noqa: BLE001  # it is the coroutine's, not ours
                error = thrown
