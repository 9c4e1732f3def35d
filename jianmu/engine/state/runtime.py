"""What the runtime needs of a state manager, and a user of it hardly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import cast

from jianmu.engine.state.change import refuse_formless
from jianmu.engine.state.freeze import freeze
from jianmu.engine.state.markers import Scope, Value
from jianmu.engine.state.readonly import NO_HINT
from jianmu.engine.state.schema import RUNTIME, StateField
from jianmu.engine.state.write import S, Writes
from jianmu.errors import InputError, NamespaceError, UnsetStateError

WRITER: ContextVar[str | None] = ContextVar("jianmu_writer", default=None)


class RuntimeSide(Writes[S]):
    """The part of a manager that the runtime uses."""

    def __init__(self, schema: type[S]) -> None:
        super().__init__(schema)
        self._shown: dict[str, Callable[[], Mapping[str, Value]]] = {}

    def attach_store_check(self, is_on: bool = True) -> None:
        """Have every value written prove that it can be read back from JSON, and every change carry its deltas.

        Raises:
            SchemaError: the type of a stored field has no JSON form.
        """
        if is_on:
            refuse_formless(self.schema)
        self._is_checked = self.wants_deltas = is_on

    def settled_version(self) -> int:
        """Return the number of the last commit that was told to the recorders."""
        with self._lock:
            return self.version

    def has_reducer(self, name: str) -> bool:
        """Whether an update of this field is folded."""
        return name in self.schema.folded

    @property
    def lasting_fields(self) -> tuple[str, ...]:
        """The fields that outlive a step: all but step, call and runtime fields."""
        return tuple(self._scoped((None, "run")))

    def last_change(self, name: str) -> tuple[int, str | None]:
        """Return the commit that last changed a value, by full name, and its writer; after a load that of the load."""
        return self._changes.get(name, (self._loaded, None))

    def check_input(self, values: Mapping[str, Value]) -> None:
        """Refuse an input that names what is not a caller's.

        Raises:
            InputError: with the field's name.
        """
        if not isinstance(cast("object", values), Mapping) or not all(
            isinstance(key, str) for key in cast("list[object]", [*values])
        ):
            raise InputError("input is a dict of fields by name", path="input")
        for key in values:
            name = self.schema.aliases.get(key, key)
            if name in self.schema.fields and name not in self.schema.input_fields:
                raise InputError(f"field '{name}' is internal: it cannot be given as input", field=name, path="input")
            if "." in key:
                text = f"the key '{key}' has a dot: input gives fields, not namespaces"
                raise InputError(text, field=key, path="input")

    def runtime_read(self, namespace: str) -> dict[str, Value]:
        """Return what one of the runtime's own namespaces holds, by key."""
        if namespace not in RUNTIME:
            raise NamespaceError(f"'{namespace}' is not a namespace of the runtime")
        show = self._shown.get(namespace)
        return {} if show is None else {key: freeze(value, NO_HINT) for key, value in show().items()}

    def runtime_show(self, namespace: str, names: tuple[str, ...], show: Callable[[], Mapping[str, Value]]) -> None:
        """Have one of the runtime's own namespaces made anew when it is read: a commit of these full names."""
        with self._lock:
            self._shown[namespace] = show
            self._note(names, names, WRITER.get())
        self._listeners.tell()

    def _scoped(self, scopes: tuple[Scope | None, ...]) -> dict[str, StateField]:
        """Return the fields of some scopes, and their variants that are there, by full name."""
        fields, extra = self.schema.fields, self._record.extra
        if extra:
            fields = {**fields, **{name: field for name in extra if (field := self.schema.field_of(name))}}
        return {name: field for name, field in fields.items() if field.policy.scope in scopes}

    def _unset(self) -> UnsetStateError:
        missing = [name for name in self.schema.required if name not in self._record.values]
        model = self.schema.model.__name__
        if not missing:
            return UnsetStateError(f"{model} refuses its own defaults: give the state values, initialize({{...}})")
        lines = ", ".join(f'"{name}": ...' for name in missing)
        text = f"{model} has no value yet for {', '.join(missing)}: give them in the input, or initialize({{{lines}}})"
        return UnsetStateError(text, field=missing[0])
