"""Freezing what is written: a read-only copy, made once, at every depth, of models too.

A read-only model is of a subclass that says that it is the model itself, compares by fields and extras, and whose
copies are ordinary models.
"""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import io
import operator
import uuid
from abc import ABCMeta
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias, cast  # Any: values, and classes made at run time

from pydantic import BaseModel

from jianmu.engine.state.markers import MISSING, Op, Value
from jianmu.engine.state.readonly import FieldsDict, Hint, ReadOnlyDict, ReadOnlyList, ReadOnlySet, refuse, shown

MAX_DEPTH = 200
SCALARS: frozenset[type[Value]] = frozenset(
    {str, int, float, bool, type(None), bytes, complex, decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta}
)
_SHARED = SCALARS | {ReadOnlyList, ReadOnlyDict, ReadOnlySet}
_NOTHING = ()
_PLAIN: dict[type[Value], type[Value]] = {ReadOnlyList: list, ReadOnlyDict: dict, ReadOnlySet: set}
_PLAIN.update(dict.fromkeys((OrderedDict, defaultdict, Counter), dict))
_DICT = BaseModel.__dict__["__dict__"]  # the real attribute, which a snapshot hides
_fields_of = _DICT.__get__
_PARTS = "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"
_give_fields, _give_set, _give_extra, _give_private = (BaseModel.__dict__[name].__set__ for name in _PARTS)
_kind: Callable[[Value], type[Value]] = type  # the class itself, whatever it says that it is


class Refused(Exception):  # noqa: N818  # no error of a user
    """A value cannot be taken, and nothing was changed; the reason holds no values. It never leaves the package."""

    name: str | None = None  # the full name of what was to be written; None for the model as a whole
    takes: str = ""  # the type that it takes; empty for an extra value
    given: str | None = None  # the type of what was given, where it is known

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def at(self, name: str, takes: str, given: str | None = None) -> None:
        """Say what was to be written."""
        self.name, self.takes, self.given = name, takes, given


class Placed:
    """Has a refusal from inside say what was to be written: the name, and the types that it takes and was given."""

    __slots__ = ("_place",)

    def __init__(self, *place: str | None) -> None:
        self._place: Any = place

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, Refused):
            error.at(*self._place)


def freeze(value: Value, hint: Hint, depth: int = 0) -> Value:
    """Return a read-only copy of a value, or the value itself if it cannot change.

    Raises:
        Refused: it is nested too deeply, or holds an iterator, a coroutine or one of `Replace`, `Clear`, `Remove`.
    """
    kind = _kind(value)
    if kind in _SHARED:
        return value
    if depth > MAX_DEPTH:
        raise Refused(f"it is nested deeper than {MAX_DEPTH} levels, or holds itself")
    return _maker(kind)(value, hint, depth + 1)


@lru_cache(maxsize=1024)
def _maker(kind: type[Value]) -> Maker:
    """Return what freezes the values of a class."""
    if kind in _MAKERS:
        return _MAKERS[kind]
    if issubclass(kind, BaseModel):
        is_frozen = kind.model_config.get("frozen") and not kind.__private_attributes__
        return _frozen_model if is_frozen else _model
    return _tuple if issubclass(kind, tuple) else _object


def _object(value: Value, _: Hint, __: int) -> Value:
    refuse_op(value, "counts for a whole field only, it was found inside a value")
    refuse_flow(value)
    return value


def refuse_op(value: Value, why: str) -> None:
    """Refuse `Replace`, `Clear` and `Remove` where they mean nothing."""
    if isinstance(value, Op):
        raise Refused(f"{type(value).__name__} {why}")


def refuse_flow(value: Value) -> None:
    """Refuse what can be read only once, or is not there yet."""
    kind = _kind(value)
    if kind not in _SHARED and _flows(kind):
        if hasattr(value, "close"):
            value.close()
        raise Refused(f"{kind.__name__} is an iterator or a coroutine, of which the state keeps none")


@lru_cache(maxsize=1024)
def _flows(kind: type[Value]) -> bool:
    is_read_once = any(hasattr(kind, name) for name in ("__next__", "__anext__", "__await__"))
    return is_read_once and not issubclass(kind, io.IOBase)


