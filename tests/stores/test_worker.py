"""The thread of a store: when it begins and ends, what it hands back, what it keeps alive."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import anyio
import anyio.from_thread
import pytest

from jianmu.stores import worker
from jianmu.stores.worker import Worker

pytestmark = pytest.mark.anyio


def threads() -> list[threading.Thread]:
    """Return the threads of stores."""
    return [thread for thread in threading.enumerate() if thread.name == "jianmu store"]


class Box:
    """Something to be used in a thread."""

    def look(self) -> int:
        """Return the thread that looks."""
        return threading.get_ident()


async def test_one_thread_does_all_work() -> None:
    """Work is done elsewhere than on the loop, piece after piece in the same thread."""
    store, box = Worker(), Box()
    with anyio.fail_after(10):
        found = {await store.do(box.look) for _ in range(3)}
    assert len(found) == 1
    assert threading.get_ident() not in found


async def test_what_is_raised_comes_to_the_caller() -> None:
    """Any exception is the caller's, and the thread works on."""
    store = Worker()

    def fail(error: BaseException) -> None:
        raise error

    with anyio.fail_after(10):
        for error in (ValueError("no"), KeyboardInterrupt()):
            with pytest.raises(type(error)) as raised:
                await store.do(lambda error=error: fail(error))
            assert raised.value is error
        assert await store.do(lambda: 1) == 1


async def test_a_thread_that_has_nothing_to_do_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after a while, and the next piece of work begins another."""
    monkeypatch.setattr(worker, "IDLE", 0.01)
    store = Worker()
    with anyio.fail_after(10):
        before = threads()
        await store.do(lambda: None)
        for thread in threads():
            if thread not in before:
                thread.join()
        assert await store.do(lambda: 1) == 1


async def test_where_no_thread_can_be_started_the_next_call_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call says so, its work is not done later, and what comes after it waits for nobody."""
    done: list[int] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pieces = Worker()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await pieces.do(lambda: done.append(1))
    await pieces.do(lambda: done.append(2))
    assert done == [2]


async def test_a_thread_keeps_nothing_alive() -> None:
    """What was used for a piece of work, and what came of it, may go when the caller has let it go."""
    store, box = Worker(), Box()
    with anyio.fail_after(10):
        await store.do(box.look)
        seen = weakref.ref(box)
        del box
        until = time.monotonic() + 5  # the thread may not have let it go yet
        while seen() is not None and time.monotonic() < until:
            gc.collect()
    assert seen() is None


async def test_what_waits_for_its_turn_can_be_cancelled() -> None:
    """A call is not begun when its task was cancelled before; one that was begun is waited for."""
    store, is_on, is_over = Worker(), threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        is_on.set()
        is_over.wait(10)
        done.append("slow")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(store.do, slow)
            while not is_on.is_set():
                await anyio.lowlevel.checkpoint()
            group.start_soon(store.do, lambda: done.append("late"))
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
            is_over.set()
        assert done == ["slow"]
        await store.do(lambda: done.append("next"))
    assert done == ["slow", "next"]


async def test_what_was_begun_is_brought_to_its_caller() -> None:
    """A call that is cancelled while it is done returns what came of it; the task is cancelled where it waits next."""
    store, scope, got = Worker(), anyio.CancelScope(), list[str]()

    token = anyio.lowlevel.current_token()

    def work() -> str:
        anyio.from_thread.run_sync(scope.cancel, token=token)
        return "done"

    with anyio.fail_after(10):
        with scope:
            got.append(await store.do(work))
            await anyio.lowlevel.checkpoint()
            got.append("more")
        assert await store.do(lambda: 1) == 1
    assert (got, scope.cancelled_caught) == (["done"], True)


async def test_a_task_that_is_cancelled_by_its_loop_waits_too(anyio_backend_name: str) -> None:
    """asyncio's own cancel, of which it tells a task once, is raised when what was begun is done."""
    if anyio_backend_name != "asyncio":
        pytest.skip("trio has scopes only")
    store, is_on, is_over, done = Worker(), threading.Event(), threading.Event(), list[str]()

    def slow() -> None:
        is_on.set()
        is_over.wait(10)
        done.append("slow")

    with anyio.fail_after(10):
        task = asyncio.get_running_loop().create_task(store.do(slow))
        while not is_on.is_set():
            await anyio.lowlevel.checkpoint()
        task.cancel()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert not task.done()
        is_over.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert done == ["slow"]
