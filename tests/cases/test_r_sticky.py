"""Cases R06, R37, R38: what composites that look again start once, and what they do look at again."""

from __future__ import annotations

import operator
from collections.abc import Callable

import py_trees
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ComparisonExpression
from py_trees.composites import Sequence
from py_trees.decorators import EternalGuard, Inverter

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.request import Request
from jianmu.nodes import Retry
from tests.cases.leaves import (
    FAILURE,
    SUCCESS,
    Diary,
    DoAsync,
    Forever,
    Scripted,
    Sleep,
    World,
    nothing_left,
    passes_of,
    run,
    run_with,
)

pytestmark = pytest.mark.anyio


async def test_r06_an_action_behind_an_async_check_is_started_once() -> None:
    """Memoryless Sequence [async check, async action] without a change of state: nothing is halted or started again."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Sequence("s", memory=False, children=[Sleep("check", 0.01, diary), Sleep("act", 0.1, diary)])
    with nothing_left(agent := Agent(root, World, clock=clock)):
        assert await run(agent) is SUCCESS
    assert diary.order() == ["start check", "end check", "start act", "end act"]
    assert clock.now() == pytest.approx(0.11)


class Asks(InteractiveNode):
    """A leaf that asks once and counts."""

    requests = 0

    def request(self) -> Request:
        """Ask."""
        self.requests += 1
        return Request("go on?", answer=bool)

    def on_answer(self, answer: object) -> object:
        """Take it."""
        return SUCCESS


class InTurn(Sleep):
    """An async leaf whose entries have these results, one after the other."""

    def __init__(self, name: str, diary: Diary, *results: object) -> None:
        super().__init__(name, 0.01, diary)
        self.results = list(results)

    async def work(self) -> None:
        """Take the next result."""
        await super().work()
        self.result = self.results.pop(0)


def _in_a_sequence(diary: Diary) -> Behaviour:
    return Sequence("X", memory=True, children=[Sleep("A", 0.01, diary), Scripted("yes", SUCCESS)])


def _inverted_twice(diary: Diary) -> Behaviour:
    return Inverter("X", Inverter("Y", Sleep("A", 0.01, diary)))


def _retried(diary: Diary) -> Behaviour:
    return Retry("X", InTurn("A", diary, FAILURE, SUCCESS), attempts=3)


def _retried_by_py_trees(diary: Diary) -> Behaviour:
    return py_trees.decorators.Retry("X", InTurn("A", diary, FAILURE, SUCCESS), num_failures=3)


def _repeated_by_py_trees(diary: Diary) -> Behaviour:
    return py_trees.decorators.Repeat("X", Sleep("A", 0.01, diary), num_success=2)


@pytest.mark.parametrize(
    ("make", "starts"),
    [(_in_a_sequence, 1), (_inverted_twice, 1), (_retried, 2), (_retried_by_py_trees, 2), (_repeated_by_py_trees, 2)],
)
async def test_r37_an_old_result_holds_while_the_composite_runs(
    make: Callable[[Diary], Behaviour], starts: int
) -> None:
    """Whatever is written meanwhile: X is not executed again, D is started once and never halted."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Sequence("s", memory=False, children=[make(diary), Sleep("D", 0.5, diary)])
    agent = Agent(root, World, clock=clock)

    async def write() -> None:
        while True:
            await clock.sleep(0.05)
            agent.state_manager.transform_field("n", lambda n: n + 1)

    passes = passes_of(agent)
    with nothing_left(agent):
        assert await run_with(agent, write) is SUCCESS
    assert diary.count("start", "A") == starts
    assert (diary.count("start", "D"), diary.count("unwound", "D"), diary.count("unwound", "A")) == (1, 0, 0)
    assert len(passes) >= 10


