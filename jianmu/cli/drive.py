"""Follows a run to its end: shows it, asks what it asks, and says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from jianmu.agent import Agent
from jianmu.cli.asker import Asker
from jianmu.cli.screen import Lines
from jianmu.engine.events import RunEnded
from jianmu.engine.outcome import Outcome
from jianmu.engine.stream import Stream

AnyAgent = Agent[Any]  # Any: agents of every schema


class Drive:
    """One run of an agent at the command line.

    Args:
        agent: what runs.
        screen: shows it.
        asker: asks its questions, or None if nobody is there to answer.
    """

    def __init__(self, agent: AnyAgent, screen: Lines, asker: Asker | None) -> None:
        self._agent = agent
        self._screen = screen
        self._asker = asker

    async def run(self, start: Callable[[], Stream]) -> Outcome:
        """Follow a run, and go on after each answer until it ends.

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

    async def _to_the_end(self, start: Callable[[], Stream]) -> Outcome:
        while True:
            count = self._asker.count if self._asker is not None else 0
            outcome = await self._follow(start())
            if not outcome.suspended or self._asker is None or not await self._asker.has_more_than(count):
                return outcome
            start = self.recovery

    def recovery(self) -> Stream:
        """Return the stream of a run that goes on with what is there."""
        return Stream(self._agent.runner.context.events, self._agent.recover, self._agent.halt, None)

    async def _follow(self, stream: Stream) -> Outcome:
        """Show the events of one call, and return how it ended."""
        outcome: Outcome | None = None
        async with stream as events:
            async for event in events:
                if self._asker is not None:
                    self._asker.take(event)
                self._screen.take(event)
                if isinstance(event, RunEnded):
                    outcome = event.outcome
        if outcome is None:
            raise RuntimeError("the run has ended without an outcome")
        return outcome
