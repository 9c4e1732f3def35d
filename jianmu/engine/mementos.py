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
from typing import Any, Literal, cast  # Any: JSON

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

STOCK = tuple(module.__name__ for module in (behaviours, composites, decorators, timers))
"""The modules of py_trees whose classes keep nothing between ticks that is not written here."""

Kept = tuple[Callable[[Any], JsonValue], Callable[[Any, Any], None]]  # Any: the stock node, and JSON


def _fields(*names: str) -> Kept:
    """Return how to write and read the attributes of a node that are JSON already."""

    def put(node: Any, values: Any) -> None:  # Any: the stock node, and JSON
        for name, value in zip(names, values, strict=True):
            setattr(node, name, value)

    return (lambda node: [getattr(node, name) for name in names]), put


def _time_left(clock: Literal["monotonic", "time"]) -> Kept:
    """Return how to write and read how many seconds a running timer still has."""

    def now() -> float:
        return getattr(time, clock)()

    def put(node: Any, value: Any) -> None:  # Any: the stock node, and JSON
        node.finish_time = now() + value

    return (lambda node: node.finish_time - now() if node.status is Status.RUNNING else None), put


def _dump_items(node: Any) -> JsonValue:  # Any: the stock node
    """Return the items that a ForEach still has before it, the current one first; None if they cannot be written."""
    if node._current_item is None or not hasattr(node._iterator, "__length_hint__"):
        return None
    items = [node._current_item, *copy.copy(node._iterator)]
    try:
        return items if json.loads(json.dumps(items, allow_nan=False)) == items else None
    except (TypeError, ValueError):
        return None


def _put_items(node: Any, items: Any) -> None:  # Any: the stock node, and JSON
    node._iterator = iter(items[1:])
    node._current_item = items[0]
    node.blackboard.set(node.target_key, items[0])


def _put_periodic(node: Any, value: Any) -> None:  # Any: the stock node, and JSON
    node.count, node.response = value[0], Status[value[1]]


def _put_queue(node: Any, names: Any) -> None:  # Any: the stock node, and JSON
    node.current_queue = [Status[name] for name in names]


def _put_final(node: Any, name: Any) -> None:  # Any: the stock node, and JSON
    node.final_status = Status[name] if name else None


KEPT: dict[type[Behaviour], Kept] = {
    behaviours.Periodic: (lambda node: [node.count, node.response.name], _put_periodic),
    behaviours.StatusQueue: (lambda node: [status.name for status in node.current_queue], _put_queue),
    behaviours.SuccessEveryN: _fields("count"),
    behaviours.TickCounter: _fields("counter"),
    decorators.Count: _fields("total_tick_count", "running_count", "success_count", "failure_count", "interrupt_count"),
    decorators.ForEach: (_dump_items, _put_items),
    decorators.OneShot: (lambda node: node.final_status.name if node.final_status else "", _put_final),
    decorators.Repeat: _fields("success"),
    decorators.Retry: _fields("failures"),
    decorators.Timeout: _time_left("monotonic"),
    timers.Timer: _time_left("time"),
}
"""How to write and read what stock nodes keep between ticks."""


def _stock(node: Behaviour) -> Kept | None:
    return next((KEPT[cls] for cls in type(node).__mro__ if cls in KEPT), None)


def is_known(node: Behaviour) -> bool:
    """Whether all that a node keeps between ticks is written here: so it is for py_trees' own nodes."""
    return type(node).__module__ in STOCK or _stock(node) is not None


def dump(node: Behaviour) -> JsonValue:
    """Return what a node keeps between ticks, apart from status and current child; None if that is nothing."""
    own = getattr(node, "memento", None)
    if own is not None:
        return own()
    kind = _stock(node)
    return None if kind is None else kind[0](node)


def restore(node: Behaviour, value: JsonValue) -> None:
    """Give a node back what `dump` returned."""
    own = getattr(node, "restore", None)
    kind = _stock(node)
    if own is not None:
        own(value)
    elif kind is not None:
        kind[1](node, value)


def dump_position(root: Behaviour) -> Position:
    """Return where a tree stands.

    That is `paths` and `classes` of all nodes, `nodes`, by number, that are not as new, and `pass`, a number that
    is larger than those of all passes so far.
    """
    nodes = list(paths(root))
    numbers = {id(node): number for number, (node, _) in enumerate(nodes)}
    entries = ((number, _entry(node, numbers)) for number, (node, _) in enumerate(nodes))
    return {
        "paths": [path for _, path in nodes],
        "classes": [type(node).__name__ for node, _ in nodes],
        "pass": next(passes.NUMBERS),
        "nodes": {str(number): entry for number, entry in entries if entry},
    }


def _entry(node: Behaviour, numbers: dict[int, int]) -> Position:
    """Return what is written of one node."""
    entry: Position = {}
    if node.status is not Status.INVALID:
        entry["status"] = node.status.name
    current = getattr(node, "current_child", None)
    if id(current) in numbers:
        entry["child"] = numbers[id(current)]
    memento = dump(node)
    if memento is not None:
        entry["memento"] = memento
    number, started = getattr(node, "activation", None), getattr(node, "async_started", -1)
    if entry and number is not None and isinstance(node, Composite | Decorator):
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
        if stored is not None:
            stored.apply(node, path, keeps)
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


