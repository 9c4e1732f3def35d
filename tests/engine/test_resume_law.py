"""The law of resuming: a tree that is suspended and taken over at every suspension ends as without it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py_trees import decorators
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.agent import Agent
from jianmu.engine.checkpoint import Sought
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.engine.journal import Entry, read_entries
from jianmu.engine.limits import Limits
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.point import run_record
from jianmu.engine.questionrows import record_of
from jianmu.engine.questions import Answer
from jianmu.engine.record import Record
from jianmu.engine.request import Request
from jianmu.engine.rows import Transaction
from jianmu.engine.runrecord import RunRecord, load
from jianmu.errors import NotAnsweredError
from jianmu.nodes import (
    Approve,
    AskHuman,
    Catch,
    Finally,
    ForceFailure,
    ForceSuccess,
    ForEach,
    Guard,
    IfThenElse,
    Invert,
    LoopUntilSuccess,
    Race,
    Repeat,
    Retry,
    Switch,
    Timeout,
    Utility,
    WaitFor,
)
from jianmu.stores import MemoryStore
from tests.cases.people import Desk
from tests.conftest import FULL

SUCCESS, FAILURE = Status.SUCCESS, Status.FAILURE
Spec = tuple[Any, ...]


class Outside:
    """The world outside of the run: what was done there, with which idempotency keys, across all agents."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.keys: list[str] = []
        self.cleaned: list[str] = []


def verdict(*parts: Any) -> Status:
    """Return what a leaf comes to: by chance, but always the same."""
    return FAILURE if zlib.crc32(repr(parts).encode()) % 4 == 0 else SUCCESS


class Step(Node):
    """A plain leaf; what it returns hangs on its round and on the state. It writes nothing: it may be asked often."""

    def update(self) -> Status:
        return verdict(self.context.path, self.context.origin().rounds, self.read_state().amount)


class Act(AsyncNode):
    """A coroutine that does something outside by `once`; it asks before or after, or not at all."""

    def __init__(self, name: str, asks: str, outside: Outside) -> None:
        super().__init__(name)
        self.asks = asks
        self.outside = outside

    async def update_async(self) -> Status:
        said: list[Any] = []
        # no two on one instant: what is saved takes turns of the loop, and another one would be the first
        own = (1 + zlib.crc32(self.context.path.encode()) % 997) / 10_000
        await self.context.clock.sleep(own)
        if "before" in self.asks:
            said.append(await self._said("before"))
        await self.context.clock.sleep(0.5 + own)
        done = await self.once("do", self._do, len(said))
        if "after" in self.asks:
            said.append(await self._said("after"))
        self.merge_dict("values", {self.context.path: [done, *said]})
        return verdict(done, said)

    async def _said(self, key: str) -> Any:
        try:
            return await self.ask(Request(key, answer=int), key=key)
        except NotAnsweredError as refused:
            return refused.reason

    async def _do(self, said: int) -> str:
        what = f"{self.context.path} {self.context.origin().rounds} {said}"
        self.outside.done.append(what)
        self.outside.keys.append(self.context.idempotency_key)
        return what


def grow(spec: Spec, outside: Outside) -> Behaviour:
    """Make a tree from its description; names are numbers in tree order."""
    numbers = iter(range(10_000))

    def one(spec: Spec) -> Behaviour:
        kind, option, below = spec
        name = f"{kind}{next(numbers)}"
        children = [one(each) for each in below]
        return MAKERS[kind](name, option, children, outside)

    return one(spec)


def cleanup(outside: Outside) -> Callable[[NodeContext], None]:
    """Return what notes a cleanup."""
    return lambda context: outside.cleaned.append(context.path)


def items(name: str, option: int, outside: Outside) -> Behaviour:
    """Return a ForEach over leaves that ask or act."""

    def body(item: int, _: int) -> Behaviour:
        act = Act(f"act {item}", ("", "before", "after")[(item + option) % 3], outside)
        return Repeat(f"twice {item}", act, times=2) if option == 3 else act

    return ForEach(name, body, over=lambda _: [1, 2, 3], limit=1 + option)


