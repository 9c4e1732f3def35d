"""The door: what a question accepts, checked strictly before anything is changed.

1. An answer is a JSON value; it is stored as it was given, never as a type has changed it.
2. A Python type is checked as strict JSON: what a JSON client can send for that type, and nothing looser.
3. A JSON schema is checked by a small table if it is simple, else by `jsonschema`.
4. No text made here holds anything of the answer.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, cast  # Any: adapters of any type, core schemas, and jsonschema, which has no types
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic_core import from_json

from jianmu.errors import MissingExtraError, SetupError

JsonObject = dict[str, JsonValue]
Check = Callable[[JsonValue], str | None]

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue, config=ConfigDict(defer_build=True))
_COMPACT = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_NOTES = frozenset(
    ["title", "description", "default", "examples", "$schema", "$comment", "deprecated", "readOnly", "writeOnly"]
)
_TYPES: dict[object, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "array": list[Any],
    "object": dict[str, Any],
}
_FORMATS: dict[object, type] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
}
_LEVELS = 200  # deeper ones pydantic-core does not read
_QUIET = ("missing", "extra_forbidden", "enum", "literal_error")  # pydantic's words for these quote no answer


class Approval(BaseModel):
    """The answer to a request for approval; `true` and `false` are short for it.

    An approval is true where it was given: `if await self.ask(...):`.

    Attributes:
        approved: whether the thing shown may be done.
        edited_args: what to do it with instead, as JSON (`editedArgs` in the payload).
        reason: why, in the words of who decided.
        remember: whether the same need not be asked again.
    """

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True
    )

    approved: bool
    edited_args: JsonValue = Field(default=None, alias="editedArgs")
    reason: str | None = None
    remember: bool = False

    def __bool__(self) -> bool:
        """Whether it was approved."""
        return self.approved

    @model_validator(mode="before")
    @classmethod
    def _from_bool(cls, value: object) -> object:
        return {"approved": value} if isinstance(value, bool) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        """Return the schema with the short form in it."""
        return {"anyOf": [{"type": "boolean"}, {**handler(core_schema), "description": "true and false are short"}]}


@dataclass(frozen=True)
class Door:
    """What one question accepts.

    Attributes:
        schema: the JSON schema that is shown.
        check: returns what is wrong with a payload, or None.
        read: returns a payload that was checked as the node gets it, a new object each time.
    """

    schema: JsonObject
    check: Check
    read: Callable[[JsonValue], object]


def json_text(value: object) -> str:
    """Return a JSON value as compact text.

    Raises:
        ValueError: it is not made of JSON values only, or could not be read again; the text holds nothing of it.
    """
    problem = "with something in it that has no JSON form"
    try:
        text = _COMPACT.encode(value if type(value) is str else _JSON.validate_python(value))
        text.encode()
        if text.count("[") + text.count("{") > _LEVELS:
            problem = f"that is nested deeper than {_LEVELS} levels"
            from_json(text)
    except ValueError:
        pass
    else:
        return text
    raise ValueError(f"{type(value).__name__} {problem}")


ID = "a text of 1 to 512 characters, without NUL and lone surrogates"


def is_id(text: str) -> bool:
    """Whether a text can be the id of a thread or an input."""
    return 1 <= len(text) <= 512 and is_kept(text)


def is_kept(text: str) -> bool:
    """Whether every store keeps a text in a column of its own: it has no NUL and no lone surrogates."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def json_copy(value: object) -> JsonValue:
    """Return a copy of a JSON value; refuses what `json_text` refuses."""
    text = json_text(value)
    return cast("JsonValue", value) if value is None or type(value) in (str, bool) else json.loads(text)


def door_of(answer: object) -> Door:
    """Return the door for a Python type, or for a JSON schema given as a dict.

    Raises:
        SetupError: it is no type with a JSON schema, or no valid schema.
        MissingExtraError: the schema needs `jsonschema`.
    """
    if isinstance(answer, dict):
        given = _schema_copy(cast("object", answer))
        return Door(given, _check_of(given), json_copy)
    is_common = any(answer is kind for kind in cast("tuple[object, ...]", (str, int, float, bool, Approval)))
    return _door_of_common(cast("type", answer)) if is_common else _door_of_type(answer)


@functools.cache
def _door_of_common(kind: type) -> Door:
    return _door_of_type(kind)


def _door_of_type(kind: Any) -> Door:
    try:
        adapter = None if isinstance(kind, str) or inspect.isroutine(kind) else TypeAdapter[Any](kind)
        schema = None if adapter is None else json_copy(adapter.json_schema())
    except Exception:  # noqa: BLE001  # a type's own hooks run here and may raise anything
        adapter, schema = None, None
    if adapter is None or not isinstance(schema, dict):
        raise SetupError(f"answer={kind!r} cannot be asked for: give a type that has a JSON schema, or a JSON schema")
    return Door(schema, _misfit_check(adapter, schema), _reader(adapter))


