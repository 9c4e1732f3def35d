"""Reading from a schema's annotations what is to be done with each field."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin  # Any: annotations and their metadata

from pydantic import BaseModel

from jianmu.engine.state.markers import Ephemeral, Fold, Internal, Marker, Reducer, Scope, Transient
from jianmu.errors import SchemaError

_UNION: Fold = operator.or_  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # typeshed names no types
_FLOWS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable)
_EXAMPLES: dict[type[Marker], str] = {Ephemeral: "Ephemeral(scope='run')", Reducer: "Reducer(fn)"}


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
    made: dict[str, Policy] = {}
    for name, info in model.__pydantic_fields__.items():
        _check_bases(model, name)
        made[name] = policy = _policy(model, name)
        needs = {"Ephemeral": policy.scope, "Transient": policy.transient, "Internal": not policy.in_input}
        marker, where = next((marker for marker, is_set in needs.items() if is_set), None), _where(model, name)
        if marker and info.is_required():
            raise SchemaError(
                f"{where} is {marker} and has no default to start from: write {name}: Annotated[...] = ..."
            )
        for alias in (info.alias, info.validation_alias, info.serialization_alias):
            if isinstance(alias, str) and alias != name and alias in model.__pydantic_fields__:
                raise SchemaError(f"{where} has the alias '{alias}', which is another field: choose another alias")
    return made


def unaliased(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what `type` aliases and a top `Annotated` stand for, and the metadata found on the way."""
    found: tuple[Any, ...] = ()
    while True:
        origin, args = get_origin(annotation), get_args(annotation)
        alias = annotation if hasattr(annotation, "__value__") else origin
        if origin is Annotated:
            annotation, found = args[0], (*found, *args[1:])
        elif not hasattr(alias, "__value__"):
            return annotation, found
        else:
            annotation = alias.__value__ if alias is annotation else alias.__value__[args]


def _policy(model: type[BaseModel], name: str) -> Policy:
    info, where = model.__pydantic_fields__[name], _where(model, name)
    annotation, more = unaliased(info.annotation)
    _check_depth(where, annotation)
    marks = [mark for mark in (_mark(where, each) for each in (*info.metadata, *more)) if mark is not None]
    reducers = [mark for mark in marks if isinstance(mark, Reducer)]
    if len(reducers) > 1:
        both = " and ".join(reducer.name for reducer in reducers)
        raise SchemaError(f"{where} has two reducers, {both}: keep one in Annotated[...]")
    scope: Scope | None = next((mark.scope for mark in marks if isinstance(mark, Ephemeral)), None)
    shown = next((mark for mark in marks if isinstance(mark, Internal)), Internal(input=True, output=True))
    return Policy(scope, Transient() in marks, shown.input, shown.output, reducers[0] if reducers else None)


def _where(model: type[BaseModel], name: str) -> str:
    return f"{model.__name__}.{name}"


def _mark(where: str, meta: Any) -> Marker | None:
    """Return the marker that a piece of metadata is or means."""
    if isinstance(meta, Marker):
        return meta
    if isinstance(meta, type):
        return _refuse_class(where, cast("type[Any]", meta))
    takes_two = callable(meta) and _takes_two(meta)
    if takes_two is None:
        raise SchemaError(f"{where} has {meta.__name__}, whose arguments are not known: write Reducer({meta.__name__})")
    if not takes_two:
        return None
    if not _is_function(meta):
        kind = type(meta).__name__
        raise SchemaError(f"{where} has a {kind} that takes two arguments: write Reducer(...) round it")
    if inspect.iscoroutinefunction(meta):
        raise SchemaError(f"{where} has the coroutine function {meta.__qualname__}: write a plain def")
    reducer = Reducer(cast("Fold", meta))
    reducer.kind = "append" if meta is operator.add else "ready" if meta is _UNION else "own"
    return reducer


def _refuse_class(where: str, meta: type[Any]) -> None:
    """Refuse a class where an instance was meant."""
    name = meta.__name__
    if issubclass(meta, Marker):
        raise SchemaError(f"{where} has the class {name} in its Annotated: write {_EXAMPLES.get(meta, f'{name}()')}")
    if not hasattr(meta, "__get_pydantic_core_schema__") and _takes_two(meta):
        raise SchemaError(
            f"{where} has the class {name}, which takes two arguments: write an instance of it, "
            f"or Reducer({name}) if it folds"
        )


def _takes_two(fn: Any) -> bool | None:
    """Whether it can be called with two positional arguments; None if that is not known."""
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return None if inspect.isroutine(fn) else False
    return True


def _is_function(meta: object) -> bool:
    return inspect.isroutine(meta) or isinstance(meta, functools.partial)


def _check_depth(where: str, annotation: Any) -> None:
    """Refuse markers and reducers below the top, and types that can be read only once."""
    if (get_origin(annotation) or annotation) in _FLOWS:
        raise SchemaError(f"{where} is an iterator, which can be read only once: write list[...]")
    for inner in get_args(annotation):
        below, metadata = unaliased(inner)
        if any(map(_is_lost, metadata)):
            raise SchemaError(
                f"{where} has a marker or reducer inside its annotation: write it at the top, "
                f"{where.rpartition('.')[2]}: Annotated[<the whole type>, ...]"
            )
        _check_depth(where, below)


def _is_lost(meta: Any) -> bool:
    """Whether a piece of metadata below the top was meant for the field."""
    if isinstance(meta, type):
        return issubclass(meta, Marker)
    return isinstance(meta, Marker) or (_is_function(meta) and bool(_takes_two(meta)))


def _check_bases(model: type[BaseModel], name: str) -> None:
    """Refuse a field that two bases declare with different policies, unless the model says which it means."""
    owners = [cls for cls in model.__mro__ if name in vars(cls).get("__annotations__", {})]
    models = [cls for cls in owners if issubclass(cls, BaseModel)]
    for other in models[1:]:
        if not issubclass(models[0], other) and _policy(models[0], name) != _policy(other, name):
            both = f"{models[0].__name__} and {other.__name__}"
            raise SchemaError(
                f"{_where(model, name)} is declared differently by {both}: "
                f"declare it in {model.__name__} as you mean it"
            )
