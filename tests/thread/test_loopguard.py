"""LoopGuard: T06 for the node; reminders, refusals, the answer without tools, and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour

from jianmu import Agent, RunError, SetupError
from jianmu.engine.clock import VirtualClock
from jianmu.message import human
from jianmu.nodes import AgentLLMNode, Repeat, Retry, Sequence, ToolExecutor
from jianmu.nodes.pairing import paired
from jianmu.prebuilt import delegate, react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import (
    LoopGuard,
    MessagesState,
    OutputBudget,
    RepeatsState,
    RepliesState,
    ThreadFolders,
    ThreadState,
)
from jianmu.thread.repetition import key_of
from jianmu.tool import Tool, ToolCall
from tests.cases.leaves import FAILURE, SUCCESS, Do, nothing_left

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [human("go")]}
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Forget what ran."""
    ran.clear()


def look(at: str, more: int = 0) -> str:
    """Look."""
    ran.append(at)
    return f"saw {at}"


def poll(at: str) -> str:
    """Look how far it is."""
    ran.append(at)
    return "not yet"


def looks(*at: str, name: str = "look") -> list[ToolCall]:
    """Return a reply with calls."""
    ids = [f"{place}{number}" for number, place in enumerate(at)]
    return [ToolCall(id=id, name=name, arguments={"at": place}) for id, place in zip(ids, at, strict=True)]


class Conversation:
    """An agent with a guard on a scripted model."""

    def __init__(self, *turns: Any, tools: Any = (), agent: Any = None, wrap: Any = None, **options: Any) -> None:
        self.model = ScriptedModel(turns)
        tree: Behaviour = react(model=self.model, tools=[Tool(look), Tool(poll), *tools], max_rounds=50)
        tree = LoopGuard("guard", tree, **options)
        given = {"clock": VirtualClock(autojump=True), **(agent or {})}
        self.agent: Agent[Any] = Agent(wrap(tree) if wrap else tree, ThreadState, **given)

    async def run(self) -> None:
        """Run to the end, with nothing left of the script or the run."""
        with nothing_left(self.agent):
            assert await self.agent.run(GO) is SUCCESS
        self.model.check()

    @property
    def results(self) -> list[str]:
        """The results in the conversation."""
        return [one.text for one in self.agent.state.messages if one.role == "tool"]

    def notes(self) -> list[str]:
        """Return what stands at the end of each request, if the guard has put it there."""
        last = [request.messages[-1] for request in self.model.requests]
        return [one.text.split("\n")[1] if one.text.startswith("<loop>") else "" for one in last]

    def choices(self) -> list[str | None]:
        """Return the tool choice of each request."""
        return [request.settings.tool_choice for request in self.model.requests]


def reminder(count: int, stop: int = 5) -> str:
    """Return what the model is told at this count."""
    return (
        f"In this run you have called look {count} times, with the same arguments and the same result. "
        f"From the time {stop} on it is refused. Do something else, or answer with what you have."
    )


REFUSED = (
    "'look' was not called: this is request number {} for it with the same arguments in this run, and it would bring "
    "nothing new. Do something else, or answer with what you have."
)


async def test_t06_equal_calls_are_counted_for_the_run() -> None:
    """T06: five runs with one call each end with 1; one run with five ends with 5."""
    turns = [looks("a"), "fine"] * 5 + [looks("a")] * 5 + ["fine"]
    made, counts = Conversation(*turns, stop=6), []
    for _ in range(6):
        await made.agent.run(GO)
        counts.append(made.agent.state.repeats)
    key = key_of(looks("a")[0])
    assert counts == [{key: 1}] * 5 + [{key: 5}]
    made.model.check()


async def test_a_model_that_repeats_itself_is_reminded_in_the_request_only() -> None:
    """With the third wish for a call, and not before; once it does something else it is left in peace."""
    made = Conversation(*[looks("a")] * 3, looks("b"), "fine")
    await made.run()
    assert made.notes() == ["", "", "", reminder(3), ""]
    assert (made.results, ran) == (["saw a"] * 3 + ["saw b"], ["a", "a", "a", "b"])
    assert not any("<loop>" in one.text for one in made.agent.state.messages)


async def test_from_a_count_on_the_call_is_refused() -> None:
    """It is not carried out and not counted as used; other calls are carried out all the same."""
    made = Conversation(*[looks("a")] * 4, looks("a", "b"), "fine")
    await made.run()
    assert made.results[-2:] == [REFUSED.format(5), "saw b"]
    assert (ran, made.agent.state.usage.tool_calls) == (["a"] * 4 + ["b"], 5)
    assert made.choices() == [None] * 6


