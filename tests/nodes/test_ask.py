"""AskHuman, Choose, WaitFor."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.errors import ExpiredError, InvalidAnswerError, RunError, SetupError, WithdrawnError
from jianmu.nodes import (
    Answer,
    AskHuman,
    Choose,
    ForceSuccess,
    Guard,
    Parallel,
    Selector,
    Sequence,
    WaitFor,
    default,
    fail,
)
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, Do, Scripted, Sleep
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


class Refund(BaseModel):
    """A typed answer."""

    amount: int
    why: str = ""


def asks(node: Behaviour, **options: Any) -> Agent[Any]:
    """Return an agent on a clock that is turned by hand."""
    return Agent(node, Desk, clock=VirtualClock(), **options)


MAKERS = [
    lambda **options: AskHuman("ask", message="?", **options),
    lambda **options: Choose("ask", message="?", options=["yes", "no"], **{"into": "answer", **options}),
]
BOTH = pytest.mark.parametrize("make", MAKERS, ids=["AskHuman", "Choose"])


@BOTH
async def test_answered_is_success(make: Any) -> None:
    """RUNNING while the question is open, SUCCESS when it is answered; the answer is written to `into`."""
    agent = asks(make(into="answer"))
    outcome = await agent.run_until_suspend()
    assert outcome.status is RUNNING
    assert [question.message for question in outcome.suspensions] == ["?"]
    outcome = await agent.resume("yes")
    assert outcome.status is SUCCESS
    assert agent.state.answer == "yes"


@BOTH
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_declined_is_failure_with_the_reason(make: Any, action: Any) -> None:
    """FAILURE when it was declined or cancelled, with the reason as feedback; nothing is written."""
    agent = asks(make(into="answer"))
    outcome = await agent.run_until_suspend()
    await agent.interaction.answer(Answer(outcome.suspensions[0].id, "no time", action=action))
    outcome = await agent.recover()
    assert outcome.status is FAILURE
    assert agent.root.feedback_message.endswith("ed: no time")
    assert agent.state.answer is None


@BOTH
async def test_halting_withdraws_the_question(make: Any) -> None:
    """Halted by the tree, the question is withdrawn; the next entry asks anew, under another id."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[Guard("g", Scripted("x", RUNNING), condition=lambda s: s.n == 1), make(into="answer")],
        )
    )
    ids: list[str] = []

    async def turn() -> None:
        await table.clock.sleep(1)
        ids.extend(question.id for question in table.agent.interaction.pending)
        await table.write(0, n=1)
        await table.clock.sleep(1)
        assert table.agent.interaction.pending == ()
        with pytest.raises(WithdrawnError):
            table.agent.interaction.answer_nowait(Answer(ids[0], "yes"))
        await table.write(0, n=2)
        await table.clock.sleep(1)
        ids.extend(question.id for question in table.agent.interaction.pending)
        table.agent.interaction.answer_nowait(Answer(ids[1], "no"))

    assert await table.run_with(turn) is SUCCESS
    assert len(set(ids)) == 2
    assert table.state.answer == "no"


async def test_the_options_of_a_request_are_handed_on() -> None:
    """Message and data may follow the state; reason, key, assignee, metadata and private are the request's own."""
    agent = asks(
        AskHuman(
            "ask",
            message=lambda s: f"pay {s.amount}?",
            data=lambda s: {"amount": s.amount},
            reason="payment",
            key="k",
            assignee="ann",
            metadata={"m": 1},
            private={"p": 2},
        )
    )
    question = (await agent.run_until_suspend()).suspensions[0]
    assert (question.message, question.data, question.reason, question.key) == ("pay 5?", {"amount": 5}, "payment", "k")
    assert (question.assignee, question.metadata) == ("ann", {"m": 1})
    assert agent.interaction.record(question.id).private == {"p": 2}


async def test_a_typed_answer_is_checked_at_the_door_and_written_as_its_type() -> None:
    """What does not fit is refused and the question stays open; what fits arrives as the type asked for."""
    agent = asks(AskHuman("ask", message="?", answer=Refund, into="outs.refund"))
    await agent.run_until_suspend()
    with pytest.raises(InvalidAnswerError):
        await agent.resume({"amount": "5"})
    outcome = await agent.resume({"amount": 5})
    assert outcome.status is SUCCESS
    assert agent.state.outs["refund"] == Refund(amount=5)


async def test_in_another_process_the_answer_has_its_type_too() -> None:
    """Loaded from JSON into new nodes: the answer is checked and read as the type that the node asks for."""
    agents = [asks(AskHuman("ask", message="?", answer=Refund, into="outs.refund")) for _ in range(2)]
    await agents[0].run_until_suspend()
    agents[1].load_checkpoint(json.loads(json.dumps(agents[0].dump_checkpoint())))
    with pytest.raises(InvalidAnswerError):
        await agents[1].resume({"amount": "5"})
    await agents[1].resume({"amount": 5})
    assert agents[1].state.outs["refund"] == Refund(amount=5)


