"""Lists, dicts and sets that refuse to be changed and are else what they seem.

`copy`, `deepcopy`, slices, `list(x)` and pickling give ordinary ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeAlias

from jianmu.engine.state.markers import Value
from jianmu.errors import StateWriteError

Memo: TypeAlias = dict[int, Any] | None  # Any: deepcopy's own record
Items: TypeAlias = list[Value]
Keys: TypeAlias = dict[Value, Value]
Elements: TypeAlias = set[Value]


class Hint:
    """Whose value a container is, and the call that changes it.

    Attributes:
        field: the name of the field.
        call: the line to write instead of changing the container in place.
    """

    __slots__ = ("call", "field")

    def __init__(self, field: str, call: str) -> None:
        self.field = field
        self.call = call


NO_HINT = Hint("", "update({...})")


def refuse(hint: Hint) -> NoReturn:
    """Raise the error for a change in place, with the call to write."""
    where = f"field '{hint.field}'" if hint.field else "it"
    raise StateWriteError(
        f"the state is read-only, and {where} is written by a call: {hint.call} (in a node: write_state for update)",
        field=hint.field or None,
    )


def _refuser(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *_: object, **__: object) -> NoReturn:  # Any: any of the containers
        refuse(self.hint)

    method.__name__ = name
    return method


class _ReadOnly:
    """What the containers have in common: their changing methods refuse, and their copies are ordinary."""

    __slots__ = ()
    changing: ClassVar[str] = ""
    plain: ClassVar[type] = object

    def __init_subclass__(cls) -> None:
        for name in vars(cls).get("changing", "").split():
            setattr(cls, name, _refuser(name))

    def __copy__(self) -> Value:
        return self.plain(self)

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[Value]]:
        return self.plain, (self.plain(self),)


class ReadOnlyList(_ReadOnly, list[Value]):
    """A list of a snapshot."""

    __slots__ = ("hint",)
    changing = "append extend insert remove pop clear sort reverse __setitem__ __delitem__ __iadd__ __imul__"
    plain = list

    def __init__(self, items: Items, hint: Hint) -> None:
        super().__init__(items)
        self.hint = hint

    def __deepcopy__(self, memo: Memo) -> Items:
        return copy.deepcopy(list(self), memo)


class ReadOnlyDict(_ReadOnly, dict[Value, Value]):
    """A dict of a snapshot."""

    __slots__ = ("hint",)
    changing = "__setitem__ __delitem__ clear pop popitem setdefault update __ior__"
    plain = dict

    def __init__(self, items: Keys, hint: Hint) -> None:
        super().__init__(items)
        self.hint = hint

    def __deepcopy__(self, memo: Memo) -> Keys:
        return copy.deepcopy(dict(self), memo)


class ReadOnlySet(_ReadOnly, set[Value]):
    """A set of a snapshot."""

    __slots__ = ("hint",)
    changing = (
        "add discard remove pop clear update difference_update intersection_update symmetric_difference_update "
        "__ior__ __iand__ __isub__ __ixor__"
    )
    plain = set

    def __init__(self, items: Elements, hint: Hint) -> None:
        super().__init__(items)
        self.hint = hint

    def __repr__(self) -> str:
        return repr(set(self))

    def __deepcopy__(self, memo: Memo) -> Elements:
        return copy.deepcopy(set(self), memo)


class FieldsDict(ReadOnlyDict):
    """The `__dict__` of a model in a snapshot: its fields are refused, what it caches on itself is not."""

    __slots__ = ("names",)
    changing = "__delitem__ clear pop popitem setdefault update __ior__"

    def __init__(self, items: Keys, hint: Hint) -> None:
        super().__init__(items, hint)
        self.names = frozenset(items)

    def __setitem__(self, key: Value, value: Value) -> None:
        if key in self.names:
            refuse(self.hint)
        super(ReadOnlyDict, self).__setitem__(key, value)


READ_ONLY: frozenset[type[Value]] = frozenset({ReadOnlyList, ReadOnlyDict, ReadOnlySet})
