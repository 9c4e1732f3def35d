"""What the runtime needs of a state manager, and a user of it hardly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Generic, TypeVar, cast

from pydantic import BaseModel

from jianmu.engine.state.change import StateChange
from jianmu.engine.state.freeze import freeze
from jianmu.engine.state.guard import snapshot_class
from jianmu.engine.state.markers import MISSING, Value
from jianmu.engine.state.namespaces import RUNTIME, variant_of
from jianmu.engine.state.readonly import NO_HINT
from jianmu.engine.state.schema import Schema
from jianmu.engine.state.stored import Deltas, differs, refuse_formless
from jianmu.engine.state.write import Writes
from jianmu.errors import InputError, NamespaceError, UnsetStateError

S = TypeVar("S", bound=BaseModel)
WRITER: ContextVar[str | None] = ContextVar("jianmu_writer", default=None)


class RuntimeSide(Generic[S]):
    """The part of a manager that the runtime uses.

    Attributes:
        schema: the facts of the schema.
        is_running: set by the runner while a run is on; `initialize` is refused then.
    """

    def __init__(self, schema: type[S]) -> None:
        self.schema = Schema(schema)
        self.is_running = False
        self._writes = Writes(self.schema)
        self._view: type[BaseModel] = snapshot_class(schema, tuple(n for n, f in self.schema.fields.items() if f.grows))
        self._runtime: dict[str, dict[str, Value]] = {}

    @property
    def version(self) -> int:
        """The number of commits so far."""
        return self._writes.version

    @property
    def recorder(self) -> Callable[[StateChange], None] | None:
        """What is called with each change inside its commit, under the manager's lock; no user code may run there."""
        return self._writes.recorder

    @recorder.setter
    def recorder(self, recorder: Callable[[StateChange], None] | None) -> None:
        self._writes.recorder = recorder

    @property
    def wants_deltas(self) -> bool:
        """Whether changes carry their deltas."""
        return self._writes.deltas is not None

    @wants_deltas.setter
    def wants_deltas(self, wanted: bool) -> None:
        if wanted is not self.wants_deltas:
            self._writes.deltas = Deltas(is_checked=False) if wanted else None

    def attach_store_check(self, is_on: bool = True) -> None:
        """Have every value written prove that it can be read back from JSON, and every change carry its deltas.

        Raises:
            SchemaError: the type of a stored field has no JSON form.
        """
        if is_on:
            refuse_formless(self.schema)
        self._writes.deltas = Deltas(is_checked=True) if is_on else None

    def has_reducer(self, name: str) -> bool:
        """Whether an update of this field is folded."""
        field = self.schema.fields.get(name)
        return field is not None and field.reducer is not None

    @property
    def lasting_fields(self) -> tuple[str, ...]:
        """The fields that outlive a step: all but step, call and runtime fields."""
        fields = [name for name, field in self.schema.fields.items() if field.policy.scope not in ("step", "call")]
        variants = {name: variant_of(self.schema, name) for name in self._writes.record.extra}
        lasting = [name for name, field in variants.items() if field is None or field.policy.scope == "run"]
        return (*fields, *lasting)

    def last_change(self, name: str) -> tuple[int, str | None]:
        """Return the commit that last changed a value, by full name, and its writer; after a load that of the load."""
        return self._writes.changes.get(name, (self._writes.loaded, None))

    def changes_since(self, version: int) -> dict[str, tuple[int, str | None]]:
        """Return the last change of each value that was changed after a version."""
        with self._writes.lock:
            return {name: change for name, change in self._writes.changes.items() if change[0] > version}

    def check_input(self, values: Mapping[str, Value]) -> None:
        """Refuse an input that names what is not a caller's.

        Raises:
            InputError: with the field's name.
        """
        if not isinstance(cast("object", values), Mapping) or not all(isinstance(key, str) for key in values):
            raise InputError("input is a dict of fields by name", path="input")
        for key in values:
            name = self.schema.aliases.get(key, key)
            field = self.schema.fields.get(name)
            if field is not None and not field.policy.in_input:
                raise InputError(f"field '{name}' is internal: it cannot be given as input", field=name, path="input")
            if "." in key:
                raise InputError(
                    f"the key '{key}' has a dot: input gives fields, not namespaces", field=key, path="input"
                )

    def runtime_update(self, namespace: str, updates: Mapping[str, Value]) -> None:
        """Write keys of one of the runtime's own namespaces: one commit, of which no delta is made."""
        held = self._held(namespace)
        frozen = {key: freeze(value, NO_HINT) for key, value in updates.items()}
        with self._writes.lock:
            changed = tuple(f"{namespace}.{key}" for key, new in frozen.items() if differs(held.get(key, MISSING), new))
            self._runtime[namespace] = {**self._runtime.get(namespace, {}), **frozen}
            self._writes.note(tuple(f"{namespace}.{key}" for key in frozen), changed, WRITER.get(), ())
        self._writes.listeners.tell()

    def runtime_read(self, namespace: str) -> dict[str, Value]:
        """Return what one of the runtime's own namespaces holds, by key."""
        return dict(self._held(namespace))

    def runtime_clear(self, namespace: str) -> None:
        """Remove all that one of the runtime's own namespaces holds."""
        self._held(namespace)
        with self._writes.lock:
            gone = tuple(f"{namespace}.{key}" for key in self._runtime.pop(namespace, {}))
            if gone:
                self._writes.note(gone, gone, WRITER.get(), ())
        self._writes.listeners.tell()

    def _held(self, namespace: str) -> dict[str, Value]:
        if namespace not in RUNTIME:
            raise NamespaceError(f"'{namespace}' is not a namespace of the runtime")
        return self._runtime.get(namespace, {})

    def _unset(self) -> UnsetStateError:
        missing = self._writes.missing
        model = self.schema.model.__name__
        if not missing:
            return UnsetStateError(f"{model} refuses its own defaults: give the state values, initialize({{...}})")
        lines = ", ".join(f'"{name}": ...' for name in missing)
        text = f"{model} has no value yet for {', '.join(missing)}: give them in the input, or initialize({{{lines}}})"
        return UnsetStateError(text, field=missing[0])
