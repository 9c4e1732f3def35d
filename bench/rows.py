"""The table of what is measured."""

from __future__ import annotations

from functools import partial

from bench import (
    agents,
    assistants,
    hops,
    imports,
    langgraph_saved,
    langgraph_steps,
    runs,
    state,
    streaming,
    ticks,
    waiting,
)
from bench.row import Row
from bench.saved import Growth

LENGTHS = (200, 400, 800, 3_200)

STORES = [
    Row(
        "200 passes of 1 kB, stored",
        "LangGraph's steps, SQLite",
        langgraph_saved.bytes_of_passes,
        at_least=45,
        unit="B",
    ),
    *(
        Row(
            f"{passes:,} passes of 1 kB{how}, stored",
            "3 × written + 100 kB",
            Growth(passes, asks),
            1,
            unit="B",
        )
        for asks, how in ((False, ""), (True, " after an answer"))
        for passes in LENGTHS
    ),
    *(
        Row(
            f"a pass that {does}, saved, {level}",
            f"LangGraph's step, SQLite, {level}",
            partial(work, level),
            None,
            3,
        )
        for does, work in (("appends 1 kB", langgraph_saved.appending_pass), ("counts", langgraph_saved.counting_pass))
        for level in ("async", "sync")
    ),
    Row(
        "suspended to resumed, 100 messages, loaded",
        "LangGraph's Command(resume=…), SQLite",
        partial(langgraph_saved.resumed, True),
        at_least=3,
    ),
    Row(
        "suspended to resumed, 100 messages, in memory",
        "LangGraph's Command(resume=…), SQLite",
        partial(langgraph_saved.resumed, False),
        at_least=3,
    ),
    Row("a page of the inbox among 10,000 threads", "the same among 100", waiting.page, at_most=1.5),
    Row("a load among 10,000 suspended threads", "the same among 100", waiting.load, at_most=1.5),
]

STREAMS = [
    *(
        Row(
            f"10,000 tokens streamed, {how}, {backend}",
            "a bare `async for` over the model",
            partial(streaming.against_bare, backend, pause),
            at_most=5,
        )
        for how, pause in (("at once", None), ("a turn each", 0))
        for backend in ("asyncio", "trio")
    ),
    Row(
        "a token of 40,000 streamed, a turn each",
        "one of 10,000",
        partial(streaming.linear, "asyncio", 0),
        at_most=1.5,
    ),
]

AGENTS = [
    *(
        Row("a ReAct round", f"create_react_agent, {how}", partial(agents.a_round, keeps), at_least=5)
        for keeps, how in ((False, "keeping nothing"), (True, "kept in memory"))
    ),
    Row("ten ReAct rounds up to round 200", "those up to round 15", agents.a_late_round, at_most=2),
    Row("a round of the assistant, 200 messages", "the bare ReAct tree's", assistants.a_round, at_most=5),
    Row("a round of the assistant, 5,000 messages", "its own at 200", assistants.a_long_round, at_most=2),
]

ROWS = [
    Row("scalar write, state of 100,000 messages", "the same at 100", state.scalar_write, at_most=1.5),
    Row("append one message at 10,000, no read between", "the same at 100", state.append, at_most=1.5),
    Row("append one message at 10,000", "LangGraph's step, operator.add", langgraph_steps.append, at_least=10),
    Row("get() at 100,000 messages", "the same at 100", state.get, at_most=1.5),
    Row("async node to async node, asyncio", "bare spawn with an Event", partial(hops.spawn, "asyncio"), at_most=2.5),
    Row("async node to async node, trio", "bare spawn with an Event", partial(hops.spawn, "trio"), at_most=3),
    Row(
        "async node to async node, asyncio",
        "LangGraph's async node, in a loop",
        langgraph_steps.node_in_loop,
        at_least=5,
    ),
    Row(
        "async node to async node, asyncio",
        "LangGraph's async node, in a chain",
        langgraph_steps.node_in_chain,
        at_least=5,
    ),
    Row("flat reactive Sequence, 1,000 × update", "py_trees tree.tick()", ticks.flat_update, at_least=20),
    Row("flat reactive Sequence, 1,000 × all callbacks", "py_trees tree.tick()", ticks.flat_callbacks, at_least=12),
    Row("memory Sequence parked at child 1,000", "py_trees tree.tick()", ticks.parked, at_least=100),
    Row("200 nested memory Sequences", "py_trees tree.tick()", ticks.nested, at_least=10),
    Row(
        "outside write to result, asyncio",
        "an Event there and back",
        partial(runs.outside_write, "asyncio"),
        at_most=10,
    ),
    Row("outside write to result, trio", "an Event there and back", partial(runs.outside_write, "trio"), at_most=10),
    Row("step() with two fields, 10 leaves, asyncio", "py_trees tree.tick()", partial(runs.step, "asyncio"), at_most=3),
    Row("step() with two fields, 10 leaves, trio", "py_trees tree.tick()", partial(runs.step, "trio"), at_most=3),
    Row("import jianmu", "import its four dependencies", imports.dependencies, at_most=1.15),
    *STREAMS,
    *AGENTS,
    *STORES,
]
