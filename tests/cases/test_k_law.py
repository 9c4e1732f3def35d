"""Case K03: after each pass what is stored is what is live, whatever was written, forked, pruned or taken over."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel

from jianmu.agent import Agent
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.point import Point, point_of
from jianmu.engine.state import Clear, Remove, Replace
from jianmu.errors import StateWriteError
from jianmu.nodes import Repeat
from tests.anystore import Stores, each_store
from tests.conftest import FULL
from tests.engine.state.fields import Model, ints, maps, names, spaces, updates

SUCCESS, RUNNING = Status.SUCCESS, Status.RUNNING


NUMBERS = itertools.count()
Deed = tuple[Any, ...]
Plan = dict[str, list[Deed]]
"""What each leaf writes in one pass."""

DEEDS: st.SearchStrategy[Deed] = st.one_of(
    st.tuples(st.just("update"), updates),
    st.tuples(st.just("replace"), updates),
    st.tuples(st.just("clear"), names),
    st.tuples(st.just("remove"), st.sampled_from("abc")),
    st.tuples(st.just("merge"), st.sampled_from(["notes", "merged"]), maps),
    st.tuples(st.just("turn"), st.sampled_from(["xs", "newest", "merged", "notes", "text"])),
    st.tuples(st.just("extra"), st.sampled_from(["k", "l", "text"]), st.text("ab", max_size=2), spaces),
    st.tuples(st.just("number"), st.sampled_from(["k", "l"]), ints, spaces),
)
PLANS = st.fixed_dictionaries({name: st.lists(DEEDS, max_size=3) for name in ("a", "b", "c", "inner")})


def turned(value: Any) -> Any:
    """Return a value the other way round, and longer."""
    if isinstance(value, dict):
        return dict(reversed(value.items()))
    return value and value[::-1] + value[:1]


def do(target: Any, deed: Deed) -> None:
    """Make a write by a node or a manager; what breaks a bound of the schema is refused."""
    kind, *args = deed
    write = getattr(target, "write_state", None) or target.update
    with suppress(StateWriteError):
        if kind == "merge":
            target.merge_dict(*args)
        elif kind == "turn":
            target.transform_field(args[0], turned)
        elif kind in {"extra", "number"}:
            write({args[0]: args[1]}, namespace=args[2])
        elif kind == "remove":
            write({"items": Remove(args[0])})
        else:
            op = {"update": lambda value: value, "replace": Replace, "clear": lambda _: Clear()}[kind]
            values = args[0] if isinstance(args[0], dict) else {args[0]: None}
            write({name: op(value) for name, value in values.items()})


class Leaf(Node):
    """Writes what the plan says in each pass; RUNNING until the plan has an end."""

    def __init__(self, name: str, plan: Plan) -> None:
        super().__init__(name)
        self.plan = plan

    def update(self) -> Status:
        """Write."""
        for deed in self.plan.get(self.name, ()):
            do(self, deed)
        return SUCCESS if "end" in self.plan else RUNNING

    def memento(self) -> int:
        """Return something that is kept."""
        return self.read_state().total

    def restore(self, value: int) -> None:
        """Take it back."""


class Coroutine(AsyncNode):
    """Writes what the plan says, in a task of its own, in parts."""

    def __init__(self, name: str, plan: Plan) -> None:
        super().__init__(name)
        self.plan = plan

    async def update_async(self) -> Status:
        """Write."""
        for deed in self.plan.get(self.name, ()):
            do(self, deed)
            await self.context.clock.sleep(0)
        return SUCCESS


def build(plan: Plan, **options: Any) -> Agent[Model]:
    """Return an agent whose leaves write by a plan, one of them in an agent inside of it."""
    inner = Agent(Leaf("inner", plan), Model).as_node("agent", inputs={"n": "n"})
    leaves = [Leaf("a", plan), Leaf("b", plan), Repeat("again", Coroutine("c", plan), times=10_000), inner]
    root = Parallel("main", ParallelPolicy.SuccessOnSelected(leaves[:2]), children=leaves)
    return Agent(root, Model, durability="sync", **options)


def told(agent: Agent[Model]) -> dict[str, str]:
    """Return all that has to come back, as text in its order, without numbers that only have to grow."""
    data = agent.dump_checkpoint()
    position = data.pop("position")
    if position is None or agent.status is not RUNNING:  # a run that has ended keeps none
        position = {"nodes": {}, "paths": []}
    kept = {at: {key: one[key] for key in one.keys() - {"pass", "started"}} for at, one in position["nodes"].items()}
    state, inner = data.pop("state"), data.pop("inner")
    for each in (state, *inner.values()):
        del each["version"]
    return {
        "state": json.dumps(state),
        "inner": json.dumps(inner),
        "position": json.dumps([kept, position["paths"]], sort_keys=True),
    } | {name: json.dumps(value, sort_keys=True) for name, value in data.items()}


def lasting(agent: Agent[Model]) -> list[tuple[str, Any]]:
    """Return the fields of an agent's state that outlast a call, in their order."""
    return [(name, value) for name, value in agent.state.model_dump().items() if name.rpartition(".")[2] != "text"]


