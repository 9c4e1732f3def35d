"""The calls of an agent: runs, steps, and the block in which coroutines go on between calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar  # Any: what is called returns whatever it returns

import anyio
from anyio.lowlevel import current_token
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.engine.ends import End
from jianmu.engine.entries import Call, Values, standing_of
from jianmu.engine.phases import Phase
from jianmu.engine.runs import Runs
from jianmu.engine.thread import UNFINISHED
from jianmu.errors import AgentBusyError, RunError, SetupError

S = TypeVar("S", bound=BaseModel)


class Calls(Runs[S]):
    """The calls of one agent."""

    async def step(self, input: Values | None, call: Call, *, settle: bool) -> dict[str, Any]:  # Any: as the schema
        """Tick once and return the step fields."""
        with self.claimed("step()"):
            self._stepper.check(settle)
            self._check_input(input)
            self._session.keeps_lease = self._stack is not None
            async with self._session.taken(call.thread_id):
                return await self._step(input, call, settle=settle)

    async def _step(self, input: Values | None, call: Call, *, settle: bool) -> dict[str, Any]:  # Any: as the schema
        """Tick the thread that was taken."""
        enter = self._step_entry(input, call)
        self._attend(at_once=True)
        self._is_refused = True  # until it has begun
        try:
            if self._runner.host.is_open or not settle:
                await self._stepper.step(enter, settle)
            else:
                await self._settled_step(enter)
        except BaseException as error:
            if not self._is_refused:
                self._session.settle("interrupted", error)
                with anyio.CancelScope(shield=True):
                    await self._session.close("step")
            raise
        result = self._step_result()
        with anyio.CancelScope(shield=True):
            await self._session.close("step")
        return result

    def step_now(self, input: Values | None) -> dict[str, Any]:  # Any: as the schema
        """Tick a tree without coroutines once, in the caller's thread, and return the step fields."""
        with self.claimed("step_sync()"):
            self._check_input(input)
            self._session.take_now()
            self._stepper.step_now(self._step_entry(input, Call()))
            return self._step_result()

    def _step_entry(self, input: Values | None, call: Call) -> Callable[[], None]:
        """Return what a step does before its tick."""
        self._resources.setup()
        holding = self._session.holding

        def enter() -> None:
            self._session.revive()
            if self._runner.root.status is Status.RUNNING:
                self._set(call)
            else:
                self._begin_run(call)
            self._enter(self._runner.manager.enter_step, input)
            self._is_refused = False
            if input and holding is not None:
                holding.has_input = True

        return enter

    async def _settled_step(self, enter: Callable[[], None]) -> None:
        """Step with a place for coroutines that lasts as long as the step."""
        await self._resources.open()
        try:
            async with self._runner.host.opened():
                await self._stepper.step(enter, settle=True)
        finally:
            await self._resources.close()

    def _step_result(self) -> dict[str, Any]:  # Any: as the schema
        """Return the step fields; from now on they are spent."""
        status = self._runner.root.status
        at_rest = "idle" if status is Status.RUNNING else standing_of(End(status))
        self._session.settle("suspended" if self._runner.phase is Phase.SUSPENDED else at_rest)
        return self._runner.manager.take_step_fields()

    async def reset(self, *, with_state: bool) -> None:
        """Give the current thread's run up; no cancellation leaves it half done."""
        with self.claimed("reset()"):
            async with self._session.taken(None, as_it_is=True):
                with anyio.CancelScope(shield=True):
                    await self._reset(with_state)

    async def _reset(self, with_state: bool) -> None:
        await self._give_up("reset", is_cut_short=self._session.standing in UNFINISHED)
        if with_state:
            self._runner.manager.initialize()
        self._session.settle("finished")
        await self._session.close("reset")

    # The block in which coroutines go on between calls

    async def enter_block(self) -> None:
        """Set the nodes up, open them, and let coroutines live until the block is left."""
        with self.claimed("async with"):
            if self._stack is not None:
                raise AgentBusyError("`async with agent:` is entered already: leave that block first")
            self._resources.setup()
            async with AsyncExitStack() as stack:
                stack.callback(self._resources.shutdown)
                await self._resources.open()
                stack.push_async_callback(self._resources.close)
                await stack.enter_async_context(self._runner.host.opened())
                self._owner = anyio.get_current_task().id
                self._stack = stack.pop_all()

    async def leave_block(self, has_failed: bool) -> None:
        """Halt the coroutines and close the nodes; raise what a coroutine has raised since the last step."""
        if self._owner != anyio.get_current_task().id:
            raise SetupError("`async with agent:` was entered by another task: leave it in the task that entered it")
        await self._end_calls()
        runner = self._runner
        failed = next(iter(runner.tasks.failed), None)
        error = failed.error if failed is not None else None
        stack, self._stack, self._owner = self._stack, None, None
        async with stack or AsyncExitStack(), self._session.given_back():
            if runner.tasks.is_busy or failed is not None:
                self._session.settle("interrupted", error)
                await runner.park(End(Status.INVALID))
        if failed is not None and error is not None and not has_failed:
            raise runner.failures.of(failed.node, error)

    async def _end_calls(self) -> None:
        """Halt a call that another task has not ended yet, and wait for its end."""
        self._free.attach()
        with anyio.CancelScope(shield=True):
            while self._context.in_use is not None:
                self._runner.halt()
                await self._free.armed().wait()
                self._free.take()


def in_new_loop(function: Callable[[], Any], name: str) -> Any:
    """Run an async call in a loop of its own.

    Raises:
        RunError: a loop is running.
    """
    if not _is_in_loop():
        return anyio.run(function)
    raise RunError(f"{name}_sync() was called inside of a running event loop: write `await agent.{name}(...)`")


def _is_in_loop() -> bool:
    try:
        current_token()
    except anyio.NoEventLoopError:
        return False
    return True
