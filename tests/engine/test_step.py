"""step(): one tick at a time, and where coroutines live meanwhile."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.interaction import Answer, Request
from jianmu.engine.state import Ephemeral
from jianmu.errors import AgentBusyError, SetupError
from jianmu.nodes import AskHuman, Catch
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Diary,
    Do,
    DoAsync,
    Flag,
    Forever,
    Scripted,
    Sleep,
    World,
    assert_quiet,
    nothing_left,
    passes_of,
)

pytestmark = pytest.mark.anyio


class Steps(BaseModel):
    """A state with step fields."""

    seen: int = 0
    kept: int = 0
    actions: Annotated[list[str], operator.add, Ephemeral(scope="step")] = Field(default_factory=list)


def acting() -> Do:
    """Return a leaf that acts on what it sees and stays RUNNING."""

    def act(node: Do) -> Status:
        seen = node.read_state().seen
        node.write_state({"actions": [f"act {seen}"], "kept": seen})
        return RUNNING

    return Do("act", act)


async def test_it_resets_applies_the_input_ticks_once_and_returns_the_step_fields() -> None:
    """In this order: what the last step left in them is gone, and the tick sees the input."""
    agent = Agent(acting(), Steps)
    passes = passes_of(agent)
    for seen in (1, 2, 3):
        assert await agent.step({"seen": seen}) == {"actions": [f"act {seen}"]}
        assert agent.state.kept == seen
        assert len(passes) == seen
    assert await agent.step({"actions": ["given"]}) == {"actions": ["given", "act 3"]}


async def test_it_is_one_scheduling_point() -> None:
    """Others on the loop get their turn in each step, also in a loop that only steps."""
    agent = Agent(acting(), Steps)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        for _ in range(20):
            await agent.step()
        group.cancel_scope.cancel()
    assert turns >= 19


async def test_a_step_after_a_result_begins_anew() -> None:
    """As under tick_tock: the tree is entered again, as a new run."""
    leaf = Scripted("x", SUCCESS, FAILURE, SUCCESS)
    agent = Agent(leaf, World)
    seen = []
    for _ in range(3):
        await agent.step()
        seen.append((agent.status, agent.runner.context.run))
    assert seen == [(SUCCESS, 1), (FAILURE, 2), (SUCCESS, 3)]
    assert leaf.diary.count("initialise", "x") == 3


async def test_writes_between_steps_cause_no_tick() -> None:
    """The caller has the wheel: only steps tick."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)
    passes = passes_of(agent)
    await agent.step()
    agent.state_manager.update({"ready": True})
    for _ in range(10):
        await checkpoint()
    assert len(passes) == 1
    assert agent.status is RUNNING
    await agent.step()
    assert agent.status is SUCCESS


async def test_coroutines_go_on_between_steps_inside_of_the_block() -> None:
    """They are started by one step and their result is seen by a later one; leaving the block halts the others."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Parallel(
        "p",
        ParallelPolicy.SuccessOnAll(),
        children=[Sleep("quick", 0.5, diary), Forever("endless", diary, cleanup=0.2)],
    )
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent), anyio.fail_after(5):
        async with agent:
            await agent.step()
            assert clock.now() == 0
            assert root.children[0].status is RUNNING
            await clock.sleep(1)
            assert root.children[0].status is RUNNING
            await agent.step()
            assert root.children[0].status is SUCCESS
    assert sorted(diary.order()[:2]) == ["start endless", "start quick"]
    assert diary.order()[2:] == ["end quick", "unwound endless", "cleanup endless", "clean endless"]
    assert {node.status for node in (root, *root.children)} == {INVALID}


async def test_without_a_block_and_without_settle_async_trees_are_refused() -> None:
    """At the entry: nothing was ticked or written; the text shows both lines to write."""
    agent = Agent(Sequence("main", memory=True, children=[Scripted("x", SUCCESS), Sleep("y", 1)]), World)
    with pytest.raises(SetupError, match=r"async with agent:.*step\(settle=True\)"):
        await agent.step({"n": 1})
    assert agent.root.children[0].ticks == 0
    assert agent.state.n == 0
    assert agent.status is INVALID


async def test_settle_waits_until_the_started_coroutines_have_finished() -> None:
    """With and without a block; the next step sees the result."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    agent = Agent(
        Sequence("main", memory=True, children=[Sleep("a", 0.5, diary), Sleep("b", 0.5, diary)]), World, clock=clock
    )
    with nothing_left(agent), anyio.fail_after(5):
        for time in (0.5, 1.0):
            await agent.step(settle=True)
            assert clock.now() == time
            assert agent.status is RUNNING
            assert_quiet(agent)
        await agent.step(settle=True)
        assert agent.status is SUCCESS
        async with agent:
            await agent.step(settle=True)
            assert clock.now() == 1.5


