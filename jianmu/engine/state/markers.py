"""What a schema says about its fields, what a write says about its value, and the ready reducers.

For each ready reducer an old `None` counts as empty, and a new one as nothing new. A reducer that returns the very
value that was there has changed nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, cast, get_args  # Any: a field holds whatever its schema says

from jianmu.errors import SchemaError

Value: TypeAlias = Any
Fold: TypeAlias = Callable[[Value, Value], Value]
Fn: TypeAlias = Callable[[Value], Value]
Key: TypeAlias = str | Callable[[Value], Value]
Items: TypeAlias = list[Value]
Scope: TypeAlias = Literal["run", "step", "call"]
MISSING: Value = object()  # stands for a value that is not there


class Marker:
    """The base of what may stand in a field's `Annotated`; those that say the same are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"


class Ephemeral(Marker):
    """The field is set back to its default at the entry of a scope.

    Args:
        scope: "run" (the entry of a run), "step" (of each `step()`) or "call" (of each model call).

    Raises:
        SchemaError: there is no such scope.
    """

    __slots__ = ("scope",)

    def __init__(self, scope: Scope) -> None:
        if scope not in get_args(Scope):
            raise SchemaError(f"there is no scope {scope!r}: write Ephemeral(scope='run'), 'step' or 'call'")
        self.scope: Scope = scope


class Transient(Marker):
    """The field is kept in memory only; after a load it holds its default."""

    __slots__ = ()


class Internal(Marker):
    """The field belongs to the tree: callers neither give nor get it.

    Args:
        input: it may be given in the input of a call all the same.
        output: it is in `agent.output` all the same.
    """

    __slots__ = ("input", "output")

    def __init__(self, input: bool = False, output: bool = False) -> None:
        self.input = input
        self.output = output


class Reducer(Marker):
    """How an `update` is folded into a field's value.

    Args:
        fn: called with the value before and the value written; returns the value after.
        remove: called with the value before and the keys of a `Remove`; returns the value after, and raises a
            `KeyError` with the key that is unknown. Without it the field refuses `Remove`.
    """

    __slots__ = ("fn", "key", "kind", "limit", "remove", "said")

    def __init__(self, fn: Fold, *, remove: Fold | None = None) -> None:
        self.fn = fn
        self.remove = remove
        self.kind: Literal["own", "ready", "append"] = "own"
        self.limit: int | None = None
        self.key: Fn | None = None  # of an item of a list that keeps one per key, and all of them
        self.said = ""  # the call that has made it

    def __repr__(self) -> str:
        return self.said or super().__repr__()

    @property
    def name(self) -> str:
        """What errors call the function."""
        return getattr(self.fn, "__qualname__", None) or repr(type(self.fn).__qualname__)


class Op:
    """The base of values that say what to do instead of what to fold."""

    __slots__ = ()


class Replace(Op):
    """The value itself, past the field's reducer: `update({"log": Replace([])})`."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Clear(Op):
    """Back to the field's default: `update({"log": Clear()})`."""

    __slots__ = ()


class Remove(Op):
    """Take out what has these keys, where the field's reducer knows keys: `update({"messages": Remove("id1")})`."""

    __slots__ = ("keys",)

    def __init__(self, *keys: Value) -> None:
        self.keys = keys


class ConflictError(ValueError):
    """Two values that have to be the same are not."""


def add_items(max: int | None = None) -> Reducer:
    """Return a reducer that appends.

    Args:
        max: how many of the newest items are kept.
    """
    limit = _positive(max)
    reducer = _ready("add_items", lambda old, new: _newest(_joined(old, new), limit), said=f"max={max}")
    reducer.kind, reducer.limit = "append", limit
    return reducer


def ordered_union(max: int | None = None) -> Reducer:
    """Return a reducer that appends what is not there yet; an item already there keeps its place.

    Args:
        max: how many of the newest items are kept.
    """
    limit = _positive(max)

    def fold(old: Items | None, new: Items | None) -> Items:
        made = _newest(_distinct(_joined(old, new)), limit)
        return old if old is not None and len(made) == len(old) and all(map(operator.is_, made, old)) else made

    return _ready(
        "ordered_union",
        fold,
        lambda old, keys: _without(old, keys, lambda item: item),
        said=f"max={max}",
    )


