"""MemoryStore: what it has in common with a file is tried by `check_store`; here, what is its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import anyio
import pytest
from anyio import to_thread

from jianmu.engine.checkpoint import Row
from jianmu.errors import StoreError
from jianmu.stores import MemoryStore
from jianmu.testing.store_scene import NOON, begin, picture, story, take
from tests.forks import Process

pytestmark = pytest.mark.anyio


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


async def test_a_forked_child_has_a_copy(start: Callable[..., Process]) -> None:
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
