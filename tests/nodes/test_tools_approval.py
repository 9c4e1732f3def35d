"""Approval of tool calls: one group, before anything is done; edits, reasons, what is remembered."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from jianmu.engine.interaction import fail
from jianmu.engine.limits import Limits
from jianmu.engine.questions import Answer
from jianmu.errors import InvalidAnswerError
from jianmu.message import Message, ai
from jianmu.stores import SQLiteStore
from tests.cases.leaves import SUCCESS
from tests.nodes.toolkit import Bench, Scene, call

pytestmark = pytest.mark.anyio


def tools(bench: Bench, **options: Any) -> list[Any]:
    """Return one tool that needs approval and one that needs none."""
    return [bench.tool("pay", requires_approval=True, **options), bench.tool()]


def paying(*calls: Any, **options: Any) -> Scene:
    """Return a scene with a tool that needs approval."""
    return Scene(*calls, make=tools, **options)


def by_call(questions: Any) -> dict[str, str]:
    """Return the ids of questions by their calls."""
    return {question.tool_call_id: question.id for question in questions}


async def test_a_call_is_asked_about_before_any_sibling() -> None:
    """Nothing has happened while it is asked; approved, all run once, results in call order."""
    scene = paying(call("a"), call("b", "pay"), call("c"))
    (question,) = (await scene.run()).suspensions
    assert scene.log == []
    assert (question.reason, question.tool_call_id, question.group) == ("approval", "b", "reply")
    assert (question.message, question.data) == (
        "May 'pay' be called?",
        {"tool": "pay", "arguments": {"label": "b"}},
    )
    assert question.metadata["parameters"] == scene.node.tools.get("pay").parameters
    assert (await scene.agent.resume(True)).status is SUCCESS
    assert sorted(scene.log) == sorted(f"{id} {what}" for id in "abc" for what in ("begins", "ends"))
    assert scene.told == [(id, f"{id} is done", False) for id in "abc"]


async def test_the_calls_of_a_reply_are_one_group() -> None:
    """All that need approval are asked about at once; the run goes on when the last one is answered."""
    scene = paying(call("a", "pay"), call("b"), call("c", "pay"))
    outcome = await scene.run()
    ids = by_call(outcome.suspensions)
    assert ({*ids}, len({question.group for question in outcome.suspensions})) == ({"a", "c"}, 1)
    await scene.agent.resume(True, suspension_id=ids["c"])
    assert scene.log == []
    assert (await scene.agent.resume(True, suspension_id=ids["a"])).status is SUCCESS
    assert [is_error for _, _, is_error in scene.told] == [False] * 3


async def test_a_rejection_tells_the_model_why() -> None:
    """The rejected call has an error for its result, with the reason; the others are carried out."""
    scene = paying(call("a", "pay"), call("b"))
    (question,) = (await scene.run()).suspensions
    await scene.agent.interaction.reject(question.id, "too much")
    assert (await scene.agent.recover()).status is SUCCESS
    text = "'pay' was not called, since it was rejected: too much"
    assert scene.told == [("a", text, True), ("b", "b is done", False)]
    assert scene.log == ["b begins", "b ends"]


@pytest.mark.parametrize(
    ("action", "reason"), [("decline", "declined: not me"), ("cancel", "cancelled: not me"), ("withdraw", "too late")]
)
async def test_without_an_answer_a_call_is_not_carried_out(action: Any, reason: str) -> None:
    """Declined, cancelled and withdrawn questions are no approval."""
    scene = paying(call("a", "pay"))
    (question,) = (await scene.run()).suspensions
    interaction = scene.agent.interaction
    if action == "withdraw":
        await interaction.withdraw(question.id, "too late")
    else:
        await interaction.answer(Answer(question.id, "not me", action=action))
    await scene.agent.recover()
    assert scene.told == [("a", f"'pay' was not called, since nobody approved it: {reason}.", True)]
    assert scene.log == []


async def test_a_question_may_expire() -> None:
    """`approval={"expires": …, "assignee": …}` goes into each question."""
    scene = paying(call("a", "pay"), node={"approval": {"expires": [fail(after=60)], "assignee": "boss"}})
    (question,) = (await scene.run()).suspensions
    assert question.assignee == "boss"
    await scene.clock.advance(61)
    await scene.agent.recover()
    assert scene.told == [("a", "'pay' was not called, since nobody approved it: expired.", True)]


async def test_edited_arguments_replace_all() -> None:
    """The tool is called with what the person gave, and the model is told so."""
    scene = paying(call("a", "pay", seconds=3))
    (question,) = (await scene.run()).suspensions
    await scene.agent.interaction.approve(question.id, edited={"label": "z"})
    assert (await scene.agent.recover()).status is SUCCESS
    assert scene.log == ["z begins", "z ends"]
    note = '[The person who approved this call has changed its arguments to {"label": "z"}]'
    assert scene.told == [("a", f"{note}\nz is done", False)]
    assert scene.clock.now() == 0


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ({"label": 3}, "The arguments of 'pay' do not fit, so it was not called:\n- label: Input should be a valid"),
        ({}, "The arguments of 'pay' do not fit, so it was not called:\n- label: is missing"),
        (["z"], "The edited arguments are no JSON object."),
    ],
)
async def test_an_edit_that_does_not_fit_asks_anew(edited: Any, problem: str) -> None:
    """The next question says what is wrong and shows what the model wants; nothing is called before it is answered."""
    scene = paying(call("a", "pay"), call("b"))
    (first,) = (await scene.run()).suspensions
    await scene.agent.interaction.approve(first.id, edited=edited)
    (second,) = (await scene.agent.recover()).suspensions
    assert second.id != first.id
    assert second.message.startswith(f"The edit cannot be used. {problem}")
    assert second.message.endswith("May 'pay' be called?")
    assert (second.data, scene.log) == (first.data, [])
    assert (await scene.agent.resume(True)).status is SUCCESS
    assert scene.told[0] == ("a", "a is done", False)


async def test_a_rule_says_which_calls_need_approval() -> None:
    """A function of the arguments decides; one that raises, or says nothing clear, fails closed."""
    rules = {"small": lambda args: args["seconds"] > 5, "raises": lambda args: args["x"], "odd": lambda _: None}
    scene = Scene(
        *(call(name, name, seconds=1) for name in rules),
        call("big", "small", seconds=9),
        make=lambda bench: [bench.tool(name, requires_approval=rule) for name, rule in rules.items()],
    )
    assert {*by_call((await scene.run()).suspensions)} == {"raises", "odd", "big"}


async def test_what_cannot_be_called_is_not_asked_about() -> None:
    """Arguments that do not fit are refused without a person."""
    scene = paying(call("a", "pay", seconds="x"))
    assert (await scene.run()).status is SUCCESS
    assert scene.told[0][2]


async def test_a_call_that_was_asked_about_stays_one() -> None:
    """A rule that says otherwise when the node is entered again does not undo a rejection."""
    says = iter([True])
    scene = Scene(
        call("a", "pay"), make=lambda bench: [bench.tool("pay", requires_approval=lambda _: next(says, False))]
    )
    await scene.run()
    await scene.agent.resume(False)
    assert scene.told == [("a", "'pay' was not called, since it was rejected.", True)]


async def test_an_answer_of_another_form_is_refused() -> None:
    """An approval's payload is checked at the door."""
    scene = paying(call("a", "pay"))
    await scene.run()
    with pytest.raises(InvalidAnswerError):
        await scene.agent.resume("fine")


