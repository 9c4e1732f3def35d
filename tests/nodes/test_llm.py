"""AgentLLMNode: what it asks, what it writes, and what becomes of its errors."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest

from jianmu.engine.events import Token
from jianmu.message import Usage, ai, human
from jianmu.model import ChatModel, Delta, Finish, ScriptedModel, Turn
from jianmu.nodes import AgentLLMNode, HasFinalAnswer, Invert, Sequence, ToolExecutor
from jianmu.tool import tool
from tests.cases.leaves import FAILURE, SUCCESS
from tests.nodes.talk import agent, call, events_of, run

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "sea"


async def test_a_reply_is_appended_and_is_the_final_answer() -> None:
    """A reply without calls is appended; `actions` is empty, `rounds` counted, `final_answer` and `done` are set."""
    with ScriptedModel(["the sea is wide"]) as model:
        made = agent(AgentLLMNode("think", model=model))
        assert await run(made, human("hello")) is SUCCESS
    state = made.state
    assert [message.text for message in state.messages] == ["hello", "the sea is wide"]
    assert (state.actions, state.rounds, state.final_answer, state.done) == ([], 1, "the sea is wide", True)
    assert state.streaming_output == "the sea is wide"


async def test_a_reply_with_calls_sets_actions() -> None:
    """A reply with calls sets `actions`; there is no final answer."""
    with ScriptedModel([[call("1"), call("2")]]) as model:
        made = agent(AgentLLMNode("think", model=model))
        assert await run(made, human("hello")) is SUCCESS
    state = made.state
    assert [action.id for action in state.actions] == [one.id for one in state.messages[-1].tool_calls] == ["1", "2"]
    assert (state.rounds, state.final_answer, state.done) == (1, None, False)


async def test_usage_is_counted_in_the_message_the_thread_and_the_run() -> None:
    """The message has its usage, `usage` that of the thread; the next run adds to it."""
    turns = [
        Turn("one", usage=Usage(input_tokens=3, output_tokens=1, cost=0.5)),
        Turn("two", usage=Usage(output_tokens=2)),
    ]
    with ScriptedModel(turns) as model:
        made = agent(AgentLLMNode("think", model=model))
        await run(made, human("hello"))
        assert made.runner.context.usage.requests == 1
        assert (made.runner.context.usage.tokens, made.runner.context.usage.cost) == (4, 0.5)
        await run(made, human("again"))
    assert made.state.messages[1].usage == Usage(input_tokens=3, output_tokens=1, cost=0.5)
    assert made.state.usage == Usage(input_tokens=3, output_tokens=3, cost=0.5, requests=2)


async def test_tokens_are_told_as_events() -> None:
    """Each piece of the text is a Token event with the node's path, in order."""
    with ScriptedModel([Turn(["a", "b", "c"])]) as model:
        made = agent(Sequence("main", memory=True, children=[AgentLLMNode("think", model=model), HasFinalAnswer()]))
        events = await events_of(made, human("hello"))
    tokens = [event for event in events if isinstance(event, Token)]
    assert [(token.text, token.path) for token in tokens] == [(text, "main/think") for text in "abc"]


async def test_a_model_that_answers_nothing_fails() -> None:
    """A reply with neither text nor calls is FAILURE with the reason; nothing is appended, usage is counted."""
    with ScriptedModel([Turn("", usage=Usage(output_tokens=9), reason="length")]) as model:
        made = agent(AgentLLMNode("think", model=model))
        assert await run(made, human("hello")) is FAILURE
    assert made.root.feedback_message == (
        "model 'scripted': the model answered nothing: all the tokens it may have went into its reasoning"
    )
    assert [message.text for message in made.state.messages] == ["hello"]
    assert made.state.usage == Usage(output_tokens=9, requests=1)


async def test_calls_of_tools_count_for_the_thread() -> None:
    """`usage` has the requests and the calls of tools of all runs of the thread."""
    with ScriptedModel([[call("1"), call("2")], [call("3")]]) as model:
        nodes = [AgentLLMNode("think", model=model), ToolExecutor("act", tools=[look])]
        made = agent(Sequence("s", memory=True, children=nodes))
        await run(made, human("hello"))
        await run(made, human("again"))
    assert made.state.usage == Usage(requests=2, tool_calls=3)


class Terse(ChatModel):
    """A model that tells its usage beside the message only."""

    name = "terse"

    @asynccontextmanager
    async def stream(self, request: Any, *, clock: Any = None) -> Any:
        """Say something."""

        async def events() -> Any:
            yield Finish(ai("fine"), Usage(output_tokens=2), "stop", "terse")

        yield events()


async def test_the_message_gets_the_usage_of_the_reply() -> None:
    """Where a model tells its usage beside the message only, the message has it all the same."""
    made = agent(AgentLLMNode("think", model=Terse()))
    await run(made, human("hello"))
    assert made.state.messages[-1].usage == Usage(output_tokens=2)


async def test_all_writes_are_charged_to_the_node() -> None:
    """The reset of the call fields, the stream and the reply have the node's path as their writer."""
    with ScriptedModel([Turn(["a", "b"], pause=0), Turn(["c"], pause=0)]) as model:
        nodes = [AgentLLMNode(name, model=model) for name in ("one", "two")]
        made = agent(Sequence("s", memory=True, children=nodes))
        writers: list[tuple[str, str | None]] = []
        made.state_manager.subscribe(
            lambda change: writers.append((made.state.streaming_output, change.writer)) if change.changed else None
        )
        await run(made, human("hello"))
    assert [one for one in writers if one[1] != "input"] == [
        ("a", "s/one"),
        ("ab", "s/one"),
        ("ab", "s/one"),
        ("", "s/two"),
        ("c", "s/two"),
        ("c", "s/two"),
    ]


async def test_a_stream_without_an_end_is_failure() -> None:
    """A model whose stream ends without a Finish has sent no reply."""

    class Broken(Terse):
        @asynccontextmanager
        async def stream(self, request: Any, *, clock: Any = None) -> Any:
            async def events() -> Any:
                yield Delta("half a")

            yield events()

    made = agent(AgentLLMNode("think", model=Broken()))
    assert await run(made, human("hello")) is FAILURE
    assert made.root.feedback_message == "model 'terse': the stream ended without a Finish"


async def test_a_model_node_deep_in_a_tree_streams_with_its_path() -> None:
    """V04: five tokens from three levels down have the full path, in order; a filter by path gives the same five."""
    for path in (None, "main", "main/flip/deep", "main/flip/deep/think"):
        with ScriptedModel([Turn([*"abcde"], pause=0)]) as model:
            deep = Sequence("deep", memory=True, children=[AgentLLMNode("think", model=model)])
            made = agent(Sequence("main", memory=True, children=[Invert("flip", deep)]))
            events = await events_of(made, human("hello"), path=path)
        tokens = [(one.text, one.path) for one in events if isinstance(one, Token)]
        assert tokens == [(text, "main/flip/deep/think") for text in "abcde"]


async def test_a_step_waits_for_the_reply() -> None:
    """`step(settle=True)` waits for the reply; the next step has its result."""
    with ScriptedModel(["one"]) as model:
        made = agent(AgentLLMNode("think", model=model), clock=None)
        await made.step({"messages": [human("hello")]}, settle=True)
        await made.step(settle=True)
        assert made.status is SUCCESS
    assert made.state.final_answer == "one"


def test_without_an_event_loop() -> None:
    """`run_sync` runs a node that asks a model."""
    with ScriptedModel(["one"]) as model:
        made = agent(AgentLLMNode("think", model=model), clock=None)
        assert made.run_sync({"messages": [human("hello")]}) is SUCCESS
