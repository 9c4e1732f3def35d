"""Where a tree stands, as JSON, and how fresh nodes are put there.

1. A node's own `memento()` and `restore(value)` come first; stock nodes of py_trees have theirs here.
2. Nodes are numbered in tree order; the paths and class names of the numbers are written once.
3. Parents are restored before their children, since a node may build its children when it is restored.
4. The numbers of passes stay what they are, since their order counts; later passes get larger ones.

What a ForEach of py_trees' still has before it can be written if it is finite, and JSON that comes back as
it was; otherwise that ForEach and all below it start over. The blackboard is in no position.
"""

from __future__ import annotations

import copy
import itertools
import json
import time
from collections.abc import Callable, Collection
from typing import Any, cast  # Any: JSON, and stock nodes

from py_trees import behaviours, composites, decorators, timers
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator
from pydantic import JsonValue

from jianmu.engine import passes
from jianmu.engine.spots import GONE, Saved, Spot, refuse, version_of
from jianmu.engine.tree import paths
from jianmu.errors import CorruptRecordError

Position = dict[str, JsonValue]

STOCK = tuple(module.__name__ for module in (behaviours, composites, decorators, timers))
"""The modules of py_trees whose classes keep nothing between ticks that is not written here."""

TIMED = (decorators.Timeout, timers.Timer)
"""What keeps how many seconds it still has."""

KEPT: dict[type[Behaviour], tuple[str, ...]] = {
    behaviours.Periodic: ("count", "response"),
    behaviours.StatusQueue: ("current_queue",),
    behaviours.SuccessEveryN: ("count",),
    behaviours.TickCounter: ("counter",),
    decorators.Count: ("total_tick_count", "running_count", "success_count", "failure_count", "interrupt_count"),
    decorators.OneShot: ("final_status",),
    decorators.Repeat: ("success",),
    decorators.Retry: ("failures",),
}
"""The attributes of stock nodes that are kept: JSON, a Status, or a list of them."""


def _written(value: Any) -> JsonValue:
    if isinstance(value, list):
        return [_written(each) for each in cast("list[Any]", value)]
    return value.name if isinstance(value, Status) else value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(each) for each in cast("list[Any]", value)]
    return Status[value] if isinstance(value, str) else value


def _names(node: Behaviour) -> tuple[str, ...]:
    return next((KEPT[cls] for cls in type(node).__mro__ if cls in KEPT), ())


def _now(node: Behaviour) -> float:
    """Return the time on the clock of a Timer or Timeout."""
    return time.time() if isinstance(node, timers.Timer) else time.monotonic()


def _items(node: Any) -> JsonValue:
    """Return the items that a ForEach still has before it, the current one first; None if they cannot be written."""
    if node._current_item is None or not hasattr(node._iterator, "__length_hint__"):
        return None
    items = [node._current_item, *copy.copy(node._iterator)]
    try:
        return items if json.loads(json.dumps(items, allow_nan=False)) == items else None
    except (TypeError, ValueError):
        return None


def is_known(node: Behaviour) -> bool:
    """Whether all that a node keeps between ticks is written here: so it is for py_trees' own nodes."""
    return type(node).__module__ in STOCK or bool(_names(node)) or isinstance(node, (*TIMED, decorators.ForEach))


def dump(node: Any) -> JsonValue:
    """Return what a node keeps between ticks, apart from status and current child; None if that is nothing."""
    if hasattr(node, "memento"):
        return node.memento()
    if isinstance(node, TIMED):
        return node.finish_time - _now(node) if node.status is Status.RUNNING else None
    if isinstance(node, decorators.ForEach):
        return _items(node)
    return [_written(getattr(node, name)) for name in _names(node)] or None


def restore(node: Any, value: Any) -> None:
    """Give a node back what `dump` returned."""
    if hasattr(node, "restore"):
        node.restore(value)
    elif isinstance(node, TIMED):
        node.finish_time = _now(node) + value
    elif isinstance(node, decorators.ForEach):
        vars(node).update(_iterator=iter(value[1:]), _current_item=value[0])
        node.blackboard.set(node.target_key, value[0])
    else:
        node.__dict__.update(zip(_names(node), map(_read, value), strict=True))


def dump_position(root: Behaviour) -> Position:
    """Return where a tree stands.

    That is `paths` and `classes` of all nodes, `nodes`, by number, that are not as new, and `pass`, a number that
    is larger than those of all passes so far.
    """
    nodes = list(paths(root))
    numbers = {id(node): number for number, (node, _) in enumerate(nodes)}
    entries = ((number, _entry(node, numbers)) for number, (node, _) in enumerate(nodes))
    versions = {str(number): version_of(node) for number, (node, _) in enumerate(nodes) if version_of(node) is not None}
    position: Position = {
        "paths": [path for _, path in nodes],
        "classes": [type(node).__name__ for node, _ in nodes],
        "pass": next(passes.NUMBERS),
        "nodes": {str(number): entry for number, entry in entries if entry},
    }
    if versions:
        position["versions"] = versions
    return position


