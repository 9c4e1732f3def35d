"""What a schema says about its fields, and what a write says about its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from jianmu.errors import SchemaError

Value: TypeAlias = Any  # a field holds whatever its schema says
Fold: TypeAlias = Callable[[Value, Value], Value]
MISSING: Any = object()  # stands for a value that is not there
Scope: TypeAlias = Literal["run", "step", "call"]
FoldKind: TypeAlias = Literal["own", "ready", "append"]


class Marker:
    """The base of what may stand in a field's `Annotated`."""

    __slots__ = ()

    def _key(self) -> tuple[Value, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marker) and type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

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

    __slots__ = ("fn", "kind", "limit", "remove")

    def __init__(self, fn: Fold, *, remove: Fold | None = None) -> None:
        self.fn = fn
        self.remove = remove
        self.kind: FoldKind = "own"
        self.limit: int | None = None

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
