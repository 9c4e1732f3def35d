"""Threads that are not what an agent's memory takes them for: deleted, made anew, of somebody else, never kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.errors import StoreError, UnknownThreadError
from tests.cases.people import SUCCESS, Desk, ask, seq
from tests.engine.hopstore import HopStore

pytestmark = pytest.mark.anyio
WITHIN = 10


@pytest.fixture
def store(tmp_path: Path) -> HopStore:
    """A store in a file."""
    return HopStore(tmp_path / "runs.db")


def two(store: HopStore) -> Agent[Any]:
    """Return an agent that asks twice."""
    return Agent(seq("s", ask("q"), ask("r")), Desk, store=store)


async def test_a_thread_that_was_deleted_and_made_anew_is_another_one(store: HopStore) -> None:
    """Its log has the same number: nothing that memory knew of the old one is written into it."""
    old, new = two(store), two(store.again())
    with anyio.fail_after(WITHIN):
        await old.run_until_suspend({"note": "old"}, thread_id="t")
        await store.delete("t")
        await new.run_until_suspend({"note": "new"}, thread_id="t")
        outcome = await old.resume("x", thread_id="t")
        assert (outcome.output["note"], outcome.output["values"]) == ("new", {"q": "x"})


@pytest.mark.parametrize("answers", [0, 1, 2])
async def test_nothing_of_a_deleted_thread_is_in_the_next_one(store: HopStore, answers: int) -> None:
    """The agent that had it in memory begins it anew, suspended or finished before."""
    agent = two(store)
    with anyio.fail_after(WITHIN):
        await agent.run_until_suspend({"note": "old"}, thread_id="t")
        for _ in range(answers):
            await agent.resume("x")
        await store.delete("t")
        outcome = await agent.run_until_suspend({}, thread_id="t")
        assert (outcome.output["note"], outcome.output["values"]) == ("", {})


async def test_a_deleted_thread_is_neither_loaded_nor_saved(store: HopStore) -> None:
    """load, save, reset, recover and resume tell that it is not there, and bring nothing of it back."""
    agent = two(store)
    with anyio.fail_after(WITHIN):
        await agent.run_until_suspend({"note": "old"}, thread_id="t")
        await store.delete("t")
        agent.state_manager.update({"note": "edited"})
        for call in (agent.save, agent.reset, lambda: agent.load("t"), lambda: agent.recover("t")):
            with pytest.raises(UnknownThreadError):
                await call()
        with pytest.raises(UnknownThreadError):
            await agent.resume("x")
        assert await store.list() == ()


async def test_a_thread_whose_first_save_failed_was_never_there(store: HopStore) -> None:
    """The next run of that id begins as the store has it: with nothing."""
    agent = two(store)
    with anyio.fail_after(WITHIN):
        store.fail_at = (2,)
        with pytest.raises(StoreError, match="on purpose"):
            await agent.run_until_suspend({"note": "lost"}, thread_id="t")
        assert await store.list() == ()
        outcome = await agent.run_until_suspend({}, thread_id="t")
        assert (outcome.output["note"], len(outcome.suspensions)) == ("", 1)


async def test_a_thread_that_is_loaded_in_a_block_is_saved_as_itself(store: HopStore) -> None:
    """The lease that the steps keep is another thread's: nothing is written under it."""
    agent = two(store)
    with anyio.fail_after(WITHIN):
        await agent.step({"note": "u"}, thread_id="u")
        async with agent:
            await agent.step({"note": "t"}, thread_id="t")
            await agent.load("u")
            agent.state_manager.update({"note": "edited"})
            await agent.save()
            await agent.step({"amount": 7}, thread_id="t")
        for id, found in (("t", ("t", 7)), ("u", ("edited", 5))):
            await agent.load(id)
            assert (agent.state.note, agent.state.amount) == found
            assert await store.stands(id) == ("suspended", False)


async def test_a_block_takes_a_thread_again_whose_lease_it_has_lost(store: HopStore) -> None:
    """A step that cannot be saved raises; the next one goes on from what is stored."""
    agent = two(store)
    with anyio.fail_after(WITHIN):
        async with agent:
            await agent.step({"note": "kept"}, thread_id="t")
            store.fail_at = range(store.count + 1, store.count + 3)
            with pytest.raises(StoreError, match="on purpose"):
                await agent.step({"note": "lost"}, thread_id="t")
            store.fail_at = ()
            await agent.step(thread_id="t")
            assert agent.state.note == "kept"
        outcome = await agent.resume("x")
        assert (await agent.resume("y")).status is SUCCESS
        assert outcome.output["note"] == "kept"
