"""One pass over a tree: the semantics and callback order of py_trees 2.6, faster and at any depth.

Each branch at work is a generator on a stack; it yields the branch that is to be ticked next. So a tree
may be as deep as memory allows, and what a child raises can be thrown into the generator above it.

Exact, but for these: a composite with memory whose current child was removed goes on at the child that
took its place, else starts over; a status that is not SUCCESS, FAILURE or RUNNING is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import cast

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine import composites
from jianmu.engine.halting import halt
from jianmu.engine.kinds import kind_of
from jianmu.engine.leaves import is_patched, opaque
from jianmu.engine.passes import CURRENT, KINDS, RUNNING, Kind, Pass
from jianmu.engine.sticky import LOOPS, holds

__all__ = ["LOOPS", "Ticker", "halt", "holds", "tick"]

Visit = Callable[[Behaviour], None]
Branch = Generator[Behaviour, None, None]
Work = list[Iterator[Behaviour] | None]


def tick(root: Behaviour, visit: Visit | None = None) -> Status:
    """Tick a tree once.

    Args:
        root: the top of the tree.
        visit: called with each node that was ticked, in the order in which py_trees yields them.

    Returns:
        The root's status.
    """
    return Ticker().tick(root, visit)


class Ticker(Pass):
    """Ticks trees; what it found in the last pass can be read from it."""

    def tick(self, root: Behaviour, visit: Visit | None = None) -> Status:
        """Tick a tree once and return the root's status."""
        self.renew(visit)
        token = CURRENT.set(self)
        try:
            kind = KINDS.get(type(root)) or self.kind_of(type(root))
            if kind.inline is not None:
                kind.inline(self, root)
            else:
                self._drive(root)
        finally:
            CURRENT.reset(token)
        return root.status

    def kind_of(self, cls: type[Behaviour]) -> Kind:
        """Return how nodes of a class are ticked, and remember it."""
        KINDS[cls] = kind = kind_of(cls)
        return kind

    def _drive(self, root: Behaviour) -> None:
        """Run the generators of the branches at work until the root's has ended."""
        work: Work = []
        nodes: list[Behaviour] = []
        child: Behaviour | None = root
        while child is not None or work:
            try:
                child = self._up(work, nodes) if child is None else self._down(child, work, nodes)
            except BaseException as error:  # noqa: BLE001  # thrown into the branches above, and raised if none takes it
                child = self._throw(work, nodes, error)

    def _down(self, node: Behaviour, work: Work, nodes: list[Behaviour]) -> Behaviour | None:
        """Begin to tick a branch; return the one below it that is to be ticked next."""
        while True:
            nodes.append(node)
            kind = KINDS.get(type(node)) or self.kind_of(type(node))
            child = kind.below(self, node) if kind.below is not None and node.status is RUNNING else None
            if child is None:
                steps = self._start(kind, node)
                work.append(steps)
                return next(steps, None)
            work.append(None)
            inline = KINDS[type(child)].inline
            if inline is not None:
                inline(self, child)
                return None if child.status is RUNNING else self._resume(child, work, node)
            node = child

    def _up(self, work: Work, nodes: list[Behaviour]) -> Behaviour | None:
        """End the tick of a branch; return the next one that is to be ticked by a branch above."""
        while True:
            if work.pop() is None and self.visit is not None:
                self.visit(nodes[-1])
            done = nodes.pop()
            if not work:
                return None
            branch = work[-1]
            if branch is not None:
                return next(branch, None)
            if done.status is not RUNNING:
                return self._resume(done, work, nodes[-1])

    def _resume(self, done: Behaviour, work: Work, node: Behaviour) -> Behaviour | None:
        """Go on with a branch that was walked through, now that the child at which it stood has finished."""
        branch = KINDS[type(node)].branch
        assert branch is not None
        work[-1] = steps = branch(self, node, done)
        return next(steps, None)

    def _start(self, kind: Kind, node: Behaviour) -> Iterator[Behaviour]:
        """Return the generator that ticks a branch."""
        if kind.branch is None or is_patched(node):
            opaque(self, node)
            return iter(())
        return kind.branch(self, node)

    def _throw(self, work: Work, nodes: list[Behaviour], error: BaseException) -> Behaviour | None:
        """Throw an exception into the branches above; return what the one that takes it wants ticked next."""
        self.blame(error, composites.at_work(nodes[-1], error))
        nodes.pop()
        del work[len(nodes) :]
        while work:
            if self._catches(nodes[-1]):
                try:
                    return cast("Branch", work[-1]).throw(error)
                except StopIteration:
                    return None
                except BaseException as raised:  # noqa: BLE001  # it goes on upwards
                    error = raised
                    self.blame(error, nodes[-1])
            work.pop()
            nodes.pop()
        raise error

    def _catches(self, node: Behaviour) -> bool:
        """Whether a branch at work looks at the exceptions of what is below."""
        return KINDS[type(node)].catches
