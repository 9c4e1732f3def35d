"""One pass over a tree, with what comes before and after it."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.activity import Tasks
from jianmu.engine.bind import Binder
from jianmu.engine.context import RunContext
from jianmu.engine.decisions import Deed
from jianmu.engine.events import Answered, Asked, HotLoop, NodeFinished, NodeHalted, NodeStarted, PassStarted
from jianmu.engine.failures import Failures
from jianmu.engine.node import NodeMixin
from jianmu.engine.pace import Pace
from jianmu.engine.record import Record
from jianmu.engine.ticker import Tree, halt
from jianmu.engine.tree import ancestors, path_of
from jianmu.engine.waiting import StockTimers


class Passing:
    """Makes passes; knows what is due next."""

    def __init__(
        self, tree: Tree, context: RunContext, *, tasks: Tasks, pace: Pace, failures: Failures, binder: Binder
    ) -> None:
        self.is_on = False
        self._tree = tree
        self._context = context
        self._tasks = tasks
        self._pace = pace
        self._failures = failures
        self._binder = binder
        self._stock = StockTimers()
        self._hot_run = -1
        ticker = context.ticker
        ticker.report = failures.report
        ticker.owner, ticker.adopt = context, binder.bind
        context.interaction.listener = self._on_question

    @property
    def has_timer(self) -> bool:
        """Whether a node has a deadline."""
        return bool(self._deadlines()) or self._pace.timer_at is not None

    def one(self) -> None:
        """Make one pass.

        Raises:
            BaseException: what a node raised.
        """
        context, ticker = self._context, self._context.ticker
        context.usage.ticks += 1
        context.passes += 1
        self._prepare()
        if self._pace.begin_pass(context.clock.now()):
            self._report_hot_loop()
        ticker.trace = self._trace if context.events.is_heard else None
        if ticker.trace is not None:
            context.events.emit(PassStarted(number=context.passes))
        self._tick()
        self._pace.end_pass(polled=ticker.polled, again=ticker.again)
        if ticker.timed:
            self._pace.timer_at = self._stock.due(ticker.timed, context.clock.now())

    def next_due(self) -> float | None:
        """Return when the next pass is due, or None if nothing asks for one."""
        context = self._context
        if not context.deadlines and context.interaction.is_quiet:
            return self._pace.due(None)
        ends = self._deadlines()
        expiry = context.interaction.next_deadline()
        if expiry is not None:
            ends.append(context.clock.now() + (expiry - context.clock.utc()).total_seconds())
        return self._pace.due(min(ends, default=None))

    def _deadlines(self) -> list[float]:
        """Return when nodes want to be woken; what nodes wanted that have finished is forgotten."""
        deadlines = self._context.deadlines
        for node in [node for node in [*deadlines] if not _keeps_deadline(node)]:
            deadlines.pop(node, None)
        return [*deadlines.values()]

    def _tick(self) -> None:
        """Tick, then look after what the pass has left behind."""
        self.is_on, tree = True, self._tree
        try:
            if tree.visitors or tree.pre_tick_handlers or tree.post_tick_handlers:
                tree.tick()
            else:
                self._context.ticker.tick(tree.root)
                tree.count += 1
        finally:
            self.is_on = False
        if self._binder.is_unruly:
            self._halt_forgotten()
        if self._tasks.lost:
            lost = self._failures.lost(self._tasks)
            if lost is not None:
                raise lost

    def _prepare(self) -> None:
        """Before a pass: what is due expires, what was answered goes on, stopped clocks run again."""
        context = self._context
        self._stock.resume()
        interaction = context.interaction
        if interaction.desk is None and not interaction.is_quiet and interaction.next_deadline() is not None:
            interaction.due(context.clock.utc())
        if context.deadlines:
            now = context.clock.now()
            for node in [node for node, due in [*context.deadlines.items()] if due <= now]:
                context.deadlines.pop(node, None)
        for activity in [*self._tasks.waiting]:
            if all(interaction.record(id).status != "open" for id in activity.asked):
                activity.begin()

    def _halt_forgotten(self) -> None:
        """Halt the coroutines below nodes that were stopped without stopping their children."""
        tasks = self._tasks
        for activity in [*(live.activity for live in tasks.lives), *tasks.wanted, *tasks.waiting]:
            node = activity.node
            if node.status is Status.RUNNING and any(above.status is not Status.RUNNING for above in ancestors(node)):
                halt(node, self._failures.report, self._context.ticker.trace)

    def _report_hot_loop(self) -> None:
        """Report once a run that the tree drives itself in circles."""
        if self._hot_run == self._context.run:
            return
        self._hot_run = self._context.run
        self._context.log_at(None).warning("hot loop: ten passes in a row were woken only by writes of the pass before")
        self._context.events.emit(HotLoop())

    def _on_question(self, deed: Deed, record: Record) -> None:
        """Tell what became of a question, and wake the run where its node has to see it."""
        events = self._context.events
        path = record.question.path
        if deed == "asked":
            if events.is_heard:
                events.emit(Asked(suspension=record.question), path)
            self._context.stir()
        elif deed != "consumed" and events.is_heard:
            by = record.answer.by if record.answer is not None else None
            events.emit(Answered(id=record.id, status=record.status, by=by, used=not record.unused), path)
        if deed in ("answered", "expired", "withdrawn") and record.source != "tree":
            self._context.signal()

    def _trace(self, what: str, node: Behaviour) -> None:
        """Tell what the ticker does to a node, as an event."""
        events = self._context.events
        path = node.context.path if isinstance(node, NodeMixin) else path_of(node)
        if what == "started":
            events.emit(NodeStarted(), path)
        elif what == "finished":
            events.emit(NodeFinished(status=node.status, feedback=node.feedback_message), path)
        else:
            events.emit(NodeHalted(), path)


def _keeps_deadline(node: Behaviour) -> bool:
    """Whether a node still wants to be woken: while it is RUNNING, or where its class says so when it has finished."""
    if node.status is Status.RUNNING:
        return True
    return node.status is not Status.INVALID and bool(getattr(node, "wakes_when_finished", False))
