"""The state as JSON: how a write is told to a log, and the proof that it can be read back."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import ValidationError, from_json

from jianmu.engine.state import core
from jianmu.engine.state.delta import Delta, Json
from jianmu.engine.state.folding import Others, common, dict_of, explained
from jianmu.engine.state.freeze import SCALARS, Unfit
from jianmu.engine.state.growing import Growing, shown
from jianmu.engine.state.markers import Value
from jianmu.engine.state.namespaces import Target, extra_target
from jianmu.engine.state.readonly import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from jianmu.engine.state.record import Record
from jianmu.engine.state.refusal import Misfit
from jianmu.engine.state.schema import Check, Schema, StateField
from jianmu.errors import SchemaError

_PLAIN: dict[type[Value], type[Value]] = {ReadOnlyList: list, ReadOnlyDict: dict, ReadOnlySet: set}
_PLAIN.update(dict.fromkeys((OrderedDict, defaultdict, Counter), dict))
_NO_JSON = frozenset({"is-instance", "is-subclass", "callable", "complex", "arguments", "generator"})
_NO_KEY = frozenset({"tuple", "list", "dict", "set", "frozenset", "model", "dataclass", "typed-dict"})


def same(one: Value, other: Value) -> bool:
    """Whether two values are equal and of the same classes, at every depth; read-only ones count as ordinary."""
    if one is other:
        return True
    kind, other_kind = plain_kind(one), plain_kind(other)
    if isinstance(one, BaseModel):
        return isinstance(other, BaseModel) and one.__class__ is other.__class__ and _same_model(one, other)
    if kind is not other_kind:
        return {kind, other_kind} == {int, float} and one == other
    if kind in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if kind is dict:
        return list(one) == list(other) and all(same(item, other[key]) for key, item in one.items())
    return _equal(one, other)


def plain_kind(value: Value) -> type[Value]:
    """Return the class of a value, without what makes it read-only."""
    kind = cast("type[Value]", type(value))
    return _PLAIN.get(kind, kind)


def _same_model(one: BaseModel, other: BaseModel) -> bool:
    names = one.__class__.__pydantic_fields__
    held, found = one.__dict__, other.__dict__
    fields = all(same(held.get(name), found.get(name)) for name in names)
    return fields and same(one.__pydantic_extra__ or {}, other.__pydantic_extra__ or {})


def _equal(one: Value, other: Value) -> bool:
    """Compare by `==`, of which a user's class may make anything."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  # numpy's arrays have no single truth
        return False


def differs(old: Value, new: Value) -> bool:
    """Whether a write changed a value: scalars are compared, other values count as changed."""
    if old is new:
        return False
    return type(new) not in SCALARS or not (same(old, new) or (new != new and old != old))  # noqa: PLR0124  # nan


def to_json(field: StateField, value: Value) -> Json:
    """Return a field's value as JSON, by its own serializer.

    Raises:
        Unfit: it has no JSON form.
    """
    try:
        return from_json(field.text(shown(value)))
    except Exception as error:  # noqa: BLE001  # serializers are a user's
        why = f"it has no JSON form ({type(error).__name__})"
    raise Unfit(why)


def checked_json(field: StateField, value: Value, check: Check, others: Others) -> Json:
    """Return a value as JSON, after the proof that it is read back as it was.

    Args:
        field: the field.
        value: its value, or a part of it.
        check: reads it back.
        others: the other fields, for validators that ask.

    Raises:
        Unfit: it comes back different, or not at all.
    """
    value = shown(value)
    try:
        text = field.text(value)
        if same(value, check.of_json(text, others)):
            return from_json(text)
        why = "it would be read back different from what was written"
    except ValidationError as error:
        why = f"it would not be read back from JSON ({explained(error)})"
    except Exception as error:  # noqa: BLE001  # serializers and validators are a user's
        why = f"it would not be read back from JSON ({type(error).__name__})"
    raise Unfit(why)


