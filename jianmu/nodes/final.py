"""Finally: a cleanup that is run in any case."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast  # Any: JSON, and what a cleanup returns, which nobody reads

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.activity import Activity
from jianmu.engine.context import NodeContext
from jianmu.engine.control import Steps
from jianmu.engine.passes import Pass
from jianmu.engine.tree import ancestors
from jianmu.errors import RunError, SetupError
from jianmu.nodes.base import Branch, is_async


class Finally(Branch):
    """Run `cleanup(context)`, sync or async, after the child, however that ends; once for each entry of the node.

    SUCCESS, FAILURE: the child's own, when the cleanup is done.
    RUNNING while the child is, and while the cleanup is awaited.
    What the child raises is raised; a cleanup that is awaited goes on beside it, as after a halt.
    Halting, also by the end of the run, halts the child; then the cleanup is run, when all coroutines
    below have ended. It is shielded, cancelled after `halt_timeout`, and awaited by what comes next.
    A cleanup that raises in the course of a tick ends the run with its exception; in a halt it is reported once.
    """

    is_loop = True
    keeps = ("_outcome",)
    _outcome = ""
    _is_due = True
    _has_begun = False

    def __init__(self, name: str, child: Behaviour, cleanup: Callable[[NodeContext], Awaitable[Any] | Any]) -> None:
        super().__init__(name, [child])
        if not callable(cleanup):
            raise SetupError(f'Finally("{name}", child, cleanup) takes a function of the context, not {cleanup!r}')
        self.is_asynchronous = is_async(cleanup)
        self._cleanup = cleanup

    @property
    def decorated(self) -> Behaviour:
        """The child."""
        return self.children[0]

    def initialise(self) -> None:
        """Begin: from now on there is something to clean up."""
        self.restore({"_outcome": ""})

    def restore(self, value: Any) -> None:
        """Take back the child's result, if it was in; the cleanup is due."""
        super().restore(value)
        self._is_due, self._has_begun = True, False

    def steps(self) -> Steps:
        """Tick the child until it has finished, then clean up."""
        if not self._outcome:
            try:
                yield self.decorated
            except Exception:
                self.halt(self.decorated)
                self._begin(is_halted=True)
                raise
            if self.decorated.status is Status.RUNNING:
                return Status.RUNNING
            self._outcome = self.decorated.status.name
            self.feedback_message = self.decorated.feedback_message
        if not self._has_begun:
            self._begin()
        is_clean = not self._has_begun or self._activity.poll() is not Status.RUNNING
        return Status[self._outcome] if is_clean else Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        """Clean up after a halt."""
        if new_status is Status.INVALID and self.status is Status.RUNNING:
            if self._has_begun:
                self._activity.halt()
            self._begin(is_halted=True)

    async def update_async(self) -> Status:
        """Run the cleanup after the child has finished; a halt does not cancel it at once."""
        self._is_due = False
        with anyio.CancelScope(shield=True) as scope:
            if self._activity.live is not None:
                self._activity.live.cleanup = scope
            await self._clean_up()
        return Status.SUCCESS

    @property
    def _activity(self) -> Activity:
        return cast("Activity", self.context.activity)

    def _begin(self, *, is_halted: bool = False) -> None:
        """Clean up, if that is due: at once, or, where it takes time or coroutines below have to end, later."""
        activity = self._activity
        lines = ((*ancestors(live.activity.node), *live.line) for live in activity.tasks.lives)
        is_awaited = self.is_asynchronous or any(self in line for line in lines)
        self._has_begun = self._is_due and is_awaited and not is_halted
        if self._has_begun:
            activity.begin()
            vars(self)["async_started"] = Pass.current().number
        elif self._is_due:
            self._is_due = False
            if is_awaited:
                activity.tasks.clean_up(activity, self._clean_up)
            elif inspect.isawaitable(found := self._cleanup(self.context)):
                cast("Any", found).close()  # Any: a coroutine that nobody will await
                path = self.context.path
                raise RunError(f"node '{path}': its cleanup returned something to await: write `async def`", path=path)

    async def _clean_up(self) -> None:
        """Run the cleanup, whatever its kind."""
        found = self._cleanup(self.context)
        if inspect.isawaitable(found):
            await found