class _Stored:
    """A position that is being loaded."""

    def __init__(self, position: object) -> None:
        try:
            data = cast("dict[str, Any]", position)  # Any: JSON
            self.paths: list[str] = data["paths"]
            self.classes: dict[str, str] = dict(zip(self.paths, data["classes"], strict=True))
            self.entries: dict[str, Any] = {
                self.paths[int(key)]: each for key, each in data["nodes"].items()
            }  # Any: JSON
            self.status = {path: Status[each.get("status", "INVALID")] for path, each in self.entries.items()}
            current: dict[str, int] = {path: each["child"] for path, each in self.entries.items() if "child" in each}
            self.child = {path: self.paths[number] for path, number in current.items()}
            self.number = int(data["pass"])
            self.passes = {path: int(each["pass"]) for path, each in self.entries.items() if "pass" in each}
            self.started = {path: int(each["started"]) for path, each in self.entries.items() if "started" in each}
            self.above = _parents(self.paths)
            self.below: dict[str, list[str]] = {}
            for path, above in self.above.items():
                self.below.setdefault(above, []).append(path)
            self.upto = {path: self.below[path].index(child) + 1 for path, child in self.child.items()}
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise CorruptRecordError("the position of a tree cannot be read: paths and nodes do not fit") from error
        self.running = [path for path, status in self.status.items() if status is Status.RUNNING]
        self.applied: dict[str, Behaviour] = {}
        self.dropped: set[int] = set()

    def check(self, root: Behaviour) -> None:
        """Refuse a tree that does not fit."""
        today = {path: node for node, path in paths(root)}
        wrong = [path for path in self.running if not self._fits(path, today) or self._is_doubtful(path, today)]
        self._refuse(wrong + [path for path in self.running if path not in wrong and self._moved(path, today)])

    def _fits(self, path: str, today: dict[str, Behaviour]) -> bool:
        """Whether a node is there, or may be built when one above it is restored."""
        if path in today:
            return type(today[path]).__name__ == self.classes[path]
        above = self.above.get(path)
        while above is not None and above not in today:
            above = self.above.get(above)
        return above is not None and hasattr(today[above], "restore")

    def _is_doubtful(self, path: str, today: dict[str, Behaviour]) -> bool:
        """Whether a node is one of same-named siblings and has others beside it than before."""
        above = self.above.get(path)
        first = path[: path.rindex("[")] if path.endswith("]") else path
        if above not in today or hasattr(today[above], "restore") or f"{first}[2]" not in self.classes | today:
            return False
        return [(each, self.classes[each]) for each in self.below[above]] != [
            (each, type(node).__name__) for each, node in today.items() if node.parent is today[above]
        ]

    def _moved(self, path: str, today: dict[str, Behaviour]) -> bool:
        """Whether other children than before stand up to the one at which a composite with a memory goes on."""
        node = today.get(path)
        remembers = "memento" in self.entries[path] or getattr(node, "memory", False)
        if path not in self.child or not remembers or node is None:
            return False
        before = self.below[path][: self.upto[path]]
        return [today.get(each) for each in before] != node.children[: len(before)]

    @staticmethod
    def _refuse(wrong: list[str]) -> None:
        if wrong:
            named = ", ".join(f"'{path}'" for path in wrong)
            text = f"the saved position does not fit this tree at {named}: load it with the tree that it was saved with"
            raise TreeMismatchError(text, path=wrong[0])

    def apply(self, node: Behaviour, path: str, keeps: Callable[[Behaviour], bool]) -> None:
        """Put one node to where it stood; its current child comes last."""
        self.applied[path] = node
        entry = self.entries.get(path)
        if entry is None or id(node.parent) in self.dropped:
            if id(node.parent) in self.dropped:
                self.dropped.add(id(node))
            return
        memento = entry.get("memento")
        if memento is not None:
            self._restore(node, path, memento)
        node.status = self.status[path]
        if node.status is Status.RUNNING and memento is None and self._starts_over(node, keeps):
            node.status = Status.INVALID
            self.dropped.add(id(node))
        if path in self.passes:
            vars(node).update(activation=self.passes[path], async_started=self.started.get(path, -1))

    @staticmethod
    def _restore(node: Behaviour, path: str, memento: JsonValue) -> None:
        try:
            restore(node, memento)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise CorruptRecordError(f"what node '{path}' has kept cannot be read ({type(error).__name__})") from error

    @staticmethod
    def _starts_over(node: Behaviour, keeps: Callable[[Behaviour], bool]) -> bool:
        """Whether a RUNNING node without a memento is entered anew."""
        if node.children:
            return isinstance(node, decorators.ForEach)
        return not (is_known(node) or keeps(node))

    def finish(self) -> None:
        """Tell composites their current children, now that all nodes are there."""
        self._refuse([path for path in self.running if path not in self.applied])
        for path, child in self.child.items():
            node, current = self.applied.get(path), self.applied.get(child)
            if isinstance(node, Composite) and current is not None and current in node.children:
                index = node.children.index(current)
                node.current_child = current
                vars(node).update(jianmu_parked=(index, node.children[index - 1] if index else None))


def _parents(names: list[str]) -> dict[str, str]:
    """Return the path above each path, of paths in tree order."""
    above: dict[str, str] = {}
    line: list[str] = []
    for path in names:
        while line and not path.startswith(f"{line[-1]}/"):
            line.pop()
        if line:
            above[path] = line[-1]
        line.append(path)
    return above
