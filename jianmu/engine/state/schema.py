"""A state schema, read once: its fields, what is done with each, and the checks of their values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic_core import SchemaSerializer, SchemaValidator, from_json

from jianmu.engine.state import core
from jianmu.engine.state.freeze import SCALARS
from jianmu.engine.state.markers import Reducer, Value
from jianmu.engine.state.policy import Policy, policies, unaliased
from jianmu.engine.state.readonly import Hint
from jianmu.errors import SchemaError


class Check:
    """One part of what a field's values must be."""

    __slots__ = ("_field", "_validator")

    def __init__(self, parts: core.Parts, schema: core.Core, field: str | None) -> None:
        self._field = field
        self._validator = parts.validator(schema if field is None else core.named(schema, field))

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
        """Return the value as the validators have it that ask for other fields; only an assignment tells them."""
        held = dict(others or {})
        made: Any = self._validator.validate_assignment(held, field, value, strict=strict)  # Any: fields, extra, set
        return made[0][field]


class StateField:
    """One field of a schema, or what all extra values have in common.

    Attributes:
        name: its name; empty for extra values.
        annotation: its type, without what surrounds it.
        policy: what its markers say.
        hint: what read-only values of it say when they are changed in place.
        kind: "list", "dict", "set" or another core schema's type.
    """

    def __init__(self, parts: core.Parts, name: str, info: FieldInfo, policy: Policy, schema: core.Core) -> None:
        self.name = name
        self.info = info
        self.annotation: Any = unaliased(info.annotation)[0]  # Any: annotations
        self.policy = policy
        self.reducer: Reducer | None = policy.reducer
        self.hint = Hint(name, _call(name, self.reducer))
        self.type_text = type_text(info.annotation)
        self._read(parts, schema)

    def _read(self, parts: core.Parts, schema: core.Core) -> None:
        """Cut the checks of the field out of its core schema."""
        schema = core.bare(schema)
        wrapped = list(core.wrappers(parts, schema))
        self.kind: str = wrapped[-1]["type"]
        self.has_info = core.any_part(schema, core.takes_info, core.is_model)
        self.has_functions = any(part["type"].startswith("function") for part in wrapped)
        self.has_own_form = any("serialization" in part for part in wrapped)
        self.core = parts.closed(schema)
        bounds = {} if self.has_functions else wrapped[-1]
        self.min_length: int = bounds.get("min_length") or 0
        self.max_length: int | None = bounds.get("max_length")
        self.full = self._check(parts, schema)
        self.incoming = self._cut(parts, schema, before=True, rules=False, items=True)
        self.items = self._cut(parts, schema, before=False, rules=False, items=True)
        self.prepared = self._cut(parts, schema, before=True, rules=False, items=False) if self.has_functions else None
        self.full_result = self._cut(parts, schema, before=False, rules=True, items=True)
        self.result = self._cut(parts, schema, before=False, rules=True, items=False)
        self._serializer = SchemaSerializer(cast("Any", parts.closed(schema)), parts.config)  # Any: typed dicts

    def _check(self, parts: core.Parts, schema: core.Core) -> Check:
        return Check(parts, schema, self.name if self.has_info else None)

    def _cut(self, parts: core.Parts, schema: core.Core, *, before: bool, rules: bool, items: bool) -> Check:
        return self._check(parts, core.cut(parts, schema, before=before, rules=rules, items=items))

    @property
    def is_dict(self) -> bool:
        """Whether the field holds a dict, so that `field.key` can be bound."""
        return self.kind == "dict"

    @property
    def grows(self) -> bool:
        """Whether the field is a list to which updates are appended."""
        return self.kind == "list" and self.reducer is not None and self.reducer.kind == "append"

    @property
    def is_stored(self) -> bool:
        """Whether the field is in a checkpoint."""
        return not self.policy.transient and self.policy.scope != "call"

    def is_default(self, data: Value) -> bool:
        """Whether a JSON value is that of the default; a default need not be of the field's type."""
        if self.info.default_factory is not None or self.info.is_required():
            return False
        try:
            return from_json(self.text(self.info.default)) == data
        except (ValueError, TypeError):
            return False

    def text(self, value: Value) -> bytes:
        """Return a value as JSON text; Pydantic's warnings are left out, since they quote it."""
        return self._serializer.to_json(value, warnings=False)

    def default(self, others: dict[str, Value]) -> Value:
        """Return the field's default, taken afresh."""
        return self.info.get_default(call_default_factory=True, validated_data=others)


