"""The bell of a run: set from anywhere, never lost, many make one; and what rings it in a run."""

from __future__ import annotations

import signal
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.wake import Wake
from tests.cases.leaves import (
    INVALID,
    RUNNING,
    SUCCESS,
    Do,
    Flag,
    Forever,
    World,
    nothing_left,
    passes_of,
    run,
    run_with,
)

pytestmark = pytest.mark.anyio


async def test_setting_it_while_nobody_waits_is_not_lost() -> None:
    """The next one who waits is let through at once; a second time he waits."""
    wake = Wake()
    wake.attach()
    wake.set()
    wake.set()
    with anyio.fail_after(1):
        await wake.armed().wait()
    assert wake.take()
    assert not wake.take()
    with anyio.move_on_after(0.005) as scope:
        await wake.armed().wait()
    assert scope.cancelled_caught


async def test_it_rouses_who_waits() -> None:
    """From the same loop."""
    wake = Wake()
    wake.attach()

    async def ring() -> None:
        await checkpoint()
        wake.set()

    with anyio.fail_after(1):
        async with anyio.create_task_group() as group:
            group.start_soon(ring)
            await wake.armed().wait()
    assert wake.is_set


async def test_it_is_safe_from_other_threads() -> None:
    """Thousands of rings from four threads: each wait ends, and the last write is seen."""
    wake = Wake()
    wake.attach()
    count = [0] * 4

    def ring(number: int) -> None:
        for _ in range(2_000):
            count[number] += 1
            wake.set()

    threads = [threading.Thread(target=ring, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    with anyio.fail_after(10):
        while sum(count) < 8_000:
            wake.take()
            if sum(count) < 8_000:
                await wake.armed().wait()
    for thread in threads:
        thread.join()
    assert count == [2_000] * 4


def test_a_ring_after_the_loop_has_ended_reaches_nobody_and_raises_nothing() -> None:
    """A writer in a thread of its own survives the end of the loop that waited."""
    for backend in ("asyncio", "trio"):
        wake = Wake()

        async def wait(wake: Wake = wake) -> None:
            wake.attach()
            with anyio.move_on_after(0.001):
                await wake.armed().wait()

        anyio.run(wait, backend=backend)
        thread = threading.Thread(target=wake.set)
        thread.start()
        thread.join()
        wake.set()
        assert wake.is_set


async def test_a_write_from_a_thread_wakes_a_run() -> None:
    """At whichever moment it comes: fifty runs, each woken by one write of another thread."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)
    for _ in range(50):
        agent.state_manager.update({"ready": False})
        thread = threading.Thread(target=agent.state_manager.update, args=[{"ready": True}])
        thread.start()
        assert await run(agent) is SUCCESS
        thread.join()


async def test_a_write_after_a_run_survives() -> None:
    """The state outlives the loop: writing it when nothing runs raises nothing and wakes nothing."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)
    assert await run(agent, {"ready": True}) is SUCCESS
    passes = passes_of(agent)
    thread = threading.Thread(target=agent.state_manager.update, args=[{"n": 1}])
    thread.start()
    thread.join()
    agent.state_manager.update({"n": 2})
    await checkpoint()
    assert passes == []


@pytest.mark.parametrize("who", ["node", "thread"])
async def test_wake_asks_for_a_pass(who: str) -> None:
    """`wake()` of a node, also from another thread: one pass more, though no value has changed."""
    looked: list[Do] = []

    def look(node: Do) -> Status:
        looked.append(node)
        if len(looked) == 1 and who == "node":
            node.wake()
        return SUCCESS if len(looked) == 2 else RUNNING

    leaf = Do("x", look)
    agent = Agent(leaf, World)

    async def ring() -> None:
        await anyio.sleep(0.01)
        if who == "thread":
            await anyio.to_thread.run_sync(leaf.wake)
        await anyio.sleep_forever()

    assert await run_with(agent, ring) is SUCCESS
    assert len(looked) == 2


async def test_signal_wakes_without_a_change() -> None:
    """`state_manager.signal()` tells an empty change: a pass follows."""
    looked: list[int] = []
    agent = Agent(Do("x", lambda _: looked.append(1) or (SUCCESS if len(looked) == 2 else RUNNING)), World)

    async def ring() -> None:
        await checkpoint()
        while len(looked) < 2:
            await anyio.sleep(0.001)
            agent.state_manager.signal()

    assert await run_with(agent, ring) is SUCCESS


async def test_a_wake_during_a_pass_makes_one_more() -> None:
    """Many reasons that come while a pass is on make one pass after it."""

    def look(node: Do) -> Status:
        if node.ticks == 1:
            for number in range(5):
                node.wake()
                node.write_state({"n": number})
            thread = threading.Thread(target=agent.state_manager.update, args=[{"a": 1}])
            thread.start()
            thread.join()
            return RUNNING
        return SUCCESS

    leaf = Do("x", look)
    agent = Agent(leaf, World)
    assert await run(agent) is SUCCESS
    assert leaf.ticks == 2


def test_a_signal_handler_may_halt_a_run() -> None:
    """`signal.signal(SIGTERM, lambda *_: agent.halt())`: it ends the run though the loop sleeps, on both backends."""
    before = signal.getsignal(signal.SIGUSR1)
    main = threading.main_thread().ident
    assert main is not None
    for backend in ("asyncio", "trio"):
        agent = Agent(Forever("x"), World)
        signal.signal(signal.SIGUSR1, lambda *_, agent=agent: agent.halt())
        timer = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGUSR1])
        timer.start()
        try:
            assert anyio.run(run, agent, backend=backend) is INVALID
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)


async def test_a_ring_that_was_interrupted_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the flag and the bell: who sets it next rouses the one who waits."""
    wake = Wake()
    wake.attach()
    event = wake.armed()

    def interrupted() -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading, "get_ident", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wake.set()
    wake.set()
    with anyio.fail_after(1):
        await event.wait()


async def test_a_run_waits_without_turning() -> None:
    """While nothing happens the loop of the run does not spin: no pass, no turn."""
    agent = Agent(Forever("x"), World)
    passes = passes_of(agent)
    turns = []

    class Counting(Wake):
        def take(self) -> bool:
            turns.append(1)
            return super().take()

    agent.runner.wake.__class__ = Counting
    with nothing_left(agent):
        with anyio.move_on_after(0.05):
            await agent.run()
    assert len(passes) == 1
    assert len(turns) < 5
