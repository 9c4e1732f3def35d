"""The timeline of `title`: after the first exchange, once; in a broken-off turn too; a person's name wins and stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.message import human
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel, Turn
from jianmu.thread import fork_thread, renamed
from tests.cases.leaves import nothing_left
from tests.thread.boxes import until
from tests.thread.timeline import World, said

pytestmark = pytest.mark.anyio


async def test_a_title_comes_after_the_first_exchange_and_never_again(tmp_path: Path) -> None:
    """A model makes it, after the answer; a later program asks that model no more."""
    world = World(tmp_path)
    first = await world.program(["With water."], said("How is tea made?"), title=ScriptedModel(["Making tea"]))
    assert first.marks("think", "title") == ["think", "title", "+title"]
    assert (first.state.title, first.state.title_by) == ("Making tea", "model")
    second = await world.program(["Yes."], said("With milk?"), title=ScriptedModel([]))
    assert second.writes("title") == []
    assert second.state.title == "Making tea"


async def test_a_first_turn_that_is_broken_off_has_a_title(tmp_path: Path) -> None:
    """Cancelled while the model is asked: the text gives it; it is there in the next program, and stays."""
    world = World(tmp_path)
    async with SQLiteStore(world.path) as store:
        made = world.agent(ScriptedModel([Turn("never", delay=60)]), store=store)
        async with anyio.create_task_group() as group:

            async def turn() -> None:
                with nothing_left(made):
                    await made.run({"messages": [human("Taxes of this year")]}, thread_id="t")

            group.start_soon(turn)
            await until(
                lambda: any(one.name == "think" and one.status.name == "RUNNING" for one in made.root.iterate())
            )
            made.halt("stopped")
    later = await world.program(["fine"], said("go on"), title=ScriptedModel([]), on_new_input="withdraw")
    assert (later.state.title, later.state.title_by) == ("Taxes of this year", "text")


async def test_a_rename_stays_in_a_fork_from_before_it(tmp_path: Path) -> None:
    """Two turns, a rename, a fork to the first: the new thread has the new name and the old conversation."""
    world = World(tmp_path)
    await world.program(["With water."], said("How is tea made?"))
    async with SQLiteStore(world.path) as store:
        before = (await store.history("t"))[-1].number
    await world.program(["Yes."], said("With milk?"))
    async with SQLiteStore(world.path) as store:
        made: Any = world.agent(ScriptedModel([]), store=store)
        await made.load("t")
        made.state_manager.update(renamed("All about tea"))
        await made.save()
    async with SQLiteStore(world.path) as store:
        made = world.agent(ScriptedModel(["Of course."]), store=store)
        await fork_thread(made, "t", "fork", at=before)
        assert (made.state.title, made.state.title_by) == ("All about tea", "person")
        assert [one.text for one in made.state.messages] == ["How is tea made?", "With water."]
        await made.run({"messages": [human("With lemon?")]}, thread_id="fork")
        assert made.state.title == "All about tea"
