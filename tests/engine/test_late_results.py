"""A coroutine that comes to its end while its run is parked: the result is kept, and so is what the node had kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel

from jianmu import Agent, AsyncNode
from jianmu.nodes import Finally
from jianmu.stores import MemoryStore

pytestmark = pytest.mark.anyio


class Nothing(BaseModel):
    """A state without fields."""


class Pages(AsyncNode):
    """Works on in a halt, and keeps more than every coroutine does."""

    page = entries = 0

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__("pages")
        self.stops = stop

    async def update_async(self) -> Status:
        """Come to the end in spite of the halt that is asked for in the middle."""
        self.page, self.entries = 3, self.entries + 1
        with anyio.CancelScope(shield=True):
            self.stops()
            await checkpoint()
            await checkpoint()
        return Status.SUCCESS

    def memento(self) -> Any:
        """Return the page as well."""
        kept: dict[str, Any] = super().memento() or {}
        return {**kept, "page": self.page}

    def restore(self, value: Any) -> None:
        """Take it back."""
        super().restore(value)
        self.page = value["page"]


class Child(AsyncNode):
    """Has its result at once."""

    entries = 0

    async def update_async(self) -> Status:
        """Count."""
        self.entries += 1
        return Status.SUCCESS


async def halted_and_recovered(make: Callable[[Callable[[], None]], Behaviour], has_store: bool) -> tuple[Any, Any]:
    """Run a tree that halts its own run; go on with it, and return the roots before and after."""
    store = MemoryStore() if has_store else None

    def halt() -> None:
        first.halt()

    first, after = (Agent(make(stop), state_schema=Nothing, store=store) for stop in (halt, lambda: None))
    with anyio.fail_after(20):
        assert (await first.run_until_suspend(thread_id="t")).status is Status.INVALID
        if not has_store:
            after.load_checkpoint(first.dump_checkpoint())
        assert (await after.recover("t")).status is Status.SUCCESS
    return first.tree.root, after.tree.root


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_node_that_finished_in_a_halt_keeps_what_it_had_kept(has_store: bool) -> None:
    """Its own memento stands beside the result, which is reported: the node is not entered again."""
    before, after = await halted_and_recovered(Pages, has_store)
    assert (before.entries, after.entries, after.page) == (1, 0, 3)


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_run_that_was_halted_in_a_cleanup_can_be_gone_on_with(has_store: bool) -> None:
    """The child is not entered again, and the cleanup is done anew: its Finally is entered where the run stood."""
    cleaned: list[str] = []

    def make(stop: Callable[[], None]) -> Behaviour:
        async def cleanup(_: Any) -> None:
            stop()
            await checkpoint()
            await checkpoint()
            cleaned.append("cleaned")

        return Finally("f", Child("child"), cleanup)

    before, after = await halted_and_recovered(make, has_store)
    assert (before.decorated.entries, after.decorated.entries) == (1, 0)
    assert cleaned == ["cleaned", "cleaned"]
