"""How runs end on a store (durability.md, section 5), what is due afterwards, and what `recover` does; K36, I13."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request, default, escalate, fail
from jianmu.errors import LimitExceeded, UnfinishedRunError, UnknownThreadError
from jianmu.nodes import Finally
from jianmu.stores.history import ThreadView
from tests.anystore import Stores, each_store
from tests.cases.leaves import nothing_left
from tests.cases.people import FAILURE, INVALID, SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, sel, seq

pytestmark = pytest.mark.anyio
each_level = pytest.mark.parametrize("level", ["sync", "async", "exit"])


class Scene:
    """A Parallel of a line of three and a question, in a Finally; the second of the line ends the run as is wanted.

    Args:
        stores: the stores.
        level: when passes are saved.
    """

    def __init__(self, stores: Stores, level: Any) -> None:
        self.stores = stores
        self.level = level
        self.clock = VirtualClock(autojump=True)
        self.done: list[str] = []
        self.end = ""

    def build(self) -> Behaviour:
        """Return the tree."""
        scene = self

        class Middle(Work):
            async def update_async(self) -> Any:
                scene.done.append("B entered")
                self.write_state({"amount": 50})
                await self.context.clock.sleep(5)
                if scene.end == "exception":
                    raise ZeroDivisionError("divided")
                await self.context.clock.sleep(5)
                return FAILURE if scene.end == "failure" else SUCCESS

            async def cleanup(self) -> None:
                await self.context.clock.sleep(1)
                self.write_state({"note": "cleaned"})

        line = seq("line", Note("A", self.done), Middle("B", self.done), Note("C", self.done))
        return Finally("main", par("both", line, ask("q")), lambda _: self.done.append("finally"))

    def agent(self, **options: Any) -> Agent[Any]:
        """Return one more agent on the thread's store."""
        return Agent(self.build(), Desk, store=self.stores(), clock=self.clock, durability=self.level, **options)

    async def view(self) -> ThreadView:
        """Return how the thread stands."""
        return await self.stores.reader().show("t1")


async def by_halt(scene: Scene, agent: Agent[Any]) -> None:
    """Halt the run from another thread at 3."""

    async def halt() -> None:
        await scene.clock.sleep(3)
        other = threading.Thread(target=agent.halt)
        other.start()
        other.join()  # at once: the virtual clock would jump while this task waits

    async with anyio.create_task_group() as group:
        group.start_soon(halt)
        assert await agent.run(thread_id="t1") is INVALID


