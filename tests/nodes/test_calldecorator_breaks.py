"""CallDecorators under halts, cancellations and restarts: one result for each call, refined once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour

from jianmu import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.request import Request
from jianmu.errors import RunError
from jianmu.message import human
from jianmu.nodes import AskHuman, CallDecorator, CallOutcome, Race, Timer, ToolExecutor
from jianmu.nodes import Sequence as InOrder
from jianmu.nodes.delegating import acting
from jianmu.nodes.pairing import paired
from jianmu.prebuilt import ReActState, delegate, react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.tool import ToolCall
from tests.cases.leaves import SUCCESS, Do, nothing_left
from tests.nodes.toolkit import Bench, Scene, call

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [human("go")]}


class Slow(CallDecorator):
    """Refines with some awaits, and notes what it has refined."""

    def __init__(self, name: str, child: Behaviour, *, stop_at: int | None = None, only: str = "") -> None:
        super().__init__(name, child)
        self.stop_at, self.only = stop_at, only
        self.here = anyio.Event()
        self.seen: list[str] = []

    async def refine(self, call: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
        """Wait, then change the outcome."""
        for number in range(4):
            if number == self.stop_at and call.id.startswith(self.only):
                self.here.set()
                await anyio.sleep_forever()
            await checkpoint()
        self.seen.append(call.id)
        return CallOutcome(content=f"<{outcome.content}>")


@pytest.mark.parametrize("awaits", range(4))
async def test_cancelled_at_each_await_of_refining(awaits: int) -> None:
    """Two calls are done, one is being refined: each has one result, that one says so, the next request is paired."""
    bench = Bench(VirtualClock(autojump=True))
    model = ScriptedModel([[call("a"), call("b"), call("c")], "so be it"])
    tree = Slow("slow", react(model=model, tools=[bench.tool()]), stop_at=awaits, only="b")
    agent = Agent(tree, ReActState, clock=bench.clock)
    with nothing_left(agent):
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, GO)
            await tree.here.wait()
            while len(tree.seen) < 2:
                await checkpoint()
            group.cancel_scope.cancel()
    text = "'work' was cut off, since its turn was ended; whether it took effect is not known."
    results = [(one.tool_call_id, one.text) for one in agent.state.messages if one.role == "tool"]
    assert results == [("a", "<a is done>"), ("b", text), ("c", "<c is done>")]
    tree.stop_at = None
    await agent.run({"messages": [human("and?")]}, on_new_input="withdraw")
    assert paired(model.requests[-1].messages) == [*model.requests[-1].messages]


def look(name: str, *, asks: bool = False) -> Any:
    """Return a delegate that may ask before it answers."""

    def build() -> Behaviour:
        end = Do("work", lambda node: node.write_state({"final_answer": f"{name} saw"}))
        return InOrder("all", memory=True, children=[*([AskHuman("ask", message="sure?")] if asks else []), end])

    return delegate(name, build, state_schema=ReActState)


def given(name: str) -> ToolCall:
    """Return a call of a delegate."""
    return ToolCall(id=name, name=name, arguments={"task": "x"})


@pytest.mark.parametrize("kind", ["checkpoint", "store"])
async def test_a_delegate_that_is_done_waits_to_be_refined(kind: str, tmp_path: Path) -> None:
    """One is done, the other asks; the run goes on in another process: both are refined there, once."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        options: dict[str, Any] = {"store": store} if kind == "store" else {}

        def tree(_: Any) -> Behaviour:
            return Slow("slow", acting("act", [look("one"), look("two", asks=True)])[0])

        first, second = (Scene(given("one"), given("two"), tree=tree, **options) for _ in "12")
        await first.run(thread_id="t")
        assert first.agent.tree.root.seen == []
        if kind == "checkpoint":
            second.agent.load_checkpoint(first.agent.dump_checkpoint())
        assert (await second.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert second.agent.tree.root.seen == ["one", "two"]
    assert [text for _, text, _ in second.told] == ["<one saw>", "<two saw>"]


@pytest.mark.parametrize("awaits", range(4))
async def test_halted_at_each_await_of_refining_a_delegate(awaits: int, tmp_path: Path) -> None:
    """Another process goes on: what was refined is not refined again, no delegate works again, one result each."""
    async with SQLiteStore(tmp_path / "s.db") as store:

        def scene(stop_at: int | None) -> Scene:
            nodes = [look("one"), look("two")]
            return Scene(
                given("one"), given("two"), store=store,
                tree=lambda _: Slow("slow", acting("act", nodes)[0], stop_at=stop_at, only="two"),
            )  # fmt: skip

        first, second = scene(awaits), scene(None)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: first.agent.run(first.input, thread_id="t"))
            await first.agent.tree.root.here.wait()
            first.agent.halt()
        assert first.agent.tree.root.seen == ["one"]
        assert first.told == []
        assert (await second.agent.recover("t")).status is SUCCESS
    assert second.agent.tree.root.seen == ["two"]
    assert [text for _, text, _ in second.told] == ["<one saw>", "<two saw>"]


