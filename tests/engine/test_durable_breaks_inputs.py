"""Inputs that come at bad moments: queued, repeated, refused, given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.engine.events import RunEnded, RunStarted
from jianmu.engine.limits import Limits
from tests.cases.leaves import SUCCESS, DoAsync, World, events_of
from tests.cases.people import RUNNING, Desk, ask
from tests.engine.hopstore import HopStore

pytestmark = pytest.mark.anyio
WITHIN = 10


@pytest.fixture
def store(tmp_path: Path) -> HopStore:
    """A store in a file."""
    return HopStore(tmp_path / "runs.db")


async def test_a_queued_input_is_driven_with_what_the_call_was_given(store: HopStore) -> None:
    """`deps` and `limits` of the call that goes on with it; the first run has its end told before the next begins."""
    seen: list[Any] = []

    async def act(node: DoAsync) -> None:
        run = node.context.run
        seen.append((node.read_state().n, node.context.deps, run.limits.max_ticks))
        if node.read_state().n == 1:
            other = Agent(DoAsync("act", act), World, store=store.again())
            outcome = await other.run_until_suspend({"n": 2}, thread_id="t", on_new_input="queue")
            assert outcome.status is RUNNING

    agent = Agent(DoAsync("act", act), World, store=store)
    events = events_of(agent)
    with anyio.fail_after(WITHIN):
        assert await agent.run({"n": 1}, thread_id="t", deps="mine", limits=Limits(max_ticks=50)) is SUCCESS
    assert seen == [(1, "mine", 50), (2, "mine", 50)]
    told = [event for event in events if isinstance(event, RunStarted | RunEnded)]
    assert [type(event) for event in told] == [RunStarted, RunEnded] * 2
    assert [event.run for event in told] == [1, 1, 2, 2]


async def test_run_waits_for_people_also_where_its_input_was_delivered_before(store: HopStore) -> None:
    """The same `input_id` under `run()` goes on with the first run as `run()` does, not only to its question."""

    async def human(_: object) -> str:
        return "yes"

    with anyio.fail_after(WITHIN):
        await Agent(ask("q"), Desk, store=store).run_until_suspend({}, thread_id="t", input_id="i")
        agent = Agent(ask("q"), Desk, store=store.again(), human=human)
        assert await agent.run({}, thread_id="t", input_id="i") is SUCCESS
    assert agent.state.values == {"q": "yes"}
