"""Runs that wait for people: deadlines on the virtual clock, limits, timeouts, `human=`, runs that are cut short."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from py_trees.decorators import Timeout as StockTimeout

from jianmu.agent import Agent
from jianmu.engine.clock import RealClock, VirtualClock
from jianmu.engine.events import Answered, Asked, NodeFinished, RunEnded, Saved
from jianmu.engine.limits import Limits
from jianmu.engine.questions import Answer
from jianmu.engine.request import default, escalate, fail
from jianmu.errors import AgentBusyError, InvalidAnswerError
from jianmu.nodes import Repeat, Retry, Timeout, Timer, WaitFor
from jianmu.stores import MemoryStore
from jianmu.testing import After, InTurn, ScriptedHuman
from tests.cases.leaves import events_of, nothing_left
from tests.cases.people import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    AskAgain,
    AskInside,
    Desk,
    Note,
    Relay,
    Talk,
    Way,
    Work,
    ask,
    par,
    sel,
    seq,
)

pytestmark = pytest.mark.anyio
each_asking = pytest.mark.parametrize("asking", [ask, AskInside])


def stamps(done: list[Any], name: str) -> Talk:
    """Return a leaf that notes the time."""

    async def note(node: Any) -> None:
        done.append((name, node.context.clock.now()))

    return Talk(name, note)


@pytest.mark.parametrize("call", ["run", "run_until_suspend", "with a human"])
async def test_a_run_that_nobody_answers_says_so(call: str, caplog: pytest.LogCaptureFixture) -> None:
    """Under run() without human= one line for each question, when nothing else goes on; nothing of a WaitFor."""
    said = "a question waits, and run() has nobody to ask: give Agent(human=...), or call run_until_suspend()"
    caplog.set_level("INFO", logger="jianmu")
    clock = VirtualClock(autojump=True)
    human = ScriptedHuman({"main/both/a": 1, "main/both/b": 2}) if call == "with a human" else None
    both = par("both", ask("a"), AskInside("b"), Timer("timer", seconds=5))
    agent = Agent(seq("main", WaitFor("pause", seconds=9), both), Desk, clock=clock, human=human)

    def lines() -> list[str]:
        return [record.path for record in caplog.records if record.getMessage().startswith(said)]  # pyright: ignore[reportAttributeAccessIssue]  # bound

    if call != "run":
        await getattr(agent, call if human is None else "run")({})
        assert lines() == []
        return
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, {})
        with anyio.fail_after(20):
            while len(lines()) < 2:
                await clock.sleep(1)
        first, second = agent.interaction.pending
        await agent.interaction.answer(Answer(first.id, 1))
        await clock.sleep(1)
        await agent.interaction.answer(Answer(second.id, 2))
    assert lines() == ["main/both/a", "main/both/b"]


# Deadlines


@each_asking
async def test_under_run_the_steps_of_a_question_are_carried_out_in_time(asking: Callable[..., Behaviour]) -> None:
    """Escalated at 10 and 30, answered by its default at 60: the node goes on at 60, and everything is an event."""
    clock = VirtualClock(autojump=True)
    done: list[Any] = []
    steps = [escalate("boss", 10), escalate("chief", 20), default("no", 30)]
    agent = Agent(seq("main", asking("q", expires=steps, assignee="ann"), stamps(done, "after")), Desk, clock=clock)
    events = events_of(agent)
    seen: list[Any] = []

    async def look() -> None:
        for seconds in (5, 10, 20):
            await clock.sleep(seconds)
            one = agent.interaction.pending[0]
            seen.append((clock.now(), one.assignee, one.status))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            assert await agent.run() is SUCCESS
    assert seen == [(5, "ann", "open"), (15, "boss", "open"), (35, "chief", "open")]
    assert done == [("after", 60)]
    assert agent.state.values == {"q": "no"}
    assert [one.status for one in events if isinstance(one, Answered)] == ["open", "open", "expired"]


@each_asking
async def test_a_suspended_run_is_driven_at_wake_at(asking: Callable[..., Behaviour]) -> None:
    """`wake_at` is the earliest step of all open questions; driven then, the next one is told, until one ends."""
    clock = VirtualClock()
    tree = par(
        "main",
        asking("a", expires=[escalate("boss", 10), default("late", 50)]),
        sel("else", ask("b", expires=[fail(after=30)]), Note("fallback", [])),
        asking("c"),
    )
    agent = Agent(tree, Desk, clock=clock)
    start = clock.utc()
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend()
        times = []
        while outcome.wake_at is not None:
            times.append((outcome.wake_at - start).total_seconds())
            await clock.advance((outcome.wake_at - clock.utc()).total_seconds())
            outcome = await agent.recover()
        assert times == [10, 30, 60]
        assert [one.path for one in outcome.suspensions] == ["main/c"]
        assert agent.state.log == ["fallback"]
        assert (await agent.resume("C")).status is SUCCESS
    assert agent.state.values == {"a": "late", "c": "C"}


async def test_all_steps_that_came_due_meanwhile_are_carried_out_in_order() -> None:
    """Nobody drove the thread for an hour: escalations and the default count as of their own times."""
    clock = VirtualClock()
    agent = Agent(seq("main", ask("q", expires=[escalate("boss", 10), default("no", 50)])), Desk, clock=clock)
    with anyio.fail_after(5):
        asked = (await agent.run_until_suspend()).suspensions[0]
        await clock.advance(3600)
        assert (await agent.recover()).status is SUCCESS
    record = agent.interaction.record(asked.id)
    assert (record.question.assignee, record.taken, record.source) == ("boss", 2, "deadline")
    assert record.ended_at == record.asked_at + timedelta(seconds=60)


async def test_a_long_wait_is_a_question_with_a_deadline(way: Way) -> None:
    """WaitFor(seconds): suspended, woken at its deadline elsewhere; without a message a success, else a failure."""
    relay = Relay(
        way,
        lambda: seq("main", WaitFor("mere", seconds=86400), sel("s", WaitFor("job", message="done?", seconds=10))),
        clock=VirtualClock(),
    )
    with anyio.fail_after(5):
        outcome = await relay.begin()
        assert outcome.wake_at == relay.clock.utc() + timedelta(days=1)
        await relay.clock.advance(86400)
        await relay.move()
        outcome = await relay.agent.recover("t1")
        assert [one.path for one in outcome.suspensions] == ["main/s/job"]
        await relay.clock.advance(10)
        await relay.move()
        assert (await relay.agent.recover("t1")).status is FAILURE


# Time that stands still


@each_asking
async def test_a_timeout_stands_still_over_nothing_but_open_questions(asking: Callable[..., Behaviour]) -> None:
    """4 of 10 seconds are used, a day passes, 5 more are used: no timeout; 7 more would be one."""
    for more, end in ((5, SUCCESS), (7, FAILURE)):
        clock = VirtualClock(autojump=True)
        body = seq("body", Work("a", [], 4), asking("q"), Work("b", [], more))
        agent = Agent(Timeout("limit", body, seconds=10), Desk, clock=clock)
        with anyio.fail_after(5):
            assert (await agent.run_until_suspend()).suspended
            await clock.advance(86400)
            outcome = await agent.resume("x")
        assert (outcome.status, clock.now()) == (end, 86400 + 4 + min(more, 6))


@each_asking
async def test_a_timeout_runs_while_something_works_beside_the_question(asking: Callable[..., Behaviour]) -> None:
    """A coroutine beside the question: the branch does not only wait, so its time is over at 10."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Timeout("limit", par("both", asking("q"), Work("w", [], 99)), seconds=10), Desk, clock=clock)
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend()
    assert (outcome.status, clock.now()) == (FAILURE, 10)
    assert agent.interaction.pending == ()


