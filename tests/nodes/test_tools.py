"""ToolExecutor: calls, results, limits, what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from py_trees.common import ParallelPolicy
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.context import NodeContext
from jianmu.engine.events import Event, ToolCalled, ToolReturned
from jianmu.engine.limits import Limits
from jianmu.engine.request import Request
from jianmu.errors import RunError, SetupError, SwallowedSuspensionError
from jianmu.message import Message, TextPart, ai, human, tool_result
from jianmu.nodes import ForEach, Parallel, Sequence
from jianmu.nodes.tools import ToolExecutor
from jianmu.stores import SQLiteStore
from jianmu.tool import Tool, Toolbox, ToolCall
from tests.cases.leaves import SUCCESS, Do, nothing_left
from tests.nodes.toolkit import Scene, Talk, call

pytestmark = pytest.mark.anyio


def other(fn: Any, **options: Any) -> Any:
    """Return a maker of one tool, named `other`."""
    return lambda _: [Tool(fn, name="other", **options)]


def one(**arguments: Any) -> ToolCall:
    """Return a call of `other`."""
    return ToolCall(id="c1", name="other", arguments=arguments)


# Results


async def test_results_are_appended_in_call_order() -> None:
    """Calls run side by side; their results come in the order of the calls, as one write."""
    scene = Scene(call("a", seconds=3), call("b", seconds=1), call("c", seconds=2))
    events: list[Event] = []
    scene.agent._context.events.add(events.append)
    with nothing_left(scene.agent):
        outcome = await scene.run()
    assert outcome.status is SUCCESS
    assert scene.told == [(id, f"{id} is done", False) for id in "abc"]
    assert scene.clock.now() == 3
    writes = [event for event in events if getattr(event, "writer", None) == "act"]
    assert [event.fields for event in writes] == [("messages",)]


async def test_a_limit_has_so_many_run_at_a_time() -> None:
    """With `limit=1` a call begins when the one before it has ended, in call order."""
    scene = Scene(*(call(id, seconds=1) for id in "abc"), node={"limit": 1})
    await scene.run()
    assert scene.log == [f"{id} {what}" for id in "abc" for what in ("begins", "ends")]
    assert scene.clock.now() == 3


async def test_a_limit_may_follow_the_state() -> None:
    """`limit=` takes a function of the snapshot."""
    scene = Scene(*(call(id, seconds=1) for id in "abcd"), node={"limit": lambda state: len(state.note) or 2})
    await scene.run()
    assert scene.clock.now() == 2


@pytest.mark.parametrize("messages", [[], [human("hello")], [human("hello"), ai("hi")]], ids=["none", "human", "ai"])
async def test_without_calls_there_is_nothing_to_do(messages: list[Message]) -> None:
    """SUCCESS at once, and nothing is written, where the last reply has no calls or there is none."""
    scene = Scene()
    outcome = await scene.agent.run_until_suspend({"messages": messages})
    assert (outcome.status, list(scene.agent.state.messages)) == (SUCCESS, messages)


async def test_calls_that_are_answered_are_not_called() -> None:
    """Only calls without a result in the conversation are carried out."""
    scene = Scene()
    messages = [ai("", tool_calls=[call("a"), call("b")]), tool_result("a", "known")]
    await scene.agent.run({"messages": messages})
    assert scene.told == [("a", "known", False), ("b", "b is done", False)]
    assert scene.log == ["b begins", "b ends"]


async def test_the_calls_are_those_of_the_entry() -> None:
    """What is written to the conversation meanwhile changes nothing of what is carried out."""

    def write(leaf: Do) -> None:
        if leaf.ticks == 1:
            leaf.write_state({"messages": [human("wait"), ai("", tool_calls=[call("z")])]})

    def beside(node: ToolExecutor) -> Parallel:
        return Parallel("both", ParallelPolicy.SuccessOnAll(), children=[node, Do("write", write)])

    scene = Scene(call("a", seconds=1), tree=beside)
    await scene.run()
    assert scene.told == [("a", "a is done", False)]


async def test_messages_need_no_reducer() -> None:
    """A list without a reducer is appended to all the same."""

    class Plain(BaseModel):
        messages: list[Message] = []

    scene = Scene(call("a"), schema=Plain)
    await scene.run()
    assert [message.role for message in scene.agent.state.messages] == ["human", "ai", "tool"]


async def test_a_schema_without_messages_is_refused() -> None:
    """The error comes when the tree is bound, and has the line to write."""

    class Empty(BaseModel):
        pass

    with pytest.raises(SetupError, match=r"node 'act' keeps the conversation in 'messages', which Empty lacks: mess"):
        Agent(ToolExecutor("act", tools=[]), Empty)


async def test_tools_are_a_box_or_a_list() -> None:
    """A Toolbox is used as it is; tools, functions and boxes are put into one."""

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    box = Toolbox(add)
    assert ToolExecutor("act", tools=box).tools is box
    assert ToolExecutor("act", tools=[add, Toolbox(Tool(add, name="plus"))]).tools.names == ("add", "plus")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": abs}, r'ToolExecutor\("act", tools=...\) takes a Toolbox or a list of tools, not <built-in'),
        ({"limit": 0}, r'ToolExecutor\("act", limit=...\) takes a whole number from 1 up'),
        ({"on_unknown": "hope"}, r'ToolExecutor\("act", on_unknown=...\) is one of fail, ask, rerun, not \'hope\''),
        ({"remember": True}, r'ToolExecutor\("act", remember=...\) is one of call, tool, not True'),
        ({"timeout": 0}, r'ToolExecutor\("act", timeout=...\) takes seconds above 0'),
    ],
)
async def test_options_are_checked_at_once(options: dict[str, Any], text: str) -> None:
    """An option of another shape is refused when the node is built."""
    with pytest.raises(SetupError, match=text):
        ToolExecutor("act", **{"tools": [], **options})


async def test_the_box_is_open_while_the_tree_is() -> None:
    """The box is opened before the first call and closed when the run has ended."""
    seen: list[str] = []

    class Box(Toolbox):
        async def start(self) -> None:
            seen.append("open")

        async def stop(self) -> None:
            seen.append("close")

    def note() -> str:
        """Note."""
        seen.append("call")
        return ""

    agent = Agent(ToolExecutor("act", tools=Box(note)), Talk)
    await agent.run({"messages": [ai("", tool_calls=[ToolCall(id="1", name="note")])]})
    assert seen == ["open", "call", "close"]


async def test_an_executor_may_be_put_in_late() -> None:
    """One that a ForEach builds opens its box for its work."""
    seen: list[str] = []

    class Box(Toolbox):
        async def start(self) -> None:
            seen.append("open")

        async def stop(self) -> None:
            seen.append("close")

    def note() -> str:
        """Note."""
        seen.append("call")
        return ""

    tree = ForEach("each", lambda _item, _place: ToolExecutor("act", tools=Box(note)), over=[1])
    agent = Agent(tree, Talk)
    assert await agent.run({"messages": [ai("", tool_calls=[ToolCall(id="1", name="note")])]}) is SUCCESS
    assert seen == ["open", "call", "close"]


async def test_deps_and_context_are_injected() -> None:
    """A tool gets the agent's deps, and the context of the node."""

    def where(deps: Any, context: Any) -> str:
        """Say where."""
        return f"{deps} {context.path} {context.thread_id}"

    scene = Scene(one(), make=other(where), deps="d")
    await scene.run(thread_id="t")
    assert scene.told == [("c1", "d act t", False)]