def _tuple(value: tuple[Value, ...], hint: Hint, depth: int) -> tuple[Value, ...]:
    items = [freeze(item, hint, depth) for item in value]
    if all(map(operator.is_, items, value)):
        return value
    make: Callable[[list[Value]], tuple[Value, ...]] = getattr(value, "_make", tuple)
    return make(items)


def _frozen_model(value: BaseModel, hint: Hint, depth: int) -> BaseModel:
    """Return a model whose fields cannot be set: itself, if what they hold cannot change either."""
    for item in value.__dict__.values():
        if type(item) not in _SHARED and item is not _NOTHING:
            break
    else:
        if not value.__pydantic_extra__:
            return value
    return _model(value, hint, depth, is_frozen=True)


def _model(value: BaseModel, hint: Hint, depth: int, *, is_frozen: bool = False) -> BaseModel:
    cls, held = type(value), value.__dict__
    if _kind(held) is FieldsDict or issubclass(cls, Guard):
        return value
    fields: dict[str, Value] = {}
    for name in cls.__pydantic_fields__:
        if name in held:
            item = held[name]
            fields[name] = made = item if type(item) in _SHARED else freeze(item, hint, depth)
            is_frozen = is_frozen and made is item
    extra = None if value.__pydantic_extra__ is None else freeze(value.__pydantic_extra__, hint, depth)
    if is_frozen and not extra:
        return value
    private = getattr(value, "__pydantic_private__", None)
    made_of = _guarded(cls) if cls.model_config.get("validate_assignment") else cls
    fields = FieldsDict(fields, hint, cls.__pydantic_fields__)
    return instance(made_of, fields, value.__pydantic_fields_set__, extra, private and dict(private))


Maker: TypeAlias = Callable[[Any, Hint, int], Value]
_MAKERS: dict[type[Value], Maker] = {
    list: lambda value, hint, depth: ReadOnlyList([freeze(item, hint, depth) for item in value], hint),
    dict: lambda value, hint, depth: ReadOnlyDict(
        {key: item if type(item) in _SHARED else freeze(item, hint, depth) for key, item in value.items()}, hint
    ),
    set: lambda value, hint, depth: ReadOnlySet({freeze(item, hint, depth) for item in value}, hint),
    tuple: _tuple,
}
_MAKERS.update(dict.fromkeys((OrderedDict, defaultdict, Counter), _MAKERS[dict]))


