"""Which value a key means: a field, a field's variant in a namespace, or an extra value.

1. A namespaced key is stored as "namespace.key" among the model's extra values.
2. The name of an ephemeral field means that field's variant; any other declared name is refused.
3. The runtime's own namespaces are kept beside the model, and only the runtime writes them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple, cast

from jianmu.engine.state.markers import Value
from jianmu.engine.state.schema import Schema, StateField
from jianmu.errors import NamespaceError, StateWriteError, UnknownFieldError

RUNTIME = frozenset({"interaction", "journal"})


class Target(NamedTuple):
    """What a write or read means.

    Attributes:
        name: the full name.
        field: what holds for its value.
        is_extra: whether it is kept among the extra values.
    """

    name: str
    field: StateField
    is_extra: bool

    @property
    def is_variant(self) -> bool:
        """Whether it is a declared field's variant in a namespace."""
        return self.is_extra and bool(self.field.name)


def target(schema: Schema, key: str, namespace: str | None) -> Target:
    """Return what a key means.

    Raises:
        UnknownFieldError: the schema has no such field.
        NamespaceError: the namespace or the key cannot be used.
        StateWriteError: it is a computed field.
    """
    if namespace is not None:
        return _namespaced(schema, key, namespace)
    field = schema.fields.get(key)
    if field is not None:
        return Target(key, field, False)
    check_key(key)
    if key in schema.aliases:
        name = schema.aliases[key]
        return Target(name, schema.fields[name], False)
    if key in schema.computed:
        raise StateWriteError(f"field '{key}' is computed: write the fields that it is computed from", field=key)
    return Target(key, _open(schema, key), True)


def check_key(key: object) -> None:
    """Refuse a key that is no plain name."""
    if not isinstance(key, str) or not key:
        raise NamespaceError(f"a key is a name, not {type(key).__name__ if key else 'empty'}")
    if "." in key:
        space, _, rest = key.partition(".")
        raise NamespaceError(
            f"the key '{key}' has a dot: write update({{'{rest}': ...}}, namespace='{space}')", field=key
        )


def check_namespace(schema: Schema, namespace: object) -> None:
    """Refuse a namespace that a user cannot write."""
    if not isinstance(namespace, str) or not namespace or "." in namespace:
        raise NamespaceError("a namespace is a name that is not empty and has no dots")
    if namespace in RUNTIME:
        raise NamespaceError(f"the namespace '{namespace}' is written by the runtime only")
    if schema.extra is None:
        raise NamespaceError(
            f"the namespace '{namespace}' needs a schema that keeps extra values: "
            f"write model_config = ConfigDict(extra='allow') in {schema.model.__name__}"
        )


def _namespaced(schema: Schema, key: str, namespace: str) -> Target:
    check_namespace(schema, namespace)
    check_key(key)
    field = schema.fields.get(key)
    name = f"{namespace}.{key}"
    if field is None:
        return Target(name, schema.extra or _open(schema, key), True)
    if field.policy.scope is None:
        raise NamespaceError(
            f"'{key}' is a field of {schema.model.__name__}: in the namespace '{namespace}' choose another key, "
            f"or write the field itself without a namespace",
            field=name,
        )
    return Target(name, field, True)


def _open(schema: Schema, key: str) -> StateField:
    """Return what holds for extra values, if this key may be one."""
    near = difflib.get_close_matches(key, [*schema.fields, *schema.aliases], n=3, cutoff=0.8 if schema.extra else 0.6)
    if schema.extra is not None and not near:
        return schema.extra
    names = (
        "did you mean " + " or ".join(f"'{name}'" for name in near) if near else f"it has {', '.join(schema.fields)}"
    )
    raise UnknownFieldError(f"{schema.model.__name__} has no field '{key}': {names}", field=key)


def variant_of(schema: Schema, name: str) -> StateField | None:
    """Return the field of which an extra value is a variant, or None."""
    _, dot, key = name.partition(".")
    field = schema.fields.get(key) if dot else None
    return field if field is not None and field.policy.scope is not None else None


def extra_target(schema: Schema, name: str) -> Target | None:
    """Return what a stored extra value is, by its full name; None if the schema keeps no extra values."""
    field = variant_of(schema, name) or schema.extra
    return None if field is None or schema.extra is None else Target(name, field, True)


def json_problem(value: Value) -> str | None:
    """Return the type in a value that JSON does not have, or None."""
    if value is None or isinstance(value, str | bool | int):
        return None if type(value) in (str, bool, int, type(None)) else type(value).__name__
    if isinstance(value, float):
        return None if value - value == 0 else "a float that is not finite"
    if isinstance(value, dict):
        held = cast("dict[Value, Value]", value)
        keys = next((type(key).__name__ + " as a key" for key in held if not isinstance(key, str)), None)
        return keys or _first_problem(held.values())
    return _first_problem(cast("list[Value]", value)) if isinstance(value, list) else type(value).__name__


def _first_problem(items: Iterable[Value]) -> str | None:
    return next((found for item in items if (found := json_problem(item))), None)
