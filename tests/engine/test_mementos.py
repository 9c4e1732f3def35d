"""Where a tree stands, written as JSON and read into fresh nodes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees import behaviours, blackboard, decorators
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.engine.mementos import dump, dump_position, load_position
from jianmu.engine.ticker import Ticker, halt
from jianmu.engine.tree import descend
from jianmu.errors import CorruptRecordError, TreeMismatchError
from tests.conftest import FULL
from tests.engine.forest import World, trees
from tests.engine.plain import INVALID, F, Leaf, Quiet, R, S, nested


def shift(world: World, root: Behaviour, ticks: int) -> list[Any]:
    """Tick some times, a second each; return all statuses after each tick."""
    found = []
    for _ in range(ticks):
        world.now += 1
        with world.clock():
            Ticker().tick(root)
        found.append([(node.name, node.status) for node in descend(root)])
    return found


def current(node: Behaviour) -> str:
    """Return the name of a composite's current child."""
    child = getattr(node, "current_child", None)
    return child.name if child else ""


def moved(world: World, root: Behaviour, spec: Any) -> tuple[World, Behaviour]:
    """Return a fresh tree that was put where another one stands, its clock in another time."""
    with world.clock():
        position = json.loads(json.dumps(dump_position(root)))
    other = World(f"{world.name}_again", now=1000 + world.now)
    fresh = other.grow(spec)
    with other.clock():
        load_position(fresh, position, keeps=lambda _: True)
    return other, fresh


@given(trees(own=False), st.integers(0, 8), st.none() | st.integers(0, 20))
@settings(max_examples=12_000 if FULL else 300)
def test_a_loaded_tree_goes_on_as_the_original(spec: Any, ticks: int, halted: int | None) -> None:
    """A position dumped at any tick and loaded into fresh nodes goes on exactly as the original does."""
    world = World("live")
    root = world.grow(spec)
    shift(world, root, ticks)
    nodes = list(descend(root))
    if halted is not None:
        halt(nodes[halted % len(nodes)])
    other, fresh = moved(world, root, spec)
    assert [(node.status, current(node)) for node in descend(fresh)] == [(node.status, current(node)) for node in nodes]
    world.log.clear()
    assert shift(other, fresh, 8) == shift(world, root, 8)
    assert other.log == world.log


def at(world: World, root: Behaviour, ticks: int) -> Any:
    """Tick some times; return the position as it comes back from JSON."""
    shift(world, root, ticks)
    with world.clock():
        return json.loads(json.dumps(dump_position(root)))


def test_a_position_has_paths_once_and_nodes_that_are_not_as_new() -> None:
    """Paths and classes are lists in tree order; a node that is as new is left out; a current child is a number."""
    root = Sequence("s", memory=True, children=[Leaf("a"), Leaf("b", R), Leaf("b")])
    assert dump_position(root)["nodes"] == {}
    position = at(World("w"), root, 1)
    number = position.pop("pass")
    assert position["nodes"]["0"].pop("pass") < number
    assert position == {
        "paths": ["s", "s/a", "s/b", "s/b[2]"],
        "classes": ["Sequence", "Leaf", "Leaf", "Leaf"],
        "nodes": {
            "0": {"status": "RUNNING", "child": 2},
            "1": {"status": "SUCCESS"},
            "2": {"status": "RUNNING"},
        },
    }


def test_timers_keep_the_time_that_is_left() -> None:
    """A Timer and a Timeout go on for the seconds that they still had, however long nothing ran."""
    world = World("w")
    spec = ("timeout", (9, False), (("timer", (5, False), ()),))
    root = world.grow(spec)
    position = at(world, root, 3)
    assert [entry["memento"] for entry in position["nodes"].values()] == [7.0, 3.0]
    other, fresh = moved(world, root, spec)
    statuses = [entries[0][1] for entries in shift(other, fresh, 4)]
    assert statuses == [R, R, R, S]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_running_leaf_without_memento_is_entered_anew(keeps: bool) -> None:
    """Such a leaf is INVALID after loading, unless the caller says that it stays; py_trees' own need no memento."""
    make = lambda: Parallel(  # noqa: E731  # two of the same
        "p", policy=ParallelPolicy.SuccessOnAll(), children=[Leaf("mine", R), behaviours.Running("stock"), Leaf("done")]
    )
    position = at(World("w"), make(), 1)
    fresh = make()
    load_position(fresh, position, keeps=lambda _: keeps)
    assert [node.status for node in fresh.children] == [R if keeps else INVALID, R, S]
    assert fresh.status is R
    assert fresh.children[0].log == []


