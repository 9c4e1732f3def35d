"""What has changed of a tree's position since it was asked last, and the position that such changes come to.

1. A tree is written once, as a row: of each node the depth, the last part of its path, and its class.
2. Of a node that has changed all is written that is kept of it; None: it is as new.
3. A clock that runs down is no change: how much is left is written along with what has changed.
4. What is compared lies side by side in lists, so that a tree of which nothing has changed costs next to nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, cast  # Any: JSON, and nodes of any class

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator
from pydantic import JsonValue
from pydantic_core import from_json

from jianmu.engine import passes
from jianmu.engine.answers import json_text
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.mementos import TIMED, Position, entry_of, keeps, memento_of, with_result
from jianmu.engine.node import AsyncNode
from jianmu.engine.spots import version_of
from jianmu.engine.tree import path_of, segments
from jianmu.errors import CorruptRecordError, RunError

Nodes = dict[str, JsonValue]

KEYS = ("status", "child", "memento", "pass", "started")
STATUSES = {status.name[0]: status.name for status in Status}
SILENT = (AsyncNode.memento, InteractiveNode.memento)
"""The mementos that are None for a node that is INVALID."""
BRANCHES = (Composite, Decorator, *TIMED)
"""Nodes of which more counts than status and memento."""

_status, _children, _name = attrgetter("status"), attrgetter("children"), attrgetter("name")


@dataclass(frozen=True)
class TreeRow:
    """A tree.

    Attributes:
        id: the digest of its body.
        body: paths and classes, JSON text.
    """

    id: str
    body: str = field(repr=False)


@dataclass(frozen=True)
class Change:
    """What has changed of a position.

    Attributes:
        number: larger than the numbers of all passes so far.
        tree: the tree, where it is another one than before; the nodes are all that are not as new then.
        nodes: what is kept of the nodes that have changed, by number; None: it is as new.
        times: the same of nodes of which only the time that is left has changed: no reason to write anything.
    """

    number: int
    tree: TreeRow | None
    nodes: Nodes
    times: Nodes

    @property
    def is_empty(self) -> bool:
        """Whether it is no reason to write anything."""
        return self.tree is None and not self.nodes

    @property
    def all(self) -> Nodes:
        """What is to be written of nodes, if anything is."""
        return self.nodes | self.times


@dataclass(frozen=True)
class _Kept:
    """What is kept of one node, and for a timer of py_trees' the time at which it ends."""

    entry: Position
    memento: str | None = None
    ends: float | None = None

    def packed(self) -> JsonValue:
        """Return it as short as it is written; None if the node is as new."""
        memento = None if self.memento is None else from_json(self.memento)
        row: list[JsonValue] = [(self.entry | {"memento": memento}).get(key) for key in KEYS]
        row[0] = str(row[0] or Status.INVALID.name)[0]
        while row[-1] is None:
            row.pop()
        return row if len(row) > 1 else None if not self.entry else row[0]


_NEW = _Kept({})


class Positions:
    """Watches where a tree stands; used on the loop's thread, between passes.

    Args:
        root: the top of the tree.
    """

    def __init__(self, root: Behaviour) -> None:
        self._root = root
        self._row: TreeRow | None = None
        self._told: dict[int, _Kept] = {}
        self._nodes: list[Behaviour] = []
        self.stale()

    def stale(self) -> None:
        """Have the whole tree written anew."""
        self._is_stale = True

    def changes(self) -> Change:
        """Return what has changed since this was called last; the first time all there is.

        Raises:
            RunError: a memento is no JSON.
            Exception: whatever a memento raises; then nothing counts as told.
        """
        tree, nodes, times = self.news()
        packed = ({str(number): kept.packed() for number, kept in each.items()} for each in (nodes, times))
        return Change(next(passes.NUMBERS), tree, *packed)

    def news(self) -> tuple[TreeRow | None, dict[int, _Kept], dict[int, _Kept]]:
        """Do the same, not packed: return the tree, the nodes that have changed, and those whose time runs down."""
        if self._is_stale or self._is_edited():
            self._begin()
        statuses, marks, mementos = [*map(_status, self._nodes)], [*map(_mark, self._branches)], self._mementos()
        touched = {number for number, text in mementos.items() if self._told.get(number, _NEW).memento != text}
        touched.update(_differing(range(len(statuses)), self._statuses, statuses))
        touched.update(_differing(self._branch_numbers, self._marks, marks))
        now = {number: self._kept(number, mementos.get(number)) for number in sorted(touched)}
        now = {number: kept for number, kept in now.items() if self._told.get(number, _NEW) != kept}
        nodes = {number: kept for number, kept in now.items() if not self._runs_down(number, kept)}
        tree, self._row, self._statuses, self._marks = self._row, None, statuses, marks
        self._told.update(nodes)
        return tree, nodes, {number: kept for number, kept in now.items() if number not in nodes}

    def with_result(self, node: Behaviour, status: Status) -> tuple[str, JsonValue]:
        """Return the number of an AsyncNode, and what is to be kept of it if it is RUNNING and has this result."""
        number = self._numbers[id(node)]
        memento = with_result(from_json(self._told.get(number, _NEW).memento or "null"), status)
        return str(number), [Status.RUNNING.name[0], None, memento]

    def _begin(self) -> None:
        """Have all nodes count as new; a tree that is another one, or has other names, is laid out anew."""
        if not self._nodes or self._is_edited() or [*map(_name, self._nodes)] != self._names:
            self._lay_out()
        self._row, self._is_stale, self._told = self._tree, False, {}
        self._statuses = [Status.INVALID] * len(self._nodes)
        self._marks = [_UNMARKED] * len(self._branches)

    def _lay_out(self) -> None:
        self._tree, self._nodes = _laid_out(self._root)
        self._names = [*map(_name, self._nodes)]
        self._numbers = {id(node): number for number, node in enumerate(self._nodes)}
        is_branch = [bool(node.children) or isinstance(node, BRANCHES) for node in self._nodes]
        self._branch_numbers = [number for number, found in enumerate(is_branch) if found]
        self._branches = [self._nodes[number] for number in self._branch_numbers]
        self._leaves = [node for node, found in zip(self._nodes, is_branch, strict=True) if not found]
        self._below = [[*node.children] for node in self._branches]
        self._keepers = [(number, node, _is_silent(node)) for number, node in enumerate(self._nodes) if keeps(node)]

    def _is_edited(self) -> bool:
        """Whether a node has other children than when the tree was laid out."""
        return [*map(_children, self._branches)] != self._below or any(map(_children, self._leaves))

    def _mementos(self) -> dict[int, str | None]:
        """Return what nodes keep, as JSON text; not of those that are INVALID and keep nothing then."""
        return {
            number: self._text(number, memento_of(node))
            for number, node, is_silent in self._keepers
            if not is_silent or node.status is not Status.INVALID
        }

    def _text(self, number: int, memento: JsonValue) -> str | None:
        if memento is None:
            return None
        try:
            return json_text(memento)
        except ValueError as error:
            problem = str(error)
        path = path_of(self._nodes[number])
        raise RunError(f"memento() of node '{path}' has to return JSON, and returned {problem}", path=path)

    def _kept(self, number: int, memento: str | None) -> _Kept:
        node = self._nodes[number]
        ends = node.finish_time if memento is not None and isinstance(node, TIMED) else None
        return _Kept(entry_of(node, self._numbers, memento is not None), memento, ends)

    def _runs_down(self, number: int, kept: _Kept) -> bool:
        """Whether of a node only the time that is left has changed."""
        node, told = self._nodes[number], self._told.get(number, _NEW)
        is_timed = isinstance(node, TIMED) or getattr(node, "is_timed", False)
        return is_timed and None not in (told.memento, kept.memento) and replace(told, memento=kept.memento) == kept