class Guard:
    """What is mixed into a model to make its instances read-only."""

    __slots__ = ()
    _guards: type[BaseModel]

    def __init_subclass__(cls) -> None:
        """Keep the model's own hook from being called for a class that its author did not write."""

    def __new__(cls, *args: Value, **kwargs: Value) -> Any:
        """Return an ordinary instance of the model, as `type(snapshot)(...)` is meant."""
        return cls._guards(*args, **kwargs)

    @property
    def __class__(self) -> type[BaseModel]:  # pyright: ignore[reportIncompatibleMethodOverride]  # says it is its model
        return self._guards

    def __setattr__(self, name: str, value: Value) -> NoReturn:
        refuse(self._hint(name, "value"))

    def __delattr__(self, name: str) -> NoReturn:
        refuse(self._hint(name, "Clear()"))

    def _hint(self, name: str, value: str) -> Hint:
        held = _fields_of(self)
        return held.hint if type(held) is FieldsDict else (name, f'update({{"{name}": {value}}})')

    def __eq__(self, other: object) -> bool:
        model = self._guards
        if model.__eq__ is not BaseModel.__eq__:
            return model.__eq__(cast("BaseModel", self), other)
        return isinstance(other, BaseModel) and _content(self) == _content(other)

    def __hash__(self) -> int:
        fn: Any = self._guards.__hash__
        if fn is None:
            raise TypeError(f"unhashable type: '{self._guards.__name__}'")
        return fn(self)

    def __copy__(self) -> BaseModel:
        like = cast("BaseModel", self)
        extra, private = copy.copy(like.__pydantic_extra__), like.__pydantic_private__
        return instance(self._guards, _content(like)[1], like.__pydantic_fields_set__, extra, private and dict(private))

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BaseModel:
        return copy.deepcopy(self.__copy__(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__copy__().__reduce_ex__(protocol)


class Snapshot(Guard):
    """What is mixed into a schema to make its snapshots; a list that has grown is made when it is asked for."""

    __slots__ = ()
    _jianmu_values: dict[str, Value]

    def __getattr__(self, name: str) -> Value:
        if name not in self._jianmu_values:
            return cast("Any", super()).__getattr__(name)
        value = _fields_of(self)[name] = shown(self._jianmu_values[name])
        return value

    @property
    def __dict__(self) -> dict[str, Value]:  # pyright: ignore[reportIncompatibleVariableOverride]  # makes what waits
        held, values = _fields_of(self), self._jianmu_values
        if not held.keys() >= values.keys():
            held = {**{name: shown(value) for name, value in values.items()}, **held}
            _DICT.__set__(self, held)
        return held


def _content(model: Any) -> tuple[object, dict[str, Value], dict[str, Value]]:
    """Return what two equal models have in common: the class, the fields and the extra values."""
    cls, held = model.__class__, model.__dict__
    fields = {name: held[name] for name in cls.__pydantic_fields__ if name in held}
    return model.__pydantic_generic_metadata__["origin"] or cls, fields, model.__pydantic_extra__ or {}


def same(one: Value, other: Value) -> bool:
    """Whether two values are equal and of the same classes, at every depth; read-only ones count as ordinary."""
    if one is other:
        return True
    kind, other_kind = _kind(one), _kind(other)
    if kind is other_kind and kind in SCALARS:
        return _equal(one, other)
    kind, other_kind = _PLAIN.get(kind, kind), _PLAIN.get(other_kind, other_kind)
    if kind is list or kind is tuple:
        return kind is other_kind and len(one) == len(other) and all(map(same, one, other))
    if kind is dict:
        return kind is other_kind and _same_dict(one, other)
    if isinstance(one, BaseModel):
        return _same_model(one, other)
    return _equal(one, other) if kind is other_kind else {kind, other_kind} == {int, float} and one == other


def _same_dict(one: dict[Value, Value], other: dict[Value, Value]) -> bool:
    return list(one) == list(other) and all(map(same, one.values(), other.values()))


def _same_model(one: BaseModel, other: BaseModel) -> bool:
    if one.__class__ is not other.__class__:
        return False
    held, found = one.__dict__, other.__dict__
    for name in one.__class__.__pydantic_fields__:
        value, like = held.get(name, MISSING), found.get(name, MISSING)
        if value is not like and not same(value, like):
            return False
    return _same_dict(one.__pydantic_extra__ or {}, other.__pydantic_extra__ or {})


def _equal(one: Value, other: Value) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001  # a user's class makes anything of it: numpy's arrays have no single truth
        return False


def differs(old: Value, new: Value) -> bool:
    """Whether a write changed a value: scalars are compared, other values count as changed."""
    if old is new:
        return False
    return type(new) not in SCALARS or not (same(old, new) or (new != new and old != old))  # noqa: PLR0124  # nan


def instance(
    cls: type[BaseModel],
    fields: dict[str, Value],
    fields_set: Collection[str],
    extra: dict[str, Value] | None,
    private: dict[str, Value] | None,
) -> BaseModel:
    """Return an instance of a model; nothing is validated."""
    made = object.__new__(cls)
    _give_fields(made, fields)
    _give_set(made, set(fields_set))
    if not cls.__pydantic_root_model__:
        _give_extra(made, None if extra is None or cls.model_config.get("extra") != "allow" else extra)
        _give_private(made, private)
    return made


def snapshot_class(model: type[BaseModel]) -> type[BaseModel]:
    """Return a class for the snapshots of a schema."""
    return _subclass(model, Snapshot, "_jianmu_values")


@lru_cache(maxsize=256)
def _guarded(model: type[BaseModel]) -> type[BaseModel]:
    """Return the read-only subclass of a model that validates assignments past its `__dict__`."""
    return _subclass(model, Guard)


def _subclass(model: type[BaseModel], mixin: type, *slots: str) -> type[BaseModel]:
    """Return a subclass that shares all of the model's schema; Pydantic's metaclass would build another."""
    names = {"__module__": model.__module__, "__qualname__": model.__qualname__, "__doc__": model.__doc__}
    return ABCMeta.__new__(type(model), model.__name__, (mixin, model), {**names, "__slots__": slots, "_guards": model})
