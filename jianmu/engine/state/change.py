"""What a commit did, and how those are told who want to know.

1. Changes are queued inside the commit, so they are told in its order.
2. One thread at a time tells; a change that comes meanwhile is told by that thread, and its writer does not wait.
3. A listener runs outside all locks and may write, subscribe and unsubscribe.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from jianmu.engine.state.delta import Delta

_log = logging.getLogger("jianmu")


@dataclass(frozen=True, slots=True)
class StateChange:
    """One commit, as listeners see it.

    Attributes:
        version: the number of the commit.
        fields: the full names of the fields written; empty for a bare signal.
        changed: those of them whose value differs; scalars are compared, other values count as changed.
        writer: the path of the writer, or None where it is not known.
        deltas: the effect on what is stored; empty unless the manager wants deltas.
    """

    version: int
    fields: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    writer: str | None = None
    deltas: tuple[Delta, ...] = field(default=(), repr=False)

    @property
    def wakes(self) -> bool:
        """Whether a run should look: a value differs, or it is a signal."""
        return bool(self.changed) or not self.fields

    @property
    def is_runtime(self) -> bool:
        """Whether the commit is the runtime's own: of what it shows of questions and effects."""
        return bool(self.fields) and self.fields[0].startswith(("interaction.", "journal."))


class Listeners:
    """Those who are told of changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[StateChange], object], ...] = ()
        self._waiting: deque[StateChange] = deque()
        self._is_telling = False

    def add(self, listener: Callable[[StateChange], object]) -> Callable[[], None]:
        """Add a listener; the same one added twice is told twice. Returns what takes it out."""
        entry = _Entry(listener)
        with self._lock:
            self._listeners = (*self._listeners, entry)

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not entry)

        return remove

    def queue(self, change: StateChange) -> None:
        """Queue a change; called inside the commit."""
        self._waiting.append(change)

    def tell(self) -> None:
        """Tell what is queued, unless another thread, or this one further up, is telling already."""
        while self._waiting:
            with self._lock:
                if self._is_telling or not self._waiting:
                    return
                self._is_telling = True
                change, listeners = self._waiting.popleft(), self._listeners
            try:
                for listener in listeners:
                    _call(listener, change)
            finally:
                with self._lock:
                    self._is_telling = False


class _Entry:
    """One subscription; equal to no other."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Callable[[StateChange], object]) -> None:
        self._listener = listener

    def __call__(self, change: StateChange) -> None:
        self._listener(change)


def _call(listener: Callable[[StateChange], object], change: StateChange) -> None:
    try:
        listener(change)
    except Exception:  # noqa: BLE001  # whatever a listener raises
        _log.exception("a state listener failed at version %s, fields %s", change.version, ", ".join(change.fields))
