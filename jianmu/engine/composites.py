"""How py_trees' composites are ticked: generators that yield the branches below them to the ticker.

1. Leaves are ticked at once; branches are yielded, and have been ticked when the generator goes on.
2. A child's exception ends the generator: none of these composites catches.
3. Lists of children are read as they are, also when a child edits them in the course of its tick.
4. A composite with memory needs no generator while the child at which it goes on stays RUNNING: the
   ticker walks through it, and makes one only when that child (`done`) has finished.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import TypeVar, cast

from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Composite, Parallel, Selector, Sequence

from jianmu.engine.halting import Hooked, Raised, Spare, collect, stopping
from jianmu.engine.leaves import PLAIN, POLLED, Inline, is_patched, opaque
from jianmu.engine.passes import FAILURE, INVALID, KINDS, RUNNING, SUCCESS, Pass, invalid_status
from jianmu.engine.sticky import is_spared
from jianmu.engine.tree import path_of

Rest = Iterator[Behaviour]
C = TypeVar("C", bound=Composite)


def composite(
    enter: Callable[[Pass, C], Rest | None],
    leave: Callable[[Pass, C, Rest, Behaviour | None], None],
    empty: Status,
    passing: Status | None,
) -> Callable[..., Iterator[Behaviour]]:
    """Return what ticks one kind of composites.

    Args:
        enter: begins a tick; returns the children to be ticked, or None if there are none.
        leave: ends it; told the children that are left, and the one that ended the tick, if one did.
        empty: the result of a composite without children.
        passing: the status of a child after which the next one is ticked; None: whatever it is.
    """
    follows = passing is SUCCESS

    def ticked(run: Pass, node: C, done: Behaviour | None = None) -> Iterator[Behaviour]:
        rest = enter(run, node)
        if rest is None:
            node.current_child = None
            _end(run, node, empty)
            return
        plain, stopper = _looks_plain(run, node), None
        while stopper is None:
            child, stopper = _sweep(run, node, rest, passing, plain) if done is None else (next(rest, None), None)
            if child is None:
                break
            if follows:
                node.current_child = child
            if child is not done:
                yield child
            done = None
            if passing is not None and child.status is not passing:
                stopper = child
        leave(run, node, rest, stopper)
        if run.visit is not None:
            run.visit(node)

    return ticked


def _sweep(
    run: Pass, node: Composite, rest: Rest, passing: Status | None, plain: bool
) -> tuple[Behaviour | None, Behaviour | None]:
    """Tick leaves, until a child is none, or one ends the tick of the composite; return it as first or second.

    Args:
        run: the pass.
        node: the composite.
        rest: the children that are left.
        passing: the status after which the next one is ticked.
        plain: whether plain leaves may be ticked here, without looking at each for what it has of its own.
    """
    last, inline, visit, follows, owner = None, None, run.visit, passing is SUCCESS, run.owner
    for child in rest:
        if type(child) is not last:
            last, inline = type(child), _inline(run, type(child), plain)
        if inline is branch:
            return child, None
        if follows:
            node.current_child = child
        if inline is not None:
            status = inline(run, child) or passing
        else:
            if owner is not None and child.status is not RUNNING and getattr(child, "bound_to", None) is not owner:
                run.meet(child)
            if child.status is not RUNNING:
                child.initialise()
            status = child.update()
            if status is SUCCESS or status is FAILURE:
                child.terminate(status)
            if status is not SUCCESS and status is not RUNNING and status is not FAILURE:
                raise invalid_status(child, status)
            child.status = status
            if visit is not None:
                visit(child)
        if status is not passing and passing is not None:
            return None, child
    return None, None


def branch(_run: Pass, _node: Behaviour) -> Status | None:
    """Stand for what ticks a branch: it cannot be ticked at once."""


def _inline(run: Pass, cls: type[Behaviour], plain: bool) -> Inline | None:
    """Return what ticks leaves of a class; None if the loop may do so itself."""
    kind = KINDS.get(cls) or run.kind_of(cls)
    if kind is POLLED:
        run.polled = True
    return None if plain and (kind is POLLED or kind is PLAIN) else kind.inline or branch


def at_work(node: Behaviour, error: BaseException) -> Behaviour:
    """Return who raised an exception that ended a composite's generator: the leaf at work, or the composite."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        child = frame.f_locals.get("child") if frame.f_code is _sweep.__code__ else None
        if isinstance(child, Behaviour) and child.parent is node:
            return child
    return node


def _looks_plain(run: Pass, node: Composite) -> bool:
    """Whether no child has a `tick` of its own, or children though it is a leaf; looked at when they grow or shrink."""
    if run.trace is not None:
        return False
    count = len(node.children)
    if getattr(node, "jianmu_looked_at", -1) == count:
        return True
    if any(is_patched(child) for child in node.children):
        return False
    node.jianmu_looked_at = count  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
    return True