@pytest.mark.parametrize("kind", ["checkpoint", "store"])
async def test_approvals_survive_a_restart(kind: str, tmp_path: Path) -> None:
    """One is answered before, the other after; nothing is asked or done twice."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        options = {"store": store} if kind == "store" else {}
        calls = [call("a", "pay"), call("b"), call("c", "pay")]
        first, second = paying(*calls, **options), paying(*calls, **options)
        ids = by_call((await first.run(thread_id="t")).suspensions)
        await first.agent.resume({"approved": False, "reason": "no"}, suspension_id=ids["a"])
        if kind == "checkpoint":
            second.agent.load_checkpoint(first.agent.dump_checkpoint())
        outcome = await second.agent.resume(True, suspension_id=ids["c"], thread_id="t")
        assert outcome.status is SUCCESS
    assert second.told == [
        ("a", "'pay' was not called, since it was rejected: no", True),
        ("b", "b is done", False),
        ("c", "c is done", False),
    ]
    assert first.log == []


async def test_an_approval_and_a_tool_that_asks() -> None:
    """After the approval the tool itself asks; the approval is not asked for again."""
    scene = Scene(
        call("a", "pay"), call("b", "asks"), make=lambda bench: [*tools(bench), bench.asking(requires_approval=True)]
    )
    ids = by_call((await scene.run()).suspensions)
    await scene.agent.resume(True, suspension_id=ids["a"])
    (question,) = (await scene.agent.resume(True, suspension_id=ids["b"])).suspensions
    assert question.message == "b: sure?"
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert sorted(scene.log) == ["a begins", "a ends", "b asks", "b asks", "b begins", "b ends"]
    assert [text for _, text, _ in scene.told] == ["a is done", "b is done: yes"]


async def test_rejected_calls_are_not_counted() -> None:
    """Only what is carried out counts for `tool_calls`."""
    scene = paying(call("a", "pay"), call("b"))
    await scene.run(limits=Limits(tool_calls=1))
    assert (await scene.agent.resume(False, limits=Limits(tool_calls=1))).status is SUCCESS
    assert scene.agent._context.usage.tool_calls == 1


# What is remembered


class Extra(BaseModel):
    """A conversation in a schema that allows more."""

    model_config = ConfigDict(extra="allow")

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)


class Bare(BaseModel):
    """A conversation without room for what is remembered."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)


