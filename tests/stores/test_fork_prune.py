"""Forks and pruned threads: by their rows, and gone on with by real agents."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.checkpoint import Delivery, QuestionRow, Row, Sought, Stored
from jianmu.engine.interaction import Answer, Request, escalate, fail
from jianmu.engine.journal import Entry
from jianmu.engine.outside import held
from jianmu.engine.questionrows import record_of, text_of
from jianmu.errors import CorruptRecordError, StoreError, ThreadBusyError
from jianmu.nodes import Approve
from jianmu.stores.base import Store
from tests.cases.people import SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, seq
from tests.stores.threads import NOON, TREE, Run, effect, finished, picture, record, row, suspended

pytestmark = pytest.mark.anyio
LATER = NOON + timedelta(days=3)


async def stored(store: Store, thread_id: str, at: int | None = None) -> Stored:
    """Return what is stored of a thread."""
    found = await store.read(thread_id, at=at)
    assert found is not None
    return found


async def asked_of(store: Store, thread_id: str) -> list[QuestionRow]:
    """Return all questions of a thread."""
    return await store.questions(Sought(thread_id=thread_id, status=None))


# Forks, by their rows


async def test_a_fork_has_one_snapshot_and_rows_of_its_own(store: Store) -> None:
    """State, position and run of the source at its last number; its tree; its question, open, with an id of its own."""
    (asked,) = await suspended(store, "t")
    before = await picture(store, "t")
    assert await store.fork("t", "fork", now=LATER) == "fork"
    assert await picture(store, "t") == before
    found = await stored(store, "fork")
    assert (found.thread.number, found.log, found.thread.is_held) == (1, (), False)
    assert [(kept.kind, kept.came, kept.went) for kept in found.rows] == [("tree", 1, None)]
    (fresh,) = found.questions
    assert (fresh.status, fresh.came, fresh.consumed, fresh.went) == ("open", 1, None, None)
    assert fresh.id not in {asked.id, None}
    assert record_of(fresh).question.model_copy(update={"id": asked.id, "thread_id": "t"}) == asked.question
    assert asked.id not in str(found)
    view, source = await store.show("fork"), await store.show("t")
    assert (view.fields, view.position, view.run, view.status) == (source.fields, source.position, 1, "suspended")
    assert (view.waiting, view.questions, view.wake_at) == (("root/ask",), 1, None)
    listed = (await store.list())[0]
    assert (listed.thread_id, listed.run, listed.usage, listed.error) == ("fork", 1, view.usage, None)
    assert listed.usage.ticks == 1


async def test_a_fork_takes_one_tree_along(store: Store) -> None:
    """Trees that stood before are not needed; what is told of an error is."""
    error = {"type": "ValueError", "text": "no", "path": "root/ask"}
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        await run.write({"tree": "tree0", "nodes": {"0": "R"}}, rows=(Row("tree", "tree0", TREE, 2),))
        await run.ask(record("t"))
        await run.write({"status": "interrupted", "error": error}, status="interrupted")
    await store.fork("t", "fork")
    assert [kept.id for kept in (await stored(store, "fork")).rows] == ["tree1"]
    (listed,) = await store.list(limit=1)
    assert (listed.thread_id, listed.status, listed.error) == ("fork", "interrupted", error)


async def test_a_fork_is_due_at_the_first_deadline_of_its_questions(store: Store) -> None:
    """As its source is, where nothing else can go on."""
    asked = [record("t", Request("Go on?", expires=[fail(after=60 * (2 - n))]), count=n) for n in range(2)]
    await suspended(store, "t", *asked)
    await store.fork("t", "fork", now=NOON)
    assert (await store.show("fork")).wake_at == NOON + timedelta(seconds=60)


async def test_a_question_that_the_tree_gave_up_later_is_open_in_a_fork(store: Store) -> None:
    """Where it was not given up yet, it can be answered."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        asked = record("t")
        await run.ask(asked)
        ended = text_of({"ended_at": NOON.isoformat(), "source": "tree", "why": "halted"})
        await run.append("b", delivered=(Delivery(asked.id, ended, consumed=True, unused=True),))
    await store.fork("t", "then", at=2)
    await store.fork("t", "now")
    (then,), (now,) = await asked_of(store, "then"), await asked_of(store, "now")
    assert (then.status, then.ended, then.unused, then.consumed) == ("open", None, False, None)
    assert (now.status, now.unused, now.consumed, record_of(now).why) == ("withdrawn", True, 1, "halted")


