"""Nodes that say what they need: a tree in which that is not so is refused before its first tick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from pydantic import BaseModel

from jianmu import Agent, SetupError
from jianmu.engine.node import Node
from jianmu.nodes import CallDecorator, ForEach
from jianmu.thread import (
    DeferredTools,
    OutputBudget,
    PlanReminder,
    SubagentLimit,
    ThreadFolders,
    ThreadState,
    TitleState,
    TodosState,
)
from jianmu.thread.part import Part
from jianmu.tool import Toolbox


class Source(Node):
    """Stands for what others use."""

    def update(self) -> Status:
        """Succeed."""
        return Status.SUCCESS


class User(Part, Node):
    """Needs two fields, and a source before it."""

    reads = ("todos",)
    writes = ("title",)
    requires = (Source,)
    after = (Source,)

    def update(self) -> Status:
        """Succeed."""
        return Status.SUCCESS


class Opening(User):
    """Comes before every source."""

    before = (Source,)
    after = ()


class State(TodosState, TitleState):
    """What these nodes need."""


def refusal(schema: type[BaseModel], *children: Behaviour) -> str:
    """Return what a tree of these nodes is refused with."""
    with pytest.raises(SetupError) as caught:
        Agent(Sequence("main", memory=True, children=[*children]), schema).run_sync()
    return str(caught.value)


def test_a_tree_in_order_runs() -> None:
    """What a node needs is there and in order: nothing is refused."""
    for children in ([Source("one"), User("two"), User("three")], [Opening("one"), Source("two")]):
        assert Agent(Sequence("main", memory=True, children=children), State).run_sync() is Status.SUCCESS


def test_a_schema_without_a_field_is_refused() -> None:
    """The error names the node, the field, and the part of a state that has it."""
    assert (
        refusal(TitleState, Source("one"), User("two"))
        == "node 'main/two' needs the field todos, which TitleState lacks: class TitleState(TodosState, ...)"
    )


def test_a_tree_without_a_node_that_another_requires_is_refused() -> None:
    """The error says which one, and on which side it belongs."""
    assert refusal(State, User("two")) == (
        "node 'main/two' (User) needs a Source in its tree: put Source(...) before it"
    )
    assert refusal(State, Opening("two")) == (
        "node 'main/two' (Opening) needs a Source in its tree: put Source(...) below or after it"
    )


def test_a_tree_in_another_order_is_refused() -> None:
    """The error names both nodes, in whichever of the two the order is declared."""
    assert refusal(State, User("two"), Source("one")) == (
        "node 'main/two' (User) comes before 'main/one', whose work it uses: put it after that node"
    )
    assert refusal(State, Source("one"), Opening("two")) == (
        "node 'main/two' (Opening) comes after 'main/one', which uses what it does: put it before that node"
    )


def test_what_is_inside_of_an_agent_used_as_a_node_does_not_count() -> None:
    """A node is asked for on the state that it lives on: not inside of an agent below."""
    inner = Agent(Sequence("inner", memory=True, children=[Source("one")]), State)
    assert "needs a Source" in refusal(State, inner.as_node("agent"), User("two"))
    with pytest.raises(SetupError, match="needs a Source"):
        Agent(Sequence("inner", memory=True, children=[User("two")]), State)


class Around(Part, CallDecorator):
    """Needs a source below it."""

    wraps = (Source,)

    def on_calls(self, calls: object) -> None:
        """Do nothing."""


def later(*children: Behaviour) -> ForEach:
    """Return a node that builds these when it is entered."""
    return ForEach("each", lambda item, _: item, over=[*children])


def test_what_is_built_later_is_not_missed() -> None:
    """What a node needs may be in a subtree that another one builds when it is entered, on the same state."""

    def run(root: Behaviour) -> Status:
        return Agent(root, State).run_sync()

    assert run(Sequence("main", memory=True, children=[later(Source("one")), User("two")])) is Status.SUCCESS
    assert run(Sequence("main", memory=True, children=[Source("one"), later(User("two"))])) is Status.SUCCESS
    assert run(Around("around", later(Source("one")))) is Status.SUCCESS
    outside = Sequence("main", memory=True, children=[Around("around", User("two")), later()])
    with pytest.raises(SetupError, match="needs a Source below it"):
        Agent(outside, State)
    inner = Agent(Sequence("inner", memory=True, children=[later()]), State)
    assert "needs a Source" in refusal(State, inner.as_node("agent"), User("two"))


def test_what_is_built_later_is_still_checked() -> None:
    """It stands before what it comes after."""
    with pytest.raises(SetupError, match="comes before 'main/one', whose work it uses: put it after that node"):
        Agent(Sequence("main", memory=True, children=[later(User("two")), Source("one")]), State).run_sync()


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", [User, Opening])
def test_a_node_beside_another_comes_neither_before_nor_after_it(kind: type[User], deep: bool) -> None:
    """They may be at work at the same time, whichever of them stands first."""
    for turned in (False, True):
        part, source = kind("part"), Source("source")
        children: list[Behaviour] = [part, source]
        if deep:
            children = [Sequence(f"in {one.name}", memory=True, children=[one]) for one in (part, source)]
        policy = ParallelPolicy.SuccessOnAll(synchronise=False)
        tree = Parallel("both", policy, children=children[::-1] if turned else children)
        side = "before" if kind is Opening else "after"
        text = f"\\({kind.__name__}\\) may be at work at the same time as '.*source': put it {side} that node"
        with pytest.raises(SetupError, match=text):
            Agent(tree, State)


def test_parts_that_look_for_tools_below_them_do_not_miss_what_is_built_later(tmp_path: Path) -> None:
    """Without a node that builds, each is refused; with one, nobody knows yet."""

    def look(text: str) -> str:
        return text

    box = Toolbox(look)
    parts: list[Callable[[Behaviour], Behaviour]] = [
        lambda child: SubagentLimit("part", child),
        lambda child: OutputBudget("part", child, folders=ThreadFolders(tmp_path)),
        lambda child: DeferredTools("part", child, tools=box),
        lambda child: PlanReminder("part", child),
    ]
    for part in parts:
        Agent(part(later()), ThreadState)
        with pytest.raises(SetupError, match=r"'part' \("):
            Agent(part(Source("one")), ThreadState)
