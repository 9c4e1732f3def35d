"""What a pass over a tree knows while it is going on, what it does for each node, and which results stand.

A composite that looks again ticks its finished children again while it is RUNNING. What must not be done a
second time by being looked at holds its result until the activation of that composite ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast  # Any: each kind of branch has its own class of nodes, and its own places

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Decorator, ForEach, Repeat, Retry

from jianmu.engine.halting import STOPS, Raised, Report, Spare, Trace, collect, raise_first, reset, stop_itself
from jianmu.engine.tree import ancestors, path_of
from jianmu.errors import InvalidStatusError

FAILURE, INVALID, RUNNING, SUCCESS = Status.FAILURE, Status.INVALID, Status.RUNNING, Status.SUCCESS

LOOPS = (Repeat, Retry, ForEach)
"""py_trees' own loops."""

NUMBERS = itertools.count(1)
"""The numbers of passes: one row for the whole process."""

CURRENT: ContextVar[Pass | None] = ContextVar("jianmu.pass", default=None)
"""The pass that is going on: for nodes below one whose `tick` jianmu does not know."""

Inline = Callable[["Pass", Behaviour], Status | None]
"""Ticks a leaf at once and returns its status, None if it had nothing to say."""

Step = Callable[["Pass", Any, Behaviour | None], Behaviour | None]
"""Goes on with the tick of a branch: begins it (None), or is told the node below that it asked for, now ticked.
Returns the next node below that is to be ticked, or None at the end."""


def no_step(_run: Pass, _node: Any, _done: Behaviour | None) -> None:
    """Do nothing: a leaf has no steps."""


@dataclass(slots=True)
class Kind:
    """How the nodes of one class are ticked: leaves by `inline`, branches by `step`.

    Attributes:
        tick: the `tick` of the class; a node that has another one was given it, and is ticked by that.
        walks: whether a branch that is RUNNING may be walked through: its own step comes after the node below it.
        polled: whether nobody can tell when to tick such a node again.
        is_plain: whether a leaf has py_trees' own `tick` and `stop`, and nothing is noted of it.
    """

    tick: object
    inline: Inline | None = None
    step: Step = no_step
    walks: bool = False
    polled: bool = False
    is_plain: bool = False


class Kinds(dict[type[Behaviour], Kind]):
    """The kinds of the classes that were met; that of a new one is found when it is asked for."""

    find: Callable[[type[Behaviour]], Kind]

    def __missing__(self, cls: type[Behaviour]) -> Kind:
        self[cls] = kind = self.find(cls)
        return kind


KINDS = Kinds()
"""One for the whole process; the ticker says how they are found."""


