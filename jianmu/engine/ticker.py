"""One pass over a tree: the semantics and callback order of py_trees 2.6, faster and at any depth.

The branches at work stand on a stack, not in calls of Python's; each says step by step which node below it
is to be ticked next. So a tree may be as deep as memory allows, and what a child raises can be thrown into
the branch above it.

Exact, but for these: a composite with memory whose current child was removed goes on at the child that
took its place, else starts over; a status that is not SUCCESS, FAILURE or RUNNING is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from py_trees.behaviour import Behaviour
from py_trees.common import Duration, Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Decorator, EternalGuard, OneShot
from py_trees.trees import BehaviourTree
from py_trees.visitors import VisitorBase

from jianmu.engine.composites import parallel, selector, sequence, walked
from jianmu.engine.control import control, go_on
from jianmu.engine.decorators import decorator_of
from jianmu.engine.halting import halt
from jianmu.engine.leaves import leaf_of, opaque
from jianmu.engine.passes import CURRENT, KINDS, LOOPS, RUNNING, Kind, Pass, Step, holds
from jianmu.engine.tree import path_of, walk

__all__ = ["LOOPS", "Ticker", "Tree", "halt", "holds", "tick"]

Visit = Callable[[Behaviour], None]
Handler = Callable[[BehaviourTree], None]

COMPOSITES: dict[type[Behaviour], Step] = {Sequence: sequence, Selector: selector, Parallel: parallel}


def tick(root: Behaviour, visit: Visit | None = None) -> Status:
    """Tick a tree once.

    Args:
        root: the top of the tree.
        visit: called with each node that was ticked, in the order in which py_trees yields them.

    Returns:
        The root's status.
    """
    return Ticker().tick(root, visit)


def kind_of(cls: type[Behaviour]) -> Kind:
    """Return how nodes of a class are ticked: by the class that defines its `tick`."""
    owner = next(base for base in cls.__mro__ if "tick" in vars(base))
    is_polled = getattr(cls, "polled", False) is True
    is_known = getattr(cls, "event_driven", False) is True
    if owner is Behaviour or "tick_direct" in vars(owner):
        return leaf_of(cls, is_direct=owner is not Behaviour, is_polled=is_polled, is_known=is_known)
    if owner in (Decorator, OneShot, EternalGuard):
        return decorator_of(cls, owner, is_polled=is_polled, is_known=is_known)
    step = control if "steps" in vars(owner) else COMPOSITES.get(owner)
    if step is None:
        return Kind(cls.tick, opaque)
    return Kind(cls.tick, step=step, walks=step in (sequence, selector), polled=is_polled)


KINDS.find = kind_of


class Ticker(Pass):
    """Ticks trees; what it found in the last pass can be read from it."""

    def tick(self, root: Behaviour, visit: Visit | None = None) -> Status:
        """Tick a tree once and return the root's status."""
        self.renew(visit)
        token = CURRENT.set(self)
        child: Behaviour | None = root
        try:
            while child is not None:
                try:
                    child = self._up(self._down(child))
                except BaseException as error:  # noqa: BLE001  # raised if none of the branches above takes it
                    child = self._throw(error)
        finally:
            CURRENT.reset(token)
        return root.status

    def _down(self, child: Behaviour) -> Behaviour:
        """Begin to tick a node and what it asks for; return the first one that is done."""
        nodes, places = self.nodes, self.places
        while True:
            kind = KINDS[type(child)]
            if kind.walks and child.status is RUNNING:
                child, kind = walked(self, child, kind)
            if kind.polled:
                self.polled = True
            if getattr(child.tick, "__func__", None) is not kind.tick:  # one was assigned to this very node
                opaque(self, child)
                return child
            if kind.inline is not None:
                kind.inline(self, child)
                return child
            nodes.append(child)
            places.append(None)
            asked = kind.step(self, child, None)
            if asked is None:
                return self._leave()
            child = asked

    def _up(self, done: Behaviour) -> Behaviour | None:
        """Go on with the branches above a node that is done, until one asks for another node below it."""
        nodes, places = self.nodes, self.places
        while nodes:
            place, node = places[-1], nodes[-1]
            if done.status is RUNNING and type(place) is slice:
                done = self._leave_all(place)
                continue
            asked = KINDS[type(node)].step(self, node, done)
            if asked is not None:
                return asked
            done = self._leave()
        return None

    def _leave(self) -> Behaviour:
        """Return the innermost branch at work, now that it is done."""
        self.places.pop()
        node = self.nodes.pop()
        if self.visit is not None:
            self.visit(node)
        return node

    def _leave_all(self, walk: slice) -> Behaviour:
        """Return the outermost branch of those that were walked through, now that the node below them is RUNNING."""
        if self.visit is not None:
            self.nodes[-1].status = RUNNING
            return self._leave()
        gone = self.nodes[walk]
        for node in gone:
            node.status = RUNNING
        del self.places[walk], self.nodes[walk]
        return gone[0]

    def _throw(self, error: BaseException) -> Behaviour | None:
        """Throw an exception into the branches above; return what the one that takes it wants ticked next."""
        self.places += [None] * (len(self.nodes) - len(self.places))  # Ctrl-C came between two lines
        while self.nodes:
            node, steps = self.nodes[-1], self.places[-1]
            self.blame(error, node)
            if KINDS[type(node)].step is control and steps is not None:
                try:
                    asked = go_on(self, node, steps, error)
                    return self._up(self._leave()) if asked is None else asked
                except BaseException as raised:  # noqa: BLE001  # it goes on upwards
                    error = raised
                    self.blame(error, node)
            self.nodes.pop()
            self.places.pop()
        raise error


