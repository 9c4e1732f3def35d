"""A run that was taken over as JSON by an agent with a store."""

from __future__ import annotations

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.stores import MemoryStore
from tests.cases.people import SUCCESS, Desk, ask, seq

pytestmark = pytest.mark.anyio


async def test_a_checkpoint_that_was_loaded_is_answered_and_kept_like_any_thread() -> None:
    """Its questions are in the store before they are answered; afterwards another agent knows the thread."""
    before = Agent(seq("main", ask("a"), ask("b")), Desk)
    store = MemoryStore()
    with anyio.fail_after(5):
        await before.run_until_suspend({"note": "n"}, thread_id="t1")
        agent = Agent(seq("main", ask("a"), ask("b")), Desk, store=store)
        agent.load_checkpoint(before.dump_checkpoint())
        assert (await agent.resume("x")).suspended
        later = Agent(seq("main", ask("a"), ask("b")), Desk, store=store)
        assert (await later.resume("y", thread_id="t1")).status is SUCCESS
    assert (later.state.values, later.state.note) == ({"a": "x", "b": "y"}, "n")