# What goes wrong


async def test_two_calls_with_one_id() -> None:
    """The first is carried out; the second is not called, and its result says why."""
    scene = Scene(call("a"), call("a", label="again"), call("b"))
    await scene.run()
    text = "'work' was not called: another call of the same reply has its id, 'a'."
    assert scene.told == [("a", "a is done", False), ("a", text, True), ("b", "b is done", False)]


async def test_an_unknown_tool() -> None:
    """The result names the tools that there are; the others are called."""
    scene = Scene(call("a", "worj"), call("b"))
    await scene.run()
    text = "There is no tool 'worj', so nothing was called; did you mean 'work'? There are: work."
    assert scene.told == [("a", text, True), ("b", "b is done", False)]


async def test_arguments_that_are_no_json() -> None:
    """The result says so, and the tool is not called."""
    scene = Scene(ToolCall.parse("a", "work", '{"label": "x'), call("b"))
    await scene.run()
    text = "The arguments of 'work' are no JSON object, so it was not called: send one."
    assert scene.told == [("a", text, True), ("b", "b is done", False)]


async def test_a_tool_that_raises() -> None:
    """Its exception is the result; the run goes on."""

    def bad() -> None:
        """Raise."""
        raise ValueError("no luck")

    scene = Scene(one(), make=other(bad))
    assert (await scene.run()).status is SUCCESS
    assert scene.told == [("c1", "'other' failed: ValueError: no luck", True)]


