"""Turns: one task at a time in a block, whoever waits and whoever is cancelled."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from jianmu.engine.attendance import Turn

pytestmark = pytest.mark.anyio


async def test_one_task_at_a_time_has_its_turn() -> None:
    """Of several tasks each comes into the block, and none while another is in it."""
    turn, inside, been = Turn(), 0, 0

    async def work() -> None:
        nonlocal inside, been
        async with turn:
            inside += 1
            assert inside == 1
            for _ in range(3):
                await checkpoint()
            inside, been = inside - 1, been + 1

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(work)
    assert been == 5


async def test_who_waits_for_a_turn_can_be_cancelled() -> None:
    """A task that is cancelled while it waits, or in its turn, keeps nobody from theirs."""
    turn, been = Turn(), list[str]()

    async def work(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            async with turn:
                been.append(name)
                await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            scopes = [anyio.CancelScope() for _ in range(3)]
            for name, scope in zip("abc", scopes, strict=True):
                group.start_soon(work, name, scope)
                while not been:
                    await checkpoint()
            for _ in range(3):
                await checkpoint()
            scopes[1].cancel()
            scopes[0].cancel()
            while been != ["a", "c"]:
                await checkpoint()
            scopes[2].cancel()
        async with turn:
            assert been == ["a", "c"]
