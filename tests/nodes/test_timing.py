"""Timer, Timeout, Cooldown."""

from __future__ import annotations

import time

import anyio
import py_trees
import pytest
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.node import AsyncNode
from jianmu.engine.ticker import halt, tick
from jianmu.errors import SetupError
from jianmu.nodes import Answer, AskHuman, Cooldown, ForceSuccess, ForEach, Guard, Repeat, Timeout, Timer
from tests.cases.leaves import FAILURE, INVALID, RUNNING, SUCCESS, Forever, Scripted, Sleep, passes_of
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


# Timer


@pytest.mark.parametrize("seconds", [5, 0.1, lambda s: s.amount])
async def test_a_timer_waits(seconds: object) -> None:
    """SUCCESS when the time is over, on the agent's clock; one pass begins it, one ends it."""
    table = Table(lambda diary: Timer("t", seconds=seconds))
    passes = passes_of(table.agent, table.clock)
    assert await table.run() is SUCCESS
    expected = 5 if callable(seconds) else seconds
    assert passes == [0.0, pytest.approx(expected)]


async def test_a_timer_of_no_seconds_is_over_at_once() -> None:
    """SUCCESS at once when the time is 0."""
    table = Table(lambda diary: Timer("t", seconds=0))
    passes = passes_of(table.agent)
    assert await table.run() is SUCCESS
    assert len(passes) == 1


async def test_a_halted_timer_waits_the_whole_time_again() -> None:
    """Halting forgets the time."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[Guard("g", Forever("f", diary), condition=lambda s: s.n == 1), Timer("t", seconds=1)],
        )
    )
    assert await table.run_with(table.writing(0.6, n=1), table.writing(0.7, n=2)) is SUCCESS
    assert table.clock.now() == pytest.approx(1.7)


async def test_early_passes_do_not_move_a_timer() -> None:
    """A write before its end ticks it, and changes nothing."""
    table = Table(lambda diary: Timer("t", seconds=1))
    assert await table.run_with(*(table.writing(k / 10, n=k) for k in range(1, 10))) is SUCCESS
    assert table.clock.now() == pytest.approx(1, abs=1e-9)


# Timeout


async def test_r02_a_timeout_fires_by_itself() -> None:
    """A Timeout of 0.1 over 0.7: FAILURE at t=0.1; the leaf has been halted and cleaned up."""
    table = Table(lambda diary: Timeout("t", Sleep("a", 0.7, diary), seconds=0.1))
    assert await table.run() is FAILURE
    assert table.clock.now() == pytest.approx(0.1)
    assert table.diary.at("clean", "a") == [0.1]
    assert table.root.feedback_message == "timed out"


@pytest.mark.parametrize("result", [SUCCESS, FAILURE])
async def test_a_timeout_returns_what_its_child_returns(result: object) -> None:
    """SUCCESS, FAILURE: as the child."""
    table = Table(lambda diary: Timeout("t", Sleep("a", 0.5, diary, result=result), seconds=lambda s: s.amount))
    assert await table.run() is result
    assert table.clock.now() == pytest.approx(0.5)


async def test_r11_a_result_beats_a_timer_that_is_late() -> None:
    """The child ends at 0.099, the loop is blocked from 0.05 to 0.15: SUCCESS, since the result is in."""

    class Work(AsyncNode):
        async def update_async(self) -> object:
            await anyio.sleep(0.099)
            return SUCCESS

    agent = Agent(Timeout("t", Work("a"), seconds=0.1))

    async def block() -> None:
        await anyio.sleep(0.05)
        time.sleep(0.1)  # noqa: ASYNC251  # it is the loop that is to be blocked

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(block)
            assert await agent.run() is SUCCESS


async def test_a_result_at_the_very_moment_counts() -> None:
    """The child's result and the end of the time at one instant: the result counts."""
    table = Table(lambda diary: Timeout("t", Sleep("a", 1, diary), seconds=1))
    assert await table.run() is SUCCESS


