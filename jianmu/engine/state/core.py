"""Taking a model's core schema apart, so that a field can be checked in parts.

Pydantic checks a model as a whole. A write needs less: the type of what comes in without the rules for the
result, the rules for the result without the items again, and the model's own rules without any field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast  # Any: core schemas are nested dicts of anything

from pydantic_core import SchemaValidator, from_json

from jianmu.engine.state.markers import Value

Core: TypeAlias = dict[str, Any]

_RULES = ("function-after", "function-wrap")
_WRAPPERS = ("default", "nullable", "function-before", *_RULES)
_ITEMS = dict.fromkeys(("list", "set", "frozenset"), ("items_schema",)) | {"dict": ("keys_schema", "values_schema")}
_SCALARS = ("int", "float", "str", "bytes", "decimal", "date", "datetime", "time", "timedelta")
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "max_digits", "decimal_places", "min_length", "max_length", "pattern")


class Parts(NamedTuple):
    """A model's core schema, taken apart."""

    fields: dict[str, Core]
    extras: Core | None  # of extra values, where they are typed
    after: Core | None  # the model's own rules, over any value
    has_entry_rules: bool  # whether the model has `before` or `wrap` validators
    definitions: dict[str, Core]
    config: Any

    def closed(self, schema: Core) -> Any:
        """Return a part together with what it refers to."""
        if not self.definitions:
            return schema
        return {"type": "definitions", "schema": schema, "definitions": list(self.definitions.values())}

    def validator(self, schema: Core) -> SchemaValidator:
        """Return a validator of one part."""
        return SchemaValidator(self.closed(schema), self.config)

    def wrapped(self, schema: Core) -> Iterator[Core]:
        """Yield a schema and all that is inside, down to the one that holds the value; references are resolved."""
        while schema["type"] == "definition-ref":
            schema = self.definitions[schema["schema_ref"]]
        yield schema
        if schema["type"] in _WRAPPERS:
            yield from self.wrapped(schema["schema"])

    def cut(self, schema: Core, before: bool, rules: bool, items: bool) -> Core:
        """Return a field's schema with or without its `before` validators, its other rules, and what items are."""
        schema = next(self.wrapped(schema))
        kind = schema["type"]
        if kind in _WRAPPERS:
            inner = self.cut(schema["schema"], before, rules, items)
            dropped = kind == "default" or (kind == "function-before" and not before) or (kind in _RULES and not rules)
            return inner if dropped else {**schema, "schema": inner}
        dropped_keys = _LIMITS if not rules and (kind in _SCALARS or kind in _ITEMS) else ()
        dropped_keys += () if items else _ITEMS.get(kind, ())
        return {key: value for key, value in schema.items() if key not in dropped_keys}


class Check:
    """One part of what a field's values must be; with a field's name its validators are told of the other fields."""

    __slots__ = ("_field", "_validator")

    def __init__(self, parts: Parts, schema: Core, field: str | None) -> None:
        self._field = field
        if field is not None:
            schema = {"type": "model-fields", "fields": {field: {"type": "model-field", "schema": schema}}}
        self._validator = parts.validator(schema)

    def __call__(self, value: Value, others: Mapping[str, Value] | None = None) -> Value:
        """Return the value as the schema has it; `others` are the other fields, for validators that ask."""
        if self._field is None:
            return self._validator.validate_python(value)
        return self._among(self._field, value, others, None)

    def of_json(self, text: bytes, others: Mapping[str, Value] | None = None) -> Value:
        """Return the value that a JSON text holds."""
        if self._field is None:
            return self._validator.validate_json(text)
        return self._among(self._field, from_json(text), others, False)

    def _among(self, field: str, value: Value, others: Mapping[str, Value] | None, strict: bool | None) -> Value:
        # validators are told of other fields by an assignment only
        made: Any = self._validator.validate_assignment(dict(others or {}), field, value, strict=strict)
        return made[0][field]


def taken_apart(core: Core) -> Parts | None:
    """Return the parts of a model's core schema, or None if it is not built as a model's."""
    definitions = {each["ref"]: each for each in core.get("definitions", ())}
    around: list[Core] = []
    while core["type"] != "model-fields":
        around.append(core)
        core = definitions.get(core.get("schema_ref", "")) or core.get("schema", {"type": "model-fields"})
    if "fields" not in core:
        return None
    after: Core | None = None
    for rule in reversed(around):
        if rule["type"] == "function-after":
            after = {"type": "function-after", "function": rule["function"], "schema": after or {"type": "any"}}
    fields = {name: field["schema"] for name, field in core["fields"].items()}
    has_entry_rules = any(each["type"] in ("function-before", "function-wrap") for each in around)
    config = next((each.get("config") for each in around if each["type"] == "model"), None)
    return Parts(fields, core.get("extras_schema"), after, has_entry_rules, definitions, config)


def any_part(schema: object, wanted: Callable[[Core], bool], closed: Callable[[Core], bool]) -> bool:
    """Whether a schema or one inside it is as wanted; into those that are `closed` it is not looked."""
    if isinstance(schema, list | tuple):
        return any(any_part(item, wanted, closed) for item in cast("list[object]", schema))
    if not isinstance(schema, dict):
        return False
    core = cast("Core", schema)
    if isinstance(core.get("type"), str):
        if closed(core):
            return False
        if wanted(core):
            return True
    return any(any_part(item, wanted, closed) for key, item in core.items() if key not in ("metadata", "cls"))


def asks(schema: Core) -> bool:
    """Whether a validator of a field asks for the other fields."""
    return any_part(schema, _takes_info, lambda part: part["type"] in ("model", "dataclass", "typed-dict"))


def _takes_info(schema: Core) -> bool:
    function = schema.get("function")
    return isinstance(function, dict) and cast("Core", function).get("type") == "with-info"
