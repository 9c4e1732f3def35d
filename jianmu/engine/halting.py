"""Halting: every node of a subtree becomes INVALID, in py_trees' order and at any depth.

1. Whoever is not INVALID is stopped, whatever its ancestors say.
2. A `terminate` that raises keeps nobody from theirs.
3. A class that overrides `stop` is asked to stop itself; what it leaves below is stopped after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, cast

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite, Parallel, Selector, Sequence
from py_trees.decorators import Decorator

from jianmu.engine.tree import path_of, walk


class Hooked(Protocol):
    """A leaf of which the runtime keeps something."""

    def on_halt(self) -> None:
        """Give up what belongs to the node's activation."""
        ...


Report = Callable[[Behaviour, BaseException], None]
Trace = Callable[[str, Behaviour], None]
Spare = Callable[[Behaviour], bool]
Raised = tuple[Behaviour, BaseException]
Stopping = Literal["leaf", "runtime", "composite", "parallel", "decorator", "custom"]

INVALID, RUNNING = Status.INVALID, Status.RUNNING

_STOPS: dict[object, Stopping] = {
    Behaviour.stop: "leaf",
    Composite.stop: "composite",
    Sequence.stop: "composite",
    Selector.stop: "composite",
    Parallel.stop: "parallel",
    Decorator.stop: "decorator",
}


def stopping(cls: type[Behaviour]) -> Stopping:
    """Return how nodes of a class stop: as one of py_trees' own does, or in their own way."""
    return _STOPS.get(cls.stop, "custom")


def stops_by_hook(stop: Callable[..., None]) -> None:
    """Tell that leaves with this `stop` do no more in it than to call `on_halt()` before `terminate(INVALID)`."""
    _STOPS[stop] = "runtime"


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
    halting = _Halting(report, trace, spare)
    halting.run(node)
    return halting.raised


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


class _Halting:
    """One halt: steps that are still to be made, the last one first."""

    def __init__(self, report: Report | None, trace: Trace | None, spare: Spare | None) -> None:
        self.report = report
        self.trace = trace
        self.spare = spare
        self.raised: list[Raised] = []
        self.steps: list[tuple[Callable[[Behaviour], None], Behaviour]] = []

    def run(self, node: Behaviour) -> None:
        """Make steps until none is left."""
        steps = self.steps
        steps.append((self.stop_live, node))
        while steps:
            step, node = steps.pop()
            step(node)

    def then(self, step: Callable[[Behaviour], None], nodes: Iterable[Behaviour]) -> None:
        """Put a step for each node before all that is still to be made."""
        self.steps.extend([(step, node) for node in nodes][::-1])

    def stop(self, node: Behaviour) -> None:
        """Begin to stop a node, unless it is spared."""
        if self.spare is not None and self.spare(node):
            return
        getattr(self, f"_stop_{stopping(type(node))}")(node)

    def stop_live(self, node: Behaviour) -> None:
        """Stop a node that is not INVALID, or else what is not INVALID below."""
        if node.status is not INVALID:
            self.stop(node)
        else:
            self.then(self.stop_live, node.children)

    def stop_running(self, node: Behaviour) -> None:
        """Stop a node that is RUNNING."""
        if node.status is RUNNING:
            self.stop(node)

    def end(self, node: Behaviour) -> None:
        """Make a node INVALID."""
        was = node.status
        node.status = INVALID
        if self.trace and was is not INVALID:
            self.trace("halted", node)

    def terminate(self, node: Behaviour) -> None:
        """Call a node's `terminate`."""
        try:
            node.terminate(INVALID)
        except BaseException as error:  # noqa: BLE001  # the other nodes must have their turn
            self.failed(node, error)

    def terminate_and_end(self, node: Behaviour) -> None:
        """Call a node's `terminate` and make it INVALID."""
        self.terminate(node)
        self.end(node)

    def failed(self, node: Behaviour, error: BaseException) -> None:
        """Report an exception, or keep it."""
        if self.report is not None and isinstance(error, Exception):
            self.report(node, error)
        else:
            self.raised.append((node, error))

    def _stop_leaf(self, node: Behaviour) -> None:
        self.terminate_and_end(node)
        if node.children:
            self.then(self.stop_live, node.children)

    def _stop_runtime(self, node: Behaviour) -> None:
        cast("Hooked", node).on_halt()
        self._stop_leaf(node)

    def _stop_composite(self, node: Behaviour) -> None:
        if isinstance(node, Composite):
            node.current_child = None
        self.then(self.terminate_and_end, [node])
        self.then(self.stop_live, node.children)

    def _stop_parallel(self, node: Behaviour) -> None:
        self._stop_composite(node)
        self.then(self.stop_running, node.children)

    def _stop_decorator(self, node: Behaviour) -> None:
        assert isinstance(node, Decorator)
        self.terminate(node)
        self.then(self.end, [node])
        self.then(self.stop_live, [child for child in node.children if child is not node.decorated])
        self.then(self.stop_running, [node.decorated])
        self.then(self.stop, [node.decorated])

    def _stop_custom(self, node: Behaviour) -> None:
        try:
            stop_itself(node, INVALID, self.trace)
        except BaseException as error:  # noqa: BLE001  # the other nodes must have their turn
            self.failed(node, error)
        self.end(node)
        self.then(self.stop_live, node.children)
