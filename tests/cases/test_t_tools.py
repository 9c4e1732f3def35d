"""T02, T04, T11, T15 to T18, T20 to T23, T25 to T27, V06: tools, approvals and agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import ParallelPolicy

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.ports import Const
from jianmu.message import human
from jianmu.nodes import AgentLLMNode, Parallel, Sequence, ToolExecutor
from jianmu.nodes.pairing import paired
from jianmu.prebuilt import ReActState, react, react_agent
from jianmu.stores import SQLiteStore
from jianmu.testing import After, ScriptedHuman, ScriptedModel, Turn
from jianmu.tool import Tool, Toolbox, ToolCall, tool
from tests.anystore import Stores
from tests.cases.leaves import SUCCESS, Do, nothing_left
from tests.model.server import Answer, chunk, said, serving

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [human("go")]}


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call(id: str, name: str, **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def results(agent: Agent[Any]) -> list[tuple[str | None, str, bool]]:
    """Return the results in a conversation."""
    return [(one.tool_call_id, one.text, one.is_error) for one in agent.state.messages if one.role == "tool"]


class Notes:
    """Tools that note what they do, on a clock that jumps."""

    def __init__(self) -> None:
        self.clock = VirtualClock(autojump=True)
        self.log: list[str] = []
        self.alive = 0

    def tool(self, name: str, seconds: float = 0, **options: Any) -> Tool:
        """Return a tool that takes so long."""

        async def work() -> str:
            """Work."""
            self.alive += 1
            try:
                await self.clock.sleep(seconds)
            finally:
                self.alive -= 1
            self.log.append(name)
            return f"{name} is done"

        return Tool(work, name=name, **options)

    def agent(self, model: ScriptedModel, tools: list[Any], **options: Any) -> Agent[Any]:
        """Return a ReAct agent on the clock."""
        return react_agent(model, tools, clock=self.clock, **options)


async def test_t02_the_second_turn_calls_its_tool() -> None:
    """A run whose last one ended with an answer goes on until its own."""
    with ScriptedModel(["first", call("1", "add", a=1, b=1), "second"]) as model:
        agent = react_agent(model, [add])
        await agent.run(GO)
        assert agent.state.final_answer == "first"
        await agent.run({"messages": [human("and now?")]})
    assert (agent.state.final_answer, results(agent)) == ("second", [("1", "2", False)])


async def test_t04_a_message_that_comes_twice_is_one(tmp_path: Path) -> None:
    """With the same `input_id` the second delivery returns the first one's outcome; the model is asked once."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        with ScriptedModel(["hello"]) as model:
            agent = react_agent(model, store=store)
            given: Any = {"messages": [human("hi", id="m1")]}
            first = await agent.run_until_suspend(given, thread_id="t", input_id="i1")
            second = await agent.run_until_suspend(given, thread_id="t", input_id="i1")
    assert (first.status, second.status) == (SUCCESS, SUCCESS)
    assert [message.text for message in agent.state.messages] == ["hi", "hello"]


async def test_t11_delegated_trees_have_rounds_of_their_own() -> None:
    """The parent's counter is untouched, and nothing of its messages is in a child's request."""
    models = [ScriptedModel([call(str(n), "add", a=n, b=n) for n in range(rounds)] + ["done"]) for rounds in (1, 2)]
    inner = [Agent(react("inner", model=model, tools=[add]), ReActState) for model in models]
    inputs = {"messages": Const([human("yours")])}
    nodes = [one.as_node(f"child{number}", inputs=inputs) for number, one in enumerate(inner)]
    agent = Agent(Parallel("both", ParallelPolicy.SuccessOnAll(), children=nodes), ReActState)
    agent.state_manager.update({"rounds": 0})
    await agent.run({"messages": [human("mine")]})
    assert (agent.state.rounds, [one.state.rounds for one in inner]) == (0, [2, 3])
    for model in models:
        assert {m.text for request in model.requests for m in request.messages if m.role == "human"} == {"yours"}


async def test_t15_a_tool_has_its_schema_and_its_result() -> None:
    """`add(a: int, b: int)` takes two integers, both required; {a: 1, b: 2} is 3."""
    model = ScriptedModel([call("1", "add", a=1, b=2), "3"])
    agent = react_agent(model, [add])
    await agent.run(GO)
    (spec,) = model.requests[0].tools
    assert {name: part["type"] for name, part in spec.schema["properties"].items()} == {"a": "integer", "b": "integer"}
    assert sorted(spec.schema["required"]) == ["a", "b"]
    assert results(agent) == [("1", "3", False)]


def pieces(*parts: tuple[int, dict[str, Any]]) -> list[Any]:
    """Return the events of a reply with calls, piece by piece."""
    return [chunk({"tool_calls": [{"index": index, **part}]}) for index, part in parts] + said(finish="tool_calls")


def begin(id: str, name: str | None = "add") -> dict[str, Any]:
    """Return the beginning of a call."""
    return {"id": id, "type": "function", "function": {"arguments": "", **({"name": name} if name else {})}}


