"""Drives the threads that are due, one after the other.

1. What is due is asked of the store; who else drives it holds its lease, and is passed over.
2. A thread that cannot be driven, or is still due afterwards, is left for a while, longer each time: the others go on.
3. Who ends the driver has the thread at hand parked, and due for the next driver.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol  # Any: agents of every schema

import anyio

from jianmu.agent import Agent
from jianmu.cli.faults import describe
from jianmu.engine.events import Event, RunStarted
from jianmu.engine.outcome import Outcome
from jianmu.errors import ThreadBusyError, UnknownThreadError
from jianmu.stores.base import Store

PAGE = 100
LONGEST = 60.0
"""Seconds for which a thread is left at most."""


class Tell(Protocol):
    """Is told what came of a thread: how it stands, or why it could not be driven."""

    def __call__(self, thread_id: str, outcome: Outcome | None, problem: str | None) -> None:
        """Take note of it."""
        ...


@dataclass
class Left:
    """A thread that is left for a while.

    Attributes:
        until: when it is tried again.
        pause: seconds from the last try to that.
        problem: why.
    """

    until: float
    pause: float
    problem: str | None


class Driver:
    """Drives the due threads of a store with one agent.

    Args:
        agent: what drives them; its threads are kept in the store.
        store: where the threads are.
        tell: is told what came of each.
        pause: seconds between two looks.

    Attributes:
        failures: how many times a thread could not be driven.
    """

    def __init__(self, agent: Agent[Any], store: Store, tell: Tell, pause: float) -> None:
        self.failures = 0
        self._agent = agent
        self._store = store
        self._tell = tell
        self._pause = pause
        self._left: dict[str, Left] = {}
        self._has_run = False
        agent.runner.context.events.add(self._note)

    def _note(self, event: Event) -> None:
        self._has_run |= isinstance(event, RunStarted)

    async def forever(self) -> None:
        """Look again and again."""
        while True:
            await self.once()
            await anyio.sleep(self._pause)

    async def once(self) -> None:
        """Carry out deadlines, and drive each thread that is due once."""
        await self._store.sweep()
        driven: set[str] = set()
        while found := await self._due(driven):
            for thread_id in found:
                driven.add(thread_id)
                await self._drive(thread_id)
        forgotten = anyio.current_time() - LONGEST
        self._left = {id: left for id, left in self._left.items() if left.until > forgotten}

    async def _due(self, driven: set[str]) -> list[str]:
        """Return threads to drive: due, not driven in this round, and not left for now."""
        found = await self._store.due(datetime.now(UTC).timestamp(), limit=PAGE + len(self._left))
        for thread_id in driven.intersection(found).difference(self._left):
            self._leave(thread_id, None)
        return [id for id in found if id not in driven and not self._is_left(id)]

    def _is_left(self, thread_id: str) -> bool:
        return thread_id in self._left and self._left[thread_id].until > anyio.current_time()

    def _leave(self, thread_id: str, problem: str | None) -> None:
        """Leave a thread for a while, longer each time; what is wrong is told when it is new."""
        before = self._left.get(thread_id, Left(0.0, self._pause / 2, None))
        pause = min(before.pause * 2, LONGEST)
        self._left[thread_id] = Left(anyio.current_time() + pause, pause, problem)
        if problem is not None:
            self.failures += 1
        if problem != before.problem:
            self._tell(thread_id, None, problem)

    async def _drive(self, thread_id: str) -> None:
        """Go on with a thread as far as it goes without a person."""
        self._has_run = False
        try:
            outcome = await self._agent.recover(thread_id)
        except (ThreadBusyError, UnknownThreadError):
            return  # somebody else drives it, or has deleted it
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), suppress(ThreadBusyError, UnknownThreadError):
                await self._hand_over(thread_id)
            raise
        except Exception as error:  # noqa: BLE001  # a node's may be any; the other threads go on
            self._leave(thread_id, describe(error))
            return
        if outcome.limit is not None:
            self._leave(thread_id, f"LimitExceeded: {outcome.limit}")
        elif outcome.stalled:
            self._leave(thread_id, "StalledError: nothing can wake its tree but a write from outside")
        else:
            self._left.pop(thread_id, None)
            if self._has_run:  # else somebody else was faster
                self._tell(thread_id, outcome, None)

    async def _hand_over(self, thread_id: str) -> None:
        """Have a thread that was parked driven by whoever comes next."""
        stands = await self._store.thread(thread_id)
        if stands is not None and stands.status == "interrupted":
            await self._store.wake(thread_id)
