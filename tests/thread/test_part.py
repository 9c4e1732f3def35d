"""Nodes that say what they need: a tree in which that is not so is refused before its first tick."""

from __future__ import annotations

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Sequence
from pydantic import BaseModel

from jianmu import Agent, SetupError
from jianmu.engine.node import Node
from jianmu.thread import TitleState, TodosState
from jianmu.thread.part import Part


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
