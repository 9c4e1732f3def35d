"""Values nested about as deeply as may be: what is kept can be loaded, and what could not be is refused before."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from pydantic import BaseModel, JsonValue

from jianmu import Agent, AskHuman, AsyncNode, CorruptRecordError, Node, RunError, SetupError, StateWriteError
from jianmu.engine.point import point_of
from jianmu.stores import MemoryStore

pytestmark = pytest.mark.anyio
REFUSALS = StateWriteError, RunError, SetupError


def deep(levels: int) -> JsonValue:
    """Return lists in each other."""
    return reduce(lambda inner, _: [inner], range(levels), 1)


class World(BaseModel):
    """Holds anything."""

    seen: Any = None


class Writes(Node):
    """Writes the value."""

    def __init__(self, value: JsonValue) -> None:
        super().__init__("node")
        self.value = value

    def update(self) -> Status:
        self.write_state({"seen": self.value})
        return Status.SUCCESS


class Keeps(Writes):
    """Has the value as its memento."""

    def update(self) -> Status:
        return Status.RUNNING if self.read_state().seen is None else Status.SUCCESS

    def memento(self) -> JsonValue:
        return self.value

    def restore(self, value: JsonValue) -> None:
        self.value = value


class Gets(AsyncNode):
    """Has the value as the result of an effect, and asks after it."""

    def __init__(self, value: JsonValue) -> None:
        super().__init__("node")
        self.value = value

    async def update_async(self) -> Status:
        await self.once("get", lambda: self.value)
        return Status.SUCCESS


def of(node: Callable[[JsonValue], Behaviour], value: JsonValue) -> Behaviour:
    """Return a tree that has the node at work beside a question, or before it."""
    children = [node(value), AskHuman("ask", message="?", into="seen")]
    if node is Keeps:
        return Parallel("both", policy=ParallelPolicy.SuccessOnAll(synchronise=False), children=children)
    return Sequence("both", memory=True, children=children)


@pytest.mark.parametrize("node", [Writes, Keeps, Gets])
async def test_what_was_kept_can_be_loaded_at_each_depth(node: Callable[[JsonValue], Behaviour]) -> None:
    """A state's value, a memento and a result are refused when they are given, or another agent goes on with them."""
    kept = 0
    for levels in [150, *range(194, 204), 250, 300]:
        store = MemoryStore()
        with anyio.fail_after(10):
            try:
                await Agent(of(node, deep(levels)), World, store=store).run_until_suspend(thread_id="t")
            except REFUSALS:
                assert levels > 199
                continue
            agent = Agent(of(node, deep(levels)), World, store=store)
            assert (await agent.resume("yes", thread_id="t")).status is not Status.FAILURE
        kept += 1
    assert kept >= 7


@pytest.mark.parametrize("value", [r'"half \ud800"', "[1, 2", "1] [2"])
def test_what_cannot_be_read_for_another_reason_is_damage(value: str) -> None:
    """The way for what is nested deeply lets nothing else through."""
    with pytest.raises(CorruptRecordError, match="was changed by something else"):
        point_of([f'{{"state": {{"version": 1, "fields": {{"seen": {value}}}}}}}'])
