"""Ready reducers. For each an old `None` counts as empty, and a new one as nothing new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from jianmu.engine.state.markers import Fold, FoldKind, Reducer, Value

Key: TypeAlias = str | Callable[[Value], Value]
Items: TypeAlias = list[Value]


class ConflictError(ValueError):
    """Two values that have to be the same are not."""


def _ready(fn: Fold, name: str, remove: Fold | None = None, kind: FoldKind = "ready") -> Reducer:
    fn.__qualname__ = name
    reducer = Reducer(fn, remove=remove)
    reducer.kind = kind
    return reducer


def add_items(max: int | None = None) -> Reducer:
    """Return a reducer that appends.

    Args:
        max: how many of the newest items are kept.
    """

    def fold(old: Items | None, new: Items | None) -> Items:
        return _newest([*(old or ()), *(new or ())], max)

    reducer = _ready(fold, "add_items", kind="append")
    reducer.limit = _positive(max)
    return reducer


def ordered_union(max: int | None = None) -> Reducer:
    """Return a reducer that appends what is not there yet; an item already there keeps its place.

    Args:
        max: how many of the newest items are kept.
    """
    limit = _positive(max)

    def fold(old: Items | None, new: Items | None) -> Items:
        return _newest(_distinct([*(old or ()), *(new or ())]), limit)

    def remove(old: Items | None, keys: tuple[Value, ...]) -> Items:
        return _without(old or [], keys, lambda item: item)

    return _ready(fold, "ordered_union", remove)


def merge_map() -> Reducer:
    """Return a reducer for dicts: new keys are added, known ones get their new value in their place."""

    def fold(old: Mapping[Value, Value] | None, new: Mapping[Value, Value] | None) -> dict[Value, Value]:
        return {**(old or {}), **(new or {})}

    def remove(old: Mapping[Value, Value] | None, keys: tuple[Value, ...]) -> dict[Value, Value]:
        kept = dict(old or {})
        for key in dict.fromkeys(keys):
            del kept[key]
        return kept

    return _ready(fold, "merge_map", remove)


def same_or_error(key: Key | None = None) -> Reducer:
    """Return a reducer that keeps the value that is there, and raises if another one comes.

    Args:
        key: what is compared: the name of a key or attribute, or a function; without it the whole value. A value
            without one says nothing.
    """

    def fold(old: Value, new: Value) -> Value:
        before, after = _identity(old, key), _identity(new, key)
        if after is None:
            return old
        if before is not None and before != after:
            raise ConflictError("it holds another one")
        return new if before is None else old

    return _ready(fold, "same_or_error")


def keep_first() -> Reducer:
    """Return a reducer that keeps the first value that is not `None`."""
    return _ready(lambda old, new: new if old is None else old, "keep_first")


def upsert(key: Key, max: int | None = None) -> Reducer:
    """Return a reducer for lists: an item with a known key takes the place of the old one, others are appended.

    Args:
        key: the name of a key or attribute of the items, or a function of an item.
        max: how many of the newest items are kept.
    """
    limit = _positive(max)

    def fold(old: Items | None, new: Items | None) -> Items:
        return _newest(_placed([*(old or ()), *(new or ())], key), limit)

    def remove(old: Items | None, keys: tuple[Value, ...]) -> Items:
        return _without(old or [], keys, lambda item: _of(item, key))

    return _ready(fold, "upsert", remove)


def add_by_id(id: Key = "id") -> Reducer:
    """Return a reducer for conversations: append, replace in place by id, remove by id.

    How the items are split into writes makes no difference.

    Args:
        id: the name of a key or attribute of the items, or a function of an item.
    """
    inner = upsert(id)
    return _ready(inner.fn, "add_by_id", inner.remove)


def _positive(limit: int | None) -> int | None:
    if limit is not None and limit < 1:
        raise ValueError("max is at least 1; without it nothing is dropped")
    return limit


def _newest(items: Items, limit: int | None) -> Items:
    return items if limit is None or len(items) <= limit else items[len(items) - limit :]


def _of(item: Value, key: Key) -> Value:
    """Return an item's key. LookupError or AttributeError if it has none."""
    if not isinstance(key, str):
        return key(item)
    return cast("Mapping[str, Value]", item)[key] if isinstance(item, Mapping) else getattr(item, key)


def _identity(value: Value, key: Key | None) -> Value:
    """Return what `same_or_error` compares; None if the value says nothing."""
    if value is None or key is None:
        return value
    if isinstance(key, str):
        return cast("Mapping[str, Value]", value).get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return key(value)


def _placed(items: Items, key: Key) -> Items:
    """Return the items, each later one in the place of an earlier one with its key."""
    places: dict[Value, Value] = {}
    for item in items:
        places[_of(item, key)] = item
    return list(places.values())


def _distinct(items: Iterable[Value]) -> Items:
    """Return the items without those that are equal to an earlier one; they need not be hashable."""
    found: Items = []
    hashed: set[Value] = set()
    for item in items:
        try:
            is_new = item not in hashed
            hashed.add(item)
        except TypeError:
            is_new = item not in found
        if is_new:
            found.append(item)
    return found


def _without(items: Items, keys: tuple[Value, ...], key: Callable[[Value], Value]) -> Items:
    """Return the items without those of some keys. KeyError with the key that none has."""
    gone = list(keys)
    for one in gone:
        if not any(key(item) == one for item in items):
            raise KeyError(one)
    return [item for item in items if key(item) not in gone]
