"""What a store does without a tree: list, show, history, delete, sweep, settle."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.checkpoint import Row, Sought
from jianmu.engine.interaction import Answer, Request, default, escalate, fail
from jianmu.engine.journal import Entry
from jianmu.engine.outside import held
from jianmu.engine.questionrows import text_of
from jianmu.errors import CorruptRecordError, StoreError, ThreadBusyError, UnknownThreadError
from jianmu.stores import SQLiteStore
from jianmu.stores.base import Store
from tests.cases.people import Desk, Talk
from tests.stores.threads import NOON, Run, effect, finished, picture, record, row, suspended

pytestmark = pytest.mark.anyio
LATER = NOON + timedelta(seconds=10)
IDS = ["a_b", "a%b", "A_B", "a*b", "线程", "x" * 500, "../x", "user/1", "it's", '"', "a", "ab", " "]


async def with_effects(store: Store, *entries: Entry) -> None:
    """Make a thread `t` whose second transaction began these effects, and whose holder has gone."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        await run.append("a", rows=tuple(row(entry, came=2) for entry in entries))


# list


async def test_a_list_tells_how_threads_stand(store: Store) -> None:
    """Each thread with its status, open questions, waiting nodes, error, times and usage, in the order of ids."""
    asked = (record("b"), record("b", count=1))
    await suspended(store, "b", *asked)
    await finished(store, "c")
    async with held(store, "a", create=True) as lease:
        run = Run(store, lease)
        told = {"error": {"type": "ValueError", "text": "no", "path": "root/x"}, "waiting": ["root/ask"], "run": 3}
        await run.begin(
            record=text_of({**told, "passes": 7, "usage": {"ticks": 9, "seconds": 1.5}, "new": 1}), wake_at=5.0
        )
        first, second, third = await store.list()
        assert (first.thread_id, first.status, first.number) == ("a", "running", 1)
        assert (first.run, first.error, first.waiting, first.passes) == (3, told["error"], ("root/ask",), 7)
        assert (first.usage.ticks, first.usage.seconds) == (9, 1.5)
        assert first.lease_until is not None
        assert isinstance(first.holder, dict)
        assert first.wake_at is not None
        assert first.wake_at.timestamp() == 5
        assert first.created_at <= first.updated_at
    assert (second.thread_id, second.status, second.questions, second.holder) == ("b", "suspended", 2, None)
    assert (third.thread_id, third.status, third.questions, third.wake_at) == ("c", "finished", 0, None)
    await store.inbox.answer(Answer(asked[0].id, "yes"))
    assert (await store.list("suspended"))[0].questions == 1


async def test_a_run_whose_lease_ran_out_is_told_as_crashed(store: Store) -> None:
    """What is `running` on disk is `running` while somebody holds it, and `crashed` afterwards; both can be listed."""
    async with held(store, "b", create=True) as lease:
        await Run(store, lease).begin()
        await with_effects(store)
        assert [(one.thread_id, one.status) for one in await store.list()] == [("b", "running"), ("t", "crashed")]
        assert [one.thread_id for one in await store.list("crashed")] == ["t"]
        assert [one.thread_id for one in await store.list("running")] == ["b"]
        assert [one.thread_id for one in await store.list("crashed", limit=1)] == ["t"]
    assert [one.thread_id for one in await store.list("crashed", after="b")] == ["t"]
    assert await store.list("running") == ()


async def test_a_page_of_crashed_threads_has_no_more_than_its_limit(store: Store) -> None:
    """Also where running ones stand between them."""
    for id in ("a", "c", "d", "e"):
        async with held(store, id, create=True) as lease:
            await Run(store, lease).begin()
    async with held(store, "b", create=True) as lease:
        await Run(store, lease).begin()
        assert [one.thread_id for one in await store.list("crashed", limit=2)] == ["a", "c"]
        assert [one.thread_id for one in await store.list("crashed", after="c", limit=3)] == ["d", "e"]


async def test_a_list_comes_in_pages(store: Store) -> None:
    """Pages of two give all threads once."""
    for number in range(5):
        await finished(store, f"t{number}")
    found: list[str] = []
    while page := await store.list(after=found[-1] if found else None, limit=2):
        found += [one.thread_id for one in page]
    assert found == ["t0", "t1", "t2", "t3", "t4"]