async def by_cancel(scene: Scene, agent: Agent[Any]) -> None:
    """Cancel the run at 3."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                await scene.clock.sleep(3)
                scope.cancel()

            group.start_soon(cancel)
            await agent.run(thread_id="t1")
    assert scope.cancelled_caught


async def by_limit(scene: Scene, agent: Agent[Any]) -> None:
    """Let a limit of 3 seconds be used up."""
    with pytest.raises(LimitExceeded):
        await agent.run(thread_id="t1", limits=Limits(timeout=3))


async def by_exception(scene: Scene, agent: Agent[Any]) -> None:
    """Have the node raise at 5."""
    scene.end = "exception"
    with pytest.raises(ZeroDivisionError):
        await agent.run(thread_id="t1")
    scene.end = ""


CUTS: dict[str, tuple[Callable[[Scene, Agent[Any]], Any], dict[str, str | None] | None]] = {
    "halt": (by_halt, None),
    "cancel": (by_cancel, None),
    "limit": (by_limit, {"type": "LimitExceeded", "path": None}),
    "exception": (by_exception, {"type": "ZeroDivisionError", "text": "divided", "path": "main/both/line/B"}),
}


@each_store
@each_level
@pytest.mark.parametrize("how", CUTS)
async def test_k36_a_run_that_was_cut_short_is_parked_and_gone_on_with(any_store: Stores, level: Any, how: str) -> None:
    """Position before the halt, state after the cleanup, question open, Finally ran; then B from its top, C, answer."""
    cut, error = CUTS[how]
    scene = Scene(any_store, level)
    agent = scene.agent()
    with anyio.fail_after(10):
        with nothing_left(agent):
            await cut(scene, agent)
        view = await scene.view()
        assert (view.status, view.questions, view.waiting) == ("interrupted", 1, ("main/both/q",))
        assert (view.fields["amount"], view.fields["note"]) == (50, "" if how == "exception" else "cleaned")
        assert view.position["main/both/line/A"] == "SUCCESS"
        assert view.position["main/both/line/B"] == "RUNNING"
        assert (error or {}).items() <= (view.error or {}).items()
        assert (view.holder, view.error is None) == (None, error is None)
        assert scene.done == ["A", "B entered", "finally"]
        with pytest.raises(UnfinishedRunError, match=r"recover|resume"):
            await scene.agent().run(thread_id="t1")
        scene.done.clear()
        outcome = await scene.agent().recover("t1")
        assert [one.id for one in outcome.suspensions] == [view.asked[0].id]
        assert scene.done == ["B entered", "C"]
        assert (await scene.agent().resume("x", thread_id="t1")).status is SUCCESS
        view = await scene.view()
    assert scene.done == ["B entered", "C", "finally"]
    assert (view.status, view.questions, view.position, view.error) == ("finished", 0, {}, None)


@each_store
async def test_a_run_that_was_cut_short_can_be_answered_first(any_store: Stores) -> None:
    """An answer to the open question of an interrupted run makes its thread due; `recover` uses it."""
    scene = Scene(any_store, "async")
    with anyio.fail_after(10):
        await by_halt(scene, scene.agent())
        store = any_store.reader()
        now = scene.clock.utc()
        (question,) = await store.inbox.pending()
        await store.inbox.answer(Answer(question.id, "x"), now=now)
        assert await store.due(now) == ["t1"]
        assert (await scene.agent().recover("t1")).status is SUCCESS
        assert await store.due(now + timedelta(days=9)) == []
        assert (await scene.view()).fields["values"] == {"q": "x"}


@each_store
@each_level
async def test_a_run_that_is_cancelled_while_it_only_waits_stays_suspended(any_store: Stores, level: Any) -> None:
    """Position as it is, question open, Finally not run; another agent answers and goes on."""
    scene = Scene(any_store, level)
    agent = scene.agent()
    with anyio.fail_after(10):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await scene.clock.sleep(60)
                    scope.cancel()

                group.start_soon(cancel)
                await agent.run(thread_id="t1")
        view = await scene.view()
        assert (view.status, view.questions, view.holder) == ("suspended", 1, None)
        assert scene.done == ["A", "B entered", "C"]
        assert (await scene.agent().resume("x", thread_id="t1")).status is SUCCESS
    assert scene.done == ["A", "B entered", "C", "finally"]


@each_store
@each_level
@pytest.mark.parametrize("end", ["", "failure"])
async def test_a_run_that_has_ended_keeps_no_position_and_asks_nothing(any_store: Stores, level: Any, end: str) -> None:
    """SUCCESS and FAILURE: the state stays, all else is done with; `recover` tells the outcome and runs nothing."""
    scene = Scene(any_store, level)
    scene.end = end
    with anyio.fail_after(10):
        agent = scene.agent()
        first = await agent.run_until_suspend(thread_id="t1")
        if first.suspended:
            first = await agent.resume("x")
        view = await scene.view()
        status, name = (FAILURE, "failed") if end else (SUCCESS, "finished")
        assert (first.status, view.status, view.questions, view.position) == (status, name, 0, {})
        assert [row for row in any_store.rows("t1")["rows"] if row[2] == "effect" and row[5] is None] == []
        kept, done = any_store.rows("t1"), [*scene.done]
        again = await scene.agent().recover("t1")
        assert (again.status, again.output, again.suspended) == (status, first.output, False)
        assert (any_store.rows("t1"), scene.done) == (kept, done)
        with pytest.raises(UnknownThreadError):
            await scene.agent().recover("t2")


@each_store
async def test_a_reset_ends_the_run_in_the_store_too(any_store: Stores) -> None:
    """Questions are withdrawn, no position is kept; with `state=True` the defaults are stored."""
    scene = Scene(any_store, "async")
    with anyio.fail_after(10):
        agent = scene.agent()
        await agent.run_until_suspend({"amount": 9}, thread_id="t1")
        await agent.reset()
        view = await scene.view()
        assert (view.status, view.questions, view.position, view.fields["amount"]) == ("finished", 0, {}, 50)
        assert await any_store.reader().inbox.pending() == ()
        await agent.reset(state=True)
        assert (await scene.view()).fields["amount"] == 5
        assert (await scene.agent().run_until_suspend(thread_id="t1")).suspended


# Due


@each_store
async def test_i13_a_deadline_makes_a_thread_due_for_any_process(any_store: Stores) -> None:
    """Escalated by a sweep, not expired before its time; at the deadline due, moved once, and the fallback runs."""
    clock = VirtualClock()
    done: list[str] = []

    def agent() -> Agent[Any]:
        leaf = ask("q", expires=[escalate("boss", after=20), fail(after=40)], assignee="ann")
        return Agent(sel("main", leaf, Note("fallback", done)), Desk, store=any_store(), clock=clock)

    store = any_store.reader()
    with anyio.fail_after(10):
        outcome = await agent().run_until_suspend(thread_id="t1")
        start = clock.utc()
        assert outcome.wake_at == start + timedelta(seconds=20)
        assert await store.due(start + timedelta(seconds=19)) == []
        assert [one.assignee for one in await store.sweep(start + timedelta(seconds=20))] == ["boss"]
        assert [one.id for one in await store.inbox.pending(assignee="boss")] == [outcome.suspensions[0].id]
        await clock.advance(30)
        assert (await agent().recover("t1")).suspended
        assert await store.due(start + timedelta(seconds=59)) == []
        assert await store.due(start + timedelta(seconds=60)) == ["t1"]
        assert [one.status for one in await store.sweep(start + timedelta(seconds=60))] == ["expired"]
        assert await store.sweep(start + timedelta(seconds=60)) == ()
        await clock.advance(30)
        assert (await agent().recover("t1")).status is SUCCESS
        assert await store.due(start + timedelta(days=9)) == []
    assert done == ["fallback"]


@each_store
async def test_i24_a_default_of_the_deadline_reaches_the_node_by_a_sweep(any_store: Stores) -> None:
    """Nobody drives the thread at its deadline; the sweep ends the question with its default, then the node has it."""
    clock = VirtualClock()

    def agent() -> Agent[Any]:
        tree = par("main", ask("a", expires=[default("no", after=60)]), AskInside("b", expires=[default(3, after=90)]))
        return Agent(tree, Desk, store=any_store(), clock=clock)

    store = any_store.reader()
    with anyio.fail_after(10):
        await agent().run_until_suspend(thread_id="t1")
        await store.sweep(clock.utc() + timedelta(seconds=61))
        await clock.advance(61)
        assert (await agent().recover("t1")).wake_at == clock.utc() + timedelta(seconds=29)
        await store.sweep(clock.utc() + timedelta(seconds=29))
        await clock.advance(29)
        assert (await agent().recover("t1")).status is SUCCESS
        assert (await store.show("t1")).fields["values"] == {"a": "no", "b": 3}


@each_store
async def test_an_answer_from_another_process_wakes_a_live_run(any_store: Stores) -> None:
    """The run looks at the store again and again while it waits, and goes on with what came."""

    async def talk(node: Any) -> None:
        node.merge_dict("values", {"t": await node.ask(Request("t?"))})

    agent = Agent(par("main", Talk("t", talk), ask("q")), Desk, store=any_store(), poll_answers=0.02)
    store = any_store.reader()

    async def person() -> None:
        while len(found := await store.inbox.pending()) < 2:  # noqa: ASYNC110  # another process has no event of ours
            await anyio.sleep(0.01)
        for question in found:
            await store.inbox.answer(Answer(question.id, f"for {question.path}", by="ann"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(person)
            assert await agent.run(thread_id="t1") is SUCCESS
    assert agent.state.values == {"t": "for main/t", "q": "for main/q"}
