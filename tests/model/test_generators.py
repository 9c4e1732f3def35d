"""Async generators that a library leaves behind."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator

import anyio
import pytest
from anyio.lowlevel import checkpoint

from jianmu.model.generators import Owner

pytestmark = pytest.mark.anyio


class Library:
    """Begins generators and forgets them."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.kept: list[AsyncGenerator[int, None]] = []

    async def numbers(self, name: str) -> AsyncGenerator[int, None]:
        """Yield numbers; closing takes a turn of the event loop."""
        try:
            yield 1
            yield 2
        finally:
            await checkpoint()
            self.closed.append(name)

    async def first(self, name: str, *, keep: bool) -> int:
        """Return the first number, and leave the generator where it is."""
        generator = self.numbers(name)
        if keep:
            self.kept.append(generator)
        await checkpoint()
        return await anext(generator)


async def test_what_was_begun_in_a_call_is_closed_with_its_owner() -> None:
    """Generators that are still there, and those that nobody has any more, are closed in the task of the owner."""
    owner, library = Owner(), Library()
    assert await owner.call(library.first("kept", keep=True)) == 1
    assert await owner.call(library.first("dropped", keep=False)) == 1
    gc.collect()
    assert library.closed == []
    await owner.close()
    assert sorted(library.closed) == ["dropped", "kept"]


async def test_generators_of_others_are_not_touched() -> None:
    """What another task begins while a call waits belongs to the event loop, as ever."""
    owner, library = Owner(), Library()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
        await owner.call(checkpoint())
        mine = library.numbers("mine")
        await anext(mine)
    await owner.close()
    assert library.closed == []
    await mine.aclose()


async def test_a_call_passes_errors_and_cancellation_on() -> None:
    """What the coroutine raises comes out, and what the event loop throws goes in."""
    owner = Owner()

    async def fail() -> None:
        await checkpoint()
        raise KeyError("x")

    with pytest.raises(KeyError):
        await owner.call(fail())
    with anyio.move_on_after(0) as scope:
        await owner.call(anyio.sleep_forever())
    assert scope.cancelled_caught
