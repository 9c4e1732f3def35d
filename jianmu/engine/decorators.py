"""How py_trees' decorators are ticked: the child first, then `update` gives the status."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any  # each judge has its own class of decorators

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.decorators import Decorator, EternalGuard, OneShot, Repeat, Timeout

from jianmu.engine.passes import FAILURE, LOOPS, RUNNING, Kind, Pass, Step, is_held
from jianmu.engine.tree import path_of


def decorator_of(cls: type[Behaviour], owner: type[Behaviour], *, is_polled: bool, is_known: bool) -> Kind:
    """Return how decorators of a class are ticked, whose `tick` is that of `owner`."""
    is_stock = getattr(cls.update, "__module__", None) == Decorator.__module__
    updated = _stock if is_stock else _by_update
    if cls.update is Timeout.update:
        updated = _timeout
    step = _decorator(updated, is_loop=issubclass(cls, LOOPS))
    if owner is OneShot:
        step = _oneshot(step)
    elif owner is EternalGuard:
        step = _eternal_guard(step)
    return Kind(cls.tick, step=step, polled=is_polled or owner is EternalGuard or not (is_stock or is_known))


def _decorator(updated: Callable[[Pass, Any], Status], *, is_loop: bool) -> Step:
    def step(run: Pass, node: Decorator, done: Behaviour | None) -> Behaviour | None:
        if done is not None:
            run.finish(node, updated(run, node))
            return None
        if is_loop and is_held(node):
            return None
        if node.status is not RUNNING:
            run.enter(node)
        return node.decorated

    return step


def _by_update(_run: Pass, node: Decorator) -> Status:
    return node.update()


def _stock(run: Pass, node: Decorator) -> Status:
    """Update a decorator of py_trees'; going on over a finished child it is due again, a loop that ends at once."""
    status = node.update()
    if status is RUNNING and node.decorated.status is not RUNNING:
        ends = isinstance(node, LOOPS) and not (isinstance(node, Repeat) and node.num_success <= 0)
        run.again, run.polled = run.again or ends, run.polled or not ends
    return status


def _timeout(run: Pass, node: Timeout) -> Status:
    """Update a Timeout; the child is halted here, at any depth."""
    if node.decorated.status is RUNNING and time.monotonic() > node.finish_time and "update" not in node.__dict__:
        node.feedback_message = "timed out"
        run.halt(node.decorated)
        return FAILURE
    status = node.update()
    if status is RUNNING:
        run.timed.append(node)
    return status


def _oneshot(step: Step) -> Step:
    """Return what ticks a OneShot: when it has fired, its child is left alone."""

    def oneshot(run: Pass, node: OneShot, done: Behaviour | None) -> Behaviour | None:
        if done is not None or not node.final_status:
            return step(run, node, done)
        if node.status is not RUNNING:
            run.enter(node)
        run.finish(node, node.update())
        return None

    return oneshot


def _eternal_guard(step: Step) -> Step:
    """Return what ticks an EternalGuard: its condition is asked first, even before it is entered."""

    def guard(run: Pass, node: EternalGuard, done: Behaviour | None) -> Behaviour | None:
        verdict = True if done is not None else node.condition()
        if not isinstance(verdict, bool | Status):
            text = f"the condition of '{path_of(node)}' returned {type(verdict)}: return a bool or a Status"
            raise RuntimeError(text)  # noqa: TRY004  # py_trees raises this one
        if verdict is not False and verdict is not FAILURE:
            return step(run, node, done)
        if run.trace is not None and node.status is not RUNNING:
            run.trace("started", node)
        run.finish(node, FAILURE)
        return None

    return guard
