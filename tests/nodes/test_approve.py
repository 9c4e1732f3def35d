"""Approve: what was shown may run, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.errors import SetupError
from jianmu.nodes import Answer, Approve, AskHuman, Guard, Retry, RunningIsFailure, Selector, Sequence, Timeout, fail
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, Diary, Scripted, Sleep
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


def made(diary: Diary, **options: Any) -> Approve:
    """A payment that needs approval."""
    child = Sleep("pay", 1, diary)
    options = {"message": "pay?", "show": lambda s: {"to": "a", "amount": s.amount}, **options}
    return Approve("approve", child, **options)


async def test_approved_the_child_runs() -> None:
    """RUNNING while the question is open and the child is not started; approved: the child's result."""
    table = Table(made)
    outcome = await table.agent.run_until_suspend()
    question = outcome.suspensions[0]
    assert (question.message, question.data, question.reason) == ("pay?", {"to": "a", "amount": 5}, "approval")
    assert table.diary.order() == []
    outcome = await table.agent.resume(True)
    assert outcome.status is SUCCESS
    assert table.diary.order() == ["start pay", "end pay"]


async def test_a_child_that_fails_is_failure() -> None:
    """FAILURE: as the child."""
    agent = Agent(Approve("a", Scripted("x", FAILURE), message="?"), Desk)
    await agent.run_until_suspend()
    assert (await agent.resume(True)).status is FAILURE


async def test_edited_arguments_can_be_read_by_the_child() -> None:
    """What the person has changed is at `node.edited` when the child starts."""
    seen: list[Any] = []

    class Pay(Scripted):
        def update(self) -> Any:
            seen.append(vars(self.parent)["edited"])
            return SUCCESS

    agent = Agent(Approve("a", Pay("x", SUCCESS), message="?"), Desk)
    question = (await agent.run_until_suspend()).suspensions[0]
    await agent.interaction.approve(question.id, edited={"amount": 3})
    assert (await agent.recover()).status is SUCCESS
    assert seen == [{"amount": 3}]


@pytest.mark.parametrize(
    ("payload", "reason"), [(False, "rejected"), ({"approved": False, "reason": "too much"}, "too much")]
)
async def test_rejected_is_failure_with_the_reason(payload: Any, reason: str) -> None:
    """Rejected: FAILURE with the reason as feedback; the child does not run."""
    table = Table(made)
    await table.agent.run_until_suspend()
    outcome = await table.agent.resume(payload)
    assert outcome.status is FAILURE
    assert table.root.feedback_message == reason
    assert table.diary.order() == []


async def test_expired_or_withdrawn_is_failure_with_the_reason() -> None:
    """Expired and withdrawn are FAILURE with the reason; the child does not run."""
    table = Table(lambda diary: made(diary, expires=[fail(after=10)]))
    assert await table.run() is FAILURE
    assert table.root.feedback_message == "expired"
    table = Table(made)
    question = (await table.agent.run_until_suspend()).suspensions[0]
    await table.agent.interaction.withdraw(question.id, "off")
    assert (await table.agent.recover()).status is FAILURE
    assert table.root.feedback_message == "off"
    assert table.diary.order() == []


async def test_i17_an_approval_is_used_for_nothing_but_what_was_shown() -> None:
    """The amount changes before the approval: the child does not run; a new question shows the new amount."""
    table = Table(made)
    first = (await table.agent.run_until_suspend()).suspensions[0]
    table.agent.state_manager.update({"amount": 50})
    outcome = await table.agent.resume(True)
    assert outcome.suspended
    second = outcome.suspensions[0]
    assert second.data == {"to": "a", "amount": 50}
    assert second.id != first.id
    assert second.digest != first.digest
    assert table.diary.order() == []
    outcome = await table.agent.resume(True)
    assert outcome.status is SUCCESS
    assert table.diary.order() == ["start pay", "end pay"]


async def test_a_message_that_follows_the_state_counts_as_shown() -> None:
    """The digest covers the message too."""
    table = Table(lambda diary: made(diary, show=None, message=lambda s: f"pay {s.amount}?"))
    await table.agent.run_until_suspend()
    table.agent.state_manager.update({"amount": 50})
    outcome = await table.agent.resume(True)
    assert [question.message for question in outcome.suspensions] == ["pay 50?"]


async def test_what_changes_while_the_child_runs_changes_nothing() -> None:
    """`show` is computed before the child starts, not afterwards."""
    table = Table(made)

    async def reply() -> None:
        await table.clock.sleep(1)
        table.agent.interaction.answer_nowait(Answer(None, True))
        await table.write(0.5, amount=50)

    assert await table.run_with(reply) is SUCCESS
    assert table.diary.order() == ["start pay", "end pay"]