async def test_settle_returns_at_a_question() -> None:
    """A coroutine that waits for a person has settled; after the answer it goes on."""
    clock = VirtualClock(autojump=True)

    async def asks(node: DoAsync) -> None:
        node.write_state({"n": await node.ask(Request("n?", answer=int), key="k")})

    agent = Agent(DoAsync("ask", asks), World, clock=clock)
    with nothing_left(agent), anyio.fail_after(5):
        await agent.step(settle=True)
        question = agent.interaction.suspension
        assert question is not None
        await agent.step(settle=True)
        assert [pending.id for pending in agent.interaction.pending] == [question.id]
        await agent.interaction.answer(Answer(question.id, 7))
        await agent.step(settle=True)
        await agent.step(settle=True)
    assert (agent.status, agent.state.n) == (SUCCESS, 7)


async def test_a_block_is_left_by_the_task_that_entered_it() -> None:
    """From another task it is a SetupError that says so, and the block is still good."""
    agent = Agent(Sleep("x", 0), World)
    async with agent:

        async def leave() -> None:
            with pytest.raises(SetupError, match="leave it in the task that entered it"):
                await agent.__aexit__(None, None, None)

        async with anyio.create_task_group() as group:
            group.start_soon(leave)
        await agent.step(settle=True)
        await agent.step()
        assert agent.status is SUCCESS
    assert_quiet(agent)


async def test_a_block_is_entered_once() -> None:
    """A second `async with` on the same agent inside of the first is an error with a name; the first goes on."""
    agent = Agent(Sleep("x", 0), World)
    with nothing_left(agent):
        async with agent:
            with pytest.raises(AgentBusyError):
                async with agent:
                    raise AssertionError("entered twice")
            await agent.step(settle=True)
            await agent.step()
            assert agent.status is SUCCESS


@pytest.mark.parametrize("call", ["step", "run", "leaving"])
async def test_an_exception_between_steps_is_raised_by_the_next_call(call: str) -> None:
    """By the next step() or run(), else when the block is left; with the path, once; all else is cleaned up."""
    diary = Diary()

    async def fail(_node: DoAsync) -> None:
        raise ValueError("between")

    root = Parallel("p", ParallelPolicy.SuccessOnAll(), children=[DoAsync("bad", fail), Forever("other", diary)])
    agent = Agent(root, World)
    with nothing_left(agent), anyio.fail_after(5):
        with pytest.raises(ValueError, match="between") as caught:  # noqa: PT012  # it is the block that raises
            async with agent:
                await agent.step()
                for _ in range(5):
                    await checkpoint()
                if call != "leaving":
                    with pytest.raises(ValueError, match="between") as early:
                        await getattr(agent, call)()
                    assert diary.count("clean", "other") == 1
                    raise early.value
        assert any("p/bad" in note for note in caught.value.__notes__)
        assert [path for path, _ in agent.errors] == ["p/bad"]
    assert diary.count("clean", "other") == 1


async def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    """It is not wrapped, and the coroutines are halted all the same."""
    leaf = Forever("x", Diary())
    agent = Agent(leaf, World)
    with nothing_left(agent), anyio.fail_after(5), pytest.raises(LookupError, match="mine"):  # noqa: PT012  # as above
        async with agent:
            await agent.step()
            await checkpoint()
            await checkpoint()
            raise LookupError("mine")
    assert leaf.diary.count("clean", "x") == 1


