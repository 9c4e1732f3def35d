"""Inputs that come at bad moments: queued, repeated, refused, given up."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.events import RunEnded, RunStarted
from jianmu.engine.inputs import queued_row
from jianmu.engine.limits import Limits
from jianmu.errors import StateWriteError, StoreError
from tests.cases.leaves import SUCCESS, Do, DoAsync, World, events_of
from tests.cases.people import INVALID, RUNNING, Desk, Note, ask, seq
from tests.engine.hopstore import HopStore

pytestmark = pytest.mark.anyio
WITHIN = 10


@pytest.fixture
def store(tmp_path: Path) -> HopStore:
    """A store in a file."""
    return HopStore(tmp_path / "runs.db")


async def test_a_queued_input_is_driven_with_what_the_call_was_given(store: HopStore) -> None:
    """`deps` and `limits` of the call that goes on with it; the first run has its end told before the next begins."""
    seen: list[Any] = []

    async def act(node: DoAsync) -> None:
        run = node.context.run
        seen.append((node.read_state().n, node.context.deps, run.limits.max_ticks))
        if node.read_state().n == 1:
            other = Agent(DoAsync("act", act), World, store=store.again())
            outcome = await other.run_until_suspend({"n": 2}, thread_id="t", on_new_input="queue")
            assert outcome.status is RUNNING

    agent = Agent(DoAsync("act", act), World, store=store)
    events = events_of(agent)
    with anyio.fail_after(WITHIN):
        assert await agent.run({"n": 1}, thread_id="t", deps="mine", limits=Limits(max_ticks=50)) is SUCCESS
    assert seen == [(1, "mine", 50), (2, "mine", 50)]
    told = [event for event in events if isinstance(event, RunStarted | RunEnded)]
    assert [type(event) for event in told] == [RunStarted, RunEnded] * 2
    assert [event.run for event in told] == [1, 1, 2, 2]


async def test_run_waits_for_people_also_where_its_input_was_delivered_before(store: HopStore) -> None:
    """The same `input_id` under `run()` goes on with the first run as `run()` does, not only to its question."""

    async def human(_: object) -> str:
        return "yes"

    with anyio.fail_after(WITHIN):
        await Agent(ask("q"), Desk, store=store).run_until_suspend({}, thread_id="t", input_id="i")
        agent = Agent(ask("q"), Desk, store=store.again(), human=human)
        assert await agent.run({}, thread_id="t", input_id="i") is SUCCESS
    assert agent.state.values == {"q": "yes"}


async def test_an_input_whose_run_was_given_up_has_that_as_its_outcome(store: HopStore) -> None:
    """By new input under `withdraw`, or by reset(): delivered again it returns INVALID, and nothing of others."""
    agent = Agent(ask("q"), Desk, store=store)
    with anyio.fail_after(WITHIN):
        for id, policy in (("a", "refuse"), ("b", "withdraw")):
            await agent.run_until_suspend({"note": id}, thread_id="t", input_id=id, on_new_input=policy)
        other = Agent(ask("q"), Desk, store=store.again())
        await other.resume("x", thread_id="t")
        await other.run_until_suspend({"note": "c"}, thread_id="t", input_id="c")
        await other.reset()
        for one in (agent, other):
            told = [await one.run_until_suspend({}, thread_id="t", input_id=id) for id in "abc"]
            assert [(each.status, each.output["note"]) for each in told] == [
                (INVALID, "a"),
                (SUCCESS, "b"),
                (INVALID, "c"),
            ]
        assert await store.stands("t") == ("finished", False)


@pytest.mark.parametrize("fault", ["input", "open"])
async def test_new_input_that_starts_nothing_gives_nothing_up(store: HopStore, fault: str) -> None:
    """Under `withdraw` an input that is refused, or a node that cannot be opened: the question is still there."""

    class Opens(Do):
        async def open(self) -> None:
            if is_closed[0]:
                raise OSError

    is_closed = [False]
    agent = Agent(seq("s", Opens("opens", lambda _: None), ask("q")), Desk, store=store)
    with anyio.fail_after(WITHIN):
        await agent.run_until_suspend({"note": "first"}, thread_id="t", input_id="i")
        is_closed[0] = fault == "open"
        with pytest.raises((StateWriteError, OSError)):
            await agent.run({"amount": 1 if fault == "open" else "x"}, thread_id="t", on_new_input="withdraw")
        is_closed[0] = False
        assert (await store.stands("t"), await store.asked()) == (("suspended", False), [("open", False)])
        outcome = await agent.resume("x", thread_id="t")
        assert (outcome.status, outcome.output["note"]) == (SUCCESS, "first")
        assert await agent.run_until_suspend({}, thread_id="t", input_id="i") == outcome


async def test_a_thread_that_has_refused_an_input_stands_as_it_did(store: HopStore) -> None:
    """Saved afterwards it is finished, and not taken for one whose process has died."""
    agent = Agent(Do("x", lambda _: None), Desk, store=store)
    with anyio.fail_after(WITHIN):
        await agent.run({}, thread_id="t")
        with pytest.raises(StateWriteError):
            await agent.run({"amount": "x"}, thread_id="t")
        agent.state_manager.update({"note": "edited"})
        await agent.save()
        assert (await store.stands("t"), await store.due()) == (("finished", False), [])


@pytest.mark.parametrize("fault", ["raises", "halts"])
async def test_a_run_after_one_that_was_cut_short_has_its_position_kept(store: HopStore, fault: str) -> None:
    """In the same process: its question is answered elsewhere, and nothing that was done is done again."""

    async def breaks(node: DoAsync) -> None:
        if node.read_state().note == "raises":
            raise ValueError
        if node.read_state().note == "halts":
            agent.halt()
            await anyio.sleep_forever()

    def tree() -> Behaviour:
        return seq("s", DoAsync("breaks", breaks), Note("done", done), ask("q"))

    done: list[str] = []
    agent = Agent(tree(), Desk, store=store)
    with anyio.fail_after(WITHIN):
        with suppress(ValueError):
            await agent.run({"note": fault}, thread_id="t")
        assert (await store.stands("t"))[0] == "interrupted"
        assert (await agent.run_until_suspend({"note": ""}, on_new_input="withdraw")).suspended
        position = (await store.show("t")).position
        assert position["s/q"] == "RUNNING"
        other = Agent(tree(), Desk, store=store.again())
        assert (await other.resume("x", thread_id="t")).status is SUCCESS
    assert done == ["done"]


async def test_what_could_not_be_saved_is_in_no_other_thread(store: HopStore) -> None:
    """The first save of one thread fails: its input is not known to the next one."""
    agent = Agent(ask("q"), Desk, store=store)
    with anyio.fail_after(WITHIN):
        store.fail_at = (3,)
        with pytest.raises(StoreError, match="on purpose"):
            await agent.run_until_suspend({}, thread_id="t", input_id="a")
        await agent.run_until_suspend({}, thread_id="u", input_id="b")
        assert await store.row("u", "input", "a") is None
        assert await store.row("u", "input", "b") is not None


async def test_an_agent_that_has_no_thread_is_reset_without_one(store: HopStore) -> None:
    """reset() before the first call writes nothing; the state is set back all the same."""
    agent = Agent(ask("q"), Desk, store=store)
    agent.state_manager.update({"note": "x"})
    with anyio.fail_after(WITHIN):
        await agent.reset(state=True)
        assert (agent.state.note, await store.list()) == ("", ())
        assert (await agent.run_until_suspend({})).suspended


@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_a_second_run_that_is_killed_before_its_first_pass_is_run(store: HopStore, level: Any) -> None:
    """Its input is kept; the tree still stands as the first run has left it, which is no result of its own."""
    agent = Agent(Note("n", []), Desk, store=store, durability=level)
    with anyio.fail_after(WITHIN):
        await agent.run({"note": "one"}, thread_id="t")
        store.fail_at = range(store.count + 4, store.count + 100)  # acquire, the input's row, its commit; then nothing
        with pytest.raises(StoreError, match="on purpose"):
            await agent.run({"note": "two"}, thread_id="t", input_id="i")
        store.fail_at = ()
        store.work("write", lambda say: say("UPDATE threads SET holder = NULL, lease_until = NULL"))
        outcome = await Agent(Note("n", []), Desk, store=store.again()).recover("t")
        assert (outcome.status, outcome.output["note"], outcome.output["log"]) == (SUCCESS, "two", ["n", "n"])


@pytest.mark.parametrize("again", [False, True])
async def test_an_input_that_nobody_drives_has_its_turn_before_a_later_one(store: HopStore, again: bool) -> None:
    """It came while somebody held the thread, who is gone: new input comes after it; the same one is its own run."""

    def agent(store: HopStore) -> Agent[Desk]:
        return Agent(Do("log", lambda node: node.write_state({"log": [node.read_state().note]})), Desk, store=store)

    with anyio.fail_after(WITHIN):
        await agent(store).run({"note": "0"}, thread_id="t")
        await store.enqueue("t", queued_row({"note": "1"}, "one"), wake_at=0)
        note, id = ("1", "one") if again else ("2", "two")
        outcome = await agent(store.again()).run_until_suspend({"note": note}, thread_id="t", input_id=id)
        assert (outcome.status, outcome.output["log"]) == (SUCCESS, ["0", "1"] if again else ["0", "1", "2"])
        assert await agent(store.again()).run_until_suspend({"note": note}, thread_id="t", input_id=id) == outcome
        assert await store.due() == []
