"""ReactiveRunner: ticks a tree when something happened, until it ends, suspends or is stopped.

Rules that this file keeps:

1. One driver at a time; the table in `phases` says what may follow what.
2. The driver waits outside of the group of the coroutines, which is shielded: a cancellation reaches the
   driver first, and it halts the coroutines in order and awaits them.
3. A wake-up is noted before the driver looks and after it; none is lost, ten make one pass.
4. However a run ends: position first, then the halt, then every cleanup, then the return.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.engine.activity import RESULTS, RUNNING, Tasks
from jianmu.engine.bind import Binder
from jianmu.engine.context import RunContext
from jianmu.engine.deltastream import record_weakly
from jianmu.engine.ends import End, Log, Options
from jianmu.engine.events import Stalled, StateChanged
from jianmu.engine.failures import Failures
from jianmu.engine.halting import collect, halt, raise_first
from jianmu.engine.host import Host
from jianmu.engine.humans import Humans
from jianmu.engine.limits import exceeded
from jianmu.engine.mementos import dump_position, with_result
from jianmu.engine.pace import Pace
from jianmu.engine.passing import Passing
from jianmu.engine.phases import REST, Phase, advance
from jianmu.engine.state import StateChange, StateManager
from jianmu.engine.ticker import Tree
from jianmu.engine.tree import ancestors, descend, path_of
from jianmu.engine.waiting import tips, waits
from jianmu.engine.wake import Wake
from jianmu.errors import StalledError

S = TypeVar("S", bound=BaseModel)
TURNS = 5


class ReactiveRunner(Generic[S]):
    """Drives one tree over one state.

    Args:
        root: the tree's root.
        state_manager: the state; its changes wake the tree while the runner drives.
        context: what the nodes share.
        options: pace and policies.
    """

    def __init__(
        self, root: Behaviour, state_manager: StateManager[S], context: RunContext, options: Options | None = None
    ) -> None:
        self.root = root
        self.log: Log | None = None
        self.manager = state_manager
        self.context = context
        self.options = options or Options()
        self.phase = Phase.IDLE
        self.auto_driving = False
        self.is_over = False  # set where a run that is gone on with had its result already
        self.parked: Any = None  # Any: JSON, the position before the halt of a run that was cut short
        self.wake = Wake()
        self.pace = Pace(self.options.poll_interval, self.options.min_interval)
        self.failures = Failures(context)
        self.tasks = Tasks(
            context.clock,
            self.options.halt_timeout,
            signal=self.signal,
            stir=self.wake.set,
            report=self.failures.report,
            late=self.failures.report_late,
        )
        self.tasks.late_result = self._keep_late
        self.host = Host(context.clock.pump, self.tasks.be_in)
        self.binder = Binder(context, state_manager, self.tasks)
        self.tree = Tree(root, context.ticker)
        self.passing = Passing(
            self.tree, context, tasks=self.tasks, pace=self.pace, failures=self.failures, binder=self.binder
        )
        self._humans = Humans(self.options.human, context, self.fail)
        self._stop: End | None = None
        self._is_stalled = False
        self.thread = 0
        self._mark = 0.0
        self._always_rests = bool(self.options.human or self.options.min_interval)
        context.signal, context.stir = self.signal, self.wake.set
        context.halt_timeout = self.options.halt_timeout
        self._unsubscribe: Callable[[], None] | None = None
        record_weakly(state_manager, self, ReactiveRunner[S].record)

    # Waking

    def signal(self) -> None:
        """Ask for a pass; safe from every thread."""
        self.pace.wake()
        self.wake.set()

    def halt(self) -> None:
        """Have the run end with INVALID; safe from every thread, and from handlers of signals."""
        self._stop = End(Status.INVALID)
        self.wake.set_from_anywhere()

    def forget_halt(self) -> None:
        """Begin a call: a halt asked for before it does not count."""
        self._stop = None

    def fail(self, error: BaseException) -> None:
        """Have the run end with an exception that is no node's; safe from every thread."""
        self._stop = End(Status.INVALID, error=error)
        self.wake.set_from_anywhere()

    def on_change(self, change: StateChange) -> None:
        """Wake the tree when a value differs, while the runner drives; a signal without fields always does."""
        if not self.auto_driving or change.is_runtime or not change.wakes:
            return
        self._is_stalled = False
        if self.passing.is_on and threading.get_ident() == self.thread:
            self.pace.wake_by_own_write()
        else:
            self.signal()

    def record(self, change: StateChange) -> None:
        """Tell a commit as an event; called inside of it, so that events and commits have one order."""
        if self.context.events.is_heard and change.fields and not change.is_runtime:
            told = StateChanged(
                version=change.version, fields=change.fields, changed=change.changed, writer=change.writer
            )
            self.context.events.emit(told, change.writer)

    # Driving

    async def drive(self, begin: Callable[[], Awaitable[None]], *, until_suspend: bool) -> End:
        """Run the tree until it ends; `begin` is awaited first, as part of the run.

        The host must be open. When it returns, the coroutines are gone and a tree without a result is parked.
        """
        self.go("drive")
        try:
            return await self._drive(begin, until_suspend)
        except anyio.get_cancelled_exc_class():
            if self._is_only_asking() and not self.pace.is_woken:
                self.go("suspend")  # nothing was going on: the run stays as it is
            else:
                await self.park(End(Status.INVALID))
            raise
        except BaseException as error:  # noqa: BLE001  # Ctrl-C and exceptions alike: nothing may stay alive
            end = End.by(self.failures.gather(error, self.tasks))
            await self.park(end)
            return end
        finally:
            self.auto_driving = False

    async def _drive(self, begin: Callable[[], Awaitable[None]], until_suspend: bool) -> End:
        """Drive, and bring the tree to rest."""
        self._is_stalled = False
        self.thread = threading.get_ident()
        self.wake.attach()
        self._mark = self.context.clock.now()
        await begin()
        self.pace.start()
        self.auto_driving = True
        end = await self._loop(until_suspend)
        self.auto_driving = False
        if end.is_suspended or end.is_stalled:
            self.go("suspend")
        else:
            await self.park(end)
        return end

    async def _loop(self, until_suspend: bool) -> End:
        """Pass by pass, until something ends the run."""
        await (checkpoint if self.log is None else checkpoint_if_cancelled)()  # a store has taken turns of its own
        if self.is_over:
            self.is_over = False
            return End(self.root.status)
        while True:
            end = self._cut_short() if self._stop is not None or self.context.limits.given else None
            if end is not None:
                return end
            if self.log is not None:
                await self.log.before_pass()
            self.passing.one()
            if self.root.status is not RUNNING:
                return End(self.root.status)
            has_turned = self.log is not None and await self.log.after_pass()
            if is_asked := bool(self.tasks.wanted or self.tasks.halting):
                if self.tasks.group is None:
                    await self.host.ready()
                self.tasks.carry_out()
            if is_asked or self.pace.is_woken:  # a coroutine that takes one turn has ended after it: nobody is woken
                await (checkpoint_if_cancelled if has_turned and not is_asked else checkpoint)()
                if self._is_due_now():
                    continue
            end = await self._rest(until_suspend)
            if end is not None:
                return end

    def _is_due_now(self, counts: bool = True) -> bool:
        """Whether the next pass can begin at once, now that other tasks had their turn; their time is counted."""
        self._count_time(counts)
        self.tasks.raise_fatal()
        return self.pace.is_woken and self._stop is None and not self._always_rests

    async def _rest(self, until_suspend: bool) -> End | None:
        """Wait until the next pass is due, or until the run ends; at least one scheduling point."""
        clock, has_waited = self.context.clock, False
        while True:
            self.wake.take()
            if self.options.human is not None and not until_suspend:
                await self.host.ready()
                self._humans.look(self.context.interaction.pending, self.tasks.group)
            self.tasks.raise_fatal()
            end = None if self.pace.is_woken or self._stop is not None else self._quiet_end(until_suspend)
            if (end := end or self._cut_short()) is not None:
                return end
            await self.host.ready()
            due = self.passing.next_due()
            if due is not None and due <= clock.now():
                return None if has_waited else await checkpoint()
            has_waited = True
            if not (counts := not self._is_only_asking()) and not until_suspend:
                self._humans.miss()
            await clock.wait(self.wake.armed(), self._until(due) if counts else due)
            if self._is_due_now(counts):
                return None
            if due is not None and not self.pace.is_woken and clock.now() >= due:
                for _ in range(TURNS):  # every task that is ready at this moment, before a deadline counts
                    await checkpoint()

    @property
    def is_halted(self) -> bool:
        """Whether a halt was asked for in the call that is on."""
        return self._stop is not None

    def _cut_short(self) -> End | None:
        """Return the end of a run that was halted, or that wants to go on and has used up a limit."""
        self._count_time()
        limit = exceeded(self.context.limits, self.context.usage)
        return self._stop or (None if limit is None else End(Status.INVALID, limit=limit))

    def _count_time(self, counts: bool = True) -> None:
        """Add the time that has passed to the run's usage, unless it only waited for people."""
        now = self.context.clock.now()
        if counts:
            self.context.usage.seconds += now - self._mark
        self._mark = now

    def _until(self, due: float | None) -> float | None:
        """Return the earlier of the next pass and the end of the time limit."""
        timeout = self.context.limits.timeout
        if timeout is None:
            return due
        end = self._mark + timeout - self.context.usage.seconds
        return end if due is None else min(due, end)

    def _is_only_asking(self) -> bool:
        """Whether nothing goes on but waiting for people."""
        interaction = self.context.interaction
        return not (interaction.is_quiet or self.tasks.is_busy) and bool(interaction.all_open()) and waits(self.root)

    def _quiet_end(self, until_suspend: bool) -> End | None:
        """Return the end of a run in which nothing can go on by itself, or None while something can."""
        if self.tasks.is_busy:
            return None
        goes_on = self.passing.has_timer or self.pace.poll_at is not None
        if self.context.interaction.all_open():
            is_done = until_suspend and (not goes_on or waits(self.root))
            return End(Status.RUNNING, is_suspended=True) if is_done else None
        return None if goes_on or self._is_stalled else self._stall(until_suspend)

    def _stall(self, until_suspend: bool) -> End | None:
        """Report that only a write from outside can wake the tree."""
        self._is_stalled = True
        paths = tuple(path_of(node) for node in tips(self.root))
        self.context.log_at(None).warning("stalled", paths=paths)
        self.context.events.emit(Stalled(paths=paths))
        if self.options.on_stall == "raise":
            text = f"nothing can wake the tree: {', '.join(paths)} can go on only after a write from outside"
            raise StalledError(text, path=paths[0] if paths else None)
        return End(Status.RUNNING, is_stalled=True) if until_suspend else None

    # Ending

    @property
    def is_left(self) -> bool:
        """Whether the tree stands as the run before has left it: this one has made no pass."""
        return not self.context.usage.ticks and self.root.status in RESULTS

    def go(self, what: str) -> None:
        """Move to the next phase, or raise AgentBusyError; the state is listened to while the runner is at work."""
        self.phase = advance(self.phase, what)
        manager, is_at_work = self.manager, self.phase not in REST
        manager.is_running = is_at_work
        if is_at_work and self._unsubscribe is None:
            self._unsubscribe = manager.subscribe(self.on_change)
        elif self._unsubscribe is not None and not is_at_work:
            self._unsubscribe()
            self._unsubscribe = None

    async def park(self, end: End) -> None:
        """Bring the tree to rest after a run that has ended: halt what must be, await every cleanup."""
        self.go("park")
        self.auto_driving = False
        self._humans.dismiss()
        try:
            if end.status in RESULTS:
                self.parked = None
                self._halt_leftovers()
            else:
                self._park_tree()
        finally:
            await self._clean_up()
            self.failures.report_untold(self.tasks)
            self.go("finish" if end.status in RESULTS else "rest")
        self.tasks.raise_fatal()

    def park_now(self) -> None:
        """Bring a tree without coroutines to rest after an exception."""
        self.go("park")
        try:
            self._park_tree()
        finally:
            self.context.deadlines.clear()
            self.go("rest")

    async def _clean_up(self) -> None:
        """Cancel what was halted and await every cleanup, out of reach of cancellation."""
        if self.tasks.is_busy or self.tasks.halting:
            with anyio.CancelScope(shield=True):
                async with self.host.opened() if self.tasks.lives else nullcontext():
                    self.tasks.carry_out()
                    await self.tasks.settled()
        self.context.deadlines.clear()

    def _halt_leftovers(self) -> None:
        """Halt what is still RUNNING below a root that has its result; all other statuses stay."""
        self.tasks.halt_all()  # also conditions that are evaluated again in the background
        left = [node for node in descend(self.root) if node.status is RUNNING]
        report, trace = self.failures.report, self.context.ticker.trace
        raise_first([raised for node in left for raised in collect(node, report, trace)])

    def _park_tree(self) -> None:
        """Remember the position, then set every node to INVALID; questions stay open."""
        culprit = self.failures.culprit
        for above in ancestors(culprit) if culprit is not None else ():
            above.status = Status.RUNNING
        self.failures.culprit = self.parked = None
        self.context.is_parking = True
        try:
            self.parked = None if self.is_left else dump_position(self.root)
            if self.log is not None and self.parked is not None:
                self.log.freeze()
        except Exception as error:  # noqa: BLE001  # a memento that raises must not keep the tree alive
            self.failures.report(self.root, error)
        self.tasks.is_parking = True
        try:
            self._stop_tree()
        finally:
            self.context.is_parking = self.tasks.is_parking = False

    def _keep_late(self, node: Behaviour, status: Status) -> None:
        """Have a result stand in the position: its coroutine had done all its work when the run was parked."""
        if self.parked is not None:
            entry = self.parked["nodes"].setdefault(str(self.parked["paths"].index(path_of(node))), {})
            entry["memento"] = with_result(entry.get("memento"), status)
        if self.log is not None:
            self.log.keep_late(node, status)

    def _stop_tree(self) -> None:
        """Set every node to INVALID; what their `terminate`s raise is reported."""
        halt(self.root, self.failures.report, self.context.ticker.trace)

    async def abandon(self, *, withdraw: bool = True) -> None:
        """Halt what an earlier step or suspended run has left and await the cleanups.

        Args:
            withdraw: withdraw the questions as well; without it they stay as they are.
        """
        self.go("park")
        self.parked = None
        self.context.is_parking = not withdraw
        try:
            if self.root.status is Status.RUNNING or self.tasks.is_busy:
                self._stop_tree()
        finally:
            await self._clean_up()
            self.context.is_parking = False
            self.go("rest")
        self.tasks.raise_fatal()
