"""What the nodes of this folder share: what they keep, what stands below them, options that follow the state."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeAlias, TypeVar  # Any: snapshots, and what users give

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator

from jianmu.engine.clock import Clock
from jianmu.engine.control import Control
from jianmu.engine.node import NodeMixin
from jianmu.engine.ports import Port
from jianmu.engine.tree import path_of
from jianmu.errors import RunError, SetupError

N = TypeVar("N", bound=Behaviour)
Number: TypeAlias = float | Callable[[Any], float]
"""A number, or a function of the snapshot that returns one."""
Shape: TypeAlias = tuple[Callable[[Any], bool], str]
"""Whether a value may be an option, and what may be one."""


class Keeping(NodeMixin, Behaviour):
    """A node that begins each entry with what its class has as `keeps` and `times`, and keeps it while it is RUNNING.

    `keeps` names attributes that are JSON; `times` those that are None or moments on the agent's clock, which are
    instants in a checkpoint: the time goes on while nothing runs.
    """

    keeps: ClassVar[tuple[str, ...]] = ()
    times: ClassVar[tuple[str, ...]] = ()

    def initialise(self) -> None:
        """Begin anew."""
        self.on_load()

    def on_load(self) -> None:
        """Keep nothing of what was; if the tree is loaded, `restore` follows where something was kept."""
        for name in (*self.keeps, *self.times):
            vars(self).pop(name, None)

    def memento(self) -> Any:  # Any: JSON
        """Return what is kept."""
        if self.status is not Status.RUNNING:
            return None
        moments = {name: getattr(self, name) for name in self.times}
        times = {name: due and dump_moment(self.context.clock, due) for name, due in moments.items()}
        return {name: getattr(self, name) for name in self.keeps} | times or None

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take back what was kept."""
        kept = {name: value[name] for name in self.keeps}
        times = {name: value[name] and load_moment(self.context.clock, value[name]) for name in self.times}
        vars(self).update(kept | times)

    def _after(self, seconds: float) -> float:
        return self.context.clock.now() + seconds

    def _rings(self, moment: float) -> bool:
        """Whether a moment has come; if not, the tree is ticked then."""
        left = moment - self.context.clock.now()
        if left > 0:
            self.context.wake(after=left)
        return left <= 0


def dump_moment(clock: Clock, moment: float) -> str:
    """Return a moment on a clock as an instant, UTC, in whole milliseconds, so that it is the same the next time."""
    instant = clock.utc() + timedelta(seconds=moment - clock.now())
    return (instant + timedelta(microseconds=-instant.microsecond % 1000)).isoformat()


def load_moment(clock: Clock, instant: str) -> float:
    """Return the moment of an instant."""
    return clock.now() + (datetime.fromisoformat(instant) - clock.utc()).total_seconds()


class Branch(Control, Keeping, Composite):
    """A composite of jianmu: it ticks its children by `steps()`."""

    def __init__(self, name: str, children: Sequence[Behaviour]) -> None:
        call = f'{type(self).__name__}("{name}"'
        if isinstance(children, Behaviour):
            raise SetupError(f"{call}, children) takes a list of nodes: write {call}, [...])")
        for child in children:
            check_child(f"{call}, children)", child)
        super().__init__(name, children)


class Wrapper(Control, Keeping, Decorator):
    """A decorator of jianmu: it ticks its child by `steps()`."""

    def __init__(self, name: str, child: Behaviour) -> None:
        check_child(f'{type(self).__name__}("{name}", child)', child)
        Decorator.__init__(self, name, child)

    def update(self) -> Status:
        """Return the child's status, and say what it says."""
        self.feedback_message = self.decorated.feedback_message
        return self.decorated.status


def check_child(call: str, child: object) -> None:
    """Refuse what is no node, or stands elsewhere in a tree."""
    if not isinstance(child, Behaviour):
        raise SetupError(f"{call} takes a node of a tree, not {child!r}")
    if child.parent is not None:
        above, name = child.parent.name, child.name
        raise SetupError(f"{call}: node '{name}' stands below '{above}' already: build a node for each place")


