"""What the constructors of nodes check: numbers and functions that follow the state, children, ports."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast  # Any: a snapshot's type is the user's, and so are the values of ports

from py_trees.behaviour import Behaviour

from jianmu.engine.node import NodeMixin
from jianmu.engine.ports import Port
from jianmu.engine.tree import path_of
from jianmu.errors import RunError, SetupError

Number: TypeAlias = float | Callable[[Any], float]
"""A number, or a function of the snapshot that returns one."""

LONGEST = 100 * 366 * 86400.0


class Amount:
    """A number given to a node: fixed, or a function of the snapshot.

    Args:
        call: the call in which it stands, as the user would write it.
        given: the number or the function.
        least: the smallest number that makes sense.
        is_count: whether it has to be whole; else it is a number of seconds, or a plain number with `least=None`.

    Raises:
        SetupError: it is neither; at once.
    """

    def __init__(self, call: str, given: object, *, least: int | None = 0, is_count: bool = False) -> None:
        self._call = call
        self._least = least
        self._is_count = is_count
        self._given = given
        if callable(given):
            plain(call, given)
        elif not self._fits(given):
            raise SetupError(f"{call} takes {self._wanted}, or a function of the snapshot, not {given!r}")

    def of(self, node: NodeMixin) -> float:
        """Return the number for the state as it is now.

        Raises:
            RunError: the function returned something else; with the node's path.
        """
        number: Any = self._given(node.read_state()) if callable(self._given) else self._given  # Any: checked next
        if not self._fits(number):
            raise wrong_kind(node, self._call, self._wanted, number)
        return number

    def count(self, node: NodeMixin) -> int:
        """Return the number as a whole one."""
        return int(self.of(node))

    @property
    def _wanted(self) -> str:
        if self._least is None:
            return "a finite number"
        return f"a whole number from {self._least} up" if self._is_count else "seconds, from 0 to 100 years"

    def _fits(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self._is_count else int | float):
            return False
        if self._least is None:
            return math.isfinite(value)
        return value >= self._least and (self._is_count or value <= LONGEST)


def wrong_kind(node: NodeMixin, call: str, wanted: str, value: object) -> RunError:
    """Return the error for a user's function that returned something else than was wanted."""
    assert isinstance(node, Behaviour)
    path = path_of(node)
    text = f"node '{path}': the function given as {call} has to return {wanted}, not {type(value).__name__}"
    return RunError(text, path=path)


def is_async(fn: object) -> bool:
    """Whether a call of `fn` has to be awaited; objects with `async def __call__` count."""
    if isinstance(fn, type):
        return False
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  # its kind is looked at


def plain(call: str, fn: object) -> None:
    """Refuse what cannot be called inside a pass.

    Raises:
        SetupError: `fn` is no function, or is to be awaited.
    """
    if not callable(fn):
        raise SetupError(f"{call} takes a function, not {fn!r}")
    if is_async(fn):
        raise SetupError(f"{call} is called inside the pass, where nothing is awaited: write `def`, not `async def`")


def verdict(node: NodeMixin, call: str, value: object) -> bool:
    """Return what a condition has returned, if it is a bool.

    Raises:
        RunError: it is none; with the node's path.
    """
    if isinstance(value, bool):
        return value
    raise wrong_kind(node, call, "a bool", value)


def exceptions(call: str, on: object) -> tuple[type[Exception], ...]:
    """Return the exceptions that a node is to catch, as a tuple.

    Raises:
        SetupError: it is no class of exceptions and no tuple or list of them.
    """
    kinds = tuple(cast("list[Any]", on)) if isinstance(on, tuple | list) else (cast("Any", on),)  # Any: checked next
    if all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        return kinds
    raise SetupError(f"{call} takes classes of exceptions, on=(ValueError, OSError), not {on!r}")


def check_child(call: str, child: object) -> None:
    """Refuse what cannot be put below a node.

    Raises:
        SetupError: it is no node, or stands elsewhere in a tree.
    """
    if not isinstance(child, Behaviour):
        raise SetupError(f"{call} takes a node of a tree, not {child!r}")
    if child.parent is not None:
        above, name = child.parent.name, child.name
        raise SetupError(f"{call}: node '{name}' stands below '{above}' already: build a node for each place")


def give_ports(node: NodeMixin, ports: Mapping[str, Port], bound: Mapping[str, object]) -> None:
    """Give one node ports of its own and bind them."""
    vars(node)["declared_ports"] = dict(ports)
    node.bind_ports(bound)