async def test_one_that_goes_on_has_to_answer_without_tools() -> None:
    """It is told so, and requests allow it no tool, until it has answered: that is the answer of the run."""
    made = Conversation(*[looks("a")] * 6, "well then")
    await made.run()
    assert made.results[-1] == REFUSED.format(6)
    assert made.notes()[-1].startswith("You go on with a call that was refused, since it was made too often.")
    assert made.choices() == [None] * 6 + ["none"]
    assert made.agent.state.final_answer == "well then"


async def test_one_that_calls_tools_all_the_same_ends_the_node() -> None:
    """FAILURE, with a reason; no call is carried out, and each has its result, so that the thread can go on."""
    made = Conversation(*[looks("a")] * 6, looks("b", "c"), "better")
    with nothing_left(made.agent):
        assert await made.agent.run(GO) is FAILURE
    assert made.agent.tree.root.feedback_message == (
        "the model repeats itself: told to answer without tools, it went on calling them"
    )
    assert ran == ["a"] * 4
    assert made.results[-2:] == ["'look' was not called, since its turn was ended before."] * 2
    assert paired(made.agent.state.messages) == made.agent.state.messages
    assert await made.agent.run({"messages": [human("try again")]}) is SUCCESS
    assert made.choices()[-1] is None


async def test_calls_that_alternate_are_repeated_too() -> None:
    """A B A B is a repetition of A and of B; what the run has in all makes no difference."""
    made = Conversation(*[looks("a"), looks("b")] * 5, "fine")
    await made.run()
    assert made.results == ["saw a", "saw b"] * 4 + [REFUSED.format(5)] * 2
    assert [bool(text) for text in made.notes()] == [False] * 5 + [True] * 6


async def test_length_is_no_repetition() -> None:
    """Forty calls that are all different are carried out, without a word."""
    made = Conversation(*[looks(f"place {number}") for number in range(40)], "fine")
    await made.run()
    assert (len(ran), {*made.notes()}) == (40, {""})


async def test_equal_calls_of_one_reply_count_one_by_one() -> None:
    """Of six in a reply four are carried out; the model has seen no refusal yet, and may go on with others."""
    made = Conversation(looks(*"aaaaaa"), looks("b"), "fine")
    await made.run()
    assert made.results == ["saw a"] * 4 + [REFUSED.format(5), REFUSED.format(6), "saw b"]
    assert made.choices() == [None] * 3


async def test_the_order_of_arguments_makes_no_difference() -> None:
    """What the arguments are does: another one is another call, and so is another tool."""
    one, two = (ToolCall(id="x", name="look", arguments=dict(given)) for given in (
        [("at", "a"), ("more", 1)], [("more", 1), ("at", "a")],
    ))  # fmt: skip
    others = [ToolCall(id="x", name=name, arguments=given) for name, given in (
        ("look", {"at": "a"}), ("look", {"at": "a", "more": 2}), ("poll", {"at": "a", "more": 1}),
    )] + [ToolCall(id="x", name="look", raw="{")]  # fmt: skip
    assert key_of(one) == key_of(two)
    assert len({key_of(call) for call in (one, *others)}) == 5


async def test_calls_of_no_tool_and_broken_ones_count_as_well() -> None:
    """A model that calls what is not there, or sends no arguments, is in a loop as any other."""
    made = Conversation(
        *[[ToolCall(id="x", name="nothing")]] * 5, *[[ToolCall(id="y", name="look", raw="{")]] * 5, "fine"
    )
    await made.run()
    assert [text.startswith(("'nothing' was not called: this is", "'look' was not called: this is")) for text in
            made.results] == [False] * 4 + [True] + [False] * 4 + [True]  # fmt: skip


def changing(results: list[str]) -> Tool:
    """Return a tool that gives one result after the other, the last one again and again."""

    def test(at: str) -> str:
        ran.append(at)
        return results.pop(0) if len(results) > 1 else results[0]

    return Tool(test)


async def test_a_call_whose_result_has_changed_begins_anew() -> None:
    """The same tests, run again and again: as long as they bring something else, nobody is reminded or refused."""
    calls = [looks("a", name="test")] * 12
    made = Conversation(*calls, "fine", tools=[changing([f"{count} failed" for count in range(12)])])
    await made.run()
    assert (len(ran), {*made.notes()}) == (12, {""})
    made = Conversation(*[looks("a", name="test")] * 7, "fine", tools=[changing(["1", "1", "1", "2"])])
    await made.run()
    assert [text != "" for text in made.notes()] == [False] * 3 + [True] + [False] * 2 + [True] * 2
    assert made.results == ["1"] * 3 + ["2"] * 4


