"""What MCP servers ask people: questions of the run, and the call that goes on after the answers, also elsewhere."""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from py_trees.common import Status
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.questions import Answer
from jianmu.message import Message, ai, human
from jianmu.nodes import Timeout, ToolExecutor
from jianmu.stores import SQLiteStore
from jianmu.tool import MCPToolbox, ToolCall
from tests.tool.mcpkit import (
    PATIENCE,
    Phone,
    call,
    http,
    http_server,
    phone,
    stdio,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow_on_trio]


class Talk(BaseModel):
    """A conversation."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)


def agent_of(box: MCPToolbox, **options: Any) -> Agent[Talk]:
    """Return an agent that carries out the calls of the last reply."""
    return Agent(ToolExecutor("tools", tools=box), state_schema=Talk, **options)


def calls(*wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the input of an agent: a conversation that ends in calls."""
    made = [ToolCall(id=f"c{at}", name=name, arguments=given) for at, (name, given) in enumerate(wanted)]
    return {"messages": [human("go"), ai("", tool_calls=made)]}


def results(agent: Agent[Talk]) -> list[str]:
    """Return what the tools gave."""
    return [str(one.content) for one in agent.state.messages if one.role == "tool"]


ORDER = ("order", {"what": "shirt"})


async def test_what_a_server_asks_is_a_group_of_questions() -> None:
    """Its requests are asked at once, with its messages and schemas; the call goes on with the answers."""
    async with phone() as line:
        agent = agent_of(stdio(line))
        with anyio.fail_after(PATIENCE):
            outcome = await agent.run_until_suspend(calls(ORDER))
            size, colour = outcome.suspensions
            assert (size.message, colour.message) == ("Which size?", "Which colour?")
            assert size.response_schema["properties"] == {"size": {"minimum": 1, "title": "Size", "type": "integer"}}
            assert size.group == colour.group != ""
            assert (size.reason, size.tool_call_id) == ("elicitation", "c0")
            assert size.metadata == {"mcp": {"server": "server", "tool": "order"}}
            await agent.interaction.answer(Answer(size.id, {"size": 3}))
            outcome = await agent.resume({"colour": "red"})
        assert not outcome.suspended
        assert results(agent) == ["shirt 3 red"]
        await line.hears("server runs", "server gone", "server runs", "server orders shirt", "server gone")


@pytest.mark.parametrize(("action", "word"), [("decline", "decline"), ("cancel", "cancel")])
async def test_who_does_not_answer_says_so_to_the_server(action: Any, word: str) -> None:
    """Decline and cancel reach the server as what they are."""
    async with phone() as line:
        agent = agent_of(stdio(line))
        with anyio.fail_after(PATIENCE):
            outcome = await agent.run_until_suspend(calls(("pay", {})))
            await agent.interaction.answer(Answer(outcome.suspensions[0].id, action=action))
            await agent.recover()
        assert results(agent) == [f"not paid: {word}"]


async def test_a_question_may_be_answered_elsewhere_and_its_state_is_private() -> None:
    """A question of the url mode has the address; what the server wants back is shown nowhere; rounds follow."""
    async with phone() as line:
        agent = agent_of(stdio(line))
        with anyio.fail_after(PATIENCE):
            outcome = await agent.run_until_suspend(calls(("pay", {})))
            (question,) = outcome.suspensions
            assert (question.message, question.url) == ("Pay there, please.", "https://pay.example.com/1")
            assert question.response_schema == {"type": "boolean"}
            assert question.private["state"] not in outcome.model_dump_json() + repr(outcome)
            assert question.private["state"].startswith("v1.")
            outcome = await agent.resume(True)
            assert outcome.suspensions[0].message == "Your name?"
            outcome = await agent.resume({"name": "Ada"})
        assert results(agent) == ["paid by Ada"]


PROGRAM = """
import sys, anyio, operator
from jianmu.stores import SQLiteStore
from tests.tool.test_mcp_asks import agent_of, results
from tests.tool.mcpkit import Phone, stdio

class Line:
    port = int(sys.argv[2])

async def main():
    agent = agent_of(stdio(Line()), store=SQLiteStore(sys.argv[1]))
    await agent.recover("t1")
    print(results(agent))

anyio.run(main)
"""


async def test_the_call_goes_on_in_another_process(tmp_path: Path) -> None:
    """All that is needed is in the store: another process, with another process of the server, goes on."""
    path = str(tmp_path / "threads.db")
    async with phone() as line:
        store = SQLiteStore(path)
        agent = agent_of(stdio(line), store=store)
        with anyio.fail_after(PATIENCE):
            await agent.run_until_suspend(calls(ORDER), thread_id="t1")
            size, colour = agent.interaction.pending
            await agent.interaction.answer(Answer(size.id, {"size": 3}), Answer(colour.id, {"colour": "red"}))
            done = await anyio.run_process([sys.executable, "-c", PROGRAM, path, str(line.port)], check=False)
        assert done.stdout.decode().strip() == "['shirt 3 red']", done.stderr.decode()
        await store.close()