async def test_a_result_that_has_no_json_form() -> None:
    """The result says that the call was carried out and cannot be shown."""

    def odd() -> object:
        """Return something odd."""
        return object()

    scene = Scene(one(), make=other(odd))
    await scene.run()
    assert scene.told == [
        ("c1", "'other' was carried out, but its result cannot be shown: object has no JSON form.", True)
    ]


async def test_fifty_megabytes() -> None:
    """A result is cut at `max_result_chars`; neither the conversation nor the journal has the rest."""
    scene = Scene(one(), make=other(lambda: "x" * 50_000_000))
    await scene.run()
    ((_, text, is_error),) = scene.told
    assert (len(text) < 101_000, is_error) == (True, False)
    assert text.endswith("[cut: these are the first 100000 of 50000000 characters]")


async def test_a_tool_that_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """What it prints is printed, and is no part of the result."""

    def noisy() -> str:
        """Print."""
        print("noise")  # noqa: T201  # what is tested
        return "quiet"

    scene = Scene(one(), make=other(noisy))
    await scene.run()
    assert scene.told == [("c1", "quiet", False)]
    assert capsys.readouterr().out == "noise\n"


async def test_a_tool_that_hangs() -> None:
    """A timeout cuts it off; nothing of it is alive, and the result says that its effect is not known."""
    scene = Scene(call("a", seconds=1000), call("b", seconds=2), make=lambda bench: [bench.tool(timeout=1)])
    with nothing_left(scene.agent):
        await scene.run()
    text = "'work' was cut off after 1 seconds; whether it took effect is not known."
    assert scene.told == [("a", text, True), ("b", text, True)]
    assert (scene.clock.now(), scene.bench.alive) == (1, 0)


async def test_a_timeout_of_the_node_is_for_tools_without_one() -> None:
    """`timeout=` holds for tools that have none of their own."""
    scene = Scene(
        call("a", "slow", seconds=5),
        call("b", "slower", seconds=5),
        make=lambda bench: [bench.tool("slow"), bench.tool("slower", timeout=9)],
        node={"timeout": 2},
    )
    await scene.run()
    assert [is_error for _, _, is_error in scene.told] == [True, False]


async def test_parts_are_a_result() -> None:
    """A tool may return parts."""
    scene = Scene(one(), make=other(lambda: [TextPart(text="one"), "two"]))
    await scene.run()
    assert scene.results[0].content == (TextPart(text="one"), TextPart(text="two"))


async def test_an_error_of_the_program_ends_the_run_after_its_siblings() -> None:
    """A SetupError of a tool is raised by the run; siblings are finished first, and not called again."""
    faults = [SetupError("wired wrongly")]
    scene = Scene(
        call("a", seconds=1), one(), make=lambda bench: [bench.tool(), Tool(broken, name="other")], deps=faults
    )
    with pytest.raises(SetupError, match="wired wrongly"):
        await scene.run()
    assert scene.log == ["a begins", "a ends"]
    assert (await scene.agent.recover()).status is SUCCESS
    assert scene.told == [("a", "a is done", False), ("c1", "fine", False)]
    assert scene.log == ["a begins", "a ends"]


