"""What agents share, and what one run leaves for the next."""

from __future__ import annotations

import gc
import weakref

import anyio
import pytest
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel

from jianmu.agent import Agent
from jianmu.engine.events import StateChanged
from jianmu.engine.state import StateManager
from jianmu.errors import StateWriteError
from tests.cases.leaves import SUCCESS, Do, DoAsync, World, events_of, of_kind

pytestmark = pytest.mark.anyio
WITHIN = 5


async def test_what_a_run_was_not_told_any_more_is_not_raised_by_the_next() -> None:
    """Two coroutines raise in one pass: the first is raised, the other a note; the next run knows nothing of them."""
    is_bad = [True]

    async def fail(node: DoAsync) -> None:
        await anyio.lowlevel.checkpoint()
        if is_bad[0]:
            raise ValueError(node.name)

    children = [DoAsync("a", fail), DoAsync("b", fail)]
    agent = Agent(Parallel("p", ParallelPolicy.SuccessOnAll(), children=children), World)
    with anyio.fail_after(WITHIN):
        with pytest.raises(ValueError, match="a"):
            await agent.run()
        is_bad[0] = False
        assert await agent.run() is SUCCESS


async def test_the_state_cannot_be_initialized_while_a_run_is_on() -> None:
    """Neither by a node nor from outside, in a run and in a step; afterwards it can."""
    manager = StateManager(World)

    def initialize(_: Do) -> Status:
        with pytest.raises(StateWriteError, match="a run is on"):
            manager.initialize()
        return SUCCESS

    agent = Agent(Do("x", initialize), state=manager)
    with anyio.fail_after(WITHIN):
        assert await agent.run({"n": 1}) is SUCCESS
        await agent.step()
    assert agent.status is SUCCESS
    manager.initialize()
    assert manager.get().n == 0


async def test_a_state_that_many_agents_use_in_turn_keeps_none_of_them_alive() -> None:
    """Only a runner that is at work listens; each agent's events are its own."""
    manager = StateManager(World)
    agents = [
        Agent(Do("x", lambda node: node.write_state({"n": node.read_state().n + 1})), state=manager) for _ in "ab"
    ]
    for agent in agents:
        events = events_of(agent)
        with anyio.fail_after(WITHIN):
            assert await agent.run() is SUCCESS
        assert len(of_kind(events, StateChanged)) == 1
    first = weakref.ref(agents.pop(0).runner)
    del agent
    gc.collect()
    assert first() is None
    assert manager.get().n == 2
