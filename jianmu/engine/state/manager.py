"""The state of an agent: one typed model, written by calls that validate, fold and commit.

1. A write takes the locks of its fields in sorted order; the manager's own lock is held for the commit only.
2. What the user wrote (reducers, functions, validators) runs under field locks, never under the manager's lock;
   a write from inside it is refused.
3. A commit replaces the record; readers take the record that is there and need no lock.
4. Errors hold no values. They are raised outside of handlers, so that nothing is chained to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel

from jianmu.engine.state.change import StateChange
from jianmu.engine.state.delta import Delta, Json
from jianmu.engine.state.folding import Others, merged, transformed, updated
from jianmu.engine.state.freeze import Unfit, freeze
from jianmu.engine.state.markers import MISSING, Scope, Value
from jianmu.engine.state.namespaces import RUNTIME, Target, check_namespace, target, variant_of
from jianmu.engine.state.record import Record
from jianmu.engine.state.refusal import Misfit, shown
from jianmu.engine.state.runtime import WRITER, RuntimeSide, S
from jianmu.engine.state.schema import StateField
from jianmu.engine.state.steps import Default, Folding, Step
from jianmu.engine.state.stored import stored
from jianmu.engine.state.whole import accepted, loaded_record, record_of, record_of_model
from jianmu.errors import StateError, StateWriteError, UnknownFieldError

_BELOW: dict[Scope, frozenset[Scope]] = {
    "run": frozenset({"run", "step", "call"}),
    "step": frozenset({"step"}),
    "call": frozenset({"call"}),
}


class StateManager(RuntimeSide[S]):
    """The state of an agent, of the type of its schema.

    Args:
        schema: the Pydantic model of the state.

    Raises:
        SchemaError: the schema cannot be used as it is written.
    """

    # Reading

    def get(self) -> S:
        """Return the newest snapshot: a read-only instance of the schema.

        Raises:
            UnsetStateError: required fields have no value yet.
        """
        if self._writes.is_unset:
            raise self._unset()
        return cast("S", self._writes.record.view(self._view))

    def read(self, field: str, *, namespace: str | None = None) -> Value:
        """Return one value.

        Raises:
            UnknownFieldError: there is no such field, or nothing under this key of the namespace.
            UnsetStateError: it has no value yet.
        """
        if namespace in RUNTIME:
            found = self._runtime.get(namespace or "", {}).get(field, MISSING)
        else:
            one = target(self.schema, field, namespace)
            found = self._writes.stored(one)
            if found is not MISSING:
                return self._writes.record.read(one.name, one.is_extra)
            if one.is_variant:
                return freeze(one.field.default({}), one.field.hint)
            if not one.is_extra:
                raise self._unset()
        if found is MISSING:
            place = f" in the namespace '{namespace}'" if namespace else ""
            raise UnknownFieldError(f"there is no '{field}'{place}", field=field)
        return found

    def read_namespace(self, namespace: str) -> dict[str, Value]:
        """Return what is kept in a namespace, by key."""
        if namespace in RUNTIME:
            return dict(self._runtime.get(namespace, {}))
        check_namespace(self.schema, namespace)
        start = f"{namespace}."
        extra = self._writes.record.extra
        return {name[len(start) :]: value for name, value in extra.items() if name.startswith(start)}

    def output(self) -> dict[str, Value]:
        """Return the fields that are not hidden from callers, and extra values of no namespace."""
        held = self._writes.record
        fields = {name: held.read(name, False) for name in self.schema.output_fields if name in held.values}
        return {**fields, **{name: value for name, value in held.extra.items() if "." not in name}}

    # Writing

    def update(self, updates: Mapping[str, Value], *, namespace: str | None = None, _writer: str | None = None) -> None:
        """Write fields: those with a reducer are folded, others replaced; all or none.

        Args:
            updates: by field name or alias. A value may be `Replace`, `Clear` or `Remove`. A snapshot of this
                manager changes nothing.
            namespace: where the keys are kept instead of the fields.

        Raises:
            StateWriteError: a value was refused.
            UnknownFieldError: a key is no field.
            NamespaceError: the namespace or a key cannot be used.
        """
        writer = _writer or WRITER.get()
        if isinstance(cast("object", updates), BaseModel):
            self._refuse_model(updates, writer)
            return
        if not isinstance(cast("object", updates), Mapping):
            raise StateWriteError(f"update takes a dict of fields, not {type(updates).__name__}", path=writer)
        steps = self._steps(updates, namespace, _fold_update, writer)
        if steps:
            self._writes.apply(steps, writer)

    def merge_dict(
        self,
        field: str,
        updates: Mapping[Value, Value] | None,
        *,
        namespace: str | None = None,
        _writer: str | None = None,
    ) -> None:
        """Write keys of a dict field and leave the others as they are; no reducer is called.

        `None` on either side counts as empty; an empty one changes nothing.

        Raises:
            StateWriteError: one side is no mapping, or a value was refused.
        """
        writer = _writer or WRITER.get()
        steps = self._steps({field: updates}, namespace, _fold_merge, writer)
        if updates is None or (isinstance(cast("object", updates), Mapping) and not updates):
            return
        self._writes.apply(steps, writer)

    def transform_field(
        self, key: str, fn: Callable[[Value], Value], *, namespace: str | None = None, _writer: str | None = None
    ) -> None:
        """Write `fn(current)`; nothing else can write the field in between.

        Args:
            key: the field.
            fn: plain and quick; it gets a read-only value and returns the new one.
            namespace: where the key is kept instead of the fields.

        Raises:
            StateWriteError: `fn` raised, or what it returned was refused.
        """
        writer = _writer or WRITER.get()
        self._writes.apply(self._steps({key: fn}, namespace, _fold_transform, writer), writer)

    def clear(self, namespace: str) -> None:
        """Remove all that is kept in a namespace."""
        check_namespace(self.schema, namespace)
        names = tuple(name for name in self._writes.record.extra if name.startswith(f"{namespace}."))
        if names:
            self._writes.drop(names, WRITER.get())

    def initialize(self, values: Mapping[str, Value] | BaseModel | None = None) -> None:
        """Replace the user's fields; no reducer is called, and fields not given get their defaults.

        Raises:
            StateWriteError: a value was refused, or a run is on.
        """
        writer = WRITER.get()
        if self.is_running:
            raise StateWriteError("initialize was refused, since a run is on: end the run first", path=writer)
        self._writes.install(lambda: self._whole(values), writer)

    # Scopes

    def reset_run_fields(self) -> None:
        """Set run, step and call fields and their variants back to their defaults, in one commit."""
        self._reset("run", lambda _: True)

    def reset_step_fields(self) -> None:
        """Set all step fields and their variants back to their defaults."""
        self._reset("step", lambda _: True)

    def reset_call_fields(self, namespace: str | None = None) -> None:
        """Set call fields back to their defaults: the plain ones, or one namespace's variants."""
        if namespace is not None:
            check_namespace(self.schema, namespace)
        self._reset("call", lambda name: name.rpartition(".")[0] == (namespace or ""))

    def get_step_fields(self) -> dict[str, Value]:
        """Return the step fields and their variants, by full name."""
        held = self._writes.record
        return {one.name: held.read(one.name, one.is_extra) for one in self._scoped(_BELOW["step"])}

    def take_step_fields(self) -> dict[str, Value]:
        """Return the step fields and mark them spent: they can still be read, and the next write starts anew."""
        writes = self._writes
        with writes.lock:
            taken = self.get_step_fields()
            writes.spent |= taken.keys()
            if writes.deltas is not None and writes.recorder is not None:
                writes.recorder(StateChange(writes.version, deltas=(Delta("", "spent", sorted(writes.spent)),)))
        return taken

    def enter_step(self) -> None:
        """Clear the step fields that are still spent; what was written since they were taken is spared."""
        spent = self._writes.spent
        if spent:
            self._reset("step", lambda name: name in spent)

    # Listening

    def subscribe(self, listener: Callable[[StateChange], object]) -> Callable[[], None]:
        """Have a listener called with each change, in the order of the commits; returns what ends it.

        A listener may write, subscribe and unsubscribe; what it raises is logged and reaches nobody.
        """
        return self._writes.listeners.add(listener)

    def signal(self) -> None:
        """Tell an empty change, which wakes the runner."""
        with self._writes.lock:
            self._writes.listeners.queue(StateChange(self.version, writer=WRITER.get()))
        self._writes.listeners.tell()

    # Storing

    def dump_checkpoint(self) -> dict[str, Json]:
        """Return the state as a JSON dict, without call fields, `Transient` fields and the runtime's namespaces.

        Raises:
            StateWriteError: a value has no JSON form.
        """
        writes = self._writes
        with writes.lock:
            record, version, spent = writes.record, writes.version, writes.spent
        problem = None
        try:
            return {"version": version, "fields": stored(self.schema, record), "spent": sorted(spent)}
        except Misfit as error:
            problem = error
        raise writes.refusal(problem, [], None)

    def load_checkpoint(self, data: Mapping[str, Json]) -> None:
        """Take the state from what `dump_checkpoint` returned; listeners are told, the version is the stored one.

        Raises:
            StateWriteError: a value does not fit today's schema; nothing was changed.
        """
        self._writes.install(lambda: self._from_json(data["fields"]), WRITER.get(), loaded=data)

    def bookmark(self) -> Callable[[], None]:
        """Return a function that puts the whole state back to what it is now."""
        writes = self._writes
        with writes.lock:
            record, marks = writes.record, {"version": writes.version, "spent": writes.spent}
        return lambda: writes.install(lambda: record, WRITER.get(), loaded=marks)

    # Inside

    def _whole(self, values: Mapping[str, Value] | BaseModel | None) -> Record:
        """Return the record of what `initialize` was given."""
        if isinstance(values, self.schema.model):
            accepted(self.schema, values)
            return self._taken(values)
        if values is not None and not isinstance(cast("object", values), Mapping):
            raise Misfit(
                None, f"initialize takes values, or a {self.schema.model.__name__}, not {type(values).__name__}"
            )
        given = cast("Mapping[str, Value]", values or {})
        if self.schema.has_entry_rules:
            return record_of(self.schema, self._writes.owner, given)
        return record_of(self.schema, self._writes.owner, self._by_name(given))

    def _taken(self, model: BaseModel) -> Record:
        try:
            return record_of_model(self.schema, self._writes.owner, model)
        except Unfit as error:
            why = str(error)
        raise Misfit(None, why)

    def _by_name(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Return an input by field names instead of aliases."""
        named: dict[str, Value] = {}
        for key, value in given.items():
            name = target(self.schema, key, None).name
            if name in named:
                raise _twice(name, WRITER.get())
            named[name] = value
        return named

    def _steps(
        self, updates: Mapping[str, Value], namespace: str | None, folding: Folding, writer: str | None
    ) -> list[Step]:
        """Return what a call is to do."""
        if namespace is not None:
            check_namespace(self.schema, namespace)
        steps: dict[str, Step] = {}
        try:
            for key, value in updates.items():
                one = target(self.schema, key, namespace)
                if one.name in steps:
                    raise _twice(one.name, writer)
                if one.field.info.frozen and not one.is_extra:
                    raise StateWriteError(f"field '{one.name}' is frozen: initialize sets it", field=one.name)
                steps[one.name] = Step(one, folding, value)
        except StateError as error:
            error.path = writer
            error.args = (f"{error}; writer {shown(writer)}",)
            raise
        return list(steps.values())

    def _refuse_model(self, model: object, writer: str | None) -> None:
        """Refuse a model, unless it is a snapshot of this manager."""
        if type(model) is self._view and cast("Any", model).record.owner is self._writes.owner:  # Any: a made class
            return
        raise StateWriteError("update takes a dict of fields, not a model: initialize takes a model", path=writer)

    def _reset(self, scope: Scope, is_meant: Callable[[str], bool]) -> None:
        if self._writes.is_unset:
            return
        steps = [Step(one, _fold_default, MISSING) for one in self._scoped(_BELOW[scope]) if is_meant(one.name)]
        if steps:
            self._writes.apply(steps, WRITER.get(), quiet=True)

    def _scoped(self, scopes: frozenset[Scope]) -> list[Target]:
        """Return the fields of some scopes that have a value, and their variants."""
        fields = [
            Target(name, field, False) for name, field in self.schema.fields.items() if field.policy.scope in scopes
        ]
        names = self._writes.record.extra
        extra = [Target(name, field, True) for name in names if (field := variant_of(self.schema, name)) is not None]
        return [*fields, *(one for one in extra if one.field.policy.scope in scopes)]

    def _from_json(self, fields: Mapping[str, Json]) -> Record:
        """Return the record of a checkpoint's fields."""
        return loaded_record(self.schema, self._writes.owner, fields)


def _fold_update(field: StateField, old: Value, raw: Value, others: Others, default: Default) -> Value:
    return updated(field, old, raw, others, default)


def _fold_merge(field: StateField, old: Value, raw: Value, others: Others, default: Default) -> Value:
    return merged(field, old, raw, others)


def _fold_transform(field: StateField, old: Value, raw: Value, others: Others, default: Default) -> Value:
    return transformed(field, old, raw, others)


def _fold_default(field: StateField, old: Value, raw: Value, others: Others, default: Default) -> Value:
    return default()


def _twice(name: str, writer: str | None) -> StateWriteError:
    return StateWriteError(f"field '{name}' is given twice, by name and by alias: give one", field=name, path=writer)
