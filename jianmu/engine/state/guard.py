"""Subclasses of models whose instances refuse assignment, whatever the model itself allows.

They say that they are of the model itself, compare by fields and extras, and their copies are ordinary models.
"""

from __future__ import annotations

import copy
from abc import ABCMeta
from functools import lru_cache
from typing import Any, NoReturn, cast

from pydantic import BaseModel

from jianmu.engine.state.markers import Value
from jianmu.engine.state.readonly import FieldsDict, Hint, refuse

_DICT = BaseModel.__dict__["__dict__"]  # the real attribute, which a snapshot hides
held_fields = _DICT.__get__
hold_fields = _DICT.__set__


class Guard:
    """What is mixed into a model to make its instances read-only."""

    __slots__ = ()
    _guards: type[BaseModel]

    def __init_subclass__(cls) -> None:
        """Keep the model's own hook from being called for a class that its author did not write."""

    def __new__(cls, *args: Value, **kwargs: Value) -> Any:  # Any: a model, which Guard is not for the checker
        """Return an ordinary instance of the model, as `type(snapshot)(...)` is meant."""
        return cls._guards(*args, **kwargs)

    @property
    def __class__(self) -> type[BaseModel]:  # pyright: ignore[reportIncompatibleMethodOverride]  # says it is its model
        return self._guards

    def __setattr__(self, name: str, value: Value) -> NoReturn:
        held = held_fields(self)
        refuse(held.hint if type(held) is FieldsDict else Hint(name, f'update({{"{name}": value}})'))

    def __delattr__(self, name: str) -> NoReturn:
        held = held_fields(self)
        refuse(held.hint if type(held) is FieldsDict else Hint(name, f'update({{"{name}": Clear()}})'))

    def __eq__(self, other: object) -> bool:
        model = self._guards
        if model.__eq__ is not BaseModel.__eq__:
            return model.__eq__(cast("BaseModel", self), other)
        return isinstance(other, BaseModel) and _kind(self) is _kind(other) and _content(self) == _content(other)

    def __hash__(self) -> int:
        fn: Any = self._guards.__hash__  # Any: None for a model that cannot be hashed
        if fn is None:
            raise TypeError(f"unhashable type: '{self._guards.__name__}'")
        return fn(self)

    def __copy__(self) -> BaseModel:
        like = cast("BaseModel", self)
        return rebuilt(self._guards, _fields(like), like, copy.copy(like.__pydantic_extra__))

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> BaseModel:  # Any: deepcopy's own record
        return copy.deepcopy(self.__copy__(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:  # Any: as object has it
        return self.__copy__().__reduce_ex__(protocol)


class Lazy:
    """Stands on a snapshot's class for a list that is made when it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, snapshot: Any, owner: type) -> Value:  # Any: the class is made at run time
        waiting = snapshot and snapshot.waiting
        if not waiting or self.name not in waiting:
            raise AttributeError(self.name)
        value = held_fields(snapshot)[self.name] = waiting[self.name].shown()
        return value


class Snapshot(Guard):
    """What is mixed into a schema to make its snapshots."""

    __slots__ = ()
    waiting: dict[str, Any] | None  # Any: lists that were not made yet, by field
    record: Any  # Any: the state that it shows; the manager's own

    @property
    def __dict__(self) -> dict[str, Value]:  # pyright: ignore[reportIncompatibleVariableOverride]  # makes what waits
        waiting, held = self.waiting, held_fields(self)
        if waiting:
            order = self.record.values
            made = {name: waiting[name].shown() if name in waiting else held[name] for name in order}
            held = {**made, **{name: value for name, value in held.items() if name not in made}}
            hold_fields(self, held)
            _slot(self, "waiting", None)
        return held


def _slot(snapshot: object, name: str, value: Value) -> None:
    object.__setattr__(snapshot, name, value)


def _kind(model: Any) -> object:  # Any: a model or a guard
    return model.__pydantic_generic_metadata__["origin"] or model.__class__


def _fields(model: BaseModel) -> dict[str, Value]:
    held = model.__dict__
    return {name: held[name] for name in model.__class__.__pydantic_fields__ if name in held}


def _content(model: Any) -> tuple[Value, Value]:  # Any: a model or a guard
    return _fields(model), model.__pydantic_extra__ or {}


def rebuilt(cls: type[BaseModel], fields: dict[str, Value], like: BaseModel, extra: Value) -> BaseModel:
    """Return an instance of `cls` with these fields, and else what another one has; nothing is validated."""
    made = object.__new__(cls)
    hold_fields(made, fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(like.__pydantic_fields_set__))
    if not cls.__pydantic_root_model__:
        private = getattr(like, "__pydantic_private__", None)
        object.__setattr__(made, "__pydantic_extra__", extra)
        object.__setattr__(made, "__pydantic_private__", private and dict(private))
    return made


def instance(cls: type[BaseModel], record: Any, fields: dict[str, Value]) -> BaseModel:  # Any: the manager's own
    """Return an instance with these fields, and else what a record has; nothing is validated."""
    made = object.__new__(cls)
    hold_fields(made, fields)
    setter = object.__setattr__
    setter(made, "__pydantic_fields_set__", set(record.fields_set))
    setter(made, "__pydantic_extra__", record.extra if cls.model_config.get("extra") == "allow" else None)
    setter(made, "__pydantic_private__", record.private)
    return made


def snapshot(cls: type[BaseModel], record: Any, fields: dict[str, Value], waiting: dict[str, Any] | None) -> BaseModel:
    """Return a snapshot of a record (Any: the manager's own); `waiting` are lists to be made when they are read."""
    made = instance(cls, record, fields)
    _slot(made, "waiting", waiting)
    _slot(made, "record", record)
    return made


def snapshot_class(model: type[BaseModel], growing: tuple[str, ...]) -> type[BaseModel]:
    """Return the class of a schema's snapshots."""
    return _subclass(model, Snapshot, ("waiting", "record"), {name: Lazy(name) for name in growing})


@lru_cache(maxsize=256)
def guarded(model: type[BaseModel]) -> type[BaseModel]:
    """Return the read-only subclass of a model that validates assignments past its `__dict__`."""
    return _subclass(model, Guard, (), {})


def _subclass(model: type[BaseModel], mixin: type, slots: tuple[str, ...], more: dict[str, Value]) -> type[BaseModel]:
    """Return a subclass that shares all of the model's schema; Pydantic's metaclass would build another."""
    names = {"__module__": model.__module__, "__qualname__": model.__qualname__, "__doc__": model.__doc__}
    space: dict[str, Value] = {**more, **names, "__slots__": slots, "_guards": model}
    return ABCMeta.__new__(type(model), model.__name__, (mixin, model), space)