def more(text: str, **function: str) -> dict[str, Any]:
    """Return a piece of a call's arguments."""
    return {"function": {"arguments": text, **function}}


async def streamed(*parts: tuple[int, dict[str, Any]], tools: list[Any]) -> Agent[Any]:
    """Return an agent that has had this reply from a real server, and then "done"."""
    async with serving(Answer(pieces(*parts)), Answer(said("done"))) as server:
        agent = react_agent(server.model(), tools)
        with anyio.fail_after(20):
            assert await agent.run(GO) is SUCCESS
    return agent


async def test_t16_arguments_in_pieces_that_are_mixed() -> None:
    """Two calls whose arguments come in four pieces, in turns, are whole, and each is run once."""
    agent = await streamed(
        *[(0, begin("c1")), (1, begin("c2")), (0, more('{"a"')), (1, more('{"a": 2')), (0, more(": 1, "))],
        *[(1, more(', "b"')), (0, more('"b": 1')), (1, more(": 2")), (0, more("}")), (1, more("}"))],
        tools=[add],
    )
    assert results(agent) == [("c1", "2", False), ("c2", "4", False)]


async def test_t17_a_list_of_tools_is_the_callers() -> None:
    """What an agent makes of it, or adds to it, does not change it."""
    given = [add]
    react_agent(ScriptedModel([]), given)
    box = Toolbox(*given, Tool(lambda: 1, name="remember"))
    ToolExecutor("act", tools=box)
    AgentLLMNode("think", model=ScriptedModel([]), tools=given)
    assert given == [add]


async def test_t18_an_approval_comes_before_every_sibling() -> None:
    """Of three calls the second needs one: none has run; approved, each runs once, results in call order."""
    notes = Notes()
    model = ScriptedModel([[call(name, name) for name in "abc"], "done"])
    agent = notes.agent(model, [notes.tool("a"), notes.tool("b", requires_approval=True), notes.tool("c")])
    outcome = await agent.run_until_suspend(GO)
    assert (outcome.suspended, notes.log) == (True, [])
    await agent.resume(True)
    assert sorted(notes.log) == [*"abc"]
    assert [id for id, _, _ in results(agent)] == [*"abc"]


async def test_t20_results_come_in_call_order() -> None:
    """Four calls that take 0.4, 0.1, 0.3, 0.2: all done at t=0.4, in the order of the calls."""
    notes = Notes()
    times = {"a": 0.4, "b": 0.1, "c": 0.3, "d": 0.2}
    model = ScriptedModel([[call(name, name) for name in times], "done"])
    agent = notes.agent(model, [notes.tool(name, seconds) for name, seconds in times.items()])
    await agent.run(GO)
    assert ([id for id, _, _ in results(agent)], notes.log) == ([*"abcd"], [*"bdca"])
    assert notes.clock.now() == pytest.approx(0.4)


async def test_t21_what_goes_wrong_is_a_result() -> None:
    """A wrong type, an unknown tool, a tool that raises: error results that name the cause; the run goes on."""

    def bad() -> None:
        """Raise."""
        raise OSError("disk full")

    calls = [call("1", "add", a="x", b=1), call("2", "sub"), call("3", "bad"), call("4", "add", a=1, b=1)]
    agent = react_agent(ScriptedModel([calls, "done"]), [add, bad])
    assert await agent.run(GO) is SUCCESS
    texts = {id: text for id, text, is_error in results(agent) if is_error}
    assert ("a: " in texts["1"], "no tool 'sub'" in texts["2"], "OSError: disk full" in texts["3"]) == (True,) * 3
    assert results(agent)[3] == ("4", "2", False)


async def test_t22_a_tool_that_never_ends() -> None:
    """With a timeout of 1 its result is an error at t=1; it was cleaned up, and nothing of it is alive."""
    notes = Notes()
    agent = notes.agent(ScriptedModel([call("1", "hangs"), "done"]), [notes.tool("hangs", 1e6, timeout=1)])
    with nothing_left(agent):
        await agent.run(GO)
    assert (results(agent)[0][2], notes.alive, notes.clock.now()) == (True, 0, 1)


async def test_t23_a_guard_that_keeps_two_calls_of_four() -> None:
    """`actions`, the stored message and the next request have the same two ids, and only those are called."""
    notes = Notes()
    model = ScriptedModel([[call(name, name) for name in "abcd"], "done"])
    tools = [notes.tool(name) for name in "abcd"]

    def guard(leaf: Do) -> None:
        last = leaf.read_state().messages[-1]
        kept = last.model_copy(update={"tool_calls": last.tool_calls[1:3]})
        leaf.transform_field("messages", lambda messages: [*messages[:-1], kept])
        leaf.write_state({"actions": list(kept.tool_calls)})

    think = [AgentLLMNode(name, model=model, tools=tools) for name in ("think", "again")]
    steps = [think[0], Do("guard", guard), ToolExecutor("act", tools=tools)]
    seen: list[Any] = []
    look = Do("look", lambda leaf: seen.extend(call.id for call in leaf.read_state().actions))
    agent = Agent(Sequence("main", memory=True, children=[*steps, look, think[1]]), ReActState, clock=notes.clock)
    await agent.run(GO)
    stored = [one.id for message in agent.state.messages for one in message.tool_calls]
    asked = [one.id for message in model.requests[1].messages for one in message.tool_calls]
    answered = [message.tool_call_id for message in model.requests[1].messages if message.tool_call_id]
    assert seen == stored == asked == answered == ["b", "c"]
    assert sorted(notes.log) == ["b", "c"]