async def test_each_call_has_its_own_questions() -> None:
    """Calls side by side ask side by side; each gets its own answers."""
    async with phone() as line:
        agent = agent_of(stdio(line))
        with anyio.fail_after(PATIENCE):
            outcome = await agent.run_until_suspend(calls(ORDER, ("order", {"what": "hat"}), ("add", {"a": 1, "b": 1})))
            assert [(one.tool_call_id, one.message) for one in outcome.suspensions] == [
                ("c0", "Which size?"),
                ("c0", "Which colour?"),
                ("c1", "Which size?"),
                ("c1", "Which colour?"),
            ]
            said = [{"size": 1}, {"colour": "red"}, {"size": 2}, {"colour": "blue"}]
            pairs = zip(outcome.suspensions, said, strict=True)
            await agent.interaction.answer(*(Answer(one.id, payload) for one, payload in pairs))
            await agent.recover()
        assert results(agent) == ["shirt 1 red", "hat 2 blue", "2"]


async def test_where_nobody_can_be_asked_the_call_fails() -> None:
    """A tool that is called by no node has nobody to ask."""
    async with phone() as line, stdio(line) as box:
        failed = await call(box, "order", what="shirt")
        assert failed.is_error
        assert failed.content == "'order' asks for input, and here is nobody who could be asked."


async def asked_in_the_midst(line: Phone, box: MCPToolbox) -> None:
    """See that what is asked in the midst of a call is a question, and that the call comes again with the answer."""
    agent = agent_of(box)
    with anyio.fail_after(PATIENCE):
        outcome = await agent.run_until_suspend(calls(("confirm", {"what": "delete"})))
        assert [one.message for one in outcome.suspensions] == ["Really delete?"]
        await agent.resume({"size": 2})
    assert results(agent) == ["delete: accept size=2"]


async def test_a_server_of_an_older_protocol_asks_in_the_midst_of_a_call() -> None:
    """Its call is ended, and made again when the answer is in; by stdio."""
    async with phone() as line:
        await asked_in_the_midst(line, stdio(line, mode="legacy"))
        await line.hears(*["server runs", "server asks", "server gone"] * 2, "server goes on with accept")


async def test_a_server_of_an_older_protocol_asks_by_http() -> None:
    """By HTTP the reply of a call carries its question, so calls side by side can ask."""
    async with phone() as line, http_server(line) as (url, _):
        agent = agent_of(http(url, mode="legacy"))
        with anyio.fail_after(PATIENCE):
            outcome = await agent.run_until_suspend(
                calls(("confirm", {"what": "delete"}), ("confirm", {"what": "format"}))
            )
            asked = {one.message: one.id for one in outcome.suspensions}
            answers = Answer(asked["Really delete?"], {"size": 1}), Answer(asked["Really format?"], action="decline")
            await agent.interaction.answer(*answers)
            await agent.recover()
        assert results(agent) == ["delete: accept size=1", "format: decline None"]


async def test_where_nothing_says_which_call_asks_it_fails() -> None:
    """By stdio one call of an older protocol at a time can ask; the text says so."""
    async with phone() as line, stdio(line, mode="legacy") as box, anyio.create_task_group() as group:
        await line.hears("server runs")
        group.start_soon(call, box, "hang")
        await line.hears("server hangs")
        failed = await call(box, "confirm", what="delete")
        assert failed.is_error
        assert failed.content == (
            "'confirm' failed: 2 calls are under way, and nothing says which of them asks: make them one by one"
        )
        group.cancel_scope.cancel()


async def test_somebody_has_to_sign_in_first(tmp_path: Path) -> None:
    """An error that names addresses is a question for each; then the call is made again."""
    async with phone() as line:
        agent = agent_of(stdio(line, mode="legacy"))
        with anyio.fail_after(PATIENCE):
            outcome = await agent.run_until_suspend(calls(("sign_in", {"marker": str(tmp_path / "marker")})))
            (question,) = outcome.suspensions
            assert (question.message, question.url) == ("Sign in.", "https://id.example.com")
            await agent.resume(True)
        assert results(agent) == ["signed in"]


async def test_a_person_under_run_is_asked_at_once() -> None:
    """Under run() the questions of a server wait for answers from any task."""
    async with phone() as line:

        async def human_says(question: Any) -> Any:
            return {"size": 4} if question.message == "Which size?" else {"colour": "green"}

        agent = agent_of(stdio(line), human=human_says)
        with anyio.fail_after(PATIENCE):
            await agent.run(calls(ORDER))
        assert results(agent) == ["shirt 4 green"]
        await line.hears("server runs", "server orders shirt", "server gone")


async def test_what_cannot_be_asked_is_an_error_of_the_call() -> None:
    """An address that is none of the web is shown to nobody."""
    async with phone() as line:
        agent = agent_of(stdio(line))
        with anyio.fail_after(PATIENCE):
            await agent.run(calls(("lure", {})))
        text = "The tool asks for input that nobody can give: 'javascript:alert(1)' is no address of the web"
        assert results(agent) == [text]


async def test_a_call_that_the_tree_halts_ends_at_the_server() -> None:
    """A Timeout above the node ends the call, there too, and the conversation stays valid."""
    async with phone() as line:
        root = Timeout("in time", ToolExecutor("tools", tools=stdio(line)), seconds=0.3)
        agent = Agent(root, state_schema=Talk)
        with anyio.fail_after(PATIENCE):
            assert await agent.run(calls(("hang", {}))) is Status.FAILURE
        await line.hears("server runs", "server hangs", "server cancelled", "server gone")
        assert len(results(agent)) == 1


async def test_a_clock_that_is_turned_by_hand_waits_for_the_server() -> None:
    """While a server works no virtual time passes, so its call is not cut off."""
    async with phone() as line:
        agent = agent_of(stdio(line), clock=VirtualClock(autojump=True))
        with anyio.fail_after(PATIENCE):
            await agent.run(calls(("add", {"a": 1, "b": 2})))
        assert results(agent) == ["3"]