def around(node: Behaviour, kind: type[N] = Behaviour) -> list[N]:
    """Return the nodes above a node that are on the same state, the nearest first; of one kind, or all."""
    found: list[N] = []
    above: Any = node.parent
    while above is not None and getattr(above, "inner_state", None) is None:
        if kind is Behaviour or kind in type(above).__mro__:
            found.append(above)
        above = above.parent
    return found


def give_ports(node: NodeMixin, ports: Mapping[str, Port], bound: Mapping[str, object]) -> None:
    """Give one node ports of its own and bind them."""
    vars(node)["declared_ports"] = ports
    node.bind_ports(bound)


def is_number(value: object, kind: Any = int | float) -> bool:  # Any: a class, or several
    """Whether it is a number; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def whole(least: int) -> Shape:
    """Return the shape of whole numbers from `least` up."""
    return (lambda value: is_number(value, int) and value >= least), f"a whole number from {least} up"


ANYTHING: Shape = ((lambda _: True), "anything")
TEXT: Shape = ((lambda value: value is None or isinstance(value, str)), "a text or None")
TRUTH: Shape = ((lambda value: isinstance(value, bool)), "a bool")
FINITE: Shape = ((lambda value: is_number(value) and math.isfinite(value)), "a finite number")
SECONDS: Shape = ((lambda value: is_number(value) and 0 <= value <= 36600 * 86400), "seconds, from 0 to 100 years")


class Option:
    """An option of a node: a value, or a function of the snapshot; call it for the value as it is now.

    Raises:
        SetupError: it has another shape, or (with `is_function`) is no function; at once.
        RunError: the function returned something of another shape; when it is called.
    """

    def __init__(self, node: Any, name: str, given: Any, shape: Shape, *, is_function: bool = False) -> None:
        self._node, self._given, self._shape, self._call = node, given, shape, call_of(node, name)
        self.is_function = callable(given)
        self._is_fixed = isinstance(given, str | int | float | None)
        if is_function or callable(given):
            plain(node, name, given)
        elif not shape[0](given):
            raise SetupError(f"{self._call} takes {shape[1]}, or a function of the snapshot, not {given!r}")

    def __call__(self) -> Any:
        """Return the value as it is now."""
        if self._is_fixed:
            return self._given
        value = self._given(self._node.read_state()) if callable(self._given) else self._given
        return checked(self._node, self._call, self._shape, value)


def call_of(node: Behaviour, option: str) -> str:
    """Return the call with which a node is built, as the user would write it."""
    child = ", child" if isinstance(node, Decorator) else ""
    return f'{type(node).__name__}("{node.name}"{child}, {option}=...)'


def checked(node: Behaviour, call: str, shape: Shape, value: Any) -> Any:
    """Return what a user's function has returned, if it has the shape that is wanted."""
    fits, wanted = shape
    if fits(value):
        return value
    path, kind = path_of(node), type(value).__name__
    raise RunError(f"node '{path}': the function given as {call} has to return {wanted}, not {kind}", path=path)


def is_async(fn: object) -> bool:
    """Whether a call of `fn` has to be awaited; objects with `async def __call__` count."""
    if isinstance(fn, type):
        return False
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  # its kind is looked at


def plain_methods(node: Behaviour, *names: str) -> None:
    """Refuse methods of a subclass that cannot be called inside a pass."""
    for name in names:
        if is_async(getattr(node, name)):
            raise SetupError(
                f"{type(node).__name__}.{name}() is called inside the pass, where nothing is awaited: "
                f"write `def {name}(...)`, not `async def {name}(...)`"
            )


def plain(node: Behaviour, option: str, fn: object) -> None:
    """Refuse what cannot be called inside a pass."""
    if not callable(fn):
        raise SetupError(f"{call_of(node, option)} takes a function, not {fn!r}")
    if is_async(fn):
        raise SetupError(
            f"{call_of(node, option)} is called inside the pass, where nothing is awaited: write `def`, not `async def`"
        )
