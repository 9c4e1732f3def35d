"""Delegates: subtrees as tools."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.errors import ModelRefusedError, RunError, SetupError
from jianmu.message import ai, human
from jianmu.nodes import AskHuman, Race, Sequence, Timer
from jianmu.nodes.delegating import DelegateExecutor, acting
from jianmu.nodes.tools import ToolExecutor
from jianmu.prebuilt import ReActState, delegate, react, react_agent
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.tool import Tool, ToolCall
from tests.cases.leaves import FAILURE, SUCCESS, Do, DoAsync, nothing_left

pytestmark = pytest.mark.anyio


class Inner(BaseModel):
    """The state of a delegate."""

    topic: str = ""
    depth: int = 1
    answer: str = ""
    seen: Annotated[list[str], operator.add] = Field(default_factory=list)


class Outer(ReActState):
    """The state of who delegates."""

    hint: str = "outer hint"
    learnt: str = ""


def about(topic: str, depth: int = 1) -> dict[str, Any]:
    """Look into a topic.

    Args:
        topic: what it is about.
        depth: how far to go.
    """
    return {"topic": topic, "depth": depth}


def leaf(function: Callable[[Any], Any], seconds: float = 0) -> Callable[[], Behaviour]:
    """Return what builds a tree that works with the state of its node."""

    async def work(node: DoAsync) -> Any:
        await node.context.clock.sleep(seconds)
        return function(node)

    return lambda: DoAsync("work", work)


def answers(node: Any) -> None:
    """Answer."""
    state = node.read_state()
    node.write_state({"answer": f"{state.topic}/{state.depth}", "seen": [state.topic]})


def looks(name: str = "look", build: Callable[[], Behaviour] | None = None, **options: Any) -> Any:
    """Return a delegate."""
    how = {"state_schema": Inner, "arguments": about, "result": "answer", **options}
    return delegate(name, build or leaf(answers), **how)


def call(id: str, name: str = "look", **arguments: Any) -> ToolCall:
    """Return a call whose topic is its id."""
    return ToolCall(id=id, name=name, arguments={"topic": id, **arguments})


class Scene:
    """An agent that carries out the calls of one reply."""

    def __init__(self, *calls: ToolCall, tools: list[Any], tree: Any = None, **options: Any) -> None:
        self.node, _ = acting("act", tools, **options.pop("node", {}))
        root = tree(self.node) if tree else self.node
        self.agent: Agent[Any] = Agent(root, Outer, clock=VirtualClock(autojump=True), **options)
        self.input = {"messages": [human("go"), ai("", tool_calls=calls, id="reply")]}

    async def run(self, **more: Any) -> Any:
        """Run until the end or a question."""
        return await self.agent.run_until_suspend(self.input, **more)

    @property
    def told(self) -> list[tuple[str | None, str, bool]]:
        """The results."""
        return [(m.tool_call_id, m.text, m.is_error) for m in self.agent.state.messages if m.role == "tool"]


async def test_the_model_sees_the_function_of_its_arguments() -> None:
    """Name, description and schema are those of the function that takes the arguments."""
    tool = looks()
    assert (tool.name, tool.description) == ("look", "Look into a topic.")
    assert tool.parameters["required"] == ["topic"]
    assert tool.parameters["properties"]["topic"]["description"] == "what it is about."


async def test_a_call_runs_the_tree_on_its_own_state() -> None:
    """Its result is the field of the inner state; nothing of it is in the outer one."""
    scene = Scene(call("a", depth=3), tools=[looks()])
    with nothing_left(scene.agent):
        assert (await scene.run()).status is SUCCESS
    assert scene.told == [("a", "a/3", False)]


async def test_each_call_begins_afresh() -> None:
    """What one call has written is not there in the next; calls of one tree come one after the other."""
    scene = Scene(call("a"), call("b"), tools=[looks(build=leaf(answers, 1), result=lambda state: state.seen)])
    await scene.run()
    assert scene.told == [("a", '["a"]', False), ("b", '["b"]', False)]
    assert scene.agent.clock.now() == 2


async def test_copies_work_side_by_side() -> None:
    """With `copies=2` two calls of one reply are done at once, on states of their own."""
    scene = Scene(*(call(id) for id in "abc"), tools=[looks(build=leaf(answers, 1), copies=2)])
    await scene.run()
    assert scene.told == [(id, f"{id}/1", False) for id in "abc"]
    assert scene.agent.clock.now() == 2


async def test_plain_tools_and_delegates_in_one_reply() -> None:
    """Results come in call order, as one write."""

    def plain(topic: str) -> str:
        """Answer."""
        return f"plain {topic}"

    scene = Scene(call("a"), call("b", "plain"), call("c", "other"), call("d", "none"), tools=[
        looks(), plain, looks("other", leaf(answers, 1))])  # fmt: skip
    await scene.run()
    assert [text for _, text, _ in scene.told][:3] == ["a/1", "plain b", "c/1"]
    assert scene.told[3][2]


async def test_ports_pass_what_is_bound_and_nothing_else() -> None:
    """`inputs` come from the outer state, `outputs` go there."""
    seen: list[Any] = []

    def work(node: Any) -> None:
        seen.append(node.read_state())
        node.write_state({"answer": "found"})

    tool = looks(build=leaf(work), inputs={"topic": "hint"}, outputs={"learnt": "answer"})
    scene = Scene(call("a"), tools=[tool])
    await scene.run()
    assert (seen[0].topic, scene.agent.state.learnt) == ("outer hint", "found")


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda _: FAILURE, "'look' failed: its tree failed"),
        (lambda _: 1 / 0, "'look' failed: ZeroDivisionError: division by zero"),
    ],
    ids=["fails", "raises"],
)
async def test_a_tree_that_fails_is_an_error(work: Any, text: str) -> None:
    """FAILURE and exceptions are the result of the call; the run goes on."""
    scene = Scene(call("a"), call("b", "fine"), tools=[looks(build=leaf(work)), looks("fine")])
    assert (await scene.run()).status is SUCCESS
    assert scene.told == [("a", text, True), ("b", "b/1", False)]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ([ModelRefusedError("the policy", model="m")], "model 'm': the policy"),
        ([ToolCall(id="1", name="nothing")], "round 1 failed"),
    ],
    ids=["refused", "no answer"],
)
async def test_why_a_tree_failed_is_in_the_result(script: list[Any], text: str) -> None:
    """The model is told what the node says that failed, wherever it stands in the tree."""
    model = ScriptedModel(script)
    tool = delegate("ask", lambda: react("inner", model=model, max_rounds=1), state_schema=ReActState)
    scene = Scene(ToolCall(id="a", name="ask", arguments={"task": "x"}), tools=[tool])
    assert (await scene.run()).status is SUCCESS
    assert scene.told == [("a", f"'ask' failed: {text}", True)]


async def test_an_error_of_the_program_ends_the_run() -> None:
    """A RunError inside is no result."""

    def work(_: Any) -> None:
        raise RunError("broken")

    scene = Scene(call("a"), tools=[looks(build=leaf(work))])
    with pytest.raises(RunError, match="broken"):
        await scene.run()


async def test_arguments_that_do_not_fit() -> None:
    """The result says what is wrong; the tree is not run."""
    scene = Scene(ToolCall(id="a", name="look"), call("b"), tools=[looks()])
    await scene.run()
    assert scene.told[0] == (
        "a",
        "The arguments of 'look' do not fit, so it was not called:\n- topic: is missing",
        True,
    )
    assert scene.told[1] == ("b", "b/1", False)


async def test_a_function_of_the_arguments_that_raises() -> None:
    """What it raises is the result; the tree is not run."""

    def picky(topic: str) -> dict[str, Any]:
        """Refuse."""
        raise KeyError(topic)

    scene = Scene(call("a"), call("b", "fine"), tools=[looks(arguments=picky), looks("fine")])
    assert (await scene.run()).status is SUCCESS
    assert scene.told == [("a", "'look' failed: KeyError: 'a'", True), ("b", "b/1", False)]


async def test_a_result_that_has_no_json_form() -> None:
    """The result says that the call was carried out."""
    scene = Scene(call("a"), tools=[looks(result=lambda _: object())])
    await scene.run()
    text = "'look' was carried out, but its result cannot be shown: object has no JSON form."
    assert scene.told == [("a", text, True)]


def asks() -> Behaviour:
    """Return a tree that asks a person."""
    return AskHuman("ask", message=lambda state: f"{state.topic}?", into="answer")


async def test_a_question_inside_has_the_whole_path() -> None:
    """It is a question of the run; the answer goes to the tree that asked."""
    scene = Scene(call("a"), call("b", "fine"), tools=[looks(build=asks), looks("fine")])
    (question,) = (await scene.run()).suspensions
    assert (question.path, question.message) == ("act/look/ask", "a?")
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert scene.told == [("a", "yes", False), ("b", "b/1", False)]


async def test_two_calls_of_one_delegate_ask_two_questions() -> None:
    """The second is another question, though path and key are the same."""
    scene = Scene(call("a"), call("b"), tools=[looks(build=asks)])
    (first,) = (await scene.run()).suspensions
    (second,) = (await scene.agent.resume("A")).suspensions
    assert (first.id != second.id, second.message) == (True, "b?")
    assert (await scene.agent.resume("B")).status is SUCCESS
    assert [text for _, text, _ in scene.told] == ["A", "B"]


@pytest.mark.parametrize("kind", ["checkpoint", "store"])
async def test_a_delegate_goes_on_in_another_process(kind: str, tmp_path: Path) -> None:
    """State, position, question and what siblings did are kept with the run."""
    counted: list[str] = []

    def note(topic: str) -> str:
        """Note."""
        counted.append(topic)
        return "noted"

    def build() -> Behaviour:
        first = Do("first", lambda leaf: leaf.write_state({"seen": ["first"]}))
        return Sequence("main", memory=True, children=[first, asks()])

    def scene(**options: Any) -> Scene:
        tool = looks(build=build, result=lambda state: f"{state.topic} {state.answer} {state.seen}")
        return Scene(call("a"), call("b", "note"), call("c"), tools=[tool, note], **options)

    async with SQLiteStore(tmp_path / "s.db") as store:
        options = {"store": store} if kind == "store" else {}
        one, two = scene(**options), scene(**options)
        await one.run(thread_id="t")
        if kind == "checkpoint":
            two.agent.load_checkpoint(one.agent.dump_checkpoint())
        assert len((await two.agent.resume("A", thread_id="t")).suspensions) == 1
        assert (await two.agent.resume("B", thread_id="t")).status is SUCCESS
    assert two.told == [("a", "a A ['first']", False), ("b", "noted", False), ("c", "c B ['first']", False)]
    assert counted == ["b"]


async def test_an_agent_of_many_threads_keeps_their_calls_apart(tmp_path: Path) -> None:
    """While one thread waits for an approval it serves another; then the first goes on with calls of its own."""
    noted: list[str] = []

    async def note(topic: str) -> str:
        """Note."""
        noted.append(topic)
        return f"noted {topic}"

    async with SQLiteStore(tmp_path / "s.db") as store:
        tools = [Tool(note, requires_approval=True), looks()]
        agent: Agent[Any] = Agent(acting("act", tools)[0], Outer, store=store, clock=VirtualClock(autojump=True))
        for thread in ("one", "two"):
            calls = [call(f"for {thread}", "note"), call(f"look {thread}")]
            await agent.run_until_suspend({"messages": [ai("", tool_calls=calls)]}, thread_id=thread)
        for thread in ("two", "one"):
            assert (await agent.resume(True, thread_id=thread)).status is SUCCESS
            told = [message.text for message in agent.state.messages if message.role == "tool"]
            assert told == [f"noted for {thread}", f"look {thread}/1"]
    assert noted == ["for two", "for one"]


async def test_a_delegate_may_need_approval() -> None:
    """It is asked about with the others, before anything is done."""
    scene = Scene(call("a"), call("b", "fine"), tools=[looks(requires_approval=True), looks("fine")])
    (question,) = (await scene.run()).suspensions
    assert (question.tool_call_id, question.path) == ("a", "act/calls")
    await scene.agent.resume({"approved": True, "editedArgs": {"topic": "z"}})
    note = '[The person who approved this call has changed its arguments to {"topic": "z"}]'
    assert scene.told == [("a", f"{note}\nz/1", False), ("b", "b/1", False)]


async def test_calls_of_delegates_count() -> None:
    """They are counted with the others, before any is begun."""
    scene = Scene(call("a"), call("b"), tools=[looks()])
    assert (await scene.run(limits=Limits(tool_calls=1))).limit == "tool_calls"
    assert (await scene.agent.recover(limits=Limits(tool_calls=2))).status is SUCCESS
    assert scene.agent.state.usage.tool_calls == 2


async def test_halted_delegates_have_results() -> None:
    """One at work is cut off, one that waits for its turn was not called, one that is done has its own."""
    scene = Scene(
        call("a", "fine"), call("b"), call("c"),
        tools=[looks(build=leaf(answers, 9)), looks("fine")],
        tree=lambda node: Race("race", [node, Timer("timer", seconds=1)]),
    )  # fmt: skip
    with nothing_left(scene.agent):
        assert (await scene.run()).status is SUCCESS
    assert [text for _, text, _ in scene.told] == [
        "a/1",
        "'look' was cut off, since its turn was ended; whether it took effect is not known.",
        "'look' was not called, since its turn was ended before.",
    ]


async def test_a_cancelled_run_goes_on_inside_of_the_delegate() -> None:
    """`recover` enters the tree where it was."""
    scene = Scene(call("a"), tools=[looks(build=leaf(answers, 9))])
    async with anyio.create_task_group() as group:
        group.start_soon(scene.run)
        await scene.agent.clock.sleep(1)
        group.cancel_scope.cancel()
    assert (await scene.agent.recover()).status is SUCCESS
    assert scene.told == [("a", "a/1", False)]


async def test_a_react_agent_delegates_to_another() -> None:
    """By default a delegate gets one text, `task`, as the only message of its conversation."""
    asks_expert = ToolCall(id="1", name="expert", arguments={"task": "what is it?"})
    inner, outer = ScriptedModel(["forty-two"]), ScriptedModel([asks_expert, "so it is"])
    expert = delegate("expert", lambda: react("expert tree", model=inner), state_schema=ReActState)
    agent = react_agent(outer, [expert])
    await agent.run({"messages": [human("secret of the outer conversation")]})
    assert [message.text for message in inner.requests[0].messages] == ["what is it?"]
    assert [message.text for message in agent.state.messages][2:] == ["forty-two", "so it is"]
    assert agent._context.usage.requests == 3


async def test_an_agent_as_a_tool_keeps_its_state() -> None:
    """`Agent.as_tool()`: the conversation of the other agent goes on from call to call."""
    model = ScriptedModel(["one", "two"])
    expert = react_agent(model)
    tool = expert.as_tool("expert", description="Knows.")
    calls = [ToolCall(id=id, name="expert", arguments={"task": id}) for id in "ab"]
    scene = Scene(*calls, tools=[tool])
    await scene.run()
    assert [text for _, text, _ in scene.told] == ["one", "two"]
    assert [message.text for message in model.requests[1].messages] == ["a", "one", "b"]


async def test_an_agent_with_a_store_is_no_tool(tmp_path: Path) -> None:
    """Its threads are its own."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        agent = react_agent(ScriptedModel([]), store=store)
        with pytest.raises(SetupError, match="'expert': an agent inside of another is kept in that one's store"):
            agent.as_tool("expert")