async def test_threads_with_like_ids_are_different_ones(store: Store) -> None:
    """K32, K19: listing, showing and deleting one thread touches no other, whatever their ids have in them."""
    for id in IDS:
        await suspended(store, id, record(id))
    assert sorted(one.thread_id for one in await store.list()) == sorted(IDS)
    left = set(IDS)
    for id in IDS:
        assert (await store.show(id)).thread_id == id
        assert await store.delete(id)
        left.discard(id)
        assert {one.thread_id for one in await store.list()} == left
        assert {one.thread_id for one in await store.inbox.pending()} == left


async def test_a_row_that_cannot_be_read_is_a_typed_error(store: Store) -> None:
    """A record that is no JSON object, or has another shape, is told with the thread's id and without its text."""
    for text in ("{", "[]", "1", '{"run":"s3cret"}', '{"waiting":5}'):
        async with held(store, "t", create=True) as lease:
            await Run(store, lease).write(record=text)
        with pytest.raises(CorruptRecordError) as refused:
            await store.list()
        assert refused.value.thread_id == "t"
        assert "s3cret" not in str(refused.value)


# show


async def test_a_thread_is_shown_with_all_that_is_in_it(store: Store) -> None:
    """State, position by path, open questions, effects of unknown outcome and queued inputs."""
    unknown, lost, done = effect("t"), effect("t", "ship", state="unknown"), effect("t", "log", state="done")
    asked = record("t", Request("Go on?", private={"token": "s3cret"}))
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin(rows=(Row("input", "first", '{"n":1}', 1),))
        await run.append("a", rows=(row(unknown, 2), row(lost, 2), row(done, 2)))
        await run.ask(asked)
    await store.enqueue("t", Row("input", "second", '{"input":{"n":2}}'), wake_at=0)
    view = await store.show("t")
    assert (view.status, view.number, view.run, view.questions, view.usage.ticks) == ("suspended", 3, 1, 1, 1)
    assert view.fields == {"log": ["a"], "n": 1}
    assert view.position == {"root": "RUNNING", "root/ask": "RUNNING"}
    assert [one.id for one in view.asked] == [asked.id]
    assert [one.id for one in view.unknown] == [unknown.id, lost.id]
    assert view.inputs == ({"n": 2},)
    assert "s3cret" not in view.model_dump_json()


async def test_a_thread_is_shown_as_it_stood_at_a_number(store: Store) -> None:
    """State, status, position and what was not answered of an earlier number, after the answer was used as well."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin({"schema": 3})
        asked = record("t")
        await run.ask(asked)
        await store.inbox.answer(Answer(asked.id, "yes"))
        await run.deliver(asked.id)
        await run.append("b")
    await store.enqueue("t", Row("input", "second", '{"input":{"n":2}}'), wake_at=5.0)
    first, second, third, last = [await store.show("t", at=number) for number in (1, 2, 3, 4)]
    assert (first.status, first.position, first.asked, first.fields) == ("running", {}, (), {"log": [], "n": 1})
    assert (first.inputs, first.wake_at, last.inputs) == ((), None, ({"n": 2},))
    assert (second.status, [one.id for one in second.asked]) == ("suspended", [asked.id])
    assert (second.asked[0].status, second.waiting, second.questions) == ("open", ("root/ask",), 1)
    assert second.position == {"root": "RUNNING", "root/ask": "RUNNING"}
    assert (third.status, third.asked, third.position["root/ask"]) == ("running", (), "SUCCESS")
    assert last == await store.show("t")
    assert (last.status, last.number) == ("crashed", 4)


async def test_an_answer_that_was_not_delivered_is_no_open_question(store: Store) -> None:
    """Shown at its last number a thread has the questions that are open now."""
    (asked,) = await suspended(store, "t")
    await store.inbox.answer(Answer(asked.id, "yes"))
    assert (await store.show("t")).asked == ()


@pytest.mark.parametrize("call", ["show", "history", "fork", "prune"])
async def test_an_unknown_thread_is_a_typed_error(store: Store, call: str) -> None:
    """What is not there can neither be shown nor forked nor pruned; a thread's id has to be one."""
    with pytest.raises(UnknownThreadError, match="'nobody'") as refused:
        await getattr(store, call)("nobody")
    assert refused.value.thread_id == "nobody"
    for id in ("", "a\0", "\ud800", "x" * 513, None, 5):
        with pytest.raises(StoreError):
            await getattr(store, call)(id)


