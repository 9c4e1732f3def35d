"""One version of the state, and how a whole input makes one: `initialize` and `load`.

Here the model's `before` and `wrap` validators run, and no reducer does. What is refused raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias  # Any: what Pydantic tells of an error

from pydantic import BaseModel
from pydantic_core import PydanticUndefined, ValidationError, to_json

from jianmu.engine.state.change import json_of
from jianmu.engine.state.folding import Others, attempt, checked, explained
from jianmu.engine.state.freeze import Placed, Refused, freeze, instance, refuse_flow, refuse_op
from jianmu.engine.state.markers import MISSING, Value
from jianmu.engine.state.readonly import NO_HINT, Growing, ReadOnlyDict, shown
from jianmu.engine.state.schema import Schema, StateField

Values: TypeAlias = Mapping[str, Value]


class Record:
    """One version of the state; it never changes. A required field without a value is not among its values."""

    __slots__ = ("extra", "fields_set", "private", "seen", "values")

    def __init__(
        self, values: dict[str, Value], extra: Values, private: dict[str, Value] | None, fields_set: frozenset[str]
    ) -> None:
        self.values = values
        self.extra = extra if isinstance(extra, ReadOnlyDict) else ReadOnlyDict(extra, NO_HINT)
        self.private = private
        self.fields_set = fields_set
        self.seen: BaseModel | None = None

    def held(self, name: str) -> Value:
        """Return what is stored under a full name, in the form in which it is; `MISSING` if nothing is."""
        return self.values[name] if name in self.values else self.extra.get(name, MISSING)

    def shown(self) -> dict[str, Value]:
        """Return the declared fields as readers see them."""
        return {name: shown(value) for name, value in self.values.items()}

    def view(self, cls: type[BaseModel]) -> BaseModel:
        """Return the snapshot, of the class of the schema's snapshots; made once, without the lists not yet made."""
        if self.seen is None:
            fields = {name: shown(one) for name, one in self.values.items() if type(one) is not Growing or one.made}
            extra = self.extra and ReadOnlyDict({name: shown(one) for name, one in self.extra.items()}, NO_HINT)
            view = instance(cls, fields, self.fields_set, extra, self.private)
            object.__setattr__(view, "_jianmu_values", self.values)
            self.seen = view
        return self.seen


def record_of(schema: Schema, values: Values, *, is_json: bool = False) -> Record:
    """Return the record of a whole input, by field names; fields not given get their defaults."""
    for name, value in values.items():
        field = schema.field_of(str(name))
        with Placed(name, field.type_text if field else "", type(value).__name__):
            refuse_op(value, "is for update")
            refuse_flow(value)
    found: list[Any] = []
    try:
        return record_of_model(schema, attempt("a validator", _validated, schema, values, is_json, found))
    except Refused as error:
        told = [each for each in found if each["type"] != "missing" or len(each["loc"]) != 1]
        if told:
            _place(schema, error, told)
        if told or not found:
            raise
    return partial(schema, values, is_json=is_json)


def _validated(schema: Schema, values: Values, is_json: bool, found: list[Any]) -> BaseModel:
    """Return the instance that an input makes; what Pydantic refuses is added to `found`."""
    validator: Any = schema.model.__pydantic_validator__
    try:
        if is_json:
            return validator.validate_json(to_json(values), by_name=True, by_alias=False)
        return validator.validate_python(dict(values), by_name=True, by_alias=schema.has_entry_rules)
    except ValidationError as error:
        found.extend(error.errors(include_url=False, include_context=is_json))
        raise


def _place(schema: Schema, error: Refused, found: list[Any]) -> None:
    """Have the refusal of an input name the first field that Pydantic complains of."""
    error.why, place = explained(found), found[0]["loc"]
    name = schema.aliases.get(str(place[0]), str(place[0])) if place else ""
    if name in schema.fields:
        given = type(found[0]["input"]).__name__ if len(place) == 1 else None
        error.at(name, schema.fields[name].type_text, given)


def record_of_model(schema: Schema, model: BaseModel) -> Record:
    """Return the record of an instance of the schema, whose fields are taken as they are."""
    held, given = model.__dict__, model.__pydantic_extra__ or {}
    values = {name: freeze(held[name], field.hint) for name, field in schema.fields.items()}
    extra: dict[str, Value] = freeze(given, NO_HINT) if schema.extra_is_typed else _parts(schema, given, is_json=False)
    private = model.__pydantic_private__ or {}
    kept = {name: value for name, value in private.items() if value is not PydanticUndefined}
    return Record(values, extra, kept or None, frozenset(model.model_fields_set))


def record_of_assigned(schema: Schema, model: BaseModel) -> Record:
    """Return the record of a user's instance, whose assigned fields are checked; Pydantic does not do it."""
    for name in sorted(model.model_fields_set & schema.fields.keys()):
        _part(name, schema.fields[name], model.__dict__[name], model.__dict__, is_json=False)
    return record_of_model(schema, model)


def partial(schema: Schema, values: Values, *, is_json: bool = False) -> Record:
    """Return the record of an input that lacks required fields; the model's own rules wait until it is complete."""
    made: dict[str, Value] = {}
    for name, field in schema.fields.items():
        if name in values or not field.info.is_required():
            made[name] = _part(name, field, values.get(name, MISSING), made, is_json=is_json)
    extra = _parts(schema, {name: value for name, value in values.items() if name not in made}, is_json=is_json)
    return Record(made, extra, None, frozenset(values.keys() & made.keys()))


def loaded(schema: Schema, fields: Values) -> Record:
    """Return the record of a checkpoint's fields; what today's schema does not know is left out."""
    known = schema.fields
    own = {name: value for name, value in fields.items() if name in known and not known[name].is_default(value)}
    more = {name: value for name, value in fields.items() if name not in known}
    if schema.has_entry_rules:
        own.update((name, value) for name, value in more.items() if "." not in name)
    record = record_of(schema, own, is_json=True)
    return Record(record.values, _parts(schema, more, is_json=True), record.private, record.fields_set)


def dumped(schema: Schema, record: Record) -> dict[str, Value]:
    """Return what is stored of a record, by full name."""
    found: dict[str, Value] = {}
    for name in (*record.values, *record.extra):
        field = schema.field_of(name)
        if field is not None and field.is_stored:
            with Placed(name, field.type_text):
                found[name] = json_of(field, record.held(name))
    return found


def private_of(schema: Schema, values: Values) -> dict[str, Value] | None:
    """Return the private attributes that the schema gives an instance with these values."""
    has_any = bool(schema.model.__private_attributes__)
    return schema.model.model_construct(**values).__pydantic_private__ if has_any else None


def _parts(schema: Schema, values: Values, *, is_json: bool) -> dict[str, Value]:
    """Return extra values, where the schema keeps them."""
    fields = {name: field for name in values if (field := schema.field_of(name)) and schema.extra}
    return {name: _part(name, field, values[name], None, is_json=is_json) for name, field in fields.items()}


def _part(name: str, field: StateField, value: Value, others: Others, *, is_json: bool) -> Value:
    """Return one value of an input: the one given, or the field's default."""
    with Placed(name, field.type_text, None if value is MISSING else type(value).__name__):
        if value is MISSING:
            return freeze(attempt("the default factory", field.default, others), field.hint)
        check, given = (field.full.of_json, to_json(value)) if is_json else (field.full, value)
        return checked(field, check, given, others)
