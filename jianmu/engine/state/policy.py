"""Reading from a schema's annotations what is to be done with each field."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jianmu.engine.state.markers import Ephemeral, Fold, Internal, Marker, Reducer, Scope, Transient, Value
from jianmu.errors import SchemaError

_UNION: Fold = operator.or_  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # typeshed names no types
_FLOWS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable)


class Policy(NamedTuple):
    """What a field's markers say."""

    scope: Scope | None = None
    transient: bool = False
    in_input: bool = True
    in_output: bool = True
    reducer: Reducer | None = None


def policies(model: type[BaseModel]) -> dict[str, Policy]:
    """Return the policy of each field of a schema.

    Raises:
        SchemaError: a field is declared in a way that cannot be meant; with the line to write.
    """
    fields = model.__pydantic_fields__
    for name in fields:
        _check_bases(model, name)
    made = {name: field_policy(model, name, field) for name, field in fields.items()}
    for name, field in fields.items():
        _check_default(model, name, field, made[name])
        _check_aliases(model, name, field)
    return made


def unaliased(annotation: Any) -> tuple[Any, tuple[Value, ...]]:  # Any: annotations
    """Return what `type` aliases and a top `Annotated` stand for, and the metadata found on the way."""
    found: tuple[Value, ...] = ()
    while True:
        origin, args = get_origin(annotation), get_args(annotation)
        alias = annotation if hasattr(annotation, "__value__") else origin
        if origin is Annotated:
            annotation, found = args[0], (*found, *args[1:])
            continue
        if not hasattr(alias, "__value__"):
            return annotation, found
        annotation = alias.__value__ if alias is annotation else alias.__value__[args]


def field_policy(model: type[BaseModel], name: str, field: FieldInfo) -> Policy:
    """Return what a field's own metadata says."""
    annotation, more = unaliased(field.annotation)
    _check_depth(model, name, annotation)
    marks = [mark for mark in (_mark(model, name, each) for each in (*field.metadata, *more)) if mark is not None]
    reducers = [mark for mark in marks if isinstance(mark, Reducer)]
    if len(reducers) > 1:
        both = " and ".join(reducer.name for reducer in reducers)
        raise SchemaError(f"{_where(model, name)} has two reducers, {both}: keep one in Annotated[...]")
    policy = Policy(reducer=reducers[0] if reducers else None)
    for mark in marks:
        policy = policy._replace(**_said(mark))
    return policy


def _said(mark: Marker) -> dict[str, Any]:  # Any: a policy's values
    """Return what a marker says of its field's policy."""
    if isinstance(mark, Ephemeral):
        return {"scope": mark.scope}
    if isinstance(mark, Internal):
        return {"in_input": mark.input, "in_output": mark.output}
    return {"transient": True} if isinstance(mark, Transient) else {}


def _where(model: type[BaseModel], name: str) -> str:
    return f"{model.__name__}.{name}"


def _mark(model: type[BaseModel], name: str, meta: Value) -> Marker | None:
    """Return the marker that a piece of metadata is or means."""
    if isinstance(meta, Marker):
        return meta
    if isinstance(meta, type):
        return _class_mark(model, name, cast("type[Any]", meta))  # Any: any class
    if not callable(meta) or not _takes_two(model, name, meta):
        return None
    if not _is_function(meta):
        kind = type(meta).__name__
        raise SchemaError(f"{_where(model, name)} has a {kind} that takes two arguments: write Reducer(...) round it")
    if inspect.iscoroutinefunction(meta):
        raise SchemaError(f"{_where(model, name)} has the coroutine function {meta.__qualname__}: write a plain def")
    return as_reducer(meta)


def as_reducer(fn: Value) -> Reducer:
    """Return the reducer that a function is; of the builtin ones it is known how they fold."""
    reducer = Reducer(fn)
    if fn is operator.add:
        reducer.kind = "append"
    elif fn is _UNION:
        reducer.kind = "ready"
    return reducer