async def test_r37_an_answered_question_is_not_asked_again() -> None:
    """An interactive node before D: asked once, while the state changes under it."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    asks = Asks("ask")

    async def human(_question: object) -> bool:
        await clock.sleep(0.2)
        return True

    root = Sequence("s", memory=False, children=[Inverter("i", Inverter("j", asks)), Sleep("D", 0.5, diary)])
    agent = Agent(root, World, clock=clock, human=human)

    async def write() -> None:
        while True:
            await clock.sleep(0.05)
            agent.state_manager.transform_field("n", lambda n: n + 1)

    with nothing_left(agent):
        assert await run_with(agent, write) is SUCCESS
    assert asks.requests == 1
    assert diary.at("start", "D") == [0.2]
    assert diary.count("unwound", "D") == 0


async def test_r37_the_next_activation_starts_anew() -> None:
    """A loop around the reactive Sequence means to run it again: each round executes X once."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    inner = Sequence("s", memory=False, children=[Sleep("A", 0.01, diary), Sleep("D", 0.1, diary)])
    agent = Agent(py_trees.decorators.Repeat("r", inner, num_success=3), World, clock=clock)
    assert await run(agent) is SUCCESS
    assert await run(agent) is SUCCESS
    assert (diary.count("start", "A"), diary.count("start", "D")) == (6, 6)


async def test_r38_an_eternal_guard_over_a_plain_object_is_polled() -> None:
    """Its condition turns false without any event: FAILURE within an interval, the leaf halted."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    switch = {"on": True}
    agent = Agent(
        EternalGuard("g", Sleep("leaf", 10, diary), condition=lambda: switch["on"]),
        World,
        clock=clock,
        poll_interval=0.1,
    )

    async def turn() -> None:
        await clock.sleep(1)
        switch["on"] = False

    with nothing_left(agent):
        assert await run_with(agent, turn) is FAILURE
    assert clock.now() <= 1.1 + 1e-6
    assert diary.order() == ["start leaf", "unwound leaf", "cleanup leaf", "clean leaf"]


async def test_r38_a_check_of_the_blackboard_before_a_leaf_is_polled() -> None:
    """CheckBlackboardVariableValue in a memoryless Sequence: the same."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    board = py_trees.blackboard.Client(name="r38")
    board.register_key("r38", py_trees.common.Access.WRITE)
    board.set("r38", 1)
    check = py_trees.behaviours.CheckBlackboardVariableValue("check", ComparisonExpression("r38", 1, operator.eq))
    root = Sequence("s", memory=False, children=[check, Sleep("leaf", 10, diary)])
    agent = Agent(root, World, clock=clock, poll_interval=0.1)

    async def turn() -> None:
        await clock.sleep(1)
        board.set("r38", 2)

    with nothing_left(agent):
        assert await run_with(agent, turn) is FAILURE
    board.unset("r38")
    assert clock.now() <= 1.1 + 1e-6
    assert diary.order() == ["start leaf", "unwound leaf", "cleanup leaf", "clean leaf"]


async def test_r38_a_condition_without_initialise_in_a_python_attribute() -> None:
    """A user's own py_trees leaf that reads an attribute is polled in the same way."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    class Check(Behaviour):
        on = True

        def update(self) -> object:
            return SUCCESS if self.on else FAILURE

    check = Check("check")
    agent = Agent(
        Sequence("s", memory=False, children=[check, Forever("leaf", diary)]), World, clock=clock, poll_interval=0.1
    )

    async def turn() -> None:
        await clock.sleep(1)
        check.on = False

    with nothing_left(agent):
        assert await run_with(agent, turn) is FAILURE
    assert clock.now() <= 1.1 + 1e-6
    assert diary.count("clean", "leaf") == 1


async def test_r38_without_anything_to_poll_there_are_no_passes() -> None:
    """Nodes of jianmu are event-driven: beside a sleeping leaf they are not ticked again."""
    clock = VirtualClock(autojump=True)
    check = Scripted("check", SUCCESS)

    async def sleep(node: DoAsync) -> None:
        await node.context.clock.sleep(10)

    agent = Agent(Sequence("s", memory=False, children=[check, DoAsync("leaf", sleep)]), World, clock=clock)
    assert await run(agent) is SUCCESS
    assert check.ticks == 2
