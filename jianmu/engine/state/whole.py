"""A whole input: `initialize` and `load`. Here the model's `before` and `wrap` validators run, and no reducer does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticUndefined, ValidationError, to_json

from jianmu.engine.state.folding import attempt, explained
from jianmu.engine.state.freeze import Unfit, freeze, refuse_flow
from jianmu.engine.state.markers import MISSING, Op, Value
from jianmu.engine.state.namespaces import Target, extra_target, json_problem
from jianmu.engine.state.readonly import NO_HINT, ReadOnlyDict
from jianmu.engine.state.record import Record
from jianmu.engine.state.refusal import Misfit
from jianmu.engine.state.schema import Schema, StateField


def record_of(schema: Schema, owner: object, values: Mapping[str, Value], *, is_json: bool = False) -> Record:
    """Return the record of a whole input; fields not given get their defaults.

    Args:
        schema: the schema.
        owner: the manager's token.
        values: by field name; extra values that are no variants too.
        is_json: the values are JSON values, such as `dump_checkpoint` makes.

    Raises:
        Misfit: a value was refused.
    """
    for name, value in values.items():
        _checked_raw(schema, name, value)
    if not schema.has_entry_rules and any(name not in values for name in schema.required):
        return _partial(schema, owner, values, is_json)
    try:
        return record_of_model(schema, owner, _validated(schema, values, is_json))
    except ValidationError as error:
        lacking = all(each["type"] == "missing" and len(each["loc"]) == 1 for each in error.errors(include_url=False))
        problem = _misfit(schema, error)
    except Unfit as error:
        lacking, problem = False, Misfit(None, str(error))
    except Exception as error:  # noqa: BLE001  # a validator may raise anything
        lacking, problem = False, Misfit(None, f"a validator raised {type(error).__name__}")
    if lacking:
        return _partial(schema, owner, values, is_json)
    raise problem


def record_of_model(schema: Schema, owner: object, model: BaseModel) -> Record:
    """Return the record of an instance of the schema, whose values are taken as they are.

    Raises:
        Unfit: one cannot be stored.
    """
    held = model.__dict__
    values = {name: freeze(held[name], field.hint) for name, field in schema.fields.items()}
    extra = freeze(model.__pydantic_extra__ or {}, NO_HINT)
    _check_json(schema, extra)
    private = {
        name: value for name, value in (model.__pydantic_private__ or {}).items() if value is not PydanticUndefined
    }
    return Record(owner, values, extra, private or None, frozenset(model.model_fields_set))


def loaded_record(schema: Schema, owner: object, fields: Mapping[str, Value]) -> Record:
    """Return the record of a checkpoint's fields; what today's schema does not know is left out.

    Raises:
        Misfit: a value does not fit.
    """
    known = schema.fields
    own = {name: value for name, value in fields.items() if name in known and not known[name].is_default(value)}
    if schema.has_entry_rules:
        own.update((name, value) for name, value in fields.items() if name not in known and "." not in name)
    record = record_of(schema, owner, own, is_json=True)
    if schema.extra is None:
        return record
    extra = {name: _loaded_extra(schema, name, value) for name, value in fields.items() if name not in schema.fields}
    return Record(owner, record.values, ReadOnlyDict(extra, NO_HINT), record.private, record.fields_set)


def _loaded_extra(schema: Schema, name: str, value: Value) -> Value:
    target, why = extra_target(schema, name), None
    assert target is not None
    try:
        return freeze(attempt("a validator", target.field.full.of_json, to_json(value)), target.field.hint)
    except Unfit as error:
        why = str(error)
    raise Misfit(target, why)


def private_of(schema: Schema, values: Mapping[str, Value]) -> dict[str, Value] | None:
    """Return the private attributes that the schema gives an instance with these values."""
    if not schema.model.__private_attributes__:
        return None
    return schema.model.model_construct(**values).__pydantic_private__


def accepted(schema: Schema, model: BaseModel) -> None:
    """Check the fields that were set on an instance; Pydantic does not check what is assigned.

    Raises:
        Misfit: one is not of its type.
    """
    held = model.__dict__
    for name in sorted(model.model_fields_set & schema.fields.keys()):
        field = schema.fields[name]
        try:
            attempt("a validator", field.full, held[name], held)
            why = None
        except Unfit as error:
            why = str(error)
        if why is not None:
            raise Misfit(Target(name, field, False), why, type(held[name]).__name__)


def _checked_raw(schema: Schema, name: str, value: Value) -> None:
    """Refuse what no write may bring, before validators see it."""
    why = f"{type(value).__name__} is for update" if isinstance(value, Op) else None
    try:
        refuse_flow(value)
    except Unfit as error:
        why = str(error)
    if why is not None:
        raise Misfit(_target(schema, name), why, type(value).__name__)


def _target(schema: Schema, name: str) -> Target | None:
    field = schema.fields.get(name) or schema.extra
    return None if field is None else Target(name, field, name not in schema.fields)


def _validated(schema: Schema, values: Mapping[str, Value], is_json: bool) -> BaseModel:
    validator = schema.model.__pydantic_validator__
    by: dict[str, Any] = {"by_name": True, "by_alias": schema.has_entry_rules and not is_json}  # Any: keyword arguments
    made = validator.validate_json(to_json(values), **by) if is_json else validator.validate_python(dict(values), **by)
    return cast("BaseModel", made)


def _misfit(schema: Schema, error: ValidationError) -> Misfit:
    """Return the refusal of the first field that Pydantic complains of, or of the model."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = first["loc"][0] if first["loc"] else ""
    name = schema.aliases.get(str(place), str(place))
    target = _target(schema, name) if name in schema.fields else None
    return Misfit(
        target, explained(error), type(first["input"]).__name__ if target and len(first["loc"]) == 1 else None
    )


def _partial(schema: Schema, owner: object, values: Mapping[str, Value], is_json: bool) -> Record:
    """Return the record of an input that lacks required fields; the model's own rules wait until it is complete."""
    made: dict[str, Value] = {}
    for name, field in schema.fields.items():
        if name in values or not field.info.is_required():
            made[name] = _part(field, values.get(name, MISSING), made, is_json)
    extra = freeze({name: value for name, value in values.items() if name not in schema.fields}, NO_HINT)
    _check_json(schema, extra)
    return Record(owner, made, extra, None, frozenset(values.keys() & schema.fields.keys()))


def _part(field: StateField, value: Value, made: Mapping[str, Value], is_json: bool) -> Value:
    """Return one field's value: the one given, or the default."""
    try:
        if value is MISSING:
            return freeze(attempt("the default factory", field.default, made), field.hint)
        check = field.full.of_json if is_json else field.full
        return freeze(attempt("a validator", check, to_json(value) if is_json else value, made), field.hint)
    except Unfit as error:
        why = str(error)
    raise Misfit(Target(field.name, field, False), why)


def _check_json(schema: Schema, extra: ReadOnlyDict) -> None:
    """Refuse extra values that are no JSON, where the schema does not type them."""
    if schema.extra_is_typed:
        return
    for name, value in extra.items():
        problem = json_problem(value)
        if problem:
            raise Unfit(f"the extra value '{name}' is no JSON value: it has {problem}")
