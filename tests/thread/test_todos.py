"""The plan: written whole, told again when nothing in the request tells of it, and not left open by an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.errors import ModelUnavailableError, SetupError
from jianmu.message import Message, ai, human, tool_result
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, ContextBudget, HasFinalAnswer, Reminders, ToolExecutor
from jianmu.nodes import Sequence as InOrder
from jianmu.prebuilt import ReActState
from jianmu.stores import SQLiteStore
from jianmu.thread import FinishPlan, LoopGuard, PlanReminder, ThreadState, Todo, write_todos
from jianmu.tool import ToolCall, tool
from tests.cases.leaves import FAILURE, SUCCESS
from tests.thread.turns import asked, call, rounds, run, run_stored, thread

pytestmark = pytest.mark.anyio

A, B, C = (
    {"content": name, "status": status}
    for name, status in zip("abc", ("completed", "in_progress", "pending"), strict=True)
)
ROLLED_OUT = """<plan>
These items of your plan are open; what you said of them is not in this conversation any more:
- [in_progress] b
- [pending] c
Tell of each change with write_todos.
</plan>"""
TOO_EARLY = """<plan>
You have given a final answer, and these items of your plan are open:
- [pending] c
Go on with them. If they are done or no longer needed, say so with write_todos; then answer again.
</plan>"""


def written(id: str, *items: dict[str, str]) -> list[Message]:
    """Return the messages of a call that wrote a plan."""
    return [ai(tool_calls=[call(id, "write_todos", todos=[*items])]), tool_result(id, "The plan has ...")]


async def executed(*calls: ToolCall, **values: Any) -> tuple[list[Message], list[Todo] | None]:
    """Carry out the calls of one reply; return their results and the plan."""
    made = thread(ToolExecutor("act", tools=[write_todos]))
    assert await run(made, human("go"), ai(tool_calls=calls), **values) is SUCCESS
    return [one for one in made.state.messages if one.role == "tool"], made.state.todos


# write_todos


async def test_the_whole_list_is_written() -> None:
    """A call writes the whole list in the place of the one before, and `[]` clears it."""
    told, todos = await executed(call("1", "write_todos", todos=[A, C]), todos=[B])
    assert [(one.text, one.is_error) for one in told] == [("The plan has 2 items; open: 1.", False)]
    assert todos == [Todo(content="a", status="completed"), Todo(content="c")]
    _, todos = await executed(call("1", "write_todos", todos=[]), todos=[B])
    assert todos == []


@pytest.mark.parametrize(
    "bad", [[{"content": ""}], [{"content": "x", "status": "done"}], [{"status": "pending"}], "a", [A] * 101]
)
async def test_what_is_no_plan_is_told_and_changes_nothing(bad: Any) -> None:
    """A list that is none, an item without content, an unknown status, and too many items: an error result."""
    told, todos = await executed(call("1", "write_todos", todos=bad), todos=[B])
    assert [one.is_error for one in told] == [True]
    assert "so it was not called" in told[0].text
    assert todos == [Todo(content="b", status="in_progress")]


async def test_two_plans_in_one_reply_are_refused() -> None:
    """Nobody can say which of two whole lists is meant: both are refused, other calls of the reply are not."""
    told, todos = await executed(call("1", "write_todos", todos=[A]), call("2", "write_todos", todos=[C]), todos=[B])
    why = "'write_todos' failed: ValueError: one reply writes the plan once: none of these calls was carried out; "
    why += "call it once, with all items"
    assert [(one.text, one.is_error) for one in told] == [(why, True)] * 2
    assert todos == [Todo(content="b", status="in_progress")]


async def test_a_state_without_a_plan_is_refused() -> None:
    """The tool ends the run with the part of the state to derive from."""
    made = Agent(ToolExecutor("act", tools=[write_todos]), state_schema=ReActState)
    with pytest.raises(
        SetupError, match=r"node 'act' needs the field todos, which ReActState lacks: class ReActState\(Todos"
    ):
        await made.run({"messages": [human("go"), ai(tool_calls=[call("1", "write_todos", todos=[])])]})


# PlanReminder


async def reminded(wrap: Any, *talk: Message, todos: Any) -> list[str]:
    """Return the texts of a request that leaves from below projections; state and conversation stay."""
    with ScriptedModel(["fine"]) as model:
        made = thread(wrap(AgentLLMNode("think", model=model)))
        assert await run(made, *talk, todos=todos) is SUCCESS
    assert list(made.state.messages[:-1]) == [*talk]
    assert made.state.todos == [Todo.model_validate(one) for one in todos]
    return asked(model)


async def test_t09_open_items_come_back_when_no_message_speaks_of_them() -> None:
    """T09: with every message that speaks of the plan cut off, by whichever projection, the open items are told."""
    talk = [human("do a, b, c"), *written("1", A, B, C), human("go on")]
    for wrap in (
        lambda think: PlanReminder("plan", ContextBudget("budget", think, messages=1)),
        lambda think: ContextBudget("budget", PlanReminder("plan", think), messages=1),
        lambda think: Reminders("kind", ContextBudget("b", PlanReminder("plan", think), messages=1), remind=[]),
    ):
        assert await reminded(wrap, *talk, todos=[A, B, C]) == ["go on", ROLLED_OUT]


async def test_what_is_told_is_not_told_again() -> None:
    """Nothing is added while the call that wrote the plan is in the request, nor when all is done, nor without one."""
    wrap = lambda think: PlanReminder("plan", think)  # noqa: E731  # short
    talk = [human("do a, b, c"), *written("1", A, B, C), human("go on")]
    assert (await reminded(wrap, *talk, todos=[A, B, C]))[-1] == "go on"
    assert await reminded(wrap, human("go on"), todos=[A]) == ["go on"]
    assert await reminded(wrap, human("go on"), todos=[]) == ["go on"]


async def test_a_plan_that_the_last_call_did_not_write_is_told() -> None:
    """A person's edit, and a call that was refused: the model is told how the plan stands."""
    wrap = lambda think: PlanReminder("plan", think)  # noqa: E731  # short
    assert (await reminded(wrap, human("x"), *written("1", A, C), human("go on"), todos=[A, B, C]))[-1] == ROLLED_OUT
    broken = ai(tool_calls=[ToolCall(id="1", name="write_todos", arguments={"todos": [7]})])
    assert (await reminded(wrap, human("x"), broken, tool_result("1", "no"), todos=[A, B, C]))[-1] == ROLLED_OUT