def test_loading_nothing_makes_every_node_invalid() -> None:
    """Without a position the tree is as new; no callback is called."""
    leaf = Leaf("l", R)
    root = Sequence("s", memory=True, children=[leaf])
    at(World("w"), root, 1)
    leaf.log.clear()
    load_position(root, None)
    assert ([node.status for node in descend(root)], root.current_child, leaf.log) == ([INVALID, INVALID], None, [])


def for_each(items: Any) -> Behaviour:
    """Return a ForEach over what is on the blackboard."""
    blackboard.Blackboard.set("/items", items)
    return decorators.ForEach("f", Sequence("s", True, [Leaf("a"), behaviours.Running("r")]), "items", "item")


@pytest.mark.parametrize("items", [[1, {"a": [2]}, 3], ("x", "y"), range(1, 4), {"k": 1}])
def test_a_for_each_keeps_the_items_before_it(items: Any) -> None:
    """The current item and those after it are kept, and the current one is on the blackboard again."""
    root = for_each(items)
    position = at(World("w"), root, 1)
    blackboard.Blackboard.set("/item", None)
    fresh = for_each([])
    load_position(fresh, position)
    assert blackboard.Blackboard.get("/item") == next(iter(items))
    assert dump(fresh) == list(items)
    assert [node.status for node in descend(fresh)] == [R, R, S, R]


@pytest.mark.parametrize("items", [(each for each in (1, 2)), [(1, 2)], [object()], [float("nan")], itertools.count()])
def test_a_for_each_starts_over_where_its_items_cannot_be_kept(items: Any) -> None:
    """A generator, an endless source and what JSON changes are not kept: that ForEach and all below are INVALID."""
    root = for_each(items)
    position = at(World("w"), root, 1)
    fresh = for_each([1])
    load_position(fresh, position, keeps=lambda _: True)
    assert {node.status for node in descend(fresh)} == {INVALID}


class Building(Leaf):
    """Builds its children when it is restored."""

    def memento(self) -> int:
        return len(self.children)

    def restore(self, value: int) -> None:
        self.build(value)

    def build(self, count: int) -> None:
        for number in range(count):
            child = Leaf(f"child{number}", R)
            child.parent = self
            self.children.append(child)


def test_children_that_are_built_on_restoring_get_their_place_too() -> None:
    """Parents are restored first; each node is shown to `adopt` before it is restored."""
    root = Building("b")
    root.build(2)
    root.status = root.children[1].status = R
    adopted: list[str] = []
    fresh = Building("b")
    load_position(fresh, dump_position(root), lambda _: True, lambda node: adopted.append(node.name))
    assert [node.status for node in descend(fresh)] == [R, INVALID, R]
    assert adopted == ["b", "child0", "child1"]


@pytest.mark.parametrize("kind", [Leaf, Quiet])
def test_what_waits_has_to_be_built_again(kind: Any) -> None:
    """A node that builds others than before when it is restored, or of another class: the one that waits is named."""

    class Other(Building):
        def build(self, count: int) -> None:
            child = kind("child0")
            child.parent = self
            self.children.append(child)

    Other.__name__ = "Building"
    root = Building("b")
    root.build(2)
    for node in descend(root):
        node.status = R
    waiting = ["b/child1"] if kind is Leaf else ["b/child0"]
    with pytest.raises(TreeMismatchError, match=f"at '{waiting[0]}'"):
        load_position(Other("b"), dump_position(root), lambda _: True, waiting=waiting)
    load_position(Other("b"), dump_position(root), lambda _: True)


def branch(*children: Behaviour, memory: bool = True) -> Behaviour:
    return Sequence("s", memory=memory, children=list(children))


