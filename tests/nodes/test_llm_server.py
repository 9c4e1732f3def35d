"""LLM nodes through the real adapter against a real server on loopback."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.events import Retried, Token
from jianmu.errors import BadRequestError
from jianmu.message import Usage, human
from jianmu.model import ChatModel, Retrying
from jianmu.nodes import AgentLLMNode, Sequence, SimpleLLMNode, Timeout, ToolExecutor
from jianmu.tool import tool
from tests.cases.leaves import FAILURE, SUCCESS
from tests.model.server import Answer, Server, called, chunk, said, serving
from tests.nodes.talk import Talk

pytestmark = [pytest.mark.anyio, pytest.mark.slow_on_trio]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def thinking(model: ChatModel, **options: Any) -> Agent[Any]:
    """Return an agent of one LLM node, on the real clock."""
    return Agent(AgentLLMNode("think", model=model, **options), state_schema=Talk)


async def run(made: Agent[Any], text: str = "hello", **values: Any) -> Any:
    """Run a turn."""
    with anyio.fail_after(20):
        return await made.run({"messages": [human(text)], **values})


def quiet(server: Server) -> None:
    """Fail if a connection is open, or if something was left that warns when it is collected."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert server.connections == 0


async def settle(server: Server) -> None:
    """Wait until the server has seen that its clients have gone."""
    with anyio.fail_after(5):
        while server.connections:
            await checkpoint()
    quiet(server)


async def test_a_reply_streams_in() -> None:
    """The pieces are Token events, the reply is in the conversation, usage is what the server reports."""
    async with serving(Answer(said("the ", "sea ", "is wide"))) as server:
        made = thinking(server.model(), system="Be short.")
        with anyio.fail_after(20):
            async with made.stream({"messages": [human("hello")]}) as events:
                tokens = [event.text async for event in events if isinstance(event, Token)]
        assert tokens == ["the ", "sea ", "is wide"]
        assert made.state.final_answer == made.state.streaming_output == "the sea is wide"
        assert made.state.usage == Usage(input_tokens=7, output_tokens=3, requests=1)
        assert [one["role"] for one in server.requests[0]["messages"]] == ["system", "user"]
        await settle(server)


async def test_a_tool_is_called_and_the_model_goes_on() -> None:
    """A reply with a call, its result, and the reply to that: the second request has call and result in order."""
    first = Answer([*called(0, "c1", "add", '{"a": 1,', ' "b": 2}'), chunk(finish="tool_calls")])
    async with serving(first, Answer(said("it is 3"))) as server:
        model = server.model()
        nodes = [
            AgentLLMNode("think", model=model, tools=[add]),
            ToolExecutor("act", tools=[add]),
            AgentLLMNode("say", model=model, tools=[add]),
        ]
        made = Agent(Sequence("s", memory=True, children=nodes), state_schema=Talk)
        assert await run(made) is SUCCESS
        assert made.state.final_answer == "it is 3"
        told = server.requests[1]["messages"]
        assert [one["role"] for one in told] == ["user", "assistant", "tool"]
        assert (told[1]["tool_calls"][0]["id"], told[2]["tool_call_id"], told[2]["content"]) == ("c1", "c1", "3")
        await settle(server)


async def test_too_many_requests_are_tried_again() -> None:
    """After a 429 the request is sent again when the server says so; the run counts both, and an event tells it."""
    busy = Answer(status=429, headers={"Retry-After": "0"}, body={"error": {"message": "slow down"}})
    async with serving(busy, Answer(said("fine"))) as server:
        made = thinking(Retrying(server.model()))
        with anyio.fail_after(20):
            async with made.stream({"messages": [human("hello")]}) as events:
                retried = [event async for event in events if isinstance(event, Retried)]
        assert [(one.wait, "429" in one.reason) for one in retried] == [(0.0, True)]
        assert (made.state.final_answer, made.state.usage.requests) == ("fine", 2)
        await settle(server)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(status=429), "status 429"),
        (Answer(status=500), "status 500"),
        (Answer([chunk({"content": "half "})], cut=True), "broke off"),
        (Answer([chunk({"content": "half "}), "data: {no json\n\n"]), "model"),
        (Answer([chunk(finish="stop")]), "answered nothing"),
        (Answer(status=400, body={"error": {"message": "too long", "code": "context_length_exceeded"}}), "tokens"),
    ],
)
async def test_what_goes_wrong_at_the_server_is_failure(answer: Answer, told: str) -> None:
    """FAILURE with the reason, an empty stream, the conversation as it was; the next turn works."""
    async with serving(answer, Answer(said("fine"))) as server:
        made = thinking(server.model())
        assert await run(made) is FAILURE
        assert told in made.root.feedback_message
        assert ([m.text for m in made.state.messages], made.state.streaming_output) == (["hello"], "")
        assert await run(made, "again") is SUCCESS
        assert [m.text for m in made.state.messages] == ["hello", "again", "fine"]
        await settle(server)


async def test_a_wrong_key_is_raised() -> None:
    """A 401 is the program's to put right: it ends the run."""
    async with serving(Answer(status=401)) as server:
        made = thinking(server.model())
        with pytest.raises(BadRequestError):
            await run(made)
        await settle(server)


@pytest.mark.parametrize("hold", [0, 1, 2])
async def test_a_halt_closes_the_connection(hold: int) -> None:
    """Halted before the first byte, after one piece, or before the end: the server sees the client go at once."""
    async with serving(Answer(said("one ", "two"), hold=hold), Answer(said("fine"))) as server:
        made = thinking(server.model())
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:

                async def halt() -> None:
                    await server.holding.wait()
                    made.halt()

                group.start_soon(halt)
                await made.run({"messages": [human("hello")]})
        await settle(server)
        assert server.left == 1
        assert [m.text for m in made.state.messages] == ["hello"]
        assert await run(made, "again") is SUCCESS
        assert [m.text for m in made.state.messages] == ["hello", "again", "fine"]
        await settle(server)


async def test_a_cancelled_run_closes_the_connection() -> None:
    """Cancelled from outside while a reply comes in, nothing of the request is left."""
    async with serving(Answer(said("one ", "two"), hold=1)) as server:
        made = thinking(server.model())
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(made.run, {"messages": [human("hello")]})
                await server.holding.wait()
                group.cancel_scope.cancel()
        await settle(server)
        assert server.left == 1


async def test_a_timeout_in_the_tree_ends_the_request() -> None:
    """A Timeout node around the node lets go of the connection while the tree goes on."""
    async with serving(Answer(said("one"), hold=0)) as server:
        node = Timeout("t", AgentLLMNode("think", model=server.model()), seconds=0.5)
        made = Agent(node, state_schema=Talk)
        assert await run(made) is FAILURE
        await settle(server)
        assert server.left == 1


class Place(BaseModel):
    """Somewhere."""

    name: str


async def test_an_object_is_asked_for_and_validated() -> None:
    """A structured answer goes through the adapter: the schema out, the object in, one repair turn between."""
    async with serving(Answer(said("{}")), Answer(said('{"name": ', '"sea"}'))) as server:

        class Trip(BaseModel):
            place: Place | None = None

        node = SimpleLLMNode("ask", model=server.model(), prompt=lambda _: "where?", into="place", output=Place)
        made: Agent[Any] = Agent(node, state_schema=Trip)
        with anyio.fail_after(20):
            assert await made.run() is SUCCESS
        assert made.state.place == Place(name="sea")
        assert [one["role"] for one in server.requests[1]["messages"]][-3:] == ["user", "assistant", "user"]
        await settle(server)
