"""T03, T05, T06, T08 to T10, T13, T14: what a model is asked, whatever the conversation has been through."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import Field

from jianmu.agent import Agent
from jianmu.engine.state import Ephemeral
from jianmu.message import ImagePart, ai, human, tool_result
from jianmu.model import ModelRequest, ScriptedModel
from jianmu.nodes import AgentLLMNode, ContextBudget, Reminders, Repeat, RequestProjection
from jianmu.nodes import Sequence as InOrder
from jianmu.stores import MemoryStore
from tests.cases.leaves import SUCCESS, Do
from tests.model.server import Answer, said, serving
from tests.nodes.talk import Talk, agent, asked, call, request, run, texts

pytestmark = pytest.mark.anyio


async def test_t03_a_call_without_a_result_gets_one_in_the_request() -> None:
    """The request has a result for the call right after it; `messages` in the state is unchanged."""
    talk = [human("hello"), ai(tool_calls=[call("1")]), human("and?")]
    with ScriptedModel(["done"]) as model:
        made = agent(AgentLLMNode("think", model=model))
        await run(made, *talk)
    assert [(m.role, m.tool_call_id) for m in asked(model)] == [
        ("human", None),
        ("ai", None),
        ("tool", "1"),
        ("human", None),
    ]
    assert made.state.messages[:3] == talk


async def test_t08_the_newest_human_message_is_kept() -> None:
    """Of 40 messages the last ones stay, and the newest human message, which is older; the state has all 40."""
    talk = [human("old"), human("newest")]
    for number in range(19):
        talk += [ai(tool_calls=[call(str(number))]), tool_result(str(number), "x")]
    sent = await request(lambda think: ContextBudget("b", think, messages=5), *talk)
    assert texts(sent) == ["newest", "ai(17)", "result 17", "ai(18)", "result 18"]
    assert len(talk) == 40


class Todo(Talk):
    """A conversation with open and done todos."""

    todos: dict[str, bool] = Field(default_factory=dict)


async def test_t09_open_todos_are_listed_though_no_message_speaks_of_them() -> None:
    """With every message that speaks of them cut off, the request lists the open todos only."""
    talk = [human("do a, b"), ai("a is done"), human("go on")]
    with ScriptedModel(["fine"]) as model:
        inner = ContextBudget("budget", AgentLLMNode("think", model=model), messages=1)
        listed = Reminders("r", inner, remind=lambda state: [one for one, done in state.todos.items() if not done])
        made = agent(listed, Todo)
        await run(made, *talk, todos={"a": True, "b": False})
    assert texts(asked(model)) == ["go on", "<reminder>\nb\n</reminder>"]
    assert list(made.state.messages[:3]) == talk


async def test_t10_a_reminder_stands_after_all_results() -> None:
    """A reminder that falls due after a reply with two calls stands after both results, and not in `messages`."""
    talk = [human("hello"), ai(tool_calls=[call("1"), call("2")]), tool_result("1", "a"), tool_result("2", "b")]
    for results in (2, 0):
        sent = await request(lambda think: Reminders("r", think, remind="be kind"), *talk[: 2 + results])
        assert texts(sent) == ["hello", "ai(1 2)", "result 1", "result 2", "<reminder>\nbe kind\n</reminder>"]


async def test_t13_results_are_put_next_to_their_calls() -> None:
    """Results are put into call order behind their calls, and one for no call is left out."""
    talk = [ai(tool_calls=[call("1"), call("2")]), tool_result("2", "b"), human("and?"), tool_result("1", "a")]
    sent = await request(lambda think: think, *talk, tool_result("9", "x"))
    assert texts(sent) == ["ai(1 2)", "result 1", "result 2", "and?"]


class Guarded(Talk):
    """A conversation, and what guards want the model to be reminded of."""

    due: Annotated[list[str], Ephemeral(scope="run")] = Field(default_factory=list)


async def test_t14_two_guards_remind_at_once_and_the_thread_goes_on() -> None:
    """Both reminders are in the next request, after the results; none is in `messages`; the thread goes on."""
    store = MemoryStore()

    def build(model: ScriptedModel) -> Any:
        think = AgentLLMNode("think", model=model)
        return agent(Reminders("r", think, remind=lambda state: state.due), Guarded, store=store)

    talk = [human("hello"), ai(tool_calls=[call("1")]), tool_result("1", "a")]
    with ScriptedModel(["fine"]) as model:
        made = build(model)
        assert await run_in(made, {"messages": talk, "due": ["no loops", "no secrets"]}) is SUCCESS
    assert texts(asked(model)[2:]) == [
        "result 1",
        "<reminder>\nno loops\n</reminder>",
        "<reminder>\nno secrets\n</reminder>",
    ]
    assert len({message.id for message in asked(model)}) == 5
    assert texts(made.state.messages) == ["hello", "ai(1)", "result 1", "fine"]
    with ScriptedModel(["more"]) as model:
        made = build(model)
        assert await run_in(made, {"messages": [human("and?")]}) is SUCCESS
    assert texts(asked(model)) == ["hello", "ai(1)", "result 1", "fine", "and?"]


async def run_in(made: Any, values: dict[str, Any]) -> Any:
    """Run a turn of the thread `t`."""
    return await made.run(values, thread_id="t")


class Seeing(Talk):
    """A conversation, and the picture that the model is to see."""

    picture: str = ""
    n: int = 0


def with_picture(request: ModelRequest, state: Any) -> ModelRequest:
    """Add the picture that was viewed last."""
    if not state.picture:
        return request
    return replace(request, messages=[*request.messages, human([ImagePart(path=state.picture)])])


async def test_t05_a_picture_is_in_the_request_only(tmp_path: Path) -> None:
    """1 MB is viewed, 20 passes follow, the request is cancelled: no row of the log is above 10 kB."""
    picture = tmp_path / "sea.png"
    picture.write_bytes(b"\x89PNG" + b"x" * 1_000_000)
    store = MemoryStore()
    async with serving(Answer(said("a ", "sea"), hold=1), Answer(said("a sea"))) as server:

        def build() -> Any:
            view = Do("view", lambda node: node.write_state({"picture": str(picture)}))
            count = Repeat("passes", Do("one", lambda node: node.write_state({"n": node.read_state().n + 1})), times=20)
            think = RequestProjection("see", AgentLLMNode("think", model=server.model()), project=with_picture)
            return Agent(InOrder("s", memory=True, children=[view, count, think]), state_schema=Seeing, store=store)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(build().run, {"messages": [human("what is it?")]}, thread_id="t"))
                await server.holding.wait()
                group.cancel_scope.cancel()
            made = build()
            assert (await made.recover("t")).status is SUCCESS
        rows = await store.log("t", limit=1000)
        assert any(str(picture) in body for _, body in rows)
        assert max(len(body) for _, body in rows) < 10_000
        assert [m.text for m in made.state.messages] == ["what is it?", "a sea"]
        for sent in server.requests:
            assert len(sent["messages"][-1]["content"][0]["image_url"]["url"]) > 1_000_000


class Looping(Talk):
    """A conversation, and how often the model has called the same tool in this run."""

    equal_calls: Annotated[dict[str, int], Ephemeral(scope="run")] = Field(default_factory=dict)


def count_calls(node: Do) -> None:
    """Count the calls of the last reply by name."""
    state = node.read_state()
    for one in state.messages[-1].tool_calls:
        node.merge_dict("equal_calls", {one.name: node.read_state().equal_calls.get(one.name, 0) + 1})


async def test_t06_a_counter_of_a_run_begins_anew_with_each() -> None:
    """Five runs with one call each end with 1; one run with five calls ends with 5."""
    model = ScriptedModel([[call(f"{number}")] for number in range(10)])

    def build(times: int) -> Any:
        nodes = [AgentLLMNode("think", model=model), Do("count", count_calls)]
        return agent(Repeat("rounds", InOrder("round", memory=True, children=nodes), times=times), Looping)

    made = build(1)
    for number in range(5):
        await run(made, human(f"{number}"))
        assert made.state.equal_calls == {"look": 1}
    made = build(5)
    await run(made, human("go"))
    assert made.state.equal_calls == {"look": 5}
