"""The state of an agent: one typed model, written by calls that validate, fold and commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from pydantic import BaseModel

from jianmu.engine.state.change import Delta, Json, Listener, StateChange
from jianmu.engine.state.folding import Step
from jianmu.engine.state.freeze import Refused, freeze
from jianmu.engine.state.markers import MISSING, Scope, Value
from jianmu.engine.state.readonly import shown
from jianmu.engine.state.record import Record, dumped, loaded, record_of, record_of_assigned
from jianmu.engine.state.runtime import WRITER, RuntimeSide
from jianmu.engine.state.schema import RUNTIME
from jianmu.engine.state.write import S, named
from jianmu.errors import StateError, StateWriteError, UnknownFieldError

_BELOW: dict[Scope, tuple[Scope, ...]] = {"run": ("run", "step", "call"), "step": ("step",), "call": ("call",)}


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
        record = self._record
        if record.seen is None and self._is_unset:
            raise self._unset()
        return cast("S", record.view(self._view) if record.seen is None else record.seen)

    def read(self, field: str, *, namespace: str | None = None) -> Value:
        """Return one value.

        Raises:
            UnknownFieldError: there is no such field, or nothing under this key of the namespace.
            UnsetStateError: it has no value yet.
        """
        found = MISSING if namespace is not None else shown(self._record.values.get(field, MISSING))
        if found is not MISSING:
            return found
        if namespace in RUNTIME:
            found = self.runtime_read(namespace).get(field, MISSING)
        else:
            name, kept = self.schema.target(field, namespace)
            found = shown(self._record.held(name))
            if found is MISSING and name in self.schema.fields:
                raise self._unset()
            if found is MISSING and kept.name:
                return freeze(kept.default({}), kept.hint)
        if found is MISSING:
            place = f" in the namespace '{namespace}'" if namespace else ""
            raise UnknownFieldError(f"there is no '{field}'{place}", field=field)
        return found

    def read_namespace(self, namespace: str) -> dict[str, Value]:
        """Return what is kept in a namespace, by key."""
        if namespace in RUNTIME:
            return self.runtime_read(namespace)
        self.schema.check_namespace(namespace)
        start, extra = f"{namespace}.", self._record.extra
        return {name.removeprefix(start): shown(each) for name, each in extra.items() if name.startswith(start)}

    def output(self) -> dict[str, Value]:
        """Return the fields that are not hidden from callers, and extra values of no namespace."""
        record = self._record
        fields = {name: shown(record.values[name]) for name in self.schema.output_fields if name in record.values}
        return {**fields, **{name: value for name, value in record.extra.items() if "." not in name}}

    def output_json(self) -> dict[str, Json]:
        """Return what `output` returns as JSON, without what is not stored."""
        fields = self.dump_checkpoint()["fields"]
        return {name: value for name, value in fields.items() if name in self.output()}

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
        if not isinstance(updates, dict):
            given = cast("object", updates)
            if type(given) is self._view:
                return
            if not isinstance(given, Mapping):
                kind = "a model: initialize takes a model" if isinstance(given, BaseModel) else type(given).__name__
                raise StateWriteError(f"update takes a dict of fields, not {kind}", path=writer)
        steps = self._steps(updates, namespace, Step.update, writer)
        if steps:
            self._apply(steps, writer)

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
        steps = self._steps({field: updates}, namespace, Step.merge, writer)
        if updates or not isinstance(cast("object", updates), Mapping | None):
            self._apply(steps, writer)

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
        self._apply(self._steps({key: fn}, namespace, Step.transform, writer), writer)

    def clear(self, namespace: str) -> None:
        """Remove all that is kept in a namespace."""
        self.schema.check_namespace(namespace)
        names = tuple(name for name in self._record.extra if name.startswith(f"{namespace}."))
        if names:
            self._drop(names, WRITER.get())

    def initialize(self, values: Mapping[str, Value] | BaseModel | None = None) -> None:
        """Replace the user's fields; no reducer is called, and fields not given get their defaults.

        Raises:
            StateWriteError: a value was refused, or a run is on.
        """
        writer = WRITER.get()
        if self.is_running:
            raise StateWriteError("initialize was refused, since a run is on: end the run first", path=writer)
        self._install(lambda: self._whole(values), writer)

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
            self.schema.check_namespace(namespace)
        self._reset("call", lambda name: name.rpartition(".")[0] == (namespace or ""))

    def get_step_fields(self) -> dict[str, Value]:
        """Return the step fields and their variants, by full name."""
        record = self._record
        return {name: shown(record.held(name)) for name in self._scoped(("step",)) if record.held(name) is not MISSING}

    def take_step_fields(self) -> dict[str, Value]:
        """Return the step fields and mark them spent: they can still be read, and the next write starts anew."""
        with self._lock:
            taken = self.get_step_fields()
            self._spent |= taken.keys()
            change = StateChange(self.version, deltas=(Delta("", "spent", sorted(self._spent)),))
            for record in self.recorders if self.wants_deltas else ():
                record(change)
        return taken

    def enter_step(self) -> None:
        """Clear the step fields that are still spent; what was written since they were taken is spared."""
        if self._spent:
            self._reset("step", self._spent.__contains__)

    # Listening

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have a listener called with each change, in the order of the commits; returns what ends it.

        A listener may write, subscribe and unsubscribe; what it raises is logged and reaches nobody.
        """
        return self._listeners.add(listener)

    def signal(self) -> None:
        """Tell an empty change, which wakes the runner."""
        with self._lock:
            self._listeners.queue(StateChange(self.version, writer=WRITER.get()))
        self._listeners.tell()

    # Storing

    def dump_checkpoint(self) -> dict[str, Json]:
        """Return the state as a JSON dict, without call fields, `Transient` fields and the runtime's namespaces.

        Raises:
            StateWriteError: a value has no JSON form.
        """
        with self._lock:
            record, version, spent = self._record, self.version, self._spent
        try:
            return {"version": version, "fields": dumped(self.schema, record), "spent": sorted(spent)}
        except Refused as error:
            problem = error
        raise self._refusal(problem, [], None)

    def load_checkpoint(self, data: Mapping[str, Json]) -> None:
        """Take the state from what `dump_checkpoint` returned; listeners are told, the version is the stored one.

        Raises:
            StateWriteError: a value does not fit today's schema; nothing was changed.
        """
        self._install(lambda: loaded(self.schema, data["fields"]), WRITER.get(), data)

    def bookmark(self) -> Callable[[], None]:
        """Return a function that puts the whole state back to what it is now."""
        with self._lock:
            record, marks = self._record, {"version": self.version, "spent": self._spent}
        return lambda: self._install(lambda: record, WRITER.get(), marks)

    # Inside

    def _whole(self, values: Mapping[str, Value] | BaseModel | None) -> Record:
        """Return the record of what `initialize` was given."""
        schema = self.schema
        if isinstance(values, schema.model):
            return record_of_assigned(schema, values)
        if not isinstance(cast("object", values), Mapping | None):
            raise Refused(f"initialize takes values, or a {schema.model.__name__}, not {type(values).__name__}")
        given = cast("Mapping[str, Value]", values or {})
        if not schema.has_entry_rules:  # aliases are theirs to read
            steps = self._steps(given, None, Step.reset, WRITER.get())
            given = {name: step.raw for name, step in steps.items()}
        return record_of(schema, given)

    def _steps(
        self, updates: Mapping[str, Value], namespace: str | None, fold: Callable[[Step], Value], writer: str | None
    ) -> dict[str, Step]:
        """Return what a call is to do, by full name."""
        if namespace is not None:
            self.schema.check_namespace(namespace)
        steps: dict[str, Step] = {}
        fields = self.schema.fields if namespace is None else {}
        try:
            for key, value in updates.items():
                name, field = (key, fields[key]) if key in fields else self.schema.target(key, namespace)
                if name in steps:
                    raise StateWriteError(f"field '{name}' is given twice, by name and by alias: give one", field=name)
                if field.info.frozen and name == field.name and fold is not Step.reset:
                    raise StateWriteError(f"field '{name}' is frozen: initialize sets it", field=name)
                steps[name] = Step(name, field, fold, value)
        except StateError as error:
            error.path = writer
            error.args = (f"{error}; writer {named(writer)}",)
            raise
        return steps

    def _reset(self, scope: Scope, is_meant: Callable[[str], bool]) -> None:
        if self._is_unset:
            return
        fields, held = self._scoped(_BELOW[scope]), self._record.held
        steps = {name: Step(name, field, Step.reset) for name, field in fields.items() if is_meant(name)}
        if any(held(name) is not step.field.plain_default for name, step in steps.items()):
            self._apply(steps, WRITER.get(), quiet=True)