async def test_n10_a_halted_timeout_has_the_whole_time_again() -> None:
    """Timeout(1.0) halted at 0.6 and entered again has the full 1.0 again."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Forever("f", diary), condition=lambda s: s.n == 1),
                Timeout("t", Forever("a", diary), seconds=1),
            ],
        )
    )
    assert await table.run_with(table.writing(0.6, n=1), table.writing(0.7, n=2)) is FAILURE
    assert table.clock.now() == pytest.approx(1.7)


async def test_a_timeout_stands_still_while_its_child_waits_only_for_people() -> None:
    """The time stops while the subtree waits only for people, and goes on with the answer."""
    table = Table(
        lambda diary: Timeout(
            "t",
            Sequence(
                "s", memory=True, children=[Sleep("a", 0.6, diary), AskHuman("ask", message="?"), Forever("b", diary)]
            ),
            seconds=1,
        )
    )

    async def reply() -> None:
        await table.clock.sleep(1000)
        table.agent.interaction.answer_nowait(answer_to(table.agent))

    assert await table.run_with(reply) is FAILURE
    assert table.diary.at("start", "b") == [1000.0]
    assert table.clock.now() == pytest.approx(1000.4)


def answer_to(agent: Agent[Desk], payload: str = "yes") -> object:
    """Return an answer to the open question."""
    return Answer(agent.interaction.pending[0].id, payload)


async def test_a_timeout_over_a_question_lets_the_run_suspend() -> None:
    """run_until_suspend() returns at the question at once: the Timeout above holds nothing up."""
    table = Table(lambda diary: Timeout("t", AskHuman("ask", message="?", into="answer"), seconds=5))
    outcome = await table.agent.run_until_suspend()
    assert outcome.suspended
    assert table.clock.now() == 0
    await table.clock.sleep(0)
    outcome = await table.agent.resume("yes")
    assert outcome.status is SUCCESS
    assert table.state.answer == "yes"


async def test_a_timeout_beside_a_question_goes_on_while_a_sibling_works() -> None:
    """A child that asks and works at once is not waiting only for people: the time runs."""
    table = Table(
        lambda diary: Timeout(
            "t",
            Parallel("p", ParallelPolicy.SuccessOnAll(), [AskHuman("ask", message="?"), Forever("b", diary)]),
            seconds=1,
        )
    )
    assert await table.run() is FAILURE
    assert table.clock.now() == pytest.approx(1)


# Cooldown


async def test_a_cooldown_fails_until_the_time_is_over() -> None:
    """FAILURE, and the child is not ticked, until `seconds` have passed since it last finished."""
    table = Table(
        lambda diary: Repeat(
            "r",
            Sequence(
                "s",
                memory=True,
                children=[ForceSuccess("f", Cooldown("c", Sleep("a", 1, diary), seconds=2)), Sleep("pause", 1, diary)],
            ),
            times=4,
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("start", "a") == [0.0, 3.0]


@pytest.mark.parametrize("result", [SUCCESS, FAILURE])
async def test_a_cooldown_returns_what_its_child_returns(result: object) -> None:
    """SUCCESS, FAILURE: as the child, when it does not rest."""
    table = Table(lambda diary: Cooldown("c", Sleep("a", 1, diary, result=result), seconds=lambda s: s.amount))
    assert await table.run() is result
    assert table.clock.now() == pytest.approx(1)


async def test_a_cooldown_calls_a_composite_that_looks_again() -> None:
    """Where a composite looks again, the tree is ticked when the time is over."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[Cooldown("c", Scripted("a", FAILURE, SUCCESS, diary=diary), seconds=2), Forever("b", diary)],
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("update", "a") == [0.0, 2.0]
    assert table.diary.at("clean", "b") == [2.0]


async def test_the_success_of_a_cooldown_stands() -> None:
    """A composite that looks again finds the SUCCESS of this activation, not a FAILURE of the rest since."""
    table = Table(
        lambda diary: Sequence(
            "s", memory=False, children=[Cooldown("c", Sleep("a", 1, diary), seconds=10), Sleep("b", 2, diary)]
        )
    )
    assert await table.run_with(table.writing(1.5, n=1), table.writing(2, n=2)) is SUCCESS
    assert table.diary.order() == ["start a", "end a", "start b", "end b"]


