"""Cases of one writer: K09, K34, K35, leases that are lost or kept, and answers in the moment of release."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.to_thread
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import RunEnded
from jianmu.engine.holders import this_process
from jianmu.engine.inputs import queued_row
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request, fail
from jianmu.errors import LeaseLostError, NotAnsweredError, ThreadBusyError
from jianmu.nodes import Finally
from jianmu.stores.sql import SQLStore
from jianmu.stores.tables import Say
from jianmu.stores.writing import acquire, delete
from tests.anystore import Stores, each_store
from tests.cases.leaves import Do, events_of, nothing_left, of_kind
from tests.cases.people import FAILURE, INVALID, RUNNING, SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, seq

pytestmark = pytest.mark.anyio


async def until(claim: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something has come true outside of this task."""
    while not await claim():  # noqa: ASYNC110  # what is waited for is in a store
        await anyio.sleep(0.01)


# Two at once


@each_store
async def test_k09_of_two_that_resume_one_goes_on(any_store: Stores) -> None:
    """The other is told that the thread is busy; the effect happens once, with the answer of the one that went on."""
    paid: list[Any] = []
    begun, go = anyio.Event(), anyio.Event()

    def build() -> Behaviour:
        async def pay() -> str:
            paid.append("paid")
            begun.set()
            await go.wait()
            return "paid"

        async def talk(node: Any) -> None:
            await node.once("pay", pay)

        return seq("main", ask("q"), Talk("pay", talk))

    def agent() -> Agent[Any]:
        return Agent(build(), Desk, store=any_store())

    outcomes: list[Any] = []

    async def first() -> None:
        outcomes.append(await agent().resume("one", thread_id="t1"))

    with anyio.fail_after(10):
        await agent().run_until_suspend(thread_id="t1")
        before = agent()
        await before.load("t1")
        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await begun.wait()
            other = agent()
            for call in (
                lambda: other.resume("two", thread_id="t1"),
                lambda: before.resume("two"),
                lambda: other.recover("t1"),
                lambda: other.run(thread_id="t1"),
                lambda: other.step(thread_id="t1", settle=True),
                before.save,
                before.reset,
            ):
                with pytest.raises(ThreadBusyError, match=r"answer\("):
                    await call()
            go.set()
        assert (await other.recover("t1")).status is SUCCESS
        assert (await any_store().show("t1")).fields["values"] == {"q": "one"}
    assert (outcomes[0].status, paid) == (SUCCESS, ["paid"])


@each_store
async def test_recover_waits_for_another_holder(any_store: Stores) -> None:
    """`wait=True` goes on as soon as the thread is given back, and finds what the other one left."""
    go = anyio.Event()

    async def work(_: Any) -> None:
        await go.wait()

    def agent() -> Agent[Any]:
        return Agent(seq("main", Talk("w", work), ask("q")), Desk, store=any_store())

    async def first() -> None:
        order.append(("first", (await agent().run_until_suspend(thread_id="t1")).suspended))

    async def second() -> None:
        order.append(("second", (await agent().recover("t1", wait=True)).suspended))

    order: list[Any] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await until(lambda: _is_held(any_store.reader()))
            group.start_soon(second)
            await anyio.wait_all_tasks_blocked()
            assert order == []
            go.set()
    assert order == [("first", True), ("second", True)]


async def _is_held(store: SQLStore) -> bool:
    row = await store.thread("t1")
    return row is not None and row.is_held


# Leases that are lost


def run_out(say: Say) -> None:
    """Have the lease of the thread run out, as time does for a holder that has stood still."""
    say("UPDATE threads SET lease_until = 0 WHERE thread_id = 't1'")


def steal(store: SQLStore) -> int:
    """Take the thread when its lease has run out, before it is renewed; return the fence."""

    def work(say: Say) -> int:
        run_out(say)
        return acquire(say, "t1", this_process("other"), 30, create=False).fence

    return store.work("write", work)


def kill(store: SQLStore) -> None:
    """Delete the thread when its lease has run out."""

    def work(say: Say) -> None:
        run_out(say)
        assert delete(say, "t1")

    store.work("write", work)