@pytest.mark.parametrize("payload", [None, False, 0, "", [], {}])
async def test_i06_every_json_value_is_an_answer(payload: Any) -> None:
    """Each JSON value is taken and arrives exactly as given."""
    agent = asks(AskHuman("ask", message="?", answer=Any, into="outs.any"))
    await agent.run_until_suspend()
    assert (await agent.resume(payload)).status is SUCCESS
    assert agent.state.outs == {"any": payload}


async def test_i13_a_question_that_fails_at_its_deadline() -> None:
    """Asked at 0, restarted at 30: at 60 it is FAILURE and the fallback runs; a late answer is an ExpiredError."""
    clock = VirtualClock()
    ran: list[str] = []

    def make() -> Agent[Desk]:
        ask = AskHuman("ask", message="?", expires=[fail(after=60)])
        return Agent(
            Selector("s", memory=True, children=[ask, Do("back", lambda _: ran.append("back"))]), Desk, clock=clock
        )

    first = make()
    question = (await first.run_until_suspend()).suspensions[0]
    await clock.advance(30)
    second = make()
    second.load_checkpoint(json.loads(json.dumps(first.dump_checkpoint())))
    await clock.advance(31)
    outcome = await second.recover()
    assert outcome.status is SUCCESS
    assert ran == ["back"]
    assert second.root.children[0].feedback_message == "expired"
    assert second.interaction.record(question.id).status == "expired"
    with pytest.raises(ExpiredError):
        await second.interaction.answer(Answer(question.id, "late"))


async def test_i24_a_default_answer_comes_from_the_deadline() -> None:
    """At 60 the node gets "no"; the record says that it came from the deadline, not from a person."""
    table = Table(lambda diary: AskHuman("ask", message="?", into="answer", expires=[default("no", after=60)]))
    assert await table.run() is SUCCESS
    assert table.clock.now() == pytest.approx(60)
    assert table.state.answer == "no"
    record = table.agent.interaction.dump()["records"][0]
    assert record["source"] == "deadline"


async def test_i26_a_withdrawn_question_is_failure_with_the_reason() -> None:
    """Parallel [ForceSuccess(ask A), ask B]: A withdrawn is FAILURE with the reason, and takes no answer."""
    ask_a, ask_b = AskHuman("a", message="?"), AskHuman("b", message="?", into="answer")
    agent = asks(Parallel("p", ParallelPolicy.SuccessOnAll(), [ForceSuccess("f", ask_a), ask_b]))
    outcome = await agent.run_until_suspend()
    first, second = (question.id for question in outcome.suspensions)
    await agent.interaction.withdraw(first, "not needed")
    with pytest.raises(WithdrawnError):
        await agent.interaction.answer(Answer(first, "x"))
    outcome = await agent.resume("y", suspension_id=second)
    assert outcome.status is SUCCESS
    assert ask_a.status is FAILURE
    assert ask_a.feedback_message == "not needed"
    assert agent.interaction.record(first).status == "withdrawn"
    assert agent.state.answer == "y"


# Choose


async def test_a_choice_is_one_of_the_options() -> None:
    """Anything but an option is refused at the door, and the question stays open."""
    agent = asks(Choose("c", message="?", options=["a", 1, None], into="outs.c"))
    question = (await agent.run_until_suspend()).suspensions[0]
    assert question.response_schema == {"enum": ["a", 1, None]}
    for wrong in ("b", True, "1", [1]):
        with pytest.raises(InvalidAnswerError):
            await agent.resume(wrong)
    assert (await agent.resume(None)).status is SUCCESS
    assert agent.state.outs == {"c": None}


async def test_the_options_may_follow_the_state() -> None:
    """A function of the snapshot gives the options, when the node asks."""
    agent = asks(Choose("c", message="?", options=lambda s: [item.id for item in s.items], into="answer"))
    await agent.run_until_suspend({"items": [{"id": "x"}, {"id": "y"}]})
    with pytest.raises(InvalidAnswerError):
        await agent.resume("z")
    assert (await agent.resume("y")).status is SUCCESS
    with pytest.raises(RunError, match=r"node 'c': .* a list of JSON values that is not empty, not list"):
        await agent.run_until_suspend({"items": []})


# WaitFor


async def test_waiting_for_a_time_suspends_and_succeeds() -> None:
    """With `seconds` and no message: a question of the reason "wait", SUCCESS at its deadline."""
    agent = asks(
        Sequence("s", memory=True, children=[WaitFor("w", seconds=lambda s: s.amount * 10), Scripted("a", SUCCESS)])
    )
    outcome = await agent.run_until_suspend()
    assert [(question.reason, question.message) for question in outcome.suspensions] == [("wait", "w")]
    assert outcome.wake_at == outcome.suspensions[0].expires_at
    clock: Any = agent.runner.context.clock
    await clock.advance(51)
    assert (await agent.recover()).status is SUCCESS


