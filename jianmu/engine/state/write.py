"""One write from its locks to its commit, and what is known of the writes before.

1. A write takes the locks of its fields in sorted order; the manager's own lock is held for the commit only.
2. What the user wrote (reducers, functions, validators) runs under field locks, never under the manager's lock;
   a write from inside it is refused.
3. A commit replaces the record; readers take the record that is there and need no lock.
4. Errors hold no values. They are raised outside of handlers, so that nothing is chained to them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from jianmu.engine.state.change import Delta, Json, Listeners, StateChange, delta
from jianmu.engine.state.folding import Others, Step, attempt, checked
from jianmu.engine.state.freeze import Placed, Refused, differs, freeze, instance, same, snapshot_class
from jianmu.engine.state.markers import MISSING, Value
from jianmu.engine.state.readonly import shown
from jianmu.engine.state.record import Record, partial, private_of, record_of
from jianmu.engine.state.schema import Schema, StateField
from jianmu.errors import StateWriteError

S = TypeVar("S", bound=BaseModel)
Marks: TypeAlias = Mapping[str, Json]  # of a checkpoint: its version, and the fields that are spent
_EXTRAS = ""  # the lock that all extra values share


class Writes(Generic[S]):
    """The newest record of a state, and the way to the next one.

    Attributes:
        schema: the facts of the schema.
        version: the number of commits so far.
        loads: how often the record was exchanged without deltas.
        is_running: set by the runner while a run is on; `initialize` is refused then.
        recorders: called with each change inside its commit, under the manager's lock; no user code may run there.
        wants_deltas: whether changes carry their deltas.
    """

    def __init__(self, schema: type[S]) -> None:
        self.schema = Schema(schema)
        self.version = 0
        self.is_running = False
        self.recorders: tuple[Callable[[StateChange], None], ...] = ()
        self.wants_deltas = False
        self._is_checked = False  # whether what is written must prove that it can be read back
        self._view = snapshot_class(schema)
        self._listeners = Listeners()
        self._lock = threading.Lock()
        self._locks = {name: threading.Lock() for name in sorted([_EXTRAS, *self.schema.fields])}
        self._writing: set[int] = set()  # the threads that are inside a write
        self._spent: frozenset[str] = frozenset()
        self._loaded = 0
        self.loads = 0
        self._changes: dict[str, tuple[int, str | None]] = {}
        self._writers: dict[str, str | None] = {}
        self._is_refused = False  # whether the model's own rules refuse the defaults
        self._record = self._first()

    def _first(self) -> Record:
        """Return the record of the defaults; where the model's own rules refuse them the state is unset."""
        with suppress(Refused):
            return record_of(self.schema, {})
        self._is_refused = True
        with suppress(Refused):
            return partial(self.schema, {})
        return Record({}, {}, None, frozenset())

    @property
    def _is_unset(self) -> bool:
        """Whether the state has not all it needs to be read as a whole."""
        return self._is_refused or len(self._record.values) < len(self.schema.fields)

    # Carrying out

    def _apply(self, steps: Mapping[str, Step], writer: str | None, *, quiet: bool = False) -> None:
        """Carry out a write, all of it or nothing; a quiet one commits only what differs."""

        def write() -> None:
            news = self._folded(steps)
            if quiet:
                news = {name: new for name, new in news.items() if not same(shown(self._record.held(name)), shown(new))}
            if news:
                self._commit(*self._ruled(news), writer)

        self._carry_out(write, steps, writer)

    def _install(self, make: Callable[[], Record], writer: str | None, marks: Marks | None = None) -> None:
        """Put another record in the place of this one."""

        def exchange() -> None:
            record, old = make(), self._record
            gone = dict.fromkeys((*self.schema.fields, *old.extra), MISSING)
            self._commit({**gone, **record.values, **record.extra}, record.private, writer, record, marks)

        self._carry_out(exchange, {}, writer)

    def _drop(self, names: Iterable[str], writer: str | None) -> None:
        self._carry_out(lambda: self._commit(dict.fromkeys(names, MISSING), MISSING, writer), {}, writer)

    def _carry_out(self, deed: Callable[[], None], steps: Mapping[str, Step], writer: str | None) -> None:
        """Do what a write is under its locks, and tell it; refuse one that comes from inside another."""
        thread = threading.get_ident()
        if thread in self._writing:
            raise StateWriteError(
                "a write from inside a write was refused: reducers, validators, default factories and functions given "
                "to transform_field may read the state, and return what is to be written",
                path=writer,
            )
        problem, locks = None, self._needed(steps)
        for lock in locks:
            lock.acquire()
        self._writing.add(thread)
        try:
            deed()
        except Refused as error:
            problem = error
        finally:
            self._writing.discard(thread)
            for lock in locks:
                lock.release()
        if problem is not None:
            raise self._refusal(problem, [*steps], writer)
        self._listeners.tell()

    def _needed(self, steps: Mapping[str, Step]) -> Collection[threading.Lock]:
        """Return the locks of a write, in the order of their names; where fields are tied together, all."""
        locks, schema = self._locks, self.schema
        is_tied = schema.has_info and any(step.field.has_info for step in steps.values())
        if not steps or schema.after is not None or is_tied:
            return locks.values()
        names = steps if steps.keys() <= locks.keys() else {name if name in locks else _EXTRAS for name in steps}
        return [*map(locks.__getitem__, sorted(names))]

    def _refusal(self, problem: Refused, names: list[str], writer: str | None) -> StateWriteError:
        """Return the error for a write that was refused, in words that hold no values."""
        name, why = problem.name, problem.why
        if name is None:
            what = f"the model {self.schema.model.__name__} refuses the write of {', '.join(names) or 'its fields'}"
        else:
            what = f"field '{name}' takes {problem.takes}" if problem.takes else f"the extra value '{name}' is refused"
        given = f" and was given {problem.given}" if problem.given else ""
        before = [self._writers[each] for each in ([name] if name else names) if each in self._writers]
        previous = f"previous writer {named(before[0])}" if before else "not written before"
        text = f"{what}{given}: {why}; writer {named(writer)}, {previous}; nothing was changed"
        return StateWriteError(text, field=name, path=writer)

    # From the values before to those after

    def _folded(self, steps: Mapping[str, Step]) -> dict[str, Value]:
        """Return the values after a write, by full name; those that ask for others come last."""
        news: dict[str, Value] = {}
        todo, values, spent, default = steps.items(), self._record.values, self._spent, self._default
        for name, step in sorted(todo, key=lambda item: item[1].field.has_info) if self.schema.has_info else todo:
            step.others = self._others(steps, news) if step.field.has_info else None
            step.default = default
            try:
                step.old = values[name] if name in values and name not in spent else self._start(step)
                news[name] = step.fold(step)
            except Refused as error:
                error.at(name, step.field.type_text, step.given)
                raise
        return news

    def _start(self, step: Step) -> Value:
        """Return the value that a write starts from, which may be an extra one, or one that is spent or not there."""
        field, held = step.field, self._record.held(step.name)
        if held is not MISSING and step.name not in self._spent:
            return held
        has_default = field.name and not field.info.is_required()
        return step.default(field, step.others) if has_default else None if held is MISSING else held

    def _default(self, field: StateField, others: Others) -> Value:
        """Return a field's default, taken afresh and validated."""
        if field.plain_default is not MISSING:
            return field.plain_default
        if not field.name:
            raise Refused("an extra value has no default to go back to: clear(namespace) removes it")
        if field.info.is_required():
            raise Refused("it has no default to go back to")
        values = self._record.shown() if field.info.default_factory_takes_validated_data else {}
        value = attempt("the default factory", field.default, values)
        return checked(field, field.full, value, others or values)

    def _others(self, steps: Mapping[str, Step], news: Mapping[str, Value]) -> dict[str, Value]:
        """Return all fields as they will be, as far as is known, for a validator that asks."""
        others, fields = self._record.shown(), self.schema.fields
        for name, step in steps.items():
            if name in fields and name not in news and step.field.reducer is None:
                others[name] = step.guess(others)
        known = {name: shown(value) for name, value in news.items() if name in fields and value is not MISSING}
        return {**others, **known}

    def _ruled(self, news: dict[str, Value]) -> tuple[dict[str, Value], Value]:
        """Return the values after the model's own rules, and its private attributes if they are made now."""
        schema, fields, record = self.schema, self.schema.fields, self._record
        if schema.after is None and not self._is_unset:
            return news, MISSING
        whole = {**record.values, **record.extra, **news}
        if not whole.keys() >= fields.keys():
            return news, MISSING
        values = {name: shown(whole.pop(name)) for name in fields}
        private = private_of(schema, values) if self._is_unset else MISSING
        if schema.after is None:
            return news, private
        model = instance(schema.model, dict(values), record.fields_set, whole, record.private)
        ruled = attempt("the model's validator", schema.after.validate_python, model)
        if not isinstance(ruled, schema.model):
            raise Refused(f"the model's validator returned {type(ruled).__name__}: it returns self")
        moved = {name: ruled.__dict__.get(name) for name in fields if ruled.__dict__.get(name) is not values[name]}
        return {**news, **{name: freeze(value, fields[name].hint) for name, value in moved.items()}}, private

    def _deltas(self, news: Mapping[str, Value], record: Record | None) -> tuple[Delta, ...]:
        """Return the effect of a write on what is stored, and prove that what was given can be read back."""
        made: list[Delta] = []
        for name, new in news.items():
            field, old = self.schema.field_of(name), self._record.held(name)
            if field is None or not field.is_stored or (old is new and name not in self._spent):
                continue
            others = self._others({}, news) if field.has_info else None
            is_checked = self._is_checked and (record is None or name in record.fields_set or name in record.extra)
            with Placed(name, field.type_text):
                made.append(delta(name, field, old, new, others, is_checked=is_checked))
        return tuple(made)

    # Committing

    def _commit(
        self,
        news: dict[str, Value],
        private: Value,
        writer: str | None,
        record: Record | None = None,
        marks: Marks | None = None,
    ) -> None:
        """Make a write the newest record, and queue its change.

        Args:
            news: the values after it, by full name; `MISSING` for those that go.
            private: the model's private attributes, or `MISSING` if they stay.
            writer: the path of the writer.
            record: what takes the place of the record that is there.
            marks: of a checkpoint that is loaded, of which no delta is made.
        """
        names, held = tuple(news), self._record.held
        changed = tuple([name for name, new in news.items() if (old := held(name)) is not new and differs(old, new)])
        deltas = self._deltas(news, record) if marks is None and self.wants_deltas else ()
        with self._lock:
            self._record = record or self._after(news, private)
            self._is_refused = self._is_refused and private is MISSING
            self._spent = frozenset(marks["spent"]) if marks else self._spent and self._spent - news.keys()
            if marks is None:
                self._note(names, changed, writer, deltas)
                return
            self.version = self._loaded = marks["version"]
            self.loads += 1
            self._changes.clear()
            self._writers.clear()
            self._listeners.queue(StateChange(self.version, names, changed, writer))

    def _after(self, news: dict[str, Value], private: Value) -> Record:
        """Return the record with some values replaced; the fields are in the order of the schema."""
        old, fields = self._record, self.schema.fields
        values, extra, written = {**old.values, **news}, old.extra, news.keys()
        if len(values) > len(old.values):  # a field had no value, or there are extra values
            written = news.keys() & fields.keys()
            whole = {**extra, **{name: value for name, value in news.items() if name not in fields}}
            extra = {name: value for name, value in whole.items() if value is not MISSING}
            values = {name: values[name] for name in fields if name in values}
        fields_set = old.fields_set if written <= old.fields_set else old.fields_set | written
        return Record(values, extra, old.private if private is MISSING else private, fields_set)

    def _note(
        self, names: tuple[str, ...], changed: tuple[str, ...], writer: str | None, deltas: tuple[Delta, ...] = ()
    ) -> None:
        """Count a commit and queue its change; called under the manager's lock."""
        self.version = version = self.version + 1
        self._writers.update(dict.fromkeys(names, writer))
        self._changes.update(dict.fromkeys(changed, (version, writer)))
        change = StateChange(version, names, changed, writer, deltas)
        self._listeners.queue(change)
        for record in self.recorders:
            record(change)


def named(writer: str | None) -> str:
    """Return a writer as errors name it."""
    return "unnamed" if writer is None else f"'{writer}'"
