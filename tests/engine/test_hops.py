"""From one coroutine to the next: in as few turns of the loop as there are, and never past what has to end a run."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence

from jianmu.agent import Agent
from jianmu.engine.node import AsyncNode
from jianmu.engine.questions import Suspension
from jianmu.nodes import AskHuman, Repeat
from tests.cases.leaves import INVALID, SUCCESS, World, nothing_left, run

pytestmark = pytest.mark.anyio


class Quick(AsyncNode):
    """SUCCESS in the turn in which it is started."""

    async def update_async(self) -> Status:
        """Do nothing."""
        return SUCCESS


async def test_a_coroutine_of_one_turn_takes_one(anyio_backend_name: str) -> None:
    """Whoever waits for it is not woken by it: a hop is one turn of the loop (two under trio if drawn late)."""
    turns, is_over = 0, False

    async def count() -> None:
        nonlocal turns
        while not is_over:
            await checkpoint()
            turns += 1

    agent = Agent(Sequence("hops", memory=True, children=[Quick(f"q{number}") for number in range(50)]), World)
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await checkpoint()
        turns = 0
        assert await run(agent) is SUCCESS
        is_over = True
    assert 50 <= turns <= (60 if anyio_backend_name == "asyncio" else 130)


async def test_hops_without_end_are_cancelled() -> None:
    """Between two of them the run hears of its cancellation."""
    agent = Agent(Repeat("again", Quick("quick")), World)
    with nothing_left(agent), anyio.fail_after(5), anyio.move_on_after(0.02) as scope:
        await agent.run()
    assert scope.cancelled_caught


async def test_hops_without_end_are_halted() -> None:
    """Between two of them the run hears that it is halted."""
    agent = Agent(Repeat("again", Quick("quick")), World)

    async def halt() -> None:
        for _ in range(20):
            await checkpoint()
        agent.halt()

    with nothing_left(agent):
        async with anyio.create_task_group() as group:
            group.start_soon(halt)
            assert await run(agent) is INVALID


async def test_a_person_is_asked_while_another_branch_hops() -> None:
    """Passes that follow each other at once keep no question from the one who is to answer it."""

    async def human(_: Suspension) -> str:
        agent.halt()
        return "yes"

    branches = [AskHuman("ask", message="?", into="text"), Repeat("again", Quick("quick"))]
    agent = Agent(Parallel("both", policy=ParallelPolicy.SuccessOnAll(), children=branches), World, human=human)
    assert await run(agent) is INVALID
