"""What it costs to have the text of a reply in the state, as events and before a listener, token by token."""

from __future__ import annotations

import operator
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from bench.measure import Effort, Pair, async_in_turns, steady
from jianmu import Agent, Ephemeral, Message, human
from jianmu.engine.state import StateChange
from jianmu.model import ModelRequest, ScriptedModel, Turn
from jianmu.nodes import AgentLLMNode

TOKENS = 10_000


class Talk(BaseModel):
    """A conversation and its stream."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    streaming_output: Annotated[str, Ephemeral(scope="call")] = ""


def script(tokens: int, pause: float | None) -> ScriptedModel:
    """Return a model that says so many tokens; with a pause of 0 the loop has its turn after each."""
    return ScriptedModel([Turn(["word "] * tokens, pause=pause)])


async def bare(tokens: int, pause: float | None) -> float:
    """Return the time for one token of a reply that is only iterated over."""
    model = script(tokens, pause)
    with steady():
        start = time.perf_counter()
        async with model.stream(ModelRequest([human("go")])) as events:
            async for _ in events:
                pass
        return (time.perf_counter() - start) / tokens


async def through_node(tokens: int, pause: float | None) -> float:
    """Return the time for one token through the node, with a reader of all events and a listener of the state."""
    agent = Agent(AgentLLMNode("think", model=script(tokens, pause)), state_schema=Talk)
    seen: list[StateChange] = []
    agent.state_manager.subscribe(seen.append)
    with steady():
        start = time.perf_counter()
        async with agent.stream({"messages": [human("go")]}) as events:
            async for _ in events:
                pass
        taken = (time.perf_counter() - start) / tokens
    assert len(agent.state.streaming_output) == len("word ") * tokens
    return taken


def against_bare(backend: str, pause: float | None, effort: Effort) -> Pair:
    """Compare 10,000 tokens through the node with a bare loop over the same model."""
    tokens = effort.times(TOKENS)
    return _compared(lambda: through_node(tokens, pause), lambda: bare(tokens, pause), backend, effort)


def linear(backend: str, pause: float | None, effort: Effort) -> Pair:
    """Compare one token of 40,000 with one of 10,000."""
    tokens = effort.times(TOKENS)
    return _compared(lambda: through_node(4 * tokens, pause), lambda: through_node(tokens, pause), backend, effort)


def _compared(
    ours: Callable[[], Awaitable[float]], peer: Callable[[], Awaitable[float]], backend: str, effort: Effort
) -> Pair:
    return anyio.run(async_in_turns, ours, peer, effort.few, backend=backend)
