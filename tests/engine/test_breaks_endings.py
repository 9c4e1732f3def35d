"""Ends that nobody had thought of: what must not keep a run from ending, and from ending rightly."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import CleanupFailed
from jianmu.engine.limits import Limits
from jianmu.engine.node import AsyncNode, Node
from jianmu.nodes import AskHuman, Cooldown
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Do,
    DoAsync,
    Forever,
    World,
    events_of,
    nothing_left,
    of_kind,
)

pytestmark = pytest.mark.anyio
WITHIN = 5


class Forgetful(AsyncNode):
    """A leaf whose memento cannot be had."""

    async def update_async(self) -> Status:
        """Wait for ever."""
        await anyio.sleep_forever()
        return SUCCESS

    def memento(self) -> Any:
        """Fail."""
        raise RuntimeError("no memento")


def all_of(*children: Any) -> Parallel:
    """Return a Parallel that waits for all of its children."""
    return Parallel("all", ParallelPolicy.SuccessOnAll(), children=list(children))


async def test_a_memento_that_raises_keeps_no_run_from_being_cancelled() -> None:
    """All is halted and cleaned up; the error is reported once."""
    other = Forever("other")
    agent = Agent(all_of(Forgetful(), other), World)
    events = events_of(agent)
    with anyio.fail_after(WITHIN), nothing_left(agent):
        with anyio.move_on_after(0.02) as scope:
            await agent.run()
    assert scope.cancelled_caught
    assert agent.status is INVALID
    assert other.alive == 0
    assert [event.reason for event in of_kind(events, CleanupFailed)] == ["RuntimeError: no memento"]


async def test_a_memento_that_raises_hides_no_exception_of_a_node() -> None:
    """The node's own exception comes out, and nothing is left alive."""

    def fail(_: Do) -> Status:
        raise ValueError("the node's own")

    agent = Agent(all_of(Forgetful(), Do("fails", fail)), World)
    with anyio.fail_after(WITHIN), nothing_left(agent), pytest.raises(ValueError, match="the node's own"):
        await agent.run()


class Once(Node):
    """Asks for the next pass and fails, then succeeds."""

    ticks = 0

    def update(self) -> Status:
        """Fail the first time."""
        self.ticks += 1
        if self.ticks > 1:
            return SUCCESS
        self.wake()
        return FAILURE


class Alarmed(Node):
    """Wants to be woken in a long time."""

    def update(self) -> Status:
        """Wait."""
        self.wake(after=1000)
        return RUNNING


async def test_the_alarm_of_a_halted_node_holds_no_run_beside_a_question() -> None:
    """A node asked to be woken later and was halted: the question that is left suspends the run."""
    asks = Sequence("asks", memory=False, children=[Once(), AskHuman("ask", message="?")])
    agent = Agent(Selector("first", memory=False, children=[asks, Alarmed()]), World)
    with anyio.fail_after(WITHIN):
        outcome = await agent.run_until_suspend()
    assert outcome.suspended


async def test_an_alarm_that_is_set_between_two_passes_rings() -> None:
    """`wake(after=…)` counts from a coroutine and from another thread too, when no pass is on."""

    class Twice(Node):
        """Succeeds when it is looked at again."""

        ticks = 0

        def update(self) -> Status:
            """Count."""
            self.ticks += 1
            return SUCCESS if self.ticks > 1 else RUNNING

    for is_threaded in (False, True):
        leaf = Twice("leaf")

        async def alarm(_: DoAsync, leaf: Node = leaf, is_threaded: bool = is_threaded) -> None:
            if is_threaded:
                await anyio.to_thread.run_sync(lambda: leaf.wake(after=0.01))
            else:
                leaf.wake(after=0.01)
            await anyio.sleep_forever()

        root = Parallel("one", ParallelPolicy.SuccessOnOne(), children=[leaf, DoAsync("sets", alarm)])
        with anyio.fail_after(WITHIN):
            assert await Agent(root, World).run() is SUCCESS


