"""What the tests of crash windows share: the places with names, and how a story is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
from anyio import fail_after

from jianmu.stores.base import Store
from tests.crash.conftest import Crashes
from tests.crash.forge import Story
from tests.crash.notes import Note

Tell = Callable[..., Iterator[Story]]
ENGINE = "jianmu.engine."
STORES = "jianmu.stores."
BEGIN = ENGINE + "recording:Recording.cut"
CLOSE = ENGINE + "holding:Holding.close"
CARRY_OUT = ENGINE + "activity:Tasks.carry_out"
CONTROLLER = ENGINE + "controller:InteractionController."
JOURNAL = ENGINE + "journal:Journal."
MOVE = STORES + "sql:SQLStore.move"
SHAPES = "tests.crash.shapes:"
ACT = SHAPES + "Act."
TIME = 30.0


def found(story: Story, life: int = 1) -> Note:
    """Return what was in the store when a life began."""
    return next(note for note in story.all("found") if note["life"] == life)


def asked(note: Note, name: str) -> Note:
    """Return a question that is in the store."""
    return next(one for one in note["asked"] if one["of"] == name)


def effect(note: Note, name: str) -> str | None:
    """Return how an effect stands in the store, by its node's name."""
    return next(
        (one["state"] for one in note["effects"].values() if one["origin"]["path"].rpartition("/")[2] == name), None
    )


def noted(story: Story, what: str, life: int | None = None, **told: Any) -> list[Note]:
    """Return the notes of a kind, of one life or all, with these parts."""
    notes = [note for note in story.all(what) if life in (None, note["life"])]
    return [note for note in notes if all(note.get(name) == value for name, value in told.items())]


def look(crashes: Crashes, story: Story, do: Callable[[Store], Any]) -> Any:
    """Have something done with a story's store, as another process would."""

    async def looking() -> Any:
        with fail_after(TIME):
            async with crashes.store(story.plan) as store:
                return await do(store)

    return anyio.run(looking)