@pytest.mark.parametrize("at", [0, -1, 5, 2**70, True, "1", 1.0])
async def test_a_number_that_the_log_does_not_have_is_a_typed_error(store: Store, at: Any) -> None:
    """Before the first, after the last, and what is no number."""
    await finished(store, "t")
    for call in (store.show("t", at), store.fork("t", at=at), store.prune("t", at)):
        with pytest.raises(StoreError):
            await call
    assert [one.thread_id for one in await store.list()] == ["t"]


# history


async def test_the_history_tells_what_each_transaction_did(store: Store) -> None:
    """Number, time, purpose, status, fields, nodes and size; nodes by path, also where a page begins after the tree."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        await run.append("线")
        asked = record("t")
        await run.ask(asked)
        await run.deliver(asked.id)
        await run.write({"i": {"root/sub": [2, [["x", "set", 1], ["x", "set", 2], ["", "spent", []]]]}})
        await run.write(body=None)
        await run.end()
    told = await store.history("t")
    assert [(one.number, one.what, one.status) for one in told] == [
        (1, "input", "running"),
        (2, "pass", None),
        (3, "pass", "suspended"),
        (4, "pass", "running"),
        (5, "pass", None),
        (6, "pass", None),
        (7, "end", "finished"),
    ]
    assert [one.fields for one in told] == [("log", "n"), ("log",), (), (), ("root/sub.x",), (), ()]
    assert [one.nodes for one in told] == [(), (), ("root", "root/ask"), ("root/ask",), (), (), ()]
    assert [one.time for one in told] == [NOON + timedelta(seconds=number) for number in range(1, 8)]
    log = await store.log("t")
    assert [one.size for one in told] == [len(text.encode()) for _, text in log]
    assert await store.history("t", after=2, limit=2) == told[2:4]
    assert await store.history("t", after=3) == told[3:]
    assert await store.history("t", after=7) == ()


async def test_a_history_tells_no_nodes_of_a_tree_that_is_not_there(store: Store) -> None:
    """Numbers alone say nothing; the rest is told all the same."""
    async with held(store, "t", create=True) as lease:
        await Run(store, lease).write({"tree": "gone", "nodes": {"0": "R"}})
    (told,) = await store.history("t")
    assert (told.number, told.nodes) == (1, ())


async def test_a_history_that_cannot_be_read_is_a_typed_error(store: Store) -> None:
    """A body of another shape is told with its number, and without its text."""
    for body in ({"s": "s3cret", "v": 1}, {"time": "s3cret"}, {"nodes": {"s3cret": "R"}}, {"state": {"fields": 5}}):
        async with held(store, "t", create=True) as lease:
            await Run(store, lease).write(body)
        with pytest.raises(CorruptRecordError) as refused:
            await store.history("t")
        assert "s3cret" not in str(refused.value)
        await store.delete("t")


# delete


async def test_nothing_is_left_of_a_deleted_thread(tmp_path: Path, anyio_backend: str) -> None:
    """K11, K31: no table has a row of `a` any more; `ab` and a fork of `a` stand and can be gone on with."""
    path = tmp_path / "runs.db"
    async with SQLiteStore(path) as store:
        await suspended(store, "ab", record("ab"))
        async with held(store, "a", create=True) as lease:
            run = Run(store, lease)
            await run.begin(rows=(Row("input", "i", "{}", 1),))
            await run.append("a", rows=(row(effect("a"), 2), Row("cache", "2", "{}", 2)))
            await run.ask(record("a"))
        await store.fork("a", "fork")
        others = [await picture(store, id) for id in ("ab", "fork")]
        before = _rows(path)
        assert await store.delete("a")
        assert not await store.delete("a")
        assert [await picture(store, id) for id in ("ab", "fork")] == others
        left = _rows(path)
        assert {name for name in before if before[name] != left[name]} >= {"threads", "log", "rows", "questions"}
        await suspended(store, "new", record("new"))
        clean = tmp_path / "clean.db"
        async with SQLiteStore(clean) as other:
            await suspended(other, "ab", record("ab"))
            assert (await other.show("ab")).fields == (await store.show("ab")).fields
        for id in ("ab", "fork"):
            (asked,) = await store.inbox.pending(thread_id=id)
            await store.inbox.answer(Answer(asked.id, "yes"))
    assert "a" not in [value for rows in _rows(path).values() for each in rows for value in each]


def _rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables of a file, each with what it says of its thread."""
    connection = sqlite3.connect(path)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
    finally:
        connection.close()


