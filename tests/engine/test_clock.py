"""Clocks: real time, and time that is turned by hand or by itself."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from py_trees.composites import Sequence

from jianmu.agent import Agent
from jianmu.engine.clock import RealClock, VirtualClock
from tests.cases.leaves import RUNNING, SUCCESS, Flag, Sleep, World, run, run_with

pytestmark = pytest.mark.anyio


async def test_a_virtual_clock_stands_still_until_it_is_turned() -> None:
    """However long the loop runs: no time passes without `advance`."""
    clock = VirtualClock()
    for _ in range(10):
        await checkpoint()
    assert clock.now() == 0
    assert clock.utc() == datetime(2030, 1, 1, tzinfo=UTC)
    await clock.advance(90)
    assert clock.now() == 90
    assert clock.utc() == datetime(2030, 1, 1, 0, 1, 30, tzinfo=UTC)


async def test_it_may_start_at_any_instant() -> None:
    """`utc()` is the start plus what was turned."""
    start = datetime(2024, 2, 28, 23, 59, tzinfo=UTC)
    clock = VirtualClock(start=start)
    await clock.advance(86_400)
    assert clock.utc() == start + timedelta(days=1)


async def test_advance_stops_at_each_moment_that_somebody_waits_for() -> None:
    """Sleepers wake in order, each at its own time, and what they do then is done before time goes on."""
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []

    async def sleep(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            seen.append((name, clock.now()))

    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(sleep, "a", 1, 1, 1)
            group.start_soon(sleep, "b", 1.5)
            group.start_soon(sleep, "c", 10)
            await clock.advance(4)
            assert seen == [("a", 1), ("b", 1.5), ("a", 2), ("a", 3)]
            assert clock.now() == 4
            await clock.advance(6)
    assert seen[-1] == ("c", 10)


@pytest.mark.parametrize("clock", [RealClock(), VirtualClock()])
async def test_sleeping_for_no_time_is_one_turn_of_the_loop(clock: RealClock | VirtualClock) -> None:
    """It yields and comes back; a negative time is none."""
    turns = []

    async def other() -> None:
        turns.append(1)

    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await clock.sleep(0)
            await clock.sleep(-1)
    assert turns == [1]


@pytest.mark.parametrize("make", [RealClock, VirtualClock])
async def test_waiting_ends_with_the_event_or_at_the_time(make: type) -> None:
    """Whatever comes first; a time that is past ends it at once; without one only the event does."""
    clock = make()
    event = anyio.Event()

    async def set_it() -> None:
        await checkpoint()
        event.set()

    with anyio.fail_after(2):
        await clock.wait(anyio.Event(), clock.now())
        await clock.wait(anyio.Event(), clock.now() - 1)
        async with anyio.create_task_group() as group:
            group.start_soon(set_it)
            await clock.wait(event, clock.now() + 1000)
        await clock.wait(event, None)
        if isinstance(clock, VirtualClock):
            async with anyio.create_task_group() as group:
                group.start_soon(clock.wait, anyio.Event(), 5.0)
                await clock.advance(5)
        else:
            await clock.wait(anyio.Event(), clock.now() + 0.005)
    assert event.is_set()


async def test_the_real_clock_is_that_of_the_machine() -> None:
    """Monotonic seconds, and an aware instant in UTC."""
    clock = RealClock()
    assert abs(clock.now() - time.monotonic()) < 1
    assert clock.utc().tzinfo is UTC
    assert abs(clock.utc().timestamp() - time.time()) < 1


async def test_a_sleeper_that_was_cancelled_holds_nothing_up() -> None:
    """Time does not stop at a moment that nobody waits for any more."""
    clock = VirtualClock(autojump=True)
    with anyio.move_on_after(0.005):
        await clock.sleep(5)
    assert clock._sleepers == []
    with anyio.fail_after(2):
        agent = Agent(Sleep("x", 7), World, clock=clock)
        assert await agent.run() is SUCCESS
    assert clock.now() == 7


async def test_autojump_does_not_overtake_what_is_ready() -> None:
    """Time jumps only when every task waits: a long chain of turns comes before the next moment."""
    clock = VirtualClock(autojump=True)
    seen: list[float] = []

    async def chain() -> None:
        for _ in range(100):
            await checkpoint()
        seen.append(clock.now())

    agent = Agent(Sleep("x", 1), World, clock=clock)
    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(chain)
            assert await agent.run() is SUCCESS
    assert seen == [0]


async def test_time_goes_on_after_a_wait_for_something_else() -> None:
    """Nobody waits for a time while the run waits for a write; when somebody does again, the clock jumps again."""
    clock = VirtualClock(autojump=True)
    root = Sequence("s", memory=True, children=[Flag("ready", "ready", RUNNING), Sleep("x", 5)])
    agent = Agent(root, World, clock=clock)

    async def write() -> None:
        await anyio.sleep(0.02)
        agent.state_manager.update({"ready": True})

    assert await run_with(agent, write) is SUCCESS
    assert clock.now() == 5


async def test_agents_may_share_a_clock() -> None:
    """Whichever of the runs ends first, time goes on for the others."""
    for first, second in ((1, 3), (3, 1), (2, 2)):
        clock = VirtualClock(autojump=True)
        agents = [Agent(Sleep("x", seconds), World, clock=clock) for seconds in (first, second)]
        with anyio.fail_after(2):
            async with anyio.create_task_group() as group:
                for agent in agents:
                    group.start_soon(agent.run)
        assert [agent.status for agent in agents] == [SUCCESS, SUCCESS]
        assert clock.now() == max(first, second)


def test_a_clock_serves_one_loop_after_another() -> None:
    """Nothing of the first loop is left in it."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Sleep("x", 1), World, clock=clock)
    for number, backend in enumerate(("asyncio", "trio", "asyncio"), 1):
        assert anyio.run(run, agent, backend=backend) is SUCCESS
        assert clock.now() == number


@given(st.lists(st.floats(0, 100, allow_nan=False), max_size=8), st.floats(0, 100))
def test_who_waits_until_when_is_woken_then(naps: list[float], seconds: float) -> None:
    """A law: after `advance` exactly those are awake whose time has come, and the clock stands at the sum."""
    clock = VirtualClock()
    woken: list[float] = []

    async def sleep(nap: float) -> None:
        await clock.sleep(nap)
        woken.append(nap)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for nap in naps:
                group.start_soon(sleep, nap)
            await clock.advance(seconds)
            assert sorted(woken) == sorted(nap for nap in naps if nap <= seconds)
            assert clock.now() == seconds
            group.cancel_scope.cancel()

    anyio.run(main)


async def test_it_may_be_turned_by_hand_while_it_jumps() -> None:
    """`advance` beside a run with autojump, and two at once: each returns, and no time is lost."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Sleep("x", 10), World, clock=clock)
    with anyio.fail_after(2):
        async with anyio.create_task_group() as group:
            group.start_soon(clock.advance, 3)
            group.start_soon(clock.advance, 4)
            assert await agent.run() is SUCCESS
    assert clock.now() >= 10