async def test_there_is_an_end_to_changing_results_as_well() -> None:
    """At request number `most` the call is refused, whatever it brings."""
    made = Conversation(
        *[looks("a", name="test")] * 7, "fine", tools=[changing([str(number) for number in range(9)])], most=7
    )
    await made.run()
    assert made.results[-1].startswith("'test' was not called: this is request number 7 for it")
    assert len(ran) == 6


async def test_what_comes_after_something_new_is_no_repetition() -> None:
    """Edit, test, edit, test: each edit is a call that the run has not made before; a refused call may come again."""
    made = Conversation(*[looks(at) for number in range(6) for at in (f"new {number}", "a")], "fine")
    await made.run()
    assert (len(ran), {*made.notes()}) == (12, {""})
    made = Conversation(*[looks("a")] * 5, looks("b"), looks("a"), "fine")
    await made.run()
    assert made.results[4:] == [REFUSED.format(5), "saw b", "saw a"]
    assert made.choices() == [None] * 8


@pytest.mark.parametrize("both", ["ab", "ba"])
async def test_something_new_in_the_same_reply_is_new_for_the_next(both: str) -> None:
    """Whether it stands before or after the call: they were made at the same time."""
    made = Conversation(*[looks("a")] * 3, looks(*both), *[looks("a")] * 4, "fine")
    await made.run()
    assert [text != "" for text in made.notes()] == [False] * 3 + [True] * 2 + [False] * 2 + [True] * 2
    assert len(ran) == 9


async def test_large_results_are_the_same_though_each_has_its_file(tmp_path: Path) -> None:
    """What OutputBudget has shortened is compared without the name of the file."""

    def big(at: str) -> str:
        return at * 5000

    reader = Tool(look, name="read_file")
    made = Conversation(
        *[looks("a", name="big")] * 5, "fine", tools=[Tool(big), reader],
        wrap=lambda tree: OutputBudget("budget", tree, folders=ThreadFolders(tmp_path), chars=1000),
    )  # fmt: skip
    await made.run()
    assert ".results/big-" in made.results[3]
    assert made.results[4].startswith("'big' was not called: this is request number 5 for it")


async def test_exempt_tools_are_not_counted() -> None:
    """One that looks how far a job is may be called the same way as often as it takes."""
    made = Conversation(*[looks("a", name="poll")] * 9, "fine", exempt=["poll"])
    await made.run()
    assert (len(ran), {*made.notes()}, made.agent.state.repeats) == (9, {""}, {})


async def test_other_counts_may_be_given() -> None:
    """`warn` and `stop`; they may be the same, and then nobody is reminded before."""
    made = Conversation(*[looks("a")] * 2, "fine", warn=2, stop=2)
    await made.run()
    assert made.results == ["saw a", REFUSED.format(2)]
    assert made.notes() == ["", "", reminder(2, 2)]


@pytest.mark.parametrize("kind", ["checkpoint", "store"])
async def test_counts_survive_a_restart(kind: str, tmp_path: Path) -> None:
    """A question in the middle of the run, answered in another process: it counts on, and the reminder comes."""
    ask = Tool(look, name="ask", requires_approval=True)
    turns = [looks("a"), looks("a"), [*looks("a"), *looks("x", name="ask")]]
    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {
            "tools": [ask],
            "agent": {"store": store} if kind == "store" else {},
            "exempt": ["ask"],
        }
        one = Conversation(*turns, **options)
        two = Conversation(looks("a"), looks("a"), looks("a"), "fine", **options)
        await one.agent.run_until_suspend(GO, thread_id="t")
        assert ran == ["a", "a"]
        if kind == "checkpoint":
            two.agent.load_checkpoint(one.agent.dump_checkpoint())
        assert (await two.agent.resume(True, thread_id="t")).status is SUCCESS
    assert two.agent.state.repeats[key_of(looks("a")[0])] == 6
    assert [bool(text) for text in two.notes()] == [True] * 4
    assert (two.choices(), two.results[-2:]) == ([None] * 3 + ["none"], [REFUSED.format(5), REFUSED.format(6)])