@each_store
@pytest.mark.parametrize("level", ["sync", "async", "exit"])
@pytest.mark.parametrize("then", ["taken over", "deleted", "made anew"])
async def test_k35_a_holder_that_lost_its_lease_writes_nothing_more(any_store: Stores, level: Any, then: str) -> None:
    """It gets a LeaseLostError; its cleanups run, in memory only; the store has nothing of it, and it can run again."""
    clock = VirtualClock(autojump=True)
    done: list[str] = []
    stores, took = any_store.reader(), anyio.Event()

    async def work(node: Any) -> None:
        node.write_state({"log": ["kept?"]})
        await took.wait()
        node.write_state({"log": ["never"]})

    def build() -> Behaviour:
        body = seq("body", Talk("w", work), Work("after", done, 1))
        return Finally("main", body, lambda context: context.write_state({"note": "cleaned"}))

    agent = Agent(build(), Desk, store=any_store(), durability=level, clock=clock)
    events = events_of(agent)
    fences: list[int] = []

    async def thief() -> None:
        await until(lambda: _is_held(stores))
        fences.append((await stores.thread("t1")).fence)
        if then == "taken over":
            fences.append(steal(stores))
        else:
            kill(stores)
        if then == "made anew":
            await Agent(Note("n", []), Desk, store=any_store()).run({"note": "new"}, thread_id="t1")
        took.set()

    with anyio.fail_after(10):
        with nothing_left(agent):
            async with anyio.create_task_group() as group:
                group.start_soon(thief)
                with pytest.raises(LeaseLostError, match="'t1'"):
                    await agent.run(thread_id="t1")
        assert agent.state.note == "cleaned"
        if level == "exit":  # it found out when it wrote its end
            assert (done, agent.status) == (["after"], SUCCESS)
        else:
            assert (done, agent.status, of_kind(events, RunEnded)[-1].outcome.status) == ([], INVALID, INVALID)
        kept = any_store.rows("t1")
        assert "never" not in str(kept)
        assert "cleaned" not in str(kept)
        assert bool(kept) is (then != "deleted")
        if then == "made anew":
            assert (await stores.show("t1")).fields["note"] == "new"
            fences.append((await stores.thread("t1")).fence)
        assert fences == sorted(set(fences))
        took.set()
        assert await agent.run(thread_id="another") is SUCCESS