def _class_mark(model: type[BaseModel], name: str, meta: type[Any]) -> None:  # Any: any class
    """Refuse a class where an instance was meant."""
    where = _where(model, name)
    if issubclass(meta, Marker):
        examples: dict[type[Marker], str] = {Ephemeral: "Ephemeral(scope='run')", Reducer: "Reducer(fn)"}
        example = examples.get(meta, f"{meta.__name__}()")
        raise SchemaError(f"{where} has the class {meta.__name__} in its Annotated: write {example}")
    if not hasattr(meta, "__get_pydantic_core_schema__") and _binds_two(meta):
        raise SchemaError(
            f"{where} has the class {meta.__name__}, which takes two arguments: write an instance of it, "
            f"or Reducer({meta.__name__}) if it folds"
        )


def _binds_two(fn: Value) -> bool | None:
    """Whether it can be called with two positional arguments; None if that is not known."""
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return None if inspect.isroutine(fn) else False
    return True


def _takes_two(model: type[BaseModel], name: str, fn: Value) -> bool:
    binds = _binds_two(fn)
    if binds is None:
        raise SchemaError(
            f"{_where(model, name)} has {fn.__name__}, whose arguments are not known: write Reducer({fn.__name__})"
        )
    return binds


def _check_depth(model: type[BaseModel], name: str, annotation: Any) -> None:  # Any: annotations
    """Refuse markers and reducers below the top, and types that can be read only once."""
    origin = get_origin(annotation) or annotation
    if origin in _FLOWS:
        raise SchemaError(f"{_where(model, name)} is an iterator, which can be read only once: write list[...]")
    for inner in get_args(annotation):
        if isinstance(inner, type) and not get_args(inner) and inner not in _FLOWS:
            continue
        below, metadata = unaliased(inner)
        if any(isinstance(meta, Marker) or _is_lost(model, name, meta) for meta in metadata):
            raise SchemaError(
                f"{_where(model, name)} has a marker or reducer inside its annotation: write it at the top, "
                f"{name}: Annotated[<the whole type>, ...]"
            )
        _check_depth(model, name, below)


def _is_lost(model: type[BaseModel], name: str, meta: Value) -> bool:
    """Whether a piece of metadata below the top was meant for the field."""
    if isinstance(meta, type):
        return issubclass(meta, Marker)
    return _is_function(meta) and bool(_binds_two(meta))


def _is_function(meta: object) -> bool:
    kind: type[Any] = type(meta)  # Any: partials of any function
    return inspect.isroutine(meta) or issubclass(kind, functools.partial)


def _check_default(model: type[BaseModel], name: str, field: FieldInfo, policy: Policy) -> None:
    if not field.is_required():
        return
    needs = {"Ephemeral": policy.scope, "Transient": policy.transient, "Internal": not policy.in_input}
    for marker, is_set in needs.items():
        if is_set:
            raise SchemaError(
                f"{_where(model, name)} is {marker} and has no default to start from: "
                f"write {name}: Annotated[...] = ..."
            )


def _check_aliases(model: type[BaseModel], name: str, field: FieldInfo) -> None:
    for alias in (field.alias, field.validation_alias, field.serialization_alias):
        if isinstance(alias, str) and alias != name and alias in model.__pydantic_fields__:
            raise SchemaError(
                f"{_where(model, name)} has the alias '{alias}', which is another field: choose another alias"
            )


def _check_bases(model: type[BaseModel], name: str) -> None:
    """Refuse a field that two bases declare with different policies, unless the model says which it means."""
    if name in vars(model).get("__annotations__", {}):
        return
    owners = list(dict.fromkeys(_owner(base, name) for base in model.__bases__))
    found = [owner for owner in owners if owner is not None]
    lasting = [one for one in found if not any(other is not one and issubclass(other, one) for other in found)]
    for base in model.__bases__:
        if issubclass(base, BaseModel) and name in base.__pydantic_fields__:
            _check_bases(base, name)
    known = {owner: _declared(owner, name) for owner in lasting}
    if len(set(map(repr, known.values()))) > 1 and len(set(known.values())) > 1:
        both = " and ".join(owner.__name__ for owner in lasting)
        raise SchemaError(
            f"{_where(model, name)} is declared differently by {both}: declare it in {model.__name__} as you mean it"
        )


def _owner(base: type, name: str) -> type | None:
    """Return the class that a base has a field from."""
    return next((cls for cls in base.__mro__ if name in vars(cls).get("__annotations__", {})), None)


def _declared(owner: type, name: str) -> Policy | None:
    """Return a field's policy as one class declares it."""
    if not issubclass(owner, BaseModel):
        return None
    return field_policy(owner, name, owner.__pydantic_fields__[name])
