"""CallDecorator: what refuses calls before anything happens, and refines what comes of them."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import ToolCalled, ToolReturned
from jianmu.engine.limits import Limits
from jianmu.engine.request import Request
from jianmu.errors import RunError, SetupError
from jianmu.nodes import CallDecorator, Repeat, RequestProjection
from jianmu.nodes.delegating import acting
from jianmu.nodes.turn import CallOutcome
from jianmu.prebuilt import ReActState, delegate
from jianmu.stores import SQLiteStore
from jianmu.tool import ToolCall
from tests.cases.leaves import FAILURE, SUCCESS, Do
from tests.nodes.toolkit import Bench, Scene, call

pytestmark = pytest.mark.anyio


def no_b(given: ToolCall, snapshot: Any) -> str | None:
    """Refuse the call b."""
    return f"no {given.id} for {len(snapshot.messages)}" if given.id == "b" else None


async def louder(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
    """Return a result in capitals."""
    assert (context.tool_call_id, context.scope.partition("@")[0]) == (given.id, given.id)
    return CallOutcome(content=str(outcome.content).upper(), is_error=outcome.is_error)


def under(*hooks: dict[str, Any]) -> Any:
    """Return what puts an executor below decorators, the first one nearest."""

    def wrap(node: Behaviour) -> Behaviour:
        for number, given in enumerate(hooks):
            node = CallDecorator(f"d{number}", node, **given)
        return node

    return wrap


def guarded(*calls: ToolCall, tree: Any = None, **options: Any) -> Scene:
    """Return a scene that refuses the call b."""
    options.setdefault("make", lambda bench: [bench.tool(), bench.tool("pay", requires_approval=True), bench.asking()])
    return Scene(*calls, tree=tree or under({"refuse": no_b}), **options)


class Ledger(CallDecorator):
    """Notes what it is told."""

    def __init__(self, name: str, child: Behaviour) -> None:
        super().__init__(name, child)
        self.told: list[str] = []

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        """Note calls in the state."""
        self.told.append("".join(one.id for one in calls))
        self.write_state({"note": self.told[-1]})

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Look at a call."""
        self.told.append(f"{call.id}?")
        return f"{snapshot.note}, not {call.id}" if call.id == "b" else None


async def test_what_is_refused_is_not_carried_out_and_its_siblings_are() -> None:
    """The text is the call's result, an error, in the place of the call; events tell of no call."""
    scene = guarded(call("a"), call("b"), call("c"))
    async with scene.agent.stream(scene.input) as events:
        heard = [event async for event in events]
    assert scene.told == [("a", "a is done", False), ("b", "no b for 2", True), ("c", "c is done", False)]
    assert not any(line.startswith("b") for line in scene.log)
    assert [one.call_id for one in heard if isinstance(one, ToolCalled)] == ["a", "c"]
    assert sorted((one.call_id, one.is_error) for one in heard if isinstance(one, ToolReturned)) == [
        ("a", False), ("b", True), ("c", False),
    ]  # fmt: skip


async def test_nobody_is_asked_about_a_refused_call() -> None:
    """It needs approval and would not get a question, neither from the executor nor from its tool."""
    assert (await guarded(call("b", "pay")).run()).status is SUCCESS
    assert (await guarded(call("b", "asks")).run()).status is SUCCESS


async def test_a_refused_call_does_not_count() -> None:
    """A run that may make one call makes the other one."""
    scene = guarded(call("a"), call("b"))
    assert (await scene.run(limits=Limits(tool_calls=1))).status is SUCCESS
    assert [text for _, text, _ in scene.told] == ["a is done", "no b for 2"]


async def test_calls_of_no_tool_are_refused_too() -> None:
    """A decorator sees every call of the reply, whatever it calls, but not a second one of the same id."""
    scene = guarded(call("b", "nothing"), call("b"))
    await scene.run()
    assert scene.told[0] == ("b", "no b for 2", True)