class Schema:
    """The facts of a state schema.

    Attributes:
        model: the Pydantic model itself.
        fields: its fields, by name.
        extra: what holds for extra values, or None where the schema has none.
        required: the names of the fields without a default.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        if not _is_model(model) or model.__pydantic_root_model__:
            raise SchemaError(f"a state schema is a subclass of pydantic.BaseModel with fields, not {model!r}")
        _complete(model)
        found = policies(model)
        parts = core.taken_apart(cast("core.Core", model.__pydantic_core_schema__))
        if parts is None:
            raise SchemaError(f"{model.__name__} builds its own core schema: state needs that of a plain model")
        infos = model.__pydantic_fields__
        self.model = model
        self.fields = {name: StateField(parts, name, infos[name], found[name], parts.fields[name]) for name in infos}
        self.required = tuple(name for name, info in infos.items() if info.is_required())
        self.aliases = _aliases(infos)
        self.computed = frozenset(model.__pydantic_computed_fields__)
        self.after: SchemaValidator | None = parts.validator(parts.after) if parts.after else None
        self.has_entry_rules = parts.has_entry_rules
        self.known_places = _places(parts) | self.aliases.keys()
        self.extra = _extra_field(parts) if model.model_config.get("extra") == "allow" else None
        self.extra_is_typed = parts.extras is not None

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The names of the fields that a caller may give."""
        return tuple(name for name, field in self.fields.items() if field.policy.in_input)

    @property
    def output_fields(self) -> tuple[str, ...]:
        """The names of the fields that a caller gets."""
        return tuple(name for name, field in self.fields.items() if field.policy.in_output)

    @property
    def types(self) -> dict[str, Any]:  # Any: annotations
        """The annotation of each field."""
        return {name: field.annotation for name, field in self.fields.items()}


def _is_model(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, BaseModel)


def type_text(annotation: Any) -> str:  # Any: annotations
    """Return an annotation as a user would write it."""
    annotation = _stripped(annotation)
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _stripped(annotation: Any) -> Any:  # Any: annotations
    """Return an annotation without metadata and aliases, at every depth."""
    annotation = unaliased(annotation)[0]
    origin, args = get_origin(annotation), get_args(annotation)
    if not args or origin in (Literal, Callable):
        return annotation
    inner = tuple(_stripped(each) for each in args)
    return functools.reduce(lambda one, other: one | other, inner) if origin in (Union, UnionType) else origin[inner]


def _call(name: str, reducer: Reducer | None) -> str:
    """Return the call that changes a field."""
    if reducer is not None and reducer.kind == "append":
        return f'update({{"{name}": [item]}})'
    return f'update({{"{name}": value}}), or transform_field("{name}", fn) with a fn that returns the new value'


def _complete(model: type[BaseModel]) -> None:
    """Resolve forward references and build what was deferred."""
    missing = None
    if not model.__pydantic_complete__:
        try:
            model.model_rebuild()
        except PydanticUndefinedAnnotation as error:
            missing = error.name
    if missing is not None:
        raise SchemaError(
            f"{model.__name__} refers to {missing}, which is not known yet: define it, "
            f"then call {model.__name__}.model_rebuild() where it is"
        )


def _aliases(infos: Mapping[str, FieldInfo]) -> dict[str, str]:
    """Return the field that each alias means."""
    found: dict[str, str] = {}
    for name, info in infos.items():
        alias = info.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        found.update({each: name for each in choices if isinstance(each, str) and each != name})
    return found


def _places(parts: core.Parts) -> frozenset[str]:
    """Return the names that a schema itself gives to places in a value; other texts there are a user's keys."""
    found: set[str] = set(parts.fields)

    def collect(schema: core.Core) -> bool:
        fields = schema.get("fields")
        if isinstance(fields, dict):
            found.update(cast("dict[str, object]", fields))
        return False

    core.any_part([*parts.fields.values(), *parts.definitions.values()], collect)
    return frozenset(found)


def _extra_field(parts: core.Parts) -> StateField:
    """Return what holds for extra values."""
    schema = parts.extras or {"type": "any"}
    return StateField(parts, "", FieldInfo(annotation=Any), Policy(), schema)  # pyright: ignore[reportArgumentType]  # Any is an annotation


__all__ = ["SCALARS", "Check", "Schema", "StateField", "type_text"]