async def test_a_fork_gets_an_id_where_none_is_given(store: Store) -> None:
    """Two forks of one thread are two threads, and a fork can be forked."""
    await suspended(store, "t")
    one = await store.fork("t")
    other = await store.fork(one)
    assert {info.thread_id for info in await store.list()} == {"t", one, other}
    assert len({pending.id for pending in await store.inbox.pending()}) == 3


async def test_a_fork_of_an_earlier_number_stands_where_the_source_stood(store: Store) -> None:
    """An answer that came later is dropped, the state is that of then, and what was running is interrupted and due."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin({"schema": 3})
        asked = record("t")
        await run.ask(asked)
        await store.inbox.claim(asked.id, "ann")
        await store.inbox.answer(Answer(asked.id, "yes", by="ann"))
        await run.deliver(asked.id)
        await run.append("later")
        for number in (1, 2, 3):
            await store.fork("t", f"fork {number}", at=number, now=LATER)
    first, second, third = [await store.show(f"fork {number}") for number in (1, 2, 3)]
    assert (first.status, first.fields, first.asked, first.wake_at) == ("interrupted", {"log": [], "n": 1}, (), LATER)
    assert (second.status, second.fields, len(second.asked), second.wake_at) == ("suspended", first.fields, 1, None)
    assert (third.status, third.asked, third.position["root/ask"]) == ("interrupted", (), "SUCCESS")
    (reopened,) = await asked_of(store, "fork 2")
    assert (reopened.status, reopened.ended, reopened.claimed_by, reopened.consumed) == ("open", None, None, None)
    (consumed,) = await asked_of(store, "fork 3")
    kept = record_of(consumed)
    assert (kept.status, consumed.consumed, kept.answer) == ("answered", 1, Answer(kept.id, "yes", by="ann"))
    assert await store.due(LATER.timestamp()) == ["t", "fork 1", "fork 3"]


async def test_a_fork_takes_the_effects_begun_by_then_under_their_keys(store: Store) -> None:
    """Entries that came later, or were done with by then, stay behind; the others have a new identity and their key."""
    early, past, late = effect("t"), effect("t", "past", state="done"), effect("t", "late")
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin(rows=(row(early, 1), row(past, 1)))
        await run.append("a", rows=(row(early.model_copy(update={"state": "done", "result": 5}), 1),))
        await run.append("b", rows=(row(late, 3),), closed=(("effect", past.id),))
        await store.fork("t", "one", at=1)
        await store.fork("t", "three", at=3)
    moved = {id: [kept for kept in (await stored(store, id)).rows if kept.kind == "effect"] for id in ("one", "three")}
    entries = {id: [Entry.model_validate_json(kept.body) for kept in rows] for id, rows in moved.items()}
    assert [entry.key for entry in entries["one"]] == ["pay", "past"]
    assert [entry.key for entry in entries["three"]] == ["pay", "late"]
    for id in ("one", "three"):
        assert [kept.id for kept in moved[id]] == [entry.id for entry in entries[id]]
        paid = entries[id][0]
        assert (paid.origin.thread_id, paid.state, paid.result) == (id, "done", 5)
        assert paid.idempotency_key == early.idempotency_key
        assert paid.id != early.id


async def test_a_question_that_its_deadline_ended_is_due_again_in_a_fork(store: Store) -> None:
    """It is open with the steps taken so far but the last, so that a sweep ends it again, as it did at the source."""
    request = Request("Go on?", expires=[escalate("boss", after=5), fail(after=60)])
    (asked,) = await suspended(store, "t", record("t", request))
    await store.sweep(LATER)
    await store.fork("t", "fork", now=LATER)
    (reopened,) = await asked_of(store, "fork")
    assert (reopened.status, reopened.taken, reopened.assignee) == ("open", 1, "boss")
    assert await store.due(LATER.timestamp()) == ["fork", "t"]
    (moved,) = await store.sweep(LATER)
    assert (moved.thread_id, moved.status) == ("fork", "expired")
    assert moved.id != asked.id


async def test_ids_are_exchanged_wherever_a_node_keeps_them(store: Store) -> None:
    """In lists, in objects and alone; a text that only contains one stays as it is."""
    asked = (record("t"), record("t", count=1))
    one, two = (each.id for each in asked)
    kept = {"asked": one, "more": [one, {"deep": [two]}], "text": f"see {one}", one: 1, "n": None}
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        await run.ask(*asked)
        await run.write({"nodes": {"1": ["R", None, kept]}})
    await store.fork("t", "fork")
    base = (await stored(store, "fork")).snapshot
    assert base is not None
    new_one, new_two = (each.id for each in await asked_of(store, "fork"))
    moved = json.loads(base.body)["nodes"]["1"][2]
    assert moved == {"asked": new_one, "more": [new_one, {"deep": [new_two]}], "text": f"see {one}", one: 1, "n": None}


async def test_a_fork_needs_an_id_that_is_free(store: Store) -> None:
    """A thread that is there is neither overwritten nor joined, held or not; nothing is left of the attempt."""
    await suspended(store, "t")
    await finished(store, "other")
    before = await picture(store, "other")
    with pytest.raises(StoreError, match="there is a thread 'other' already"):
        await store.fork("t", "other")
    found = await picture(store, "other")
    assert found[2:] == before[2:]
    async with held(store, "held", create=True):
        with pytest.raises(ThreadBusyError):
            await store.fork("t", "held")
    for id in ("", "\ud800", "x" * 513, object()):
        with pytest.raises(StoreError, match="a thread's id is a text"):
            await store.fork("t", id)  # pyright: ignore[reportArgumentType]  # a user's mistake
    assert {info.thread_id for info in await store.list()} == {"t", "other"}
    async with held(store, "other"):
        pass


async def test_a_torn_source_is_not_forked(store: Store) -> None:
    """A log, a journal or a position that cannot be read is a typed error, and there is no new thread."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin(rows=(Row("effect", "e", "{", 1),))
        await run.write({"s": 5})
        await run.write({"tree": "nowhere"})
    for at in (1, 2, 3):
        with pytest.raises(CorruptRecordError):
            await store.fork("t", "fork", at=at)
    assert [info.thread_id for info in await store.list()] == ["t"]


# Pruning, by its rows


async def test_a_pruned_thread_begins_at_its_last_number(store: Store) -> None:
    """K29: the finished one is left with one snapshot and reads as before; the waiting one can still be answered."""
    await finished(store, "done")
    (asked,) = await suspended(store, "waits")
    before = [await store.show(id) for id in ("done", "waits")]
    assert [await store.prune("done"), await store.prune("waits")] == [4, 2]
    assert [await store.show(id) for id in ("done", "waits")] == before
    found = await stored(store, "done")
    assert (found.snapshot and found.snapshot.kind, found.log, found.rows, found.questions) == ("base", (), (), ())
    (told,) = await store.inbox.answer(Answer(asked.id, "yes"), now=LATER)
    assert told.status == "answered"
    assert [await store.prune("done"), await store.prune("waits")] == [4, 2]
    assert [row.status for row in (await stored(store, "waits")).questions] == ["answered"]


async def test_a_thread_pruned_at_an_earlier_number_keeps_what_came_after(store: Store) -> None:
    """From that number on all can be shown and forked; before it nothing can."""
    await finished(store, "t")
    before = {number: await store.show("t", at=number) for number in (2, 3, 4)}
    assert await store.prune("t", at=2) == 2
    assert {number: await store.show("t", at=number) for number in (2, 3, 4)} == before
    assert [told.number for told in await store.history("t")] == [3, 4]
    for call in (store.show("t", 1), store.fork("t", at=1), store.prune("t", 1)):
        with pytest.raises(StoreError):
            await call
    assert (await store.show(await store.fork("t", at=3))).fields == before[3].fields


async def test_a_thread_is_pruned_while_it_runs(store: Store) -> None:
    """Its holder writes on; what it needs, open questions and answers that were not delivered among it, stays."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        asked = (record("t"), record("t", count=1))
        await run.ask(*asked)
        await store.inbox.answer(Answer(asked[0].id, "yes"))
        for number in range(3):
            await store.prune("t")
            await run.append(f"{number}")
        await store.prune("t")
        found = await stored(store, "t")
        assert [(each.id, each.status) for each in found.questions] == [
            (asked[0].id, "answered"),
            (asked[1].id, "open"),
        ]
        await run.deliver(asked[0].id)
    assert (await store.show("t")).number == 6


async def test_a_torn_thread_is_not_pruned(store: Store) -> None:
    """What cannot be read stays as it is, for who can mend it."""
    async with held(store, "t", create=True) as lease:
        await Run(store, lease).write({"s": 5})
    before = await store.log("t")
    with pytest.raises(CorruptRecordError):
        await store.prune("t")
    assert await store.log("t") == before


# With agents


def charge_and_ask(charged: list[str]) -> Behaviour:
    """Return a tree that charges once, then asks inside of a coroutine, by a leaf, and for approval; then ships."""

    async def charge(node: Any) -> None:
        async def pay() -> str:
            charged.append(node.context.idempotency_key)
            return "paid"

        node.merge_dict("values", {"pay": await node.once("pay", pay)})

    approve = Approve("approve", Note("ship", []), message="Ship?", show=lambda state: state.amount)
    return seq("main", Talk("charge", charge), par("both", AskInside("inside", str), ask("leaf", str), approve))


async def ended(store: Store, build: Any, thread_id: str, **answers: Any) -> dict[str, Any]:
    """Answer the questions of a thread by their names in the inbox, go on in a new agent, and return its end."""
    for pending in await store.inbox.pending(thread_id=thread_id):
        await store.inbox.answer(Answer(pending.id, answers[pending.path.rpartition("/")[2]]))
    agent = Agent(build(), Desk, store=store)
    with anyio.fail_after(60):
        outcome = await agent.recover(thread_id)
    return {"status": outcome.status, **agent.state.values}


async def test_a_fork_at_a_question_ends_independently_of_its_source(store: Store) -> None:
    """K25: the fork is answered False, then the original True; the source's bytes are not changed by the fork."""

    def build() -> Behaviour:
        return seq("main", ask("sure", bool), Note("after", []))

    with anyio.fail_after(60):
        await Agent(build(), Desk, store=store).run_until_suspend(thread_id="t")
    before = await picture(store, "t")
    await store.fork("t", "fork")
    assert await picture(store, "t") == before
    assert await ended(store, build, "fork", sure=False) == {"status": SUCCESS, "sure": False}
    assert await picture(store, "t") == before
    assert await ended(store, build, "t", sure=True) == {"status": SUCCESS, "sure": True}


async def test_each_way_of_asking_goes_on_in_a_fork(store: Store) -> None:
    """Coroutines, leaves and approvals find their answers under the new ids; what was charged is not charged again."""
    charged: list[str] = []
    answers = {"inside": "a", "leaf": "b", "approve": True}

    def build() -> Behaviour:
        return charge_and_ask(charged)

    with anyio.fail_after(60):
        await Agent(build(), Desk, store=store).run_until_suspend(thread_id="t")
    await store.fork("t", "fork")
    wanted = {"status": SUCCESS, "pay": "paid", "inside": "a", "leaf": "b"}
    assert await ended(store, build, "fork", **answers) == wanted
    assert await store.delete("t")
    assert await ended(store, build, "fork") == wanted
    assert len(charged) == 1


async def test_a_fork_of_any_number_comes_to_the_same_end(store: Store) -> None:
    """K28: what was begun by then is not done again, what came later is done and asked anew, to the source's end."""
    charged: list[str] = []

    def build() -> Behaviour:
        return charge_and_ask(charged)

    answers = {"inside": "a", "leaf": "b", "approve": True}
    with anyio.fail_after(60):
        await Agent(build(), Desk, store=store, durability="sync").run_until_suspend(thread_id="t")
    wanted = await ended(store, build, "t", **answers)
    before = await picture(store, "t")
    last = (await store.show("t")).number
    assert last >= 5
    for at in range(1, last + 1):
        is_begun = at == last or any(kept.kind == "effect" for kept in (await stored(store, "t", at)).rows)
        charged.clear()
        await store.fork("t", "fork", at=at)
        if (await store.show("fork")).status == "interrupted":
            with anyio.fail_after(60):
                await Agent(build(), Desk, store=store).recover("fork")
        assert await ended(store, build, "fork", **answers) == wanted
        assert len(charged) == (0 if is_begun else 1)
        assert await picture(store, "t") == before
        await store.delete("fork")


async def test_only_what_comes_after_the_number_runs_in_a_fork(store: Store) -> None:
    """K28: a fork after node 2 of 4, inside of a nested Sequence, runs 3 and 4; what came after it is asked anew."""
    done: list[str] = []

    def build() -> Behaviour:
        inner = seq("inner", Note("two", done), Work("three", done), ask("q", str))
        return seq("main", Note("one", done), inner, Note("four", done))

    with anyio.fail_after(60):
        await Agent(build(), Desk, store=store, durability="sync").run_until_suspend(thread_id="t")
    (source,) = await store.inbox.pending()
    assert await ended(store, build, "t", q="first") == {"status": SUCCESS, "q": "first"}
    assert done == ["one", "two", "three", "four"]
    views = [await store.show("t", at=number) for number in range(1, (await store.show("t")).number)]
    at = next(view.number for view in views if view.position.get("main/inner/three") == "RUNNING")
    done.clear()
    await store.fork("t", "fork", at=at)
    assert await store.inbox.pending() == ()
    with anyio.fail_after(60):
        await Agent(build(), Desk, store=store).recover("fork")
    (asked,) = await store.inbox.pending()
    assert (asked.thread_id, asked.id == source.id, asked.path) == ("fork", False, source.path)
    assert await ended(store, build, "fork", q="second") == {"status": SUCCESS, "q": "second"}
    assert done == ["three", "four"]


async def test_questions_outlive_a_prune_after_every_pass(store: Store) -> None:
    """K04: with the thread pruned to its last number again and again, all three can be answered, to the same end."""
    charged: list[str] = []

    def build() -> Behaviour:
        return charge_and_ask(charged)

    agent = Agent(build(), Desk, store=store, durability="sync")

    async def prune() -> None:
        while True:
            if await store.thread("t") is not None:
                await store.prune("t")
            await checkpoint()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(prune)
            await agent.run_until_suspend(thread_id="t")
            group.cancel_scope.cancel()
    wanted = {"status": SUCCESS, "pay": "paid", "inside": "a", "leaf": "b"}
    await store.prune("t")
    assert await ended(store, build, "t", inside="a", leaf="b", approve=True) == wanted
    assert len(charged) == 1


async def test_a_thread_pruned_at_any_number_comes_to_the_same_end(store: Store) -> None:
    """Whatever was removed before its question, the thread goes on with the answers, and charges once."""
    answers = {"inside": "a", "leaf": "b", "approve": True}
    at = last = 1
    while at <= last:
        charged: list[str] = []

        def build(charged: list[str] = charged) -> Behaviour:
            return charge_and_ask(charged)

        with anyio.fail_after(60):
            await Agent(build(), Desk, store=store, durability="sync").run_until_suspend(thread_id="t")
        last = (await store.show("t")).number
        await store.prune("t", at)
        wanted = {"status": SUCCESS, "pay": "paid", "inside": "a", "leaf": "b"}
        assert await ended(store, build, "t", **answers) == wanted
        assert len(charged) == 1
        await store.delete("t")
        at += 1
    assert last > 3


async def test_a_pruned_conversation_goes_on(store: Store) -> None:
    """K29: a finished thread that was pruned loads, and the next run begins with its state."""

    def build() -> Behaviour:
        return seq("main", ask("q", str), Note("after", []))

    with anyio.fail_after(60):
        await Agent(build(), Desk, store=store).run_until_suspend(thread_id="t")
        assert await ended(store, build, "t", q="first") == {"status": SUCCESS, "q": "first"}
        await store.prune("t")
        agent = Agent(build(), Desk, store=store)
        await agent.load("t")
        assert (agent.state.values, agent.state.log, agent.interaction.pending) == ({"q": "first"}, ["after"], ())
        await agent.run_until_suspend({"note": "again"}, thread_id="t")
        assert await ended(store, build, "t", q="second") == {"status": SUCCESS, "q": "second"}
    view = await store.show("t")
    assert (view.run, view.fields["log"], view.fields["note"]) == (2, ["after", "after"], "again")


async def test_a_deleted_source_leaves_its_fork_and_its_namesakes(store: Store) -> None:
    """K31: of `a` nothing is left; `ab` and the fork of `a` load and go on."""

    def build() -> Behaviour:
        return seq("main", ask("q", str))

    with anyio.fail_after(60):
        for id in ("a", "ab"):
            await Agent(build(), Desk, store=store).run_until_suspend(thread_id=id)
    await store.fork("a", "fork")
    assert await store.delete("a")
    assert await picture(store, "a") == (None, None, [], [])
    for id in ("ab", "fork"):
        assert await ended(store, build, id, q=id) == {"status": SUCCESS, "q": id}