@each_asking
async def test_a_timeout_elsewhere_goes_on_while_a_question_waits(asking: Callable[..., Behaviour]) -> None:
    """Two branches: the one that waits stands still, the timer of the other holds the run and fires."""
    clock = VirtualClock(autojump=True)
    slow = sel("s", Timeout("slow", Work("w", [], 99), seconds=5), Note("late", []))
    agent = Agent(par("main", Timeout("still", asking("q"), seconds=1), slow), Desk, clock=clock)
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend()
        assert (outcome.suspended, clock.now(), agent.state.log) == (True, 5, ["late"])
        await clock.advance(100)
        assert (await agent.resume("x")).status is SUCCESS


@each_asking
async def test_a_stock_timeout_stands_still_too(asking: Callable[..., Behaviour]) -> None:
    """py_trees' Timeout follows the real clock; over open questions alone it waits as well, under run() and between."""
    limit = StockTimeout("limit", asking("q"), duration=60)
    agent = Agent(limit, Desk, clock=RealClock())
    with anyio.fail_after(5):
        assert (await agent.run_until_suspend()).suspended
        limit.finish_time -= 100  # as if so many seconds had gone by
        assert (await agent.recover()).suspended
        limit.finish_time -= 100
        assert (await agent.resume("x")).status is SUCCESS


