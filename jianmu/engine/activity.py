"""The coroutines of a run: asked for and halted in a pass, started and cancelled after it.

Rules that this file keeps:

1. A node has at most one live coroutine; its next one starts after the cleanup of the last.
2. A pass only asks; `Tasks.carry_out` starts and cancels.
3. What replaces a branch starts after that branch's cleanups; branches of a Parallel never wait for each other.
4. A result counts only for the entry that gave it; an exception raised before a halt is never lost.
5. A coroutine is always awaited to its end, however long it shields itself; after `halt_timeout` it is reported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from itertools import takewhile
from typing import Any  # Any: what a coroutine returns, before it was looked at

import anyio
from anyio import TaskHandle
from anyio.abc import TaskGroup
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Parallel

from jianmu.engine.clock import Clock
from jianmu.engine.passes import said_of
from jianmu.engine.questions import Origin
from jianmu.engine.suspend import is_suspension
from jianmu.engine.tree import ancestors
from jianmu.errors import InvalidStatusError, NodeCancelledError, SwallowedSuspensionError

RESULTS = (Status.SUCCESS, Status.FAILURE)
RUNNING = Status.RUNNING  # a name of its own is looked up in a tenth of the time


class Live:
    """One entry of a coroutine, from its start to the end of its cleanup."""

    handle: TaskHandle[None] | None = None
    watch: anyio.CancelScope | None = None
    cleanup: anyio.CancelScope | None = None
    hook: Callable[[], Awaitable[None]] | None = None
    line: tuple[Behaviour, ...] = ()
    is_halted = is_parked = is_overdue = has_entered = has_asked = False
    wrote: str | None = None
    origin: Origin | None = None

    def __init__(self, activity: Activity) -> None:
        self.activity = activity
        self.journal: set[str] = set()


class Activity:
    """What the runtime knows of one AsyncNode: its entry, its result, whether it waits for an answer."""

    __slots__ = ("asked", "enter", "error", "finished", "hook", "is_waiting", "live", "node", "path", "result",
                 "started", "tasks")  # fmt: skip

    def __init__(
        self,
        node: Behaviour,
        path: str,
        tasks: Tasks,
        enter: Callable[[], Awaitable[Status]],
        hook: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.node = node
        self.path = path
        self.tasks = tasks
        self.enter = enter
        self.hook = hook
        self.live: Live | None = None
        self.result: Status | None = None
        self.error: BaseException | None = None
        self.is_waiting = False
        self.finished = -1
        self.started = -1
        self.asked: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Whether its coroutine is at work or about to start."""
        return self in self.tasks.wanted or (self.live is not None and not self.live.is_halted)

    def begin(self) -> None:
        """Ask for a start, after the pass."""
        self.result = self.error = None
        if self.is_waiting:
            self.is_waiting = False
            self.tasks.waiting.pop(self, None)
        self.tasks.wanted[self] = None

    def resume(self, questions: Collection[str]) -> None:
        """Go on where a load has left off: wait for these open questions, or enter the coroutine again."""
        if self.result is not None:
            return
        if not questions:
            self.begin()
            return
        self.asked.update(questions)
        self.is_waiting = True
        self.tasks.waiting[self] = None

    def poll(self) -> Status:
        """Return the result, or RUNNING; raise what the coroutine raised."""
        if self.error is not None:
            error, self.error = self.error, None
            self.tasks.failed.pop(self, None)
            raise error
        return self.result or RUNNING

    def halt(self) -> None:
        """Ask for a halt, after the pass; the start that was asked for is forgotten."""
        self.tasks.wanted.pop(self, None)
        self.tasks.waiting.pop(self, None)
        if self.error is not None:
            self.tasks.lost.append((self.node, self.error))
            self.tasks.failed.pop(self, None)
        self.result = self.error = None
        self.is_waiting = False
        live = self.live
        if live is not None and not live.is_halted:
            live.is_halted, live.is_parked = True, self.tasks.is_parking
            live.line = (self.node, *ancestors(self.node))
            self.tasks.halting.append(live)

    def forget(self) -> None:
        """Know nothing of an entry any more; no coroutine is alive."""
        self.result = self.error = None
        self.is_waiting = False
        self.asked.clear()
        for kept in (self.tasks.wanted, self.tasks.waiting, self.tasks.failed):
            kept.pop(self, None)

    def settle(self, live: Live, status: Any, error: BaseException | None) -> None:
        """Take the outcome of an entry."""
        if live.is_halted:
            if live.is_parked and error is None and status in RESULTS:
                self.tasks.late_result(self.node, status)
            if error is not None and not is_suspension(error):
                self.tasks.report(self.node, error)
            return
        if error is not None and is_suspension(error):
            self.is_waiting = True
            self.tasks.waiting[self] = None
        elif error is None and status in RESULTS and not live.has_asked:
            self.result = status
        else:
            self.error = error if error is not None else self._no_result(live, status)
            self.tasks.failed[self] = None
        self.tasks.signal()

    def _no_result(self, live: Live, status: Any) -> Exception:
        """Return the error for a coroutine that swallowed its suspension, or returned what is no result."""
        if live.has_asked:
            text = f"node '{self.path}' caught its suspension: write `except Exception`, which lets it through"
            return SwallowedSuspensionError(text, path=self.path)
        text = f"node '{self.path}' returned {said_of(status)} from update_async(): return Status.SUCCESS or FAILURE"
        return InvalidStatusError(text, path=self.path)


