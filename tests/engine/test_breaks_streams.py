"""Streams at odd moments."""

from __future__ import annotations

import anyio
import pytest
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.errors import AgentBusyError, RunError
from tests.cases.leaves import SUCCESS, DoAsync, World

pytestmark = pytest.mark.anyio
WITHIN = 5


@pytest.mark.parametrize("turns", range(4))
async def test_a_stream_that_found_the_agent_busy_halts_no_run_of_another(turns: int) -> None:
    """Left at once or after some turns: the run that was on ends as if nothing had been."""
    go = anyio.Event()
    found: list[Status] = []
    agent = Agent(DoAsync("waits", lambda _: go.wait()), World)

    async def run() -> None:
        found.append(await agent.run())

    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            try:
                async with agent.stream():
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
            except AgentBusyError:
                pass
            go.set()
    assert found == [SUCCESS]


async def test_a_stream_is_read_once() -> None:
    """Entered again it is an error with a name, not a stream without events."""
    stream = Agent(DoAsync("x", lambda _: anyio.lowlevel.checkpoint()), World).stream()
    with anyio.fail_after(WITHIN):
        async with stream as events:
            assert [event async for event in events]
        with pytest.raises(RunError, match="a stream is read once"):
            await stream.__aenter__()
