"""Threads that wait for answers: what it costs to go on with one, and to look through many."""

from __future__ import annotations

import operator
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from bench.measure import Effort, Pair, async_block, async_in_turns, steady
from bench.saved import THREAD, new_file
from jianmu import Agent, AskHuman, Message, human
from jianmu.engine.checkpoint import Stored, Transaction
from jianmu.stores import SQLiteStore
from jianmu.stores.tables import Say
from jianmu.stores.writing import acquire, commit

MESSAGES = [f"message {number}: {'x' * 100}" for number in range(100)]
QUESTION, ANSWER = "Go on?", "yes"
FEW, MANY = 100, 10_000
PAGE = 50
BEFORE = 50
"""Threads that were gone on with before: the file beside the database has grown to the length that it keeps."""


class Talk(BaseModel):
    """A conversation, and what was answered."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    answer: str = ""


def agent_of(store: SQLiteStore) -> Agent[Talk]:
    """Build an agent that asks."""
    return Agent(AskHuman("ask", message=QUESTION, into="answer"), Talk, store=store)


async def resuming(times: int, is_loaded: bool) -> float:
    """Return the seconds from an answer to the end of the run that has waited for it, in a store that is in use.

    Args:
        times: how many threads are measured.
        is_loaded: whether one agent reads each of them from the store; else each is in the memory of its own agent.
    """
    given = {"messages": [human(text) for text in MESSAGES]}
    with new_file() as path:
        async with SQLiteStore(path) as store:
            agents = [agent_of(store) for _ in range(BEFORE + times)]
            for number, agent in enumerate(agents):
                await agent.run_until_suspend(given, thread_id=str(number))
            if is_loaded:
                agents = [agents[0]] * len(agents)
                await agents[0].run_until_suspend(given, thread_id="another")
            waiting = iter(enumerate(agents))
            for number, agent in islice(waiting, BEFORE):
                await agent.resume(ANSWER, thread_id=str(number))
            with steady():
                start = time.perf_counter()
                outcomes = [await agent.resume(ANSWER, thread_id=str(number)) for number, agent in waiting]
                seconds = time.perf_counter() - start
    if any(outcome.output["answer"] != ANSWER for outcome in outcomes):
        raise RuntimeError("the answer did not arrive")
    return seconds / times


async def fill(store: SQLiteStore, threads: int) -> None:
    """Make threads that wait for an answer: one by a run, the others as its copies."""
    await agent_of(store).run_until_suspend({"messages": [human(text) for text in MESSAGES]}, thread_id=THREAD)
    stored = await store.read(THREAD)
    if stored is None:
        raise RuntimeError("the thread was not kept")

    def copies(say: Say) -> None:
        for number in range(1, threads):
            _copy(say, stored, number)

    await store.call("write", copies)


def _copy(say: Say, stored: Stored, number: int) -> None:
    """Write a thread's log and rows under another id, as runs do; its question gets an id of its own."""
    thread, asked = stored.thread, stored.questions[0]
    id = f"{number:0{len(asked.id)}}"
    lease = acquire(say, f"{THREAD}{number:06}", "bench", 1.0, create=True)
    for at, body in stored.log:
        step = Transaction(lease, at - 1, body.replace(asked.id, id), thread.status, thread.record, thread.wake_at)
        if at == thread.number:
            asked = replace(asked, id=id, asked_at=asked.asked_at + number)
            step = replace(step, questions=(asked,), rows=stored.rows, releases=True)
        commit(say, step)


async def looking(store: SQLiteStore, times: int) -> float:
    """Return the seconds in which a page of the inbox is read, the one after the first."""
    first = await store.inbox.pending(limit=PAGE)

    async def page() -> None:
        if len(await store.inbox.pending(limit=PAGE, after=first[-1].cursor)) != PAGE:
            raise RuntimeError("the page is not full")

    return await async_block(page, times)


async def loading(store: SQLiteStore, times: int) -> float:
    """Return the seconds in which a thread is loaded."""
    agent = agent_of(store)
    names = [f"{THREAD}{number:06}" for number in range(1, times + 1)]
    await agent.load(THREAD)
    with steady():
        start = time.perf_counter()
        for name in names:
            await agent.load(name)
        seconds = time.perf_counter() - start
    if len(agent.state.messages) != len(MESSAGES) or not agent.interaction.pending:
        raise RuntimeError("the thread is not what was kept")
    return seconds / times


def _among_many(work: Callable[[SQLiteStore, int], Awaitable[float]], effort: Effort) -> Pair:
    """Do the same in a store of 10,000 waiting threads and in one of 100."""

    async def main() -> Pair:
        with new_file() as one, new_file() as other:
            async with SQLiteStore(one) as many, SQLiteStore(other) as few:
                await fill(many, effort.times(MANY))
                await fill(few, FEW)
                times = effort.times(20)
                return await async_in_turns(lambda: work(many, times), lambda: work(few, times), effort.rounds)

    return anyio.run(main)


page = partial(_among_many, looking)
load = partial(_among_many, loading)
