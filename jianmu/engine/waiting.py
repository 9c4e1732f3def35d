"""What a tree waits for: people, time, or nothing at all."""

from __future__ import annotations

import time
from collections.abc import Iterator

from py_trees.behaviour import Behaviour
from py_trees.decorators import Timeout

from jianmu.engine.node import AsyncNode
from jianmu.engine.passes import RUNNING

MARGIN = 0.001  # py_trees' timers want the time to be past their end, not at it


def running(root: Behaviour) -> Iterator[Behaviour]:
    """Yield the RUNNING nodes, parents first; what lies below a node that is not RUNNING is not visited."""
    stack = [root] if root.status is RUNNING else []
    while stack:
        node = stack.pop()
        yield node
        stack.extend(child for child in reversed(node.children) if child.status is RUNNING)


def tips(root: Behaviour) -> Iterator[Behaviour]:
    """Yield the RUNNING nodes that have no RUNNING child."""
    return (node for node in running(root) if all(child.status is not RUNNING for child in node.children))


def waits(node: Behaviour) -> bool:
    """Whether all RUNNING leaves of a branch have an open question (False if nothing in it is RUNNING)."""
    ends = [*tips(node)]
    return bool(ends) and all(map(is_asking, ends))


def is_asking(node: Behaviour) -> bool:
    """Whether a node itself waits for an answer."""
    if isinstance(node, AsyncNode):
        activity = node.context.activity
        return activity is not None and activity.is_waiting
    return bool(getattr(node, "is_waiting", False))


class StockTimers:
    """The deadlines of py_trees' Timer and Timeout, which keep real time themselves.

    A Timeout over nothing but open questions stands still: its remaining time is taken when the wait
    begins and given back before the next pass.
    """

    def __init__(self) -> None:
        self._paused: dict[Behaviour, float] = {}

    def resume(self) -> None:
        """Give the paused Timeouts their remaining time back; called before a pass."""
        while self._paused:
            node, remaining = self._paused.popitem()
            if isinstance(node, Timeout):
                node.finish_time = time.monotonic() + remaining

    def due(self, nodes: list[Behaviour], now: float) -> float | None:
        """Return when the next of these timers is due on the run's clock, or None."""
        ends = [self._due(node, now) for node in nodes if node.status is RUNNING]
        return min((end for end in ends if end is not None), default=None)

    def _due(self, node: Behaviour, now: float) -> float | None:
        """Return when one timer is due; None for a Timeout that stands still."""
        is_timeout = isinstance(node, Timeout)
        remaining = float(node.__dict__["finish_time"]) - (time.monotonic() if is_timeout else time.time())
        if is_timeout and waits(node):
            self._paused[node] = remaining
            return None
        return now + max(0.0, remaining) + MARGIN
