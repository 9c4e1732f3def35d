"""How leaves are ticked, and nodes whose `tick` is unknown: at once, inside the step of the node above."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any  # a leaf with `tick_direct(ticker)`

from py_trees.behaviour import Behaviour
from py_trees.behaviours import Dummy, Failure, Running, Success
from py_trees.common import Status
from py_trees.decorators import Timeout
from py_trees.timers import Timer

from jianmu.engine.halting import Trace, stopping
from jianmu.engine.passes import INVALID, RUNNING, Inline, Kind, Pass, invalid_status
from jianmu.engine.tree import ancestors, walk

CONSTANTS: dict[object, tuple[str, Status]] = {
    Success.update: ("success", Status.SUCCESS),
    Failure.update: ("failure", Status.FAILURE),
    Running.update: ("running", Status.RUNNING),
    Dummy.update: ("crash test dummy", Status.RUNNING),
}
"""What py_trees' constants say and return; logging it takes them longer than everything else."""


def leaf(work: Callable[[Any, Pass], Status]) -> Inline:
    """Return what ticks leaves by `work`, which calls their callbacks and sets their status."""

    def ticked(run: Pass, node: Behaviour) -> Status | None:
        try:
            if getattr(node, "bound_to", None) is not run.owner:
                run.meet(node)
            status = work(node, run)
        except BaseException as error:
            run.blame(error, node)
            raise
        if run.visit is not None:
            run.visit(node)
        return status

    return ticked


def _as_py_trees(node: Behaviour, run: Pass) -> Status:
    if node.status is not RUNNING:
        run.enter(node)
    return run.finish(node, node.update())


def _constant(message: str, status: Status) -> Inline:
    """Return what ticks one of py_trees' constants without its `update`; one with an `update` of its own is none."""

    def ticked(run: Pass, node: Behaviour) -> Status | None:
        own = node.__dict__
        run.polled = run.polled or "update" in own
        if run.trace is not None or "update" in own:
            return _tick_leaf(run, node)
        try:
            if node.status is not RUNNING:
                run.meet(node)
                node.initialise()
            node.feedback_message = message
            if status is not RUNNING:
                node.terminate(status)
        except BaseException as error:
            run.blame(error, node)
            raise
        node.status = status
        if run.visit is not None:
            run.visit(node)
        return status

    return ticked


def _timer(node: Behaviour, run: Pass) -> Status:
    """Tick a timer, and note it while it is RUNNING."""
    status = _as_py_trees(node, run)
    if status is RUNNING:
        run.timed.append(node)
    return status


def opaque(run: Pass, node: Behaviour) -> Status | None:
    """Tick a node by its own generator; None if it did not yield itself."""
    run.polled = True
    if node.status is not RUNNING:
        run.meet(node)
        node.activation = run.number  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
    watch = _Watch(run.trace, node) if run.trace is not None else None
    found = run.trace = None
    try:
        for each in node.tick():
            _yielded(run, each)
            if watch is not None:
                watch.ticked(each)
            found = node.status if each is node else found
    except BaseException as error:
        run.blame(error, _culprit(node, error))
        raise
    finally:
        if watch is not None:
            run.trace = watch.close()
    return found


def _yielded(run: Pass, node: Behaviour) -> None:
    """Note what came out of a generator."""
    if node.status is INVALID:
        raise invalid_status(node, node.status)
    if node.status is RUNNING and isinstance(node, Timer | Timeout):
        run.timed.append(node)
    if run.visit is not None:
        run.visit(node)


def _culprit(node: Behaviour, error: BaseException) -> Behaviour:
    """Return the node of a subtree that raised: the deepest frame that belongs to one tells."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Behaviour) and node in (owner, *ancestors(owner)):
            return owner
    return node


class _Watch:
    """Tells a trace what happens below a node that ticks its children itself, by what comes out of its generator."""

    def __init__(self, trace: Trace, node: Behaviour) -> None:
        self._trace = trace
        self._before = {id(each): (each, each.status) for each in walk(node)}

    def ticked(self, node: Behaviour) -> None:
        """Tell of a node that was ticked; that it was started is told late, when it has been."""
        was = self._before.get(id(node), (node, INVALID))[1]
        self._before[id(node)] = (node, node.status)
        if was is not RUNNING:
            self._trace("started", node)
        if node.status is not RUNNING:
            self._trace("finished", node)

    def close(self) -> Trace:
        """Tell of the nodes that were halted, and return the trace."""
        for node, was in self._before.values():
            if was is not INVALID and node.status is INVALID:
                self._trace("halted", node)
        return self._trace


_tick_leaf, _tick_timer = leaf(_as_py_trees), leaf(_timer)


def leaf_of(cls: Any, *, is_direct: bool, is_polled: bool, is_known: bool) -> Kind:
    """Return how leaves of a class are ticked; `is_direct`: by themselves, but for the visitor."""
    if is_direct:
        return Kind(cls.tick, leaf(cls.tick_direct), polled=is_polled)
    if cls.update in CONSTANTS:
        return Kind(cls.tick, _constant(*CONSTANTS[cls.update]), polled=is_polled)
    if cls.update is Timer.update:
        return Kind(cls.tick, _tick_timer, polled=is_polled)
    return Kind(cls.tick, _tick_leaf, polled=is_polled or not is_known, is_plain=stopping(cls) == "leaf")
