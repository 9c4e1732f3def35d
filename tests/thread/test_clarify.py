"""Clarify and AskingTool: calls that are questions, asked before any sibling is begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from jianmu.engine.events import ToolReturned
from jianmu.engine.interaction import escalate, fail
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request
from jianmu.errors import InvalidAnswerError, SetupError
from jianmu.message import human
from jianmu.nodes import AskingTool, CallDecorator, CallOutcome, Race, Timer
from jianmu.nodes.delegating import acting
from jianmu.prebuilt import ReActState, delegate, react, react_agent
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import Clarify
from jianmu.tool import ToolCall
from tests.cases.leaves import SUCCESS, Do
from tests.nodes.toolkit import Bench, Scene, call

pytestmark = pytest.mark.anyio


def asks(id: str, question: Any = "Which one?", **more: Any) -> ToolCall:
    """Return a call that is a question."""
    return ToolCall(id=id, name="ask_clarification", arguments={"question": question, **more})


def scene(*calls: ToolCall, tool: Any = None, **options: Any) -> Scene:
    """Return a scene with the tool, a plain one, and one that needs approval."""

    def make(bench: Bench) -> Any:
        return [tool or Clarify(), bench.tool(), bench.tool("pay", requires_approval=True), bench.asking()]

    return Scene(*calls, make=make, **options)


async def test_a_question_is_asked_before_any_sibling() -> None:
    """Nothing has run while it is open; then all run once, and the answer is the result, in the order of the calls."""
    made = scene(call("a"), asks("q"), call("c"))
    (question,) = (await made.run()).suspensions
    assert (question.message, question.reason, question.tool_call_id) == ("Which one?", "clarification", "q")
    assert (question.group, question.data) == ("reply", {"question": "Which one?", "options": []})
    assert made.log == []
    assert (await made.agent.resume("the red one")).status is SUCCESS
    assert made.told == [("a", "a is done", False), ("q", "the red one", False), ("c", "c is done", False)]
    assert sorted(made.log) == ["a begins", "a ends", "c begins", "c ends"]


@pytest.mark.parametrize("kind", ["checkpoint", "store"])
async def test_a_question_survives_a_restart(kind: str, tmp_path: Path) -> None:
    """Asked in one process, answered in the next; a sibling that asks by itself suspends it once more."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {"store": store} if kind == "store" else {}
        one, two, three = (scene(call("a"), asks("q"), call("c", "asks"), **options) for _ in "123")
        await one.run(thread_id="t")
        if kind == "checkpoint":
            two.agent.load_checkpoint(one.agent.dump_checkpoint())
        (question,) = (await two.agent.resume("red", thread_id="t")).suspensions
        assert (question.message, sorted(two.log)) == ("c: sure?", ["a begins", "a ends", "c asks"])
        if kind == "checkpoint":
            three.agent.load_checkpoint(two.agent.dump_checkpoint())
        assert (await three.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert three.told == [("a", "a is done", False), ("q", "red", False), ("c", "c is done: yes", False)]
    assert (one.log, three.log) == ([], ["c asks", "c begins", "c ends"])


async def test_questions_and_approvals_are_one_group() -> None:
    """They are asked at once, and the run goes on when all are answered."""
    made = scene(asks("q"), call("p", "pay"), asks("r", "And when?"))
    asked = {one.tool_call_id: one for one in (await made.run()).suspensions}
    assert ({*asked}, len({one.group for one in asked.values()})) == ({"q", "p", "r"}, 1)
    for id, answer in (("q", "red"), ("p", True)):
        outcome = await made.agent.resume(answer, suspension_id=asked[id].id)
        assert (outcome.suspended, made.log) == (True, [])
    await made.agent.resume("now", suspension_id=asked["r"].id)
    assert [text for _, text, _ in made.told] == ["red", "p is done", "now"]


@pytest.mark.parametrize(
    ("action", "reason"), [("decline", "declined: not me"), ("cancel", "cancelled: not me"), ("withdraw", "too late")]
)
async def test_without_an_answer_the_result_says_so(action: Any, reason: str) -> None:
    """It is an error, and the siblings are carried out."""
    made = scene(asks("q"), call("a"))
    (question,) = (await made.run()).suspensions
    if action == "withdraw":
        await made.agent.interaction.withdraw(question.id, "too late")
    else:
        await made.agent.interaction.answer(Answer(question.id, "not me", action=action))
    await made.agent.recover()
    assert made.told == [("q", f"Nobody has answered: {reason}.", True), ("a", "a is done", False)]


async def test_a_question_has_the_tools_assignee_and_deadlines() -> None:
    """It goes to somebody else, and then it expires."""
    made = scene(asks("q"), tool=Clarify(assignee="ann", expires=[escalate("bob", after=60), fail(after=60)]))
    (question,) = (await made.run()).suspensions
    assert question.assignee == "ann"
    await made.clock.advance(121)
    await made.agent.recover()
    assert made.told == [("q", "Nobody has answered: expired.", True)]


async def test_options_are_shown_and_any_answer_is_taken() -> None:
    """They stand below the question, each once; who is asked may say something else."""
    made = scene(asks("q", options=["red ", "blue", "red", " "]))
    (question,) = (await made.run()).suspensions
    assert question.message == "Which one?\n- red\n- blue"
    assert question.data == {"question": "Which one?", "options": ["red", "blue"]}
    await made.agent.resume("green")
    assert made.told == [("q", "green", False)]


async def test_options_may_be_all_that_is_taken() -> None:
    """`free=False`: another answer is refused at the door, and the question stays open; without options any is."""
    made = scene(asks("q", options=["red", "blue"]), tool=Clarify(free=False))
    await made.run()
    with pytest.raises(InvalidAnswerError):
        await made.agent.resume("green")
    await made.agent.resume("blue")
    assert made.told == [("q", "blue", False)]
    made = scene(asks("q"), tool=Clarify(free=False))
    await made.run()
    assert (await made.agent.resume("")).status is SUCCESS
    assert made.told == [("q", "(The answer is empty.)", False)]


async def test_a_call_that_is_no_question_is_not_asked() -> None:
    """Arguments that do not fit, and an empty question, are errors for the model; the others are carried out."""
    made = scene(asks("q", 3), asks("r", "  "), call("a"))
    assert (await made.run()).status is SUCCESS
    first, second, third = made.told
    assert first[1].startswith("The arguments of 'ask_clarification' do not fit, so it was not called:\n- question")
    assert second == ("r", "'ask_clarification' was not asked: the question is empty", True)
    assert third == ("a", "a is done", False)


async def test_questions_of_rounds_are_their_own() -> None:
    """A model that uses the same id again asks again; each reply has its answer."""
    with ScriptedModel([asks("q"), asks("q", "And now?"), "fine"]) as model:
        agent = react_agent(model, [Clarify()])
        await agent.run_until_suspend({"messages": [human("go")]})
        (question,) = (await agent.resume("red")).suspensions
        assert question.message == "And now?"
        assert (await agent.resume("blue")).status is SUCCESS
    assert [one.text for one in agent.state.messages if one.role == "tool"] == ["red", "blue"]


async def test_a_question_whose_branch_is_halted_is_withdrawn() -> None:
    """Every call has its result: it was not called. A run that only ends for now leaves it open, and can go on."""
    made = scene(asks("q"), call("a"), tree=lambda node: Race("race", [node, Timer("later", seconds=5)]))
    with anyio.fail_after(10):
        assert await made.agent.run(made.input) is SUCCESS
    ended = "was not called, since its turn was ended before."
    assert made.told == [("q", f"'ask_clarification' {ended}", True), ("a", f"'work' {ended}", True)]
    assert list(made.agent.interaction.all_open()) == []
    made = scene(asks("q"), call("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(made.agent.run, made.input)
        while not made.agent.interaction.all_open():
            await anyio.lowlevel.checkpoint()
        made.agent.halt()
    assert made.told == []
    assert (await made.agent.resume("red")).status is SUCCESS
    assert made.told == [("q", "red", False), ("a", "a is done", False)]


async def test_beside_delegates_and_in_them() -> None:
    """A question is asked before a delegate begins; one of a delegate's own model reaches the top with its path."""
    seen: list[str] = []

    def work(node: Any) -> None:
        seen.append("x")
        node.write_state({"final_answer": "y"})

    look = delegate("look", lambda: Do("work", work), state_schema=ReActState)
    task = ToolCall(id="d", name="look", arguments={"task": "x"})
    made = Scene(task, asks("q"), tree=lambda _: acting("act", [look, Clarify()])[0])
    await made.run()
    assert seen == []
    await made.agent.resume("red")
    assert (seen, made.told) == (["x"], [("d", "y", False), ("q", "red", False)])
    inner = delegate("look", lambda: react(model=ScriptedModel([asks("i"), "done"]), tools=[Clarify()]),
                     state_schema=ReActState)  # fmt: skip
    made = Scene(task, tree=lambda _: acting("act", [inner])[0])
    (question,) = (await made.run()).suspensions
    assert question.path == "act/look/react/rounds/round/next/act"
    await made.agent.resume("red")
    assert made.told == [("d", "done", False)]


async def test_a_question_may_need_approval_and_be_edited() -> None:
    """The person who approves may change what is asked; the result says so."""
    made = scene(asks("q"), call("a"), tool=Clarify().replace(requires_approval=True))
    (first,) = (await made.run()).suspensions
    assert first.reason == "approval"
    await made.agent.interaction.approve(first.id, edited={"question": "Which colour?"})
    (second,) = (await made.agent.recover()).suspensions
    assert (second.message, made.log) == ("Which colour?", [])
    await made.agent.resume("red")
    note = '[The person who approved this call has changed its arguments to {"question": "Which colour?"}]'
    assert made.told[0] == ("q", f"{note}\nred", False)


async def test_a_refused_question_is_not_asked() -> None:
    """Call decorators see it as every call; what comes of an answer they do not refine."""

    async def loud(*_: Any) -> CallOutcome:
        return CallOutcome(content="LOUD")

    made = scene(asks("q"), tree=lambda node: CallDecorator("d", node, refuse=lambda *_: "no", refine=loud))
    assert (await made.run()).status is SUCCESS
    assert made.told == [("q", "no", True)]
    made = scene(asks("q"), tree=lambda node: CallDecorator("d", node, refine=loud))
    await made.run()
    await made.agent.resume("red")
    assert made.told == [("q", "red", False)]


async def test_events_tell_of_the_result() -> None:
    """An answered question is a call that has returned, without an error."""
    made = scene(asks("q"))
    await made.run()
    async with made.agent.stream_resume("red") as events:
        heard = [event async for event in events]
    assert [(one.call_id, one.is_error) for one in heard if isinstance(one, ToolReturned)] == [("q", False)]


async def test_what_comes_of_an_answer_is_a_content_however_it_was_made() -> None:
    """A copy is not validated by Pydantic: JSON is shown as its text, as of every tool."""

    class Copied(Half):
        def request_of(self, call: ToolCall) -> Request:
            return Request("x", answer=JsonValue)

        def outcome_of(self, call: ToolCall, answer: Any) -> CallOutcome:
            return CallOutcome().model_copy(update={"content": answer})

    for answer, shown in (({"size": 3}, '{"size":3}'), (["a", 1], '["a",1]')):
        made = scene(call("x", "bare"), tool=Copied(bare))
        await made.run()
        assert (await made.agent.resume(answer)).status is SUCCESS
        assert made.told == [("x", shown, False)]


async def test_what_an_asking_tool_needs() -> None:
    """It is refused as a plain tool, and without its methods; options that no question has are refused at once."""
    with pytest.raises(SetupError, match="'ask_clarification' is a question: give it to a ToolExecutor"):
        await Clarify().call(asks("q"))
    with pytest.raises(SetupError, match=r"AskingTool has no request_of\(\): override it and return a Request"):
        await scene(call("x", "bare"), tool=AskingTool(bare)).run()
    made = scene(call("x", "bare"), tool=Half(bare))
    await made.run()
    with pytest.raises(SetupError, match=r"Half has no outcome_of\(\): override it and return a CallOutcome"):
        await made.agent.resume("x")
    with pytest.raises(SetupError, match="assignee"):
        Clarify(assignee="")


def bare(label: str) -> None:
    """Ask."""


class Half(AskingTool):
    """Says what is asked, and not what comes of it."""

    def request_of(self, call: ToolCall) -> Request:
        """Return a question."""
        return Request("x")


def test_the_model_is_told_what_it_is_for() -> None:
    """Name, description and parameters; another description takes the place of the usual one."""
    tool = Clarify()
    assert tool.name == "ask_clarification"
    assert tool.description.startswith("Ask the person you work for")
    assert tool.parameters["required"] == ["question"]
    assert (Clarify("ask", description="Ask Ann.").name, Clarify(description="Ask Ann.").description) == (
        "ask", "Ask Ann.",
    )  # fmt: skip


async def test_two_conversations_do_not_share_questions() -> None:
    """Two tools in one reply with the same question: each has its own answer."""
    made = scene(asks("q"), asks("r"))
    first, second = (await made.run()).suspensions
    await made.agent.resume("1", suspension_id=first.id)
    await made.agent.resume("2", suspension_id=second.id)
    assert [(id, text) for id, text, _ in made.told] == [("q", "1"), ("r", "2")]