async def broken(deps: Any) -> str:
    """Raise what the program's faults are, then return."""
    if deps:
        raise deps.pop()
    return "fine"


# Events and limits


async def test_events_tell_of_calls_and_results() -> None:
    """ToolCalled for what is carried out; ToolReturned for every call, once."""
    scene = Scene(call("a"), call("b", "none"))
    events: list[Any] = []
    scene.agent._context.events.add(events.append)
    await scene.run()
    called = [(event.call_id, event.name, event.arguments) for event in events if isinstance(event, ToolCalled)]
    returned = [(event.call_id, event.name, event.is_error) for event in events if isinstance(event, ToolReturned)]
    assert called == [("a", "work", {"label": "a"})]
    assert sorted(returned) == [("a", "work", False), ("b", "none", True)]


async def test_calls_are_counted() -> None:
    """The run's usage has the calls that were begun; those that cannot be called do not count."""
    scene = Scene(call("a"), call("b", "none"), call("c"), call("a"))
    await scene.run()
    assert scene.agent._context.usage.tool_calls == 2


async def test_more_calls_than_the_run_may_use_end_it_before_any() -> None:
    """The outcome names the limit, nothing was called; with a higher one the run goes on where it was."""
    scene = Scene(*(call(id) for id in "abc"))
    outcome = await scene.run(limits=Limits(tool_calls=2))
    assert (outcome.limit, scene.log, scene.told) == ("tool_calls", [], [])
    outcome = await scene.agent.recover(limits=Limits(tool_calls=3))
    assert outcome.status is SUCCESS
    assert scene.told == [(id, f"{id} is done", False) for id in "abc"]


async def test_a_call_that_asks_counts_once() -> None:
    """Entered again after the answer it is the same call."""
    scene = Scene(call("a"), call("b", "asks"), make=lambda bench: [bench.tool(), bench.asking()])
    await scene.run(limits=Limits(tool_calls=2))
    assert (await scene.agent.resume("yes", limits=Limits(tool_calls=2))).status is SUCCESS
    assert scene.agent._context.usage.tool_calls == 2


# Asking


async def test_siblings_of_a_call_that_asks_are_finished_first() -> None:
    """Their results are kept; after the answer the tool is entered from its top, and no sibling runs again."""
    scene = Scene(call("a", seconds=5), call("b", "asks"), call("c"), make=lambda bench: [bench.tool(), bench.asking()])
    (question,) = (await scene.run()).suspensions
    assert (question.message, question.tool_call_id, question.path) == ("b: sure?", "b", "act")
    assert (scene.clock.now(), scene.told) == (5, [])
    scene.log.clear()
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert scene.log == ["b asks", "b begins", "b ends"]
    assert scene.told == [("a", "a is done", False), ("b", "b is done: yes", False), ("c", "c is done", False)]


async def test_two_calls_of_one_tool_that_asks_have_a_question_each() -> None:
    """The same key in two calls is two questions, told apart by `tool_call_id`."""
    scene = Scene(call("a", "asks"), call("b", "asks"), make=lambda bench: [bench.asking()])
    questions = {one.tool_call_id: one.id for one in (await scene.run()).suspensions}
    await scene.agent.resume("B", suspension_id=questions["b"])
    assert (await scene.agent.resume("A", suspension_id=questions["a"])).status is SUCCESS
    assert [text for _, text, _ in scene.told] == ["a is done: A", "b is done: B"]


async def test_an_answer_is_that_of_its_reply() -> None:
    """A model that uses an id again in the next reply is asked about again."""
    again = Do("again", lambda leaf: leaf.write_state({"messages": [ai("", tool_calls=[call("a", "asks")])]}))
    second = ToolExecutor("act", tools=[])
    scene = Scene(
        call("a", "asks"),
        make=lambda bench: [bench.asking()],
        tree=lambda node: Sequence("main", memory=True, children=[node, again, second]),
    )
    second.tools = scene.node.tools
    await scene.run()
    assert len((await scene.agent.resume("one")).suspensions) == 1
    await scene.agent.resume("two")
    assert [text for _, text, _ in scene.told] == ["a is done: one", "a is done: two"]