async def test_a_delegate_whose_branch_is_halted_keeps_its_result() -> None:
    """It was done, and what refines it was not: its result is as it was."""
    made: list[Slow] = []

    def tree(_: Any) -> Behaviour:
        made.append(Slow("slow", acting("act", [look("one")])[0], stop_at=1))
        return Race("race", [made[0], Timer("later", seconds=5)])

    scene = Scene(given("one"), tree=tree)
    assert await scene.agent.run(scene.input) is SUCCESS
    assert scene.told == [("one", "one saw", False)]


async def test_executors_of_two_conversations_have_their_own() -> None:
    """Two agents side by side below one decorator each: neither sees the calls of the other."""
    scenes = [Scene(call(name), tree=lambda node: Slow("slow", node)) for name in "ab"]
    async with anyio.create_task_group() as group:
        for one in scenes:
            group.start_soon(one.run)
    assert [one.agent.tree.root.seen for one in scenes] == [["a"], ["b"]]


async def test_a_decorator_put_in_late_counts() -> None:
    """One that is put above the executor after the tree was built decorates the calls from then on."""
    scene = Scene(call("a"), tree=lambda node: InOrder("all", memory=True, children=[node]))
    root = scene.agent.tree.root
    node = root.children[0]
    assert isinstance(node, ToolExecutor)
    root.remove_child(node)
    root.add_child(Slow("slow", node))
    await scene.run()
    assert scene.told == [("a", "<a is done>", False)]


async def none(*_: Any) -> Any:
    """Return no outcome."""


async def asks(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
    """Ask, where nobody may."""
    return await context.ask(Request("Really?"), key="really")


async def asks_inside(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
    """Ask in a task of its own."""
    async with anyio.create_task_group() as group:
        group.start_soon(asks, given, outcome, context)
    return outcome


async def gives_up(*_: Any) -> Any:
    """Raise what ends the run."""
    raise RunError("the program is wrong")


async def as_it_is(given: ToolCall, outcome: CallOutcome, context: Any) -> CallOutcome:
    """Return the outcome."""
    return outcome


@pytest.mark.parametrize("fault", [none, asks, asks_inside, gives_up])
@pytest.mark.parametrize("kind", ["same", "store"])
async def test_a_call_is_carried_out_once_whatever_refine_does(fault: Any, kind: str, tmp_path: Path) -> None:
    """The run ends with the error; mended, it goes on without a question, and the call is not carried out again."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        first, second = (
            Scene(call("a"), call("b"), store=store, tree=lambda node, one=one: CallDecorator("d", node, refine=one))
            for one in (fault, as_it_is)
        )
        with pytest.raises(RunError):
            await first.run(thread_id="t")
        after = first if kind == "same" else second
        if kind == "same":
            after.agent.tree.root._refine = as_it_is
        made = await after.agent.recover("t")
        assert (made.status, made.suspensions) == (SUCCESS, ())
    assert (sorted(first.log), second.log) == (["a begins", "a ends", "b begins", "b ends"], [])
    text = "'work' was carried out, but its result cannot be shown: RunError: "
    assert [one.text.startswith(text) for one in after.results] == [True, True]


async def test_a_delegate_works_once_whatever_refine_does(tmp_path: Path) -> None:
    """What came of it is kept, and refined when the decorator is mended."""
    worked: list[str] = []

    def build() -> Behaviour:
        return Do("work", lambda node: (worked.append("x"), node.write_state({"final_answer": "saw"}))[1])

    async with SQLiteStore(tmp_path / "s.db") as store:

        def scene(fault: Any) -> Scene:
            box = [delegate("one", build, state_schema=ReActState)]
            return Scene(
                given("one"), store=store, tree=lambda _: CallDecorator("d", acting("act", box)[0], refine=fault)
            )

        for fault in (none, asks, gives_up):
            with pytest.raises(RunError):
                await scene(fault).run(thread_id=fault.__name__)
            after = scene(as_it_is)
            assert (await after.agent.recover(fault.__name__)).status is SUCCESS
            assert after.told == [("one", "saw", False)]
    assert worked == ["x"] * 3
