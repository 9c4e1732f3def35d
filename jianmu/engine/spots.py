"""What a saved position says of each node, and whether today's tree fits it.

1. A node waits if it was RUNNING and has kept something (a memento, the child at which it goes on), has an open
   question, or an effect of which nobody knows what became. It has to be there, under its path, with its class and
   version.
2. Where a node, or one above it, has same-named siblings, its path means it only among the siblings that it had.
3. A branch goes on only with the children that it had, up to the one at which it stands.
4. All else may be another: what had finished, what had not begun, leaves that keep nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast  # Any: JSON

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from pydantic import JsonValue

from jianmu.engine.tree import ancestors
from jianmu.errors import CorruptRecordError, TreeMismatchError

Misfit = tuple[str, str]
"""The path of a node as it was saved, and why it does not fit."""

GONE = "it is not there"
MOVED = "other children than before stand up to the one at which it goes on"


def renamed(path: str, aliases: Mapping[str, str]) -> str:
    """Return what a path is called now; a branch that was renamed takes what is below it along."""
    for old in sorted(aliases, key=len, reverse=True):
        if path == old or path.startswith(f"{old}/"):
            return aliases[old] + path[len(old) :]
    return path


def rename_position(position: JsonValue, aliases: Mapping[str, str]) -> JsonValue:
    """Return a position with today's names for its paths; how they lay and what was named by itself is kept beside."""
    names = position.get("paths") if isinstance(position, dict) else None
    if not aliases or not isinstance(position, dict) or not isinstance(names, list):
        return position
    was = position.get("was", names)
    mapped: list[JsonValue] = [name for name in aliases if name in names]
    return {**position, "paths": [renamed(str(name), aliases) for name in names], "was": was, "mapped": mapped}


def may_build(node: Behaviour) -> bool:
    """Whether a node may build its children when it is restored: it had none when it was bound."""
    return hasattr(node, "restore") and not getattr(node, "bound_children", len(node.children))


def version_of(node: Behaviour) -> JsonValue:
    """Return the version that a node's class declares, `version = 2`, or None."""
    version: object = getattr(type(node), "version", None)
    return version if isinstance(version, str | int) else None


class Spot:
    """What a position says of one node.

    Attributes:
        was: its path when it was saved.
        path: its path today.
        cls: the name of its class.
        version: the version that its class declared.
        above: the node above.
        below: the nodes below, in order.
        upto: those of them up to the one at which it goes on.
        waits: whether it has to be there.
        node: today's node, when it was put there.
        is_dropped: whether it starts over.
    """

    def __init__(self, was: str, path: str, cls: str, above: Spot | None, entry: dict[str, Any]) -> None:
        self.was, self.path, self.cls, self.above = was, path, cls, above
        self.version: JsonValue = None
        self.below: list[Spot] = []
        self.upto: list[Spot] = []
        self.status = Status[entry.get("status", "INVALID")]
        self.memento: JsonValue = entry.get("memento")
        self.activation = int(entry["pass"]) if "pass" in entry else None
        self.started = int(entry.get("started", -1))
        self.waits = False
        self.node: Behaviour | None = None
        self.is_dropped = False

    @property
    def line(self) -> Iterator[Spot]:
        """The spot and those above it, the nearest first."""
        spot: Spot | None = self
        while spot is not None:
            yield spot
            spot = spot.above


