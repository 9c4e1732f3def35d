"""Threads that an agent takes, keeps over a block, gives back, edits and saves, on stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.interaction import Request
from jianmu.engine.limits import Limits
from jianmu.engine.node import AsyncNode
from jianmu.engine.questions import Answer
from jianmu.errors import AlreadyAnsweredError, SetupError, StateWriteError, StoreError, ThreadBusyError
from jianmu.nodes import ForEach, Repeat, Retry
from jianmu.stores import MemoryStore
from tests.anystore import Stores, each_store
from tests.cases.leaves import nothing_left
from tests.cases.people import RUNNING, SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, seq


def build() -> Behaviour:
    """Return a question beside a leaf that has finished."""
    return par("main", Note("n", []), ask("q"))


def agent(any_store: Stores, **options: Any) -> Agent[Any]:
    """Return one more agent on the store."""
    return Agent(build(), Desk, store=any_store(), **options)


async def is_held(any_store: Stores, thread_id: str) -> bool:
    """Whether somebody holds a thread."""
    row = await any_store.reader().thread(thread_id)
    return row is not None and row.is_held


# Blocks


@each_store
@pytest.mark.anyio
async def test_a_block_holds_the_thread_over_its_steps(any_store: Stores) -> None:
    """Each step is saved; others are told that it is busy; after the block it is free, as it was left."""
    mine, other = agent(any_store), agent(any_store)
    with anyio.fail_after(10):
        with nothing_left(mine):
            async with mine:
                await mine.step({"note": "a"}, thread_id="t1")
                assert await is_held(any_store, "t1")
                assert (await any_store.reader().show("t1")).fields["note"] == "a"
                with pytest.raises(ThreadBusyError):
                    await other.resume("x", thread_id="t1")
                await mine.step({"note": "b"})
                await mine.save()
        assert not await is_held(any_store, "t1")
        view = await any_store.reader().show("t1")
        assert (view.status, view.fields["note"], view.questions) == ("suspended", "b", 1)
        assert (await other.resume("x", thread_id="t1")).status is SUCCESS


@each_store
@pytest.mark.anyio
async def test_a_block_that_turns_to_another_thread_gives_the_first_one_back(any_store: Stores) -> None:
    """One thread is held at a time."""
    mine, other = agent(any_store), agent(any_store)
    with anyio.fail_after(10):
        async with mine:
            await mine.step({"note": "one"}, thread_id="t1")
            await mine.step({"note": "two"}, thread_id="t2")
            assert [await is_held(any_store, name) for name in ("t1", "t2")] == [False, True]
            assert (await other.resume("x", thread_id="t1")).status is SUCCESS
            await mine.load("t1")
            assert (mine.state.note, mine.state.values) == ("one", {"q": "x"})
        assert not await is_held(any_store, "t2")
        assert (await any_store.reader().show("t2")).fields["note"] == "two"


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["exception", "refused step"])
async def test_a_block_that_is_left_by_an_error_gives_the_thread_back(any_store: Stores, how: str) -> None:
    """Whatever ends the block: what was saved stays, and another agent goes on."""
    mine = Agent(par("main", Work("w", [], 60), ask("q")), Desk, store=any_store(), clock=VirtualClock())

    async def work() -> None:
        async with mine:
            await mine.step({"note": "a"}, thread_id="t1")
            if how == "exception":
                raise LookupError
            await mine.step({"note": 5})

    with anyio.fail_after(10), nothing_left(mine):
        with pytest.raises((LookupError, StateWriteError)):
            await work()
        assert not await is_held(any_store, "t1")
        view = await any_store.reader().show("t1")
        assert (view.status, view.fields["note"], view.position["main/w"]) == ("interrupted", "a", "RUNNING")
        other = Agent(
            par("main", Work("w", [], 60), ask("q")), Desk, store=any_store(), clock=VirtualClock(autojump=True)
        )
        assert (await other.recover("t1")).suspended


# Several at once


@pytest.mark.anyio
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.full)])
async def test_one_store_serves_many_agents_at_once(any_store: Stores, count: int) -> None:
    """Each agent has a thread of its own; all run on one loop, over one store; none sees anything of another."""
    store = any_store()
    found: dict[str, Any] = {}

    async def one(name: str) -> None:
        tree = seq("main", Work("a", [], 0.01), ask("q"), Work("b", [], 0.01))
        mine = Agent(tree, Desk, store=store)
        await mine.run_until_suspend({"note": name}, thread_id=name)
        outcome = await mine.resume(f"for {name}")
        found[name] = (outcome.status, outcome.output["note"], outcome.output["values"], outcome.output["log"])

    names = [f"t{number}" for number in range(count)]
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(one, name)
        assert found == {name: (SUCCESS, name, {"q": f"for {name}"}, ["a", "b"]) for name in names}
        assert len(await store.list("finished", limit=1000)) == count


@each_store
@pytest.mark.anyio
@pytest.mark.parametrize("asking", [ask, AskInside])
async def test_an_answer_in_memory_gives_way_to_one_that_the_store_had_first(any_store: Stores, asking: Any) -> None:
    """`answer_nowait` was accepted here; in the store somebody else was first: the node gets that one's answer."""
    mine = Agent(seq("main", asking("q")), Desk, store=any_store(), poll_answers=60)
    reader = any_store.reader()

    async def people() -> None:
        while not mine.interaction.pending:  # noqa: ASYNC110  # until the question is shown
            await anyio.sleep(0.01)
        id = mine.interaction.pending[0].id
        await reader.inbox.answer(Answer(id, "first"))
        await anyio.to_thread.run_sync(mine.interaction.answer_nowait, Answer(id, "second"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(people)
            assert await mine.run(thread_id="t1") is SUCCESS
        assert mine.state.values == {"q": "first"}
        assert (await reader.show("t1")).fields["values"] == {"q": "first"}


@each_store
@pytest.mark.anyio
async def test_answers_of_a_live_run_are_kept_before_they_are_used(any_store: Stores) -> None:
    """By the agent, awaited or from a thread, and refused if they come again: memory and store say the same."""
    mine = Agent(par("main", ask("a"), AskInside("b")), Desk, store=any_store(), poll_answers=60)
    reader = any_store.reader()

    async def people() -> None:
        while len(mine.interaction.pending) < 2:  # noqa: ASYNC110  # until the questions are shown
            await anyio.sleep(0.01)
        a, b = (question.id for question in mine.interaction.pending)
        await anyio.to_thread.run_sync(mine.interaction.answer_nowait, Answer(a, "A", by="ann"))
        (record,) = await mine.interaction.answer(Answer(b, "B", by="bob", key="k"))
        assert (record.status, record.answer and record.answer.by) == ("answered", "bob")
        assert (await mine.interaction.answer(Answer(b, "B", key="k")))[0].answer == record.answer
        for late in (mine.interaction.answer(Answer(b, "C")), reader.inbox.answer(Answer(b, "C"))):
            with pytest.raises(AlreadyAnsweredError) as told:
                await late
            assert told.value.record.answer == record.answer

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(people)
            assert await mine.run(thread_id="t1") is SUCCESS
        assert (await reader.show("t1")).fields["values"] == {"a": "A", "b": "B"}


# Threads at rest


@each_store
@pytest.mark.anyio
@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("is_again", [True, False])
async def test_a_thread_that_has_ended_is_due_to_nobody_once_it_was_looked_at(
    any_store: Stores, is_loaded: bool, is_again: bool
) -> None:
    """Killed between its end and its last look at the mail it stays due; whoever drives finds nothing to do, once."""
    mine, reader = Agent(seq("main", Note("n", [])), Desk, store=any_store()), any_store.reader()
    assert await mine.run(thread_id="t1", input_id="once") is SUCCESS
    late = "UPDATE threads SET mail = mail + 1, wake_at = 1.0 WHERE thread_id = ?"
    await reader.call("write", lambda say: say(late, ("t1",)) and None)
    assert await reader.due() == ["t1"]
    driver = Agent(seq("main", Note("n", [])), Desk, store=any_store()) if is_loaded else mine
    if is_again:
        assert await driver.run(thread_id="t1", input_id="once") is SUCCESS
    else:
        assert (await driver.recover("t1")).status is SUCCESS
    assert (await reader.due(), (await reader.show("t1")).run) == ([], 1)


@each_store
@pytest.mark.anyio
async def test_an_edit_is_saved_only_on_top_of_what_it_was_made_from(any_store: Stores) -> None:
    """Somebody went on meanwhile: the save is refused and says what to do; loaded again it is taken."""
    mine, other = agent(any_store), agent(any_store)
    with anyio.fail_after(10):
        await mine.run_until_suspend(thread_id="t1")
        await other.resume("x", thread_id="t1")
        mine.state_manager.update({"note": "mine"})
        kept = any_store.rows("t1")
        with pytest.raises(StoreError, match="load it again"):
            await mine.save()
        assert any_store.rows("t1") == kept
        await mine.load("t1")
        mine.state_manager.update({"note": "mine"})
        await mine.save()
        view = await any_store.reader().show("t1")
    assert (view.status, view.fields["note"], view.fields["values"]) == ("finished", "mine", {"q": "x"})


@each_store
@pytest.mark.anyio
async def test_an_edit_of_a_waiting_thread_leaves_its_question_open(any_store: Stores) -> None:
    """The thread is loaded, its state edited and saved; the answer goes on with the edited state, in any agent."""
    mine, editor = agent(any_store), agent(any_store)
    with anyio.fail_after(10):
        id = (await mine.run_until_suspend(thread_id="t1")).suspensions[0].id
        await editor.load("t1")
        editor.state_manager.update({"amount": 9})
        await editor.save()
        view = await any_store.reader().show("t1")
        assert (view.status, view.fields["amount"], [one.id for one in view.asked]) == ("suspended", 9, [id])
        assert not await is_held(any_store, "t1")
        assert (await mine.resume("x", suspension_id=id)).output["amount"] == 9


@pytest.mark.anyio
async def test_an_agent_inside_of_another_has_no_store_of_its_own() -> None:
    """It is kept in the outer one's thread: two stores would not agree on one moment."""
    inner = Agent(build(), Desk, store=MemoryStore())
    with pytest.raises(SetupError, match="give it no store"):
        inner.as_node("inner")


@each_store
@pytest.mark.anyio
async def test_limits_count_over_all_processes_of_a_run(any_store: Stores) -> None:
    """8 seconds: 3 before the question, 5 after it in another agent; then a recover with more goes on."""
    clock = VirtualClock(autojump=True)

    def limited(seconds: float) -> Agent[Any]:
        tree = seq("main", Work("a", [], 3), ask("q"), Work("b", [], 6))
        return Agent(tree, Desk, store=any_store(), clock=clock, limits=Limits(timeout=seconds))

    with anyio.fail_after(10):
        await limited(8).run_until_suspend(thread_id="t1")
        await clock.advance(3600)
        outcome = await limited(8).resume("x", thread_id="t1")
        assert (outcome.limit, clock.now()) == ("timeout", 3608)
        assert (await limited(8).recover("t1")).limit == "timeout"
        assert clock.now() == 3608
        assert (await limited(20).recover("t1")).status is SUCCESS
        assert (await any_store.reader().show("t1")).usage.seconds == pytest.approx(14)


# Without an event loop of the caller's


@each_store
def test_synchronous_callers_go_on_from_loop_to_loop(any_store: Stores) -> None:
    """Each call has a loop of its own; the store and the agent serve them one after the other."""
    done: list[str] = []

    async def talk(node: Any) -> None:
        done.append(node.name)

    mine = Agent(seq("main", Talk("t", talk), ask("q")), Desk, store=any_store())
    call = anyio.from_thread.start_blocking_portal
    with call() as portal:  # the fixtures' loop has this thread
        for at in range(3):
            first = portal.call(anyio.to_thread.run_sync, lambda at=at: mine.run_until_suspend_sync(thread_id=f"t{at}"))
            assert (first.status, first.suspended) == (RUNNING, True)
            last = portal.call(anyio.to_thread.run_sync, lambda: mine.resume_sync("x"))
            assert last.status is SUCCESS
    assert done == ["t"] * 3


class Checked(AsyncNode):
    """Succeeds if the answer is not 0."""

    async def update_async(self) -> Status:
        """Ask."""
        return SUCCESS if await self.ask(Request("How many?", answer=int), key="n") else Status.FAILURE


def rounds() -> Behaviour:
    """Return a loop of two questions."""
    return Repeat("rounds", Checked("ask"), times=2)


def built_late() -> Behaviour:
    """Return such a loop in the body of a ForEach, which makes it anew in each of its entries."""
    return ForEach("each", lambda *_: rounds(), over=lambda _: ["it"])


@each_store
@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("below", [rounds, built_late])
@pytest.mark.anyio
async def test_what_an_attempt_asks_again_in_a_closed_round_is_a_question_of_its_own(
    any_store: Stores, is_loaded: bool, below: Callable[[], Behaviour]
) -> None:
    """A Retry begins a Repeat anew, whose rounds have the numbers that they had: no old answer counts."""

    def fresh() -> Agent[Any]:
        return Agent(Retry("try", below(), attempts=2), Desk, store=any_store())

    agent, ids = fresh(), list[str]()
    with anyio.fail_after(20):
        outcome = await agent.run_until_suspend(thread_id="t1")
        for answer in (1, 0, 1):
            (asked,) = outcome.suspensions
            assert [one.id for one in await any_store.reader().inbox.pending()] == [asked.id]
            ids.append(asked.id)
            agent = fresh() if is_loaded else agent
            for old in ids[:-1]:
                with pytest.raises(AlreadyAnsweredError):
                    await any_store.reader().inbox.answer(Answer(old, 1))
            outcome = await agent.resume(answer, thread_id="t1")
    assert len({*ids}) == 3
    assert (outcome.status, outcome.suspended) == (Status.FAILURE, False)


@each_store
@pytest.mark.anyio
async def test_ids_of_questions_do_not_depend_on_what_the_agent_has_done_in_other_threads(any_store: Stores) -> None:
    """An agent that has served one thread asks in another one under the ids of an agent that has not."""

    def fresh() -> Agent[Any]:
        return Agent(Retry("try", rounds(), attempts=2), Desk, store=any_store())

    async def asked(agent: Agent[Any], thread_id: str, *answers: int) -> list[str]:
        outcome = await agent.run_until_suspend(thread_id=thread_id)
        ids = [one.id for one in outcome.suspensions]
        for answer in answers:
            outcome = await agent.resume(answer)
            ids += [one.id for one in outcome.suspensions]
        return ids

    used = fresh()
    with anyio.fail_after(20):
        await asked(used, "other", 1, 0, 1)
        here = await asked(used, "t1", 1, 0)
        await any_store.reader().delete("t1")
        assert await asked(fresh(), "t1", 1, 0) == here


@pytest.mark.anyio
async def test_in_memory_alone_a_closed_round_is_forgotten_too() -> None:
    """Without a store the same is asked anew, under other ids, also after a dump in between; a new run counts anew."""

    def fresh() -> Agent[Any]:
        return Agent(Retry("try", Repeat("rounds", Checked("ask"), times=2), attempts=2), Desk)

    async def asked(*, is_dumped: bool) -> tuple[list[str], Agent[Any]]:
        agent, ids = fresh(), list[str]()
        outcome = await agent.run_until_suspend(thread_id="t1")
        for answer in (1, 0, 1):
            ids += [one.id for one in outcome.suspensions]
            if is_dumped:
                data, agent = agent.dump_checkpoint(), fresh()
                agent.load_checkpoint(data)
            outcome = await agent.resume(answer)
        assert (outcome.status, outcome.suspended) == (Status.FAILURE, False)
        return ids, agent

    with anyio.fail_after(10):
        (here, agent), (elsewhere, _) = await asked(is_dumped=False), await asked(is_dumped=True)
        assert len({*here}) == 3
        assert here == elsewhere
        (first,) = (await agent.run_until_suspend(thread_id="t1")).suspensions
    assert agent.interaction.record(first.id).count == 0
