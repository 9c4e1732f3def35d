"""New input to a thread of a store: policy queue (I14, I25), input ids (T04), and a run that is still ending (K27)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.outcome import Outcome
from jianmu.errors import (
    InputError,
    StateWriteError,
    ThreadBusyError,
    UnfinishedRunError,
    WithdrawnError,
)
from tests.anystore import Stores, each_store
from tests.cases.leaves import Do
from tests.cases.people import FAILURE, RUNNING, SUCCESS, AskInside, Desk, Note, Work, ask, par, seq

pytestmark = pytest.mark.anyio
each_asking = pytest.mark.parametrize("asking", [ask, AskInside])


class Room:
    """A tree, its clock, and agents on it that share nothing but the store.

    Args:
        stores: the stores.
        build: makes the tree.
    """

    def __init__(self, stores: Stores, build: Any) -> None:
        self.stores = stores
        self.build = build
        self.clock = VirtualClock(autojump=True)

    def agent(self, **options: Any) -> Agent[Any]:
        """Return one more agent."""
        return Agent(self.build(), Desk, store=self.stores(), clock=self.clock, **options)

    async def give(self, input: dict[str, Any], **call: Any) -> Outcome:
        """Give input to the thread by an agent of its own."""
        return await self.agent().run_until_suspend(input, thread_id="t1", **call)

    async def resume(self, answer: Any, **call: Any) -> Outcome:
        """Answer by an agent of its own."""
        return await self.agent().resume(answer, thread_id="t1", **call)

    async def fields(self) -> dict[str, Any]:
        """Return the fields of the thread's state."""
        return (await self.stores.reader().show("t1")).fields


def noted(seen: list[Any]) -> Do:
    """Return a leaf that notes what it reads."""
    return Do("look", lambda node: seen.append((node.read_state().note, list(node.read_state().log))))


@each_store
@each_asking
async def test_i14_a_queued_input_is_applied_after_the_answer(any_store: Stores, asking: Any) -> None:
    """The call returns the suspended outcome and changes nothing; after the answer was consumed it is applied, once."""
    seen: list[Any] = []
    room = Room(any_store, lambda: seq("main", asking("q"), Work("w", []), noted(seen)))
    with anyio.fail_after(10):
        first = await room.give({"note": "first"})
        outcome = await room.give({"note": "hi"}, on_new_input="queue")
        assert (outcome.status, outcome.suspended, outcome.suspensions) == (RUNNING, True, first.suspensions)
        assert (await room.fields())["note"] == "first"
        assert (await room.stores.reader().show("t1")).inputs == ({"note": "hi"},)
        end = await room.resume("x")
        assert (end.status, seen) == (SUCCESS, [("hi", ["w"])])
        assert (await room.fields())["values"] == {"q": "x"}
        assert (await room.stores.reader().show("t1")).inputs == ()
        assert (await room.agent().recover("t1")).status is SUCCESS
    assert len(seen) == 1


@each_store
async def test_i25_queued_inputs_are_applied_in_order(any_store: Stores) -> None:
    """Two inputs come while two questions are open: 1, then 2, after the last one was consumed."""
    seen: list[Any] = []
    room = Room(any_store, lambda: seq("main", par("both", ask("a"), AskInside("b")), Work("w", []), noted(seen)))
    with anyio.fail_after(10):
        first = await room.give({})
        for text in ("1", "2"):
            outcome = await room.give({"log": [text], "note": text}, on_new_input="queue")
            assert outcome.suspensions == first.suspensions
        for question in first.suspensions:
            assert (await room.fields())["log"] == []
            outcome = await room.resume("x", suspension_id=question.id)
        assert outcome.status is SUCCESS
    assert seen[0][0] == "2"
    assert [text for text in seen[0][1] if text != "w"] == ["1", "2"]


async def test_a_queued_input_for_a_run_that_ends_with_its_answer_begins_the_next(any_store: Stores) -> None:
    """Nothing comes after the question: each input is a run of its own, in order, and asks again."""
    room = Room(any_store, lambda: seq("main", noted(seen), ask("q")))
    seen: list[Any] = []
    with anyio.fail_after(10):
        asked = [(await room.give({"note": "0"})).suspensions[0].id]
        for text in ("1", "2"):
            await room.give({"note": text}, on_new_input="queue", input_id=f"id {text}")
            await room.give({"note": text}, on_new_input="queue", input_id=f"id {text}")  # delivered twice
        for turn in range(2):
            outcome = await room.resume(f"answer {turn}")
            assert outcome.suspended
            asked.append(outcome.suspensions[0].id)
        assert (await room.resume("answer 2")).status is SUCCESS
        view = await room.stores.reader().show("t1")
        assert (view.run, view.status, view.inputs) == (3, "finished", ())
        assert (await room.give({"note": "1"}, input_id="id 1")).status is SUCCESS
    assert [note for note, _ in seen] == ["0", "1", "2"]
    assert len(set(asked)) == 3