@pytest.mark.parametrize(
    ("today", "named"),
    [
        (lambda: branch(Leaf("a"), Leaf("other", R)), "s"),
        (lambda: branch(Leaf("a"), Quiet("b")), "s"),
        (lambda: branch(Leaf("new"), Leaf("a"), Leaf("b", R)), "s"),
        (lambda: branch(Leaf("b", R)), "s"),
        (lambda: Selector("s", memory=True, children=[Leaf("a"), Leaf("b", R)]), "s"),
    ],
)
def test_a_tree_that_does_not_fit_is_refused(today: Any, named: str) -> None:
    """A branch with a memory of another class, or other children up to the one at which it goes on: nothing changes."""
    position = at(World("w"), branch(Leaf("a"), Leaf("b", R), Leaf("c")), 1)
    fresh = today()
    for node in descend(fresh):
        node.status = F
    with pytest.raises(TreeMismatchError, match=f"at '{named}'") as caught:
        load_position(fresh, position)
    assert caught.value.path == named
    assert {node.status for node in descend(fresh)} == {F}


def test_what_comes_after_the_current_child_may_change() -> None:
    """Children after the one at which a composite goes on, and nodes that had finished, may be others."""
    position = at(World("w"), branch(Leaf("a"), Leaf("b", R), Leaf("c")), 1)
    fresh = branch(Leaf("a"), Leaf("b", S), Leaf("new"), Leaf("more", R))
    load_position(fresh, position, keeps=lambda _: True)
    assert Ticker().tick(fresh) is R
    assert [node.updates for node in fresh.children] == [0, 1, 1, 1]
    load_position(branch(Leaf("b"), memory=False), at(World("w"), branch(Leaf("a"), Leaf("b"), memory=False), 1))


@pytest.mark.parametrize(
    "position",
    [
        1,
        {},
        {"paths": ["s"], "classes": [], "nodes": {}},
        {"paths": ["s"], "classes": ["S"], "nodes": {"7": {}}, "pass": 1},
    ]
    + [
        {"paths": ["s"], "classes": ["S"], "nodes": {"0": entry}, "pass": 1}
        for entry in ({"status": "ODD"}, {"child": "x"}, {"pass": "x"}, 3)
    ]
    + [{"paths": ["s"], "classes": ["S"], "nodes": {}, "pass": number} for number in (None, "x", [])],
)
def test_what_is_no_position_is_refused(position: Any) -> None:
    """A record that cannot be read changes nothing."""
    leaf = Leaf("s")
    leaf.status = F
    with pytest.raises(CorruptRecordError):
        load_position(leaf, position)
    assert leaf.status is F


def test_a_loop_keeps_that_it_holds_its_result() -> None:
    """A finished loop under which something was started holds its result in the loaded tree too, until it is over."""

    def make() -> tuple[Behaviour, Leaf]:
        leaf = Leaf("l")
        loop = decorators.Repeat("r", leaf, 1)
        return branch(loop, behaviours.Running("w"), memory=False), leaf

    root, _ = make()
    ticker = Ticker()
    ticker.tick(root)
    root.children[0].async_started = ticker.number
    fresh, leaf = make()
    load_position(fresh, json.loads(json.dumps(dump_position(root))))
    ticker.tick(fresh)
    assert (leaf.updates, fresh.children[0].status) == (0, S)
    halt(fresh)
    ticker.tick(fresh)
    assert leaf.updates == 1


def test_deep_trees_are_written_and_loaded() -> None:
    """A position knows no depth limit."""
    root, fresh = nested(1_500, Leaf("l", R)), nested(1_500, Leaf("l", R))
    Ticker().tick(root)
    load_position(fresh, dump_position(root), keeps=lambda _: True)
    assert {node.status for node in descend(fresh)} == {R}


def test_a_node_that_was_never_ticked_need_not_have_a_memento() -> None:
    """What `memento` reads may be made by `initialise`: a node that was not ticked yet is written without it."""

    class Counts(Behaviour):
        def initialise(self) -> None:
            self.count = 1

        def update(self) -> Any:
            return R

        def memento(self) -> int:
            return self.count

        def restore(self, value: int) -> None:
            self.count = value

    root = Sequence("s", memory=True, children=[Counts("first"), Counts("second")])
    Ticker().tick(root)
    assert {number: entry.get("memento") for number, entry in dump_position(root)["nodes"].items()} == {
        "0": None,
        "1": 1,
    }
