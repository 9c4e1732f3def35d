"""LangGraph's side: one step of a compiled graph, in memory, without a checkpointer.

A chain of nodes without any decision is its fastest form, and the closest to a Sequence; an agent is a loop over a
conditional edge. Both are held to the same bar. The cost of a step is that of a call over many, divided by their
number: entry and exit are charged on both sides, to 300 steps each.
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


class Counted(TypedDict):
    """A state that counts rounds."""

    rounds: int


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


def loop(node: Callable[..., object]) -> Any:
    """Compile a graph of one node that is gone back to, by a conditional edge, until it has run 300 times."""
    graph: Any = StateGraph(Counted)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", lambda state: END if state["rounds"] >= LENGTH else "node")
    return graph.compile()


async def nothing(_: Conversation) -> dict[str, object]:
    """Do nothing."""
    return {}


async def count(state: Counted) -> dict[str, object]:
    """Count the rounds, which a loop needs to end."""
    return {"rounds": state["rounds"] + 1}


def node_in_chain(effort: Effort) -> Pair:
    """Run 300 async nodes that do nothing, one after the other."""
    return _hops(chain(nothing), {"messages": []}, effort)


def node_in_loop(effort: Effort) -> Pair:
    """Run 300 async nodes that do nothing, and 300 rounds of a loop over one."""
    return _hops(loop(count), {"rounds": 0}, effort)


def _hops(graph: Any, given: dict[str, object], effort: Effort) -> Pair:
    """Run 300 async nodes of ours, and a graph that makes 300 steps."""

    async def peer() -> float:
        with steady():
            start = time.perf_counter()
            await graph.ainvoke(given, LIMIT)
            return (time.perf_counter() - start) / LENGTH

    async def main() -> Pair:
        return await async_in_turns(jianmu_side(), peer, effort.rounds)

    return anyio.run(main, backend="asyncio")
