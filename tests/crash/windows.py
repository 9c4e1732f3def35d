"""What the tests of crash windows share: the places with names, and how a story is looked at."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import psycopg
from psycopg import sql

from jianmu.stores.base import Store
from tests.crash.conftest import Crashes
from tests.crash.forge import Story
from tests.crash.hooks import Hook
from tests.crash.notes import Note

T = TypeVar("T")
Tell = Callable[..., Iterator[Story]]
ENGINE = "jianmu.engine."
STORES = "jianmu.stores."
BEGIN = ENGINE + "recording:Recording.cut"
CLOSE = ENGINE + "holding:Holding.close"
CARRY_OUT = ENGINE + "activity:Tasks.carry_out"
CONTROLLER = ENGINE + "controller:InteractionController."
JOURNAL = ENGINE + "journal:Journal."
MOVE = STORES + "sql:SQLStore.move"
RESUMED = Hook(STORES + "sql:SQLStore.take", since="jianmu.agent:Agent.resume")
"""Where `resume` answers as it takes the thread, in one transaction."""

SHAPES = "tests.crash.shapes:"
ACT = SHAPES + "Act."
COMMITS = (STORES + "sql:SQLStore.commit", STORES + "postgres:PostgresStore.commit")
KILLED = -signal.SIGKILL
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
        with anyio.fail_after(TIME):
            async with crashes.store(story.plan) as store:
                return await do(store)

    return anyio.run(looking)


def tampered(story: Story, text: str) -> None:
    """Change a story's store behind its back, by a statement."""
    plan = story.plan
    if plan.store == "sqlite":
        with closing(sqlite3.connect(plan.place)) as connection, connection:
            connection.execute(text)
        return
    with psycopg.connect(plan.place) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(plan.schema)))
        connection.execute(text.encode())


def wait_for(get: Callable[[], T | None]) -> T:
    """Return what another process brings about, as soon as it is there."""
    until = time.monotonic() + TIME
    while (got := get()) is None:
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)
    return got


@contextmanager
def stopped(crashes: Crashes, story: Story) -> Iterator[int]:
    """Have a life of a story lived up to where it stops; at the end of the block, until it ends. Yields its process."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(crashes.forges[0].live, story)
        process = wait_for(lambda: next(iter(_stopped(story)), None))
        try:
            yield process
        except BaseException:
            os.kill(process, signal.SIGKILL)
            raise
        ended.result(TIME)


def _stopped(story: Story) -> list[int]:
    """Return the processes of a story that stand still."""
    processes = [note["process"] for note in story.all("stopped")]
    return [one for one in processes if Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0] == "T"]
