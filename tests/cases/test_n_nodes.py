"""Cases of nodes in a Parallel and a Sequence: N01, N04, N09, N13, N18."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.ports import In, Out
from tests.cases.leaves import FAILURE, SUCCESS, Diary, Sleep

pytestmark = pytest.mark.anyio


class Outs(BaseModel):
    """A state with fields for what nodes give."""

    one: int = 0
    two: int = 0
    outputs: dict[str, int] = Field(default_factory=dict)


class Copy(Node):
    """Copies a number."""

    number: In[int]
    out: Out[int]

    def update(self) -> Status:
        """Copy it."""
        self.out = self.number
        return SUCCESS


class Count(AsyncNode):
    """Writes the numbers up to 50, in turns with others."""

    first: In[int]
    out: Out[int]

    async def update_async(self) -> Status:
        """Write them."""
        for number in range(50):
            self.out = self.first + number
            await anyio.lowlevel.checkpoint()
        return SUCCESS


def par(*children: Behaviour) -> Parallel:
    """Return a Parallel that needs all of them."""
    return Parallel("all", ParallelPolicy.SuccessOnAll(), children=[*children])


async def finish(agent: Agent[Any]) -> Status:
    """Run an agent that comes to an end soon."""
    with anyio.fail_after(5):
        return await agent.run()


async def test_n01_a_subtree_that_is_mounted_twice_keeps_its_values_apart() -> None:
    """Literal inputs and outputs belong to the instance, not to the class or the factory."""

    def mounted(number: int, field: str) -> Behaviour:
        return Sequence("mount", memory=True, children=[Copy("copy", number=number, out=field)])

    agent = Agent(par(mounted(1, "one"), mounted(2, "two")), Outs)
    assert await finish(agent) is SUCCESS
    assert (agent.state.one, agent.state.two) == (1, 2)


async def test_n04_keys_of_one_field_are_written_side_by_side() -> None:
    """Each key holds the last value of its own writer, and no write removes the other key."""
    tree = par(Count("a", first=0, out="outputs.a"), Count("b", first=100, out="outputs.b"))
    agent = Agent(tree, Outs)
    assert await finish(agent) is SUCCESS
    assert agent.state.outputs == {"a": 49, "b": 149}


async def test_n09_a_parallel_waits_for_all_and_starts_each_once() -> None:
    """It succeeds when the slowest does; the quick one is not started again meanwhile."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    agent = Agent(par(Sleep("quick", 0.01, diary), Sleep("slow", 0.05, diary)), Outs, clock=clock)
    assert await finish(agent) is SUCCESS
    assert diary.at("end", "slow") == [0.05]
    assert clock.now() == pytest.approx(0.05)
    assert (diary.count("start", "quick"), diary.count("start", "slow")) == (1, 1)


async def test_n13_a_memoryless_sequence_starts_its_async_leaf_once() -> None:
    """The leaf that is looked at in each pass goes on, and the sequence ends with it."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    agent = Agent(Sequence("main", memory=False, children=[Sleep("leaf", 0.1, diary), Copy("c", number=1, out="one")]),
                  Outs, clock=clock)  # fmt: skip
    assert await finish(agent) is SUCCESS
    assert (clock.now(), diary.count("start", "leaf")) == (pytest.approx(0.1), 1)


class Ended(Sleep):
    """Notes how often it is terminated."""

    def terminate(self, new_status: Status) -> None:
        """Note it."""
        self.diary.note(f"terminate {new_status.name}", self.name)
        super().terminate(new_status)


async def test_n18_a_leaf_that_finished_when_its_sibling_fails_is_ended_once() -> None:
    """Both results come in one pass: its own counts, its `finally` ran once, and nothing is cleaned up."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    tree = par(Ended("done", 0.1, diary), Sleep("fails", 0.1, diary, FAILURE))
    agent = Agent(tree, Outs, clock=clock)
    assert await finish(agent) is FAILURE
    told = diary.order()
    assert [line for line in told if line.endswith("done")] == ["start done", "end done", "terminate SUCCESS done"]
    assert diary.count("cleanup", "done") == 0