REMEMBER: dict[str, JsonValue] = {"approved": True, "remember": True}


async def next_turn(scene: Scene, *calls: Any, id: str) -> Any:
    """Run again on the same thread, with another reply."""
    return await scene.agent.run_until_suspend({"messages": [ai("", tool_calls=calls, id=id)]})


@pytest.mark.parametrize("schema", [None, Extra], ids=["field", "namespace"])
async def test_an_approval_is_remembered_for_the_thread(schema: Any) -> None:
    """The same tool with the same arguments is not asked about again, also after a load; others are."""
    options = {} if schema is None else {"schema": schema}
    scene = paying(call("a", "pay"), **options)
    (question,) = (await scene.run()).suspensions
    assert question.metadata["remembers"] == "call"
    await scene.agent.resume(REMEMBER)
    other = paying(**options)
    other.agent.load_checkpoint(scene.agent.dump_checkpoint())
    assert (await next_turn(other, call("b", "pay", label="a"), id="r2")).status is SUCCESS
    assert other.told[-1] == ("b", "a is done", False)
    assert len((await next_turn(other, call("c", "pay", label="other"), id="r3")).suspensions) == 1


async def test_an_approval_of_a_tool_is_remembered_for_all_arguments() -> None:
    """With `remember="tool"` the arguments do not count."""
    scene = paying(call("a", "pay"), node={"remember": "tool"})
    (question,) = (await scene.run()).suspensions
    assert question.metadata["remembers"] == "tool"
    await scene.agent.resume(REMEMBER)
    assert (await next_turn(scene, call("b", "pay"), id="r2")).status is SUCCESS


async def test_a_rejection_is_remembered_too() -> None:
    """The same call is rejected with the same reason."""
    scene = paying(call("a", "pay"))
    await scene.run()
    await scene.agent.resume({"approved": False, "reason": "never", "remember": True})
    assert (await next_turn(scene, call("b", "pay", label="a"), id="r2")).status is SUCCESS
    assert scene.told[-1] == ("b", "'pay' was not called, since it was rejected: never", True)


async def test_of_edited_arguments_these_are_remembered() -> None:
    """What was approved is what the person put there, not what the model wanted."""
    scene = paying(call("a", "pay"))
    await scene.run()
    await scene.agent.resume({"approved": True, "editedArgs": {"label": "z"}, "remember": True})
    assert len((await next_turn(scene, call("b", "pay", label="a"), id="r2")).suspensions) == 1
    await scene.agent.resume(False)
    assert (await next_turn(scene, call("c", "pay", label="z"), id="r3")).status is SUCCESS


async def test_without_remember_nothing_is_kept() -> None:
    """An approval holds for its call."""
    scene = paying(call("a", "pay"))
    await scene.run()
    await scene.agent.resume(True)
    assert scene.agent.state.approvals == {}
    assert len((await next_turn(scene, call("b", "pay", label="a"), id="r2")).suspensions) == 1


async def test_a_state_without_room_remembers_nothing() -> None:
    """The question says so in its metadata; the approval holds for this call."""
    scene = paying(call("a", "pay"), schema=Bare)
    (question,) = (await scene.run()).suspensions
    assert question.metadata["remembers"] is None
    assert (await scene.agent.resume(REMEMBER)).status is SUCCESS
    assert scene.told == [("a", "a is done", False)]
