"""Threads that are not what an agent's memory takes them for: deleted, made anew, of somebody else, never kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.engine.state import StateManager
from jianmu.errors import SetupError, StoreError, UnknownThreadError
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


async def test_a_thread_that_is_loaded_in_a_block_is_not_written_under_the_other_ones_lease(store: HopStore) -> None:
    """Steps hold a thread; another one of the same number is loaded and edited, and the block is left."""
    agent = two(store)
    with anyio.fail_after(WITHIN):
        await agent.step({"note": "u"}, thread_id="u")
        async with agent:
            await agent.step({"note": "t"}, thread_id="t")
            await agent.load("u")
            agent.state_manager.update({"note": "edited"})
        for id in "tu":
            await agent.load(id)
            assert agent.state.note == id
            assert await store.stands(id) == ("suspended", False)


async def test_two_agents_on_one_tree_go_on_with_threads_of_their_own(store: HopStore) -> None:
    """Each finds the tree where the other has left it, and puts it to where its own thread stands."""
    root = seq("s", ask("q"), ask("r"))
    one, other = Agent(root, Desk, store=store), Agent(root, Desk, store=store)
    with anyio.fail_after(WITHIN):
        await one.run_until_suspend({"note": "one"}, thread_id="1")
        await one.resume("x")
        await other.run_until_suspend({"note": "other"}, thread_id="2")
        assert (await one.resume("y")).output["values"] == {"q": "x", "r": "y"}
        await other.resume("x")
        outcome = await other.resume("y")
        assert (outcome.status, outcome.output["note"]) == (SUCCESS, "other")


async def test_a_state_that_another_agent_has_loaded_is_stored_as_it_is(store: HopStore) -> None:
    """Two agents share a state; what one of them loads is in the next transaction of the other."""
    shared = StateManager(Desk)
    one, other = (Agent(ask("q"), state=shared, store=store) for _ in range(2))
    with anyio.fail_after(WITHIN):
        await two(store).run_until_suspend({"note": "loaded"}, thread_id="2")
        await one.run_until_suspend({"note": "one"}, thread_id="1")
        fresh = Agent(seq("s", ask("q"), ask("r")), state=shared, store=store)
        await fresh.load("2")
        await one.resume("x", thread_id="1")
        live = dict(one.state)
        await other.load("1")
        assert dict(other.state) == live


def test_an_agent_inside_of_another_is_given_no_store(store: HopStore) -> None:
    """Neither before nor after it was made a node."""
    inner = Agent(ask("q"), Desk)
    inner.as_node("inner")
    with pytest.raises(SetupError, match="'inner/q': an agent inside of another"):
        inner.attach(store)