class Tasks:
    """The coroutines of one run and the order in which they start and end.

    Args:
        clock: measures `halt_timeout`.
        halt_timeout: seconds that a halted node may take to clean up before it is reported.
        signal: called when a pass is due: a coroutine has finished, failed or asked.
        stir: called when something ended that needs no pass.
        report: called with a node and an exception that ends no run.
        late: called with the path of a node that is not cleaned up after `halt_timeout`.
    """

    def __init__(
        self,
        clock: Clock,
        halt_timeout: float,
        *,
        signal: Callable[[], None],
        stir: Callable[[], None],
        report: Callable[[Behaviour, BaseException], None],
        late: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._halt_timeout = halt_timeout
        self.signal = signal
        self.report = report
        self._stir = stir
        self._late = late
        self.group: TaskGroup | None = None
        self.is_parking = False
        self.late_result: Callable[[Behaviour, Status], None] = lambda _node, _status: None
        self.wanted: dict[Activity, None] = {}
        self.waiting: dict[Activity, None] = {}
        self.failed: dict[Activity, None] = {}
        self.halting: list[Live] = []
        self.lives: dict[Live, None] = {}
        self.cleaning: dict[Live, None] = {}
        self.lost: list[tuple[Behaviour, BaseException]] = []
        self._fatal: list[BaseException] = []
        self._ended: anyio.Event | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a coroutine lives, cleans up or is about to start."""
        return bool(self.lives or self.wanted)

    def be_in(self, group: TaskGroup | None) -> None:
        """Have coroutines live in a group from now on, or nowhere."""
        self.group = group

    def carry_out(self) -> None:
        """Cancel what was halted, then start what may start."""
        if self.halting:
            halting, self.halting = self.halting, []
            for live in halting:
                self._cancel(live)
        self.start_ready()

    def start_ready(self) -> None:
        """Start every coroutine that was asked for and has no cleanup to wait for."""
        if self.group is None:
            return
        for activity in [*self.wanted]:
            if activity.live is None and not (self.cleaning and self._is_barred(activity)):
                del self.wanted[activity]
                live = activity.live = Live(activity)
                self.lives[live] = None
                live.handle = self.group.create_task(self._run(live), name=activity.path)

    def clean_up(self, activity: Activity, hook: Callable[[], Awaitable[None]]) -> None:
        """Have `hook` awaited for a halted node that has no coroutine, after all cleanups at and below the node."""
        live = Live(activity)
        live.is_halted, live.hook = True, hook
        live.line = (activity.node, *ancestors(activity.node))
        self.lives[live] = None
        self.halting.append(live)

    def halt_all(self) -> None:
        """Ask for the halt of all that is at work or about to start."""
        for activity in [*self.wanted, *(live.activity for live in self.lives)]:
            activity.halt()

    async def settled(self) -> None:
        """Wait until no coroutine lives any more."""
        while self.lives:
            await self._next_end()

    def raise_fatal(self) -> None:
        """Raise what a cleanup has raised that is no mere exception: Ctrl-C, an exit."""
        if self._fatal:
            fatal, self._fatal = self._fatal[0], []
            raise fatal

    async def _next_end(self) -> None:
        """Wait until a coroutine has ended."""
        self._ended = self._ended or anyio.Event()
        await self._ended.wait()

    def _cancel(self, live: Live) -> None:
        """Cancel a halted coroutine and watch its end."""
        if live not in self.lives:
            return
        self.cleaning[live] = None
        if live.hook is not None:
            if self.group is not None:
                self.group.start_soon(self.guard, self._follow, live, live.hook)
            return
        if live.handle is not None:
            live.handle.cancel()
        self._watch_over(live)

    def _is_barred(self, activity: Activity) -> bool:
        """Whether a start has to wait for a cleanup: of the same node, or one that shares a branch with it."""
        line = [activity.node, *ancestors(activity.node)]
        return any(self._bars(live, activity, line) for live in self.cleaning)

    def _bars(self, live: Live, activity: Activity, line: list[Behaviour]) -> bool:
        """Whether one cleanup holds back a start."""
        if live.activity is activity:
            return True
        if live.is_overdue:
            return False
        above = {id(node) for node in line}
        meet = next((node for node in live.line if id(node) in above), None)
        return meet is None or not (isinstance(meet, Parallel) or getattr(meet, "is_parallel", False))

    async def _run(self, live: Live) -> None:
        """Run one entry of a coroutine, hand over what came of it and, if it was halted, run its cleanup."""
        status: object = None
        error: BaseException | None = None
        try:
            if live.is_halted:
                return
            live.has_entered = True
            try:
                status = await live.activity.enter()
            except anyio.get_cancelled_exc_class() as cancelled:
                if live.is_halted or self.group is None or self.group.cancel_scope.cancel_called:
                    raise
                error = self._cancelled_inside(live.activity, cancelled)
            except BaseException as raised:  # noqa: BLE001  # it ends the run and not this group
                error = raised
            live.activity.settle(live, status, error)
        except KeyboardInterrupt as raised:  # in a line of the engine's own, where trio raises it: the group lives on
            self._fatal.append(raised)
            self.signal()
        finally:
            if live.is_halted and live.has_entered and live.activity.hook is not None:
                await self.guard(self._clean_up, live, live.activity.hook)
            self._surely(self._end, live)

    def _cancelled_inside(self, activity: Activity, cause: BaseException) -> NodeCancelledError:
        """Return the named error for a coroutine that nobody halted and that was cancelled all the same."""
        text = f"node '{activity.path}' was cancelled from inside: catch the cancellation of your own scope there"
        error = NodeCancelledError(text, path=activity.path)
        error.__cause__ = cause
        return error

    async def _clean_up(self, live: Live, hook: Callable[[], Awaitable[None]]) -> None:
        """Await a node's cleanup, at most for `halt_timeout`."""
        with anyio.CancelScope(shield=True) as live.cleanup:
            if live.is_overdue:
                self._watch_over(live)
            try:
                await hook()
            except Exception as raised:  # noqa: BLE001  # a cleanup's exception ends no run
                self.report(live.activity.node, raised)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as raised:  # noqa: BLE001  # Ctrl-C would end the loop itself from inside a task
                self._fatal.append(raised)

    async def _follow(self, live: Live, hook: Callable[[], Awaitable[None]]) -> None:
        """Await the cleanup of a node that has no coroutine, when those at and below it have ended."""
        try:
            node = live.activity.node
            while any(node in other.line for other in takewhile(lambda other: other is not live, self.cleaning)):
                await self._next_end()
            self._watch_over(live)
            await self._clean_up(live, hook)
        finally:
            self._surely(self._end, live)

    async def guard(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Do what one of the run's own tasks does; Ctrl-C, which trio raises in any line, ends the run and no group."""
        try:
            await function(*args)
        except KeyboardInterrupt as raised:
            self._fatal.append(raised)
            self.signal()

    def _surely(self, step: Callable[[Live], None], live: Live) -> None:
        """Take a step that others wait for, anew where Ctrl-C has broken it off."""
        try:
            step(live)
        except KeyboardInterrupt as raised:
            self._fatal.append(raised)
            self.signal()
            step(live)

    def _watch_over(self, live: Live) -> None:
        scope = live.watch = anyio.CancelScope()
        if self.group is not None:
            self.group.start_soon(self.guard, self._watch, live, scope)

    async def _watch(self, live: Live, scope: anyio.CancelScope) -> None:
        """Report a halted node that is late; cancel its cleanup; let the others go on."""
        with scope:
            await self._clock.sleep(self._halt_timeout)
            self._surely(self._give_up, live)

    def _give_up(self, live: Live) -> None:
        if not live.is_overdue:
            live.is_overdue = True
            self._late(live.activity.path)
        if live.cleanup is not None:
            live.cleanup.cancel()
        self.start_ready()

    def _end(self, live: Live) -> None:
        """Forget an entry that has ended and let go what waited for it."""
        self.lives.pop(live, None)
        if live.is_halted:
            self.cleaning.pop(live, None)
        if live.activity.live is live:
            live.activity.live = None
        if live.watch is not None:
            live.watch.cancel()
        if self.wanted:
            self.start_ready()
        if self._ended is not None:
            self._ended.set()
            self._ended = None
        self._stir()