@each_store
async def test_an_input_is_queued_while_another_holds_the_thread(any_store: Stores) -> None:
    """Refuse and withdraw are ThreadBusyErrors that change nothing; a queued one is the next run of the holder."""
    seen: list[Any] = []
    room = Room(any_store, lambda: seq("main", noted(seen), Work("w", [], 10)))
    agent = room.agent()
    outcomes: list[Any] = []

    async def run() -> None:
        outcomes.append(await agent.run_until_suspend({"note": "first"}, thread_id="t1"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await room.clock.sleep(1)
            for policy in ("refuse", "withdraw", None):
                with pytest.raises(ThreadBusyError, match="answer"):
                    await room.give({"note": "no"}, on_new_input=policy)
            for call in (room.agent().recover("t1"), room.resume("x")):
                with pytest.raises(ThreadBusyError):
                    await call
            queued = await room.give({"note": "second"}, on_new_input="queue")
            assert (queued.status, queued.thread_id) == (RUNNING, "t1")
        assert (outcomes[0].status, room.clock.now()) == (SUCCESS, 20)
    assert [note for note, _ in seen] == ["first", "second"]


async def test_what_cannot_be_queued_is_refused_before_anything(any_store: Stores) -> None:
    """Values without a JSON form, unknown fields, internal keys: an error, and no row."""
    room = Room(any_store, lambda: seq("main", ask("q")))
    with anyio.fail_after(10):
        await room.give({})
        before = any_store.rows("t1")
        for wrong in ({"values": {"x": object()}}, {"note": "\ud800"}, {"interaction.resume_payloads": {}}):
            with pytest.raises((InputError, StateWriteError)):
                await room.give(wrong, on_new_input="queue")
            assert any_store.rows("t1") == before


class Older(Desk):
    """The schema of a process that took more."""

    note: str | int = ""
    gone: int = 0


@pytest.mark.parametrize("wrong", [{"note": 5}, {"gone": 1}])
async def test_a_queued_input_that_the_state_refuses_stops_nothing(any_store: Stores, wrong: dict[str, Any]) -> None:
    """It was taken in by a program with another schema: it is passed over, and the next one is applied."""
    seen: list[Any] = []
    room = Room(any_store, lambda: seq("main", ask("q"), Work("w", []), Work("v", []), noted(seen)))
    with anyio.fail_after(10):
        await room.give({})
        older = Agent(seq("main", ask("q"), Work("w", []), Work("v", [])), Older, store=any_store())
        await older.run_until_suspend(wrong, thread_id="t1", on_new_input="queue")
        await room.give({"note": "good"}, on_new_input="queue")
        assert (await room.resume("x")).status is SUCCESS
    assert [note for note, _ in seen] == ["good"]


# The same input again


@each_store
async def test_t04_an_input_that_is_delivered_again_is_applied_once(any_store: Stores) -> None:
    """After the end: its outcome, and nothing runs. While it is suspended: it goes on, and asks nothing anew."""
    done: list[str] = []
    room = Room(any_store, lambda: seq("main", Note("before", done), ask("q"), Note("after", done)))
    with anyio.fail_after(10):
        first = await room.give({"note": "a"}, input_id="i1")
        again = await room.give({"note": "a"}, input_id="i1")
        assert (again.suspended, again.suspensions) == (True, first.suspensions)
        end = await room.resume("x")
        for other in ({"note": "a"}, {"note": "other"}):
            told = await room.give(other, input_id="i1")
            assert (told.status, told.suspended, told.output, told.thread_id) == (SUCCESS, False, end.output, "t1")
        assert await room.agent().run({"note": "a"}, thread_id="t1", input_id="i1") is SUCCESS
        view = await room.stores.reader().show("t1")
        assert (view.run, view.fields["note"], done) == (1, "a", ["before", "after"])
        assert (await room.give({"note": "b"}, input_id="i2")).suspended
        assert (await room.give({"note": "a"}, input_id="i1")).output == end.output
        view = await room.stores.reader().show("t1")
    assert (view.run, view.status, done) == (2, "suspended", ["before", "after", "before"])


async def test_a_failed_run_is_told_as_failed_to_the_same_input(any_store: Stores) -> None:
    """FAILURE and the output of then, also after other runs of the thread."""

    def copied(node: Any) -> None:
        node.write_state({"log": [node.read_state().note]})

    room = Room(any_store, lambda: seq("main", Do("n", copied), Note("fail", [], FAILURE)))
    with anyio.fail_after(10):
        first = await room.give({"note": "a"}, input_id="i1")
        await room.give({"note": "b"}, input_id="i2")
        again = await room.give({"note": "a"}, input_id="i1")
    assert (first.status, again.status, again.output) == (FAILURE, FAILURE, first.output)
    assert again.output["log"] == ["a", "fail"]


@pytest.mark.parametrize("how", ["cancel", "halt", "limit", "error"])
async def test_an_input_whose_run_was_cut_short_goes_on_when_it_comes_again(any_store: Stores, how: str) -> None:
    """As `recover` does; other input is refused with the word to write, or withdraws the run."""
    done: list[str] = []
    broken = [how == "error"]

    def maybe(_: Any) -> None:
        if broken.pop() if broken else False:
            raise ZeroDivisionError

    room = Room(any_store, lambda: seq("main", Work("a", done, 1), Work("b", done, 10), Do("m", maybe)))
    agent = room.agent(limits=Limits(timeout=3) if how == "limit" else None)

    async def stop() -> None:
        await room.clock.sleep(3)
        if how == "halt":
            agent.halt()
        elif how == "cancel":
            scope.cancel()

    with anyio.fail_after(10):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(stop)
                try:
                    await agent.run_until_suspend({"note": "a"}, thread_id="t1", input_id="i1")
                except ZeroDivisionError:
                    assert how == "error"
        view = await room.stores.reader().show("t1")
        assert (view.status, view.fields["note"]) == ("interrupted", "a")
        with pytest.raises(UnfinishedRunError, match=r"recover\('t1'\)"):
            await room.give({"note": "b"}, input_id="i2")
        assert (await room.give({"note": "a"}, input_id="i1")).status is SUCCESS
    assert done == ["a", "b"]


@each_store
async def test_a_refused_input_takes_its_id_with_it(any_store: Stores) -> None:
    """Nothing was written, so the mended input under the same id is the first."""
    room = Room(any_store, lambda: seq("main", Note("n", [])))
    with anyio.fail_after(10):
        with pytest.raises(StateWriteError):
            await room.give({"note": 5}, input_id="i1")
        assert any_store.rows("t1") == {}
        assert (await room.give({"note": "five"}, input_id="i1")).status is SUCCESS
        assert (await room.fields())["note"] == "five"


@each_store
@each_asking
async def test_i14_withdrawing_input_ends_what_an_interrupted_run_has_asked(any_store: Stores, asking: Any) -> None:
    """The question of a run that was halted is withdrawn with it, everywhere; a late answer is refused."""
    room = Room(any_store, lambda: par("main", asking("q"), Work("w", [], 10)))
    agent = room.agent()
    with anyio.fail_after(10):
        outcome = await agent.run_until_suspend({"note": "a"}, thread_id="t1", limits=Limits(timeout=3))
        assert outcome.limit == "timeout"
        old = (await any_store.reader().inbox.pending())[0].id
        fresh = await room.give({"note": "b"}, on_new_input="withdraw")
        assert [one.id != old for one in fresh.suspensions] == [True]
        for late in (room.resume("late", suspension_id=old), any_store.reader().inbox.withdraw(old)):
            with pytest.raises(WithdrawnError):
                await late
        assert [one.id for one in await any_store.reader().inbox.pending()] == [fresh.suspensions[0].id]
        assert (await room.resume("x")).status is SUCCESS
        view = await room.stores.reader().show("t1")
    assert (view.run, view.fields["note"], view.fields["values"]) == (2, "b", {"q": "x"})


# A run that is still ending


@each_store
async def test_k27_a_run_that_is_still_cleaning_up_keeps_its_thread(any_store: Stores) -> None:
    """A is cancelled at 1 and cleans up until 2: B is refused at 1.1; at 2.1 it works, and A writes nothing more."""
    done: list[str] = []

    class Slow(Work):
        async def cleanup(self) -> None:
            await self.context.clock.sleep(1)
            self.write_state({"note": "cleaned"})

    def build() -> Behaviour:
        return seq("main", Slow("w", done, 10))

    room = Room(any_store, build)
    first, found = room.agent(), []

    async def other() -> None:
        await room.clock.sleep(1)
        scope.cancel()
        await room.clock.sleep(0.1)
        with pytest.raises(ThreadBusyError):
            await room.give({"amount": 7}, on_new_input="withdraw")
        await over.wait()
        await room.clock.advance(0.1)
        found.append(room.clock.now())
        found.append(await room.fields())
        agent = Agent(build(), Desk, store=any_store(), clock=room.clock)
        found.append(await agent.run({"amount": 7}, thread_id="t1", on_new_input="withdraw"))

    scope, over = anyio.CancelScope(), anyio.Event()

    async def run() -> None:
        with scope:
            await first.run({"amount": 6}, thread_id="t1")
        over.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            group.start_soon(other)
        at, kept, end = found
        assert (at, kept["note"], kept["amount"], end) == (2.1, "cleaned", 6, SUCCESS)
        after = any_store.rows("t1")
        await room.clock.advance(60)
        assert any_store.rows("t1") == after
        view = await room.stores.reader().show("t1")
    assert (view.run, view.status, view.fields["amount"], view.fields["log"]) == (2, "finished", 7, ["w"])
    assert scope.cancelled_caught
