"""What a person fills in for an answer, by the JSON schema that the answer has to fit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import JsonValue

from jianmu.engine.answers import JsonObject

Kind = Literal["text", "choice", "flag", "integer", "number", "json"]
Given = str | int | None
"""What stands in a field: a text, or the number of an option; None where nothing was chosen."""
MANY = 12
"""Fields from which on an object is written as JSON."""
WANTED = {
    "integer": "type a whole number",
    "number": "type a number",
    "json": "type JSON",
    "choice": "choose one",
    "flag": "choose yes or no",
}
_KINDS: dict[str, Kind] = {"string": "text", "boolean": "flag", "integer": "integer", "number": "number"}


class FormError(ValueError):
    """What was filled in is no answer.

    Attributes:
        field: the name of the field.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field


@dataclass(frozen=True)
class Field:
    """One thing to fill in.

    Attributes:
        name: the property of the answer, or an empty text where the field is the whole answer.
        label: what it is called.
        kind: how it is filled in.
        options: of a choice.
        is_required: whether it must not be left empty.
        may_be_null: whether an empty field means null.
        preset: what it begins with.
    """

    name: str
    label: str
    kind: Kind
    options: tuple[JsonValue, ...] = ()
    is_required: bool = True
    may_be_null: bool = False
    preset: JsonValue = None

    @property
    def texts(self) -> list[str]:
        """The options as texts."""
        return [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in self.options]


def is_approval(schema: JsonObject) -> bool:
    """Whether the answer approves or rejects something."""
    return any({"approved", "editedArgs"} <= set(_mapping(part.get("properties"))) for part in _parts(schema))


def fields_of(schema: JsonObject) -> tuple[Field, ...]:
    """Return what is to be filled in: one field for each property of a flat object, else one for the whole answer."""
    properties = _mapping(schema.get("properties"))
    if schema.get("type") == "object" and 0 < len(properties) <= MANY and not schema.get("patternProperties"):
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        return tuple(_field(name, _mapping(part), schema, name in names) for name, part in properties.items())
    return (_field("", schema, schema, True),)


def answer_of(fields: tuple[Field, ...], given: Mapping[str, Given]) -> JsonValue:
    """Return the answer that was filled in.

    Raises:
        FormError: a field has something that it cannot have, or nothing.
    """
    if len(fields) == 1 and not fields[0].name:
        return _value(fields[0], given.get(""))
    values = {field.name: _value(field, given.get(field.name)) for field in fields if not _is_left_out(field, given)}
    return cast("JsonValue", values)


def parse_json(text: str) -> JsonValue:
    """Return a JSON value.

    Raises:
        FormError: the text is none; the error says where it stops being one.
    """
    try:
        return cast("JsonValue", json.loads(text, parse_constant=_refuse))
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except RecursionError:
        problem = "not JSON: it is nested too deeply"
    except ValueError as error:
        problem = f"not JSON: {error}"
    raise FormError("", problem)


def parse_object(text: str) -> JsonObject:
    """Return a JSON object.

    Raises:
        FormError: the text is none.
    """
    value = parse_json(text)
    if isinstance(value, dict):
        return value
    raise FormError("", "arguments are a JSON object, {...}")


def _is_left_out(field: Field, given: Mapping[str, Given]) -> bool:
    return not field.is_required and not field.may_be_null and given.get(field.name) in (None, "")


def _value(field: Field, given: Given) -> JsonValue:
    if isinstance(given, int):
        return field.options[given] if field.kind == "choice" else bool(given)
    text = given or ""
    if not text and field.may_be_null:
        return None
    return text if field.kind == "text" else _read(field, text)


def _read(field: Field, text: str) -> JsonValue:
    """Return what a text means, in a field of another kind than text."""
    try:
        if field.kind == "integer":
            return int(text.strip())
        if field.kind == "number":
            return _number(text.strip())
        if field.kind == "json":
            return parse_json(text)
    except FormError as error:
        raise FormError(field.label if field.name else "", str(error)) from None
    except ValueError:
        pass
    name = field.label if field.name else ""
    raise FormError(name, WANTED[field.kind])


def _number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def _field(name: str, part: JsonObject, schema: JsonObject, is_required: bool) -> Field:
    part = _resolved(part, schema)
    inner = [_resolved(one, schema) for one in _objects(part.get("anyOf"))]
    others = [one for one in inner if one.get("type") != "null"]
    is_nullable = len(others) == 1 and len(inner) == 2
    what = others[0] if is_nullable else part
    title = part.get("title") or what.get("title")
    label = name if not isinstance(title, str) or not name else title
    options = _options(what)
    kind: Kind = "choice" if options else _KINDS.get(str(what.get("type")), "json")
    return Field(name, label, kind, options, is_required, is_nullable, part.get("default"))


def _options(part: JsonObject) -> tuple[JsonValue, ...]:
    """Return the values that a schema lists, if it lists all of them."""
    listed = part.get("enum", [part["const"]] if "const" in part else None)
    if isinstance(listed, list):
        return tuple(listed)
    parts = _objects(part.get("oneOf") or part.get("anyOf"))
    return tuple(one["const"] for one in parts) if parts and all("const" in one for one in parts) else ()


def _parts(schema: JsonObject) -> list[JsonObject]:
    return [_resolved(one, schema) for one in [schema, *_objects(schema.get("anyOf"))]]


def _resolved(part: JsonObject, schema: JsonObject) -> JsonObject:
    """Return a part of a schema, with a reference into `$defs` followed."""
    name = str(part.get("$ref", "")).removeprefix("#/$defs/")
    found = _mapping(_mapping(schema.get("$defs")).get(name))
    return {**found, **{key: value for key, value in part.items() if key != "$ref"}} if found else part


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: JsonValue) -> list[JsonObject]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")
