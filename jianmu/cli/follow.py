"""Follows a run to its end: shows it, asks what it asks, and says how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio

from jianmu.agent import Agent
from jianmu.cli.asker import Asker
from jianmu.cli.screen import Lines
from jianmu.engine.outcome import Outcome
from jianmu.engine.stream import Stream

AnyAgent = Agent[Any]  # Any: agents of every schema
Start = Callable[[], Awaitable[Outcome]]


class Follower:
    """Follows one run of an agent at the command line.

    Args:
        agent: what runs.
        screen: shows it.
        asker: asks its questions, or None if nobody is there to answer.
        waits: whether answers are waited for: the asker's, or those of the agent's own human.
    """

    def __init__(self, agent: AnyAgent, screen: Lines, asker: Asker | None, *, waits: bool) -> None:
        self._agent = agent
        self._screen = screen
        self._asker = asker
        self._waits = waits

    async def run(self, start: Start) -> Outcome:
        """Follow a run that goes on until it suspends, and then, if answers are waited for, until it ends.

        Raises:
            Exception: what the run raised.
        """
        raised: Exception | None = None
        outcome: Outcome | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._screen.refresh)
                if self._asker is not None:
                    group.start_soon(self._asker.work)
                try:
                    outcome = await self._to_the_end(start)
                except Exception as error:  # noqa: BLE001  # raised below, outside of the group, which would wrap it
                    raised = error
                group.cancel_scope.cancel()
        finally:
            self._screen.close()
        if outcome is None:
            raise raised or RuntimeError("the run has ended without an outcome")
        return outcome

    async def _to_the_end(self, start: Start) -> Outcome:
        outcome = await self._follow(start)
        is_queued = outcome.thread_id != self._agent.thread_id  # another process is at work on that thread
        is_asking = outcome.suspended and self._waits and not is_queued
        return await self._follow(partial(self._wait, outcome)) if is_asking else outcome

    async def _wait(self, outcome: Outcome) -> Outcome:
        """Go on and wait for answers, unless there will be none."""
        is_over = self._asker is not None and self._asker.is_over
        return outcome if is_over else await self._agent.recover(until_suspend=False, wait=True)

    async def _follow(self, call: Start) -> Outcome:
        """Show the events of one call, and return how it ended."""
        ended: list[Outcome] = []

        async def run() -> None:
            ended.append(await call())

        async with Stream(self._agent.runner.context.events, run, self._agent.halt, None) as events:
            async for event in events:
                if self._asker is not None:
                    self._asker.take(event)
                self._screen.take(event)
        return ended[0]
