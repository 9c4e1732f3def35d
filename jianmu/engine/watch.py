"""Telling what happens below a node that ticks its children itself."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.passes import Pass
from jianmu.engine.tree import walk


class Watch:
    """Tells the trace of a pass what py_trees' own code did to the nodes of one subtree.

    Nodes that tell of themselves (jianmu's own) are told of once.

    Args:
        run: the pass; its trace is listened to until `close()`.
        node: the top of the subtree.
    """

    def __init__(self, run: Pass, node: Behaviour) -> None:
        self._run = run
        self._trace = run.trace
        self._before = {id(each): (each, each.status) for each in walk(node)}
        self._told: set[tuple[str, int]] = set()
        run.trace = self._listen

    def _listen(self, what: str, node: Behaviour) -> None:
        self._told.add((what, id(node)))
        self._tell(what, node)

    def _tell(self, what: str, node: Behaviour) -> None:
        if self._trace is not None:
            self._trace(what, node)

    def ticked(self, node: Behaviour) -> None:
        """Tell of a node that was ticked; that it was started is told late, when it has been."""
        was = self._before.get(id(node), (node, Status.INVALID))[1]
        self._before[id(node)] = (node, node.status)
        if self.tells_itself(node):
            return
        if was is not Status.RUNNING:
            self._tell("started", node)
        if node.status is not Status.RUNNING:
            self._tell("finished", node)

    @staticmethod
    def tells_itself(node: Behaviour) -> bool:
        """Whether a node calls the trace when it is ticked by its generator."""
        return hasattr(node, "tick_direct") or hasattr(node, "steps")

    def close(self) -> None:
        """Tell of the nodes that were halted, and stop listening."""
        self._run.trace = self._trace
        for node, was in self._before.values():
            if was is not Status.INVALID and node.status is Status.INVALID and ("halted", id(node)) not in self._told:
                self._tell("halted", node)
