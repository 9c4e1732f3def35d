"""From one async node to the next, beside the least that an event loop can do for it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
from py_trees.common import Status
from py_trees.composites import Sequence

from bench.measure import Effort, Pair, async_block, async_in_turns, steady
from jianmu import Agent, AsyncNode

LENGTH = 300


class Nothing(AsyncNode):
    """SUCCESS at once."""

    async def update_async(self) -> Status:
        """Do nothing."""
        return Status.SUCCESS


def jianmu_side() -> Callable[[], Awaitable[float]]:
    """Return a block that runs 300 async nodes in a memory Sequence; entry and exit of the run are charged too."""
    nodes = [Nothing(f"node{index}") for index in range(LENGTH)]
    agent = Agent(Sequence("hops", memory=True, children=nodes))

    async def timed() -> float:
        with steady():
            start = time.perf_counter()
            status = await agent.run()
            seconds = time.perf_counter() - start
        if status is not Status.SUCCESS:
            raise RuntimeError(f"the run ended with {status}")
        return seconds / LENGTH

    return timed


def spawn(backend: str, effort: Effort) -> Pair:
    """Run 300 async nodes, and spawn 300 tasks one after the other, each of which sets an Event."""

    async def child(done: anyio.Event) -> None:
        done.set()

    async def peer() -> float:
        async def hop() -> None:
            done = anyio.Event()
            group.start_soon(child, done)
            await done.wait()

        async with anyio.create_task_group() as group:
            return await async_block(hop, LENGTH)

    async def main() -> Pair:
        return await async_in_turns(jianmu_side(), peer, effort.rounds)

    return anyio.run(main, backend=backend)
