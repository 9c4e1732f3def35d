"""Cases R04, R23-R25, R28-R31: who may call an agent, from where, and what a call leaves behind."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.composites import Sequence
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import RealClock, VirtualClock
from jianmu.errors import AgentBusyError, RunError, StateError
from jianmu.nodes import Timer
from tests.cases.leaves import (
    INVALID,
    RUNNING,
    SUCCESS,
    Diary,
    Flag,
    Forever,
    Scripted,
    Sleep,
    World,
    assert_quiet,
    nothing_left,
    run,
    run_with,
)


class Narrow(BaseModel):
    """A state that takes nothing but its fields."""

    n: int = 0


class Setup(Scripted):
    """A leaf that notes its `setup` and takes some real time for it."""

    def __init__(self, name: str, diary: Diary, seconds: float = 0.0) -> None:
        super().__init__(name, SUCCESS, diary=diary)
        self.seconds = seconds

    def setup(self, **_: Any) -> None:
        """Note it."""
        time.sleep(self.seconds)
        self.diary.note("setup", self.name)


class SetupTree(Sequence):
    """A Sequence that notes its `setup`."""

    def __init__(self, name: str, diary: Diary, children: list[Any]) -> None:
        super().__init__(name, memory=True, children=children)
        self.diary = diary

    def setup(self, **_: Any) -> None:
        """Note it."""
        self.diary.note("setup", self.name)


@pytest.mark.anyio
async def test_r04_a_run_after_a_step_starts_anew_when_the_step_is_cleaned_up() -> None:
    """run, then a step that starts a leaf, then run: the step's leaf is halted and cleaned up first; no hang."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    leaf = Sleep("leaf", 0.1, diary, cleanup=0.5)
    agent = Agent(
        Sequence("main", memory=True, children=[Scripted("first", SUCCESS, diary=diary), leaf]), World, clock=clock
    )
    with nothing_left(agent), anyio.fail_after(5):
        async with agent:
            assert await agent.run() is SUCCESS
            await agent.step()
            await checkpoint()
            await checkpoint()
            assert agent.status is RUNNING
            assert await agent.run() is SUCCESS
    once = ["initialise first", "start leaf", "end leaf"]
    halted = ["initialise first", "start leaf", "cleanup leaf", "clean leaf"]
    assert diary.order("start", "cleanup", "clean", "end", "initialise") == [*once, *halted, *once]
    assert leaf.most_alive == 1


@pytest.mark.anyio
async def test_r04_a_leaf_that_was_only_asked_to_start_is_never_entered() -> None:
    """The run comes before the step's leaf had its first turn: it starts once, in the run."""
    clock = VirtualClock(autojump=True)
    leaf = Sleep("leaf", 0.1, Diary(clock))
    agent = Agent(leaf, World, clock=clock)
    with nothing_left(agent), anyio.fail_after(5):
        async with agent:
            await agent.step()
            assert await agent.run() is SUCCESS
    assert leaf.diary.order() == ["start leaf", "end leaf"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "call", ["run", "run_until_suspend", "step", "resume", "reset", "save", "load_checkpoint", "step_sync"]
)
async def test_r23_one_call_at_a_time(call: str) -> None:
    """A second call of whatever kind raises AgentBusyError at once; the first ends as if nothing had been."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Sleep("x", 1) if call != "step_sync" else Flag("ready", "ready", RUNNING), World, clock=clock)
    found: list[BaseException] = []

    async def second() -> None:
        await clock.sleep(0.5)
        arguments = {"resume": [True], "load_checkpoint": [{}]}.get(call, [])
        try:
            result = getattr(agent, call)(*arguments)
            if result is not None and hasattr(result, "__await__"):
                await result
        except Exception as error:
            found.append(error)
        agent.state_manager.update({"ready": True})
        await anyio.sleep_forever()

    with nothing_left(agent):
        assert await run_with(agent, second) is SUCCESS
    assert [type(error) for error in found] == [AgentBusyError]
    assert f"{call}()" in str(found[0])
    assert "run()" in str(found[0])
    assert await run(agent, {"ready": True}) is SUCCESS


def test_r24_one_agent_on_one_loop_after_another() -> None:
    """`asyncio.run(agent.run())` twice, then on trio: SUCCESS each time."""
    agent = Agent(Sleep("x", 0.001), World, clock=RealClock())
    for _ in range(2):
        assert asyncio.run(agent.run()) is SUCCESS
    assert anyio.run(agent.run, backend="trio") is SUCCESS
    assert agent.run_sync() is SUCCESS


def test_r25_an_agent_lives_in_any_thread() -> None:
    """Built and run in a thread: `setup` once per node, children first; no signal handler is touched."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    diary, found = Diary(), list[object]()

    def live() -> None:
        agent = Agent(SetupTree("main", diary, [Setup("a", diary), Setup("b", diary), Sleep("c", 0.001)]), World)
        found.extend([agent.run_sync(), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]])

    thread = threading.Thread(target=live)
    thread.start()
    thread.join(5)
    assert found == [SUCCESS, before]
    assert diary.order("setup") == ["setup a", "setup b", "setup main"]


