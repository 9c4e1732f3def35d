"""One version of the state, and its snapshot."""

from __future__ import annotations

from pydantic import BaseModel

from jianmu.engine.state.growing import Growing, shown
from jianmu.engine.state.guard import snapshot
from jianmu.engine.state.markers import MISSING, Value
from jianmu.engine.state.readonly import NO_HINT, ReadOnlyDict


class Record:
    """One version of the state; it never changes.

    Attributes:
        owner: the manager's own token, by which it knows its snapshots.
        values: the declared fields, as they are stored; a required field without a value is absent.
        extra: the extra values; empty where the schema has none.
        private: the model's private attributes.
        fields_set: the fields that were given or written.
    """

    __slots__ = ("_view", "extra", "fields_set", "owner", "private", "values")

    def __init__(
        self,
        owner: object,
        values: dict[str, Value],
        extra: ReadOnlyDict,
        private: dict[str, Value] | None,
        fields_set: frozenset[str],
    ) -> None:
        self.owner = owner
        self.values = values
        self.extra = extra
        self.private = private
        self.fields_set = fields_set
        self._view: BaseModel | None = None

    def replaced(self, values: dict[str, Value], extra: dict[str, Value]) -> Record:
        """Return the record with some values replaced."""
        all_extra = ReadOnlyDict({**self.extra, **extra}, NO_HINT) if extra else self.extra
        fields_set = self.fields_set if values.keys() <= self.fields_set else self.fields_set | values.keys()
        return Record(self.owner, {**self.values, **values}, all_extra, self.private, fields_set)

    def without(self, names: set[str]) -> Record:
        """Return the record without some extra values."""
        extra = ReadOnlyDict({name: value for name, value in self.extra.items() if name not in names}, NO_HINT)
        return Record(self.owner, self.values, extra, self.private, self.fields_set)

    def view(self, cls: type[BaseModel]) -> BaseModel:
        """Return the snapshot, of the class of the schema's snapshots; made once."""
        view = self._view
        if view is None:
            fields = {name: value.made if type(value) is Growing else value for name, value in self.values.items()}
            lists = {name: value for name, value in self.values.items() if type(value) is Growing}
            unmade = {name: value for name, value in lists.items() if fields[name] is None}
            for name in unmade:
                del fields[name]
            view = self._view = snapshot(cls, self, fields, unmade or None)
        return view

    def read(self, name: str, is_extra: bool) -> Value:
        """Return one stored value as readers see it. KeyError if there is none."""
        return shown(self.extra[name] if is_extra else self.values[name])

    def held(self, name: str) -> Value:
        """Return what is stored under a full name, in the form in which it is; `MISSING` if nothing is."""
        return self.values[name] if name in self.values else self.extra.get(name, MISSING)

    def all_shown(self) -> dict[str, Value]:
        """Return the declared fields as readers see them."""
        return {name: shown(value) for name, value in self.values.items()}
