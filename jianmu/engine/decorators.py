"""How py_trees' decorators are ticked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.decorators import Decorator, EternalGuard, OneShot, Repeat, Timeout

from jianmu.engine.passes import FAILURE, KINDS, RUNNING, Pass
from jianmu.engine.sticky import is_held
from jianmu.engine.tree import path_of

Judge = Callable[[Pass, Decorator], Status]
Branch = Callable[[Pass, Decorator], Iterator[Behaviour]]


def show(run: Pass, node: Behaviour) -> None:
    """Show a node that was ticked to the visitor."""
    if run.visit is not None:
        run.visit(node)


def decorator(judge: Judge) -> Branch:
    """Return what ticks decorators: the child first, then `judge` gives the status."""

    def ticked(run: Pass, node: Decorator) -> Iterator[Behaviour]:
        if node.status is not RUNNING:
            run.enter(node)
        child = node.decorated
        kind = KINDS.get(type(child)) or run.kind_of(type(child))
        if kind.inline is None:
            yield child
        else:
            kind.inline(run, child)
        run.finish(node, judge(run, node))
        show(run, node)

    return ticked


def update(_run: Pass, node: Decorator) -> Status:
    """Judge by `update` alone: nothing but the child decides."""
    return node.update()


def update_polled(run: Pass, node: Decorator) -> Status:
    """Judge by an `update` of which nobody can tell when it changes its mind."""
    run.polled = True
    return node.update()


def update_endless(run: Pass, node: Decorator) -> Status:
    """Judge by an `update` that may go on over a finished child: it is ticked again later."""
    status = node.update()
    if status is RUNNING and node.decorated.status is not RUNNING:
        run.polled = True
    return status


def update_bounded(run: Pass, node: Decorator) -> Status:
    """Judge by the `update` of a loop that ends: after a round the next one is due at once."""
    status = node.update()
    if status is RUNNING and node.decorated.status is not RUNNING:
        run.again = True
    return status


def update_repeat(run: Pass, node: Decorator) -> Status:
    """Judge a Repeat, which ends if it has a count."""
    ends = isinstance(node, Repeat) and node.num_success > 0
    return update_bounded(run, node) if ends else update_endless(run, node)


def update_timeout(run: Pass, node: Decorator) -> Status:
    """Judge a Timeout; the child is halted here, at any depth."""
    assert isinstance(node, Timeout)
    if node.decorated.status is RUNNING and time.monotonic() > node.finish_time and "update" not in node.__dict__:
        node.feedback_message = "timed out"
        run.halt(node.decorated)
        return FAILURE
    status = node.update()
    if status is RUNNING:
        run.timed.append(node)
    return status


def held(branch: Branch) -> Branch:
    """Return what ticks loops: one that holds its result is only shown."""

    def ticked(run: Pass, node: Decorator) -> Iterator[Behaviour]:
        if is_held(node):
            show(run, node)
            return iter(())
        return branch(run, node)

    return ticked


def oneshot(branch: Branch) -> Callable[[Pass, OneShot], Iterator[Behaviour]]:
    """Return what ticks a OneShot: when it has fired, its child is left alone."""

    def ticked(run: Pass, node: OneShot) -> Iterator[Behaviour]:
        if not node.final_status:
            return branch(run, node)
        if node.status is not RUNNING:
            run.enter(node)
        run.finish(node, node.update())
        show(run, node)
        return iter(())

    return ticked


def eternal_guard(branch: Branch) -> Callable[[Pass, EternalGuard], Iterator[Behaviour]]:
    """Return what ticks an EternalGuard: its condition is asked first, even before it is entered."""

    def ticked(run: Pass, node: EternalGuard) -> Iterator[Behaviour]:
        run.polled = True
        verdict = node.condition()
        if not isinstance(verdict, bool | Status):
            text = f"the condition of '{path_of(node)}' returned {type(verdict)}: return a bool or a Status"
            raise RuntimeError(text)  # noqa: TRY004  # py_trees raises this one
        if verdict is not False and verdict is not FAILURE:
            return branch(run, node)
        if run.trace is not None and node.status is not RUNNING:
            run.trace("started", node)
        run.finish(node, FAILURE)
        show(run, node)
        return iter(())

    return ticked