@pytest.mark.parametrize("kind", ["checkpoint", "store"])
async def test_what_siblings_did_is_kept_in_another_process(kind: str, tmp_path: Path) -> None:
    """After a load only the call that asked is entered; results come in call order."""

    def scene(**options: Any) -> Scene:
        return Scene(call("a"), call("b", "asks"), make=lambda bench: [bench.tool(), bench.asking()], **options)

    async with SQLiteStore(tmp_path / "s.db") as store:
        options = {"store": store} if kind == "store" else {}
        first, second = scene(**options), scene(**options)
        await first.run(thread_id="t")
        if kind == "checkpoint":
            second.agent.load_checkpoint(first.agent.dump_checkpoint())
        assert (await second.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert second.log == ["b asks", "b begins", "b ends"]
    assert second.told == [("a", "a is done", False), ("b", "b is done: yes", False)]


async def test_a_tool_may_ask_in_a_task_of_its_own() -> None:
    """A suspension that comes out of a task group is one."""

    async def asks(context: NodeContext) -> str:
        """Ask in a task."""
        found: list[str] = []

        async def ask() -> None:
            found.append(await context.ask(Request("sure?"), key="sure"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
        return found[0]

    scene = Scene(one(), call("a"), make=lambda bench: [Tool(asks, name="other"), bench.tool()])
    await scene.run()
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert scene.told == [("c1", "yes", False), ("a", "a is done", False)]
    assert scene.log == ["a begins", "a ends"]


async def test_a_tool_that_swallows_its_suspension() -> None:
    """The run ends with an error that names the node."""

    async def swallows(context: NodeContext) -> str:
        """Catch everything."""
        try:
            return await context.ask(Request("sure?"), key="sure")
        except BaseException:
            return "never mind"

    scene = Scene(one(), make=other(swallows))
    with pytest.raises(SwallowedSuspensionError, match="node 'act' caught its suspension"):
        await scene.run()


async def test_what_a_tool_writes_before_it_asks_is_not_written_twice() -> None:
    """A write to a field with a reducer has to be in `once`; what siblings write does not count."""

    async def asks(context: NodeContext, safely: bool) -> str:
        """Write, then ask."""

        async def note() -> None:
            context.write_state({"messages": [human("noted")]})

        await (context.once("note", note) if safely else note())
        return await context.ask(Request("sure?"), key="sure")

    def writes(context: NodeContext) -> str:
        """Write."""
        context.write_state({"messages": [human("also noted")]})
        return "written"

    tools = [Tool(asks, name="other"), Tool(writes)]
    scene = Scene(ToolCall(id="w", name="writes"), one(safely=True), make=lambda _: tools, node={"limit": 1})
    assert (await scene.run()).suspended
    assert (await scene.agent.resume("yes")).status is SUCCESS
    texts = [message.text for message in scene.agent.state.messages]
    assert sorted(texts[2:]) == ["also noted", "noted", "written", "yes"]
    careless = Scene(one(safely=False), make=lambda _: tools)
    with pytest.raises(RunError, match="has written 'messages', which has a reducer, before it asks"):
        await careless.run()


async def test_effects_of_calls_have_keys_of_their_own() -> None:
    """Two calls of one tool may use the same key of `once`, under different idempotency keys."""
    seen: list[str] = []

    async def pay(label: str, context: Any) -> str:
        """Pay."""
        seen.append(context.idempotency_key)

        async def charge() -> str:
            seen.append(context.idempotency_key)
            return label

        return await context.once("charge", charge)

    scene = Scene(call("a", "pay"), call("b", "pay"), make=lambda _: [Tool(pay, name="pay")])
    await scene.run()
    assert [text for _, text, _ in scene.told] == ["a", "b"]
    assert len({*seen}) == 4
