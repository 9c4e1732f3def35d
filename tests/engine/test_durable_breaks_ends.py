"""Ends at bad moments: cancelled steps and blocks, answers that nobody has read yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from jianmu.agent import Agent
from jianmu.engine.checkpoint import Move
from jianmu.engine.questions import Answer
from tests.cases.people import SUCCESS, Desk, Note, Work, ask, par, seq
from tests.engine.hopstore import HopStore

pytestmark = pytest.mark.anyio
WITHIN = 10


@pytest.fixture
def store(tmp_path: Path) -> HopStore:
    """A store in a file."""
    return HopStore(tmp_path / "runs.db")


async def cancelled_after(turns: int, call: Callable[[], Awaitable[object]]) -> bool:
    """Cancel a call after so many turns of the loop; whether it had ended before."""
    is_over = False

    async def cancel() -> None:
        for _ in range(turns):
            await checkpoint()
        scope.cancel()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            await call()
            is_over = True
            scope.cancel()
    return is_over


@pytest.mark.parametrize("stands", ["new", "suspended", "finished"])
async def test_a_step_that_was_cancelled_before_it_began_changes_nothing(tmp_path: Path, stands: str) -> None:
    """At each turn of the loop: the thread is as it was, or its step was made and kept."""
    for turns in range(100):
        store = HopStore(tmp_path / f"{turns}.db", hops=1)
        agent = Agent(seq("s", ask("q"), Note("n", [])), Desk, store=store)
        with anyio.fail_after(WITHIN):
            if stands != "new":
                await agent.run_until_suspend(thread_id="t")
            if stands == "finished":
                await agent.resume("x")
            before = await store.stands("t"), await store.asked()
            is_over = await cancelled_after(turns, lambda agent=agent: agent.step({"note": "step"}, thread_id="t"))
            found = await store.stands("t"), await store.asked()
            other = Agent(seq("s", ask("q"), Note("n", [])), Desk, store=store.again())
            if found == before == (None, []):
                continue
            await other.load("t")
            assert found == before or other.state.note == "step", turns
            assert found[0] is not None
            assert not found[0][1], turns
            outcome = await other.recover("t")
            assert outcome.suspended or (found == before and stands == "finished"), (turns, found)
        if is_over:
            return
    raise AssertionError("the step never ends")


async def test_a_block_that_is_cancelled_keeps_its_thread_and_gives_it_back(store: HopStore) -> None:
    """The coroutine is halted, the position before that and the state after it are kept, the lease is free."""
    agent = Agent(par("p", Work("w", [], 3600), ask("q")), Desk, store=store)
    with anyio.fail_after(WITHIN):
        with anyio.CancelScope() as scope:
            async with agent:
                await agent.step({"note": "kept"}, thread_id="t")
                agent.state_manager.update({"amount": 7})
                scope.cancel()
                await checkpoint()
        assert await store.stands("t") == ("interrupted", False)
        other = Agent(par("p", Work("w", [], 0), ask("q")), Desk, store=store.again())
        await other.recover("t")
        assert (await other.resume("x")).status is SUCCESS
        assert (other.state.note, other.state.amount) == ("kept", 7)


async def test_a_block_whose_cleanup_is_fatal_gives_its_thread_back(store: HopStore) -> None:
    """Ctrl-C in the cleanup of a node is raised, and the thread is kept all the same."""

    class Fatal(Work):
        async def cleanup(self) -> None:
            raise KeyboardInterrupt

    agent = Agent(Fatal("w", [], 3600), Desk, store=store)
    with anyio.fail_after(WITHIN):
        await agent.__aenter__()
        await agent.step(thread_id="t")
        await checkpoint()
        with pytest.raises(KeyboardInterrupt):
            await agent.__aexit__(None, None, None)
        assert await store.stands("t") == ("interrupted", False)


async def test_an_answer_that_a_cancelled_run_has_not_read_makes_its_thread_due(store: HopStore) -> None:
    """It came from outside between two looks for mail: the run was only asking, and somebody has to go on with it."""
    agent = Agent(ask("q"), Desk, store=store, poll_answers=50)
    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run(thread_id="t"))
            while not agent.interaction.pending:
                await checkpoint()
            await anyio.wait_all_tasks_blocked()
            await store.again().inbox.answer(Answer(agent.interaction.pending[0].id, "x"))
            group.cancel_scope.cancel()
        assert (await store.stands("t"), await store.due()) == (("suspended", False), ["t"])
        assert (await Agent(ask("q"), Desk, store=store.again()).recover("t")).status is SUCCESS
        assert await store.due() == []


@pytest.mark.parametrize("call", ["save", "step"])
async def test_an_answer_that_is_not_used_yet_leaves_its_thread_due(store: HopStore, call: str) -> None:
    """The thread is edited and saved, or stepped by somebody who waits for two answers; then nobody holds it."""
    agent = Agent(seq("s", ask("q"), ask("r")), Desk, store=store)
    with anyio.fail_after(WITHIN):
        await agent.run_until_suspend(thread_id="t")
        await store.again().inbox.answer(Answer(agent.interaction.pending[0].id, "x"))
        assert await store.due() == ["t"]
        if call == "save":
            agent.state_manager.update({"note": "edited"})
            await agent.save()
            assert await store.due() == ["t"]
        else:
            await agent.step(thread_id="t")
            assert await store.due() == []
        outcome = await Agent(seq("s", ask("q"), ask("r")), Desk, store=store.again()).recover("t")
        assert outcome.output["values"] == {"q": "x"}


@pytest.mark.parametrize("stands", ["new", "suspended", "stepped", "finished"])
async def test_a_run_that_was_cancelled_before_its_first_transaction_changes_nothing(
    tmp_path: Path, stands: str
) -> None:
    """At each turn of the loop: the thread is as it was, or the same `input_id` goes on with the run that has begun."""

    def agent(store: HopStore) -> Agent[Desk]:
        return Agent(seq("s", ask("q"), Note("n", [])), Desk, store=store)

    for turns in range(150):
        store = HopStore(tmp_path / f"{turns}.db", hops=1)
        mine, call = agent(store), {"thread_id": "t", "input_id": "i", "on_new_input": "withdraw"}
        with anyio.fail_after(WITHIN):
            if stands == "stepped":
                await mine.step({"note": "before"}, thread_id="t")
            elif stands != "new":
                await mine.run_until_suspend({"note": "before"}, thread_id="t")
            if stands == "finished":
                await mine.resume("x")
            before = await store.stands("t"), await store.asked()
            is_over = await cancelled_after(
                turns, lambda mine=mine, call=call: mine.run_until_suspend({"note": "input"}, **call)
            )
            if await store.row("t", "input", "i") is None:
                assert (await store.stands("t"), await store.asked()) == before, turns
            for one in (agent(store.again()), mine):
                outcome = await one.run_until_suspend({"note": "input"}, **call)
                assert (outcome.suspended, outcome.output["note"]) == (True, "input"), turns
            assert (await one.resume("x")).output["log"][-1:] == ["n"]
        if is_over:
            return
    raise AssertionError("the run never ends")


async def test_a_run_that_ends_while_another_task_keeps_what_was_said_lets_it(
    store: HopStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on turning: both answers are kept, and the run has ended."""
    agent, scope, move = Agent(par("both", ask("a"), ask("b")), Desk, store=store), anyio.CancelScope(), store.move

    async def slow(moves: Sequence[Move], *, wake_at: float) -> bool:
        is_done = await move(moves, wake_at=wake_at)
        for _ in range(200):
            await checkpoint()
        return is_done

    async def drive() -> None:
        with scope:
            await agent.run(thread_id="t1")

    monkeypatch.setattr(store, "move", slow)
    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(drive)
            while len(agent.interaction.pending) < 2:
                await checkpoint()
            first, second = (question.id for question in agent.interaction.pending)
            agent.interaction.answer_nowait(Answer(first, 1))
            group.start_soon(agent.interaction.answer, Answer(second, 2))
            scope.cancel()
    assert [status for status, _ in await store.asked()] == ["answered", "answered"]
