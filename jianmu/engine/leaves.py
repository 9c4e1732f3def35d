"""How leaves are ticked, and nodes whose `tick` is unknown: at once, inside the step of the node above."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Protocol, cast

from py_trees.behaviour import Behaviour
from py_trees.behaviours import Dummy, Failure, Running, Success
from py_trees.common import Status
from py_trees.decorators import Timeout
from py_trees.timers import Timer

from jianmu.engine.passes import RUNNING, Kind, Pass, invalid_status
from jianmu.engine.tree import ancestors
from jianmu.engine.watch import Watch


class Direct(Protocol):
    """A leaf that ticks itself, apart from being shown to the visitor."""

    def tick_direct(self, ticker: Pass) -> Status:
        """Do one tick: callbacks and status."""
        ...


Inline = Callable[[Pass, Behaviour], Status | None]

CONSTANTS: dict[object, tuple[str, Status]] = {
    Success.update: ("success", Status.SUCCESS),
    Failure.update: ("failure", Status.FAILURE),
    Running.update: ("running", Status.RUNNING),
    Dummy.update: ("crash test dummy", Status.RUNNING),
}


def is_patched(node: Behaviour) -> bool:
    """Whether a `tick` was assigned to this very node."""
    return getattr(node.tick, "__func__", None) is not type(node).tick


def tick_leaf(run: Pass, node: Behaviour) -> Status | None:
    """Tick a leaf as `Behaviour.tick` does."""
    if is_patched(node):
        return opaque(run, node)
    try:
        if node.status is not RUNNING:
            run.enter(node)
        status = run.finish(node, node.update())
    except BaseException as error:
        run.blame(error, node)
        raise
    if run.visit is not None:
        run.visit(node)
    return status


def tick_polled(run: Pass, node: Behaviour) -> Status | None:
    """Tick a leaf of which nobody can tell when to tick it again."""
    run.polled = True
    return tick_leaf(run, node)


def tick_timer(run: Pass, node: Behaviour) -> Status | None:
    """Tick a timer, and note it while it is RUNNING."""
    status = tick_leaf(run, node)
    if status is RUNNING:
        run.timed.append(node)
    return status


def constant(message: str, status: Status) -> Inline:
    """Return what ticks leaves that always return the same, without calling their `update`, which only logs."""

    def ticked(run: Pass, node: Behaviour) -> Status | None:
        own = node.__dict__
        if run.trace is not None or "update" in own or "tick" in own:
            return tick_polled(run, node)
        try:
            if node.status is not RUNNING:
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


def tick_direct_polled(run: Pass, node: Behaviour) -> Status | None:
    """Tick such a leaf that asks to be ticked every `poll_interval`."""
    run.polled = True
    return tick_direct(run, node)


def tick_direct(run: Pass, node: Behaviour) -> Status | None:
    """Tick a leaf that does so itself: it has `tick_direct(ticker)`."""
    if is_patched(node):
        return opaque(run, node)
    try:
        run.meet(node)
        status = cast("Direct", node).tick_direct(run)
    except BaseException as error:
        run.blame(error, node)
        raise
    if run.visit is not None:
        run.visit(node)
    return status


def opaque(run: Pass, node: Behaviour) -> Status | None:
    """Tick a node by its own generator; None if it did not yield itself."""
    run.polled = True
    if node.status is not RUNNING:
        run.meet(node)
        node.activation = run.number  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
    watch = Watch(run, node) if run.trace is not None else None
    found = None
    try:
        for each in node.tick():
            _yielded(run, each, watch)
            found = node.status if each is node else found
    except BaseException as error:
        run.blame(error, _culprit(node, error))
        raise
    finally:
        if watch is not None:
            watch.close()
    return found


def _yielded(run: Pass, node: Behaviour, watch: Watch | None) -> None:
    """Note what came out of a generator."""
    if node.status is Status.INVALID:
        raise invalid_status(node, node.status)
    if node.status is RUNNING and isinstance(node, Timer | Timeout):
        run.timed.append(node)
    if watch is not None:
        watch.ticked(node)
    if run.visit is not None:
        run.visit(node)


def _culprit(node: Behaviour, error: BaseException) -> Behaviour:
    """Return the node of a subtree that raised: the deepest frame that belongs to one tells."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Behaviour) and node in (owner, *ancestors(owner)):
            return owner
    return node


PLAIN = Kind(tick_leaf, simple=True)
"""Leaves with py_trees' own `tick` and `stop` that say themselves when to tick them again."""

POLLED = Kind(tick_polled, simple=True)
"""Such leaves of which nobody can tell when."""