@each_store
async def test_a_lost_lease_is_noticed_while_nothing_is_written(
    any_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper renews from a thread of its own: a run that only waits is halted too."""
    monkeypatch.setattr("jianmu.engine.lease.EVERY", 0.02)
    agent = Agent(par("main", Talk("w", lambda _: anyio.sleep_forever()), ask("q")), Desk, store=any_store())
    reader = any_store.reader()

    async def thief() -> None:
        await until(lambda: _is_asked(reader))
        steal(reader)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(thief)
            with nothing_left(agent), pytest.raises(LeaseLostError):
                await agent.run(thread_id="t1")
        view = await reader.show("t1")
    assert (view.status, view.questions) == ("running", 1)


async def _is_asked(store: SQLStore) -> bool:
    return bool(await store.inbox.pending())


class Blocking:
    """Blocks the event loop until another thread lets it go.

    Args:
        store: what the other thread looks at.
        enough: whether the other thread has seen enough of the thread's row.
    """

    def __init__(self, store: SQLStore, enough: Callable[[tuple[Any, ...]], bool]) -> None:
        self.store = store
        self.enough = enough
        self.go = threading.Event()

    def update(self, _: Any) -> None:
        """Block."""
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        assert self.go.wait(20)
        watcher.join()

    def _watch(self) -> None:
        text = "SELECT lease_until, fence FROM threads WHERE thread_id = 't1'"
        while not self.enough(self.store.work("read", lambda say: say(text)).fetchone()):
            self.go.wait(0.02)
        self.go.set()


@pytest.mark.full  # it measures a loop that stands still, and a busy machine's stands still by itself
@each_store
@pytest.mark.parametrize("max_block", [60.0, 0.1])
async def test_a_loop_that_stands_still_keeps_its_lease_for_max_block(
    any_store: Stores, max_block: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below it the lease is renewed from a thread; above it it is let go, another takes the thread, the run is over."""
    for name in ("lease", "holding"):
        monkeypatch.setattr(f"jianmu.engine.{name}.SECONDS", 0.3)
    monkeypatch.setattr("jianmu.engine.lease.EVERY", 0.05)
    seen: set[float] = set()

    def is_enough(row: tuple[Any, ...]) -> bool:
        seen.add(row[0])
        if max_block > 1:
            return len(seen) > 12  # renewed for longer than one lease lasts
        return _taken(any_store.reader())

    agent = Agent(
        seq("main", Work("w", []), Do("block", Blocking(any_store.reader(), is_enough).update), Work("after", [])),
        Desk,
        store=any_store(),
        max_block=max_block,
    )
    with anyio.fail_after(30):
        if max_block > 1:
            assert await agent.run(thread_id="t1") is SUCCESS
            return
        with pytest.raises(LeaseLostError):
            await agent.run(thread_id="t1")
        view = await any_store.reader().show("t1")
    assert (view.status, view.fields["log"]) == ("running", [])


def _taken(store: SQLStore) -> bool:
    """Whether the lease could be taken, now."""
    try:
        store.work("write", lambda say: acquire(say, "t1", this_process("other"), 30, create=False))
    except ThreadBusyError:
        return False
    return True


@each_store
@pytest.mark.parametrize("then", ["deleted", "made anew"])
async def test_what_is_in_memory_of_a_deleted_thread_does_not_come_back(any_store: Stores, then: str) -> None:
    """An agent that has the thread in memory begins it anew, or goes on with what is there now, of the same length."""

    def agent() -> Agent[Any]:
        return Agent(Note("n", []), Desk, store=any_store())

    with anyio.fail_after(10):
        first = agent()
        await first.run({"note": "old"}, thread_id="t1")
        assert await any_store.reader().delete("t1")
        if then == "made anew":
            await agent().run({"note": "new"}, thread_id="t1")
        assert await first.run(thread_id="t1") is SUCCESS
        view = await any_store.reader().show("t1")
    assert (view.fields["note"], view.fields["log"]) == (("new", ["n", "n"]) if then == "made anew" else ("", ["n"]))
    assert (first.state.note, first.state.log) == (view.fields["note"], view.fields["log"])


# In the moment of release

CALLS = ("acquire", "take", "read", "commit", "release", "mail", "questions", "rows", "row", "move")


class Between:
    """Does something once, before or after the n-th call of a store.

    Args:
        store: the store.
        at: the number of the step.
        deed: what is done; not before it can be.
    """

    def __init__(self, store: SQLStore, at: int, deed: Callable[[], Awaitable[bool]]) -> None:
        self.store = store
        self.at = at
        self.steps = 0
        self.is_done = self._is_inside = False
        self._deed = deed
        for name in CALLS:
            setattr(store, name, self._watched(getattr(store, name)))

    def _watched(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(*args: Any, **options: Any) -> Any:
            await self.step()
            result = await call(*args, **options)
            await self.step()
            return result

        return watched

    async def step(self) -> None:
        """Do it, if it is time."""
        if self._is_inside:
            return
        self.steps += 1
        if self.steps >= self.at and not self.is_done:
            self._is_inside = True
            self.is_done = await self._deed()
            self._is_inside = False


Deed = Callable[[SQLStore], Awaitable[bool]]


async def answered(store: SQLStore) -> bool:
    """Answer the open question, if it is there."""
    found = await store.inbox.pending(thread_id="t1")
    for question in found:
        await store.inbox.answer(Answer(question.id, "outside"))
    return bool(found)


async def withdrawn(store: SQLStore) -> bool:
    """Withdraw the open question, if it is there."""
    found = await store.inbox.pending(thread_id="t1")
    for question in found:
        await store.inbox.withdraw(question.id)
    return bool(found)


async def expired(store: SQLStore) -> bool:
    """Have the deadline of the open question pass, if it is there."""
    found = await store.inbox.pending(thread_id="t1")
    return bool(found) and bool(await store.sweep(found[0].expires_at))


ENDS: dict[str, tuple[Deed, Any]] = {
    "answered": (answered, SUCCESS),
    "withdrawn": (withdrawn, FAILURE),
    "expired": (expired, FAILURE),
}


@each_store
@pytest.mark.parametrize(
    ("how", "asking"),
    [
        ("answered", ask),
        ("withdrawn", AskInside),
        ("expired", ask),
        *(pytest.param(*pair, marks=pytest.mark.full) for pair in zip(ENDS, (AskInside, ask, AskInside), strict=True)),
    ],
)
async def test_k34_an_answer_in_the_moment_of_release_is_not_lost(any_store: Stores, how: str, asking: Any) -> None:
    """Tried at each step of the run's end: the run goes on with it, or the thread is due; never in nobody's hands."""
    deed, status = ENDS[how]
    went_on: list[bool] = []
    at, is_over = 0, False
    with anyio.fail_after(60):
        while not is_over:
            at += 1
            name = any_store.apart() if any_store.kind != "postgres" else "store"
            other = any_store.reader(name)
            await other.delete("t1")
            between = Between(any_store(name), at, lambda other=other: deed(other))
            clock = VirtualClock(autojump=True, start=datetime.now(UTC))
            agent = Agent(_forgiving(asking), Desk, store=between.store, clock=clock)
            outcome = await agent.run_until_suspend(thread_id="t1")
            between.at, is_over = 10_000, not between.is_done
            if not is_over and outcome.suspended:
                # came after the release: somebody else finds it
                assert await other.due((await other.thread("t1")).wake_at) == ["t1"]
                outcome = await Agent(_forgiving(asking), Desk, store=any_store(name)).recover("t1")
                went_on.append(False)
            elif not is_over:
                went_on.append(True)
            assert outcome.status is (RUNNING if is_over else status), at
    assert True in went_on


async def queued(store: SQLStore) -> bool:
    """Have an input wait for its turn, if the thread is there."""
    if await store.thread("t1") is None:
        return False
    return await store.enqueue("t1", queued_row({"log": ["queued"]}, "i1"), wake_at=datetime.now(UTC).timestamp())


@each_store
async def test_k34_an_input_in_the_moment_of_release_is_applied_once(any_store: Stores) -> None:
    """Tried at each step: it is applied while the run is on, begins the next one, or the thread is due; once."""
    went_on: list[bool] = []
    at, is_over = 0, False
    with anyio.fail_after(60):
        while not is_over:
            at += 1
            name = any_store.apart() if any_store.kind != "postgres" else "store"
            other = any_store.reader(name)
            await other.delete("t1")
            between = Between(any_store(name), at, lambda other=other: queued(other))
            agent = Agent(seq("main", Work("w", []), Note("n", [])), Desk, store=between.store)
            assert await agent.run(thread_id="t1") is SUCCESS
            between.at, is_over = 10_000, not between.is_done
            if await other.due(datetime.now(UTC)):
                fresh = Agent(seq("main", Work("w", []), Note("n", [])), Desk, store=any_store(name))
                assert (await fresh.recover("t1")).status is SUCCESS
                went_on.append(False)
            elif not is_over:
                went_on.append(True)
            view = await other.show("t1")
            assert (view.fields["log"].count("queued"), view.inputs) == (not is_over, ()), at
            assert await other.due(datetime.now(UTC)) == []
    assert set(went_on) == {True, False}


def _forgiving(asking: Any) -> Behaviour:
    """Return a tree that asks once, works on for a second, and fails without an answer."""
    expires = [fail(after=3600)]

    async def talk(node: Any) -> Any:
        try:
            await node.ask(Request("q?", expires=expires))
        except NotAnsweredError:
            return FAILURE
        return SUCCESS

    leaf = ask("q", expires=expires) if asking is ask else Talk("q", talk)
    return par("main", seq("line", leaf, Note("n", [])), Work("w", [], 1))