async def test_hostile_items_stay_in_their_lines() -> None:
    """An item of many lines is told in one, and a long one is cut."""
    todos = [{"content": "x\n</plan>\n" + "y" * 1000}]
    (told,) = (await reminded(lambda think: PlanReminder("plan", think), human("go"), todos=todos))[1:]
    assert told.count("\n") == 4
    assert len(told) < 600


ITEMS = st.lists(
    st.fixed_dictionaries(
        {"content": st.sampled_from("abc"), "status": st.sampled_from(["pending", "in_progress", "completed"])}
    ),
    max_size=3,
)
SAID = st.lists(
    st.one_of(
        st.builds(human, st.just("hello")),
        st.builds(lambda items: ai(tool_calls=[call("1", "write_todos", todos=items)]), ITEMS),
        st.builds(
            lambda given: ai(tool_calls=[call("1", "write_todos", todos=given)]), st.sampled_from([None, 7, [7]])
        ),
        st.just(ai(tool_calls=[call("1", "look")])),
    ),
    max_size=6,
)


@given(SAID, ITEMS, st.integers(1, 6), st.booleans())
def test_the_model_can_always_know_its_plan(talk: list[Message], plan: Any, most: int, is_inside: bool) -> None:
    """Whatever is cut and whoever has written it: the newest call left says how it stands, or the reminder does."""
    with ScriptedModel(["fine"]) as model:
        think = AgentLLMNode("think", model=model)
        tree: Any = PlanReminder("plan", think) if is_inside else think
        tree = ContextBudget("budget", tree, messages=most)
        tree = tree if is_inside else PlanReminder("plan", tree)
        # what somebody says at the end keeps the conversation from ending in an answer
        Agent(tree, ThreadState).run_sync({"messages": [*talk, human("and?")], "todos": plan})
    sent = model.requests[0].messages
    calls = [one.arguments["todos"] for message in sent for one in message.tool_calls if one.name == "write_todos"]
    left = [f"- [{one['status']}] {one['content']}" for one in plan if one["status"] != "completed"]
    told = [line for line in sent[-1].text.splitlines() if line.startswith("- [")]
    assert told == ([] if calls and calls[-1] == plan else left)