async def test_waiting_for_a_time_under_run() -> None:
    """Under run() it is over by itself."""
    table = Table(lambda diary: WaitFor("w", seconds=86400))
    assert await table.run() is SUCCESS
    assert table.clock.now() == pytest.approx(86400)


async def test_waiting_for_a_job_fails_at_its_deadline() -> None:
    """With a message the deadline is FAILURE, with the reason; an answer before it is SUCCESS and is written."""
    table = Table(lambda diary: WaitFor("w", message="the job", seconds=10, into="outs.job"))
    assert await table.run() is FAILURE
    assert table.root.feedback_message == "expired"
    agent = asks(WaitFor("w", message="the job", seconds=10, into="outs.job"))
    await agent.run_until_suspend()
    assert (await agent.resume({"rows": 3})).status is SUCCESS
    assert agent.state.outs == {"job": {"rows": 3}}


async def test_an_answer_ends_a_wait_early_and_a_withdrawal_fails_it() -> None:
    """A wait for a time that is answered is SUCCESS; one that is withdrawn is FAILURE with the reason."""
    agent = asks(WaitFor("w", seconds=10))
    await agent.run_until_suspend()
    assert (await agent.resume(None)).status is SUCCESS
    agent = asks(WaitFor("w", seconds=10))
    question = (await agent.run_until_suspend()).suspensions[0]
    await agent.interaction.withdraw(question.id, "off")
    assert (await agent.recover()).status is FAILURE
    assert agent.root.feedback_message == "off"


async def test_a_wait_without_a_time_waits() -> None:
    """Without `seconds` there is no deadline."""
    agent = asks(WaitFor("w"))
    question = (await agent.run_until_suspend()).suspensions[0]
    assert question.expires_at is None


# All


async def test_an_answer_holds_while_a_composite_looks_again() -> None:
    """Asked once: a memoryless Sequence that looks again finds the answer of this activation."""
    table = Table(
        lambda diary: Sequence("s", memory=False, children=[AskHuman("a", message="?"), Sleep("b", 2, diary)])
    )

    async def reply() -> None:
        await table.clock.sleep(1)
        table.agent.interaction.answer_nowait(Answer(None, "yes"))

    assert await table.run_with(reply, table.writing(2, n=1), table.writing(2.5, n=2)) is SUCCESS
    assert len(table.agent.interaction.dump()["records"]) == 1
    assert table.diary.order() == ["start b", "end b"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AskHuman("a", message=3), "Request"),
        (lambda: AskHuman("a", message="?", answer=3), "answer=3 cannot be asked for"),
        (lambda: AskHuman("a", message="?", expires=3), "expires"),
        (lambda: Choose("c", message="?", options=[], into="answer"), "a list of JSON values that is not empty"),
        (lambda: Choose("c", message="?", options="ab", into="answer"), "a list of JSON values that is not empty"),
        (lambda: WaitFor("w", seconds=-1), r'WaitFor\("w", seconds=\.\.\.\) takes seconds'),
        (lambda: WaitFor("w", message=3), "Request"),
    ],
)
def test_wrong_options_are_refused_at_once(make: Any, text: str) -> None:
    """What could fail only when somebody waits is refused at construction."""
    with pytest.raises(SetupError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AskHuman("a", message="?", into="anser"), "did you mean 'answer'"),
        (lambda: AskHuman("a", message="?", answer=int, into="answer"), "the port gives int, but 'answer' is"),
        (lambda: AskHuman("a", message="?", into="name.x"), "only keys of a dict field can be bound"),
        (lambda: Choose("c", message="?", options=[1, 2], into="name"), "the port gives int"),
        (lambda: WaitFor("w", into="anser"), "did you mean 'answer'"),
    ],
)
def test_n02_a_wrong_into_is_refused_before_the_first_tick(make: Any, text: str) -> None:
    """`into` is checked against the schema when the tree is bound: name, type, and that only dicts have keys."""
    with pytest.raises(SetupError, match=text):
        asks(make()).step_sync()


async def test_a_wait_is_no_question_for_the_agents_human() -> None:
    """Under run() the agent's `human` is asked what persons are asked, not what only waits for time or a job."""
    asked: list[str] = []

    async def human(question: Any) -> str:
        asked.append(question.path)
        return "yes"

    table = Table(
        lambda diary: Sequence("s", memory=True, children=[WaitFor("w", seconds=5), AskHuman("a", message="?")]),
        human=human,
    )
    assert await table.run() is SUCCESS
    assert table.clock.now() == pytest.approx(5)
    assert asked == ["s/a"]