class Deltas:
    """Makes the deltas of writes.

    Args:
        is_checked: whether what is written must prove that it can be read back.
    """

    def __init__(self, is_checked: bool) -> None:
        self.is_checked = is_checked

    def of(self, name: str, field: StateField, old: Value, new: Value, others: Others) -> Delta:
        """Return the effect of a write of one field.

        Raises:
            Unfit: what was written has no JSON form, or comes back different.
        """
        if self.is_checked and field.has_functions:
            self._json(field, new, field.full, others)
        if not field.has_own_form:
            if field.kind == "list" and isinstance(new, list | Growing):
                return self._of_list(name, field, old, new, others)
            if field.kind == "dict" and isinstance(new, dict) and isinstance(old, dict):
                delta = self._of_dict(name, field, dict_of(old), dict_of(new), others)
                if delta is not None:
                    return delta
            if isinstance(new, str) and isinstance(old, str) and old and len(new) > len(old) and new.startswith(old):
                return Delta(name, "append", self._json(field, new[len(old) :], field.items, others))
        return Delta(name, "set", self._json(field, new, field.full, others))

    def _json(self, field: StateField, value: Value, check: Check, others: Others) -> Json:
        return checked_json(field, value, check, others) if self.is_checked else to_json(field, value)

    def _of_list(self, name: str, field: StateField, old: Value, new: Value, others: Others) -> Delta:
        if type(old) is Growing and type(new) is Growing and old.buffer is new.buffer:
            start, deleted, items = old.size, 0, new.buffer[old.size : new.size]
        else:
            before, after = cast("list[Value]", shown(old) or []), cast("list[Value]", shown(new))
            start, kept = common(before, after)
            deleted, items = len(before) - start - kept, after[start : len(after) - kept]
        return Delta(name, "splice", [start, deleted, self._json(field, items, field.items, others) if items else []])

    def _of_dict(
        self, name: str, field: StateField, old: dict[Value, Value], new: dict[Value, Value], others: Others
    ) -> Delta | None:
        """Return what was set and deleted, or None if keys are no texts or the kept ones changed places."""
        gone = [key for key in old if key not in new]
        kept = [key for key in new if key in old]
        if not all(type(key) is str for key in new) or not all(type(key) is str for key in old):
            return None
        if kept != [key for key in old if key in new] or list(new)[: len(kept)] != kept:
            return None
        fresh = {key: item for key, item in new.items() if key not in old or old[key] is not item}
        return Delta(name, "keys", [self._json(field, fresh, field.items, others) if fresh else {}, gone])


def refuse_formless(schema: Schema) -> None:
    """Refuse fields whose type can be told to have no JSON form.

    Raises:
        SchemaError: with the field and the line to write.
    """
    for name, field in schema.fields.items():
        if field.is_stored and core.any_part(field.core, _has_no_form, _has_form):
            raise SchemaError(
                f"{schema.model.__name__}.{name} is {field.type_text}, which has no JSON form to be stored in: "
                f"give the type a serializer and a validator, or mark the field Transient()"
            )


def _has_form(schema: core.Core) -> bool:
    """Whether a part says itself what it is in JSON, whatever is inside."""
    return "serialization" in schema or schema["type"] == "json-or-python"


def _has_no_form(schema: core.Core) -> bool:
    keys = cast("dict[str, Any] | None", schema.get("keys_schema"))  # Any: core schemas
    return schema["type"] in _NO_JSON or (keys is not None and keys.get("type") in _NO_KEY)


def stored(schema: Schema, record: Record) -> dict[str, Json]:
    """Return all that is stored of a state, by full name.

    Raises:
        Misfit: a value has no JSON form.
    """
    return {one.name: _stored(one, record) for one in _targets(schema, record)}


def _stored(target: Target, record: Record) -> Json:
    why = None
    try:
        return to_json(target.field, record.read(target.name, target.is_extra))
    except Unfit as error:
        why = str(error)
    raise Misfit(target, why)


def _targets(schema: Schema, record: Record) -> list[Target]:
    """Return all of a state that is stored."""
    fields = [Target(name, field, False) for name, field in schema.fields.items() if name in record.values]
    extra = [one for name in record.extra if (one := extra_target(schema, name)) is not None]
    return [one for one in (*fields, *extra) if one.field.is_stored]
