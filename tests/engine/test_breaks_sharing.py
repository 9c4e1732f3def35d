"""What agents share, and what one run leaves for the next."""

from __future__ import annotations

import gc
import weakref

import anyio
import pytest
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from py_trees.decorators import Inverter

from jianmu.agent import Agent
from jianmu.engine.events import NodeFinished, StateChanged
from jianmu.engine.state import StateManager
from jianmu.errors import AgentBusyError, SetupError, StateWriteError
from jianmu.nodes import AskHuman, ForEach
from tests.cases.leaves import SUCCESS, Do, DoAsync, World, events_of, of_kind

WITHIN = 5


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_two_agents_on_one_tree_take_turns_and_never_run_at_once() -> None:
    """While one is at work the other's call is an AgentBusyError, and so is the building of a third."""
    go = anyio.Event()
    root = DoAsync("waits", lambda _: go.wait())
    first, second = Agent(root, World), Agent(root, World)
    found: list[Status] = []

    async def run(agent: Agent[World]) -> None:
        found.append(await agent.run())

    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(run, first)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(AgentBusyError):
                await second.run()
            with pytest.raises(AgentBusyError, match="another agent is at work"):
                Agent(root, World)
            go.set()
        await run(second)
        await run(first)
    assert found == [SUCCESS] * 3


def test_a_node_in_two_places_is_refused() -> None:
    """py_trees' decorators take a child that has a parent: a SetupError names both places."""
    leaf = Do("leaf", lambda _: None)
    root = Sequence("s", memory=True, children=[Inverter("i", leaf), Inverter("j", leaf)])
    with pytest.raises(SetupError, match="node 's/i' has the child 'leaf', whose parent is 'j'"):
        Agent(root, World)


@pytest.mark.anyio
async def test_a_question_put_in_beside_one_of_the_same_name_is_a_question_of_its_own() -> None:
    """A node keeps its path while its tree is edited; two same-named ones never share question and answer."""
    root = Parallel("p", ParallelPolicy.SuccessOnAll(), children=[AskHuman("ask", message="old")])
    agent = Agent(root, World)
    with anyio.fail_after(WITHIN):
        await agent.run_until_suspend()
        root.insert_child(AskHuman("ask", message="new"), 0)
        outcome = await agent.recover()
        assert [question.message for question in outcome.suspensions] == ["old", "new"]
        for question in outcome.suspensions:
            outcome = await agent.resume("yes", suspension_id=question.id)
    assert outcome.status is SUCCESS


@pytest.mark.anyio
async def test_what_a_tree_costs_at_its_start_grows_with_its_size() -> None:
    """5,000 children of one node are bound and told of in events within seconds, put in at once or by ForEach."""
    with anyio.fail_after(WITHIN):
        for root in (
            Sequence("s", memory=True, children=[Do(f"leaf {n}", lambda _: None) for n in range(5000)]),
            ForEach("each", lambda item, _: Do(f"leaf {item}", lambda _: None), over=range(5000)),
        ):
            agent = Agent(root, World)
            events = events_of(agent)
            assert await agent.run() is SUCCESS
            assert len(of_kind(events, NodeFinished)) == 5001
