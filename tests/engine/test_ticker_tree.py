"""The tree custodian: handlers, visitors, setup and shutdown as in py_trees."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.composites import Selector, Sequence
from py_trees.trees import BehaviourTree
from py_trees.visitors import SnapshotVisitor, VisitorBase

from jianmu.engine.ticker import Ticker, Tree
from tests.engine.plain import F, Leaf, R, S, names, nested


class Full(VisitorBase):
    """Sees the whole tree after each tick."""

    def __init__(self) -> None:
        super().__init__(full=True)
        self.seen: list[str] = []

    def initialise(self) -> None:
        self.seen.append("initialise")

    def run(self, behaviour: Behaviour) -> None:
        self.seen.append(f"{behaviour.name} {behaviour.status.name}")

    def finalise(self) -> None:
        self.seen.append("finalise")


def root() -> Behaviour:
    """Return a tree with a branch that is reached now and then."""
    below = Sequence("below", memory=True, children=[Leaf("b", R, S, R, F), Leaf("c", S, R, S)])
    return Selector("root", memory=False, children=[Leaf("a", F, F, S, F, F, F, S, F), below])


def watched(tree: BehaviourTree) -> list[Any]:
    """Tick ten times; return all that handlers and visitors saw."""
    snapshot, full, calls = SnapshotVisitor(), Full(), list[Any]()
    tree.add_visitor(snapshot)
    tree.add_visitor(full)
    tree.add_pre_tick_handler(lambda given: calls.append(("pre", given is tree, given.count)))
    tree.add_post_tick_handler(lambda given: calls.append(("post", given is tree, given.root.status)))
    by_id = {node.id: node.name for node in tree.root.iterate()}
    for _ in range(10):
        tree.tick(lambda _: calls.append("pre, once"), lambda _: calls.append("post, once"))
        calls.append([(by_id[key], status) for key, status in snapshot.visited.items()])
        calls.append((snapshot.changed, tree.count, tree.tip() and tree.tip().name))
    return [calls, full.seen]


def test_v09_visitors_and_handlers_are_served_as_by_py_trees() -> None:
    """V09: over ten ticks a snapshot visitor, a full visitor and all handlers see what they see in py_trees."""
    assert watched(Tree(root())) == watched(BehaviourTree(root()))


def test_a_tree_of_py_trees_is_taken_over_with_its_visitors() -> None:
    """`Tree.of` shares visitors and handlers with the user's tree, those that come later as well."""
    theirs, seen = BehaviourTree(root()), Full()
    ours = Tree.of(theirs)
    theirs.add_visitor(seen)
    ours.tick()
    assert (ours.root is theirs.root, seen.seen[-1], ours.count) == (True, "finalise", 1)
    ticker = Ticker()
    assert Tree.of(ours, ticker) is ours
    assert (ours.ticker is ticker, Tree.of(root()).count) == (True, 0)


def test_an_exception_in_a_tick_is_that_of_the_node() -> None:
    """What a node raises comes out of `tick`, and the tick is not counted."""
    leaf = Leaf("l")
    leaf.update = lambda: 1 / 0
    tree = Tree(leaf)
    with pytest.raises(ZeroDivisionError):
        tree.tick()
    assert tree.count == 0


class Prepared(Leaf):
    """A leaf that notes `setup` and `shutdown`."""

    def setup(self, **given: Any) -> None:
        self.log.append(f"setup {self.name} {given}")

    def shutdown(self) -> None:
        self.log.append(f"shutdown {self.name}")


def test_r25_setup_works_in_any_thread() -> None:
    """R25: in a thread each node is set up once, children first, and no signal handler is touched."""
    log: list[str] = []
    tree = Tree(Sequence("s", memory=True, children=[Prepared("a", log=log), Prepared("b", log=log)]))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGINT)}

    def work() -> None:
        tree.setup(timeout=60.0, robot="r")
        tree.tick()
        tree.shutdown()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    setups = ["setup a {'robot': 'r'}", "setup b {'robot': 'r'}"]
    assert [line for line in log if "setup" in line] == setups
    assert log[-2:] == ["shutdown a", "shutdown b"]
    assert tree.root.status is S
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_setup_shows_each_node_and_keeps_to_its_time() -> None:
    """The visitor sees a node after its setup; when the time is over no further node is set up."""
    seen, log = Full(), list[str]()
    tree = Tree(Sequence("s", memory=True, children=[Prepared("a", log=log), Prepared("b", log=log)]))
    tree.setup(visitor=seen)
    assert seen.seen == ["initialise", "a INVALID", "b INVALID", "s INVALID", "finalise"]
    with pytest.raises(RuntimeError, match=r"timed out after -1 s, at node 's/a'"):
        tree.setup(timeout=-1)
    assert len(log) == 3


@pytest.mark.parametrize("call", [Tree.setup, Tree.tick, Tree.shutdown])
def test_the_custodian_has_no_depth_limit(call: Callable[[Tree], None]) -> None:
    """5,000 nested nodes can be set up, ticked under visitors, and shut down."""
    tree, seen = Tree(nested(5_000, Leaf("l"))), Full()
    tree.add_visitor(seen)
    call(tree)
    assert len(seen.seen) in (0, 5_003)


def test_names_are_those_of_the_nodes_ticked() -> None:
    """Without visitors a tick asks nobody to look."""
    visited: list[Behaviour] = []
    tree = Tree(root())
    tree.tick()
    tree.ticker.tick(tree.root, visited.append)
    assert names(visited) == ["a", "b", "c", "below", "root"]