async def test_a_run_is_held_by_a_timer_beside_a_question() -> None:
    """`run_until_suspend` returns when the timer is over, not before and not never."""
    clock = VirtualClock(autojump=True)
    agent = Agent(par("main", Timer("t", seconds=30), ask("q")), Desk, clock=clock)
    with anyio.fail_after(5):
        assert (await agent.run_until_suspend()).suspended
    assert clock.now() == 30


# Who answers under run()


@each_asking
async def test_the_human_is_asked_each_question_once(asking: Callable[..., Behaviour]) -> None:
    """Side by side and one after the other; what they say arrives when they say it."""
    clock = VirtualClock(autojump=True)
    done: list[Any] = []
    tree = seq("main", par("both", asking("a"), asking("b")), stamps(done, "mid"), asking("c"), stamps(done, "end"))
    human = ScriptedHuman({"main/both/a": After(5, "A"), "main/both/b": After(7, "B"), "main/c": "C"})
    agent = Agent(tree, Desk, clock=clock, human=human)
    with nothing_left(agent), anyio.fail_after(5), human:
        assert await agent.run() is SUCCESS
    assert done == [("mid", 7), ("end", 7)]
    assert agent.state.values == {"a": "A", "b": "B", "c": "C"}


async def test_the_human_is_left_alone_where_somebody_else_was_faster() -> None:
    """The question is settled by an answer, a deadline or a halt: the human's task is cancelled, its word not used."""
    clock = VirtualClock(autojump=True)
    asked: list[str] = []

    async def human(question: Any) -> Any:
        asked.append(question.key)
        try:
            await clock.sleep(1000)
        finally:
            asked.append(f"{question.key} left at {clock.now():g}")

    tree = par(
        "main",
        ask("answered"),
        ask("expired", expires=[default("no", 3)]),
        sel("s", Timeout("t", par("p", ask("halted"), Work("w", [], 99)), seconds=4), Note("n", [])),
    )
    agent = Agent(tree, Desk, clock=clock, human=human)

    async def other() -> None:
        await clock.sleep(2)
        id = next(one.id for one in agent.interaction.pending if one.key == "answered")
        await agent.interaction.answer(Answer(id, "x"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            with nothing_left(agent):
                assert await agent.run() is SUCCESS
    assert sorted(asked) == [
        "answered", "answered left at 2", "expired", "expired left at 3", "halted", "halted left at 4",
    ]  # fmt: skip


@pytest.mark.parametrize("said", ["wrong", None])
async def test_a_human_that_fails_ends_the_run(said: Any) -> None:
    """An exception of the human, or an answer that does not fit: the run ends with it, the question stays open."""

    async def human(_: Any) -> Any:
        if said is None:
            raise OSError("the line is dead")
        return said

    agent = Agent(seq("main", ask("q", int)), Desk, human=human)
    with nothing_left(agent), anyio.fail_after(5), pytest.raises((OSError, InvalidAnswerError)):
        await agent.run()
    assert len(agent.interaction.pending) == 1
    assert (await agent.resume(7)).status is SUCCESS


async def test_the_human_is_not_asked_where_the_run_is_to_suspend() -> None:
    """`run_until_suspend` and `resume` leave the question to the caller."""
    agent = Agent(seq("main", ask("q"), ask("z")), Desk, human=ScriptedHuman({}))
    with anyio.fail_after(5):
        assert (await agent.run_until_suspend()).suspended
        assert (await agent.resume("x")).suspended


@pytest.mark.parametrize("said", ["approve", "reject", "withdraw", "decline"])
async def test_every_end_of_a_question_wakes_a_live_run(said: str) -> None:
    """Approve, reject, decline, withdraw: the node hears of it at once."""
    clock = VirtualClock(autojump=True)
    agent = Agent(sel("main", ask("q", bool), Note("refused", [])), Desk, clock=clock)

    async def person() -> None:
        await clock.sleep(5)
        id = agent.interaction.pending[0].id
        if said == "decline":
            await agent.interaction.answer(Answer(id, action="decline"))
        else:
            await getattr(agent.interaction, said)(id)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(person)
            assert await agent.run() is SUCCESS
    assert clock.now() == 5
    assert agent.state.values == {"approve": {"q": True}, "reject": {"q": False}}.get(said, {})


async def test_resume_is_refused_while_a_run_is_on() -> None:
    """A live run is answered through `interaction`; a second call gets AgentBusyError and changes nothing."""
    clock = VirtualClock(autojump=True)
    agent = Agent(seq("main", ask("q")), Desk, clock=clock)

    async def person() -> None:
        await clock.sleep(1)
        for call in (agent.resume("x"), agent.recover(), agent.run_until_suspend(), agent.step()):
            with pytest.raises(AgentBusyError):
                await call
        assert len(agent.interaction.pending) == 1
        await agent.interaction.answer(Answer(None, "y"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(person)
            assert await agent.run() is SUCCESS
    assert agent.state.values == {"q": "y"}


# Cut short


@each_asking
@pytest.mark.parametrize("human", [False, True])
@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_cancelled_while_it_only_waits_a_run_stays_suspended(
    asking: Callable[..., Behaviour], human: bool, store: Any
) -> None:
    """The question is open, nothing was halted; an answer goes on from there."""
    done: list[str] = []
    clock = VirtualClock(autojump=True)
    agent = Agent(
        seq("main", Work("a", done, 1), asking("q"), Work("b", done, 1)), Desk, clock=clock,
        human=ScriptedHuman({"main/q": After(999, "x")}) if human else None,
        store=store and store(),
    )  # fmt: skip
    with nothing_left(agent), anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_at, clock, 5, scope)
                await agent.run()
        assert scope.cancelled_caught
    id = agent.interaction.pending[0].id
    assert (agent.status, agent.root.children[1].status) == (RUNNING, RUNNING)
    with anyio.fail_after(5):
        assert [one.id for one in (await agent.recover()).suspensions] == [id]
        assert (await agent.resume("x")).status is SUCCESS
    assert done == ["a", "b"]


async def _cancel_at(clock: VirtualClock, seconds: float, scope: anyio.CancelScope) -> None:
    await clock.sleep(seconds)
    scope.cancel()


Cut = Callable[[Agent[Any], VirtualClock], Any]


async def _by_cancelling(agent: Agent[Any], clock: VirtualClock) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_at, clock, 3, scope)
            await agent.run(thread_id="t1")
    assert scope.cancelled_caught


async def _by_halting(agent: Agent[Any], clock: VirtualClock) -> None:
    async def halt() -> None:
        await clock.sleep(3)
        other = threading.Thread(target=agent.halt)
        other.start()
        other.join()  # at once: the virtual clock would jump while this task waits

    async with anyio.create_task_group() as group:
        group.start_soon(halt)
        assert await agent.run(thread_id="t1") is INVALID


async def _by_a_limit(agent: Agent[Any], clock: VirtualClock) -> None:
    outcome = await agent.run_until_suspend(limits=Limits(timeout=3), thread_id="t1")
    assert (outcome.status, outcome.limit, clock.now()) == (INVALID, "timeout", 4)  # the cleanup's second included


async def _by_an_exception(agent: Agent[Any], clock: VirtualClock) -> None:
    agent.runner.context.deps.append("break")
    with pytest.raises(ZeroDivisionError):
        await agent.run(thread_id="t1")


@pytest.mark.parametrize("cut", [_by_cancelling, _by_halting, _by_a_limit, _by_an_exception])
async def test_k36_cut_short_in_the_middle_a_run_goes_on(way: Way, cut: Cut) -> None:
    """A is not run again, B is entered from its top, C follows; the question has its old id; cleanups are kept."""
    done: list[str] = []

    class B(Work):
        async def update_async(self) -> Any:
            done.append("B entered")
            await self.context.clock.sleep(2)
            if "break" in self.context.deps:
                self.context.deps.clear()
                raise ZeroDivisionError
            return await super().update_async()

        async def cleanup(self) -> None:
            await self.context.clock.sleep(1)
            self.write_state({"note": "cleaned"})

    def build() -> Behaviour:
        line = seq("line", Note("A", done), B("B", done, 8), Note("C", done))
        return par("main", Retry("r", line, attempts=2), AskInside("q"), ask("z"))

    relay = Relay(way, build, deps=[])
    with anyio.fail_after(10):
        with nothing_left(relay.agent):
            await cut(relay.agent, relay.clock)
        assert relay.agent.state.note == ("" if cut is _by_an_exception else "cleaned")
        assert relay.agent.status is INVALID
        before = relay.pending
        assert sorted(before) == ["main/q", "main/z"]
        await relay.move()
        assert relay.pending == before
        outcome = await relay.agent.recover("t1")
        assert (outcome.suspended, relay.pending) == (True, before)
        assert done == ["A", "B entered", "B entered", "B", "C"]
        await relay.resume("Q", "main/q")
        assert (await relay.resume("Z")).status is SUCCESS
    assert relay.values == {"q": "Q", "z": "Z"}


async def test_answered_after_a_halt_the_run_goes_on_with_the_answer(way: Way) -> None:
    """`resume` on a thread that was cut short: the answer is taken, and everything that was at work goes on."""
    done: list[str] = []
    relay = Relay(way, lambda: par("main", Work("w", done, 10), ask("q"), AskAgain("n", [])))
    with anyio.fail_after(5):
        await _by_halting(relay.agent, relay.clock)
        outcome = await relay.resume("x", "main/q")
        assert (outcome.suspended, done, relay.values) == (True, ["w"], {"q": "x"})
        assert (await relay.resume(1)).status is SUCCESS


# Events


async def test_v08_a_run_that_asks_tells_it_in_order() -> None:
    """Asked, Answered (with who), the node's end, then Saved before RunEnded."""
    agent = Agent(seq("main", ask("q")), Desk, store=MemoryStore())
    events = events_of(agent)
    with anyio.fail_after(5):
        await agent.run_until_suspend()
        await agent.resume("x", by="ann")
    told = [one for one in events if isinstance(one, Asked | Answered | NodeFinished | Saved | RunEnded)]
    names = [f"{type(one).__name__} {one.path or ''}".strip() for one in told]
    ended = ["NodeFinished main/q", "NodeFinished main", "Saved", "RunEnded"]
    assert names == ["Saved", "Asked main/q", "Saved", "RunEnded", "Answered main/q", *ended]
    assert next(one.by for one in told if isinstance(one, Answered)) == "ann"


async def test_v06_three_days_pass_in_no_time() -> None:
    """A scripted human that takes three days for each of five rounds: under a second of real time, the same twice."""
    ends = []
    for _ in range(2):
        clock = VirtualClock(autojump=True)
        human = ScriptedHuman({"main/round/q": InTurn([After(3 * 86400, n) for n in range(5)])})
        tree = Repeat("main", seq("round", Work("w", [], 60), AskInside("q", int)), times=5)
        agent = Agent(tree, Desk, clock=clock, human=human)
        with anyio.fail_after(1), human:
            assert await agent.run() is SUCCESS
        ends.append((clock.now(), agent.state.values, agent.state.log))
    assert ends[0] == ends[1]
    assert ends[0][0] == 5 * (3 * 86400 + 60)