def door_of_stored(schema: JsonObject) -> Door:
    """Return the door for the schema of a question that was asked in another process."""
    if schema == _approval().schema:
        return _approval()

    def check(payload: JsonValue) -> str | None:
        return _check_of(schema)(payload)  # built with each use: where nobody answers, no library is needed

    return Door(schema, check, json_copy)


def wants(schema: JsonObject) -> str:
    """Return what a schema asks for, short enough for an error's text."""
    text = json.dumps(schema, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:297]}..."


def _schema_copy(answer: object) -> JsonObject:
    try:
        return cast("JsonObject", json_copy(answer))
    except ValueError as error:
        problem = str(error)
    raise SetupError(f"answer= is no JSON schema: {problem}")


def _check_of(schema: JsonObject) -> Check:
    return _simple(schema) or _full(schema)


def _reader(adapter: TypeAdapter[Any]) -> Callable[[JsonValue], object]:
    return lambda payload: adapter.validate_json(json_text(payload), strict=True)


def _misfit_check(adapter: TypeAdapter[Any], schema: JsonObject) -> Check:
    shown = json.dumps(schema)

    def check(payload: JsonValue) -> str | None:
        try:
            adapter.validate_json(json_text(payload), strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return "; ".join(_told(shown, one["loc"], one["type"], one["msg"]) for one in found[:3])
        except Exception as error:  # noqa: BLE001  # a validator of the user's may raise anything
            return f"the check of its type raised {type(error).__name__}"
        return None

    return check


def _told(shown: str, loc: tuple[int | str, ...], code: str, message: str) -> str:
    """Return one fault: its place and pydantic's words for it, where they cannot quote the answer."""
    words = message if code in _QUIET or code.endswith("_type") else code
    return f"at {_place(shown, loc)}: {words}" if loc else words


def _place(shown: str, loc: tuple[int | str, ...]) -> str:
    """Return a place in an answer; keys that the schema does not name are the answer's own."""
    return ".".join(
        str(part) if isinstance(part, int) or not part or json.dumps(part) in shown else "*" for part in loc
    )


def _simple(schema: JsonObject) -> Check | None:
    """Return the check of a schema that needs no library, or None."""
    rules = {key: value for key, value in schema.items() if key not in _NOTES}
    kind, shape = rules.pop("type", None), rules.pop("format", None)
    if (kind == "array" and rules == {"items": {}}) or (kind == "object" and rules == {"additionalProperties": True}):
        rules = {}
    if isinstance(kind, list) or (shape is not None and (kind != "string" or shape not in _FORMATS)):
        return None
    if not rules:
        accepted = _FORMATS[shape] if shape else Any if kind is None else _TYPES.get(kind)
        return None if accepted is None else _misfit_check(TypeAdapter(accepted), schema)
    options = rules.get("enum", [rules["const"]] if "const" in rules else None)
    if len(rules) > 1 or not isinstance(options, list):
        return None
    return _option_check(options)


def _option_check(options: list[JsonValue]) -> Check:
    texts = {json_text(option) for option in options}
    return lambda payload: None if json_text(payload) in texts else "it is none of the options"


def _full(schema: JsonObject) -> Check:
    """Return the check of any schema, by `jsonschema`: formats count, 3.0 is no integer, nothing is fetched."""
    try:
        library = importlib.import_module("jsonschema")
    except ImportError:
        library = None
    if library is None:
        raise MissingExtraError(f"the JSON schema {wants(schema)}", "cli")
    validator = _validator(library, schema)
    shown = json.dumps(schema)

    def check(payload: JsonValue) -> str | None:
        try:
            found = next(validator.iter_errors(payload), None)
        except Exception as error:  # noqa: BLE001  # a reference that leads nowhere is found only here
            return f"its schema cannot be used ({type(error).__name__})"
        return None if found is None else f"at ${_place(shown, ('', *found.absolute_path))}: {found.validator}"

    return check


def _validator(library: Any, schema: JsonObject) -> Any:
    kind = library.validators.validator_for(schema, default=library.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except library.SchemaError as error:
        problem = str(error.message)
    else:
        types = kind.TYPE_CHECKER.redefine("integer", _is_integer)
        formats = library.FormatChecker(formats=())
        for name, accepted in _FORMATS.items():
            formats.checks(name)(_format_check(accepted))
        registry = importlib.import_module("referencing").Registry()
        return library.validators.extend(kind, type_checker=types)(schema, format_checker=formats, registry=registry)
    raise SetupError(f"answer= is no valid JSON schema: {problem}")


def _is_integer(_: object, value: object) -> bool:
    return type(value) is int


def _format_check(accepted: type) -> Callable[[object], bool]:
    check = _misfit_check(TypeAdapter(accepted), {})
    return lambda value: not isinstance(value, str) or check(value) is None


@functools.cache
def _approval() -> Door:
    return door_of(Approval)
