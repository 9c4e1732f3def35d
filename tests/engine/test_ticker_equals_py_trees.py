"""The law of the ticker: on any tree it does what py_trees 2.6 does, callback by callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees.behaviour import Behaviour
from py_trees.behaviours import Running
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Composite, Parallel, Selector, Sequence

from jianmu.engine.ticker import Ticker, halt, tick
from jianmu.engine.tree import descend
from tests.conftest import FULL
from tests.engine.forest import BoomError, World, picture, trees

TICKS = 12
EXAMPLES = 12_000 if FULL else 300  # some are drawn twice

actions = st.lists(
    st.tuples(st.integers(0, TICKS - 1), st.sampled_from(("stop", "remove", "replace", "insert")), st.integers(0, 30)),
    max_size=6,
)


class Twin:
    """One copy of a tree, and what ticks it."""

    def __init__(self, spec: Any, name: str, tick: Callable[[Behaviour, Callable[[Behaviour], None]], Any]) -> None:
        self.world = World(name)
        self.root = self.world.grow(spec)
        self.tick = tick
        self.visited: list[tuple[str, Status]] = []

    def go(self) -> str:
        """Tick once; return what was raised."""
        self.world.now += 1
        self.visited.clear()
        with self.world.clock():
            try:
                self.tick(self.root, lambda node: self.visited.append((node.name, node.status)))
            except BoomError as error:
                return str(error)
        return ""

    def state(self) -> Any:
        """Return all that must be the same in both copies."""
        return [picture(node) for node in descend(self.root)], self.visited, self.world.log

    def act(self, what: str, number: int, stop: Callable[[Behaviour], None]) -> None:
        """Do something to a node between two ticks."""
        nodes = list(descend(self.root))
        node = nodes[number % len(nodes)]
        if what == "stop" and node.status is not Status.INVALID:
            stop(node)
        elif what != "stop" and isinstance(node.parent, Composite) and not is_spared(node, node.parent):
            self.edit(what, node, node.parent)

    def edit(self, what: str, node: Behaviour, parent: Composite) -> None:
        """Edit the children of a composite."""
        if what == "insert":
            parent.insert_child(self.world.grow(("script", ("RSF", True), ())), parent.children.index(node))
        elif what == "replace":
            parent.replace_child(node, self.world.grow(("sequence", (True, True), (("script", ("RS", True), ()),))))
        else:
            parent.remove_child(node)


def is_spared(node: Behaviour, parent: Composite) -> bool:
    """Whether an edit would meet a difference that is meant, or a policy that names its children."""
    if isinstance(parent, Parallel):
        return isinstance(parent.policy, ParallelPolicy.SuccessOnSelected)
    remembers = getattr(parent, "memory", True)
    return remembers and parent.status is Status.RUNNING and parent.current_child is node


def by_py_trees(root: Behaviour, visit: Callable[[Behaviour], None]) -> None:
    """Tick as py_trees does."""
    for node in root.tick():
        visit(node)


def follow(theirs: Twin, ours: Twin, actions: Any, what_counts: slice) -> None:
    """Tick both copies and do the same to both in between; they stay the same."""
    for number in range(TICKS):
        theirs.go()
        ours.go()
        assert ours.state()[what_counts] == theirs.state()[what_counts]
        for when, what, which in actions:
            if when == number:
                theirs.act(what, which, lambda node: node.stop(Status.INVALID))
                ours.act(what, which, halt)
                assert ours.state()[what_counts] == theirs.state()[what_counts]


@given(trees(), actions)
@settings(max_examples=EXAMPLES)
def test_a_tick_is_that_of_py_trees(spec: Any, actions: Any) -> None:
    """N15: statuses, callbacks, visits, current children and feedback are py_trees', also after edits and halts."""
    follow(Twin(spec, "theirs", by_py_trees), Twin(spec, "ours", Ticker().tick), actions, slice(None))


@given(trees(), actions)
@settings(max_examples=EXAMPLES // 5)
def test_a_tick_that_nobody_looks_at_is_the_same(spec: Any, actions: Any) -> None:
    """Without a visitor all is as with one, apart from the visits."""
    ticker = Ticker()
    ours = Twin(spec, "ours", lambda root, _: ticker.tick(root))
    follow(Twin(spec, "theirs", by_py_trees), ours, actions, slice(None, None, 2))


@given(trees(raising=True))
@settings(max_examples=EXAMPLES)
def test_an_exception_leaves_what_py_trees_leaves(spec: Any) -> None:
    """An exception comes out of the same callback and leaves the same statuses; the ticker knows who raised it."""
    ticker = Ticker()
    theirs, ours = Twin(spec, "theirs", by_py_trees), Twin(spec, "ours", ticker.tick)
    for _ in range(TICKS):
        raised = theirs.go()
        assert ours.go() == raised
        assert ours.state() == theirs.state()
        assert (ticker.culprit.name if ticker.culprit else "") == raised
        if raised:
            break


@given(trees())
@settings(max_examples=EXAMPLES // 5)
def test_tracing_changes_nothing(spec: Any) -> None:
    """With a trace the tick is the same, and each node's events are started, then finished or halted, in turns."""
    ticker = Ticker()
    theirs, ours = Twin(spec, "theirs", by_py_trees), Twin(spec, "ours", ticker.tick)
    events: list[tuple[str, Behaviour]] = []
    ticker.trace = lambda what, node: events.append((what, node))
    for _ in range(TICKS):
        theirs.go()
        ours.go()
        assert ours.state() == theirs.state()
    for node in descend(ours.root):
        mine = [what for what, each in events if each is node]
        live = mine.count("started") - mine.count("finished") - mine.count("halted")
        assert mine[:1] in ([], ["started"]), mine
        assert live <= (node.status is Status.RUNNING), mine


def test_what_is_above_a_parked_chain_goes_on_with_its_own_child() -> None:
    """Composites that are walked through are left at once, and the one above is told of its child, not of the last."""
    inner = Sequence("inner", memory=True, children=[Running("leaf")])
    outer = Sequence("outer", memory=True, children=[inner])
    root = Selector("root", memory=False, children=[outer])
    assert [tick(root), tick(root)] == [Status.RUNNING, Status.RUNNING]
    assert (root.current_child, outer.current_child) == (outer, inner)
