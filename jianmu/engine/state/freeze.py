"""Freezing what is written: a read-only copy, made once, at every depth."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import operator
import uuid
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import BaseModel

from jianmu.engine.state.guard import Guard, guarded, rebuilt
from jianmu.engine.state.markers import Op, Value
from jianmu.engine.state.readonly import READ_ONLY, FieldsDict, Hint, ReadOnlyDict, ReadOnlyList, ReadOnlySet

MAX_DEPTH = 200
SCALARS: frozenset[type[Value]] = frozenset(
    {str, int, float, bool, type(None), bytes, complex, decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta}
)
_SHARED = SCALARS | READ_ONLY
_BARRED = ("__next__", "__anext__", "__await__")


class Unfit(Exception):  # noqa: N818  # it never leaves the package, and is no error of a user
    """A value cannot be stored; the text says why and holds no values."""


_kind: Callable[[Value], type[Value]] = type  # the class itself, whatever it says that it is


def freeze(value: Value, hint: Hint, depth: int = 0) -> Value:
    """Return a read-only copy of a value, or the value itself if it cannot change.

    Raises:
        Unfit: it is nested too deeply, or holds an iterator, a coroutine or one of `Replace`, `Clear`, `Remove`.
    """
    kind = _kind(value)
    if kind in _SHARED:
        return value
    if depth > MAX_DEPTH:
        raise Unfit(f"it is nested deeper than {MAX_DEPTH} levels, or holds itself")
    maker = _MAKERS.get(kind) or _maker(value)
    return value if maker is None else maker(value, hint, depth + 1)


def _maker(value: Value) -> Maker | None:
    """Return what freezes a value that is of no plain container's exact type; None shares it."""
    kind = _kind(value)
    if isinstance(value, BaseModel):
        return _model
    if isinstance(value, tuple):
        return _tuple
    if isinstance(value, Op):
        raise Unfit(f"{kind.__name__} counts for a whole field only, it was found inside a value")
    refuse_flow(value)
    return None


def refuse_flow(value: Value) -> None:
    """Refuse what can be read only once, or is not there yet."""
    kind = _kind(value)
    if kind in _SHARED or kind in _MAKERS:
        return
    if any(hasattr(kind, name) for name in _BARRED) and not isinstance(value, io.IOBase):
        if hasattr(value, "close"):
            value.close()
        raise Unfit(f"{kind.__name__} is an iterator or a coroutine, of which the state keeps none")


def _list(value: list[Value], hint: Hint, depth: int) -> ReadOnlyList:
    return ReadOnlyList([freeze(item, hint, depth) for item in value], hint)


def _dict(value: dict[Value, Value], hint: Hint, depth: int) -> ReadOnlyDict:
    return ReadOnlyDict({key: freeze(item, hint, depth) for key, item in value.items()}, hint)


def _set(value: set[Value], hint: Hint, depth: int) -> ReadOnlySet:
    for item in value:
        freeze(item, hint, depth)
    return ReadOnlySet(value, hint)


def _tuple(value: tuple[Value, ...], hint: Hint, depth: int) -> tuple[Value, ...]:
    items = [freeze(item, hint, depth) for item in value]
    if all(map(operator.is_, items, value)):
        return value
    make: Callable[[list[Value]], tuple[Value, ...]] = getattr(value, "_make", tuple)
    return make(items)


def _model(value: BaseModel, hint: Hint, depth: int) -> BaseModel:
    cls, held = type(value), value.__dict__
    if _kind(held) is FieldsDict or issubclass(cls, Guard):
        return value
    names = [name for name in cls.__pydantic_fields__ if name in held]
    fields = {name: item if type(item := held[name]) in _SHARED else freeze(item, hint, depth) for name in names}
    config = cls.model_config
    is_frozen = config.get("frozen") and not value.__pydantic_extra__ and not cls.__private_attributes__
    if is_frozen and all([held[name] is item for name, item in fields.items()]):  # noqa: C419  # quicker as a list
        return value
    extra = freeze(value.__pydantic_extra__, hint, depth)
    return rebuilt(guarded(cls) if config.get("validate_assignment") else cls, FieldsDict(fields, hint), value, extra)


Maker: TypeAlias = Callable[[Any, Hint, int], Value]  # Any: each takes its own kind
_MAKERS: dict[type[Value], Maker] = {list: _list, dict: _dict, set: _set, tuple: _tuple}
_MAKERS.update(dict.fromkeys((OrderedDict, defaultdict, Counter), _dict))
