"""What a commit did, its effect on what is stored as JSON, and how those are told who want to know.

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
from typing import Any, Literal, NamedTuple, TypeAlias, cast  # Any: a JSON value

from pydantic_core import from_json

from jianmu.engine.state.core import Check, Core, any_part
from jianmu.engine.state.folding import Keys, Others, as_list, attempt, common
from jianmu.engine.state.freeze import Refused, same
from jianmu.engine.state.markers import MISSING, Items, Value
from jianmu.engine.state.readonly import Growing, shown
from jianmu.engine.state.schema import Schema, StateField
from jianmu.errors import SchemaError

Json: TypeAlias = Any
_log = logging.getLogger("jianmu")
_NO_JSON = ("is-instance", "is-subclass", "callable", "complex", "arguments", "generator")
_NO_KEY = ("tuple", "list", "dict", "set", "frozenset", "model", "dataclass", "typed-dict")


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


def json_of(field: StateField, value: Value) -> Json:
    """Return a field's value as JSON, by its own serializer."""
    return from_json(attempt("it has no JSON form: its serializer", field.text, shown(value)))


def _proven(field: StateField, value: Value, check: Check, others: Others) -> Json:
    """Return a value of a field, or a part of one, as JSON, after the proof that `check` reads it back as it was."""
    value = shown(value)
    try:
        text = attempt("its serializer", field.text, value)
        found = attempt("a validator", check.of_json, text, others)
        kept = attempt("the reader", from_json, b"[%b]" % text)[0]  # it is read as a part of something
    except Refused as error:
        error.why = f"it would not be read back from JSON: {error.why}"
        raise
    if not same(value, found):
        raise Refused("it would be read back different from what was written")
    return kept


def delta(name: str, field: StateField, old: Value, new: Value, others: Others, *, is_checked: bool) -> Delta:
    """Return the effect of a write of one field; if it is checked, what was written proves that it can be read back."""

    def json(value: Value, check: Check) -> Json:
        return _proven(field, value, check, others) if is_checked else json_of(field, value)

    if new is MISSING:
        return Delta(name, "drop")
    if is_checked and field.has_functions:
        json(new, field.full)
    if field.has_own_form:
        return Delta(name, "set", json(new, field.full))
    if field.kind == "list" and isinstance(new, list | Growing):
        start, deleted, items = _splice(old, new)
        return Delta(name, "splice", [start, deleted, json(items, field.items) if items else []])
    if field.kind == "dict" and isinstance(new, dict) and isinstance(old, dict):
        before, after = cast("Keys", old), cast("Keys", new)
        if _keeps_order(before, after):
            fresh = {key: item for key, item in after.items() if key not in before or before[key] is not item}
            return Delta(name, "keys", [json(fresh, field.items), [key for key in before if key not in after]])
    if isinstance(new, str) and isinstance(old, str) and old and len(new) > len(old) and new.startswith(old):
        return Delta(name, "append", json(new[len(old) :], field.items))
    return Delta(name, "set", json(new, field.full))


def _splice(old: Value, new: Value) -> tuple[int, int, Items]:
    """Return where a list was changed, how many items are gone there, and what came."""
    if type(old) is Growing and type(new) is Growing and old.buffer is new.buffer:
        return old.size, 0, new.buffer[old.size : new.size]
    before, after = as_list(shown(old)), as_list(shown(new))
    start, kept = common(before, after)
    return start, len(before) - start - kept, after[start : len(after) - kept]


def _keeps_order(old: Keys, new: Keys) -> bool:
    """Whether all keys are texts, and those that stay are first and in their places."""
    kept = [key for key in old if key in new]
    return all(type(key) is str for key in (*old, *new)) and list(new)[: len(kept)] == kept


def refuse_formless(schema: Schema) -> None:
    """Refuse fields whose type can be told to have no JSON form.

    Raises:
        SchemaError: with the field and the line to write.
    """
    for name, field in schema.fields.items():
        if field.is_stored and any_part(field.core, _has_no_form, _has_form):
            raise SchemaError(
                f"{schema.model.__name__}.{name} is {field.type_text}, which has no JSON form to be stored in: "
                f"give the type a serializer and a validator, or mark the field Transient()"
            )


def _has_form(schema: Core) -> bool:
    """Whether a part says itself what it is in JSON, whatever is inside."""
    return "serialization" in schema or schema["type"] == "json-or-python"


def _has_no_form(schema: Core) -> bool:
    keys = cast("Core | None", schema.get("keys_schema"))
    return schema["type"] in _NO_JSON or (keys is not None and keys.get("type") in _NO_KEY)