def reset(run: Pass, children: Iterable[Behaviour], spare: Spare | None = None) -> None:
    """Halt children that are not INVALID; not what is spared of them and below them."""
    raised, last, simple, is_hooked = list[Raised](), None, False, False
    for child in children:
        if child.status is INVALID:
            continue
        if type(child) is not last:
            last = type(child)
            is_hooked = stopping(last) == "runtime"
            simple = run.trace is None and (is_hooked or (KINDS.get(last) or run.kind_of(last)).simple)
        if spare is not None and (is_hooked or not simple) and spare(child):
            continue
        if not simple or child.children:
            raised += collect(child, run.report, run.trace, spare)
            continue
        try:
            if is_hooked:
                cast("Hooked", child).on_halt()
            child.terminate(INVALID)
        except BaseException as error:  # noqa: BLE001  # the other children must have their turn
            raised.append((child, error))
        child.status = INVALID
    if raised:
        run.failed_to_halt(raised)


def below(run: Pass, node: Sequence | Selector) -> Behaviour | None:
    """Return the child at which a composite with memory goes on; None if it has to be looked for."""
    if not node.memory:
        return None
    index, children = getattr(node, "jianmu_parked", (0, None))[0], node.children
    if index >= len(children) or children[index] is not node.current_child:
        return None
    child = children[index]
    if (KINDS.get(type(child)) or run.kind_of(type(child))).inline is opaque:
        return None
    if index and type(node).tick is Selector.tick:
        reset(run, children[:index])
    return child


def _end(run: Pass, node: Behaviour, status: Status) -> None:
    """Finish a node and show it to the visitor."""
    run.finish(node, status)
    if run.visit is not None:
        run.visit(node)


def _from(children: list[Behaviour], index: int) -> Rest:
    """Return an iterator over a list from an index on, which sees edits as a loop over the list does."""
    rest = iter(children)
    if index:
        rest.__setstate__(index)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # every list iterator has it
    return rest


def _index(node: Composite, rest: Rest) -> int:
    """Return the place of the child that `rest` gave last."""
    return len(node.children) - length_hint(rest) - 1


def _resume(node: Composite) -> int:
    """Return the place of the child with which a composite with memory goes on.

    That is its current child; where it was removed, the child after the one that stood before it;
    where that one is gone as well, or nothing stands there, the first.
    """
    children, current = node.children, node.current_child
    index, before = getattr(node, "jianmu_parked", (0, None))
    if index < len(children) and children[index] is current:
        return index
    if current is not None and current in children:
        return children.index(current)
    place = children.index(before) + 1 if before is not None and before in children else 0
    return place if place < len(children) else 0


def _park(node: Composite, index: int) -> None:
    """Remember where a composite with memory is to go on."""
    before = node.children[index - 1] if index else None
    node.jianmu_parked = (index, before)  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
    node.status = RUNNING


def _enter_sequence(run: Pass, node: Sequence) -> Rest | None:
    index = 0
    if node.status is not RUNNING:
        run.begin(node)
        node.current_child = node.children[0] if node.children else None
        reset(run, node.children, is_spared)
        node.initialise()
    elif node.memory:
        index = _resume(node)
    return _from(node.children, index) if node.children else None


def _leave_sequence(run: Pass, node: Sequence, rest: Rest, stopper: Behaviour | None) -> None:
    if stopper is None:
        run.finish(node, SUCCESS)
        return
    index = _index(node, rest)
    if not node.memory:
        reset(run, node.children[index + 1 :])
    if stopper.status is RUNNING:
        _park(node, index)
    else:
        run.finish(node, stopper.status)


def _enter_selector(run: Pass, node: Selector) -> Rest | None:
    if node.status is not RUNNING:
        run.begin(node)
        node.current_child = node.children[0] if node.children else None
        node.initialise()
    if not node.children:
        return None
    index = _resume(node) if node.memory else 0
    if index:
        reset(run, node.children[:index])
    return _from(node.children, index)


def _leave_selector(run: Pass, node: Selector, rest: Rest, stopper: Behaviour | None) -> None:
    if stopper is None:
        run.finish(node, FAILURE)
        node.current_child = node.children[-1] if node.children else None
        return
    index, previous = _index(node, rest), node.current_child
    node.current_child = stopper
    if previous is not stopper:
        reset(run, node.children[index + 1 :])
    if stopper.status is RUNNING:
        _park(node, index)
    else:
        run.finish(node, stopper.status)


def _enter_parallel(run: Pass, node: Parallel) -> Rest | None:
    node.validate_policy_configuration()
    if node.status is not RUNNING:
        run.begin(node)
        reset(run, node.children, is_spared)
        node.current_child = None
        node.initialise()
    if not node.children:
        return None
    if node.policy.synchronise:
        return (child for child in node.children if child.status is not SUCCESS)
    return iter(node.children)


def _leave_parallel(run: Pass, node: Parallel, _rest: Rest, _stopper: Behaviour | None) -> None:
    status, node.current_child = _verdict(node)
    run.finish(node, status)


def _verdict(node: Parallel) -> tuple[Status, Behaviour]:
    """Return what the children of a Parallel come to, and the child that decided it."""
    children, policy = node.children, node.policy
    statuses = [child.status for child in children]
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


sequence = composite(_enter_sequence, _leave_sequence, SUCCESS, SUCCESS)
selector = composite(_enter_selector, _leave_selector, FAILURE, FAILURE)
parallel = composite(_enter_parallel, _leave_parallel, SUCCESS, None)
