"""LangGraph's side of what keeping a thread costs, with its savers for SQLite at their defaults.

1. There are two savers, a synchronous and an asynchronous one; a round takes the quicker of both.
2. A step is one of a graph of one node that goes back to itself, beside a pass of ours. Both change the same.
3. Durability is compared level by level. `async`, the default of both: saved behind the run, which waits for it at its
   end. `sync`: saved before the next step or pass begins. Its savers write each commit through to the disk; ours do so
   with answers, questions, inputs and ends. All commits of both survive the death of the process.
"""

from __future__ import annotations

import operator
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict  # Any: LangGraph's graphs, generic in four types

import anyio
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

from bench.measure import Effort, Pair, async_in_turns, steady
from bench.saved import TEXT, appended_bytes, appending, counting, new_file, stored
from bench.waiting import ANSWER, BEFORE, MESSAGES, QUESTION, resuming
from jianmu.engine.holding import Level

PASSES = 200
Graph = Callable[[Any, bool], Any]  # Any: a saver, and a graph
Call = Callable[[Any, dict[str, Any]], Awaitable[object]]


class Lines(TypedDict):
    """A list that grows."""

    lines: Annotated[list[str], operator.add]


class Number(TypedDict):
    """A number."""

    count: int


class Talk(TypedDict):
    """A conversation, and what was answered."""

    messages: Annotated[list[AnyMessage], add_messages]
    answer: str


def loop(schema: type, change: Callable[[Any], dict[str, Any]], is_done: Callable[[Any], bool]) -> Graph:
    """Return what builds a graph of one node that is gone back to until all is done."""

    def build(saver: Any, is_async: bool) -> Any:
        graph: Any = StateGraph(schema)
        graph.add_node("node", _as_async(change) if is_async else change)
        graph.add_edge(START, "node")
        graph.add_conditional_edges("node", lambda state: END if is_done(state) else "node")
        return graph.compile(checkpointer=saver)

    return build


def asking(saver: Any, is_async: bool) -> Any:
    """Build a graph of one node that asks, and keeps the answer."""

    def ask(_: Talk) -> dict[str, Any]:
        return {"answer": interrupt(QUESTION)}

    graph: Any = StateGraph(Talk)
    graph.add_node("ask", _as_async(ask) if is_async else ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def _as_async(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    async def node(state: Any) -> dict[str, Any]:
        return function(state)

    return node


@asynccontextmanager
async def opened(build: Graph, path: str, is_async: bool) -> AsyncIterator[Call]:
    """Give what calls a graph that is kept in a file, with its tables made."""
    if is_async:
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            await saver.setup()
            graph = build(saver, True)
            yield lambda given, config: graph.ainvoke(given, config, durability=config["durability"])
        return
    with SqliteSaver.from_conn_string(path) as saver:
        saver.setup()
        graph = build(saver, False)

        async def call(given: Any, config: dict[str, Any]) -> object:
            return graph.invoke(given, config, durability=config["durability"])

        yield call


def config_of(thread: object, level: Level = "async") -> dict[str, Any]:
    """Return how a graph is called on a thread."""
    return {"configurable": {"thread_id": str(thread)}, "recursion_limit": 10_000, "durability": level}


async def quicker(measure: Callable[[bool], Awaitable[float]]) -> float:
    """Return the less of what is measured with the one saver and the other."""
    return min(await measure(False), await measure(True))


async def stepping(build: Graph, given: dict[str, Any], times: int, level: Level, is_async: bool) -> float:
    """Return the seconds of a step that is saved."""
    with new_file() as path:
        async with opened(build, str(path), is_async) as call:
            with steady():
                start = time.perf_counter()
                await call(given, config_of("thread", level))
                return (time.perf_counter() - start) / times


def appended(times: int) -> Graph:
    """Return what builds a graph whose steps append 1 kB."""
    return loop(Lines, lambda _: {"lines": [TEXT]}, lambda state: len(state["lines"]) >= times)


def counted(times: int) -> Graph:
    """Return what builds a graph whose steps count."""
    return loop(Number, lambda state: {"count": state["count"] + 1}, lambda state: state["count"] >= times)


def bytes_of_passes(effort: Effort) -> Pair:
    """Keep 200 passes, and as many steps, that each append 1 kB; of LangGraph's savers the one that stores less."""
    times = effort.times(PASSES)

    async def peer(is_async: bool) -> float:
        with new_file() as path:
            async with opened(appended(times), str(path), is_async) as call:
                await call({"lines": []}, config_of("thread"))
            return stored(path)

    async def main() -> Pair:
        return Pair(await appended_bytes(times), await quicker(peer))

    return anyio.run(main)


def appending_pass(level: Level, effort: Effort) -> Pair:
    """Save passes, and steps, that each append 1 kB."""
    times = effort.times(PASSES)
    graph = appended(times)
    return _in_turns(
        lambda: appending(times, level), lambda saver: stepping(graph, {"lines": []}, times, level, saver), effort
    )


def counting_pass(level: Level, effort: Effort) -> Pair:
    """Save passes, and steps, that each count."""
    times = effort.times(PASSES)
    graph = counted(times)
    return _in_turns(
        lambda: counting(times, level), lambda saver: stepping(graph, {"count": 0}, times, level, saver), effort
    )


def _in_turns(ours: Callable[[], Awaitable[float]], peer: Callable[[bool], Awaitable[float]], effort: Effort) -> Pair:
    async def main() -> Pair:
        return await async_in_turns(ours, lambda: quicker(peer), effort.rounds)

    return anyio.run(main)


async def resuming_graph(times: int, is_async: bool) -> float:
    """Return the seconds from an answer to the end of the run that has waited for it, in a store that is in use."""
    given = {"messages": [HumanMessage(text, id=str(number)) for number, text in enumerate(MESSAGES)]}
    with new_file() as path:
        async with opened(asking, str(path), is_async) as call:
            for thread in range(BEFORE + times):
                await call(given, config_of(thread))
            for thread in range(BEFORE):
                await call(Command(resume=ANSWER), config_of(thread))
            with steady():
                start = time.perf_counter()
                for thread in range(BEFORE, BEFORE + times):
                    state: Any = await call(Command(resume=ANSWER), config_of(thread))
                seconds = time.perf_counter() - start
    if state["answer"] != ANSWER:
        raise RuntimeError("the answer did not arrive")
    return seconds / times


def resumed(is_loaded: bool, effort: Effort) -> Pair:
    """Answer the question that a thread of 100 messages waits for, and go on to the end of its run."""
    times = effort.times(10)
    return _in_turns(lambda: resuming(times, is_loaded), lambda saver: resuming_graph(times, saver), effort)
