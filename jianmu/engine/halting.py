"""Halting: every node of a subtree becomes INVALID, in py_trees' order and at any depth.

1. Whoever is not INVALID is stopped, whatever its ancestors say.
2. A `terminate` that raises keeps nobody from theirs.
3. A class that overrides `stop` is asked to stop itself; what it leaves below is stopped after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, cast

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite, Parallel, Selector, Sequence
from py_trees.decorators import Decorator

from jianmu.engine.tree import path_of, walk

Report = Callable[[Behaviour, BaseException], None]
Trace = Callable[[str, Behaviour], None]
Spare = Callable[[Behaviour], bool]
Raised = tuple[Behaviour, BaseException]
Stopping = Literal["leaf", "composite", "parallel", "decorator", "custom"]

INVALID, RUNNING = Status.INVALID, Status.RUNNING

STOPS: dict[object, Stopping] = {
    Behaviour.stop: "leaf",
    Composite.stop: "composite",
    Sequence.stop: "composite",
    Selector.stop: "composite",
    Parallel.stop: "parallel",
    Decorator.stop: "decorator",
}


def stopping(cls: type[Behaviour]) -> Stopping:
    """Return how nodes of a class stop: as one of py_trees' own does, or in their own way."""
    return STOPS.get(cls.stop, "custom")


def halt(node: Behaviour, report: Report | None = None, trace: Trace | None = None) -> None:
    """Stop a whole subtree with INVALID.

    Args:
        node: the top of the subtree; if it is INVALID already, only what is below is stopped.
        report: gets each exception of a `terminate` with its node.
        trace: told ("halted", node) of each node that was not INVALID.

    Raises:
        BaseException: without `report` the first exception of a `terminate`, after all nodes had
            their turn, with the others as notes.
    """
    raise_first(collect(node, report, trace))


def collect(
    node: Behaviour, report: Report | None = None, trace: Trace | None = None, spare: Spare | None = None
) -> list[Raised]:
    """Halt a subtree, but for what is spared, and return what was raised and not reported."""
    halting = _Halting(report, trace)
    stack = [_live([node])]
    while stack:
        below = next(stack[-1], None)
        if below is None:
            stack.pop()
        elif spare is None or not spare(below):
            stack.append(halting.stop(below))
    return halting.raised


def reset(nodes: Iterable[Behaviour], report: Report | None, trace: Trace | None, spare: Spare | None) -> list[Raised]:
    """Halt each of some nodes that is not INVALID, as `collect` does, leaves faster."""
    raised, cls, is_plain = list[Raised](), None, False
    for node in nodes:
        if node.status is INVALID:
            continue
        if type(node) is not cls or node.children:
            how = stopping(type(node))
            if trace is not None or node.children or how not in ("leaf", "custom"):
                raised += collect(node, report, trace, spare)
                continue
            cls, is_plain = type(node), how == "leaf"
        if not is_plain and spare is not None and spare(node):
            continue
        try:
            if is_plain:
                node.terminate(INVALID)
            else:
                node.stop(INVALID)
        except BaseException as error:  # noqa: BLE001  # the other nodes must have their turn
            raised += _unreported(node, error, report)
        node.status = INVALID
    return raised


def raise_first(raised: list[Raised]) -> None:
    """Raise the first of some exceptions, with the others as its notes."""
    if not raised:
        return
    (_, first), *others = raised
    for node, error in others:
        first.add_note(f"terminate() of node '{path_of(node)}' raised as well: {type(error).__name__}: {error}")
    raise first


def stop_itself(node: Behaviour, status: Status, trace: Trace | None) -> None:
    """Call a `stop` that a class overrides, and tell of all nodes that it made INVALID."""
    live = [each for each in walk(node) if each.status is not INVALID] if trace else []
    try:
        node.stop(status)
    finally:
        for each in live:
            if trace and each.status is INVALID:
                trace("halted", each)


def _live(nodes: Iterable[Behaviour]) -> Iterator[Behaviour]:
    """Yield the nodes that are not INVALID, also those below nodes that are."""
    stack = [*nodes][::-1]
    while stack:
        node = stack.pop()
        if node.status is INVALID:
            stack.extend(reversed(node.children))
        else:
            yield node


def _unreported(node: Behaviour, error: BaseException, report: Report | None) -> list[Raised]:
    """Report an exception, or return it."""
    if report is None or not isinstance(error, Exception):
        return [(node, error)]
    report(node, error)
    return []


class _Halting:
    """One halt: how a node is stopped, and what was raised."""

    def __init__(self, report: Report | None, trace: Trace | None) -> None:
        self.report = report
        self.trace = trace
        self.raised: list[Raised] = []

    def stop(self, node: Behaviour) -> Iterator[Behaviour]:
        """Stop a node; yield those below it whose turn comes in between."""
        how = stopping(type(node))
        if how in ("composite", "parallel"):
            cast("Composite", node).current_child = None
            if how == "parallel":
                yield from (child for child in node.children if child.status is RUNNING)
            yield from _live(node.children)
        self._call(node, how)
        if how == "decorator":
            child = cast("Decorator", node).decorated
            yield child
            if child.status is RUNNING:
                yield child
        if self.trace and node.status is not INVALID:
            self.trace("halted", node)
        node.status = INVALID
        if how in ("leaf", "custom"):
            yield from _live(node.children)

    def _call(self, node: Behaviour, how: Stopping) -> None:
        try:
            if how == "custom":
                stop_itself(node, INVALID, self.trace)
            else:
                node.terminate(INVALID)
        except BaseException as error:  # noqa: BLE001  # the other nodes must have their turn
            self.raised += _unreported(node, error, self.report)