def keeps(node: Behaviour) -> bool:
    """Whether a node may keep something between ticks."""
    return hasattr(node, "memento") or isinstance(node, (*TIMED, decorators.ForEach)) or bool(_names(node))


def memento_of(node: Behaviour) -> JsonValue:
    """Return a node's memento; one that is INVALID and cannot say may never have been ticked, and keeps nothing."""
    if node.status is not Status.INVALID:
        return dump(node)
    try:
        return dump(node)
    except Exception:  # noqa: BLE001  # the attributes that it reads may be made by its first initialise()
        return None


def _entry(node: Behaviour, numbers: dict[int, int]) -> Position:
    memento = memento_of(node)
    entry = entry_of(node, numbers, memento is not None)
    return entry if memento is None else entry | {"memento": memento}


def with_result(memento: JsonValue, status: Status) -> JsonValue:
    """Return what a node has kept, and the result of its coroutine that came in while the run was parked."""
    return {**(memento if isinstance(memento, dict) else {}), "asked": [], "result": status.name}


def entry_of(node: Behaviour, numbers: dict[int, int], has_memento: bool) -> Position:
    """Return what is written of one node beside its memento."""
    entry: Position = {}
    if node.status is not Status.INVALID:
        entry["status"] = node.status.name
    current = getattr(node, "current_child", None)
    if id(current) in numbers:
        entry["child"] = numbers[id(current)]
    number, started = getattr(node, "activation", None), getattr(node, "async_started", -1)
    if (entry or has_memento) and number is not None and isinstance(node, Composite | Decorator):
        entry |= {"pass": number, "started": started} if started >= number else {"pass": number}
    return entry


def load_position(
    root: Behaviour,
    position: object,
    keeps: Callable[[Behaviour], bool] = lambda _: False,
    adopt: Callable[[Behaviour], None] | None = None,
    *,
    waiting: Collection[str] = (),
) -> None:
    """Put a tree to where another one stood; no callback of py_trees is called.

    A node with `on_load()` forgets by it what it has kept so far; then it gets its memento, if it had one.

    Args:
        root: the top of the tree.
        position: what `dump_position` returned; None: every node is made INVALID.
        keeps: whether a leaf that was RUNNING and has no memento stays so; others are INVALID, to be entered anew.
        adopt: called with each node before it is restored.
        waiting: the paths of nodes that have an open question or an unfinished effect.

    Raises:
        CorruptRecordError: it is no position.
        TreeMismatchError: the tree does not fit it. If the error names no node that is built at run time, nothing
            was changed.
    """
    saved = None if position is None else Saved(position, waiting)
    if saved is not None:
        refuse(saved.unfit({path: node for node, path in paths(root)}))
        _begin_after(saved.number)
    for node, path in paths(root):
        node.status = Status.INVALID
        if isinstance(node, Composite):
            node.current_child = None
        if adopt is not None:
            adopt(node)
        _set_back(node)
        if saved is not None and path in saved.at:
            _apply(saved.at[path], node, keeps)
    if saved is not None:
        refuse([(spot.was, GONE) for spot in saved.spots if spot.waits and spot.node is None])
        for spot in saved.spots:
            _go_on(spot)


def _set_back(node: Any) -> None:
    """Have a node forget what it has kept, where it can: it may have been of another thread."""
    if hasattr(node, "on_load"):
        node.on_load()


def _begin_after(number: int) -> None:
    """Have all passes to come get larger numbers than this one, which another process may have given."""
    if next(passes.NUMBERS) <= number:
        passes.NUMBERS = itertools.count(number + 1)


def _apply(spot: Spot, node: Behaviour, keeps: Callable[[Behaviour], bool]) -> None:
    """Put a node to where it stood; if it starts over, so does all that is below."""
    is_running = spot.status is Status.RUNNING
    spot.is_dropped = spot.above is not None and spot.above.is_dropped
    if is_running and type(node).__name__ != spot.cls:
        spot.is_dropped = True
        return
    spot.node = node
    if spot.is_dropped:
        return
    if spot.memento is not None:
        try:
            restore(node, spot.memento)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            text = f"what node '{spot.path}' has kept cannot be read ({type(error).__name__})"
            raise CorruptRecordError(text) from error
    elif is_running:
        is_kept = not isinstance(node, decorators.ForEach) if node.children else is_known(node) or keeps(node)
        spot.is_dropped = not is_kept
    node.status = Status.INVALID if spot.is_dropped else spot.status
    if spot.activation is not None:
        vars(node).update(activation=spot.activation, async_started=spot.started)


def _go_on(spot: Spot) -> None:
    """Tell a composite its current child, now that all nodes are there."""
    node, current = spot.node, spot.upto[-1].node if spot.upto else None
    if isinstance(node, Composite) and current is not None and current in node.children:
        index = node.children.index(current)
        node.current_child = current
        vars(node).update(jianmu_parked=(index, node.children[index - 1] if index else None))
