"""Cases of the state, seen from a run: S01, S11, S12, S20, S27, S31, S35."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import pytest
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from pydantic import BaseModel, Field

from jianmu import Agent, AsyncNode, Ephemeral, InputError, Internal, Node, Replace, StateWriteError

pytestmark = pytest.mark.anyio


class Board(BaseModel):
    """What the leaves write."""

    n: int = 0
    x: int = 0
    log: Annotated[list[str], operator.add] = Field(default_factory=list)
    secret: Annotated[str, Internal()] = ""
    actions: Annotated[list[str], Ephemeral("step")] = Field(default_factory=list)
    notes: Annotated[list[str], operator.add, Ephemeral("step")] = Field(default_factory=list)


class Do(Node):
    """Call a function with the node, once a tick."""

    def __init__(self, name: str, deed: Callable[[Node], Any]) -> None:
        super().__init__(name)
        self.deed = deed

    def update(self) -> Status:
        self.deed(self)
        return Status.SUCCESS


def write(name: str, **values: object) -> Do:
    """Return a leaf that makes one write."""
    return Do(name, lambda node: node.write_state(values))


def both(*leaves: Node) -> Parallel:
    return Parallel("both", ParallelPolicy.SuccessOnAll(), children=list(leaves))


async def test_s01_a_refused_write_ends_the_run_and_leaves_nothing_half_done() -> None:
    """One bad value refuses the whole update, names field, types and leaf, and the next run works."""
    told: list[object] = []
    value: list[object] = ["no-int"]
    leaf = Do("leaf", lambda node: node.write_state({"log": ["a"], "n": value[0]}))
    agent = Agent(Sequence("root", memory=True, children=[leaf]), Board)
    agent.state_manager.subscribe(told.append)
    with pytest.raises(StateWriteError, match=r"'n'.*int.*str") as caught:
        await agent.run()
    assert caught.value.path == "root/leaf"
    assert (agent.state.n, agent.state.log, told) == (0, [], [])
    value[0] = 3
    assert await agent.run() is Status.SUCCESS
    assert (agent.state.n, agent.state.log) == (3, ["a"])


@pytest.mark.parametrize(("order", "log"), [((0, 1), ["b"]), ((1, 0), [])])
async def test_s11_writes_of_one_pass_count_in_child_order(order: tuple[int, int], log: list[str]) -> None:
    """A Replace and an append in one pass are two writes, in the order of the children."""
    leaves = [write("replace", log=Replace([])), write("append", log=["b"])]
    agent = Agent(both(*(leaves[index] for index in order)), Board)
    agent.state_manager.update({"log": ["a"]})
    assert await agent.run() is Status.SUCCESS
    assert agent.state.log == log


async def test_s12_a_snapshot_cannot_be_changed_in_place() -> None:
    """The leaf's line raises and says what to write; no one sees the value."""
    seen: list[list[str]] = []
    leaf = Do("leaf", lambda node: node.read_state().log.append("x"))
    sibling = Do("sibling", lambda node: seen.append(list(node.read_state().log)))
    agent = Agent(Sequence("root", memory=True, children=[sibling, leaf]), Board)
    with pytest.raises(StateWriteError, match=r'update\(\{"log"'):
        await agent.run()
    assert (agent.state.log, seen) == ([], [[]])


async def test_s20_two_writes_of_one_field_are_no_conflict() -> None:
    """The later child's value stands, and a second run works."""
    agent = Agent(both(write("one", x=1), write("two", x=2)), Board)
    for _ in range(2):
        assert await agent.run() is Status.SUCCESS
        assert agent.state.x == 2


class Later(AsyncNode):
    """Wait for an event, then make one write, and go on for ever."""

    def __init__(self, field: str, values: list[str]) -> None:
        super().__init__("later")
        self.field, self.values = field, values
        self.go = anyio.Event()
        self.done = anyio.Event()

    async def update_async(self) -> Status:
        await self.go.wait()
        self.write_state({self.field: self.values})
        self.done.set()
        await anyio.sleep_forever()
        return Status.SUCCESS


async def test_s27_what_is_written_between_steps_is_returned_once() -> None:
    """Step 2 returns what an async leaf wrote after step 1, step 3 nothing."""
    leaf = Later("actions", ["go"])
    agent = Agent(leaf, Board)
    with anyio.fail_after(5):
        async with agent:
            assert (await agent.step())["actions"] == []
            leaf.go.set()
            await leaf.done.wait()
            assert (await agent.step())["actions"] == ["go"]
            assert (await agent.step())["actions"] == []


async def test_s31_an_internal_field_is_the_nodes_own() -> None:
    """Input may not give it, nodes write and read it, output does not show it."""
    seen: list[str] = []
    leaves = [write("put", secret="s"), Do("get", lambda node: seen.append(node.read_state().secret))]
    agent = Agent(Sequence("root", memory=True, children=leaves), Board)
    with pytest.raises(InputError, match="'secret'"):
        await agent.run({"secret": "mine"})
    assert await agent.run() is Status.SUCCESS
    assert seen == ["s"]
    assert "secret" not in agent.output


async def test_s35_a_spent_field_starts_from_its_default() -> None:
    """What step 1 returned can be read until the next write, which does not add to it."""
    leaf = Later("notes", ["b"])
    root = both(write("first", notes=["a"]), leaf)
    agent = Agent(root, Board)
    with anyio.fail_after(5):
        async with agent:
            assert (await agent.step())["notes"] == ["a"]
            assert agent.state.notes == ["a"]
            leaf.go.set()
            await leaf.done.wait()
            assert agent.state.notes == ["b"]
            assert (await agent.step())["notes"] == ["b"]
            assert (await agent.step())["notes"] == []
