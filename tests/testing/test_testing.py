"""The testing kit: people by script, trees brought to rest, what was ticked, one node alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from py_trees import behaviours
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.ports import In, Out
from jianmu.engine.request import Request
from jianmu.errors import SetupError, StateWriteError
from jianmu.nodes import Repeat, Timer
from jianmu.testing import After, InTurn, ScriptedHuman, TickRecorder, VirtualClock, node_context, run_to_quiescence
from tests.cases.people import FAILURE, RUNNING, SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, seq

pytestmark = pytest.mark.anyio


# ScriptedHuman


async def test_a_script_answers_by_path_or_by_path_and_key() -> None:
    """The more exact place counts first; a node that asks in turn is answered in turn."""

    async def talk(node: Any) -> None:
        said = [await node.ask(Request("?"), key=key) for key in ("a", "b", "c")]
        node.write_state({"values": {"said": said}})

    script = {("main/t", "b"): "B", "main/t": InTurn(["first", "second"]), "main/q": None}
    with ScriptedHuman(script) as human, anyio.fail_after(5):
        agent = Agent(seq("main", Talk("t", talk), ask("q")), Desk, human=human)
        assert await agent.run() is SUCCESS
    assert agent.state.values == {"said": ["first", "B", "second"], "q": None}


async def test_after_waits_on_the_clock_of_the_agent() -> None:
    """Also in turn; the time counts from the question."""
    clock = VirtualClock(autojump=True)
    script = {"loop/round/q": InTurn([After(5, 1), 2, After(7, 3)])}
    with ScriptedHuman(script) as human, anyio.fail_after(5):
        agent = Agent(Repeat("loop", seq("round", ask("q")), times=3), Desk, clock=clock, human=human)
        assert await agent.run() is SUCCESS
    assert clock.now() == 12


async def test_an_answer_that_was_not_asked_for_fails_the_test() -> None:
    """When the block is left, with the place; a test that failed anyway keeps its own exception."""
    with pytest.raises(AssertionError, match="main/never"), ScriptedHuman({"main/never": 1, "main/q": 2}) as human:
        assert await Agent(seq("main", ask("q")), Desk, human=human).run() is SUCCESS
    with pytest.raises(KeyError), ScriptedHuman({"main/never": 1}):
        raise KeyError
    with pytest.raises(AssertionError, match="not asked for"):
        ScriptedHuman({"main/q": InTurn([1])}).check()
    ScriptedHuman({}).check()


@pytest.mark.parametrize("script", [{}, {"main/other": 1}, {("main/q", "other"): 1}, {"main/q": InTurn([])}])
async def test_a_question_without_an_answer_fails_the_run(script: Any) -> None:
    """The error names the path, the key and the message."""
    agent = Agent(seq("main", ask("q")), Desk, human=ScriptedHuman(script))
    with anyio.fail_after(5), pytest.raises(AssertionError, match=r"'main/q' \(key 'q'\): q\?"):
        await agent.run()


# VirtualClock


async def test_a_virtual_clock_stands_still_until_it_is_turned() -> None:
    """What is due at a moment is done at that moment, in the order of the moments."""
    clock = VirtualClock(start=datetime(2031, 5, 6, tzinfo=UTC))
    log: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float, again: float) -> None:
        await clock.sleep(seconds)
        log.append((name, clock.now()))
        await clock.sleep(again)
        log.append((name, clock.now()))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(sleeper, "a", 1, 5)
            group.start_soon(sleeper, "b", 3, 0.5)
            await clock.advance(0.5)
            assert log == []
            await clock.advance(3.5)
            assert log == [("a", 1), ("b", 3), ("b", 3.5)]
            assert (clock.now(), clock.utc()) == (4, datetime(2031, 5, 6, tzinfo=UTC) + timedelta(seconds=4))
            await clock.advance(2)
    assert log[-1] == ("a", 6)


async def test_a_run_turns_a_clock_that_jumps_and_no_other() -> None:
    """With `autojump` the run ends by itself; without it, when somebody turns the clock."""
    for autojump in (True, False):
        clock = VirtualClock(autojump=autojump)
        agent = Agent(Timer("t", seconds=3600), Desk, clock=clock)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                ends: list[Any] = []

                async def run(agent: Agent[Any] = agent, ends: list[Any] = ends) -> None:
                    ends.append(await agent.run())

                group.start_soon(run)
                if not autojump:
                    await clock.advance(3599)
                    assert ends == []
                    await clock.advance(1)
        assert (ends, clock.now()) == ([SUCCESS], 3600)


# run_to_quiescence


async def test_a_tree_is_stepped_until_it_has_a_result() -> None:
    """Coroutines are waited for; the status is returned."""
    clock = VirtualClock(autojump=True)
    done: list[str] = []
    agent = Agent(seq("main", Work("a", done), Work("b", done), Note("c", done)), Desk, clock=clock)
    with anyio.fail_after(5):
        assert await run_to_quiescence(agent) is SUCCESS
    assert done == ["a", "b", "c"]
    agent = Agent(seq("main", Note("x", [], FAILURE)), Desk)
    assert await run_to_quiescence(agent) is FAILURE


async def test_a_tree_is_stepped_until_nothing_changes() -> None:
    """It waits for a write, or for a person: RUNNING, and everything before that is done."""

    class Ready(Node):
        def update(self) -> Any:
            return SUCCESS if self.read_state().note else RUNNING

    agent = Agent(seq("main", Note("a", []), Ready("ready"), AskInside("q"), Note("b", [])), Desk)
    with anyio.fail_after(5):
        assert await run_to_quiescence(agent) is RUNNING
        assert agent.state.log == ["a"]
        agent.state_manager.update({"note": "go"})
        assert await run_to_quiescence(agent) is RUNNING
        assert len(agent.interaction.pending) == 1
        await agent.interaction.approve(agent.interaction.pending[0].id)
        assert await run_to_quiescence(agent) is SUCCESS
    assert agent.state.log == ["a", "b"]


async def test_a_tree_that_never_rests_is_told() -> None:
    """After so many steps."""

    class Restless(Node):
        def update(self) -> Any:
            self.write_state({"amount": self.read_state().amount + 1})
            return RUNNING

    agent = Agent(Restless("r"), Desk)
    with anyio.fail_after(5), pytest.raises(AssertionError, match="20 steps"):
        await run_to_quiescence(agent, most=20)


# TickRecorder


async def test_a_recorder_tells_passes_callbacks_and_writes() -> None:
    """Statuses by path for each pass, callbacks in order, writes with their writers; then the tree is as before."""
    leaf = behaviours.Running(name="run")
    agent = Agent(seq("main", Note("a", []), par("p", Note("b", []), leaf)), Desk)
    recorder = TickRecorder(agent)
    for _ in range(2):
        await agent.step()
    recorder.stop()
    await agent.step({"amount": 7})
    assert recorder.passes == [
        {"main/a": SUCCESS, "main/p/b": SUCCESS, "main/p/run": RUNNING, "main/p": RUNNING, "main": RUNNING},
        {"main/p/run": RUNNING, "main/p": RUNNING, "main": RUNNING},
    ]
    order = [call for call in recorder.callbacks if call[1] != "main"]
    assert order[:4] == [
        ("initialise", "main/a"),
        ("update", "main/a"),
        ("terminate", "main/a"),
        ("initialise", "main/p"),
    ]
    assert (recorder.count("update", "main/p/run"), recorder.count("initialise", "main/p/run")) == (2, 1)
    assert recorder.writes == [("main/a", ("log",)), ("main/p/b", ("log",))]
    assert agent.tree.visitors == []
    assert not {"initialise", "update", "terminate"} & set(vars(leaf))


async def test_a_recorder_sees_what_a_run_does_and_changes_nothing() -> None:
    """Under run(), with coroutines and questions: the same end as without it, and each pass once."""
    ends = []
    for watched in (False, True):
        clock = VirtualClock(autojump=True)
        human = ScriptedHuman({"main/q": After(3, "x")})
        agent = Agent(seq("main", Work("a", [], 2), AskInside("q"), Note("b", [])), Desk, clock=clock, human=human)
        recorder = TickRecorder(agent) if watched else None
        with anyio.fail_after(5):
            assert await agent.run() is SUCCESS
        ends.append((clock.now(), agent.state, agent.tree.count))
        if recorder is not None:
            assert len(recorder.passes) == agent.tree.count
            assert recorder.passes[-1]["main/b"] is SUCCESS
            assert recorder.count("terminate", "main/q") == 1
            assert ("main/a", ("log",)) in recorder.writes
    assert ends[0] == ends[1]


# node_context


class Double(Node):
    """Doubles a number."""

    number: In[int]
    twice: Out[int]

    def update(self) -> Any:
        """Double it."""
        self.twice = self.number * self.context.deps
        return SUCCESS


class Fetch(AsyncNode):
    """Takes its time, then writes."""

    note: Out[str]

    async def update_async(self) -> Any:
        """Take ten seconds."""
        await self.context.clock.sleep(10)
        self.note = self.context.path
        return SUCCESS


async def test_one_node_is_tried_on_a_state_of_its_own() -> None:
    """Plain nodes by `tick`, all nodes by `run`; values, deps and clock as given; one state for all of them."""
    clock = VirtualClock(autojump=True)
    bench = node_context(Desk, {"amount": 21}, deps=2, clock=clock)
    assert bench.state.amount == 21
    assert bench.tick(Double(number="amount", twice="amount")) is SUCCESS
    assert bench.state.amount == 42
    with anyio.fail_after(5):
        assert await bench.run(Fetch("fetch", note="note")) is SUCCESS
        agent = bench.agent(ask("q"))
        assert (await agent.run_until_suspend()).suspended
        assert (await agent.resume("x")).status is SUCCESS
    assert (clock.now(), bench.state.note, bench.state.values) == (10, "fetch", {"q": "x"})


async def test_a_bench_refuses_what_an_agent_refuses() -> None:
    """Values that do not fit, bindings that do not exist, a coroutine in a plain tick."""
    with pytest.raises(StateWriteError):
        node_context(Desk, {"amount": "many"})
    bench = node_context(Desk)
    with pytest.raises(SetupError, match="number"):
        bench.tick(Double(twice="amount"))
    with pytest.raises(SetupError, match="step_sync"):
        bench.tick(Fetch("fetch", note="note"))


def test_a_node_in_no_agent_says_how_to_test_it() -> None:
    """The error names `node_context`."""
    node: Behaviour = Double(number=1, twice="amount")
    with pytest.raises(SetupError, match="node_context"):
        node.update()
