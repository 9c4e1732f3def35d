"""Changes of a tree's position, told at each cut and put together again."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees import decorators, timers
from py_trees.behaviour import Behaviour
from py_trees.composites import Composite, Sequence

from jianmu import errors
from jianmu.agent import Agent
from jianmu.engine.mementos import dump_position
from jianmu.engine.positions import Change, Nodes, Positions, fold, whole
from jianmu.engine.ticker import Ticker, halt
from jianmu.engine.tree import descend
from jianmu.nodes import Catch, Timeout, Timer
from jianmu.nodes.base import dump_moment
from tests.conftest import FULL
from tests.engine.forest import World, trees
from tests.engine.plain import Leaf, Quiet, R, S, nested
from tests.nodes.kit import Desk
from tests.nodes.test_load_equals_live import TREES, At, HandClock, tick


class Log:
    """What a run would keep: the tree's row, and what nodes keep by number."""

    def __init__(self, root: Behaviour) -> None:
        self.root = root
        self.positions = Positions(root)
        self.tree = ""
        self.nodes: Nodes = {}

    def cut(self) -> Change:
        """Take what has changed into the log, as JSON text."""
        change = self.positions.changes()
        if change.tree is not None:
            self.tree, self.nodes = change.tree.body, {}
        self.nodes = fold(self.nodes, json.loads(json.dumps(change.all)))
        return change

    def come_to(self) -> Any:
        """Return the position that the log has come to."""
        return whole(self.tree, self.nodes, 0)


def stands(root: Behaviour) -> Any:
    """Return the position of a tree, as JSON gives it back."""
    return json.loads(json.dumps(dump_position(root) | {"pass": 0}))


def edit(rng: Random, root: Behaviour) -> None:
    """Put a leaf into a composite, take one out, or put one in the place of another."""
    composites = [node for node in descend(root) if isinstance(node, Composite)]
    composites = [node for node in composites if not hasattr(getattr(node, "policy", None), "children")]
    if not composites:
        return
    above = rng.choice(composites)
    leaf = Quiet(f"new{rng.randint(0, 3)}")
    idle = [child for child in above.children if child is not above.current_child]
    if not idle or rng.random() < 0.4:
        above.insert_child(leaf, rng.randint(0, len(above.children)))
    elif rng.random() < 0.5:
        above.replace_child(rng.choice(idle), leaf)
    else:
        above.remove_child(rng.choice(idle))


@given(trees(own=True), st.lists(st.sampled_from("tttthe."), max_size=12), st.integers(0, 2**32))
@settings(max_examples=6_000 if FULL else 200)
def test_changes_come_to_the_position_at_every_cut(spec: Any, deeds: list[str], seed: int) -> None:
    """Folding all changes gives the whole position, whatever was ticked, halted and edited; a cut may do without."""
    world, rng = World("live"), Random(seed)
    root = world.grow(spec)
    log = Log(root)
    with world.clock():
        for deed in deeds:
            world.now += 1
            if deed == "t":
                Ticker().tick(root)
            elif deed == "h":
                halt(rng.choice(list(descend(root))))
            elif deed == "e":
                edit(rng, root)
            if rng.random() < 0.8:
                log.cut()
                assert log.come_to() == stands(root)
        log.cut()
        assert log.come_to() == stands(root)
        assert log.positions.changes().is_empty


@given(TREES, st.integers(1, 10), st.sampled_from([0.5, 1.0]))
@settings(max_examples=1_000 if FULL else 60)
def test_changes_of_jianmus_nodes_come_to_the_position_at_every_cut(
    make: Callable[[], Behaviour], ticks: int, step: float
) -> None:
    """The same for nodes that keep times, results and children that they build."""
    clock = HandClock()
    agent = Agent(Catch("root", make(), on=ValueError), Desk, clock=clock)
    log = Log(agent.root)
    for _ in range(ticks):
        tick(agent)
        log.cut()
        assert log.come_to() == stands(agent.root)
        clock.turn(step)
        log.cut()
        assert log.come_to() == stands(agent.root)


def branch(*children: Behaviour) -> Composite:
    return Sequence("s", memory=True, children=list(children))


def test_the_first_change_has_the_tree_and_later_ones_the_nodes_that_have_changed() -> None:
    """A node is written as the first letter of its status, or a list of all that is kept of it; None: as new."""
    leaf = Leaf("b", S, R, S)
    root = branch(Leaf("a"), leaf, Leaf("b", R))
    log = Log(root)
    first = log.cut()
    assert first.tree is not None
    assert json.loads(first.tree.body) == {
        "classes": ["Sequence", "Leaf"],
        "nodes": [[0, "s", 0], [1, "a", 1], [1, "b", 1], [1, "b[2]", 1]],
    }
    assert first.nodes == {}
    Ticker().tick(root)
    second = log.cut()
    assert (second.tree, second.nodes) == (None, {"0": ["R", 3, None, root.activation], "1": "S", "2": "S", "3": "R"})
    assert log.cut().is_empty
    halt(root.children[0])
    assert log.cut().nodes == {"1": None}


@pytest.mark.parametrize("what", ["insert", "remove", "replace", "swap", "leaf", "stale"])
def test_an_edited_tree_is_written_anew(what: str) -> None:
    """Other children, other ones in the same number, another order: the row and all nodes that are not as new."""
    a, b = Leaf("a"), Leaf("b", R)
    root = branch(a, b)
    log = Log(root)
    Ticker().tick(root)
    before = log.cut().tree
    if what == "insert":
        root.insert_child(Leaf("c"), 0)
    elif what == "remove":
        root.remove_child(a)
    elif what == "replace":
        root.replace_child(a, Quiet("a"))
    elif what == "swap":
        root.children.reverse()
    elif what == "leaf":
        child = Leaf("c")
        child.parent = b
        b.children.append(child)
    else:
        b.name = "renamed"
        log.positions.stale()
    after = log.cut()
    assert after.tree not in (None, before)
    assert "0" in after.nodes
    assert log.come_to() == stands(root)


