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
from jianmu.nodes.base import Branch
from jianmu.nodes.options import is_async

Cleanup = Callable[[NodeContext], Awaitable[Any] | Any]  # Any: as above


class Finally(Branch):
    """Run a cleanup after the child, however that ends; once for each time the node is entered.

    SUCCESS, FAILURE: the child's own, when the cleanup is done.
    RUNNING while the child is, and while the cleanup is awaited.
    What the child raises is raised; a cleanup that is awaited goes on beside it, as after a halt.
    Halting, also by the end of the run, halts the child; then the cleanup is run, when all coroutines
    below have ended. It is shielded, cancelled after `halt_timeout`, and awaited by what comes next.
    A cleanup that raises in the course of a tick ends the run with its exception; in a halt the
    exception is reported once.

    Args:
        name: the node's name.
        child: what is run before.
        cleanup: a function of the node's context, sync or async.
    """

    is_loop = True

    def __init__(self, name: str, child: Behaviour, cleanup: Cleanup) -> None:
        super().__init__(name, [child])
        if not callable(cleanup):
            raise SetupError(f'Finally("{name}", child, cleanup) takes a function of the context, not {cleanup!r}')
        self.is_asynchronous = is_async(cleanup)
        self._cleanup = cleanup
        self._is_due = False
        self._has_begun = False
        self._outcome: Status | None = None

    @property
    def decorated(self) -> Behaviour:
        """The child."""
        return self.children[0]

    def initialise(self) -> None:
        """Begin: from now on there is something to clean up."""
        self._is_due, self._has_begun, self._outcome = True, False, None

    def steps(self) -> Steps:
        """Tick the child until it has finished, then clean up."""
        if self._outcome is None:
            try:
                yield self.decorated
            except Exception:
                self.halt(self.decorated)
                self._clean_up_halted()
                raise
            if self.decorated.status is Status.RUNNING:
                return Status.RUNNING
            self._outcome = self.decorated.status
            self.feedback_message = self.decorated.feedback_message
        return self._outcome if self._is_clean() else Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        """Clean up after a halt."""
        if new_status is not Status.INVALID or self.status is not Status.RUNNING:
            return
        if self._has_begun:
            self._activity.halt()
            self._has_begun = False
        self._clean_up_halted()

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

    def _is_clean(self) -> bool:
        """Clean up, or begin to; return whether it is done."""
        if self._has_begun:
            return self._activity.poll() is not Status.RUNNING
        if self._is_due and self._is_awaited():
            self._activity.begin()
            self._has_begun = True
            vars(self)["async_started"] = Pass.current().number
            return False
        self._clean_up_now()
        return True

    def _clean_up_halted(self) -> None:
        """Clean up after the child was halted: at once, or when what was below has ended."""
        if not self._is_due or not self._is_awaited():
            self._clean_up_now()
            return
        self._is_due = False
        self._activity.tasks.clean_up(self._activity, self._clean_up)

    def _is_awaited(self) -> bool:
        """Whether the cleanup has to be awaited, or has to wait for coroutines below."""
        lives = self._activity.tasks.lives
        return self.is_asynchronous or any(self in (*ancestors(live.activity.node), *live.line) for live in lives)

    def _clean_up_now(self) -> None:
        """Run a cleanup that needs no waiting, if it is still due."""
        if not self._is_due:
            return
        self._is_due = False
        found = self._cleanup(self.context)
        if inspect.isawaitable(found):
            cast("Any", found).close()  # Any: a coroutine that nobody will await
            path = self.context.path
            raise RunError(f"node '{path}': its cleanup returned something to await: write `async def`", path=path)

    async def _clean_up(self) -> None:
        """Run the cleanup, whatever its kind."""
        found = self._cleanup(self.context)
        if inspect.isawaitable(found):
            await found

    def memento(self) -> str | None:
        """Return the child's result, if it is in; it is empty before."""
        result = self._outcome.name if self._outcome is not None else ""
        return result if self.status is Status.RUNNING else None

    def restore(self, value: str) -> None:
        """Take back the child's result; the cleanup is due."""
        self.initialise()
        self._outcome = Status[value] if value else None