async def test_a_halted_child_has_not_finished() -> None:
    """Halting does not begin the rest."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Forever("f", diary), condition=lambda s: s.n == 1),
                Cooldown("c", Sleep("a", 1, diary), seconds=10),
            ],
        )
    )
    assert await table.run_with(table.writing(0.5, n=1), table.writing(0.6, n=2)) is SUCCESS
    assert table.diary.at("start", "a") == [0.0, 0.6]


async def test_a_cooldown_does_not_hold_up_a_suspension() -> None:
    """A run that waits for a person only suspends at once, though a Cooldown rests in it."""
    table = Table(
        lambda diary: Sequence(
            "s",
            memory=True,
            children=[Cooldown("c", Scripted("a", SUCCESS), seconds=100), AskHuman("ask", message="?")],
        )
    )
    outcome = await table.agent.run_until_suspend()
    assert outcome.suspended
    assert table.clock.now() == 0


# All


@pytest.mark.parametrize("kind", [Timer, Timeout, Cooldown])
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", None, True])
def test_wrong_seconds_are_refused_at_once(kind: type, seconds: object) -> None:
    """Seconds are a number from 0 up, or a function; anything else is refused with the call to write."""
    child = () if kind is Timer else (Scripted("a", SUCCESS),)
    with pytest.raises(
        SetupError, match=rf"{kind.__name__}\(\"t\".*seconds=\.\.\.\) takes seconds, from 0 to 100 years"
    ):
        kind("t", *child, seconds=seconds)


async def test_times_go_on_or_stand_still_in_a_checkpoint() -> None:
    """In another process a Timer has gone on meanwhile, a Timeout has not, a Cooldown has."""
    clock = VirtualClock()

    def make() -> Agent[Desk]:
        root = Parallel(
            "p",
            ParallelPolicy.SuccessOnAll(),
            [
                Timer("timer", seconds=10),
                Timeout("timeout", Scripted("a", RUNNING), seconds=10),
                Cooldown("cool", Scripted("b", SUCCESS), seconds=10),
            ],
        )
        return Agent(root, Desk, clock=clock)

    first = make()
    first.step_sync()
    await clock.advance(4)
    data = first.dump_checkpoint()
    await clock.advance(4)
    second = make()
    second.load_checkpoint(data)
    second.step_sync()
    timer, timeout, cool = second.root.children
    await clock.advance(3)
    second.step_sync()
    assert (timer.status, timeout.status) == (SUCCESS, RUNNING)
    await clock.advance(3.1)
    second.step_sync()
    assert timeout.status in (FAILURE, INVALID)
    assert cool.status is not RUNNING


async def test_a_timeout_that_has_run_before_holds_no_suspension_up() -> None:
    """The time ran while the child worked; as soon as it waits for a person only, the run is suspended."""
    table = Table(
        lambda diary: Timeout(
            "t",
            Sequence("s", memory=True, children=[Sleep("a", 0.6, diary), AskHuman("ask", message="?")]),
            seconds=1,
        )
    )
    outcome = await table.agent.run_until_suspend()
    assert outcome.suspended
    assert table.clock.now() == pytest.approx(0.6)


async def test_a_rest_that_nobody_looks_at_holds_no_suspension_up() -> None:
    """A Cooldown that has failed in a composite with memory asks for no tick."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=True,
            children=[Cooldown("c", Scripted("a", FAILURE), seconds=100), AskHuman("ask", message="?")],
        )
    )
    outcome = await table.agent.run_until_suspend()
    assert outcome.suspended
    assert table.clock.now() == 0


async def test_n16_a_stock_timer_halted_and_entered_again() -> None:
    """Stock Timer(0.3) on the real clock, halted at 0.2: SUCCESS not before 0.3 after the second entry, by 0.4."""
    begun: list[float] = []
    timer = py_trees.timers.Timer("timer", duration=0.3)
    inner = timer.initialise
    timer.initialise = lambda: (begun.append(time.monotonic()), inner())
    other = Guard("g", Scripted("x", RUNNING), condition=lambda s: s.n == 1)
    agent = Agent(Selector("s", memory=False, children=[other, timer]), Desk)

    async def turn() -> None:
        for n, seconds in ((1, 0.2), (2, 0.01)):
            await anyio.sleep(seconds)
            agent.state_manager.update({"n": n})

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(turn)
            assert await agent.run() is SUCCESS
    assert len(begun) == 2
    assert 0.3 <= time.monotonic() - begun[1] < 5  # 0.4 on a machine that is not busy


def test_n16_a_stock_repeat_halted_and_entered_again() -> None:
    """Stock Repeat(3) halted after two successes and entered again: three more successes are needed."""
    repeat = py_trees.decorators.Repeat("r", Scripted("a", SUCCESS), num_success=3)
    assert [tick(repeat), tick(repeat)] == [RUNNING, RUNNING]
    halt(repeat)
    assert [tick(repeat), tick(repeat), tick(repeat)] == [RUNNING, RUNNING, SUCCESS]


def test_a_rest_that_has_not_begun_is_not_written() -> None:
    """A Cooldown that no pass has reached yet, below a ForEach with a limit, does not keep a run from being dumped."""
    root = ForEach("each", lambda item, _: Cooldown(item, Scripted("a", RUNNING), seconds=9), over=["x", "y"], limit=1)
    agent = Agent(root)
    agent.step_sync()
    copy = Agent(ForEach("each", lambda item, _: Cooldown(item, Scripted("a", RUNNING), seconds=9), over=[], limit=1))
    copy.load_checkpoint(agent.dump_checkpoint())
    assert [child.status for child in copy.root.children] == [RUNNING, INVALID]


async def test_each_thread_of_an_agent_has_a_rest_of_its_own() -> None:
    """A Cooldown that rests in one thread does not in another; a new run of the same thread finds it resting."""
    table = Table(lambda diary: Cooldown("c", Scripted("a", SUCCESS), seconds=100))
    assert await table.agent.run(thread_id="one") is SUCCESS
    assert await table.agent.run(thread_id="one") is FAILURE
    assert await table.agent.run(thread_id="two") is SUCCESS
