"""A state schema, read once: its fields, what is done with each, the checks of their values, and what a key means.

1. A namespaced key is stored as "namespace.key" among the model's extra values.
2. The name of an ephemeral field means that field's variant; any other declared name is refused.
3. The runtime's own namespaces are kept beside the model, and only the runtime writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast, get_type_hints  # Any: annotations, and what fields hold

from pydantic import AliasChoices, BaseModel
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic_core import SchemaSerializer, from_json, to_json

from jianmu.engine.state.core import Check, Core, Parts, asks, taken_apart
from jianmu.engine.state.freeze import SCALARS, Refused, same
from jianmu.engine.state.markers import MISSING, Reducer, Value
from jianmu.engine.state.policy import Policy, policies, unaliased
from jianmu.engine.state.readonly import NO_HINT, Hint
from jianmu.errors import NamespaceError, SchemaError, StateWriteError, UnknownFieldError

_PLAIN = {"str", "int", "float", "bool"}  # types whose validation runs nothing of the user's
RUNTIME = frozenset({"interaction", "journal"})


class StateField:
    """One field of a schema, or what all extra values have in common.

    Attributes:
        name: its name; empty for extra values.
        annotation: its type, without what surrounds it.
        policy: what its markers say.
        reducer: what folds updates, or None.
        kind: "list", "dict", "set" or another core schema's type.
        is_dict: whether it holds a dict, so that `field.key` can be bound.
        plain_default: the default, validated, where no reset has to take it afresh; else MISSING.
    """

    def __init__(self, parts: Parts, name: str, info: FieldInfo, policy: Policy, schema: Core) -> None:
        self.name = name
        self.info = info
        self.annotation: Any = unaliased(info.annotation)[0]
        self.policy = policy
        self.reducer = policy.reducer
        self.hint = _hint(name, policy.reducer) if name else NO_HINT
        self.type_text = _type_text(info.annotation) if name else ""
        self.is_stored = not policy.transient and policy.scope != "call"
        schema = schema["schema"] if schema["type"] == "default" else schema
        wrapped = list(parts.wrapped(schema))
        self.kind: str = wrapped[-1]["type"]
        self.is_dict = self.kind == "dict"
        self.grows = self.kind == "list" and policy.reducer is not None and _appends(policy.reducer)
        self.has_info = asks(schema)
        self.has_functions = any(part["type"].startswith("function") for part in wrapped)
        self.has_own_form = any("serialization" in part for part in wrapped)
        self.core = parts.closed(schema)
        self.min_length: int = wrapped[-1].get("min_length") or 0
        self.max_length: int | None = wrapped[-1].get("max_length")

        made: list[tuple[Core, Check]] = []  # of many fields all checks are the same

        def check(before: bool, rules: bool, items: bool) -> Check:
            wanted = parts.cut(schema, before, rules, items)
            known = next((one for core, one in made if core == wanted), None)
            made.append((wanted, known or Check(parts, wanted, name if self.has_info else None)))
            return made[-1][1]

        self.full = check(before=True, rules=True, items=True)
        self.incoming = check(before=True, rules=False, items=True)
        self.prepared = check(before=True, rules=False, items=False)
        self.items = check(before=False, rules=False, items=True)
        self.result = check(before=False, rules=True, items=False)
        self.full_result = check(before=False, rules=True, items=True)
        self._serializer = SchemaSerializer(self.core, parts.config)
        self.plain_default = self._plain_default({part["type"] for part in wrapped})

    def _plain_default(self, types: set[str]) -> Value:
        """Return the default, validated, where it is the same each time; else MISSING."""
        default = self.info.default
        is_plain = types & _PLAIN or (default is None and "nullable" in types)
        if is_plain and type(default) in SCALARS and not (self.has_info or self.has_functions):
            with suppress(ValueError):
                return self.full(default)
        return MISSING

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
        types: the annotation of each field.
        extra: what holds for extra values, or None where the schema has none.
        input_fields: the names of the fields that a caller may give.
        output_fields: the names of the fields that a caller gets.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        is_model = isinstance(cast("object", model), type) and issubclass(cast("Any", model), BaseModel)
        if not is_model or model.__pydantic_root_model__:
            raise SchemaError(f"a state schema is a subclass of pydantic.BaseModel with fields, not {model!r}")
        _complete(model)
        found, infos = policies(model), model.__pydantic_fields__
        parts = taken_apart(cast("Core", model.__pydantic_core_schema__))
        if parts is None:
            raise SchemaError(f"{model.__name__} builds its own core schema: state needs that of a plain model")
        self.model = model
        self.fields = {name: StateField(parts, name, infos[name], found[name], parts.fields[name]) for name in infos}
        self.types: dict[str, Any] = {name: field.annotation for name, field in self.fields.items()}
        self.extra = _extra_field(parts) if model.model_config.get("extra") == "allow" else None
        self.extra_is_typed = parts.extras is not None
        self.folded = frozenset(name for name, field in self.fields.items() if field.reducer is not None)
        self.required = tuple(name for name, info in infos.items() if info.is_required())
        self.aliases = _aliases(infos)
        self.input_fields = tuple(name for name in infos if found[name].in_input)
        self.output_fields = tuple(name for name in infos if found[name].in_output)
        self.after = parts.validator(parts.after) if parts.after else None
        self.has_entry_rules = parts.has_entry_rules
        self.has_info = any(field.has_info for field in (*self.fields.values(), self.extra) if field)
        for name, field in self.fields.items():
            field.grows = field.grows and not hasattr(model, name)  # what a mixin has would hide a list not yet made
            _check_resets(model, field)

    def field_of(self, name: str) -> StateField | None:
        """Return what holds for a stored value, by its full name; None if there can be no such value."""
        _, dot, key = name.partition(".")
        field = self.fields.get(key if dot else name)
        return field if field and (not dot or (field.policy.scope and self.extra)) else self.extra

    def target(self, key: str, namespace: str | None) -> tuple[str, StateField]:
        """Return the full name that a key means, and what holds for its value.

        Raises:
            UnknownFieldError: the schema has no such field.
            NamespaceError: the namespace or the key cannot be used.
            StateWriteError: it is a computed field.
        """
        field = self.fields.get(key)
        if namespace is None and field is not None:
            return key, field
        _check_key(key)
        if namespace is not None:
            return self._namespaced(key, namespace)
        if key in self.aliases:
            name = self.aliases[key]
            return name, self.fields[name]
        if key in self.model.__pydantic_computed_fields__:
            raise StateWriteError(f"field '{key}' is computed: write the fields that it is computed from", field=key)
        return key, self._open(key)

    def check_namespace(self, namespace: object) -> None:
        """Refuse a namespace that a user cannot write."""
        if not isinstance(namespace, str) or not namespace or "." in namespace:
            raise NamespaceError("a namespace is a name that is not empty and has no dots")
        if namespace in RUNTIME:
            raise NamespaceError(f"the namespace '{namespace}' is written by the runtime only")
        if self.extra is None:
            raise NamespaceError(
                f"the namespace '{namespace}' needs a schema that keeps extra values: "
                f"write model_config = ConfigDict(extra='allow') in {self.model.__name__}"
            )

    def _namespaced(self, key: str, namespace: str) -> tuple[str, StateField]:
        self.check_namespace(namespace)
        name, field = f"{namespace}.{key}", self.fields.get(key)
        if field is not None and field.policy.scope is None:
            raise NamespaceError(
                f"'{key}' is a field of {self.model.__name__}: in the namespace '{namespace}' choose another key, "
                f"or write the field itself without a namespace",
                field=name,
            )
        return name, field or cast("StateField", self.extra)

    def _open(self, key: str) -> StateField:
        """Return what holds for extra values, if this key may be one."""
        import difflib  # noqa: PLC0415  # only what is no field needs it

        known, cutoff = [*self.fields, *self.aliases], 0.8 if self.extra else 0.6
        near = [f"'{name}'" for name in difflib.get_close_matches(key, known, n=3, cutoff=cutoff)]
        if self.extra is not None and not near:
            return self.extra
        names = f"did you mean {' or '.join(near)}" if near else f"it has {', '.join(self.fields)}"
        raise UnknownFieldError(f"{self.model.__name__} has no field '{key}': {names}", field=key)


def _appends(reducer: Reducer) -> bool:
    return reducer.kind == "append" or reducer.key is not None


def _hint(name: str, reducer: Reducer | None) -> Hint:
    if reducer is not None and _appends(reducer):
        return name, f'update({{"{name}": [item]}})'
    return name, f'update({{"{name}": value}}), or transform_field("{name}", fn) with a fn that returns the new value'


def _type_text(annotation: Any) -> str:
    """Return an annotation without metadata, at every depth."""
    annotation = get_type_hints(type("Holder", (), {"__annotations__": {"x": annotation}}))["x"]
    is_class = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return annotation.__name__ if is_class else str(annotation).replace("typing.", "")


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
    found: dict[str, str] = {}
    for name, info in infos.items():
        alias = info.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        found.update({each: name for each in choices if isinstance(each, str) and each != name})
    return found


def _extra_field(parts: Parts) -> StateField:
    """Return what holds for extra values: the type that the schema declares, or JSON."""
    plain: Core = {"type": "function-plain", "function": {"type": "no-info", "function": _as_json}}
    info = FieldInfo(annotation=Any)  # pyright: ignore[reportArgumentType]  # Any is an annotation
    return StateField(parts, "", info, Policy(), parts.extras or plain)


def _as_json(value: Value) -> Value:
    try:
        is_json = same(value, from_json(to_json(value), allow_inf_nan=False))
    except ValueError:
        is_json = False
    if not is_json:
        raise Refused("extra values are JSON values: None, bool, int, finite float, str, list, dict with str as keys")
    return value


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not key:
        raise NamespaceError(f"a key is a name, not {type(key).__name__ if key else 'empty'}")
    if "." in key:
        space, _, rest = key.partition(".")
        raise NamespaceError(
            f"the key '{key}' has a dot: write update({{'{rest}': ...}}, namespace='{space}')", field=key
        )


def _check_resets(model: type[BaseModel], field: StateField) -> None:
    """Refuse an ephemeral field whose default is not of its type, since no reset could set it."""
    if field.policy.scope is None or field.info.default_factory is not None or field.has_info:
        return
    default, is_good = field.info.default, True
    try:
        field.full(default)
    except Exception:  # noqa: BLE001  # validators are a user's
        is_good = False
    if not is_good:
        given, wanted = type(default).__name__, field.type_text
        line = f"Annotated[{given}, ...]" if default is not None else f"Annotated[{wanted} | None, ...] = None"
        raise SchemaError(
            f"{model.__name__}.{field.name} is Ephemeral, and its default, {given}, is not {wanted}, so no reset could "
            f"set it: write {field.name}: {line}, or another default"
        )
