"""What the tests of nodes that ask models share: a conversation's state, and ways to run one node on it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import Event
from jianmu.engine.state import Ephemeral
from jianmu.message import Message, Usage
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode
from jianmu.tool.types import ToolCall
from tests.cases.leaves import SUCCESS, nothing_left


class Talk(BaseModel):
    """A state with all that AgentLLMNode writes."""

    model_config = ConfigDict(extra="allow")

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    streaming_output: Annotated[str, Ephemeral(scope="call")] = ""
    actions: Annotated[list[ToolCall], Ephemeral(scope="call")] = Field(default_factory=list)
    rounds: Annotated[int, Ephemeral(scope="run")] = 0
    final_answer: Annotated[str | None, Ephemeral(scope="run")] = None
    done: Annotated[bool, Ephemeral(scope="run")] = False
    usage: Usage = Usage()
    topic: str = ""
    amount: int = 0
    answer: str = ""
    notes: Annotated[list[str], operator.add] = Field(default_factory=list)


def agent(root: Behaviour, schema: Any = Talk, **options: Any) -> Agent[Any]:
    """Return an agent on the virtual clock."""
    options.setdefault("clock", VirtualClock(autojump=True))
    return Agent(root, state_schema=schema, **options)


async def run(made: Agent[Any], *messages: Message, **values: Any) -> Status:
    """Run an agent with a conversation to start with, and see that nothing is left of it."""
    with anyio.fail_after(20), nothing_left(made):
        return await made.run({**values, **({"messages": [*messages]} if messages else {})})


async def events_of(made: Agent[Any], *messages: Message, path: str | None = None) -> list[Event]:
    """Run an agent and return its events."""
    with anyio.fail_after(20):
        async with made.stream({"messages": [*messages]}, path=path) as events:
            return [event async for event in events]


def asked(model: ScriptedModel, number: int = -1) -> Sequence[Message]:
    """Return the messages of a request that a model got."""
    return model.requests[number].messages


def call(id: str, name: str = "look", **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def texts(messages: Sequence[Message]) -> list[str]:
    """Return a conversation in short: texts, calls as `ai(1 2)`, results as `result 1`."""
    return [
        f"ai({' '.join(one.id for one in message.tool_calls)})"
        if message.tool_calls
        else f"result {message.tool_call_id}"
        if message.role == "tool"
        else message.text
        for message in messages
    ]


async def request(wrap: Callable[[Any], Any], *messages: Message, **values: Any) -> Sequence[Message]:
    """Return the messages of the request that leaves from below projections; the state is as before."""
    with ScriptedModel(["fine"]) as model:
        made = agent(wrap(AgentLLMNode("think", model=model)))
        assert await run(made, *messages, **values) is SUCCESS
    assert list(made.state.messages[:-1]) == [*messages]
    return asked(model)
