"""Answers that come at bad moments: in the midst of a pass, of a commit, of the end of a run, of steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.questions import Answer
from jianmu.engine.request import default
from jianmu.errors import AlreadyAnsweredError, RunError, StoreError
from tests.cases.leaves import Do
from tests.cases.people import RUNNING, SUCCESS, Desk, ask, par, seq
from tests.engine.hopstore import HopStore

pytestmark = pytest.mark.anyio
WITHIN = 10


@pytest.fixture
def store(tmp_path: Path) -> HopStore:
    """A store in a file."""
    return HopStore(tmp_path / "runs.db")


def in_a_thread(work: Callable[[], object]) -> None:
    """Do something in a thread, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_what_a_thread_says_in_the_midst_of_a_pass_is_kept_before_its_node_sees_it(
    store: HopStore, level: Any
) -> None:
    """The node that is ticked after it in the same pass still waits; when the run is over the store has the answer."""
    seen: list[dict[str, Any]] = []

    def poke(node: Do) -> Any:
        interaction = node.context.run.interaction
        seen.append(dict(node.read_state().values))
        if interaction.pending:
            in_a_thread(lambda: interaction.answer_nowait(Answer(None, "yes")))
        return SUCCESS if node.read_state().values else RUNNING

    class Looks(Do):
        polled = True

    agent = Agent(par("p", Looks("look", poke), ask("q")), Desk, store=store, durability=level, poll_interval=0.01)
    with anyio.fail_after(WITHIN):
        assert await agent.run(thread_id="t") is SUCCESS
    assert await store.asked() == [("answered", True)]
    assert seen[-1] == {"q": "yes"}


async def test_what_a_thread_says_while_a_question_is_being_saved_is_kept(tmp_path: Path) -> None:
    """At each turn of the loop from the ask to the end of the call: kept, or refused since no run is on."""
    refused = 0
    for turns in range(45):
        store = HopStore(tmp_path / f"{turns}.db", hops=5)
        agent = Agent(seq("s", ask("q"), ask("r")), Desk, store=store)

        async def say(agent: Agent[Any] = agent, turns: int = turns) -> bool:
            while not agent.interaction.all_open():
                await checkpoint()
            for _ in range(turns):
                await checkpoint()
            try:
                agent.interaction.answer_nowait(Answer(agent.interaction.all_open()[0].id, "yes"))
            except RunError:
                return False
            return True

        was_taken: list[bool] = []

        async def person(say: Callable[[], Any] = say, was_taken: list[bool] = was_taken) -> None:
            was_taken.append(await say())

        with anyio.fail_after(WITHIN):
            async with anyio.create_task_group() as group:
                group.start_soon(person)
                await agent.run_until_suspend(thread_id="t")
            first, *_ = await store.asked()
            assert first[0] == ("answered" if was_taken[0] else "open"), turns
            assert first[1] or not was_taken[0] or await store.due() == ["t"], turns
        refused += not was_taken[0]
    assert 0 < refused < 45


async def test_a_claim_refuses_what_a_thread_says(store: HopStore, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it reaches the node: the question stays open, and a log line tells."""
    agent = Agent(ask("q"), Desk, store=store)
    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run)
            while not agent.interaction.pending:
                await checkpoint()
            id = agent.interaction.pending[0].id
            await store.inbox.claim(id, "ann")
            in_a_thread(lambda: agent.interaction.answer_nowait(Answer(id, "x", by="bob")))
            assert agent.interaction.pending == ()
            while not agent.interaction.pending:
                await checkpoint()
            assert await store.asked() == [("open", False)]
            in_a_thread(lambda: agent.interaction.answer_nowait(Answer(id, "y", by="ann")))
    assert agent.state.values == {"q": "y"}
    assert [line for line in caplog.messages if "came too late" in line and "ClaimedError" in line]


async def test_the_first_word_of_two_threads_counts(store: HopStore) -> None:
    """Before the run has kept it a second answer is refused with the first one, and the same key is one answer."""
    agent = Agent(ask("q"), Desk, store=store)
    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run)
            while not agent.interaction.pending:
                await checkpoint()
            say, id = agent.interaction.answer_nowait, agent.interaction.pending[0].id
            first = say(Answer(None, "x", key="k"))
            assert say(Answer(None, "x", key="k")) == first
            with pytest.raises(AlreadyAnsweredError):
                say(Answer(id, "y"))
    assert agent.state.values == {"q": "x"}


async def test_what_cannot_be_kept_waits_for_the_next_call(store: HopStore) -> None:
    """The store fails when an answer is to be kept: the run ends with that error, and recover() goes on with it."""
    agent = Agent(ask("q"), Desk, store=store)
    raised: list[StoreError] = []

    async def run() -> None:
        try:
            await agent.run(thread_id="t")
        except StoreError as error:
            raised.append(error)

    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            while not agent.interaction.pending:
                await checkpoint()
            store.fail_at = range(store.count + 1, store.count + 1000)
            agent.interaction.answer_nowait(Answer(None, "x"))
        store.fail_at = ()
        assert len(raised) == 1
        await agent.load("t")
        assert (await agent.recover("t")).output["values"] == {"q": "x"}


async def test_steps_keep_what_threads_say_and_what_deadlines_do(store: HopStore) -> None:
    """An answer and a deadline between two steps are in the store before the second one uses them."""
    clock = VirtualClock()
    tree = seq("s", ask("q"), ask("r", expires=[default("late", after=5)]), ask("last"))
    agent = Agent(tree, Desk, store=store, clock=clock)
    with anyio.fail_after(WITHIN):
        async with agent:
            await agent.step(thread_id="t")
            agent.interaction.answer_nowait(Answer(None, "yes"))
            await agent.step(thread_id="t")
            assert await store.asked() == [("answered", True), ("open", False)]
            await clock.advance(10)
            await agent.step(thread_id="t")
            assert agent.state.values == {"q": "yes", "r": "late"}
            assert await store.asked() == [("answered", True), ("expired", True), ("open", False)]


async def test_an_answer_of_ones_own_is_not_counted_twice_as_mail(tmp_path: Path) -> None:
    """The store's reply comes after the next look for mail: an answer from elsewhere is noticed all the same."""

    class Late(HopStore):
        async def move(self, *args: Any, **options: Any) -> bool:
            is_done = await super().move(*args, **options)
            await looked.wait()
            return is_done

        async def mail(self, thread_id: str) -> int:
            found = await super().mail(thread_id)
            if len(found_mail) > 1 and found_mail[-1] == found == 1:
                looked.set()
            found_mail.append(found)
            return found

    looked, found_mail = anyio.Event(), list[int]()
    store = Late(tmp_path / "runs.db", hops=0)
    agent = Agent(par("p", ask("q"), ask("r")), Desk, store=store, poll_answers=0.01)
    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run(thread_id="t"))
            while len(agent.interaction.pending) < 2:
                await checkpoint()
            first, second = (question.id for question in agent.interaction.pending)
            await agent.interaction.answer(Answer(first, "x"))
            await HopStore(store.place).inbox.answer(Answer(second, "y"))
    assert agent.state.values == {"q": "x", "r": "y"}
