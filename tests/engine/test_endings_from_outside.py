"""Ends of runs that come from outside: halts, cancellation at each turn of the loop, streams that are left."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import anyio
import pytest
from py_trees.common import Status

from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import RunEnded
from jianmu.engine.limits import Limits
from jianmu.errors import LimitExceeded
from jianmu.stores.memory import MemoryStore
from tests.cases.leaves import INVALID, SUCCESS, events_of, of_kind
from tests.engine.scene import AskTrigger, AsyncTrigger, Scene, Trigger, hops

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "who", ["a task", "a thread", "update", "a coroutine", "twice", "a listener", "the first pass"]
)
async def test_a_halt_ends_the_run(who: str) -> None:
    """From wherever, how often it be: INVALID, all cleaned up; the next run is not touched by it."""

    class Halts(Trigger):
        def update(self) -> Status:
            if self.scene.is_armed and who in ("update", "twice", "the first pass"):
                self.scene.agent.halt()
            return super().update()

    class HaltsLater(AsyncTrigger):
        async def update_async(self) -> Status:
            await hops(3)
            if self.scene.is_armed:
                self.write_state({"n": 1})
                if who == "a coroutine":
                    self.scene.agent.halt()
                    await anyio.sleep_forever()
            return SUCCESS

    scene = Scene(HaltsLater if who in ("a coroutine", "a listener") else Halts)
    if who == "a listener":
        scene.agent.state_manager.subscribe(lambda change: change.fields == ("n",) and scene.agent.halt())

    async def later() -> None:
        await hops(10)
        if who == "a thread":
            await anyio.to_thread.run_sync(scene.agent.halt)
        else:
            scene.agent.halt("enough")
            scene.agent.halt()

    scene.begin()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            if who in ("a task", "a thread", "twice"):
                group.start_soon(later)
            assert await scene.agent.run() is INVALID
    await scene.check_again()


async def test_a_halt_while_it_cleans_up_changes_nothing() -> None:
    """Halted again in the middle of the cleanup: the cleanup goes on to its end."""
    scene = Scene(Trigger)

    async def keep_halting() -> None:
        for _ in range(60):
            await hops(1)
            scene.agent.halt()

    scene.begin()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(keep_halting)
            assert await scene.agent.run() is INVALID
            assert scene.live == set()
            group.cancel_scope.cancel()
    await scene.check_again()


@pytest.mark.parametrize("how", ["break", "exception", "cancelled", "at once", "not begun"])
async def test_a_stream_that_is_left_ends_its_run(how: str) -> None:
    """Whatever makes the reader leave: the run is halted and quiet; the reader's exception comes out as it is."""
    scene = Scene(AsyncTrigger)
    events = events_of(scene.agent)
    scene.begin()
    expected = pytest.raises(LookupError, match="mine") if how == "exception" else nullcontext()
    with anyio.fail_after(5), anyio.CancelScope() as scope, expected:
        async with scene.agent.stream() as stream:
            async for event in stream if how != "at once" else _nothing():
                if how == "not begun" or event.seq > 6:
                    await _leave(how, scope)
                    break
    ends = of_kind(events, RunEnded)
    assert [end.outcome.status for end in ends] == ([] if how == "at once" else [INVALID])
    await scene.check_again()


async def _leave(how: str, scope: anyio.CancelScope) -> None:
    """Make the reader leave."""
    if how == "exception":
        raise LookupError("mine")
    if how == "cancelled":
        scope.cancel()
        await hops(1)


async def _nothing() -> Any:
    """Yield nothing."""
    for each in ():
        yield each


@pytest.mark.parametrize("store", [None, MemoryStore])
@pytest.mark.parametrize("is_armed", [True, False])
async def test_a_cancellation_at_each_turn_of_the_loop(store: type | None, is_armed: bool) -> None:
    """Cancelled at the k-th turn, for all k until the run ends by itself: nothing is left, and it runs again."""
    turn, has_ended = 0, False
    while not has_ended and (not is_armed or turn < 40):
        scene = Scene(AskTrigger, store=store() if store else None)
        scene.is_armed = is_armed
        scene.begin()
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_after, scope, turn)
                await scene.agent.run()
                group.cancel_scope.cancel()
        has_ended = not scope.cancelled_caught
        await scene.check_again()
        turn += 1
    assert has_ended is not is_armed
    assert turn > 5


async def _cancel_after(scope: anyio.CancelScope, turns: int) -> None:
    await hops(turns)
    scope.cancel()


async def test_a_cancellation_during_the_cleanup_waits_for_its_end() -> None:
    """The second cancellation, at whichever turn it comes, cuts nothing short."""
    for turn in range(0, 30, 2):
        scene = Scene(Trigger)
        scene.begin()
        with anyio.fail_after(5), anyio.CancelScope() as outer, anyio.CancelScope() as inner:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_after, inner, 12)
                group.start_soon(_cancel_after, outer, 12 + turn)
                await scene.agent.run()
        await scene.check_again()


async def test_a_halt_and_a_cancellation_in_any_order() -> None:
    """Both at the same moment or some turns apart: one end, and quiet."""
    for halt_at in range(8, 26, 3):
        for cancel_at in range(8, 26, 3):
            scene = Scene(Trigger)
            scene.begin()
            with anyio.fail_after(5), anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(_cancel_after, scope, cancel_at)
                    group.start_soon(_halt_after, scene, halt_at)
                    await scene.agent.run()
                    group.cancel_scope.cancel()
            await scene.check_again()


async def _halt_after(scene: Scene, turns: int) -> None:
    await hops(turns)
    scene.agent.halt()


async def test_halts_of_many_threads_while_the_state_is_written() -> None:
    """Writers and halters in threads of their own: INVALID, and quiet."""
    scene = Scene(Trigger)
    go = threading.Event()

    def write() -> None:
        while not go.is_set():
            scene.agent.state_manager.transform_field("n", lambda n: n + 1)

    threads = [threading.Thread(target=write) for _ in range(2)]
    scene.begin()
    for thread in threads:
        thread.start()
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(_halt_after, scene, 20)
                assert await scene.agent.run() is INVALID
    finally:
        go.set()
        for thread in threads:
            thread.join()
    await scene.check_again()


async def test_the_virtual_clock_leaves_nothing_either() -> None:
    """A run on it ends with its pump, however it ends."""
    for limits in (Limits(timeout=1), Limits(max_ticks=2)):
        scene = Scene(AsyncTrigger, clock=VirtualClock(autojump=True))
        scene.begin()
        with anyio.fail_after(5), pytest.raises(LimitExceeded):
            await scene.agent.run(limits=limits)
        await scene.check_again()
