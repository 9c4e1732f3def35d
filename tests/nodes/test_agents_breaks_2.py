"""Models on a bad night: ids, names and texts that nothing can keep, replies cut in a call, the same reply twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel

from jianmu.agent import Agent
from jianmu.engine.clock import Clock
from jianmu.errors import SetupError
from jianmu.message import Usage, ai, human
from jianmu.model import translate
from jianmu.model.base import REAL, ChatModel, Event, Finish, ModelRequest, Stream
from jianmu.nodes.tools import ToolExecutor
from jianmu.prebuilt import ReActState, react, react_agent
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel, Turn
from jianmu.tool import Tool, ToolCall
from tests.cases.leaves import SUCCESS
from tests.nodes.toolkit import Bench, Scene, Talk, call

pytestmark = pytest.mark.anyio


def careful(bench: Bench) -> list[Tool]:
    """Return a tool that needs approval and asks as well."""
    return [bench.asking(requires_approval=True)]


@pytest.mark.parametrize("id", ["a\0b", "a\ud83d", "x" * 10_000, "a/b@c:d", " "])
async def test_calls_may_have_any_id(id: str, tmp_path: Path) -> None:
    """A call whose id no store could keep in a key is approved, asks and has its result, also in another process."""
    async with SQLiteStore(str(tmp_path / "s.db")) as store:
        one = Scene(ToolCall(id=id, name="asks", arguments={"label": "a"}), make=careful, store=store)
        await one.run(thread_id="t")
        two, three = Scene(make=careful, store=store), Scene(make=careful, store=store)
        await two.agent.resume(True, thread_id="t")
        assert (await three.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert [(text, is_error) for _, text, is_error in three.told] == [("a is done: yes", False)]


@pytest.mark.parametrize("text", ["a\0b", "a\ud83d"])
async def test_texts_of_a_reply_that_nothing_can_keep(text: str, tmp_path: Path) -> None:
    """Names, arguments and metadata with a NUL or half a character are kept, and the conversation is as it was."""
    reply = Turn(text, calls=[ToolCall(id="1", name=text, arguments={text: [text]})], metadata={text: {text: [text]}})
    async with SQLiteStore(str(tmp_path / "s.db")) as store:
        agent = react_agent(ScriptedModel([reply, "fine"]), store=store)
        assert await agent.run({"messages": [human("hi")]}, thread_id="t") is SUCCESS
        other = react_agent(ScriptedModel(), store=store)
        await other.load("t")
    assert other.state.messages == agent.state.messages


async def test_a_reply_that_was_cut_off_before_the_arguments_of_a_call() -> None:
    """Cut off by max_tokens, a last call without arguments is not carried out; those before it are."""
    done: list[str] = []

    def wipe(what: str = "everything") -> str:
        """Wipe."""
        done.append(what)
        return "wiped"

    calls = [ToolCall(id="1", name="wipe"), ToolCall(id="2", name="wipe")]
    agent = react_agent(ScriptedModel([Turn(calls=calls, reason="length"), "fine"]), [wipe])
    assert await agent.run({"messages": [human("hi")]}) is SUCCESS
    told = [(one.text, one.is_error) for one in agent.state.messages if one.role == "tool"]
    text = "The arguments of 'wipe' are no JSON object, so it was not called: send one."
    assert (done, told) == (["everything"], [("wiped", False), (text, True)])


class Cached(ChatModel):
    """A model whose first replies are one and the same object."""

    name = "cached"

    def __init__(self, times: int) -> None:
        self.left = times
        self.reply = ai("", tool_calls=[call("1")])

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Say it again."""
        return self._stream()

    @asynccontextmanager
    async def _stream(self) -> AsyncGenerator[AsyncIterator[Event]]:
        async def events() -> AsyncGenerator[Event]:
            self.left -= 1
            yield Finish(ai("fine") if self.left < 0 else self.reply, Usage(), "stop", self.name)

        yield events()


async def test_a_model_that_gives_the_same_reply_twice() -> None:
    """Each message of the conversation has an id of its own, and so has each call; each call is carried out."""
    scene = Scene(call("x"))
    agent = react_agent(Cached(3), [scene.bench.tool()], clock=scene.clock)
    assert await agent.run({"messages": [human("hi")]}) is SUCCESS
    messages = agent.state.messages
    assert len({message.id for message in messages}) == len(messages) == 8
    assert [one.tool_call_id for one in messages if one.role == "tool"] == ["1", "1_2", "1_3"]
    assert scene.log == ["1 begins", "1 ends"] * 3


class Shared(Talk):
    """A conversation without a stream, which two may share."""

    done: bool = False


async def test_two_executors_at_the_same_time_are_refused() -> None:
    """Both would carry out the calls of the last reply, and the calls of another one nobody."""
    model = ScriptedModel()
    children = [react(name, model=model, tools=[Bench(Scene().clock).tool()]) for name in ("one", "two")]
    tree = Parallel("both", ParallelPolicy.SuccessOnAll(), children)
    with pytest.raises(SetupError, match=r"nodes 'both/one/.*act' and 'both/two/.*act' may run at the same time") as it:
        await Agent(tree, Shared).run()
    assert 'Agent(branch, Schema).as_node("act")' in str(it.value)
    apart = [Agent(ToolExecutor("act", tools=[]), ReActState).as_node(name) for name in ("one", "two")]
    assert await Agent(Parallel("both", ParallelPolicy.SuccessOnAll(), apart), Talk).run() is SUCCESS


@pytest.mark.parametrize(("name", "sent"), [("", "unknown"), ("files.read", "files_read"), ("x" * 99, "x" * 64)])
async def test_a_tool_that_was_called_by_an_impossible_name(name: str, sent: str) -> None:
    """What is sent back to a provider has a name that it takes, the same in the call and in its result."""
    model = ScriptedModel([ToolCall(id="1", name=name), "fine"])
    await react_agent(model).run({"messages": [human("hi")]})
    parts: list[Any] = [part for one in translate.wire_messages(model.requests[1].messages) for part in one.parts]
    assert [part.tool_name for part in parts if hasattr(part, "tool_name")] == [sent, sent]
