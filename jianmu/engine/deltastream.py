"""The deltas of one state, collected as text inside the commits that make them."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar  # Any: any schema

from pydantic_core import to_json

from jianmu.engine.answers import JsonObject
from jianmu.engine.state import StateChange, StateManager

T = TypeVar("T")


class StateStream:
    """The deltas of one state, as text, in the order of their commits.

    Attributes:
        size: about how many bytes wait to be written.
        told: the version that was written last.
    """

    def __init__(self, manager: StateManager[Any]) -> None:
        self.manager = manager
        self.size = 0
        self.told = -1
        self._loads = -1
        self._deltas = deque[tuple[int, str]]()
        manager.attach_store_check()
        record_weakly(manager, self, StateStream._record)

    @property
    def is_whole(self) -> bool:
        """Whether the whole state is to be written: it is new, or was loaded by somebody else, of which no delta is."""
        return self._loads != self.manager.loads

    def was_written(self, version: int) -> None:
        """Note that all up to a version is written."""
        self.told, self._loads = version, self.manager.loads

    def _record(self, change: StateChange) -> None:
        """Note a commit; called inside of it."""
        if change.deltas:
            text = to_json(change.deltas).decode()[1:-1]
            self._deltas.append((change.version, text))
            self.size += len(text)

    def take(self) -> tuple[int, str]:
        """Return the version up to which deltas are taken, and these as the inside of a JSON list."""
        version = self.manager.settled_version()
        return version, self._take(version)

    def take_whole(self) -> tuple[int, JsonObject, str]:
        """Return a version, the whole state, and the deltas up to it that were not taken yet."""
        state = self.manager.dump_checkpoint()
        return state["version"], state, self._take(state["version"])

    def _take(self, version: int) -> str:
        texts: list[str] = []
        while self._deltas and self._deltas[0][0] <= version:
            texts.append(self._deltas.popleft()[1])
        text = ",".join(texts)
        self.size = max(0, self.size - len(text))
        return text

    def mark(self) -> Callable[[], None]:
        """Return what forgets the deltas from here on: their commits were taken back."""
        count = len(self._deltas)

        def back() -> None:
            while len(self._deltas) > count:
                self.size -= len(self._deltas.pop()[1])

        return back

    def clear(self, is_whole: bool) -> None:
        """Forget all: the state was replaced by what is in the log, or by one that is to be written whole."""
        self._deltas.clear()
        self.size, self._loads = 0, -1 if is_whole else self.manager.loads


def record_weakly(manager: StateManager[Any], owner: T, method: Callable[[T, StateChange], None]) -> None:
    """Have a method of an object told each commit as long as the object is there; the state may outlive it."""
    found = weakref.ref(owner)

    def record(change: StateChange) -> None:
        alive = found()
        if alive is not None:
            method(alive, change)

    manager.recorders = (*manager.recorders, record)
    weakref.finalize(owner, _take_out, manager, record)


def _take_out(manager: StateManager[Any], record: Callable[[StateChange], None]) -> None:
    """Record a state no more: nobody takes its deltas."""
    manager.recorders = tuple(each for each in manager.recorders if each is not record)
