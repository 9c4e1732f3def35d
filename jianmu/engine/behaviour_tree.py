"""Tree: py_trees' tree custodian, on jianmu's ticker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from py_trees.behaviour import Behaviour
from py_trees.common import Duration
from py_trees.trees import BehaviourTree
from py_trees.visitors import VisitorBase

from jianmu.engine.ticker import Ticker
from jianmu.engine.tree import path_of, walk

Handler = Callable[[BehaviourTree], None]


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