class Pass:
    """One pass: its number, what was found in it, and the steps that all kinds of nodes share.

    Attributes:
        number: the pass's number, larger than that of any pass begun before in this process.
        polled: whether a node was ticked of which nobody can tell when to tick it again.
        again: whether a bounded loop of py_trees' own asks for the next pass at once.
        timed: the Timer and Timeout nodes of py_trees' own that were ticked and are RUNNING.
        culprit: the node that raised the exception which ended the pass, or which was caught last.
        trace: told ("started" | "finished" | "halted", node).
        report: gets the exceptions of `terminate` in halts; without it they are raised.
        owner: what nodes are bound to, as their `bound_to`.
        adopt: called with a node that is about to be entered and is not bound to the owner.
        nodes: the branches at work, the innermost last.
        places: what each of them remembers until it goes on.
    """

    def __init__(self) -> None:
        self.number = 0
        self.polled = False
        self.again = False
        self.timed: list[Behaviour] = []
        self.culprit: Behaviour | None = None
        self.trace: Trace | None = None
        self.report: Report | None = None
        self.owner: object = None
        self.adopt: Callable[[Behaviour], object] | None = None
        self.visit: Callable[[Behaviour], None] | None = None
        self.nodes: list[Behaviour] = []
        self.places: list[Any] = []
        self._blamed: BaseException | None = None

    def renew(self, visit: Callable[[Behaviour], None] | None) -> None:
        """Begin the next pass."""
        self.number = next(NUMBERS)
        self.polled = self.again = False
        self.timed, self.nodes, self.places = [], [], []
        self.culprit = self._blamed = None
        self.visit = visit

    @classmethod
    def current(cls) -> Pass:
        """Return the pass that is going on, or one for a node that py_trees ticks by itself."""
        run = CURRENT.get()
        if run is None:
            run = cls()
            run.renew(None)
        return run

    def begin(self, node: Behaviour) -> None:
        """Note that a node is entered, without `initialise`."""
        if getattr(node, "bound_to", None) is not self.owner:
            self.meet(node)
        node.activation = self.number  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
        if self.trace is not None:
            self.trace("started", node)

    def meet(self, node: Behaviour) -> None:
        """Have a node bound that was put into the tree after it had been set up."""
        if self.adopt is not None and getattr(node, "bound_to", None) is not self.owner:
            self.adopt(node)

    def enter(self, node: Behaviour) -> None:
        """Enter a node that was not RUNNING: `initialise` is called."""
        self.begin(node)
        node.initialise()

    def finish(self, node: Behaviour, status: Status) -> Status:
        """Give a node the status that it arrived at; a result stops it.

        Raises:
            InvalidStatusError: the status is not SUCCESS, FAILURE or RUNNING.
        """
        if status is SUCCESS or status is FAILURE:
            how = STOPS.get(type(node).stop)
            if how == "parallel":
                self.halt_running(node.children)
            if how is None:
                stop_itself(node, status, self.trace)
            else:  # what py_trees' stop does, apart from its log line
                node.terminate(status)
            if how == "decorator" and (child := cast("Decorator", node).decorated).status is RUNNING:
                self.halt(child)
            node.status = status
            if self.trace is not None:
                self.trace("finished", node)
        elif status is RUNNING:
            node.status = status
        else:
            raise invalid_status(node, status)
        return status

    def halt(self, node: Behaviour) -> None:
        """Stop a subtree with INVALID."""
        self._raise(collect(node, self.report, self.trace))

    def halt_running(self, nodes: Iterable[Behaviour]) -> None:
        """Halt those that are RUNNING."""
        self.reset(node for node in nodes if node.status is RUNNING)

    def reset(self, nodes: Iterable[Behaviour], spare: Spare | None = None) -> None:
        """Halt those that are not INVALID; not what is spared of them and below them."""
        self._raise(reset(nodes, self.report, self.trace, spare))

    def _raise(self, raised: list[Raised]) -> None:
        if raised:
            self.blame(raised[0][1], raised[0][0])
            raise_first(raised)

    def culprit_of(self, error: BaseException) -> Behaviour | None:
        """Return the node that raised an exception in this pass, or None if it did not come from a node."""
        return self.culprit if self._blamed is error else None

    def blame(self, error: BaseException, node: Behaviour) -> None:
        """Note the node that raised an exception, the first time that the exception is seen."""
        if self._blamed is not error:
            self._blamed = error
            self.culprit = node


def said_of(status: object) -> str:
    """Return what an error tells of what stands for a status: of a value its type only."""
    return str(status) if status is None or isinstance(status, Status) else type(status).__name__


def invalid_status(node: Behaviour, status: object) -> InvalidStatusError:
    """Return the error for a node that returned what is no result."""
    path = path_of(node)
    return InvalidStatusError(
        f"node '{path}' returned {said_of(status)}: "
        "return Status.SUCCESS, Status.FAILURE or Status.RUNNING from its update()",
        path=path,
    )


def looks_again(node: Behaviour) -> bool:
    """Whether a composite ticks its finished children again while it is RUNNING."""
    if isinstance(node, (Sequence, Selector)):
        return not node.memory
    return isinstance(node, Parallel) and not node.policy.synchronise


def holds(node: Behaviour, since: int) -> bool:
    """Whether a result stands until the activation of the composite that looks again has ended.

    Args:
        node: the node that has finished.
        since: the number of a pass; the result stands if that composite was active already then.
    """
    above = node.parent
    while above is not None and above.status is not RUNNING:
        above = above.parent
    return above is not None and looks_again(above) and since >= getattr(above, "activation", -1)


def may_hold(node: Behaviour) -> bool:
    """Whether a result stands, or may have to when more above the node has finished."""
    return any(above.status is RUNNING and looks_again(above) for above in ancestors(node))


def is_held(loop: Behaviour) -> bool:
    """Whether a loop that has finished reports its result and is not ticked again.

    So it is if an AsyncNode started under it in this activation (which it notes as `async_started`).
    """
    activation: int | None = getattr(loop, "activation", None)
    if activation is None or (loop.status is not SUCCESS and loop.status is not FAILURE):
        return False
    return getattr(loop, "async_started", -1) >= activation and holds(loop, activation)


def is_spared(node: Behaviour) -> bool:
    """Whether a node keeps its result when a composite above it is entered anew only because it was looked at again."""
    asks = getattr(type(node), "is_held", None)
    if asks is not None:
        return asks(node)
    return hasattr(node, "async_started") and isinstance(node, LOOPS) and is_held(node)