async def test_the_nearest_decorator_has_the_first_word() -> None:
    """Its refusal is the result, and what it made of an outcome is what the next one gets."""

    async def mark(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        return CallOutcome(content=f"<{outcome.content}>")

    twice = {"refuse": lambda given, _: "far", "refine": louder}
    scene = guarded(call("b"), tree=under({"refuse": no_b}, twice))
    await scene.run()
    assert scene.told == [("b", "no b for 2", True)]
    scene = guarded(call("a"), tree=under({"refine": mark}, {"refine": louder}))
    await scene.run()
    assert scene.told == [("a", "<A IS DONE>", False)]


async def test_a_decorator_ends_at_an_agent_used_as_a_node() -> None:
    """What is inside of one is not refused from outside."""
    inner = Scene(call("b"))
    outer = Scene(tree=lambda _: CallDecorator("d", inner.agent.as_node("agent", inputs={"messages": "messages"}),
                                               refuse=no_b))  # fmt: skip
    outer.input = inner.input
    assert (await outer.run()).status is SUCCESS
    assert inner.log == ["b begins", "b ends"]


async def test_a_refusal_writes_nothing() -> None:
    """A write from inside of `refuse` is an error that names the node."""
    scene = guarded(call("a"), tree=lambda node: Writing("d", node))
    with pytest.raises(RunError, match="node 'd' may not write while it is only looked at"):
        await scene.run()


class Writing(CallDecorator):
    """Writes where it may not."""

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Write."""
        self.write_state({"note": "x"})


@pytest.mark.parametrize("kind", ["same", "store", "checkpoint"])
async def test_a_call_is_looked_at_once(kind: str, tmp_path: Path) -> None:
    """Whatever the state has become while a sibling was asked about: what was decided stays, in every process."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {"store": store} if kind == "store" else {}
        calls = [call("a", "pay"), call("b"), call("c")]
        one, two = (guarded(*calls, tree=lambda node: Ledger("d", node), **options) for _ in "12")
        await one.run(thread_id="t")
        assert one.agent.tree.root.told == ["abc", "a?", "b?", "c?"]
        if kind == "checkpoint":
            two.agent.load_checkpoint(one.agent.dump_checkpoint())
        two = one if kind == "same" else two
        assert (await two.agent.resume(True, thread_id="t")).status is SUCCESS
    assert two.agent.tree.root.told == (["abc", "a?", "b?", "c?"] if kind == "same" else [])
    assert [text for _, text, _ in two.told] == ["a is done", "abc, not b", "c is done"]


async def test_what_was_begun_is_not_refused_any_more() -> None:
    """A tool that asks in its middle goes on after the answer, though it would be refused by now."""
    begun: list[str] = []

    def once_only(given: ToolCall, _: Any) -> str | None:
        begun.append(given.id)
        return "too late" if len(begun) > 1 else None

    scene = guarded(call("a", "asks"), tree=under({"refuse": once_only}))
    await scene.run()
    scene.node._turn.judged.clear()  # what a crash before the first save would leave of it
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert scene.told == [("a", "a is done: yes", False)]


async def test_an_outcome_is_refined_whole_and_cut_afterwards() -> None:
    """What a tool returns beyond its limit is there for the decorator; what that leaves is cut as always."""
    seen: list[int] = []

    async def doubled(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        seen.append(len(str(outcome.content)))
        return CallOutcome(content=str(outcome.content) * 2)

    scene = guarded(call("a"), tree=under({"refine": doubled}), make=lambda bench: [bench.tool(max_result_chars=4)])
    await scene.run()
    assert seen == [9]
    assert scene.told == [("a", "a is\n[cut: these are the first 4 of 18 characters]", False)]


async def test_errors_of_tools_are_refined_and_those_of_no_call_are_not() -> None:
    """An unknown tool, a rejection and a refusal were not carried out; arguments that do not fit were looked at."""
    scene = guarded(
        call("a", "nothing"), call("b"), call("c", seconds="x"), tree=under({"refuse": no_b, "refine": louder})
    )
    await scene.run()
    assert [text.isupper() for _, text, _ in scene.told] == [False, False, True]


async def test_an_edit_is_told_after_refining() -> None:
    """The note that a person has changed the arguments stays as it is."""
    scene = guarded(call("a", "pay"), tree=under({"refine": louder}))
    (question,) = (await scene.run()).suspensions
    await scene.agent.interaction.approve(question.id, edited={"label": "z"})
    await scene.agent.recover()
    note = '[The person who approved this call has changed its arguments to {"label": "z"}]'
    assert scene.told == [("a", f"{note}\nZ IS DONE", False)]


@pytest.mark.parametrize("kind", ["same", "store", "checkpoint"])
async def test_an_outcome_is_refined_once(kind: str, tmp_path: Path) -> None:
    """While a sibling asks, the run goes on in another process: the result has the text that it had."""
    seen: list[str] = []

    async def noted(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        seen.append(given.id)
        return CallOutcome(content=f"{outcome.content}, number {len(seen)}")

    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {"store": store} if kind == "store" else {}
        calls = [call("a"), call("c", "asks")]
        one, two = (guarded(*calls, tree=under({"refine": noted}), **options) for _ in "12")
        await one.run(thread_id="t")
        if kind == "checkpoint":
            two.agent.load_checkpoint(one.agent.dump_checkpoint())
        two = one if kind == "same" else two
        assert (await two.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert [text for _, text, _ in two.told] == ["a is done, number 1", "c is done: yes, number 2"]
    assert seen == ["a", "c"]


async def test_what_raises_while_it_refines_is_the_result() -> None:
    """The call was carried out, and the model is told so; the run goes on."""

    async def broken(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        raise OSError("no room")

    scene = guarded(call("a"), tree=under({"refine": broken}))
    await scene.run()
    text = "'work' was carried out, but its result cannot be shown: OSError: no room"
    assert (scene.told, scene.log) == ([("a", text, True)], ["a begins", "a ends"])


async def test_errors_of_the_program_end_the_run() -> None:
    """A result of another kind, a refusal of another kind, a RunError, and a question."""

    async def wrong(*_: Any) -> Any:
        return "text"

    async def asking(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        return await context.ask(Request("Really?"), key="really")

    async def refusing(*_: Any) -> Any:
        raise RunError("the program is wrong")

    texts = {
        r"node 'd0': refine\(\) has to return a CallOutcome, not str": {"refine": wrong},
        r"node 'd0': refine\(\) may not ask, since the call was carried out": {"refine": asking},
        "the program is wrong": {"refine": refusing},
        r"node 'd0': refuse\(\) has to return a text or None, not int": {"refuse": lambda *_: 3},
        r"node 'd0': refuse\(\) has to return a text or None, not an empty one": {"refuse": lambda *_: ""},
    }
    for text, hooks in texts.items():
        with pytest.raises(RunError, match=text):
            await guarded(call("a"), tree=under(hooks)).run()


async def test_a_subclass_is_told_of_calls_before_they_are_looked_at() -> None:
    """Once for each reply, of all calls that have no result; what it writes is there when they are looked at."""
    scene = guarded(call("a"), call("b"), tree=lambda node: Ledger("d", node))
    await scene.run()
    assert scene.agent.tree.root.told == ["ab", "a?", "b?"]
    assert scene.told[1] == ("b", "ab, not b", True)


async def test_a_subclass_is_told_of_no_reply_without_calls() -> None:
    """Nor of one all of whose calls have their results."""
    scene = guarded(call("a"), tree=lambda node: Repeat("twice", Ledger("d", node), times=2))
    await scene.run()
    assert scene.agent.tree.root.decorated.told == ["a", "a?"]
    scene = guarded(tree=lambda node: Ledger("d", node))
    await scene.run()
    assert scene.agent.tree.root.told == []


def looks(**options: Any) -> Any:
    """Return a delegate whose tree is a leaf."""
    return delegate("look", lambda: Do("work", lambda node: node.write_state({"final_answer": "seen"})),
                    state_schema=ReActState, **options)  # fmt: skip


@pytest.mark.parametrize("kind", ["same", "store"])
async def test_calls_of_delegates_are_refused_and_refined(kind: str, tmp_path: Path) -> None:
    """As those of plain tools: before approval, once, and the same after a restart in between."""
    seen: list[str] = []

    async def noted(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        seen.append(f"{given.id} {outcome.content}")
        return CallOutcome(content=f"{outcome.content}, number {len(seen)}")

    def tree(_: Any) -> Behaviour:
        box = [looks(requires_approval=lambda args: args["task"] == "ask"), Bench(VirtualClock()).tool()]
        return under({"refuse": no_b, "refine": noted})(acting("act", box)[0])

    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {"store": store} if kind == "store" else {}
        calls = [
            ToolCall(id=id, name="look", arguments={"task": task})
            for id, task in (("a", "x"), ("b", "ask"), ("c", "ask"))
        ]
        made = [Scene(*calls, call("d"), tree=tree, **options) for _ in "12"]
        (question,) = (await made[0].run(thread_id="t")).suspensions
        assert (question.tool_call_id, seen) == ("c", [])
        two = made[kind == "store"]
        assert (await two.agent.resume(True, thread_id="t")).status is SUCCESS
    assert [text for _, text, _ in two.told] == [
        "seen, number 2", "no b for 2", "seen, number 3", "d is done, number 1",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [SUCCESS, FAILURE])
async def test_a_decorator_ends_as_its_child(status: Status) -> None:
    """It says what the child says; halting it halts the child."""
    scene = guarded(tree=lambda _: CallDecorator("d", Do("leaf", lambda _: status), refuse=no_b))
    assert (await scene.run()).status is status


def test_a_decorator_that_does_nothing_is_refused() -> None:
    """The error has the line to write; so for hooks that cannot be called as they are."""

    def leaf() -> Behaviour:
        return Do("leaf", lambda _: SUCCESS)

    with pytest.raises(SetupError) as caught:
        CallDecorator("d", leaf())
    assert str(caught.value) == 'CallDecorator("d", child) does nothing: give refuse=... or refine=...'
    with pytest.raises(SetupError, match=r'CallDecorator\("d", child, refine=...\) takes an `async def`, not'):
        CallDecorator("d", leaf(), refine=no_b)  # pyright: ignore[reportArgumentType]  # it is refused
    with pytest.raises(SetupError, match=r"refuse=...\) is called inside the pass, where nothing is awaited"):
        CallDecorator("d", leaf(), refuse=louder)  # pyright: ignore[reportArgumentType]  # it is refused


def test_methods_that_cannot_be_called_as_they_are_are_refused() -> None:
    """As functions are: with the line to write, and no coroutine is left behind."""

    class Waiting(CallDecorator):
        async def refuse(self, call: ToolCall, snapshot: Any) -> Any: ...

    class Told(CallDecorator):
        async def on_calls(self, calls: Sequence[ToolCall]) -> Any: ...

    class Later(CallDecorator):
        async def refuse_again(self, call: ToolCall, snapshot: Any) -> Any: ...

    class Projecting(RequestProjection):
        async def project(self, request: Any, snapshot: Any) -> Any: ...

    where = "is called inside the pass, where nothing is awaited"
    for cls, name in ((Waiting, "refuse"), (Told, "on_calls"), (Later, "refuse_again"), (Projecting, "project")):
        with pytest.raises(SetupError) as caught:
            cls("d", Do("leaf", lambda _: SUCCESS))
        line = f"write `def {name}(...)`, not `async def {name}(...)`"
        assert str(caught.value) == f"{cls.__name__}.{name}() {where}: {line}"

    class Sync(CallDecorator):
        def refine(self, call: ToolCall, outcome: CallOutcome, context: Any) -> Any: ...

    with pytest.raises(SetupError, match=r"Sync.refine\(\) is awaited: write `async def refine\(...\)`"):
        Sync("d", Do("leaf", lambda _: SUCCESS))


@pytest.mark.filterwarnings("error")
async def test_a_refusal_that_would_have_to_be_awaited_is_refused() -> None:
    """One that hides it until it is called, too; its coroutine is not left behind."""
    with pytest.raises(RunError, match=r"refuse\(\) has to return a text or None, not coroutine"):
        await guarded(call("a"), tree=under({"refuse": lambda given, _: louder(given, CallOutcome(), None)})).run()
    gc.collect()


class Again(Ledger):
    """Refuses a call that has waited."""

    def refuse_again(self, call: ToolCall, snapshot: Any) -> str | None:
        """Refuse c."""
        self.told.append(f"{call.id}??")
        return "too late" if call.id == "c" else None


@pytest.mark.parametrize("kind", ["same", "store", "checkpoint"])
async def test_a_call_that_has_waited_may_be_refused_again(kind: str, tmp_path: Path) -> None:
    """Only those that passed are asked about, and what was begun goes on."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {"store": store} if kind == "store" else {}
        calls = [call("a", "pay"), call("b"), call("c"), call("d", "asks")]
        one, two = (guarded(*calls, tree=lambda node: Again("d", node), **options) for _ in "12")
        await one.run(thread_id="t")
        told = one.agent.tree.root.told[:]
        assert told == ["abcd", "a?", "b?", "c?", "d?"]
        if kind == "checkpoint":
            two.agent.load_checkpoint(one.agent.dump_checkpoint())
        two = one if kind == "same" else two
        assert (await two.agent.resume(True, thread_id="t")).suspended
        await two.agent.resume("yes", thread_id="t")
    assert two.agent.tree.root.told == [*(told if kind == "same" else []), "a??", "c??", "d??"]
    assert [text for _, text, _ in two.told] == ["a is done", "abcd, not b", "too late", "d is done: yes"]
