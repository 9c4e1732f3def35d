"""What a commit did, its effect on what is stored, and how those are told who want to know.

1. Changes are queued inside the commit, so they are told in its order.
2. One thread at a time tells; a change that comes meanwhile is told by that thread, and its writer does not wait.
3. A listener runs outside all locks and may write, subscribe and unsubscribe.
4. Deltas are effects, never calls: folding them loads a state without calling a reducer.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias  # Any: a JSON value

Json: TypeAlias = Any
_log = logging.getLogger("jianmu")


class Delta(NamedTuple):
    """One effect on one field.

    Attributes:
        field: the full name; empty for "spent".
        deed: "set" (data: the value), "splice" (data: [start, deleted, items]), "keys" (data: [set, deleted]),
            "append" (data: the text at the end), "drop" (an extra value is gone), "spent" (data: the fields that
            a step has returned).
        data: as the deed has it.
    """

    field: str
    deed: Literal["set", "splice", "keys", "append", "drop", "spent"]
    data: Json = None

    def to_json(self) -> list[Json]:
        """Return the delta as a JSON list."""
        return list(self)

    @classmethod
    def from_json(cls, data: list[Json]) -> Delta:
        """Return the delta that `to_json` made the list of."""
        return cls(*data)


class StateChange(NamedTuple):
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
    deltas: tuple[Delta, ...] = ()

    def __repr__(self) -> str:  # without the values that deltas hold
        return f"StateChange({self.version}, {self.fields}, changed={self.changed}, writer={self.writer!r})"

    @property
    def wakes(self) -> bool:
        """Whether a run should look: a value differs, or it is a signal."""
        return bool(self.changed) or not self.fields

    @property
    def is_runtime(self) -> bool:
        """Whether the commit is the runtime's own: of what it shows of questions and effects."""
        return bool(self.fields) and self.fields[0].startswith(("interaction.", "journal."))


Listener: TypeAlias = Callable[[StateChange], object]


def fold(checkpoint: Mapping[str, Json], deltas: Iterable[Delta], version: int | None = None) -> dict[str, Json]:
    """Return the checkpoint as it is after some deltas; the one given is left as it is.

    Args:
        checkpoint: what `dump_checkpoint` returned.
        deltas: in the order of their commits.
        version: the version after them, where it is known.
    """
    values: dict[str, Json] = dict(checkpoint["fields"])
    spent: list[str] = list(checkpoint.get("spent", ()))
    own: set[str] = set()  # the fields whose list or dict was copied, and may be changed in place
    for delta in deltas:
        if delta.deed == "spent":
            spent = list(delta.data)
        else:
            spent = [name for name in spent if name != delta.field]
            _apply(values, delta, own)
    version = checkpoint["version"] if version is None else version
    return {**checkpoint, "fields": values, "spent": spent, "version": version}


def _apply(values: dict[str, Json], delta: Delta, own: set[str]) -> None:
    name, deed, data = delta
    if deed in ("splice", "keys") and name not in own:
        own.add(name)
        values[name] = (list if deed == "splice" else dict)(values.get(name) or ())
    match deed:
        case "splice":
            start, deleted, items = data
            values[name][start : start + deleted] = items
        case "keys":
            values[name].update(data[0])
            for key in data[1]:
                values[name].pop(key, None)
        case "append":
            values[name] = (values.get(name) or "") + data
        case "drop":
            values.pop(name, None)
        case _:
            values[name] = data
            own.discard(name)


class Listeners:
    """Those who are told of changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._listeners: dict[object, Listener] = {}
        self._waiting: deque[StateChange] = deque()
        self.queue = self._waiting.append

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the same one added twice is told twice. Returns what takes it out."""
        key = object()
        with self._lock:
            self._listeners = {**self._listeners, key: listener}

        def remove() -> None:
            with self._lock:
                self._listeners = {each: told for each, told in self._listeners.items() if each is not key}

        return remove

    def tell(self) -> None:
        """Tell what is queued, unless another thread, or this one further up, is telling already."""
        while self._waiting and self._telling.acquire(blocking=False):
            try:
                self._tell_next()
            finally:
                self._telling.release()

    def _tell_next(self) -> None:
        if not self._waiting:  # another thread has told it meanwhile
            return
        change = self._waiting.popleft()
        for listener in self._listeners.values():
            try:
                listener(change)
            except Exception:  # noqa: BLE001  # whatever a listener raises
                names = ", ".join(change.fields)
                _log.exception("a state listener failed at version %s, fields %s", change.version, names)
