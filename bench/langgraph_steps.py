"""LangGraph's side: one step of a compiled graph, in memory, without a checkpointer.

A chain of nodes is its fastest form; a loop over a conditional edge costs about twice as much. The cost of a step is
that of a call over a long chain, divided by its length: entry and exit are charged on both sides, to 300 steps each.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict  # Any: LangGraph's graphs, generic in four types

import anyio
from langgraph.graph import END, START, StateGraph

from bench.hops import LENGTH, jianmu_side
from bench.measure import Effort, Pair, async_in_turns, in_turns, steady
from bench.state import LONG, appending
from jianmu.message import human

LIMIT: Any = {"recursion_limit": 1_000}


class Conversation(TypedDict):
    """A state with messages that are appended."""

    messages: Annotated[list[Any], operator.add]


def chain(node: Callable[..., object]) -> Any:
    """Compile a graph of 300 nodes, one after the other."""
    graph: Any = StateGraph(Conversation)
    names = [f"node{index}" for index in range(LENGTH)]
    for name in names:
        graph.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile()


def append(effort: Effort) -> Pair:
    """Append one message to 10,000: a write of ours, a step of LangGraph's."""

    def peer() -> float:
        with steady():
            start = time.perf_counter()
            graph.invoke(conversation, LIMIT)
            return (time.perf_counter() - start) / LENGTH

    message = human("new")
    graph = chain(lambda _: {"messages": [message]})
    conversation = {"messages": [human(f"message {index}") for index in range(LONG)]}
    return in_turns(lambda: appending(LONG, effort.times(200)), peer, effort.rounds)


def node(effort: Effort) -> Pair:
    """Run 300 async nodes that do nothing, one after the other."""

    async def nothing(_: Conversation) -> dict[str, object]:
        return {}

    async def peer() -> float:
        with steady():
            start = time.perf_counter()
            await graph.ainvoke({"messages": []}, LIMIT)
            return (time.perf_counter() - start) / LENGTH

    async def main() -> Pair:
        return await async_in_turns(jianmu_side(), peer, effort.rounds)

    graph = chain(nothing)
    return anyio.run(main, backend="asyncio")
