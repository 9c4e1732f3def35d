"""MemoryStore: threads go from one agent to another by their JSON alone, in any thread and on any loop."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import anyio
import pytest
from anyio import to_thread

from jianmu.engine.checkpoint import Row
from jianmu.engine.interaction import Answer, InteractionController, Request
from jianmu.engine.runrecord import RunRecord, load
from jianmu.errors import AlreadyAnsweredError, StoreError, UnknownSuspensionError
from jianmu.stores import MemoryStore
from jianmu.testing.store_scene import NOON, begin, picture, story, take
from tests.engine.asking import HandClock, origin

pytestmark = pytest.mark.anyio
IDS = ["a", "ab", "../x", "user/1", "it's", "a_b", "a%b", "A_B", "线程", "x" * 500]


async def save(store: MemoryStore, thread_id: str, desk: InteractionController) -> None:
    """Save a thread that has nothing but questions."""
    record = RunRecord(fingerprint="f", thread_id=thread_id, run=1, status="suspended", questions=desk.dump())
    await store.save(thread_id, record.dump())


async def load_desk(store: MemoryStore, thread_id: str) -> InteractionController:
    """Return the thread's questions as another agent loads them."""
    desk = InteractionController(HandClock())
    data = await store.load(thread_id)
    assert data is not None
    desk.load(load(data).questions)
    return desk


async def test_agents_that_share_a_store_see_each_others_answers() -> None:
    """An answer saved by one is refused a second time by the other; unknown ids are refused there too."""
    store = MemoryStore()
    first = InteractionController(HandClock())
    id = first.ask(origin(thread_id="t1"), Request("?")).id
    await save(store, "t1", first)
    second = await load_desk(store, "t1")
    await second.answer(Answer(id, "x", by="ann"))
    await save(store, "t1", second)
    third = await load_desk(store, "t1")
    with pytest.raises(AlreadyAnsweredError) as refused:
        await third.answer(Answer(id, "y"))
    assert refused.value.record.answer.by == "ann"
    with pytest.raises(UnknownSuspensionError):
        await third.answer(Answer("never", "y"))
    assert third.deliver(id) == "x"


async def test_nothing_is_shared_with_what_was_saved() -> None:
    """Later changes of a record, saved or loaded, do not reach the store."""
    store = MemoryStore()
    record: dict[str, Any] = {"n": [1]}
    await store.save("t", record)
    record["n"].append(2)
    got = await store.load("t")
    assert got == {"n": [1]}
    got["n"].append(3)
    assert await store.load("t") == {"n": [1]}


async def test_all_thread_ids_are_different_threads() -> None:
    """K19, K32: ids that look alike or like paths are kept apart; an unknown one is None."""
    store = MemoryStore()
    for number, id in enumerate(IDS):
        await store.save(id, {"n": number})
    assert [await store.load(id) for id in IDS] == [{"n": number} for number in range(len(IDS))]
    assert await store.load("other") is None


@pytest.mark.parametrize("id", ["", "a\0", "\ud800", "x" * 513], ids=repr)
async def test_what_is_no_thread_id_is_refused(id: str) -> None:
    """The same rule as everywhere, for saving and loading."""
    store = MemoryStore()
    for act in (store.save(id, {}), store.load(id)):
        with pytest.raises(StoreError, match="1 to 512 characters"):
            await act


@pytest.mark.parametrize("record", [{"a": {1}}, {"a": float("nan")}, {1: 2}, {"a": "\ud800"}], ids=repr)
async def test_only_json_is_kept(record: Any) -> None:
    """A record that is not JSON is a StoreError with the thread, and the one before stays."""
    store = MemoryStore()
    await store.save("t", {"ok": True})
    with pytest.raises(StoreError, match="has to be JSON") as refused:
        await store.save("t", record)
    assert refused.value.thread_id == "t"
    assert await store.load("t") == {"ok": True}


async def test_closing_keeps_what_there_is() -> None:
    """What is kept in memory is nowhere else: closing, also by `async with`, loses nothing."""
    async with MemoryStore() as store:
        writer = await story(store, "t")
        before = await picture(store, "t")
    await store.close()
    assert await picture(store, "t") == before
    await writer.write()


async def test_stores_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store in memory is one of its own, and nothing is written to the disk."""
    monkeypatch.chdir(tmp_path)
    one, two = MemoryStore(), MemoryStore()
    await begin(one, "t")
    assert (await one.mail("t"), await two.mail("t")) == (0, -1)
    assert await to_thread.run_sync(lambda: list(tmp_path.iterdir())) == []


async def test_an_error_loses_nothing() -> None:
    """After an error the store has what it had, and works on."""
    store = MemoryStore()
    writer = await story(store, "t")
    before = await picture(store, "t")
    await store.call("look", lambda say: say("PRAGMA max_page_count = 1").fetchone())
    with pytest.raises(StoreError, match="full"):
        await writer.write(body="x" * 1_000_000)
    with pytest.raises(StoreError, match="64 bits"):
        await store.enqueue("t", Row("input", "in", "[]", came=2**80), wake_at=NOON)
    with pytest.raises(StoreError, match="SQLite says"):
        await store.call("write", lambda say: say("SELECT +"))
    assert await picture(store, "t") == before
    await store.call("look", lambda say: say("PRAGMA max_page_count = 100000").fetchone())
    await writer.write()


async def test_threads_and_loops_share_a_store() -> None:
    """Eight threads with event loops of their own, on both backends, work with one store; nothing is lost."""
    store, barrier = MemoryStore(), Barrier(8, timeout=30)

    async def work(me: int) -> None:
        barrier.wait()
        writer = await take(store, f"t{me}")
        for number in range(50):
            await writer.write()
            assert await store.enqueue(f"t{me}", Row("input", str(number), "[]"), wake_at=NOON)

    def turn(me: int) -> None:
        anyio.run(work, me, backend=("asyncio", "trio")[me % 2])

    with anyio.fail_after(60), ThreadPoolExecutor(8) as pool:
        await to_thread.run_sync(lambda: list(pool.map(turn, range(8))))
    assert [(thread.number, thread.mail) for thread in await store.threads()] == [(50, 50)] * 8


async def test_a_cancelled_task_begins_nothing() -> None:
    """As with a file: a call of a task that is cancelled already does not begin."""
    store = MemoryStore()
    writer = await begin(store, "t")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await writer.write()
    thread = await store.thread("t")
    assert thread is not None
    assert thread.number == 1


async def test_a_forked_child_has_a_copy(start: Callable[..., subprocess.Popen[str]]) -> None:
    """What a child does with a store in memory is its own affair, also if a thread was writing at that moment."""
    program = """
import os, threading, anyio
from jianmu.stores import MemoryStore
from jianmu.testing.store_scene import begin

store, is_over = MemoryStore(), threading.Event()

def keep_writing():
    while not is_over.is_set():
        anyio.run(begin, store, str(len(anyio.run(store.threads))))

thread = threading.Thread(target=keep_writing)
thread.start()
anyio.run(begin, store, "parent")
for _ in range(5):
    child = os.fork()
    if child == 0:
        anyio.run(begin, store, "child")
        os._exit(0 if anyio.run(store.mail, "parent") == 0 else 1)
    print(os.waitpid(child, 0)[1], flush=True)
is_over.set()
thread.join()
print(anyio.run(store.mail, "child"), flush=True)
"""
    process = start(program)
    with anyio.fail_after(60):
        lines, _ = await to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    assert lines.split() == ["0"] * 5 + ["-1"]