class Saved:
    """A position as it was saved.

    Args:
        position: what `dump_position` returned, renamed or not.
        waiting: the paths of nodes that have an open question or an unfinished effect.

    Raises:
        CorruptRecordError: it is no position.
    """

    def __init__(self, position: object, waiting: Collection[str] = ()) -> None:
        try:
            data = cast("dict[str, Any]", position)
            self.number = int(data["pass"])
            self.spots = _spots(data.get("was", data["paths"]), data["paths"], data["classes"], data["nodes"])
            self._mapped = {*data.get("mapped", ())}
            for number, version in data.get("versions", {}).items():
                self.spots[int(number)].version = version
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise CorruptRecordError("the position of a tree cannot be read: paths and nodes do not fit") from error
        self.at: dict[str, Spot] = {}
        self._twice: set[str] = set()
        for spot in self.spots:
            keeps = spot.status is Status.RUNNING and (spot.memento is not None or bool(spot.upto))
            spot.waits = keeps or spot.was in waiting or spot.path in waiting
            if self.at.setdefault(spot.path, spot) is not spot:
                self._twice.add(spot.path)

    def unfit(self, nodes: Mapping[str, Behaviour]) -> list[Misfit]:
        """Return what does not fit a tree, whose nodes are given by path, in the order of the saved one."""
        today = _Today(nodes, self)
        found = {spot: why for spot in self.spots if (why := self._problem(spot, today)) is not None}
        moved = [
            spot for spot in self.spots if spot not in found and today.has_moved(spot) and not found.keys() & spot.upto
        ]
        return [(spot.was, why) for spot, why in [*found.items(), *((spot, MOVED) for spot in moved)]]

    def _problem(self, spot: Spot, today: _Today) -> str | None:
        """Return why a spot does not fit, or None if it does."""
        is_running = spot.status is Status.RUNNING
        node = today.nodes.get(spot.path)
        if node is None:
            return GONE if spot.waits and not today.may_be_built(spot) else None
        if (spot.waits or (is_running and spot.below)) and type(node).__name__ != spot.cls:
            return f"it is of the class {type(node).__name__}, and was of {spot.cls}"
        if spot.waits:
            return self._problem_of_waiting(spot, node, today)
        return None

    def _problem_of_waiting(self, spot: Spot, node: Behaviour, today: _Today) -> str | None:
        if spot.version != version_of(node):
            return f"its class has the version {version_of(node)}, and had {spot.version}"
        if spot.path in self._twice:
            return "another node is called so too"
        doubtful = next((one for one in spot.line if one.was not in self._mapped and today.is_doubtful(one)), None)
        if doubtful is not None:
            return f"'{doubtful.was}' has same-named siblings, and others beside it than before"
        new = next((above for above in today.line(node) if isinstance(today.nodes[above], Composite)), None)
        return None if new is None else f"'{new}' is above it now"


class _Today:
    """A tree that a position is held against."""

    def __init__(self, nodes: Mapping[str, Behaviour], saved: Saved) -> None:
        self.nodes = nodes
        self._paths = {id(node): path for path, node in nodes.items()}
        self._saved = saved

    def may_be_built(self, spot: Spot) -> bool:
        """Whether a node that is not there may be built when one above it is restored."""
        above = next((self.nodes[one.path] for one in spot.line if one.path in self.nodes), None)
        return above is not None and may_build(above)

    def is_doubtful(self, spot: Spot) -> bool:
        """Whether a node is one of same-named siblings and has others beside it than before."""
        parent = None if spot.above is None else self.nodes.get(spot.above.path)
        if spot.above is None or parent is None or may_build(parent):
            return False
        second = f"{spot.path[: spot.path.rindex('[')] if spot.path.endswith(']') else spot.path}[2]"
        before = [(each.path, each.cls) for each in spot.above.below]
        beside = [(self._paths[id(node)], type(node).__name__) for node in parent.children]
        return second in dict(before + beside) and before != beside

    def has_moved(self, spot: Spot) -> bool:
        """Whether other children than before stand up to the one at which a branch with a memory goes on."""
        node = self.nodes.get(spot.path)
        if node is None or spot.status is not Status.RUNNING or not spot.upto:
            return False
        if (spot.memento is None and not getattr(node, "memory", False)) or may_build(node):
            return False
        now = [(self._paths[id(child)], type(child).__name__) for child in node.children[: len(spot.upto)]]
        return [(each.path, each.cls) for each in spot.upto] != now

    def line(self, node: Behaviour) -> Iterator[str]:
        """Yield the paths above a node at which nothing was before."""
        line = (self._paths.get(id(above)) for above in ancestors(node))
        return (path for path in line if path is not None and path not in self._saved.at)


def _spots(names: list[str], today: list[str], classes: list[str], entries: dict[str, dict[str, Any]]) -> list[Spot]:
    """Return what a position says of each node, in tree order."""
    spots: list[Spot] = []
    line: list[Spot] = []
    for number, (name, path, cls) in enumerate(zip(names, today, classes, strict=True)):
        while line and not name.startswith(f"{line[-1].was}/"):
            line.pop()
        spot = Spot(name, path, cls, line[-1] if line else None, entries.get(str(number), {}))
        spots.append(spot)
        if line:
            line[-1].below.append(spot)
        line.append(spot)
    for number, entry in entries.items():
        spot, current = spots[int(number)], cast("int | None", entry.get("child"))
        if current is not None:
            spot.upto = spot.below[: spot.below.index(spots[current]) + 1]
    return spots


def refuse(misfits: Collection[Misfit]) -> None:
    """Raise what names each path that does not fit, and why; nothing if all do.

    Raises:
        TreeMismatchError: one does not.
    """
    if misfits:
        told = ", ".join(f"'{path}' ({why})" for path, why in misfits)
        first = next(iter(misfits))[0]
        way = f"load it with the tree that it was saved with, or say what was renamed: aliases={{'{first}': '...'}}"
        raise TreeMismatchError(f"the saved position does not fit this tree at {told}: {way}", path=first)