class StoredEqualsLive(RuleBasedStateMachine):
    """An agent steps on threads of a store; after each step another one that loads the thread stands where it does.

    Args:
        portal: to the event loop.
        stores: open stores on the same threads.
    """

    def __init__(self, portal: BlockingPortal, stores: Stores) -> None:
        super().__init__()
        self.portal = portal
        self.stores = stores
        self.store = stores.reader()
        self.plan: Plan = {}
        self.agent = build(self.plan, store=self.store)
        self.thread = f"t{next(NUMBERS)}"
        self.threads: dict[str, dict[str, str]] = {}

    def call(self, function: Any, *args: Any, **options: Any) -> Any:
        """Await something on the event loop."""
        return self.portal.call(partial(function, *args, **options))

    def step(self, plan: Plan, **call: Any) -> None:
        """Make one pass in which the leaves write by a plan, and compare."""
        self.plan.clear()
        self.plan.update(plan)
        self.call(self.agent.step, thread_id=self.thread, settle=True, **call)
        self.check()

    def check(self) -> None:
        """Compare what is live with what another agent loads, and the ways to read the log with each other."""
        self.threads[self.thread] = told(self.agent)
        fresh = build({}, store=self.stores.reader())
        self.call(fresh.load, self.thread)
        assert told(fresh) == self.threads[self.thread]
        assert lasting(fresh) == lasting(self.agent)
        stored = self.call(self.store.read, self.thread)
        bodies = [body for _, body in stored.log]
        if stored.snapshot is not None:
            bodies.insert(0, stored.snapshot.body)
        whole = point_of(bodies)
        assert one_by_one(bodies) == whole
        whole.states[""].pop("version")
        assert json.dumps(whole.states[""]) == self.threads[self.thread]["state"]

    @rule(plan=PLANS)
    def a_pass(self, plan: Plan) -> None:
        """Several leaves write in one pass."""
        self.step(plan)

    @rule(plan=PLANS, values=updates)
    def a_pass_with_an_input(self, plan: Plan, values: dict[str, Any]) -> None:
        """The input comes first; one that breaks a bound changes nothing."""
        before = self.threads.get(self.thread)
        try:
            self.step(plan, input=values)
        except StateWriteError:
            assert before in (None, told(self.agent))

    @rule(plan=PLANS)
    def the_end(self, plan: Plan) -> None:
        """The run ends in this pass; the next one begins another."""
        self.step({**plan, "end": []})

    @precondition(lambda self: self.threads)
    @rule(deeds=st.lists(DEEDS, min_size=1, max_size=6))
    def edited_in_threads(self, deeds: list[Deed]) -> None:
        """Threads of the user's write between two passes, and the agent saves."""
        threads = [Thread(target=do, args=(self.agent.state_manager, deed)) for deed in deeds]
        self.call(self.agent.load, self.thread)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.call(self.agent.save)
        self.check()

    @precondition(lambda self: self.threads)
    @rule()
    def another_agent(self) -> None:
        """The thread is gone on with by an agent that has nothing but the store."""
        self.agent = build(self.plan, store=self.stores.reader())
        self.call(self.agent.load, self.thread)
        self.check()

    @precondition(lambda self: self.threads)
    @rule(place=st.integers(0, 1000))
    def another_thread(self, place: int) -> None:
        """The agent turns to another of its threads, which stands where it was left."""
        self.thread = sorted(self.threads)[place % len(self.threads)]
        self.call(self.agent.load, self.thread)
        assert told(self.agent) == self.threads[self.thread]

    @precondition(lambda self: self.threads)
    @rule(place=st.integers(0, 1000))
    def a_fork(self, place: int) -> None:
        """A fork of any number leaves its source as it was, byte for byte; it is gone on with."""
        before = self.stores.rows(self.thread)
        number = self.numbers()[place % len(self.numbers())]
        new = f"t{next(NUMBERS)}"
        self.call(self.store.fork, self.thread, new, at=number)
        assert self.stores.rows(self.thread) == before
        if number == before["threads"][0][1]:
            assert self.state_of(new) == self.state_of(self.thread)
        self.thread = new
        self.call(self.agent.load, new)
        self.check()

    @precondition(lambda self: self.threads)
    @rule(place=st.integers(0, 1000))
    def a_prune(self, place: int) -> None:
        """After a prune to any number the thread stands where it did."""
        numbers = self.numbers()
        self.call(self.store.prune, self.thread, numbers[place % len(numbers)])
        self.call(self.agent.load, self.thread)
        assert told(self.agent) == self.threads[self.thread]
        self.check()

    def numbers(self) -> list[int]:
        """Return the numbers that the thread's log still has."""
        found = self.stores.rows(self.thread)
        last = found["threads"][0][1]
        bases = [row[4] for row in found["rows"] if row[2] == "base"]
        return list(range(max([*bases, 1]), last + 1))

    def state_of(self, thread: str) -> dict[str, Any]:
        """Return the fields of a thread's state."""
        return self.call(self.store.show, thread).fields