Make = Callable[[str, int, list[Behaviour], Outside], Behaviour]
LEAVES: dict[str, Make] = {
    "step": lambda name, option, below, outside: Step(name),
    "act": lambda name, option, below, outside: Act(name, ("", "before", "after", "before after")[option], outside),
    "ask": lambda name, option, below, outside: AskHuman(name, message="?", answer=int, into="amount"),
    "wait": lambda name, option, below, outside: WaitFor(name, message="?" if option % 2 else None, seconds=option + 1),
    "items": lambda name, option, below, outside: items(name, option, outside),
}
SINGLE: dict[str, Make] = {
    "invert": lambda name, option, below, outside: Invert(name, below[0]),
    "inverter": lambda name, option, below, outside: decorators.Inverter(name, below[0]),
    "fis": lambda name, option, below, outside: decorators.FailureIsSuccess(name, below[0]),
    "force": lambda name, option, below, outside: (ForceFailure if option else ForceSuccess)(name, below[0]),
    "retry": lambda name, option, below, outside: Retry(name, below[0], attempts=2, backoff=option),
    "stock retry": lambda name, option, below, outside: decorators.Retry(name, below[0], num_failures=2),
    "repeat": lambda name, option, below, outside: Repeat(name, below[0], times=2),
    "stock repeat": lambda name, option, below, outside: decorators.Repeat(name, below[0], num_success=2),
    "until": lambda name, option, below, outside: LoopUntilSuccess(name, below[0], max_iterations=2),
    "timeout": lambda name, option, below, outside: Timeout(name, below[0], seconds=option + 1.25),
    "guard": lambda name, option, below, outside: Guard(name, below[0], condition=lambda s: s.amount < 90),
    "catch": lambda name, option, below, outside: Catch(name, below[0], on=ValueError),
    "finally": lambda name, option, below, outside: Finally(name, below[0], cleanup(outside)),
    "approve": lambda name, option, below, outside: Approve(name, below[0], message="?", show=lambda s: s.amount // 50),
}
MANY: dict[str, Make] = {
    "seq": lambda name, option, below, outside: Sequence(name, memory=option > 0, children=below),
    "sel": lambda name, option, below, outside: Selector(name, memory=option > 0, children=below),
    "par": lambda name, option, below, outside: Parallel(name, _policy(option), children=below),
    "race": lambda name, option, below, outside: Race(name, below),
    "switch": lambda name, option, below, outside: Switch(
        name, lambda s: s.amount % len(below), dict(enumerate(below))
    ),
    "if": lambda name, option, below, outside: IfThenElse(name, lambda s: s.amount % 2 == 1, *below[:2]),
    "utility": lambda name, option, below, outside: Utility(
        name, below, scores=lambda s: [(s.amount + place) % 3 for place in range(len(below))], margin=option
    ),
}
MAKERS = LEAVES | SINGLE | MANY


def _policy(option: int) -> ParallelPolicy.Base:
    return ParallelPolicy.SuccessOnOne() if option == 3 else ParallelPolicy.SuccessOnAll(synchronise=option > 0)


def extend(below: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    """Return trees over trees."""
    option = st.integers(0, 3)
    one = st.tuples(st.sampled_from(sorted(SINGLE)), option, st.tuples(below))
    more = st.tuples(st.sampled_from(sorted(MANY)), option, st.lists(below, min_size=2, max_size=3))
    return one | more


SPECS = st.recursive(st.tuples(st.sampled_from(sorted(LEAVES)), st.integers(0, 3), st.just(())), extend, max_leaves=7)


class Checked(MemoryStore):
    """A store that compares, at each transaction, what is stored with what is live.

    A transaction is given here right after its cut, with nothing in between.
    """

    agent: Agent[Any]

    async def commit(self, transaction: Transaction) -> bool:
        """Commit, then compare."""
        live = load(self.agent.dump_checkpoint())
        is_done = await super().commit(transaction)
        stored = await self.read(transaction.lease.thread_id)
        assert stored is not None
        kept = run_record(stored)
        assert _states(kept) == _states(live)
        assert _newest_held(kept.position) <= kept.state.version
        assert kept.run == live.run
        if transaction.body is not None:
            assert kept.usage == live.usage
        if transaction.status not in ("finished", "failed"):
            assert _standing(kept.position) == _standing(live.position)
            assert _entries(kept) == _entries(live)
            assert _waiting(kept) == _waiting(live)
        return is_done


def _states(record: RunRecord) -> list[Any]:
    """Return the states of the agent and of those inside."""
    states = [("", record.state), *sorted(record.inner.items())]
    return [(path, state and (state.fields, state.spent)) for path, state in states]


def _newest_held(position: Any) -> int:
    """Return the newest version of the state that a result stands by."""
    nodes = position["nodes"].values() if position else ()
    mementos = [node.get("memento") for node in nodes]
    return max([0, *(one.get("started", 0) for one in mementos if isinstance(one, dict))])


def _standing(position: Any) -> Any:
    """Return what is kept of nodes, without numbers that only have to grow and clocks that run down."""
    position = position or {"nodes": {}, "paths": []}
    for node in position["nodes"].values():
        for name in ("pass", "started"):
            node.pop(name, None)
    return position["nodes"], position["paths"] if position["nodes"] else []


def _entries(record: RunRecord) -> dict[str, Entry]:
    """Return the journal's entries by id."""
    return {entry.id: entry for entry in read_entries(record.journal)}


def _waiting(record: RunRecord) -> list[Record]:
    """Return the questions whose ends were not delivered yet."""
    return [one for one in record.records if one.consumed_at is None and not one.unused]


async def play(spec: Spec, way: str, seed: int) -> Any:
    """Run a tree to its end, answering what is asked; return all that there is to see of it."""
    outside, clock = Outside(), VirtualClock(autojump=True)
    store = Checked() if way == "store" else None

    def agent_of() -> Agent[Any]:
        agent = Agent(grow(spec, outside), Desk, clock=clock, store=store, limits=Limits(max_ticks=500))
        if store is not None:
            store.agent = agent
        return agent

    agent = agent_of()
    log: list[Any] = []
    outcome = await agent.run_until_suspend(thread_id="t1")
    for turn in range(25):
        log.append((outcome.status, round(clock.now(), 3), _dumped(outcome.output)))
        if outcome.limit:
            return None  # a loop that is looked at again and again and halts what comes after it: never at rest
        if not outcome.suspended:
            break
        log.append(sorted((one.path, one.key, one.id) for one in outcome.suspensions))
        if way == "json":
            data = json.dumps(agent.dump_checkpoint())
            agent = agent_of()
            agent.load_checkpoint(json.loads(data))
        elif way == "store":
            agent = agent_of()
            await agent.load("t1")
        assert sorted((one.path, one.key, one.id) for one in agent.interaction.pending) == log[-1]
        if turn % 3 == 2:
            await clock.advance(1.25)
            outcome = await agent.recover("t1")
            continue
        chosen = log[-1][zlib.crc32(f"{seed} {turn}".encode()) % len(log[-1])][2]
        outcome = await agent.resume(_answer(agent, chosen, seed + turn))
    records = [Record.model_validate(one) for one in agent.dump_checkpoint()["questions"]["records"]]
    ends = sorted((one.id, one.question.status, bool(one.consumed_at)) for one in records)
    if store is not None:  # it has all that were asked, the run those that it may still need
        rows = await store.questions(Sought(thread_id="t1", status=None, limit=10_000))
        kept = {one.id: one for one in map(record_of, rows)}
        assert {(id, kept[id].question.status, bool(kept[id].consumed_at)) for id, _, _ in ends} == {*ends}
        assert kept.keys() >= {id for shown in log[1::2] for _, _, id in shown}
    return log, sorted(outside.done), sorted(outside.keys), sorted(outside.cleaned), ends


def _answer(agent: Agent[Any], id: str, number: int) -> Answer:
    """Return an answer that fits, or now and then a refusal."""
    if number % 7 == 3:
        return Answer(id, action="decline")
    is_approval = agent.interaction.record(id).question.reason == "approval"
    return Answer(id, number % 5 != 1 if is_approval else number * 13 % 100)


def _dumped(output: Any) -> str:
    return json.dumps({name: value for name, value in output.items() if name != "log"}, sort_keys=True, default=dict)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(SPECS, st.integers(0, 50))
@example(("retry", 0, (("repeat", 0, (("act", 1, ()),)),)), 16)
@example(("stock retry", 0, (("stock retry", 0, (("items", 3, ()),)),)), 37)
@settings(max_examples=1000 if FULL else 30)
def test_taken_over_at_every_suspension_a_run_ends_as_without_it(backend: str, spec: Spec, seed: int) -> None:
    """Statuses, times, state, questions with their ids, effects with their keys, cleanups: all are the same."""

    async def all_ways() -> None:
        with anyio.fail_after(20):
            here = await play(spec, "here", seed)
            if here is None:
                return
            assert await play(spec, "json", seed) == here
            assert await play(spec, "store", seed) == here

    anyio.run(all_ways, backend=backend)