class Tree(BehaviourTree):
    """A BehaviourTree whose tick is jianmu's; handlers, visitors and the count are as in py_trees.

    Ticking, `setup` and `shutdown` work at any depth and in any thread; no signal handler is touched.

    Args:
        root: the top of the tree.
        ticker: what ticks it; by default one of its own.
    """

    def __init__(self, root: Behaviour, ticker: Ticker | None = None) -> None:
        super().__init__(root)
        self.ticker = Ticker() if ticker is None else ticker

    @classmethod
    def of(cls, tree: Behaviour | BehaviourTree, ticker: Ticker | None = None) -> Tree:
        """Return a Tree for a root, or for a tree of py_trees, whose visitors and handlers it shares."""
        if isinstance(tree, Behaviour):
            return cls(tree, ticker)
        if isinstance(tree, Tree):
            tree.ticker = ticker or tree.ticker
            return tree
        new = cls(tree.root, ticker)
        new.__dict__.update(vars(tree))
        return new

    def tick(self, pre_tick_handler: Handler | None = None, post_tick_handler: Handler | None = None) -> None:
        """Tick the tree once, between the handlers and under the eyes of the visitors.

        Args:
            pre_tick_handler: called before the others that come before the tick.
            post_tick_handler: called after the others that come after it.
        """
        for handler in ([pre_tick_handler] if pre_tick_handler else []) + self.pre_tick_handlers:
            handler(self)
        for visitor in self.visitors:
            visitor.initialise()
        self.ticker.tick(self.root, self._visit if any(not each.full for each in self.visitors) else None)
        self._visit_all()
        for visitor in self.visitors:
            visitor.finalise()
        for handler in self.post_tick_handlers + ([post_tick_handler] if post_tick_handler else []):
            handler(self)
        self.count += 1

    def _visit(self, node: Behaviour) -> None:
        for visitor in self.visitors:
            if not visitor.full:
                node.visit(visitor)

    def _visit_all(self) -> None:
        full = [visitor for visitor in self.visitors if visitor.full]
        for node in walk(self.root) if full else ():
            for visitor in full:
                node.visit(visitor)

    def setup(
        self,
        timeout: float | Duration = Duration.INFINITE,
        visitor: VisitorBase | None = None,
        **kwargs: Any,  # Any: whatever the nodes' own setup() takes
    ) -> None:
        """Call `setup` of all nodes, children first.

        Args:
            timeout: seconds after which no further node is set up; a `setup` that has begun is not interrupted.
            visitor: shown each node after its `setup`.
            **kwargs: passed to each `setup`.

        Raises:
            RuntimeError: the time was over.
        """
        seconds = timeout.value if isinstance(timeout, Duration) else timeout
        until = time.monotonic() + seconds
        if visitor is not None:
            visitor.initialise()
        for node in walk(self.root):
            node.setup(**kwargs)
            if time.monotonic() > until:
                raise RuntimeError(f"setup timed out after {seconds} s, at node '{path_of(node)}'")
            if visitor is not None:
                node.visit(visitor)
        if visitor is not None:
            visitor.finalise()

    def shutdown(self) -> None:
        """Call `shutdown` of all nodes, children first."""
        for node in walk(self.root):
            node.shutdown()