def test_one_tree_has_one_id() -> None:
    """The id hangs on paths, classes and declared versions alone."""

    class Leaf2(Leaf):
        version = 2

    first, again = (Positions(branch(Leaf("a"))).changes().tree for _ in range(2))
    assert first == again
    other = Positions(branch(Leaf2("a"))).changes().tree
    same_names = type("Leaf2", (Leaf,), {})
    unversioned = Positions(branch(same_names("a"))).changes().tree
    assert other is not None
    assert unversioned is not None
    assert other.id != unversioned.id
    assert whole(other.body, {}, 1) == {
        "paths": ["s", "s/a"],
        "classes": ["Sequence", "Leaf2"],
        "versions": {"1": 2},
        "pass": 1,
        "nodes": {},
    }


def test_a_name_is_written_once_however_deep_it_lies() -> None:
    """The row grows with the number of nodes, not with the lengths of their paths."""
    sizes = [len(Positions(nested(depth, Leaf("l"))).changes().tree.body) for depth in (200, 400)]
    assert sizes[1] < 2.1 * sizes[0]


@pytest.mark.parametrize(
    "make", [lambda: timers.Timer("t", 9), lambda: decorators.Timeout("t", Quiet("q", lambda: R), 9)]
)
def test_the_time_that_runs_down_is_no_reason_to_write(make: Callable[[], Behaviour]) -> None:
    """What a Timer or Timeout has left is written when it is entered, and along with what else has changed."""
    world = World("w")
    root = branch(make())
    log = Log(root)
    with world.clock():
        Ticker().tick(root)
        assert log.cut().nodes["1"][2] == 9.0
        world.now += 2
        change = log.positions.changes()
        assert (change.is_empty, change.times["1"][2]) == (True, 7.0)
        halt(root)
        world.now += 2
        Ticker().tick(root)
        change = log.cut()
        assert (change.nodes["1"][2], change.times) == (9.0, {})


def test_jianmus_timers_are_no_reason_to_write_either() -> None:
    """A Timeout's time left is written along; the instant of a Timer is the same at each cut."""
    clock = HandClock()
    agent = Agent(Timeout("t", branch(Timer("wait", seconds=5), At("a", R)), seconds=9), Desk, clock=clock)
    log = Log(agent.root)
    tick(agent)
    nodes = log.cut().nodes
    assert [nodes[number][2] for number in ("0", "2")] == [9.0, {"_end": "2030-01-01T00:00:05+00:00"}]
    clock.turn(2)
    tick(agent)
    change = log.cut()
    assert (change.nodes, change.times["0"][2]) == ({}, 7.0)
    clock.turn(3)
    tick(agent)
    assert set(log.cut().all) == {"0", "1", "2", "3"}


@pytest.mark.parametrize("late", [0.0, 0.000_000_3, 0.000_4])
def test_the_instant_of_a_timer_is_whole_milliseconds(late: float) -> None:
    """Two clocks that are read one after the other do not make another instant of it."""
    clock = HandClock()
    moment = clock.now() + 5
    clock.now = lambda: late  # pyright: ignore[reportAttributeAccessIssue]  # read later than the instant
    assert dump_moment(clock, moment) == "2030-01-01T00:00:05+00:00"


def test_what_keeps_a_list_that_it_changes_is_seen_to_change() -> None:
    """A memento is what it was when it was told, whatever its node does with it afterwards."""

    class Collects(Leaf):
        def __init__(self, name: str) -> None:
            super().__init__(name, R)
            self.found: list[int] = []

        def memento(self) -> list[int]:
            return self.found

        def restore(self, value: list[int]) -> None:
            self.found = value

    root = Collects("c")
    log = Log(root)
    told = log.cut()
    root.found.append(1)
    assert (told.nodes, log.cut().nodes) == ({"0": ["I", None, []]}, {"0": ["I", None, [1]]})


@pytest.mark.parametrize("memento", [{1: 2}, {"a": float("nan")}, {1, 2}, "\ud800"])
def test_a_memento_that_is_no_json_is_refused(memento: Any) -> None:
    """The error names the node; what has changed beside it is told the next time."""
    leaf = Leaf("l", R)
    leaf.memento = lambda: memento  # pyright: ignore[reportAttributeAccessIssue]  # a node with a memento
    root = branch(leaf)
    log = Log(root)
    Ticker().tick(root)
    with pytest.raises(errors.RunError, match=r"memento\(\) of node 's/l' has to return JSON") as caught:
        log.cut()
    assert caught.value.path == "s/l"
    memento = 1
    assert log.cut().tree is not None
    assert log.come_to() == stands(root)


@pytest.mark.parametrize(
    ("tree", "nodes"),
    [
        ("{", {}),
        ("[]", {}),
        ("{}", {}),
        ('{"nodes": [[0, "s", 3]], "classes": ["S"]}', {}),
        ('{"nodes": [[0, "s"]], "classes": ["S"]}', {}),
        ('{"nodes": [], "classes": []}', {"0": "X"}),
        ('{"nodes": [], "classes": []}', {"0": 3}),
        ('{"nodes": [], "classes": []}', {"0": []}),
    ],
)
def test_what_is_no_tree_is_refused(tree: str, nodes: Nodes) -> None:
    """Rows that something else has changed are a typed error."""
    with pytest.raises(errors.CorruptRecordError):
        whole(tree, nodes, 1)
