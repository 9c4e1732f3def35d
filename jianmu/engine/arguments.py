"""What callers may give to an agent: each argument's shape, and the error for one that does not have it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast  # Any: whatever a caller gives

from py_trees.behaviour import Behaviour
from py_trees.visitors import VisitorBase

from jianmu.engine.answers import ID, is_id
from jianmu.engine.limits import Limits
from jianmu.engine.state import StateManager
from jianmu.engine.tree import path_of
from jianmu.errors import SetupError

Shape: TypeAlias = tuple[Callable[[Any], bool], str]


def _has(*methods: str) -> Callable[[Any], bool]:
    return lambda value: value is None or all(callable(getattr(value, name, None)) for name in methods)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: value is None or (isinstance(value, kind) and not isinstance(value, bool))


def _is_seconds(value: Any) -> bool:  # Any: see above
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _is_visitors(value: Any) -> bool:  # Any: see above
    return isinstance(value, Iterable) and all(isinstance(each, VisitorBase) for each in cast("Iterable[Any]", value))


def _one_of(*words: str) -> Shape:
    return (lambda value: value in words), " or ".join(repr(word) for word in words)


SECONDS: Shape = (_is_seconds, "a number of seconds, 0 or more")
POLICY: Shape = _one_of("refuse", "queue", "withdraw")
LIMITS: Shape = (_is(Limits), "Limits(...)")
OPTIONS: dict[str, Shape] = {
    "state": (_is(StateManager), "a StateManager; a schema is given as state_schema="),
    "store": (_has("acquire", "take", "renew", "commit", "read", "move"), "a store, such as SQLiteStore(path)"),
    "clock": (_has("now", "utc", "sleep", "wait", "pump", "working"), "a clock, such as VirtualClock()"),
    "limits": LIMITS,
    "setup": (_is(Mapping), "a dict of arguments for setup()"),
    "visitors": (_is_visitors, "a list of py_trees visitors"),
    "human": (_has("__call__"), "an async function of the question"),
    "aliases": (_is(Mapping), "a dict of old paths and new ones"),
    "version": (_is(int), "a whole number"),
    "build": (_has("__call__"), "a function of the state that returns the tree"),
    "poll_answers": SECONDS,
    "max_block": SECONDS,
    "durability": _one_of("sync", "async", "exit"),
    "on_new_input": POLICY,
    "on_stall": _one_of("wait", "raise"),
    "poll_interval": SECONDS,
    "min_interval": SECONDS,
    "halt_timeout": SECONDS,
}
CALL: dict[str, Shape] = {
    "thread_id": (_is(str), "a text"),
    "deps": (lambda _: True, "anything"),
    "limits": LIMITS,
    "on_new_input": (lambda value: value is None or POLICY[0](value), POLICY[1]),
    "input_id": (lambda value: value is None or (isinstance(value, str) and is_id(value)), ID),
}


def check(shapes: Mapping[str, Shape], given: Mapping[str, Any]) -> None:  # Any: see above
    """Check arguments by name.

    Raises:
        SetupError: there is no such argument, or it has another shape.
    """
    for name, value in given.items():
        if name not in shapes:
            near = difflib.get_close_matches(name, shapes)
            hint = f"did you mean {near[0]}=?" if near else f"there are: {', '.join(shapes)}"
            raise SetupError(f"there is no argument {name}=: {hint}")
        fits, what = shapes[name]
        if not fits(value):
            shown = repr(value) if isinstance(value, str | int | float) else type(value).__name__
            raise SetupError(f"{name}={shown}: it takes {what}")


def check_root(root: object) -> None:
    """Refuse what is no root of a tree.

    Raises:
        SetupError: with what to give.
    """
    if isinstance(root, type):
        raise SetupError(f"Agent(root) takes a node, not the class {root.__name__}: write {root.__name__}(...)")
    if not isinstance(root, Behaviour):
        raise SetupError(f"Agent(root) takes a py_trees behaviour or BehaviourTree, not {type(root).__name__}")
    if root.parent is not None:
        raise SetupError(f"'{path_of(root)}' is a node inside of another tree: give Agent the root")