def _mark(node: Any) -> tuple[object, ...]:
    """Return what is kept of a branch beside its status."""
    return (
        getattr(node, "current_child", None),
        getattr(node, "activation", None),
        getattr(node, "async_started", None),
        getattr(node, "finish_time", None),
    )


_UNMARKED: tuple[object, ...] = (None, None, None, None)


def _is_silent(node: Behaviour) -> bool:
    return getattr(type(node), "memento", None) in SILENT


def _differing(numbers: Sequence[int], before: list[Any], after: list[Any]) -> Iterator[int]:
    """Yield the numbers at which two lists differ."""
    if before != after:
        yield from (number for number, old, new in zip(numbers, before, after, strict=True) if old != new)


def _laid_out(root: Behaviour) -> tuple[TreeRow, list[Behaviour]]:
    """Return a tree as a row, and its nodes in the order of that row."""
    nodes, rows, classes, versions = list[Behaviour](), list[JsonValue](), dict[str, int](), dict[str, JsonValue]()
    stack: list[tuple[Behaviour, int, str]] = [(root, 0, path_of(root))]
    while stack:
        node, depth, part = stack.pop()
        version = version_of(node)
        if version is not None:
            versions[str(len(nodes))] = version
        rows.append([depth, part, classes.setdefault(type(node).__name__, len(classes))])
        nodes.append(node)
        below = zip(node.children, segments(node.children), strict=True)
        stack.extend(reversed([(child, depth + 1, part) for child, part in below]))
    tree = {"classes": [*classes], "nodes": rows} | ({"versions": versions} if versions else {})
    body = json_text(tree)
    return TreeRow(hashlib.sha256(body.encode()).hexdigest()[:32], body), nodes


def fold(nodes: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]) -> Nodes:
    """Return what nodes keep after a change."""
    return {number: kept for number, kept in {**nodes, **changes}.items() if kept is not None}


def whole(tree: str, nodes: Mapping[str, JsonValue], number: int) -> Position:
    """Return the position that a tree's row and the nodes' changes have come to, as `dump_position` writes it.

    Raises:
        CorruptRecordError: they do not fit together.
    """
    try:
        data = from_json(tree)
        paths, classes = list[str](), list[str]()
        line: list[str] = []
        for depth, part, cls in data["nodes"]:
            del line[depth:]
            line.append(f"{line[-1]}/{part}" if line else part)
            paths.append(line[-1])
            classes.append(data["classes"][cls])
        entries = {number: _unpacked(kept) for number, kept in nodes.items()}
        versions = {"versions": data["versions"]} if "versions" in data else {}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        pass
    else:
        return cast("Position", {"paths": paths, "classes": classes, "pass": number, "nodes": entries} | versions)
    raise CorruptRecordError("the position of a tree cannot be read: its rows were changed by something else")


def _unpacked(kept: Any) -> Position:
    """Return what is kept of a node, as `dump_position` writes it."""
    row: list[Any] = [kept] if isinstance(kept, str) else kept
    entry = {key: value for key, value in zip(KEYS, row, strict=False) if value is not None}
    status = STATUSES[entry.pop("status")]
    return ({} if status == Status.INVALID.name else {"status": status}) | entry