async def test_what_was_refused_before_a_question_is_refused_after_it(tmp_path: Path) -> None:
    """The reply with the refused call waits for an approval: after the restart it has the same results, once each."""
    ask = Tool(look, name="ask", requires_approval=True)
    turns = [*[looks("a")] * 4, [*looks("a"), *looks("x", name="ask")]]
    async with SQLiteStore(tmp_path / "s.db") as store:
        one = Conversation(*turns, tools=[ask], agent={"store": store})
        two = Conversation("fine", tools=[ask], agent={"store": store})
        await one.agent.run_until_suspend(GO, thread_id="t")
        assert (await two.agent.resume(True, thread_id="t")).status is SUCCESS
    assert two.results[-2:] == [REFUSED.format(5), "saw x"]
    assert two.agent.state.repeats[key_of(looks("a")[0])] == 5


async def test_an_entry_anew_begins_with_tools() -> None:
    """In the same run the counts stay, so the call is refused; but the model may call others again."""
    made = Conversation(*[looks("a")] * 6, "well", looks("a"), "now", wrap=lambda tree: Repeat("twice", tree, times=2))
    assert await made.agent.run(GO) is SUCCESS
    assert made.choices() == [None] * 6 + ["none", None, "none"]


async def test_calls_that_are_taken_up_again_count_once() -> None:
    """A tool raises what ends the attempt, and the executor is entered anew with the same reply: one wish."""
    tries: list[int] = []

    def breaks(at: str) -> str:
        tries.append(1)
        raise RunError(at)

    model = ScriptedModel([looks("a", name="breaks"), "fine"])
    think, act = AgentLLMNode("think", model=model), ToolExecutor("act", tools=[Tool(breaks)])
    steps = Sequence("steps", memory=True, children=[think, Retry("retry", act, attempts=2, on=RunError)])
    agent = Agent(LoopGuard("guard", steps), ThreadState, clock=VirtualClock(autojump=True))
    assert await agent.run(GO) is SUCCESS
    assert (len(tries), agent.state.repeats) == (1, {key_of(looks("a", name="breaks")[0]): 1})


async def test_a_delegate_counts_for_itself() -> None:
    """What a subagent calls is counted in its own state, and calls of it in that of its caller."""
    inner = ScriptedModel([*[looks("a")] * 4, "done"] * 2)
    seen = delegate("ask", lambda: react(model=inner, tools=[Tool(look)]), state_schema=ThreadState)
    task = ToolCall(id="t", name="ask", arguments={"task": "x"})
    made = Conversation(task, task, "fine", tools=[seen])
    await made.run()
    assert made.agent.state.repeats == {key_of(task): 2}
    assert made.results == ["done", "done"]


class NoCounts(MessagesState, RepliesState):
    """A state without the field."""


class Counts(NoCounts, RepeatsState):
    """A state with all that is needed."""


def test_trees_in_which_nothing_could_be_counted_are_refused() -> None:
    """Without the field, without a model or an executor, inside of another one, and with odd numbers."""

    def refused(guard: Behaviour, schema: Any = Counts) -> str:
        tree = Sequence("main", memory=True, children=[guard])
        with pytest.raises(SetupError) as caught:
            Agent(tree, schema).run_sync()
        return str(caught.value)

    def inner() -> Behaviour:
        return react(model=ScriptedModel([]), tools=[Tool(look)])

    where = "node 'main/guard' "
    assert refused(LoopGuard("guard", inner()), NoCounts) == (
        f"{where}needs the field repeats, which NoCounts lacks: class NoCounts(RepeatsState, ...)"
    )
    assert refused(LoopGuard("guard", Do("leaf", lambda _: SUCCESS))) == (
        f'{where}(LoopGuard) needs an AgentLLMNode and a ToolExecutor below it: write LoopGuard("guard", react(...))'
    )
    for half in (ToolExecutor("act", tools=[look]), AgentLLMNode("think", model=ScriptedModel())):
        assert refused(LoopGuard("guard", half)).endswith('write LoopGuard("guard", react(...))')
    assert refused(LoopGuard("guard", LoopGuard("inner", inner()))) == (
        "node 'main/guard/inner' (LoopGuard) stands below 'main/guard', and each call would count twice: leave one out"
    )
    for warn, stop in ((1, 5), (3, 2), (True, 5), (2, 5.0)):
        with pytest.raises(SetupError, match="takes whole numbers, 2 <= warn <= stop <= most, not warn="):
            LoopGuard("guard", inner(), warn=warn, stop=stop)  # pyright: ignore[reportArgumentType]  # it is refused
    with pytest.raises(SetupError, match=r"exempt=...\) takes a list of names, not \[3\]"):
        LoopGuard("guard", inner(), exempt=[3])  # pyright: ignore[reportArgumentType]  # it is refused
    with pytest.raises(SetupError, match=r"exempt=...\) takes a list of names, not 3"):
        LoopGuard("guard", inner(), exempt=3)  # pyright: ignore[reportArgumentType]  # it is refused