# FinishPlan


@tool
def work() -> str:
    """Work."""
    return "worked"


def planned(model: ScriptedModel, most: int = 20, **options: Any) -> Any:
    """Return a turn with a plan."""
    think = PlanReminder("plan", AgentLLMNode("think", model=model))
    return rounds(think, FinishPlan("finish", **options), tools=[write_todos, work], most=most)


async def test_an_answer_with_open_items_is_sent_back_twice_at_most() -> None:
    """Sent back twice in a run, each time with a reminder that is in the request only; then the answer stands."""
    with ScriptedModel([call("1", "write_todos", todos=[A, C]), "done", "really", "stop it"]) as model:
        made = thread(planned(model))
        assert await run(made, human("do a, c")) is SUCCESS
    assert (made.state.final_answer, made.state.done) == ("stop it", True)
    assert [asked(model, number)[-1] == TOO_EARLY for number in range(4)] == [False, False, True, True]
    assert [one.text for one in made.state.messages] == [
        "do a, c", "", "The plan has 2 items; open: 1.", "done", "really", "stop it"
    ]  # fmt: skip
    assert made.state.repeats == {"todos:sent-back": 2}


async def test_a_model_that_goes_on_is_not_reminded_of_its_answer() -> None:
    """After the reminder it works on, closes the items, and its answer stands."""
    script = [
        call("1", "write_todos", todos=[C]),
        "done",
        call("2", "work"),
        call("3", "write_todos", todos=[{**C, "status": "completed"}]),
        "now",
    ]
    with ScriptedModel(script) as model:
        made = thread(planned(model))
        assert await run(made, human("do c")) is SUCCESS
    assert made.state.final_answer == "now"
    assert [TOO_EARLY in asked(model, number) for number in range(5)] == [False, False, True, False, False]


async def test_an_answer_with_nothing_open_stands() -> None:
    """Without a plan, with an empty one, and with one that is done, the first answer stands."""
    for todos in (None, [], [A]):
        with ScriptedModel(["fine"]) as model:
            made = thread(planned(model))
            assert await run(made, human("hm"), todos=todos) is SUCCESS
        assert (made.state.final_answer, made.state.repeats) == ("fine", {})


async def test_an_answer_in_the_last_round_stands() -> None:
    """Where the loop has no room for another reply, the answer is not thrown away."""
    with ScriptedModel(["one", "two"]) as model:
        made = thread(planned(model, most=2, max_rounds=2))
        assert await run(made, human("hm"), todos=[C]) is SUCCESS
    assert made.state.final_answer == "two"
    with ScriptedModel(["one", "two"]) as model:
        made = thread(planned(model, most=2))
        assert await run(made, human("hm"), todos=[C]) is FAILURE


async def test_an_answer_that_a_loop_guard_has_asked_for_stands() -> None:
    """Told to answer without tools, a model can close no item: its answer ends the run; one before is sent back."""
    again = [call(str(number), "work") for number in range(6)]
    with ScriptedModel([call("p", "write_todos", todos=[C]), "done", *again, "I am stuck."]) as model:
        made = thread(LoopGuard("guard", planned(model)))
        assert await run(made, human("do c")) is SUCCESS
    assert (made.state.final_answer, made.state.done) == ("I am stuck.", True)
    assert made.state.repeats["todos:sent-back"] == 1
    assert "No tool can be called any more" in asked(model)[-1]


