"""Laws of the runner on random trees: no copy twice, nothing left, what replaces a branch waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import anyio
import py_trees
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Inverter

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.tree import ancestors, walk
from jianmu.errors import LimitExceeded
from jianmu.nodes import Catch, Finally, Guard, IfThenElse, Race, Repeat, Retry, Timeout, Utility
from tests.cases.leaves import FAILURE, INVALID, RUNNING, SUCCESS, Scripted, Sleep, World, nothing_left

FULL = os.environ.get("JIANMU_FULL") == "1"
TENTHS = st.integers(0, 4).map(lambda tenths: tenths / 10)
RESULTS = st.sampled_from([SUCCESS, SUCCESS, FAILURE])


class Leaf(Sleep):
    """A leaf that checks, when it starts, that nothing is being cleaned up for which it had to wait."""

    cleaning: list[Behaviour]
    raises = False
    finished = 0
    starts = 0
    cleanups = 0

    async def update_async(self) -> Status:
        """Check, then sleep."""
        self.starts += 1
        assert self.alive == 0, f"{self.name} lives twice"
        for other in self.cleaning:
            meet = next((above for above in ancestors(other) if above in [*ancestors(self)]), None)
            assert isinstance(meet, Parallel | Race), f"{self.name} started while {other.name} was cleaned up"
        status = await super().update_async()
        self.finished += 1
        if self.raises:
            raise LookupError(self.name)
        return status

    async def cleanup(self) -> None:
        """Clean up, for all to see."""
        self.cleaning.append(self)
        await super().cleanup()
        self.cleaning.remove(self)
        self.cleanups += 1


@st.composite
def leaves(draw: Any, cleaning: list[Behaviour], numbers: list[int]) -> Behaviour:
    """Return a leaf: mostly one that takes time."""
    numbers.append(len(numbers))
    name = f"x{len(numbers)}"
    if draw(st.integers(0, 4)) == 0:
        return Scripted(name, draw(st.sampled_from([SUCCESS, FAILURE])))
    leaf = Leaf(name, draw(TENTHS), result=draw(RESULTS), cleanup=draw(TENTHS))
    leaf.cleaning = cleaning
    leaf.raises = draw(st.integers(0, 15)) == 0
    return leaf


def _branch(draw: Any, name: str, children: list[Behaviour]) -> Behaviour:
    """Return a composite over the children."""
    memory = draw(st.booleans())
    synchronise = draw(st.booleans())
    makers: list[Callable[[], Behaviour]] = [
        lambda: Sequence(name, memory=memory, children=children),
        lambda: Selector(name, memory=memory, children=children),
        lambda: Parallel(name, ParallelPolicy.SuccessOnAll(synchronise=synchronise), children=children),
        lambda: Parallel(name, ParallelPolicy.SuccessOnOne(), children=children),
        lambda: Race(name, children),
        lambda: Utility(name, children, scores=lambda state: [state.n % (place + 2) for place in range(len(children))]),
    ]
    return draw(st.sampled_from(makers))()


def _wrapped(draw: Any, name: str, child: Behaviour) -> Behaviour:
    """Return a decorator over the child."""
    makers: list[Callable[[], Behaviour]] = [
        lambda: Inverter(name, child),
        lambda: Retry(name, child, attempts=2),
        lambda: Repeat(name, child, times=2),
        lambda: py_trees.decorators.Repeat(name, child, 2),
        lambda: Timeout(name, child, seconds=0.25),
        lambda: Guard(name, child, condition=lambda state: state.n % 3 != 2),
        lambda: Catch(name, child, on=LookupError),
        lambda: Finally(name, child, lambda _context: None),
        lambda: IfThenElse(name, lambda state: state.n % 2 == 0, child),
    ]
    return draw(st.sampled_from(makers))()


@st.composite
def trees(draw: Any, depth: int = 3) -> Behaviour:
    """Return a random tree."""
    cleaning: list[Behaviour] = []
    numbers: list[int] = []

    def grow(depth: int) -> Behaviour:
        if depth == 0 or draw(st.integers(0, 3)) == 0:
            return draw(leaves(cleaning, numbers))
        numbers.append(len(numbers))
        name = f"b{len(numbers)}"
        if draw(st.integers(0, 2)) == 0:
            return _wrapped(draw, name, grow(depth - 1))
        return _branch(draw, name, [grow(depth - 1) for _ in range(draw(st.integers(1, 3)))])

    return grow(depth)


async def drive(root: Behaviour, clock: VirtualClock, writes: list[float], end: float | None, how: str) -> Any:
    """Run a tree while somebody writes; cancel or halt it at `end`; return the status or what was raised."""
    agent = Agent(root, World, clock=clock, limits=Limits(max_ticks=500))

    async def write() -> None:
        for pause in writes:
            await clock.sleep(pause)
            agent.state_manager.transform_field("n", lambda n: n + 1)
        await anyio.sleep_forever()

    async def stop(scope: anyio.CancelScope) -> None:
        await clock.sleep(end or 0)
        if how == "cancel":
            scope.cancel()
        else:
            agent.halt()
        await anyio.sleep_forever()

    found: Any = None
    with nothing_left(agent), anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            with anyio.CancelScope() as scope:
                if end is not None:
                    group.start_soon(stop, scope)
                try:
                    found = await agent.run()
                except (LookupError, LimitExceeded) as error:
                    found = error
            group.cancel_scope.cancel()
    return found


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=2_000 if FULL else 40)
@given(
    root=trees(), writes=st.lists(TENTHS, max_size=6), end=st.none() | TENTHS, how=st.sampled_from(["cancel", "halt"])
)
def test_whatever_the_tree_and_however_it_ends(
    backend: str, root: Behaviour, writes: list[float], end: float | None, how: str
) -> None:
    """No leaf lives twice, none starts before what it replaces is cleaned up, each start ends once, nothing is left."""
    clock = VirtualClock(autojump=True)
    for _ in range(2):
        found = anyio.run(drive, root, clock, writes, end, how, backend=backend)
        nodes = list(walk(root))
        for leaf in (node for node in nodes if isinstance(node, Leaf)):
            assert leaf.alive == 0
            assert leaf.cleaning == []
            assert leaf.starts == leaf.finished + leaf.cleanups
        if found is None and root.status in (SUCCESS, FAILURE):
            found = root.status  # it was cancelled when it had its result
        if found not in (SUCCESS, FAILURE):
            assert {node.status for node in nodes} == {INVALID}
        else:
            assert root.status is found
            assert not any(node.status is RUNNING for node in nodes)