async def later(topic: str) -> dict[str, Any]:
    """Take the topic."""
    return {"topic": topic}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"arguments": None},
            "delegate 'look' takes no messages: say what goes in, arguments=<a function that returns",
        ),
        ({"result": "anwser"}, "delegate 'look': result='anwser' is no field of Inner"),
        ({"copies": 0}, "delegate 'look': copies= is a whole number from 1 up, not 0"),
        (
            {"build": lambda model, name="x", *rest: 3},
            r'calls build\(\) without arguments, which build needs: write delegate\("look", lambda: build\(model\)\)',
        ),
        (
            {"build": leaf(answers)()},
            r'delegate\(name, build\) takes a function that builds the tree, not .*: write delegate\("look", lambda: ',
        ),
        ({"build": lambda: 3}, r"what build\(\) of delegate 'look' returns takes a node of a tree, not 3"),
        ({"arguments": later}, "delegate 'look': arguments= is called inside the pass: write `def`"),
    ],
)
async def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], text: str) -> None:
    """With what to write."""
    with pytest.raises(SetupError, match=text):
        looks(**options)


async def test_a_plain_executor_refuses_delegates() -> None:
    """The error names the node to use."""
    agent = Agent(ToolExecutor("act", tools=[looks()]), Outer)
    with pytest.raises(SetupError, match="tool 'look' is a delegate: call it from a DelegateExecutor"):
        await agent.run({"messages": [ai("", tool_calls=[call("a")])]})


async def test_an_executor_of_delegates_takes_what_a_plain_one_takes() -> None:
    """A list of tools and functions is a box; what is none of it is refused as there, with what to write."""
    agent = Agent(DelegateExecutor("act", tools=[looks(), about]), Outer)
    calls = [call("a"), ToolCall(id="b", name="about", arguments={"topic": "x"})]
    await agent.run({"messages": [ai("", tool_calls=calls)]})
    assert [one.text for one in agent.state.messages[-2:]] == ["a/1", '{"topic":"x","depth":1}']
    with pytest.raises(SetupError, match=r'DelegateExecutor\("act", tools=...\) takes a Toolbox or a list'):
        DelegateExecutor("act", tools=looks())


async def test_acting_is_an_executor_where_there_are_no_delegates() -> None:
    """The node is a ToolExecutor, or a DelegateExecutor where it has to be."""
    tool = Tool(about, name="plain")
    assert type(acting("act", [tool])[0]) is ToolExecutor
    assert type(acting("act", [looks()])[0]) is DelegateExecutor
