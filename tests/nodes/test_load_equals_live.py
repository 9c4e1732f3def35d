"""The law of positions: dumped and loaded at any tick, a tree goes on as the original does."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.mementos import dump_position, load_position
from jianmu.engine.node import Node
from jianmu.engine.tree import ancestors, paths
from jianmu.nodes import (
    Catch,
    Cooldown,
    Finally,
    ForceFailure,
    ForceSuccess,
    ForEach,
    Guard,
    IfThenElse,
    Invert,
    LoopUntilSuccess,
    Parallel,
    Race,
    Repeat,
    Retry,
    Selector,
    Sequence,
    Switch,
    Timeout,
    Timer,
    Utility,
)
from tests.conftest import FULL
from tests.nodes.kit import Desk

Make = Callable[[], Behaviour]
RESULTS = (Status.RUNNING, Status.RUNNING, Status.SUCCESS, Status.FAILURE)


class HandClock(VirtualClock):
    """A clock that is turned without an event loop."""

    def turn(self, seconds: float) -> None:
        """Turn it."""
        self._now += seconds


class Chance(Node):
    """A leaf that keeps nothing: what it does hangs on its name, its seed and the number of the tick."""

    def __init__(self, seed: int) -> None:
        super().__init__(f"leaf {seed}")
        self.seed = seed

    def update(self) -> Status:
        """Return a status, or raise."""
        n = self.read_state().n
        dice = zlib.crc32(f"{self.seed} {n} {self.context.path}".encode())
        if self.seed % 5 == 0 and dice % 7 == 0:
            raise ValueError("chance")
        return RESULTS[dice % 4]


def of_state(seed: int, most: int) -> Callable[[Any], int]:
    """Return a function of the snapshot that gives a number from 0 to `most`."""
    return lambda state: zlib.crc32(f"{seed} {state.n}".encode()) % (most + 1)


def grown(children: st.SearchStrategy[Make]) -> st.SearchStrategy[Make]:
    """Return trees one level higher."""
    some = st.lists(children, min_size=1, max_size=3)
    seeds = st.integers(0, 1000)

    def one(build: Callable[[Behaviour, int], Behaviour]) -> st.SearchStrategy[Make]:
        return st.tuples(children, seeds).map(lambda given: lambda: build(given[0](), given[1]))

    def many(build: Callable[[list[Behaviour], int], Behaviour]) -> st.SearchStrategy[Make]:
        return st.tuples(some, seeds).map(lambda given: lambda: build([make() for make in given[0]], given[1]))

    return st.one_of(
        many(lambda nodes, seed: Sequence("seq", memory=seed % 2 == 0, children=nodes)),
        many(lambda nodes, seed: Selector("sel", memory=seed % 2 == 0, children=nodes)),
        many(lambda nodes, seed: Parallel("par", ParallelPolicy.SuccessOnAll(synchronise=seed % 2 == 0), nodes)),
        many(lambda nodes, seed: Race("race", nodes)),
        many(lambda nodes, seed: Switch("switch", of_state(seed, 3), dict(enumerate(nodes)))),
        many(lambda nodes, seed: IfThenElse("if", lambda s: of_state(seed, 1)(s) == 1, nodes[0], *nodes[1:2])),
        many(
            lambda nodes, seed: Utility(
                "u", nodes, scores=lambda s: [of_state(seed + k, 9)(s) for k in range(len(nodes))], margin=seed % 4
            )
        ),
        st.tuples(children, st.integers(0, 3), st.sampled_from([None, 1, 2])).map(
            lambda given: (
                lambda: ForEach("each", lambda _item, _index: given[0](), over=list(range(given[1])), limit=given[2])
            )
        ),
        one(lambda node, seed: LoopUntilSuccess("loop", node, max_iterations=None if seed % 3 == 0 else seed % 3)),
        one(lambda node, seed: Repeat("repeat", node, times=None if seed % 4 == 0 else seed % 4)),
        one(lambda node, seed: Retry("retry", node, attempts=1 + seed % 3, backoff=seed % 2 * 1.5, on=ValueError)),
        one(lambda node, seed: Timeout("timeout", node, seconds=seed % 5)),
        one(lambda node, seed: Cooldown("cool", node, seconds=seed % 5)),
        one(lambda node, seed: Guard("guard", node, condition=lambda s: of_state(seed, 3)(s) > 0)),
        one(lambda node, _: Catch("catch", node, on=ValueError)),
        one(lambda node, _: Finally("finally", node, lambda context: context.write_state({"log": [context.path]}))),
        one(lambda node, seed: (Invert, ForceSuccess, ForceFailure)[seed % 3]("force", node)),
    )


LEAVES: st.SearchStrategy[Make] = st.one_of(
    st.integers(0, 50).map(lambda seed: lambda: Chance(seed)),
    st.integers(0, 4).map(lambda seconds: lambda: Timer("timer", seconds=seconds)),
)
TREES = st.recursive(LEAVES, grown, max_leaves=8)


def tick(agent: Agent[Desk]) -> tuple[Any, ...]:
    """Tick a tree; return what can be seen of it afterwards."""
    try:
        agent.step_sync({"n": agent.state.n + 1})
    except ValueError as error:
        return ("raised", str(error), agent.state.log)
    seen = [(path, node.status) for node, path in paths(agent.root) if not is_left_over(node)]
    return (*seen, agent.state.log)


def is_left_over(node: Behaviour) -> bool:
    """Whether a ForEach that has finished only shows it: nothing of it counts any more."""
    return any(isinstance(above, ForEach) and above.status is not Status.RUNNING for above in ancestors(node))


@settings(max_examples=1_000 if FULL else 80)
@given(TREES, st.integers(1, 8), st.integers(1, 6), st.sampled_from([0.5, 1.0]))
def test_a_position_loaded_into_fresh_nodes_goes_on_as_the_original(
    make: Make, before: int, after: int, step: float
) -> None:
    """Statuses of all nodes and what was written are the same in every later tick."""
    clock = HandClock()
    original = Agent(Catch("root", make(), on=ValueError), Desk, clock=clock)
    for _ in range(before):
        tick(original)
        clock.turn(step)
    copy = Agent(Catch("root", make(), on=ValueError), Desk, clock=clock)
    go_on(original, copy)
    for _ in range(after):
        assert tick(copy) == tick(original)
        clock.turn(step)


RUN, DONE, FAIL = Status.RUNNING, Status.SUCCESS, Status.FAILURE


class At(Node):
    """A leaf whose status hangs on the number of the tick only: these, the last one again and again."""

    def __init__(self, name: str, *statuses: Status) -> None:
        super().__init__(name)
        self.statuses = statuses

    def update(self) -> Status:
        """Return the status of this tick."""
        return self.statuses[min(self.read_state().n, len(self.statuses)) - 1]


KEEPERS: list[Make] = [
    lambda: Race("race", [At("a", RUN, FAIL), At("b", RUN, RUN, RUN, DONE)]),
    lambda: Switch("switch", lambda s: s.n % 2, {0: At("a", RUN), 1: At("b", RUN, RUN, RUN, DONE)}),
    lambda: IfThenElse("if", lambda s: s.n % 2 == 1, At("a", RUN), At("b", DONE)),
    lambda: Utility("u", [At("a", RUN), At("b", RUN)], scores=lambda s: [1, 0] if s.n < 2 else [1, 1.5], margin=1),
    lambda: LoopUntilSuccess("loop", At("a", FAIL, FAIL, FAIL, FAIL), max_iterations=4),
    lambda: Repeat("repeat", At("a", DONE), times=4),
    lambda: Retry("retry", At("a", FAIL), attempts=4),
    lambda: Retry("retry", At("a", FAIL), attempts=2, backoff=3),
    lambda: ForEach(
        "each", lambda item, _: At(f"{item}", *([RUN] * item), DONE), over=lambda s: range(s.n, 4), limit=2
    ),
    lambda: Timer("timer", seconds=3),
    lambda: Timeout("timeout", At("a", RUN), seconds=3),
    lambda: Cooldown("cool", At("a", DONE), seconds=3),
    lambda: Finally("finally", At("a", RUN, RUN, DONE), lambda context: context.write_state({"log": [context.path]})),
]
"""One tree for each kind of node that keeps something, so that each forgets only at its own cost."""


@pytest.mark.parametrize("make", KEEPERS, ids=[make().name for make in KEEPERS])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_each_node_that_keeps_something_goes_on(make: Make, before: int) -> None:
    """The same law for each kind of node alone."""
    clock = HandClock()
    original, copy = Agent(make(), Desk, clock=clock), Agent(make(), Desk, clock=clock)
    for _ in range(before):
        tick(original)
        clock.turn(1)
    go_on(original, copy)
    for _ in range(4):
        assert tick(copy) == tick(original)
        clock.turn(1)


def go_on(original: Agent[Desk], copy: Agent[Desk]) -> None:
    """Put a tree of fresh nodes to where another one stands, from JSON alone, in the same thread."""
    copy._session.thread_id = copy.runner.context.thread_id = original.runner.context.thread_id
    copy.state_manager.load_checkpoint(original.state_manager.dump_checkpoint())
    position = json.loads(json.dumps(dump_position(original.root)))
    load_position(copy.root, position, adopt=copy.runner.context.ticker.meet)