def merge_map() -> Reducer:
    """Return a reducer for dicts: new keys are added, known ones get their new value in their place."""

    def fold(old: Mapping[Value, Value] | None, new: Mapping[Value, Value] | None) -> dict[Value, Value]:
        return {**(old or {}), **new} if new else cast("dict[Value, Value]", {} if old is None else old)

    def remove(old: Mapping[Value, Value] | None, keys: tuple[Value, ...]) -> dict[Value, Value]:
        kept = dict(old or {})
        for key in dict.fromkeys(keys):
            del kept[key]
        return kept

    return _ready("merge_map", fold, remove)


def same_or_error(key: Key | None = None) -> Reducer:
    """Return a reducer that keeps the value that is there, and raises if another one comes.

    Args:
        key: what is compared: the name of a key or attribute, or a function; without it the whole value. A value
            without one says nothing.
    """

    def fold(old: Value, new: Value) -> Value:
        before, after = _identity(old, key), _identity(new, key)
        if before is None or after is None:
            return old if after is None else new
        if before != after:
            raise ConflictError("another one is there")
        return old

    return _ready("same_or_error", fold, said=f"key={key!r}")


def keep_first() -> Reducer:
    """Return a reducer that keeps the first value that is not `None`."""
    return _ready("keep_first", lambda old, new: new if old is None else old)


def upsert(key: Key, max: int | None = None) -> Reducer:
    """Return a reducer for lists: an item with a known key takes the place of the old one, others are appended.

    Args:
        key: the name of a key or attribute of the items, or a function of an item.
        max: how many of the newest items are kept.
    """
    return _keyed("upsert", key, _positive(max))


def add_by_id(id: Key = "id") -> Reducer:
    """Return a reducer for conversations: append, replace in place by id, remove by id.

    How the items are split into writes makes no difference, and one item may be given without a list around it. An
    append costs the same at any length.

    Args:
        id: the name of a key or attribute of the items, or a function of an item.
    """
    reducer = _keyed("add_by_id", id, None)
    reducer.key = lambda item: _of(item, id)
    return reducer


def _ready(name: str, fn: Fold, remove: Fold | None = None, said: str = "") -> Reducer:
    fn.__qualname__ = name
    reducer = Reducer(fn, remove=remove)
    reducer.kind, reducer.said = "ready", f"{name}({said})"
    return reducer


def _keyed(name: str, key: Key, limit: int | None) -> Reducer:
    def fold(old: Items | None, new: Items | None) -> Items:
        placed = {_of(item, key): item for item in _joined(old, new)}
        return _newest(list(placed.values()), limit)

    said = f"key={key!r}, max={limit}"
    return _ready(name, fold, lambda old, keys: _without(old, keys, lambda item: _of(item, key)), said)


def _positive(limit: int | None) -> int | None:
    if limit is not None and limit < 1:
        raise ValueError("max is at least 1; without it nothing is dropped")
    return limit


def _joined(old: Items | None, new: Items | None) -> Items:
    return [*(old or ()), *(new or ())]


def _newest(items: Items, limit: int | None) -> Items:
    return items if limit is None else items[-limit:]


def _of(item: Value, key: Key) -> Value:
    if not isinstance(key, str):
        return key(item)
    return cast("Mapping[str, Value]", item)[key] if isinstance(item, Mapping) else getattr(item, key)


def _identity(value: Value, key: Key | None) -> Value:
    """Return what `same_or_error` compares; None if the value says nothing."""
    if value is None or key is None:
        return value
    try:
        return _of(value, key)
    except (LookupError, AttributeError):
        return None


def _distinct(items: Items) -> Items:
    """Return the items without those that are equal to an earlier one; they need not be hashable."""
    try:
        return list(dict.fromkeys(items))
    except TypeError:
        return [item for at, item in enumerate(items) if item not in items[:at]]


def _without(items: Items | None, keys: tuple[Value, ...], key: Callable[[Value], Value]) -> Items:
    """Return the items without those of some keys. KeyError with the key that none has."""
    held = [(key(item), item) for item in items or ()]
    known = [one for one, _ in held]
    for one in keys:
        if one not in known:
            raise KeyError(one)
    return [item for one, item in held if one not in keys]