async def test_a_thread_that_is_held_is_not_deleted(store: Store) -> None:
    """Its holder goes on; afterwards it can be deleted."""
    async with held(store, "t", create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        with pytest.raises(ThreadBusyError):
            await store.delete("t")
        await run.append("a")
    assert await store.delete("t")


# sweep and due


async def test_a_sweep_carries_out_what_is_due(store: Store) -> None:
    """Escalations keep a question open, deadlines end it with a default or without; what was moved is returned."""
    steps = [escalate("boss", after=5), default("no", after=5)]
    (first,) = await suspended(store, "t1", record("t1", Request("Go on?", assignee="ann", expires=steps)))
    (second,) = await suspended(store, "t2", record("t2", Request("Go on?", expires=[fail(after=60)])))
    assert await store.sweep(NOON + timedelta(seconds=4)) == ()
    assert await store.due(NOON.timestamp()) == []
    (moved,) = await store.sweep(NOON + timedelta(seconds=5))
    assert (moved.id, moved.status, moved.assignee) == (first.id, "open", "boss")
    assert [one.id for one in await store.inbox.pending(assignee="boss")] == [first.id]
    assert await store.sweep(NOON + timedelta(seconds=5)) == ()
    moved_then = await store.sweep(NOON + timedelta(seconds=60))
    assert {one.id: one.status for one in moved_then} == {first.id: "expired", second.id: "expired"}
    rows = await store.questions(Sought((first.id,), status=None))
    assert '"no"' in str(rows[0].ended)
    assert sorted(await store.due(NOON.timestamp() + 60)) == ["t1", "t2"]
    assert await store.sweep(NOON + timedelta(days=9)) == ()


async def test_a_sweep_that_comes_late_does_all_steps_at_once(store: Store) -> None:
    """A question whose steps are all due goes to its end in one, with the instant at which it ended."""
    steps = [escalate("boss", after=5), fail(after=5)]
    await suspended(store, "t", record("t", Request("Go on?", expires=steps)))
    (moved,) = await store.sweep(NOON + timedelta(days=1))
    assert (moved.status, moved.assignee) == ("expired", "boss")
    assert await store.mail("t") == 1


async def test_a_sweep_looks_at_all_pages(store: Store) -> None:
    """More questions than fit on a page are all swept, once, also by two sweeps at the same time."""
    asked = [record("t", Request("Go on?", expires=[fail(after=1)]), count=number) for number in range(230)]
    await suspended(store, "t", *asked)
    moved: list[str] = []

    async def sweep() -> None:
        moved.extend(one.id for one in await store.sweep(LATER))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(sweep)
            group.start_soon(sweep)
    assert sorted(moved) == sorted(one.id for one in asked)


async def test_a_question_that_went_meanwhile_stops_no_sweep(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is deleted between the look and the step is passed over, and the others are swept."""
    request = Request("Go on?", expires=[fail(after=1)])
    for id in ("a", "b"):
        await suspended(store, id, record(id, request))
    questions = store.questions

    async def deleting(sought: Sought) -> Any:
        found = await questions(sought)
        await store.delete("a")
        return found

    monkeypatch.setattr(store, "questions", deleting)
    assert [one.thread_id for one in await store.sweep(LATER)] == ["b"]


async def test_a_question_that_cannot_be_read_stops_no_sweep(tmp_path: Path, anyio_backend: str) -> None:
    """The others are swept; the one that was changed by hand stays as it is and is in no inbox."""
    request = Request("Go on?", expires=[fail(after=1)])
    async with SQLiteStore(tmp_path / "runs.db") as store:
        asked = [record("t", request, count=number) for number in range(3)]
        await suspended(store, "t", *asked)
        connection = sqlite3.connect(tmp_path / "runs.db")
        with connection:
            connection.execute("UPDATE questions SET asked = '{}' WHERE id = ?", (asked[1].id,))
        connection.close()
        assert {one.id for one in await store.sweep(LATER)} == {asked[0].id, asked[2].id}
        assert await store.inbox.pending() == ()


# settle


async def test_what_has_happened_is_written_down_with_its_result(store: Store) -> None:
    """The entry is done then, with its key and its result; the thread is due, and stands as before."""
    entry = effect("t")
    await with_effects(store, entry)
    before = await store.show("t")
    told = await store.settle("t", entry.id, happened=True, result={"paid": 5}, now=LATER)
    assert (told.state, told.result, told.idempotency_key) == ("done", {"paid": 5}, entry.idempotency_key)
    kept = await store.row("t", "effect", entry.id)
    assert kept is not None
    assert Entry.model_validate_json(kept.body) == told
    assert kept.came == 2
    after = await store.show("t")
    assert (after.unknown, after.fields, after.status) == ((), before.fields, "crashed")
    assert (await store.history("t"))[-1].what == "settle"
    assert await store.due(LATER.timestamp()) == ["t"]
    async with held(store, "t"):
        pass


async def test_what_has_not_happened_is_called_again_under_its_key(store: Store) -> None:
    """The entry has failed then: the next attempt calls the function, with the same idempotency key."""
    entry = effect("t", state="unknown")
    await with_effects(store, entry)
    told = await store.settle("t", "pay", happened=False)
    assert (told.state, told.attempts, told.idempotency_key) == ("failed", 1, entry.idempotency_key)


async def test_an_effect_is_meant_by_its_key_and_path(store: Store) -> None:
    """Where two nodes have used one key the path tells them apart; without it, and for none, the effects are named."""
    entries = [effect("t"), effect("t", path="root/other"), effect("t", "log", state="done")]
    await with_effects(store, *entries)
    before = await picture(store, "t")
    with pytest.raises(StoreError, match=f"{entries[0].id} .*'root/ask'.*{entries[1].id} .*'root/other'"):
        await store.settle("t", "pay", happened=False)
    for effect_meant, path in (("log", None), ("nothing", None), ("pay", "root")):
        with pytest.raises(StoreError, match="no one effect of unknown outcome is meant"):
            await store.settle("t", effect_meant, happened=False, path=path)
    assert _without_fence(await picture(store, "t")) == _without_fence(before)
    assert (await store.settle("t", "pay", happened=True, path="root/other")).id == entries[1].id
    assert [one.id for one in (await store.show("t")).unknown] == [entries[0].id]


def _without_fence(seen: tuple[object, ...]) -> str:
    """Return a picture of a thread, without the number of the lease that was taken to look."""
    return ",".join(part for part in repr(seen).split(",") if "fence=" not in part)


async def test_a_result_that_is_no_json_is_refused_before_anything(store: Store) -> None:
    """So is one of what has not happened; no lease was taken for it."""
    await with_effects(store, effect("t"))
    before = await picture(store, "t")
    result: Any = {1, 2}
    for happened, told in ((True, result), (True, float("nan")), (False, 5)):
        with pytest.raises(StoreError, match="the result of an effect was refused"):
            await store.settle("t", "pay", happened=happened, result=told)
    assert await picture(store, "t") == before


async def cut(store: Store, monkeypatch: pytest.MonkeyPatch, step: int, call: Callable[[], Any]) -> bool:
    """Make a call that is cancelled before its step with this number; return whether it has one."""
    left = [step]
    with monkeypatch.context() as patch, anyio.CancelScope() as scope:
        for name in ("acquire", "read", "commit", "release"):
            patch.setattr(store, name, partial(_counted, getattr(store, name), left, scope))
        await call()
    return left[0] < 0


async def _counted(
    primitive: Callable[..., Any], left: list[int], scope: anyio.CancelScope, *args: Any, **kw: Any
) -> Any:
    left[0] -= 1
    if left[0] < 0:
        scope.cancel()
    return await primitive(*args, **kw)


async def test_a_settlement_that_is_cancelled_was_carried_out_or_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled at each of its steps, it leaves the effect as it was or settled, and holds no thread."""
    await with_effects(store, *(effect("t", f"{step}") for step in range(9)))
    with anyio.fail_after(60):
        step = 0
        while await cut(store, monkeypatch, step, partial(store.settle, "t", f"{step}", happened=True)):
            view = await store.show("t")
            assert len(view.unknown) + view.number == 9 + 2
            async with held(store, "t"):
                step += 1
    assert step == 4


async def test_a_fork_that_is_cancelled_was_made_or_not(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled at each of its steps, it leaves a whole thread or none, and its id is free or nobody's to hold."""
    await suspended(store, "t")
    with anyio.fail_after(60):
        step = 0
        while await cut(store, monkeypatch, step, partial(store.fork, "t", "fork")):
            is_made = await store.thread("fork") is not None
            assert await store.inbox.count(thread_id="fork") == is_made
            async with held(store, "fork", create=True) as lease:
                assert lease.number == is_made
            await store.delete("fork")
            step += 1
    assert step == 4


async def test_an_effect_of_a_thread_that_runs_is_not_settled(store: Store) -> None:
    """Who holds the thread knows better; nothing is changed."""
    await with_effects(store, effect("t"))
    async with held(store, "t"):
        with pytest.raises(ThreadBusyError):
            await store.settle("t", "pay", happened=True)
    with pytest.raises(UnknownThreadError):
        await store.settle("nobody", "pay", happened=True)
    assert [one.status for one in await store.list()] == ["crashed"]


@pytest.mark.parametrize("happened", [True, False])
async def test_a_run_goes_on_with_what_was_settled(store: Store, happened: bool) -> None:
    """What has happened is not called again, and its result is used; else it is called under the same key."""
    keys: list[str] = []

    def build() -> Behaviour:
        async def act(node: Any) -> None:
            async def pay() -> int:
                keys.append(node.context.idempotency_key)
                if len(keys) == 1:
                    begun.set()
                    await anyio.sleep_forever()
                return len(keys)

            node.merge_dict("values", {"pay": await node.once("pay", pay, on_unknown="fail", result=int)})

        return Talk("act", act)

    with anyio.fail_after(60):
        begun = anyio.Event()
        agent = Agent(build(), Desk, store=store)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(agent.run, thread_id="t"))
            await begun.wait()
            with pytest.raises(ThreadBusyError):
                await store.settle("t", "pay", happened=happened)
            agent.halt()
        (entry,) = (await store.show("t")).unknown
        assert (entry.key, entry.state, entry.idempotency_key) == ("pay", "unknown", keys[0])
        await store.settle("t", entry.id, happened=happened, result=7 if happened else None)
        assert await store.due() == ["t"]
        again = Agent(build(), Desk, store=store)
        assert (await again.recover("t")).status is Status.SUCCESS
    assert again.state.values == {"pay": 7 if happened else 2}
    assert keys == keys[:1] * (1 if happened else 2)
    assert (await store.show("t")).unknown == ()


async def test_bad_input_is_refused_before_anything(store: Store) -> None:
    """Statuses, limits and instants that are none are typed errors."""
    await with_effects(store, effect("t"))
    naive = NOON.replace(tzinfo=None)
    bad: list[Any] = [
        store.list("sleeping"),
        store.list(limit=0),
        store.list(limit=True),
        store.list(after=""),
        store.history("t", limit=-1),
        store.history("t", after=-1),
        store.history("t", after="1"),  # pyright: ignore[reportArgumentType]  # a user's mistake
        store.sweep(naive),
        store.sweep("now"),  # pyright: ignore[reportArgumentType]  # a user's mistake
        store.settle("t", "pay", happened=True, now=naive),
        store.fork("t", now=naive),
    ]
    for call in bad:
        with pytest.raises(StoreError):
            await call
    assert [one.number for one in await store.list()] == [2]