async def test_t25_arguments_that_are_cut_in_the_middle_of_a_character() -> None:
    """Cut within an escape and a number, with the name last: both calls are right, and each is run once."""
    ran: list[tuple[str, int]] = []

    def say(text: str, times: int) -> str:
        """Say something."""
        ran.append((text, times))
        return text * times

    whole = json.dumps({"text": "é😀", "times": 12})
    cuts = [whole.index("00e9") + 2, whole.index("12") + 1]
    first, second, third = whole[: cuts[0]], whole[cuts[0] : cuts[1]], whole[cuts[1] :]
    parts: list[tuple[int, dict[str, Any]]] = [(0, begin("c1", "say")), (1, begin("c2", "say"))]
    parts += [(index, more(text)) for text in (first, second, third) for index in (0, 1)]
    agent = await streamed(*parts, tools=[say])
    assert ran == [("é😀", 12)] * 2
    assert [id for id, _, _ in results(agent)] == ["c1", "c2"]


async def test_t26_one_is_rejected_and_one_approved_after_a_restart(any_store: Stores) -> None:
    """The rejected call's result carries the reason; the other two run once; results in call order."""
    notes = Notes()

    def agent(model: ScriptedModel) -> Agent[Any]:
        tools = [notes.tool("a", requires_approval=True), notes.tool("b"), notes.tool("c", requires_approval=True)]
        return notes.agent(model, tools, store=any_store())

    first = agent(ScriptedModel([[call(name, name) for name in "abc"]]))
    outcome = await first.run_until_suspend(GO, thread_id="t")
    ids = {question.tool_call_id: question.id for question in outcome.suspensions}
    await first.resume({"approved": False, "reason": "too dear"}, suspension_id=ids["a"])
    with ScriptedModel(["done"]) as model:
        second = agent(model)
        assert (await second.resume(True, suspension_id=ids["c"], thread_id="t")).status is SUCCESS
    assert results(second) == [
        ("a", "'a' was not called, since it was rejected: too dear", True),
        ("b", "b is done", False),
        ("c", "c is done", False),
    ]
    assert sorted(notes.log) == ["b", "c"]


@pytest.mark.parametrize("awaits", range(5))
async def test_t27_cancelled_at_each_await_of_a_tool(awaits: int) -> None:
    """Two calls are done, one runs: each has one result, the cancelled one says so, the next request is paired."""
    notes, here = Notes(), anyio.Event()

    async def slow() -> str:
        """Wait five times."""
        for number in range(5):
            if number == awaits:
                here.set()
                await anyio.sleep_forever()
            await checkpoint()
        return "done"

    model = ScriptedModel([[call("a", "a"), call("b", "slow"), call("c", "c")], "so be it"])
    agent = notes.agent(model, [notes.tool("a"), Tool(slow, name="slow"), notes.tool("c")])
    with nothing_left(agent):
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, GO)
            await here.wait()
            while len(notes.log) < 2:
                await checkpoint()
            group.cancel_scope.cancel()
    text = "'slow' was cut off, since its turn was ended; whether it took effect is not known."
    assert results(agent) == [("a", "a is done", False), ("b", text, True), ("c", "c is done", False)]
    await agent.run({"messages": [human("and?")]}, on_new_input="withdraw")
    request = [*model.requests[-1].messages]
    assert paired(request) == request
    assert [message.role for message in request] == ["human", "ai", "tool", "tool", "tool", "human"]
    assert agent.state.final_answer == "so be it"


async def test_v06_the_react_example_with_a_person_who_takes_three_days() -> None:
    """ScriptedModel, VirtualClock and a scripted person: it ends at once, the same twice."""

    async def once() -> list[str]:
        notes = Notes()
        turns = [Turn("I shall pay.", calls=[call("1", "pay")]), "paid"]
        with ScriptedHuman({"react/rounds/round/next/act": After(3 * 86_400, True)}) as person:
            tools = [notes.tool("pay", requires_approval=True)]
            agent = notes.agent(ScriptedModel(turns), tools, human=person)
            assert await agent.run(GO) is SUCCESS
        assert notes.clock.now() == 3 * 86_400
        return [message.text for message in agent.state.messages]

    with anyio.fail_after(1):
        assert await once() == await once() == ["go", "I shall pay.", "pay is done", "paid"]
