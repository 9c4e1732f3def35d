"""What the crash tests share: processes that run plans, and places for their stores."""

from __future__ import annotations

import itertools
import os
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from typing import Any, TypeVar

import pytest

from jianmu.stores import PostgresStore, SQLiteStore
from jianmu.stores.base import Store
from tests.crash.forge import Forge, Story
from tests.crash.program import Death, Plan
from tests.crash.promises import broken
from tests.postgres import Server, empty, fresh_schema

COMBINATIONS = [
    "-".join(parts)
    for parts in itertools.product(("sqlite", "postgres"), ("asyncio", "trio"), ("sync", "async", "exit"))
]
SOME = (0, 4, 5, 7, 8, 9)
"""The places of combinations for the short run: each store has each backend and each level."""

CORES = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2  # else the others are at work already
Item = TypeVar("Item")


def mostly_full(items: Sequence[Item], *short: int) -> list[Any]:
    """Return the items as parameters of a test; only those at some places are for the short run too."""
    return [item if place in short else pytest.param(item, marks=pytest.mark.full) for place, item in enumerate(items)]


class Crashes:
    """Runs plans and gives them places.

    Args:
        folder: for files.
        postgres: the server, which is started when it is wanted.
    """

    def __init__(self, folder: Path, postgres: Server) -> None:
        self._folder = folder
        self._postgres = postgres
        self._numbers = itertools.count()
        self._free = LifoQueue[Forge]()
        self.forges = [Forge(self._made(f"forge{number}")) for number in range(2)]
        for forge in self.forges:
            self._free.put(forge)

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    def plan(
        self,
        shape: str,
        combination: str,
        *deaths: Death,
        way: str = "inbox",
        since: str = "",
        is_counted: bool = False,
        is_new: bool = False,
    ) -> Plan:
        """Return a plan with an empty store of its own; a new one has no tables either."""
        store, backend, level = combination.split("-")
        common = {"way": way, "since": since, "is_counted": is_counted, "deaths": deaths}
        if store == "sqlite":
            place = self._folder / f"{next(self._numbers)}.db"
            return Plan(shape, store, str(place), backend, level, **common)
        free = self._postgres.free
        schema = free.pop() if free and not is_new else fresh_schema()
        return Plan(shape, store, self._postgres.dsn, backend, level, schema=schema, **common)

    def run(self, plan: Plan) -> Story:
        """Have a plan carried out, and its store forgotten."""
        forge = self._free.get()
        try:
            return forge.run(plan)
        finally:
            self._free.put(forge)
            self.forget(plan)

    def run_all(self, plans: Iterable[Plan]) -> list[Story]:
        """Have plans carried out, several at a time."""
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(self.run, plans))

    def store(self, plan: Plan) -> Store:
        """Return the store of a plan, for a test that looks into it."""
        if plan.store == "sqlite":
            return SQLiteStore(plan.place)
        return PostgresStore(plan.place, schema=plan.schema)

    def forget(self, plan: Plan) -> None:
        """Remove what a plan has stored."""
        if plan.store == "postgres":
            empty(plan.place, plan.schema)
            self._postgres.free.append(plan.schema)
            return
        place = Path(plan.place)
        for file in place.parent.glob(f"{place.name}*"):
            file.unlink()

    def close(self) -> None:
        """End all processes."""
        for forge in self.forges:
            forge.close()


@pytest.fixture
def tell(crashes: Crashes, request: pytest.FixtureRequest, full: bool) -> Callable[..., Iterator[Story]]:
    """Return what runs a shape that dies at a place, in one combination or several; all promises are kept in each."""
    first = crc32(request.node.name.encode())
    some = [COMBINATIONS[(first + more) % len(COMBINATIONS)] for more in ((0, 5, 7, 10) if full else (0,))]

    def run(
        shape: str, *deaths: Death, level: str = "", way: str = "inbox", is_killed: bool = True, is_new: bool = False
    ) -> Iterator[Story]:
        names = [name if not level else f"{name.rpartition('-')[0]}-{level}" for name in some]
        plans = [crashes.plan(shape, name, *deaths, way=way, is_new=is_new) for name in names]
        for story in crashes.run_all(plans):
            assert broken(story) == [], (story.plan, story.notes)
            assert story.kills == len(deaths) * is_killed, story.plan
            yield story

    return run


@pytest.fixture(scope="session")
def crashes(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> Iterator[Crashes]:
    """What runs plans."""
    crashes = Crashes(tmp_path_factory.mktemp("crashes"), postgres)
    yield crashes
    crashes.close()