async def test_halting_withdraws_the_question_and_halts_the_child() -> None:
    """Halted while it asks: withdrawn; halted while the child runs: the child is halted. The next entry asks anew."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[Guard("g", Scripted("x", RUNNING), condition=lambda s: s.n % 2 == 1), made(diary)],
        )
    )

    def pending() -> list[str]:
        return [question.id for question in table.agent.interaction.pending]

    seen: list[list[str]] = []

    async def turn() -> None:
        for n in (1, 2):
            await table.clock.sleep(1)
            seen.append(pending())
            await table.write(0, n=n)
        await table.clock.sleep(1)
        seen.append(pending())
        table.agent.interaction.answer_nowait(Answer(None, True))
        await table.write(0.5, n=3)
        await table.write(0.1, n=4)
        await table.clock.sleep(1)
        seen.append(pending())
        table.agent.interaction.answer_nowait(Answer(None, True))

    assert await table.run_with(turn) is SUCCESS
    assert [len(ids) for ids in seen] == [1, 0, 1, 1]
    assert len({id for ids in seen for id in ids}) == 3
    assert table.diary.order("start", "cleanup", "end") == ["start pay", "cleanup pay", "start pay", "end pay"]


async def test_a_rejection_holds_while_a_composite_looks_again() -> None:
    """A memoryless Selector that looks again does not ask again."""
    table = Table(lambda diary: Selector("s", memory=False, children=[made(diary), Sleep("b", 2, diary)]))

    async def reply() -> None:
        await table.clock.sleep(1)
        table.agent.interaction.answer_nowait(Answer(None, False))

    assert await table.run_with(reply, table.writing(2, n=1), table.writing(2.5, n=2)) is SUCCESS
    assert table.diary.order() == ["start b", "end b"]
    assert len(table.agent.interaction.dump()["records"]) == 1


async def test_a_branch_that_waits_for_approval_waits_for_people() -> None:
    """A Timeout above stands still meanwhile, and run_until_suspend() returns at once."""
    table = Table(lambda diary: Timeout("t", made(diary), seconds=3))
    outcome = await table.agent.run_until_suspend()
    assert outcome.suspended
    assert table.clock.now() == 0


@pytest.mark.parametrize("phase", ["asking", "running"])
async def test_in_another_process_it_goes_on(phase: str) -> None:
    """From JSON alone: an open question can be answered; an approval that was used is not asked for again."""

    def make() -> Agent[Desk]:
        return Agent(
            Approve("a", AskHuman("x", message="how?", into="answer"), message="?"), Desk, clock=VirtualClock()
        )

    first = make()
    await first.run_until_suspend()
    if phase == "running":
        await first.interaction.approve(edited=[1])
        await first.recover()
    second = make()
    second.load_checkpoint(json.loads(json.dumps(first.dump_checkpoint())))
    if phase == "asking":
        await second.resume({"approved": True, "editedArgs": [1]})
    root: Any = second.root
    assert root.edited == [1]
    outcome = await second.resume("so")
    assert outcome.status is SUCCESS
    assert second.state.answer == "so"
    assert len(second.interaction.dump()["records"]) == 2


def test_a_wrong_show_is_refused() -> None:
    """`show` is a plain function."""
    with pytest.raises(SetupError, match=r'Approve\("a", child, show=\.\.\.\) takes a function, not 3'):
        Approve("a", Scripted("x", SUCCESS), message="?", show=3)


def test_approvals_in_a_row() -> None:
    """Two approvals of one tree have two questions."""
    nodes: list[Behaviour] = [Approve(name, Scripted("x", SUCCESS), message="?") for name in "ab"]
    agent = Agent(Sequence("s", memory=True, children=nodes), Desk)
    agent.step_sync()
    agent.interaction.answer_nowait(Answer(None, True))
    agent.step_sync()
    assert [question.path for question in agent.interaction.pending] == ["s/b"]


async def test_a_loop_over_a_rejection_is_not_begun_anew_by_looking() -> None:
    """Two attempts are rejected; a memoryless Selector that looks again asks no third time."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[Retry("r", Approve("a", Scripted("x", SUCCESS), message="?"), attempts=2), Sleep("b", 2, diary)],
        )
    )

    async def reply() -> None:
        for _ in range(2):
            await table.clock.sleep(1)
            table.agent.interaction.answer_nowait(Answer(None, False))

    assert await table.run_with(reply, table.writing(3, n=1), table.writing(3.5, n=2)) is SUCCESS
    assert table.diary.order() == ["start b", "end b"]
    assert len(table.agent.interaction.dump()["records"]) == 2


def test_a_decorator_that_never_lets_it_wait_is_refused() -> None:
    """RunningIsFailure above would withdraw the question in the pass that asks: SetupError with the path."""
    node = RunningIsFailure("r", Approve("a", Scripted("x", SUCCESS), message="?"))
    with pytest.raises(SetupError, match=r"node 'r' never lets 'r/a' start"):
        Agent(node, Desk)