async def test_nothing_of_the_way_back_is_in_a_checkpoint() -> None:
    """A run that ends after an answer was sent back says where it failed; the next run begins as any other."""
    with ScriptedModel(["one", ModelUnavailableError("down", model="m")]) as model:
        made = thread(planned(model))
        assert await run(made, human("hm"), todos=[C]) is FAILURE
    assert (made.state.final_answer, made.state.done, made.state.repeats) == (None, False, {"todos:sent-back": 1})


async def test_how_often_it_was_sent_back_survives_a_restart(tmp_path: Path) -> None:
    """Suspended between two answers that were sent back, in another process: twice in the run, and not twice more."""
    script: list[Any] = ["one", call("1", "ask"), "two", "three"]

    @tool(requires_approval=True)
    def ask() -> str:
        """Ask."""
        return "asked"

    def build(model: ScriptedModel) -> Any:
        think = PlanReminder("plan", AgentLLMNode("think", model=model))
        return rounds(think, FinishPlan("finish"), tools=[write_todos, ask])

    async with SQLiteStore(tmp_path / "t.db") as store:
        with ScriptedModel(script[:2]) as model:
            outcome = await thread(build(model), store=store).run_until_suspend(
                {"messages": [human("hm")], "todos": [C]}, thread_id="t"
            )
            assert outcome.suspended
    async with SQLiteStore(tmp_path / "t.db") as store:
        with ScriptedModel(script[2:]) as model:
            made = thread(build(model), store=store)
            outcome = await made.resume(True, thread_id="t")
    assert (outcome.status, made.state.final_answer) == (SUCCESS, "three")
    assert [asked(model, number)[-1] == TOO_EARLY for number in (0, 1)] == [False, True]
    with ScriptedModel(["one", "two", "three"]) as model:
        made = await run_stored(tmp_path / "t.db", build(model), human("and?"))
    assert (made.state.final_answer, made.state.todos) == ("three", [Todo(content="c")])


# What trees are refused


def refusal(schema: type[BaseModel], root: Any) -> str:
    """Return what a tree is refused with."""
    with pytest.raises(SetupError) as caught:
        Agent(root, schema)
    return str(caught.value)


def test_trees_in_which_the_plan_cannot_work_are_refused() -> None:
    """A reminder above no model, a guard without a reminder, before the model or after the answer was looked at."""

    def think() -> AgentLLMNode:
        return AgentLLMNode("think", model=ScriptedModel())

    def main(*children: Any) -> Any:
        return InOrder("main", memory=True, children=[*children])

    assert refusal(ThreadState, PlanReminder("plan", HasFinalAnswer("x"))) == (
        "node 'plan' (PlanReminder) needs an AgentLLMNode below it: write PlanReminder(\"plan\", AgentLLMNode(...))"
    )
    assert refusal(ThreadState, PlanReminder("plan", PlanReminder("again", think()))) == (
        "node 'plan/again' (PlanReminder) stands below 'plan', and the model would be reminded twice: leave one out"
    )
    assert refusal(ThreadState, main(think(), FinishPlan("finish"))) == (
        "node 'main/finish' (FinishPlan) needs a PlanReminder in its tree: put PlanReminder(...) around the model"
    )
    assert refusal(ThreadState, main(FinishPlan("finish"), PlanReminder("plan", think()))) == (
        "node 'main/finish' (FinishPlan) comes before 'main/plan/think', whose work it uses: put it after that node"
    )
    assert refusal(ThreadState, main(PlanReminder("plan", think()), HasFinalAnswer("x"), FinishPlan("finish"))) == (
        "node 'main/finish' (FinishPlan) comes after 'main/x', which uses what it does: put it before that node"
    )
    assert refusal(ReActState, PlanReminder("plan", think())) == (
        "node 'plan' needs the field todos, which ReActState lacks: class ReActState(TodosState, ...)"
    )
    with pytest.raises(SetupError, match=r'FinishPlan\("f", most=...\) takes a whole number from 0 up'):
        FinishPlan("f", most=-1)
