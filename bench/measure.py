"""How two things are timed fairly: in turns, with the garbage collector off for both, the best of many short rounds.

A short round has a chance to run undisturbed on a busy machine, a long one has none. Time is that of the wall: a side
that waits is charged for it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How long to measure: a full run, or a short one that only shows that everything works."""

    short: bool

    @property
    def rounds(self) -> int:
        """How many times each side is timed."""
        return 2 if self.short else 30

    @property
    def few(self) -> int:
        """How many times each side is timed where a round takes long."""
        return 1 if self.short else 10

    def times(self, number: int) -> int:
        """Return how many times an operation is repeated in a round."""
        return max(1, number // 10) if self.short else number


@dataclass(frozen=True)
class Pair:
    """What was measured on each side: seconds for one operation, or bytes."""

    ours: float
    peer: float


@contextmanager
def steady() -> Iterator[None]:
    """Collect garbage before and not during a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def block(work: Callable[[], object], times: int) -> float:
    """Time `work`, called `times` times in a loop, and return seconds for one call."""
    count = range(times)
    with steady():
        start = time.perf_counter()
        for _ in count:
            work()
        return (time.perf_counter() - start) / times


async def async_block(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Time `work`, awaited `times` times in a loop, and return seconds for one call."""
    count = range(times)
    with steady():
        start = time.perf_counter()
        for _ in count:
            await work()
        return (time.perf_counter() - start) / times


def in_turns(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> Pair:
    """Run two timed blocks in turns, each first in every other round, after one round of each to warm up."""
    sides = (ours, peer)
    best = [float("inf"), float("inf")]
    for number in range(-1, rounds):
        for side in (number % 2, 1 - number % 2):
            seconds = sides[side]()
            if number >= 0:
                best[side] = min(best[side], seconds)
    return Pair(*best)


async def async_in_turns(
    ours: Callable[[], Awaitable[float]], peer: Callable[[], Awaitable[float]], rounds: int
) -> Pair:
    """Do as `in_turns` on a running event loop."""
    sides = (ours, peer)
    best = [float("inf"), float("inf")]
    for number in range(-1, rounds):
        for side in (number % 2, 1 - number % 2):
            seconds = await sides[side]()
            if number >= 0:
                best[side] = min(best[side], seconds)
    return Pair(*best)
