"""Our side of what keeping a thread costs: bytes on the disk, passes, questions answered; at the defaults of the store.

A pass here is one in which something changed: a leaf writes, and is ticked again.
"""

from __future__ import annotations

import operator
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, Field

from bench.measure import Effort, Pair, steady
from jianmu import Agent, InteractiveNode, Node, Repeat, Request
from jianmu.engine.holding import Level
from jianmu.engine.recording import LEAST
from jianmu.stores import SQLiteStore, Store

TEXT = "x" * 1_000
ALLOWED, FIXED = 3, 100_000
"""Stored bytes may be as many times what was written, and so many more."""

THREAD = "thread"


class Grown(BaseModel):
    """A list that grows by 1 kB."""

    lines: Annotated[list[str], operator.add] = Field(default_factory=list)


class Counted(BaseModel):
    """A number."""

    count: int = 0


class Append(Node):
    """Append 1 kB in each of some passes. SUCCESS in the last one."""

    def __init__(self, times: int) -> None:
        super().__init__("append")
        self._times = times

    def initialise(self) -> None:
        """Begin to count."""
        self._left = self._times

    def update(self) -> Status:
        """Append."""
        self.write_state({"lines": [TEXT]})
        self._left -= 1
        return Status.RUNNING if self._left else Status.SUCCESS


class Count(Node):
    """Count the passes. SUCCESS when they are as many as wanted."""

    def __init__(self, times: int) -> None:
        super().__init__("count")
        self._times = times

    def update(self) -> Status:
        """Count."""
        count = self.read_state().count + 1
        self.write_state({"count": count})
        return Status.RUNNING if count < self._times else Status.SUCCESS


class AskAndAppend(InteractiveNode):
    """Ask whether to go on, then append 1 kB."""

    def request(self) -> Request:
        """Ask."""
        return Request("Go on?", answer=bool)

    def on_answer(self, answer: bool) -> Status:
        """Append."""
        self.write_state({"lines": [TEXT]})
        return Status.SUCCESS


@contextmanager
def new_file() -> Iterator[Path]:
    """Give a path for a database in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "threads.db"


def stored(path: Path) -> int:
    """Return the bytes of a database, with what stands beside it."""
    return sum(file.stat().st_size for file in path.parent.iterdir())


async def opened(store: Store) -> None:
    """Have a store opened and its tables made."""
    await store.list(limit=1)


async def run(path: Path, root: Behaviour, schema: type[BaseModel], level: Level = "async") -> float:
    """Run a tree on a new thread of a store that is open, and return the seconds of the run."""
    async with SQLiteStore(path) as store:
        await opened(store)
        agent = Agent(root, schema, store=store, durability=level)
        with steady():
            start = time.perf_counter()
            status = await agent.run(thread_id=THREAD)
            seconds = time.perf_counter() - start
    if status is not Status.SUCCESS:
        raise RuntimeError(f"the run ended with {status}")
    return seconds


async def counting(times: int, level: Level) -> float:
    """Return the seconds of a pass that counts and is saved."""
    with new_file() as path:
        return await run(path, Count(times), Counted, level) / times


async def appending(times: int, level: Level) -> float:
    """Return the seconds of a pass that appends 1 kB and is saved."""
    with new_file() as path:
        return await run(path, Append(times), Grown, level) / times


async def appended_bytes(times: int) -> int:
    """Return the bytes stored of a run whose passes append 1 kB."""
    with new_file() as path:
        await run(path, Append(times), Grown)
        return stored(path)


@dataclass(frozen=True)
class Growth:
    """Stored bytes beside what was written, at some number of passes.

    Attributes:
        passes: how many, each of which appends 1 kB.
        asks: whether each of them waits for an answer first: the run is suspended and resumed.
    """

    passes: int
    asks: bool = False

    def __call__(self, effort: Effort) -> Pair:
        """Return the bytes stored, and those that are allowed."""
        return anyio.run(self._measured, min(self.passes, 20) if effort.short else self.passes)

    async def _measured(self, passes: int) -> Pair:
        with new_file() as path:
            async with SQLiteStore(path) as store:
                await (self._answered if self.asks else self._run)(store, passes)
                log = await store.log(THREAD, limit=10 * passes)
            written = sum(max(LEAST, len(body.encode())) for _, body in log)
            return Pair(stored(path), ALLOWED * written + FIXED)

    async def _run(self, store: Store, passes: int) -> None:
        await Agent(Append(passes), Grown, store=store).run(thread_id=THREAD)

    async def _answered(self, store: Store, passes: int) -> None:
        agent = Agent(Repeat("loop", AskAndAppend("ask"), times=passes), Grown, store=store)
        outcome = await agent.run_until_suspend(thread_id=THREAD)
        for _ in range(passes):
            outcome = await agent.resume(True)
        if outcome.status is not Status.SUCCESS:
            raise RuntimeError(f"the run ended with {outcome.status}")
