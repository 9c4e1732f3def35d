"""Lists, dicts and sets that refuse to be changed and are else what they seem; lists that grow without a copy.

`copy`, `deepcopy`, slices, `list(x)` and pickling give ordinary ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container
from typing import Any, ClassVar, NoReturn, TypeAlias  # Any: containers hold whatever a schema says

from jianmu.engine.state.markers import Fn, Items, Value
from jianmu.errors import StateWriteError

Hint: TypeAlias = tuple[str, str]  # the field that a container belongs to, and the call that changes it
NO_HINT: Hint = ("", "update({...})")
_CHANGING: dict[type[Value], str] = {
    list: "append extend insert remove pop clear sort reverse __setitem__ __delitem__ __iadd__ __imul__",
    dict: "__setitem__ __delitem__ clear pop popitem setdefault update __ior__",
    set: "add discard remove pop clear update difference_update intersection_update symmetric_difference_update "
    "__ior__ __iand__ __isub__ __ixor__",
}


def refuse(hint: Hint) -> NoReturn:
    """Raise the error for a change in place, with the call to write."""
    field, call = hint
    where = f"field '{field}'" if field else "it"
    raise StateWriteError(
        f"the state is read-only, and {where} is written by a call: {call} (in a node: write_state for update)",
        field=field or None,
    )


def _refuser(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *_: object, **__: object) -> NoReturn:
        refuse(self.hint)

    method.__name__ = name
    return method


class _ReadOnly:
    __slots__ = ()
    plain: ClassVar[Callable[..., Any]]
    hint: Hint

    def __init_subclass__(cls) -> None:
        cls.plain = next(kind for kind in _CHANGING if issubclass(cls, kind))
        for name in _CHANGING[cls.plain].split():
            if name not in vars(cls):
                setattr(cls, name, _refuser(name))

    def __init__(self, items: Value, hint: Hint) -> None:
        self.plain.__init__(self, items)  # pyright: ignore[reportCallIssue]  # that of list, dict or set
        self.hint = hint

    def __copy__(self) -> Value:
        return self.plain(self)

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Value:
        return copy.deepcopy(self.plain(self), memo)

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[Value]]:
        return self.plain, (self.plain(self),)


class ReadOnlyList(_ReadOnly, list[Value]):
    """A list of a snapshot."""

    __slots__ = ("hint",)


class ReadOnlyDict(_ReadOnly, dict[Value, Value]):
    """A dict of a snapshot."""

    __slots__ = ("hint",)


class ReadOnlySet(_ReadOnly, set[Value]):
    """A set of a snapshot."""

    __slots__ = ("hint",)

    def __repr__(self) -> str:
        return repr(set(self))


class FieldsDict(ReadOnlyDict):
    """The `__dict__` of a model in a snapshot: its fields are refused, what it caches on itself is not."""

    __slots__ = ("names",)

    def __init__(self, items: dict[str, Value], hint: Hint, names: Container[str]) -> None:
        dict.__init__(self, items)  # pyright: ignore[reportUnknownMemberType]  # `dict[...]` would be made each time
        self.hint, self.names = hint, names

    def __setitem__(self, key: Value, value: Value) -> None:
        if key in self.names:
            refuse(self.hint)
        dict[Value, Value].__setitem__(self, key, value)


class Growing:
    """One version of a list; all versions share one buffer.

    A version that is not the newest copies the buffer before it grows, so a refused write leaves no trace.
    """

    __slots__ = ("buffer", "hint", "made", "places", "size")

    def __init__(self, buffer: Items, size: int, hint: Hint) -> None:
        self.buffer, self.size, self.hint = buffer, size, hint
        self.made: ReadOnlyList | None = None
        self.places: tuple[dict[Value, int], int] | None = None  # by key, of the first items of the buffer

    def grown(self, items: Items) -> Growing:
        """Return the version with these items at its end."""
        buffer = self.buffer if len(self.buffer) == self.size else self.buffer[: self.size]
        buffer.extend(items)
        made = Growing(buffer, self.size + len(items), self.hint)
        made.places = self.places if buffer is self.buffer else None
        return made

    def has_none(self, keys: Items, key: Fn) -> bool:
        """Whether no item has one of these keys, nor two the same; costs what has come since it was asked last."""
        places, known = self.places or ({}, 0)
        places.update({key(item): at for at, item in enumerate(self.buffer[known : self.size], known)})
        self.places = places, max(known, self.size)
        return len(places) >= self.size and all(places.get(one, self.size) >= self.size for one in keys)

    def shown(self) -> ReadOnlyList:
        """Return the list that readers see; made once."""
        if self.made is None:
            made = ReadOnlyList(self.buffer, self.hint)
            if len(made) > self.size:  # later versions have grown
                list[Value].__delitem__(made, slice(self.size, None))
            self.made = made
        return self.made


def shown(value: Value) -> Value:
    """Return a stored value as readers see it."""
    return value.shown() if type(value) is Growing else value