def one_by_one(bodies: list[str]) -> Point:
    """Return what a log comes to, with a snapshot written after each of its bodies."""
    point = point_of(bodies[:1])
    for body in bodies[1:]:
        point = point_of([point.body(), body])
    return point


@pytest.fixture
def portal(anyio_backend: str) -> Iterator[BlockingPortal]:
    """An event loop in a thread of its own."""
    with start_blocking_portal(anyio_backend) as started:
        yield started


@each_store
@pytest.mark.timeout(900)
def test_k03_what_is_stored_is_what_is_live(any_store: Stores, portal: BlockingPortal) -> None:
    """Random folds, ops, merges, parallel writes, forks, prunes, restarts: equal after each pass, in order too."""
    examples = {"memory": 12, "sqlite": 6, "postgres": 3}[any_store.kind] * 30 if FULL else 4
    run_state_machine_as_test(
        lambda: StoredEqualsLive(portal, any_store),
        settings=settings(max_examples=examples, stateful_step_count=15, deadline=None),
    )


@each_store
@pytest.mark.anyio
async def test_k03_the_version_of_the_state_is_stored_with_the_position(any_store: Stores) -> None:
    """A pass that writes nothing lasting raises the version too: a held result may stand by it, here and inside."""
    with anyio.fail_after(5):
        for plan in ({"a": [("update", {"text": "x"})]}, {"inner": [("update", {"text": "x"})]}):
            agent = build(plan, store=any_store.reader())
            await agent.step(thread_id=f"t{next(NUMBERS)}", settle=True)
            await agent.step(settle=True)
            live = agent.dump_checkpoint()
            fresh = build({}, store=any_store())
            await fresh.load(agent.thread_id or "")
            kept = fresh.dump_checkpoint()
            assert (kept["state"], kept["inner"]) == (live["state"], live["inner"])
