"""Taking a model's core schema apart, so that a field can be checked in parts.

Pydantic checks a model as a whole. A write needs less: the type of what comes in without the rules for the
result, the rules for the result without the items again, and the model's own rules without any field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_core import SchemaValidator

Core: TypeAlias = dict[str, Any]  # Any: core schemas are nested dicts of anything

WRAPPERS = frozenset({"default", "nullable", "function-before", "function-after", "function-wrap"})
_RULES = ("function-after", "function-wrap")
_INNER: dict[str, tuple[str, ...]] = {
    "list": ("items_schema",),
    "set": ("items_schema",),
    "frozenset": ("items_schema",),
    "dict": ("keys_schema", "values_schema"),
}
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "max_digits", "decimal_places")
_LIMITS = ("min_length", "max_length", "pattern")
_SCALARS = frozenset({"int", "float", "str", "bytes", "decimal", "date", "datetime", "time", "timedelta"})


class Parts(NamedTuple):
    """A model's core schema, taken apart.

    Attributes:
        fields: the schema of each field.
        extras: the schema of extra values, or None if they are not typed.
        after: the model's own rules over any value, or None.
        has_entry_rules: whether the model has `before` or `wrap` validators.
        definitions: what the others refer to.
        config: the model's settings, as the core has them.
    """

    fields: dict[str, Core]
    extras: Core | None
    after: Core | None
    has_entry_rules: bool
    definitions: dict[str, Core]
    config: Any  # Any: the core's own dict

    def validator(self, schema: Core) -> SchemaValidator:
        """Return a validator of one part."""
        return SchemaValidator(cast("Any", self.closed(schema)), self.config)  # Any: core schemas are typed dicts

    def closed(self, schema: Core) -> Core:
        """Return a part together with what it refers to."""
        if not self.definitions:
            return schema
        return {"type": "definitions", "schema": schema, "definitions": list(self.definitions.values())}

    def resolved(self, schema: Core) -> Core:
        """Return a part itself instead of a reference to it."""
        seen = 0
        while schema["type"] == "definition-ref" and seen < len(self.definitions):
            schema, seen = self.definitions[schema["schema_ref"]], seen + 1
        return schema


def taken_apart(core: Core) -> Parts | None:
    """Return the parts of a model's core schema, or None if it is not built as a model's."""
    definitions = {each["ref"]: each for each in core.get("definitions", ())}
    around: list[Core] = []
    while core["type"] != "model-fields":
        around.append(core)
        core = definitions.get(core.get("schema_ref", "")) or core.get("schema", {"type": "model-fields"})
    if "fields" not in core:
        return None
    kinds = {each["type"] for each in around}
    config = next((each.get("config") for each in around if each["type"] == "model"), None)
    after = _over_any([each for each in around if each["type"] == "function-after"])
    fields = {name: field["schema"] for name, field in core["fields"].items()}
    has_entry_rules = bool(kinds & {"function-before", "function-wrap"})
    return Parts(fields, core.get("extras_schema"), after, has_entry_rules, definitions, config)


def _over_any(rules: list[Core]) -> Core | None:
    """Return the rules, innermost last in the list, as one schema over a value that is not checked else."""
    made: Core = {"type": "any"}
    for rule in reversed(rules):
        made = {"type": "function-after", "function": rule["function"], "schema": made}
    return made if rules else None


def bare(schema: Core) -> Core:
    """Return a field's schema without its default."""
    return schema["schema"] if schema["type"] == "default" else schema


def cut(parts: Parts, schema: Core, *, before: bool, rules: bool, items: bool) -> Core:
    """Return a part of a field's schema.

    Args:
        parts: what the schema is a part of.
        schema: the field's schema.
        before: keep the `before` validators of the whole value.
        rules: keep the other validators of the whole value, its bounds and lengths.
        items: keep the schemas of items, keys and values.
    """
    schema = parts.resolved(schema)
    kind = schema["type"]
    if kind in WRAPPERS:
        inner = cut(parts, schema["schema"], before=before, rules=rules, items=items)
        dropped = kind == "default" or (kind == "function-before" and not before) or (kind in _RULES and not rules)
        return inner if dropped else {**schema, "schema": inner}
    dropped_keys = () if rules or kind not in _SCALARS | _INNER.keys() else (*_BOUNDS, *_LIMITS)
    dropped_keys += () if items else _INNER.get(kind, ())
    return {key: value for key, value in schema.items() if key not in dropped_keys}


def container(parts: Parts, schema: Core) -> Core:
    """Return the schema below all that is wrapped around it."""
    schema = parts.resolved(schema)
    while schema["type"] in WRAPPERS:
        schema = parts.resolved(schema["schema"])
    return schema


def wrappers(parts: Parts, schema: Core) -> Iterator[Core]:
    """Yield a field's schema and all that is inside, down to the one that holds the value."""
    schema = parts.resolved(schema)
    yield schema
    while schema["type"] in WRAPPERS:
        schema = parts.resolved(schema["schema"])
        yield schema


def any_part(schema: object, wanted: Callable[[Core], bool], closed: Callable[[Core], bool] | None = None) -> bool:
    """Whether a schema or one inside it is as wanted; into those that are `closed` it is not looked."""
    if isinstance(schema, list | tuple):
        return any(any_part(item, wanted, closed) for item in cast("list[object]", schema))
    if not isinstance(schema, dict):
        return False
    core = cast("Core", schema)
    if isinstance(core.get("type"), str):
        if closed is not None and closed(core):
            return False
        if wanted(core):
            return True
    return any(any_part(item, wanted, closed) for key, item in core.items() if key not in ("metadata", "cls"))


def is_model(schema: Core) -> bool:
    """Whether a schema is of something with fields of its own."""
    return schema["type"] in ("model", "dataclass", "typed-dict")


def takes_info(schema: Core) -> bool:
    """Whether a validator in it asks for the other fields."""
    function = schema.get("function")
    return isinstance(function, dict) and cast("Core", function).get("type") == "with-info"


def named(schema: Core, name: str) -> Core:
    """Return a schema whose validators are told of the other fields, by `validate_assignment`."""
    return {"type": "model-fields", "fields": {name: {"type": "model-field", "schema": schema}}}
