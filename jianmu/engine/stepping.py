"""One tick at a time, under the caller's control."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from py_trees.common import Status

from jianmu.engine.ends import End
from jianmu.engine.limits import exceeded
from jianmu.engine.runner import ReactiveRunner
from jianmu.errors import SetupError


class Stepper:
    """Ticks a runner's tree once per call."""

    def __init__(self, runner: ReactiveRunner[Any]) -> None:  # Any: any schema
        self._runner = runner

    def check(self, settle: bool) -> None:
        """Refuse a step whose coroutines would have nowhere to live."""
        runner = self._runner
        if runner.binder.has_async and not settle and not runner.host.is_open:
            raise SetupError(
                "step() on a tree with asynchronous nodes needs a place where they go on between the steps: write "
                "`async with agent:` around the steps, or step(settle=True)"
            )

    async def step(self, enter: Callable[[], None], settle: bool) -> None:
        """Tick once; with `settle`, wait until the coroutines have finished or wait for answers."""
        runner = self._runner
        error: BaseException | None = None
        await checkpoint()
        enter()
        runner.go("step")
        try:
            if runner.log is not None:
                await runner.log.before_pass()
            self._tick()
            if runner.log is not None:
                await runner.log.after_pass()
            runner.tasks.carry_out()
            if settle:
                await self._rested()
            is_cut = self._is_cut()
        except anyio.get_cancelled_exc_class():
            await runner.park(End(Status.INVALID))
            raise
        except BaseException as raised:  # noqa: BLE001  # the tree is parked first, whatever it was
            error, is_cut = runner.failures.gather(raised, runner.tasks), True
        if is_cut:
            await runner.park(End(Status.INVALID, error=error))
        else:
            self._rest()
        if error is not None:
            raise error

    def step_now(self, enter: Callable[[], None]) -> None:
        """Tick once in the caller's thread; the tree has no coroutines."""
        runner = self._runner
        error: BaseException | None = None
        enter()
        runner.go("step")
        try:
            self._tick()
            runner.tasks.carry_out()
            is_cut = self._is_cut()
        except BaseException as raised:  # noqa: BLE001  # as above
            error, is_cut = runner.failures.gather(raised, runner.tasks), True
        if is_cut:
            runner.park_now()
        else:
            self._rest()
        if error is not None:
            raise error

    async def _rested(self) -> None:
        """Wait until every coroutine has finished or waits for an answer, or the call is halted.

        Raises:
            BaseException: what a coroutine has raised, unless a node above is going to catch it.
        """
        runner = self._runner
        runner.wake.attach()
        while True:
            runner.tasks.raise_fatal()
            untold = runner.failures.untold(runner.tasks)
            if untold is not None:
                raise untold
            if runner.is_halted or not runner.tasks.is_busy:
                return
            await runner.wake.armed().wait()
            runner.wake.take()

    def _is_cut(self) -> bool:
        """Whether a halt was asked for while the tree has no result."""
        return self._runner.is_halted and self._runner.root.status is Status.RUNNING

    def _tick(self) -> None:
        """Make one pass."""
        runner, context = self._runner, self._runner.context
        limit = exceeded(context.limits, context.usage)
        if limit is not None:
            raise limit
        runner.thread = threading.get_ident()
        runner.tasks.raise_fatal()
        runner.passing.one()

    def _rest(self) -> None:
        """Move to where the next call may start."""
        self._runner.go("suspend" if self._runner.context.interaction.all_open() else "pause")