@pytest.mark.anyio
async def test_r29_an_agent_may_be_built_in_one_thread_and_run_in_another() -> None:
    """The worker has a loop of its own; a slow `setup` is called once; nothing about signals."""
    diary = Diary()
    agent = Agent(SetupTree("main", diary, [Setup("slow", diary, 0.1), Sleep("x", 0.001)]), World)
    with anyio.fail_after(5):
        assert await anyio.to_thread.run_sync(agent.run_sync) is SUCCESS
    assert diary.order("setup") == ["setup slow", "setup main"]


@pytest.mark.anyio
async def test_r28_halt_from_another_thread_ends_a_run_at_once() -> None:
    """A timer of 10 s on the real clock: INVALID within 50 ms of the halt; nothing is started again."""
    after = Scripted("after", SUCCESS)
    agent = Agent(Sequence("main", memory=True, children=[Timer("t", seconds=10), after]), World)
    halted_at: list[float] = []

    def halt() -> None:
        halted_at.append(time.monotonic())
        agent.halt("enough")

    async def later() -> None:
        await anyio.sleep(0.02)
        threading.Thread(target=halt).start()
        await anyio.sleep_forever()

    with nothing_left(agent):
        assert await run_with(agent, later) is INVALID
    assert time.monotonic() - halted_at[0] < 2  # 50 ms is what the case wants; a busy machine may take longer
    assert after.ticks == 0


@pytest.mark.anyio
async def test_r28_a_halt_counts_for_the_call_that_is_on() -> None:
    """Halting an idle agent does nothing; the next run is a new one."""
    agent = Agent(Scripted("x", SUCCESS), World)
    agent.halt()
    assert await run(agent) is SUCCESS


@pytest.mark.anyio
async def test_r30_reset_brings_a_stepped_agent_to_rest() -> None:
    """Every status INVALID, the cleanup has run, nothing is alive; the state stays, or is set back where asked."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    leaf = Forever("leaf", diary, cleanup=0.2)
    root = Sequence("main", memory=True, children=[Scripted("first", SUCCESS), leaf])
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent), anyio.fail_after(5):
        async with agent:
            for state, n in ((False, 7), (True, 0)):
                await agent.step({"n": 7})
                await clock.sleep(0.1)
                await agent.reset(state=state)
                assert {node.status for node in [root, *root.children]} == {INVALID}
                assert not agent.runner.tasks.lives
                assert agent.state.n == n
    assert diary.order("start", "clean") == ["start leaf", "clean leaf"] * 2


@pytest.mark.anyio
async def test_r30_reset_needs_an_idle_agent() -> None:
    """During a run it is an AgentBusyError, and the run goes on."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Sleep("x", 1), World, clock=clock)

    async def reset() -> None:
        await clock.sleep(0.5)
        with pytest.raises(AgentBusyError):
            await agent.reset(state=True)

    assert await run_with(agent, reset) is SUCCESS


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["run", "run_until_suspend", "resume"])
async def test_r31_the_sync_forms_refuse_a_running_loop(name: str) -> None:
    """A RunError at once with the line to write; no deadlock; the agent is free afterwards."""
    agent = Agent(Scripted("x", SUCCESS), World)
    with pytest.raises(RunError, match=rf"await agent\.{name}\("):
        getattr(agent, f"{name}_sync")()
    assert await run(agent) is SUCCESS
    assert_quiet(agent)


@pytest.mark.anyio
async def test_r31_a_call_that_fails_at_its_door_leaves_the_agent_free() -> None:
    """Whatever is wrong with the arguments, nothing was run and the next call works."""
    leaf = Scripted("x", SUCCESS)
    agent = Agent(leaf, Narrow)
    for wrong in ({"nn": 1}, {"n": "text"}, {"n": 1, "namespace.key": 2}):
        with pytest.raises(StateError):
            await run(agent, wrong)
        assert leaf.ticks == 0
    assert await run(agent) is SUCCESS
    assert_quiet(agent)
