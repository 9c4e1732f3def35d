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
from collections.abc import Callable
from typing import Any, cast  # Any: JSON, and stock nodes

from py_trees import behaviours, composites, decorators, timers
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator
from pydantic import JsonValue

from jianmu.engine import passes
from jianmu.engine.tree import paths
from jianmu.errors import CorruptRecordError, TreeMismatchError

Position = dict[str, JsonValue]
Today = dict[str, Behaviour]

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


def version_of(node: Behaviour) -> JsonValue:
    """Return the version that a node's class declares, `version = 2`, or None."""
    version: object = getattr(type(node), "version", None)
    return version if isinstance(version, str | int) else None


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
) -> None:
    """Put a tree to where another one stood; no callback is called.

    Args:
        root: the top of the tree.
        position: what `dump_position` returned; None: every node is made INVALID.
        keeps: whether a leaf that was RUNNING and has no memento stays so; others are INVALID, to be entered anew.
        adopt: called with each node before it is restored.

    Raises:
        CorruptRecordError: it is no position.
        TreeMismatchError: a node that was RUNNING is not in this tree, or a composite goes on at a child that
            other children stand before now. If it names no node that is built at run time, nothing was changed.
    """
    stored = None if position is None else _Stored(position)
    if stored is not None:
        stored.check(root)
        _begin_after(stored.number)
    for node, path in paths(root):
        node.status = Status.INVALID
        if isinstance(node, Composite):
            node.current_child = None
        if adopt is not None:
            adopt(node)
        if stored is not None and path in stored.spots:
            stored.spots[path].apply(node, keeps)
    if stored is not None:
        stored.finish()


def _begin_after(number: int) -> None:
    """Have all passes to come get larger numbers than this one, which another process may have given."""
    if next(passes.NUMBERS) <= number:
        passes.NUMBERS = itertools.count(number + 1)


def check_position(root: Behaviour, position: object) -> None:
    """Refuse a position that does not fit a tree, as `load_position` does; nothing is changed."""
    if position is not None:
        _Stored(position).check(root)


class _Spot:
    """What a position says of one node."""

    def __init__(self, path: str, cls: str, above: _Spot | None, entry: dict[str, Any]) -> None:
        self.path = path
        self.cls = cls
        self.above = above
        self.below: list[_Spot] = []
        self.upto: list[_Spot] = []
        self.status = Status[entry.get("status", "INVALID")]
        self.memento: JsonValue = entry.get("memento")
        self.activation = int(entry["pass"]) if "pass" in entry else None
        self.started = int(entry.get("started", -1))
        self.node: Behaviour | None = None
        self.is_dropped = False

    def fits(self, today: Today) -> bool:
        """Whether the node is there, or may be built when one above it is restored."""
        if self.path in today:
            return type(today[self.path]).__name__ == self.cls
        above = self.above
        while above is not None and above.path not in today:
            above = above.above
        return above is not None and hasattr(today[above.path], "restore")

    def is_doubtful(self, today: Today) -> bool:
        """Whether the node is one of same-named siblings and has others beside it than before."""
        parent = None if self.above is None else today.get(self.above.path)
        if self.above is None or parent is None or hasattr(parent, "restore"):
            return False
        second = f"{self.path[: self.path.rindex('[')] if self.path.endswith(']') else self.path}[2]"
        before = [(each.path, each.cls) for each in self.above.below]
        beside = [(path, type(node).__name__) for path, node in today.items() if node.parent is parent]
        return second in dict(before + beside) and before != beside

    def has_moved(self, today: Today) -> bool:
        """Whether other children than before stand up to the one at which a composite with a memory goes on."""
        node = today.get(self.path)
        if node is None or (self.memento is None and not getattr(node, "memory", False)):
            return False
        return [today.get(each.path) for each in self.upto] != node.children[: len(self.upto)]

    def apply(self, node: Behaviour, keeps: Callable[[Behaviour], bool]) -> None:
        """Put the node to where it stood; if it starts over, so does all that is below."""
        self.node = node
        self.is_dropped = self.above is not None and self.above.is_dropped
        if self.is_dropped:
            return
        if self.memento is not None:
            try:
                restore(node, self.memento)
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                text = f"what node '{self.path}' has kept cannot be read ({type(error).__name__})"
                raise CorruptRecordError(text) from error
        elif self.status is Status.RUNNING:
            is_kept = not isinstance(node, decorators.ForEach) if node.children else is_known(node) or keeps(node)
            self.is_dropped = not is_kept
        node.status = Status.INVALID if self.is_dropped else self.status
        if self.activation is not None:
            vars(node).update(activation=self.activation, async_started=self.started)

    def go_on(self) -> None:
        """Tell a composite its current child, now that all nodes are there."""
        node, current = self.node, self.upto[-1].node if self.upto else None
        if isinstance(node, Composite) and current is not None and current in node.children:
            index = node.children.index(current)
            node.current_child = current
            vars(node).update(jianmu_parked=(index, node.children[index - 1] if index else None))


class _Stored:
    """A position that is being loaded."""

    def __init__(self, position: object) -> None:
        try:
            data = cast("dict[str, Any]", position)
            self.number = int(data["pass"])
            self.spots = _spots(data["paths"], data["classes"], data["nodes"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise CorruptRecordError("the position of a tree cannot be read: paths and nodes do not fit") from error
        self.running = [spot for spot in self.spots.values() if spot.status is Status.RUNNING]

    def check(self, root: Behaviour) -> None:
        """Refuse a tree that does not fit."""
        today = {path: node for node, path in paths(root)}
        wrong = [spot for spot in self.running if not spot.fits(today) or spot.is_doubtful(today)]
        _refuse(wrong + [spot for spot in self.running if spot not in wrong and spot.has_moved(today)])

    def finish(self) -> None:
        """Refuse a tree in which what was to be built is not there, and let composites go on."""
        _refuse([spot for spot in self.running if spot.node is None])
        for spot in self.spots.values():
            spot.go_on()


def _spots(names: list[str], classes: list[str], entries: dict[str, dict[str, Any]]) -> dict[str, _Spot]:
    """Return what a position says of each path."""
    spots: list[_Spot] = []
    line: list[_Spot] = []
    for number, (path, cls) in enumerate(zip(names, classes, strict=True)):
        while line and not path.startswith(f"{line[-1].path}/"):
            line.pop()
        spots.append(_Spot(path, cls, line[-1] if line else None, entries.get(str(number), {})))
        if line:
            line[-1].below.append(spots[-1])
        line.append(spots[-1])
    for number, entry in entries.items():
        spot = spots[int(number)]
        current: int | None = entry.get("child")
        if current is not None:
            spot.upto = spot.below[: spot.below.index(spots[current]) + 1]
    return {spot.path: spot for spot in spots}


def _refuse(wrong: list[_Spot]) -> None:
    if wrong:
        named = ", ".join(f"'{spot.path}'" for spot in wrong)
        text = f"the saved position does not fit this tree at {named}: load it with the tree that it was saved with"
        raise TreeMismatchError(text, path=wrong[0].path)
