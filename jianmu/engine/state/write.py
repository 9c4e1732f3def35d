"""One write from its locks to its commit, and what is known of the writes before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from jianmu.engine.state.change import Listeners, StateChange
from jianmu.engine.state.delta import Delta
from jianmu.engine.state.folding import Others, attempt, frozen
from jianmu.engine.state.freeze import Unfit, freeze
from jianmu.engine.state.growing import shown
from jianmu.engine.state.guard import instance
from jianmu.engine.state.markers import MISSING, Value
from jianmu.engine.state.namespaces import Target, extra_target, json_problem
from jianmu.engine.state.readonly import NO_HINT, ReadOnlyDict
from jianmu.engine.state.record import Record
from jianmu.engine.state.refusal import Misfit, refusal
from jianmu.engine.state.schema import Schema, StateField
from jianmu.engine.state.steps import Step, asks, given, guess
from jianmu.engine.state.stored import Deltas, differs, same, to_json
from jianmu.engine.state.whole import private_of, record_of
from jianmu.errors import StateWriteError

_EXTRAS = ""  # the lock that all extra values share


class Writes:
    """The newest record, and the way to the next one."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.owner = object()
        self.lock = threading.Lock()
        self.listeners = Listeners()
        self.recorder: Callable[[StateChange], None] | None = None
        self.deltas: Deltas | None = None
        self.version = 0
        self.loaded = 0
        self.changes: dict[str, tuple[int, str | None]] = {}
        self._writers: dict[str, str | None] = {}
        self.spent: frozenset[str] = frozenset()
        self._locks = {name: threading.Lock() for name in sorted([_EXTRAS, *schema.fields])}
        self._local = threading.local()
        self.is_refused = False
        self.record = self._first()

    def _first(self) -> Record:
        """Return the record of the defaults; where the model's own rules refuse them the state is unset."""
        try:
            return record_of(self.schema, self.owner, {})
        except Misfit:
            self.is_refused = True
        values: dict[str, Value] = {}
        for name, field in self.schema.fields.items():
            with suppress(Unfit):
                values[name] = freeze(attempt("the default factory", field.default, values), field.hint)
        values = {name: value for name, value in values.items() if name not in self.schema.required}
        return Record(self.owner, values, ReadOnlyDict({}, NO_HINT), None, frozenset())

    @property
    def missing(self) -> tuple[str, ...]:
        """The required fields that have no value yet."""
        return tuple(name for name in self.schema.required if name not in self.record.values)

    @property
    def is_unset(self) -> bool:
        """Whether the state has not all it needs to be read as a whole."""
        return self.is_refused or len(self.record.values) < len(self.schema.fields)

    def apply(self, steps: list[Step], writer: str | None, *, quiet: bool = False) -> None:
        """Carry out a write: all of it, or nothing.

        Args:
            steps: what is to be done.
            writer: the path of the writer.
            quiet: commit only what differs, and nothing if nothing does.

        Raises:
            StateWriteError: it was refused.
        """
        problem, locks = None, self._enter(steps, writer)
        try:
            news = self._computed(steps)
            if quiet:
                news = self._differing(steps, news)
            if news:
                news, private = self._by_model(news)
                self._commit(news, self._deltas(steps, news), writer, private)
        except Misfit as error:
            problem = error
        finally:
            self._leave(locks)
        if problem is not None:
            raise self.refusal(problem, [step.target.name for step in steps], writer)
        self.listeners.tell()

    def install(
        self, made: Callable[[], Record], writer: str | None, *, loaded: Mapping[str, Any] | None = None
    ) -> None:
        """Put another record in the place of this one (Any: a checkpoint's JSON; its version and marks are taken over).

        Raises:
            StateWriteError: it was refused.
        """
        problem, locks = None, self._enter(None, writer)
        try:
            record = made()
            self._exchange(record, () if loaded is not None else self._all_deltas(record), writer, loaded)
        except Misfit as error:
            problem = error
        finally:
            self._leave(locks)
        if problem is not None:
            raise self.refusal(problem, [], writer)
        self.listeners.tell()

    def _enter(self, steps: list[Step] | None, writer: str | None) -> list[threading.Lock]:
        """Take the locks of a write, in order; refuse one that comes from inside another."""
        if getattr(self._local, "is_writing", False):
            raise StateWriteError(
                "a write from inside a write was refused: reducers, validators, default factories and functions given "
                "to transform_field may read the state, and return what is to be written",
                path=writer,
            )
        locks = [self._locks[name] for name in self._needed(steps)]
        for lock in locks:
            lock.acquire()
        self._local.is_writing = True
        return locks

    def _leave(self, locks: list[threading.Lock]) -> None:
        self._local.is_writing = False
        for lock in locks:
            lock.release()

    def _needed(self, steps: list[Step] | None) -> Iterable[str]:
        """Return the names of the locks of a write, in order; where fields are tied together, of all."""
        if steps is None or self.schema.after is not None or any(step.target.field.has_info for step in steps):
            return self._locks
        if len(steps) == 1:
            only = steps[0].target
            return (_EXTRAS if only.is_extra else only.name,)
        return sorted({_EXTRAS if step.target.is_extra else step.target.name for step in steps})

    def stored(self, target: Target) -> Value:
        """Return what is stored, in the form in which it is; MISSING if nothing is."""
        record = self.record
        return record.extra.get(target.name, MISSING) if target.is_extra else record.values.get(target.name, MISSING)

    def _computed(self, steps: list[Step]) -> dict[str, Value]:
        """Return the values after a write, by full name."""
        news: dict[str, Value] = {}
        for step in sorted(steps, key=asks) if len(steps) > 1 else steps:
            target, field = step.target, step.target.field
            others = self._others(steps, news) if field.has_info else None
            try:
                news[target.name] = _stored_form(self, step, others)
                why = None
            except Unfit as error:
                why = str(error)
            if why is not None:
                raise Misfit(target, why, given(step))
        return news

    def start(self, target: Target, others: Others) -> Value:
        """Return the value that a write starts from."""
        held = self.stored(target)
        if held is not MISSING and target.name not in self.spent:
            return held
        if target.is_extra and not target.is_variant:
            return None
        if held is MISSING and target.field.info.is_required():
            return None
        return self.default(target.field, others)

    def default(self, field: StateField, others: Others = None) -> Value:
        """Return a field's default, taken afresh and validated.

        Raises:
            Unfit: there is none, or it was refused.
        """
        if not field.name:
            raise Unfit("an extra value has no default to go back to: clear(namespace) removes it")
        if field.info.is_required():
            raise Unfit("it has no default to go back to")
        values = self.record.all_shown() if field.info.default_factory_takes_validated_data else {}
        value = attempt("the default factory", field.default, values)
        return frozen(field, field.full, value, others or values)

    def _others(self, steps: list[Step], news: Mapping[str, Value]) -> dict[str, Value]:
        """Return all fields as they will be, as far as is known, for a validator that asks."""
        others = self.record.all_shown()
        for step in steps:
            name, field = step.target.name, step.target.field
            if not step.target.is_extra and name not in news and field.reducer is None:
                others[name] = guess(step, others)
        return {**others, **{name: shown(value) for name, value in news.items() if name in self.schema.fields}}

    def _differing(self, steps: list[Step], news: dict[str, Value]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for step in steps:
            name, held = step.target.name, self.stored(step.target)
            if held is MISSING or not same(shown(held), shown(news[name])):
                found[name] = news[name]
        return found

    def _by_model(self, news: dict[str, Value]) -> tuple[dict[str, Value], Value]:
        """Return the values after the model's own rules, and its private attributes if they are made now."""
        schema, record = self.schema, self.record
        if schema.after is None and not self.is_unset:
            return news, MISSING
        values = {**record.values, **{name: value for name, value in news.items() if name in schema.fields}}
        if len(values) < len(schema.fields):
            return news, MISSING
        ordered = {name: shown(values[name]) for name in schema.fields}
        private = private_of(schema, ordered) if self.is_unset else MISSING
        if schema.after is None:
            return news, private
        model = instance(schema.model, record, dict(ordered))
        why = None
        try:
            held = _ruled(schema, attempt("the model's validator", schema.after.validate_python, model))
            moved = [name for name in ordered if held.get(name) is not ordered[name]]
            return {**news, **{name: freeze(held[name], schema.fields[name].hint) for name in moved}}, private
        except Unfit as error:
            why = str(error)
        raise Misfit(None, why)

    def _deltas(self, steps: Iterable[Step], news: Mapping[str, Value]) -> tuple[Delta, ...]:
        """Return the effect of a write on what is stored, and prove that it can be read back."""
        if self.deltas is None:
            return ()
        targets = {step.target.name: step.target for step in steps}
        made: list[Delta] = []
        for name, new in news.items():
            target = targets.get(name) or Target(name, self.schema.fields[name], False)
            old = self.stored(target)
            if target.field.is_stored and (old is not new or name in self.spent):
                others = self._others([], news) if target.field.has_info else {}
                made.append(self._delta(target, old, new, others))
        return tuple(made)

    def _delta(
        self, target: Target, old: Value, new: Value, others: dict[str, Value], *, is_given: bool = True
    ) -> Delta:
        assert self.deltas is not None
        why = None
        try:
            if not is_given:  # a default is taken afresh at a load
                return Delta(target.name, "set", to_json(target.field, new))
            return self.deltas.of(target.name, target.field, None if old is MISSING else old, new, others)
        except Unfit as error:
            why = str(error)
        raise Misfit(target, why)

    def _commit(self, news: dict[str, Value], deltas: tuple[Delta, ...], writer: str | None, private: Value) -> None:
        """Make the write the newest record, and queue its change."""
        fields = self.schema.fields
        values = {name: value for name, value in news.items() if name in fields}
        extra = {name: value for name, value in news.items() if name not in fields}
        changed = tuple(name for name in news if differs(self.record.held(name), news[name]))
        with self.lock:
            record = self.record.replaced(values, extra)
            if private is not MISSING:
                record.private, self.is_refused = private, False
                record.values = {name: record.values[name] for name in fields}
            self.record = record
            self.spent -= news.keys()
            self.note(tuple(news), changed, writer, deltas)

    def drop(self, names: tuple[str, ...], writer: str | None) -> None:
        """Remove extra values."""
        locks = self._enter(None, writer)
        deltas = tuple(Delta(name, "drop") for name in names) if self.deltas is not None else ()
        with self.lock:
            self.record = self.record.without(set(names))
            self.spent -= set(names)
            self.note(names, names, writer, deltas)
        self._leave(locks)
        self.listeners.tell()

    def _exchange(
        self, record: Record, deltas: tuple[Delta, ...], writer: str | None, loaded: Mapping[str, Any] | None
    ) -> None:
        names = tuple(dict.fromkeys([*self.schema.fields, *self.record.extra, *record.extra]))
        old, self.is_refused = self.record, False
        changed = tuple(name for name in names if differs(old.held(name), record.held(name)))
        with self.lock:
            self.record = record
            self.spent = frozenset(loaded["spent"] if loaded else ())
            if loaded is None:
                self.note(names, changed, writer, deltas)
                return
            self.version = self.loaded = loaded["version"]
            self.changes.clear()
            self._writers.clear()
            self.listeners.queue(StateChange(self.version, names, changed, writer))

    def note(
        self, names: tuple[str, ...], changed: tuple[str, ...], writer: str | None, deltas: tuple[Delta, ...]
    ) -> None:
        """Count a commit and queue its change; called under the manager's lock."""
        self.version = version = self.version + 1
        for name in names:
            self._writers[name] = writer
        for name in changed:
            self.changes[name] = (version, writer)
        self.queue(StateChange(version, names, changed, writer, deltas))

    def queue(self, change: StateChange) -> None:
        """Queue a change; called under the manager's lock."""
        self.listeners.queue(change)
        if self.recorder is not None:
            self.recorder(change)

    def _all_deltas(self, record: Record) -> tuple[Delta, ...]:
        """Return the effect of putting another record in the place of this one."""
        if self.deltas is None:
            return ()
        targets = [Target(name, self.schema.fields[name], False) for name in record.values]
        targets += [one for name in record.extra if (one := extra_target(self.schema, name)) is not None]
        stored = [one for one in targets if one.field.is_stored]
        others = record.all_shown()
        made = [
            self._delta(one, MISSING, record.held(one.name), others, is_given=_is_given(record, one)) for one in stored
        ]
        gone = (self.record.values.keys() | self.record.extra.keys()) - {one.name for one in targets}
        return (*made, *(Delta(name, "drop") for name in sorted(gone)))

    def refusal(self, problem: Misfit, names: list[str], writer: str | None) -> StateWriteError:
        """Return the error for a write that was refused."""
        return refusal(problem, self.schema.model.__name__, names, writer, self._writers)


def _ruled(schema: Schema, model: object) -> dict[str, Value]:
    """Return the fields of what a model's validator returned."""
    if isinstance(model, schema.model):
        return dict(model.__dict__)
    raise Unfit(f"the model's validator returned {type(model).__name__}: it returns self")


def _is_given(record: Record, target: Target) -> bool:
    return target.is_extra or target.name in record.fields_set


def _stored_form(writes: Writes, step: Step, others: Others) -> Value:
    """Return the value after one step.

    Raises:
        Unfit: it cannot be stored.
    """
    target, field = step.target, step.target.field
    new = step.folding(field, writes.start(target, others), step.raw, others, lambda: writes.default(field, others))
    if target.is_extra and not field.name and not writes.schema.extra_is_typed:
        problem = json_problem(new)
        if problem is not None:
            raise Unfit(f"extra values are JSON values, this one has {problem}")
    return new
