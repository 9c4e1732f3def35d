"""A round of a ReAct agent: a reply that calls a tool, the call, its result; without a network on either side.

A round is the time from one request to the model to the next. LangGraph's side is `create_react_agent` over LangChain's
own fake model. It can stop for a person and go on only with a checkpointer, as ours always can, so it is measured
without one and with the one in memory.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any  # Any: LangGraph's graphs, generic in four types

import anyio
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

from bench.measure import Effort, Pair, steady
from jianmu.message import human
from jianmu.model import ScriptedModel
from jianmu.prebuilt import react_agent
from jianmu.tool import ToolCall

ROUNDS = 50
LATE = 200


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def ours(rounds: int) -> list[float]:
    """Return how long each round of ours takes."""
    marks: list[float] = []

    def says(number: int) -> Callable[[object], Any]:
        def turn(_: object) -> Any:
            marks.append(time.perf_counter())
            return ToolCall(id=f"c{number}", name="add", arguments={"a": number, "b": 1}) if number < rounds else "done"

        return turn

    agent = react_agent(ScriptedModel([says(number) for number in range(rounds + 1)]), [add], max_rounds=None)
    with steady():
        await agent.run({"messages": [human("go")]})
    assert len(agent.state.messages) == 2 * rounds + 2
    return _between(marks)


class Fake(GenericFakeChatModel):
    """LangChain's fake model, which may be given tools."""

    def bind_tools(self, *_: object, **__: object) -> Fake:
        """Take the tools, and say what is to be said all the same."""
        return self


def _said(rounds: int, marks: list[float]) -> Iterator[AIMessage]:
    for number in range(rounds + 1):
        marks.append(time.perf_counter())
        call = {"name": "add", "args": {"a": number, "b": 1}, "id": f"c{number}"}
        yield AIMessage(content="", tool_calls=[call]) if number < rounds else AIMessage(content="done")


async def langgraph(rounds: int, *, keeps: bool) -> list[float]:
    """Return how long each round of LangGraph's takes."""
    marks: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is to move to another package, and is the same there
        model = Fake(messages=_said(rounds, marks))
        graph: Any = create_react_agent(model, [tool(add)], checkpointer=InMemorySaver() if keeps else None)
    options = {"recursion_limit": 10 * rounds, "configurable": {"thread_id": "t"}}
    with steady():
        found = await graph.ainvoke({"messages": [("user", "go")]}, options)
    assert len(found["messages"]) == 2 * rounds + 2
    return _between(marks)


def _between(marks: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(marks)]


def a_round(keeps: bool, effort: Effort) -> Pair:
    """Compare a round, on average over many."""
    count = effort.times(ROUNDS)
    return _compared(lambda: ours(count), lambda: langgraph(count, keeps=keeps), effort)


def a_late_round(effort: Effort) -> Pair:
    """Compare the last ten of 200 rounds with rounds 6 to 15."""
    count = effort.times(LATE)

    async def main() -> Pair:
        best = await ours(count)
        for _ in range(effort.few):
            best = [min(sides) for sides in zip(best, await ours(count), strict=True)]
        return Pair(sum(best[-10:]), sum(best[5:15]))

    return anyio.run(main, backend="asyncio")


def _compared(
    one: Callable[[], Awaitable[list[float]]], other: Callable[[], Awaitable[list[float]]], effort: Effort
) -> Pair:
    """Run two agents in turns; of each round the fastest counts, and of these the average."""

    async def main() -> Pair:
        best = [await one(), await other()]
        for _ in range(effort.few):
            for side, work in enumerate((one, other)):
                best[side] = [min(both) for both in zip(best[side], await work(), strict=True)]
        return Pair(*(sum(rounds) / len(rounds) for rounds in best))

    return anyio.run(main, backend="asyncio")
