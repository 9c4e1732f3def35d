"""The state as JSON: how a write is told to a log, and the proof that it can be read back."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import cast

from pydantic import BaseModel
from pydantic_core import from_json

from jianmu.engine.state.change import Delta, Json
from jianmu.engine.state.core import Check, Core, any_part
from jianmu.engine.state.folding import Keys, Others, attempt, common
from jianmu.engine.state.freeze import SCALARS, Refused
from jianmu.engine.state.markers import Items, Value
from jianmu.engine.state.readonly import Growing, ReadOnlyDict, ReadOnlyList, ReadOnlySet, shown
from jianmu.engine.state.schema import Schema, StateField
from jianmu.errors import SchemaError

_PLAIN: dict[type[Value], type[Value]] = {ReadOnlyList: list, ReadOnlyDict: dict, ReadOnlySet: set}
_PLAIN.update(dict.fromkeys((OrderedDict, defaultdict, Counter), dict))
_NO_JSON = ("is-instance", "is-subclass", "callable", "complex", "arguments", "generator")
_NO_KEY = ("tuple", "list", "dict", "set", "frozenset", "model", "dataclass", "typed-dict")


def same(one: Value, other: Value) -> bool:
    """Whether two values are equal and of the same classes, at every depth; read-only ones count as ordinary."""
    if one is other:
        return True
    if isinstance(one, BaseModel):
        return isinstance(other, BaseModel) and one.__class__ is other.__class__ and _same_model(one, other)
    kind, other_kind = (_PLAIN.get(each, each) for each in (type(one), type(other)))
    if kind is not other_kind:
        return {kind, other_kind} == {int, float} and one == other
    if kind in _ALIKE:
        return _ALIKE[kind](one, other)
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  # a user's class makes anything of it: numpy's arrays have no single truth
        return False


def _same_items(one: Items, other: Items) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def _same_dicts(one: Keys, other: Keys) -> bool:
    return list(one) == list(other) and all(same(item, other[key]) for key, item in one.items())


_ALIKE: dict[type[Value], Callable[[Value, Value], bool]] = {list: _same_items, tuple: _same_items, dict: _same_dicts}


def _same_model(one: BaseModel, other: BaseModel) -> bool:
    held, found = one.__dict__, other.__dict__
    fields = all(same(held.get(name), found.get(name)) for name in one.__class__.__pydantic_fields__)
    return fields and same(one.__pydantic_extra__ or {}, other.__pydantic_extra__ or {})


def differs(old: Value, new: Value) -> bool:
    """Whether a write changed a value: scalars are compared, other values count as changed."""
    if old is new:
        return False
    return type(new) not in SCALARS or not (same(old, new) or (new != new and old != old))  # noqa: PLR0124  # nan


def to_json(field: StateField, value: Value) -> Json:
    """Return a field's value as JSON, by its own serializer.

    Raises:
        Refused: it has no JSON form.
    """
    return from_json(attempt("it has no JSON form: its serializer", field.text, shown(value)))


def _proven(field: StateField, value: Value, check: Check, others: Others) -> Json:
    """Return a value of a field, or a part of one, as JSON, after the proof that `check` reads it back as it was."""
    value = shown(value)
    try:
        text = attempt("its serializer", field.text, value)
        found = attempt("a validator", check.of_json, text, others)
    except Refused as error:
        error.why = f"it would not be read back from JSON: {error.why}"
        raise
    if not same(value, found):
        raise Refused("it would be read back different from what was written")
    return from_json(text)


def delta(name: str, field: StateField, old: Value, new: Value, others: Others, *, is_checked: bool) -> Delta:
    """Return the effect of a write of one field.

    Args:
        name: its full name.
        field: what holds for it.
        old: the value before.
        new: the value after.
        others: the other fields, for validators that ask.
        is_checked: whether what was written must prove that it can be read back.

    Raises:
        Refused: what was written has no JSON form, or comes back different.
    """

    def json(value: Value, check: Check) -> Json:
        return _proven(field, value, check, others) if is_checked else to_json(field, value)

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
    before, after = cast("Items", shown(old) or []), cast("Items", shown(new))
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
