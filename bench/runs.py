"""What a whole call costs: a write from outside that ends a run, and one step."""

from __future__ import annotations

import itertools
import time

import anyio
import anyio.lowlevel
from py_trees.common import Status
from py_trees.composites import Sequence
from py_trees.trees import BehaviourTree
from pydantic import BaseModel

from bench.measure import Effort, Pair, async_block, async_in_turns, block, steady
from bench.ticks import Plain
from jianmu import Agent, Node


class Door(BaseModel):
    """Whether to go on."""

    is_open: bool = False


class WaitForDoor(Node):
    """SUCCESS when the door is open."""

    def update(self) -> Status:
        """Look at the door."""
        return Status.SUCCESS if self.read_state().is_open else Status.RUNNING


class Senses(BaseModel):
    """What a step is given."""

    left: int = 0
    right: int = 0


async def settle() -> None:
    """Let the other tasks go as far as they can."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def opening(agent: Agent[Door], times: int) -> float:
    """Return the mean time from a write by another task to the result of `run()`."""

    async def outside() -> None:
        await settle()
        nonlocal start
        start = time.perf_counter()
        agent.state_manager.update({"is_open": True})

    start = total = 0.0
    with steady():
        for _ in range(times):
            async with anyio.create_task_group() as group:
                group.start_soon(outside)
                status = await agent.run({"is_open": False})
                total += time.perf_counter() - start
            if status is not Status.SUCCESS:
                raise RuntimeError(f"the run ended with {status}")
    return total / times


async def there_and_back(times: int) -> float:
    """Return the time in which an Event wakes another task and one of that task's wakes this one."""
    there, back = anyio.Event(), anyio.Event()

    async def other() -> None:
        nonlocal there
        for _ in range(times):
            await there.wait()
            there = anyio.Event()
            back.set()

    async def pass_on() -> None:
        nonlocal back
        there.set()
        await back.wait()
        back = anyio.Event()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        return await async_block(pass_on, times)


def outside_write(backend: str, effort: Effort) -> Pair:
    """Write the field that a run waits for, and pass an Event back and forth."""

    async def main() -> Pair:
        agent = Agent(WaitForDoor("wait"), state_schema=Door)
        async with agent:
            return await async_in_turns(
                lambda: opening(agent, effort.times(20)), lambda: there_and_back(effort.times(300)), effort.rounds
            )

    return anyio.run(main, backend=backend)


def ten_leaves() -> Sequence:
    """Build a Sequence of ten plain leaves."""
    return Sequence("ten", memory=False, children=[Plain(f"leaf{index}") for index in range(10)])


def step(backend: str, effort: Effort) -> Pair:
    """Take a step with two new values, and tick the same tree with py_trees."""

    async def main() -> Pair:
        numbers = itertools.count(1)
        agent = Agent(ten_leaves(), state_schema=Senses)
        tree = BehaviourTree(ten_leaves())

        async def ours() -> float:
            return await async_block(
                lambda: agent.step({"left": next(numbers), "right": -next(numbers)}), effort.times(50)
            )

        async def peer() -> float:
            return block(tree.tick, effort.times(50))

        async with agent:
            return await async_in_turns(ours, peer, effort.rounds)

    return anyio.run(main, backend=backend)