async def test_a_step_that_raises_leaves_nothing_and_the_next_one_begins_anew() -> None:
    """The exception with the path; every status INVALID; the agent is free."""
    agent = Agent(
        Sequence(
            "main", memory=True, children=[Scripted("x", SUCCESS), Do("bad", lambda node: 1 // node.read_state().n)]
        ),
        World,
    )
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.step()
    assert any("main/bad" in note for note in caught.value.__notes__)
    assert {node.status for node in (agent.root, *agent.root.children)} == {INVALID}


async def test_a_settled_step_raises_what_a_coroutine_raised() -> None:
    """As it is, not in a group; in a block and without one; all else is cleaned up."""

    async def fail(_node: DoAsync) -> None:
        await checkpoint()
        raise LookupError("mine")

    other = Forever("other", Diary())
    agent = Agent(Parallel("p", ParallelPolicy.SuccessOnAll(), children=[DoAsync("bad", fail), other]), World)
    with nothing_left(agent), anyio.fail_after(5):
        with pytest.raises(LookupError, match="mine"):
            await agent.step(settle=True)
        async with agent:
            with pytest.raises(LookupError, match="mine"):
                await agent.step(settle=True)
    assert other.diary.count("start", "other") == other.diary.count("clean", "other") == 2
    plain = Agent(Do("x", lambda node: 1 // node.read_state().n and None), World)
    with nothing_left(plain), pytest.raises(ZeroDivisionError):
        await plain.step(settle=True)


async def test_a_settled_step_leaves_it_to_a_catch_above() -> None:
    """What a node above catches is no exception of the step: the next tick gives it to that node."""

    async def fail(_node: DoAsync) -> None:
        await checkpoint()
        raise LookupError("mine")

    agent = Agent(Catch("c", DoAsync("bad", fail), on=LookupError), World)
    with nothing_left(agent), anyio.fail_after(5):
        await agent.step(settle=True)
        assert agent.status is RUNNING
        await agent.step(settle=True)
    assert agent.status is FAILURE
    assert agent.errors == []


@pytest.mark.parametrize("turn", range(8))
async def test_a_step_that_is_cancelled_leaves_nothing(turn: int) -> None:
    """While it settles, at whichever turn: the coroutine is halted, the next step begins anew."""
    leaf = Forever("x", Diary())
    agent = Agent(leaf, World)

    async def cancel(scope: anyio.CancelScope) -> None:
        for _ in range(turn):
            await checkpoint()
        scope.cancel()

    with nothing_left(agent), anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(cancel, scope)
                await agent.step(settle=True)
        assert leaf.diary.count("start", "x") == leaf.diary.count("clean", "x")
    assert agent.status is INVALID


@pytest.mark.parametrize("turn", range(6))
async def test_a_block_whose_entry_is_cancelled_can_be_entered_again(turn: int) -> None:
    """What was opened is closed, and nothing is left half-entered."""
    opened: list[str] = []

    class Opens(Scripted):
        async def open(self) -> None:
            await checkpoint()
            opened.append(self.name)

        async def close(self) -> None:
            await checkpoint()
            opened.remove(self.name)

    agent = Agent(Opens("x", SUCCESS), World)

    async def cancel(scope: anyio.CancelScope) -> None:
        for _ in range(turn):
            await checkpoint()
        scope.cancel()

    with nothing_left(agent), anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(cancel, scope)
                async with agent:
                    await anyio.sleep_forever()
        assert opened == []
        async with agent:
            await agent.step()
            assert opened == ["x"]
        assert opened == []
    assert agent.status in (SUCCESS, INVALID)


async def test_setup_and_open_come_once_and_in_order() -> None:
    """A block sets up and opens before the first tick, closes in reverse order; steps in it open nothing."""
    diary = Diary()

    class Opens(Scripted):
        def setup(self, **options: Any) -> None:
            diary.note(f"setup {options}", self.name)

        async def open(self) -> None:
            diary.note("open", self.name)

        async def close(self) -> None:
            diary.note("close", self.name)

        def shutdown(self) -> None:
            diary.note("shutdown", self.name)

    leaves = [Opens(name, SUCCESS, diary=Diary()) for name in "ab"]
    agent = Agent(Sequence("s", memory=True, children=leaves), World, setup={"port": 1})
    async with agent:
        await agent.step()
        await agent.step()
        await agent.run()
    setups = ["setup {'port': 1} a", "setup {'port': 1} b"]
    rest = ["open a", "open b", "close b", "close a", "shutdown a", "shutdown b"]
    assert diary.order() == [*setups, *rest]


async def test_only_coroutine_functions_are_opened() -> None:
    """A node may have an `open` of its own meaning: a plain method is left alone."""

    class Gripper(Scripted):
        moved = 0

        def open(self) -> None:
            self.moved += 1

        def close(self) -> None:
            self.moved += 1

    node = Gripper("x", SUCCESS)
    agent = Agent(node, World)
    assert await agent.run() is SUCCESS
    async with agent:
        await agent.step()
    assert node.moved == 0


@pytest.mark.parametrize("first", ["step", "run"])
async def test_a_step_during_another_call_is_refused(first: str) -> None:
    """AgentBusyError at once; the first call ends as if nothing had been."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Sleep("x", 1), World, clock=clock)
    with anyio.fail_after(5):
        async with agent, anyio.create_task_group() as group:

            async def second() -> None:
                await clock.sleep(0.5)
                with pytest.raises(AgentBusyError):
                    await agent.step()

            group.start_soon(second)
            await (agent.step(settle=True) if first == "step" else agent.run())
            if first == "step":
                await agent.step()
            assert agent.status is SUCCESS


async def test_an_interactive_node_can_be_stepped() -> None:
    """It asks inside the pass: no coroutine, no block; further steps keep the question, the answer is used once."""
    agent = Agent(
        Sequence("s", memory=True, children=[AskHuman("a", message="?", into="text"), Scripted("x", RUNNING)]), World
    )
    await agent.step()
    question = agent.interaction.suspension
    assert question is not None
    for _ in range(5):
        await agent.step()
    assert [pending.id for pending in agent.interaction.pending] == [question.id]
    await agent.interaction.answer(Answer(question.id, "yes"))
    await agent.step()
    assert agent.state.text == "yes"
    assert agent.root.children[1].status is RUNNING
    assert agent.interaction.pending == ()


def test_step_sync_runs_in_the_callers_thread() -> None:
    """No loop, no thread of its own; as step() otherwise."""
    threads: list[int] = []
    agent = Agent(Do("x", lambda _node: threads.append(threading.get_ident())), Steps)
    assert agent.step_sync({"seen": 4}) == {"actions": []}
    assert agent.state.seen == 4
    assert threads == [threading.get_ident()]
    assert agent.status is SUCCESS


async def test_step_sync_works_inside_of_a_loop() -> None:
    """It awaits nothing, so a running loop does not matter."""
    agent = Agent(Scripted("x", RUNNING, SUCCESS), World)
    agent.step_sync()
    assert agent.status is RUNNING
    agent.step_sync()
    assert agent.status is SUCCESS


def test_step_sync_needs_a_tree_without_coroutines() -> None:
    """A SetupError shows the line to write; nothing was ticked."""
    agent = Agent(Sleep("x", 0), World)
    with pytest.raises(SetupError, match=r"await agent\.step\(settle=True\)"):
        agent.step_sync()
    assert agent.status is INVALID


def test_step_sync_that_raises_leaves_the_agent_free() -> None:
    """The exception with the path; then it can be stepped again."""
    agent = Agent(Do("x", lambda node: 1 // node.read_state().n and None), World)
    with pytest.raises(ZeroDivisionError) as caught:
        agent.step_sync()
    assert any("'x'" in note for note in caught.value.__notes__)
    assert agent.status is INVALID
    agent.state_manager.update({"n": 2})
    agent.step_sync()
    assert agent.status is SUCCESS