async def test_a_halt_ends_a_step_that_waits_for_its_coroutines() -> None:
    """From another task: the coroutines are halted and cleaned up, the step returns, and the next one begins anew."""
    leaf = Forever("leaf")
    agent = Agent(leaf, World)

    async def halt() -> None:
        await anyio.wait_all_tasks_blocked()
        agent.halt()

    with anyio.fail_after(WITHIN), nothing_left(agent):
        async with anyio.create_task_group() as group:
            group.start_soon(halt)
            assert await agent.step(settle=True) == {}
    assert agent.status is INVALID
    assert leaf.alive == 0


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_halt_by_a_node_ends_the_run_that_steps_drive(is_sync: bool) -> None:
    """After the tick the tree is INVALID; a result that is in counts more."""
    for status, after in ((RUNNING, INVALID), (SUCCESS, SUCCESS)):
        agents: list[Agent[World]] = []

        def halt(_: Do, status: Status = status, agents: list[Agent[World]] = agents) -> Status:
            agents[0].halt()
            return status

        agent = Agent(Do("halts", halt), World)
        agents.append(agent)
        with anyio.fail_after(WITHIN):
            assert (agent.step_sync() if is_sync else await agent.step()) == {}
        assert agent.status is after


async def test_leaving_the_block_ends_a_run_of_another_task() -> None:
    """The run is halted, returns INVALID, and only then the nodes are closed."""
    order: list[object] = []

    class Opened(Forever):
        """Notes when it is closed."""

        async def close(self) -> None:
            """Note it."""
            order.append("close")

    agent = Agent(Opened("leaf"), World)

    async def run() -> None:
        order.append(await agent.run())

    with anyio.fail_after(WITHIN), nothing_left(agent):
        async with anyio.create_task_group() as group, agent:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
    assert sorted(map(str, order)) == ["Status.INVALID", "close"]
    assert agent.status is INVALID


async def test_a_cleanup_that_exits_leaves_no_block_half_closed() -> None:
    """Ctrl-C in a cleanup while the block is left: it comes out, the nodes are closed, the agent can be used again."""
    closed: list[str] = []

    class Opened(Forever):
        """Exits in its cleanup; notes when it is closed."""

        async def cleanup(self) -> None:
            """Exit."""
            raise KeyboardInterrupt

        async def close(self) -> None:
            """Note it."""
            closed.append(self.name)

    agent = Agent(Opened("leaf"), World)

    async def use() -> None:
        async with agent:
            await agent.step()
            await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(WITHIN):
        with pytest.raises(KeyboardInterrupt):
            await use()
        assert closed == ["leaf"]
        async with agent:
            pass


async def test_ctrl_c_where_a_result_is_handed_over_ends_the_run_as_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """trio raises it in any line, the engine's too: what is alive is halted and cleaned up, then it comes out."""
    cleaned: list[str] = []

    class Cleans(Forever):
        """Notes that it is cleaned up."""

        async def cleanup(self) -> None:
            """Note it, after a while."""
            await anyio.sleep(0.01)
            cleaned.append(self.name)

    async def soon(_: DoAsync) -> Status:
        await anyio.sleep(0.01)
        return SUCCESS

    agent = Agent(all_of(Cleans("waits"), DoAsync("ends", soon)), World)
    tasks, told = agent.runner.tasks, agent.runner.tasks.signal

    def interrupted() -> None:
        monkeypatch.setattr(tasks, "signal", told)
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "signal", interrupted)
    with anyio.fail_after(WITHIN), nothing_left(agent), pytest.raises(KeyboardInterrupt):
        await agent.run()
    assert (cleaned, agent.status) == (["waits"], INVALID)


async def test_a_cooldown_that_has_failed_holds_no_run_beside_a_question() -> None:
    """All RUNNING leaves wait for people: the run suspends, though a node that has finished wants to be asked again."""
    cooling = Cooldown("cools", Do("fails", lambda _: FAILURE), seconds=50)
    root = Selector("first", memory=False, children=[cooling, AskHuman("ask", message="?")])
    agent = Agent(root, World, clock=VirtualClock(autojump=True))
    with anyio.fail_after(WITHIN):
        outcome = await agent.run_until_suspend(limits=Limits(max_ticks=9))
    assert outcome.suspended
