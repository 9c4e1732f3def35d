"""How py_trees' composites are ticked.

1. Leaves are ticked at once; branches are returned to the ticker, which ticks them and comes back.
2. A child's exception ends the tick: none of these composites catches.
3. Lists of children are read as they are, also when a child edits them in the course of its tick.
4. A composite with memory is only walked through while the child at which it goes on stays RUNNING.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from operator import length_hint
from typing import Any  # Any: a composite with memory

from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Composite, Parallel, Selector, Sequence

from jianmu.engine.leaves import opaque
from jianmu.engine.passes import FAILURE, KINDS, RUNNING, SUCCESS, Kind, Pass, Step, is_spared
from jianmu.engine.tree import path_of

Found = tuple[Behaviour | None, Behaviour | None]
"""The next branch to be ticked, or the child that ended the tick, or neither when none is left."""

NOWHERE: tuple[int, Behaviour | None] = (sys.maxsize, None)
"""Where a composite is parked of which nothing was noted: behind all children, after none."""


def ordered(passing: Status) -> Step:
    """Return what ticks a Sequence or Selector: one child after the other, while their status is `passing`."""
    is_sequence = passing is SUCCESS

    def step(run: Pass, node: Sequence | Selector, done: Behaviour | None) -> Behaviour | None:
        if done is None:
            index = _begin(run, node, is_sequence)
        else:
            place = run.places[-1]
            index: int = getattr(node, "jianmu_parked", NOWHERE)[0] if type(place) is slice else place
            if done.status is not passing:
                return _end(run, node, index, done, is_sequence)
            index += 1
        rest = iter(node.children)  # sees edits as a loop over the list does
        if index:
            rest.__setstate__(index)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # every list iterator has it
        child, stopper = _sweep(run, node, rest, passing)
        index = len(node.children) - length_hint(rest) - 1
        if child is None:
            return _end(run, node, index, stopper, is_sequence)
        if is_sequence:
            node.current_child = child
        run.places[-1] = index
        return child

    return step


def _begin(run: Pass, node: Sequence | Selector, is_sequence: bool) -> int:
    """Begin a tick; return the place of the first child to be ticked."""
    is_on = node.status is RUNNING
    if not is_on:
        run.begin(node)
        node.current_child = node.children[0] if node.children else None
        if is_sequence:
            run.reset(node.children, is_spared)
        node.initialise()
    index = _place(node) if node.memory and (is_on or not is_sequence) else 0
    if index and not is_sequence:
        run.reset(node.children[:index])
    return index


def _end(run: Pass, node: Sequence | Selector, index: int, stopper: Behaviour | None, is_sequence: bool) -> None:
    """End a tick: at the child that stopped it, or behind the last."""
    if stopper is None:
        run.finish(node, SUCCESS if is_sequence else FAILURE)
        if not is_sequence:
            node.current_child = node.children[-1] if node.children else None
        return
    looks_back = not node.memory if is_sequence else node.current_child is not stopper
    if not is_sequence:
        node.current_child = stopper
    if looks_back:
        run.reset(node.children[index + 1 :])
    if stopper.status is RUNNING:
        before = node.children[index - 1] if index else None
        node.jianmu_parked = (index, before)  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
        node.status = RUNNING
    else:
        run.finish(node, stopper.status)


def walked(run: Pass, node: Any, kind: Kind) -> tuple[Behaviour, Kind]:
    """Go down through RUNNING composites with memory to the first node that has to be ticked; return it.

    The place of each of them is the slice of the branches at work that are walked through with it.
    """
    walk = slice(len(run.nodes), None)
    while kind.walks and node.status is RUNNING and node.memory and getattr(node.tick, "__func__", None) is kind.tick:
        index, children = getattr(node, "jianmu_parked", NOWHERE)[0], node.children
        child: Behaviour = node.current_child
        if index >= len(children) or children[index] is not child:
            break
        below = KINDS[type(child)]
        if below.inline is opaque:
            break
        if index and kind.step is selector:
            run.reset(children[:index])
        if kind.polled:
            run.polled = True
        run.nodes.append(node)
        run.places.append(walk)
        node, kind = child, below
    return node, kind


def _place(node: Sequence | Selector) -> int:
    """Return the place of the child with which a composite with memory goes on.

    That is its current child; where it was removed, the child after the one that stood before it;
    where that one is gone as well, or nothing stands there, the first.
    """
    children, current = node.children, node.current_child
    index, before = getattr(node, "jianmu_parked", NOWHERE)
    if index < len(children) and children[index] is current:
        return index
    if current is not None and current in children:
        return children.index(current)
    place = children.index(before) + 1 if before is not None and before in children else 0
    return place if place < len(children) else 0


def _sweep(run: Pass, node: Composite, rest: Iterator[Behaviour], passing: Status | None) -> Found:
    """Tick leaves of the rest, until a child is none, or has another status than `passing` (None: any will do)."""
    is_quick: bool | None = None
    child = next(rest, None)
    while child is not None:
        kind = KINDS[type(child)]
        if kind.inline is None:
            return child, None
        if kind.polled:
            run.polled = True
        if kind.is_plain and is_quick is None:
            is_quick = run.trace is None and _looks_plain(node)
        if kind.is_plain and is_quick:
            child, stopper = _sweep_plain(run, node, child, rest, passing)
            if stopper is not None:
                return None, stopper
            continue
        if passing is SUCCESS:
            node.current_child = child
        is_own = getattr(child.tick, "__func__", None) is kind.tick
        status = (kind.inline if is_own else opaque)(run, child) or passing
        if status is not passing and passing is not None:
            return None, child
        child = next(rest, None)
    return None, None


def _sweep_plain(
    run: Pass, node: Composite, first: Behaviour, rest: Iterator[Behaviour], passing: Status | None
) -> Found:
    """Tick plain leaves of one class; return the first child of another one as what was found first."""
    child, cls, visit, owner = first, type(first), run.visit, run.owner
    usual, is_ended = passing or SUCCESS, passing is not None
    try:
        for child in chain((first,), rest):
            if type(child) is not cls:
                return child, None
            if owner is not None and getattr(child, "bound_to", None) is not owner:
                run.meet(child)
            if child.status is not RUNNING:
                child.initialise()
            status = child.update()
            if status is usual and visit is None:
                child.terminate(status)
                child.status = status
                continue
            run.finish(child, status)
            if visit is not None:
                visit(child)
            if status is not usual and is_ended:
                return None, child
    except BaseException as error:
        run.blame(error, child)
        raise
    finally:
        if passing is SUCCESS:
            node.current_child = child
    return None, None


def _looks_plain(node: Composite) -> bool:
    """Whether no child has a `tick` of its own; looked at when they grow or shrink."""
    count = len(node.children)
    if getattr(node, "jianmu_looked_at", -1) == count:
        return True
    if any(getattr(child.tick, "__func__", None) is not type(child).tick for child in node.children):
        return False
    node.jianmu_looked_at = count  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
    return True


def parallel(run: Pass, node: Parallel, done: Behaviour | None) -> Behaviour | None:
    """Go on with the tick of a Parallel: all children, then its policy."""
    if done is None:
        node.validate_policy_configuration()
        if node.status is not RUNNING:
            run.begin(node)
            run.reset(node.children, is_spared)
            node.current_child = None
            node.initialise()
        skips = bool(node.children) and node.policy.synchronise
        rest = (child for child in node.children if child.status is not SUCCESS) if skips else iter(node.children)
        run.places[-1] = rest
    child, _ = _sweep(run, node, run.places[-1], None)
    if child is None:
        status, node.current_child = _verdict(node)
        run.finish(node, status)
    return child


def _verdict(node: Parallel) -> tuple[Status, Behaviour | None]:
    """Return what the children of a Parallel come to, and the child that decided it."""
    children, policy = node.children, node.policy
    statuses = [child.status for child in children]
    if not children:
        return SUCCESS, None
    if FAILURE in statuses:
        return FAILURE, children[statuses.index(FAILURE)]
    match policy:
        case ParallelPolicy.SuccessOnAll():
            decided, decisive = statuses.count(SUCCESS) == len(statuses), children[-1]
        case ParallelPolicy.SuccessOnOne():
            winner = next((child for child in reversed(children) if child.status is SUCCESS), None)
            decided, decisive = winner is not None, winner or children[-1]
        case ParallelPolicy.SuccessOnSelected():
            decided = all(child.status is SUCCESS for child in policy.children)
            decisive = policy.children[-1] if decided else children[-1]
        case _:
            raise RuntimeError(f"Parallel '{path_of(node)}' cannot tell when it succeeds: unknown policy {policy!r}")
    return (SUCCESS if decided else RUNNING), decisive


sequence, selector = ordered(SUCCESS), ordered(FAILURE)
