"""Sticky results: what a finished node below a composite that looks again must not do a second time."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import ForEach, Repeat, Retry

from jianmu.engine.tree import ancestors

LOOPS = (Repeat, Retry, ForEach)
"""py_trees' own loops."""


def looks_again(node: Behaviour) -> bool:
    """Whether a composite ticks its finished children again while it is RUNNING."""
    if isinstance(node, Sequence | Selector):
        return not node.memory
    return isinstance(node, Parallel) and not node.policy.synchronise


def holds(node: Behaviour, since: int) -> bool:
    """Whether a result stands until the activation of the composite that looks again has ended.

    Args:
        node: the node that has finished.
        since: the number of a pass; the result stands if that composite was active already then.
    """
    above = next((each for each in ancestors(node) if each.status is Status.RUNNING), None)
    return above is not None and looks_again(above) and since >= getattr(above, "activation", -1)


def may_hold(node: Behaviour) -> bool:
    """Whether a result stands, or may have to when more above the node has finished."""
    return any(above.status is Status.RUNNING and looks_again(above) for above in ancestors(node))


def is_held(loop: Behaviour) -> bool:
    """Whether a loop that has finished reports its result and is not ticked again.

    So it is if an AsyncNode started under it in this activation (which it notes as `async_started`).
    """
    if loop.status is not Status.SUCCESS and loop.status is not Status.FAILURE:
        return False
    activation: int | None = getattr(loop, "activation", None)
    if activation is None or getattr(loop, "async_started", -1) < activation:
        return False
    return holds(loop, activation)


def is_spared(node: Behaviour) -> bool:
    """Whether a node keeps its result when a composite above it is entered anew only because it was looked at again."""
    if isinstance(node, LOOPS):
        return is_held(node)
    asks = getattr(type(node), "is_held", None)
    return asks is not None and asks(node)
