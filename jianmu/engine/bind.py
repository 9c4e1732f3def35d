"""Binding: every node gets its run before its first tick, and what cannot work is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast  # Any: the schema is the user's, and what is noted on any node

from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import RunningIsFailure, RunningIsSuccess, Timeout
from py_trees.timers import Timer

from jianmu.engine.activity import Activity, Tasks
from jianmu.engine.clock import RealClock
from jianmu.engine.context import NodeContext, RunContext
from jianmu.engine.halting import stopping
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.leaves import opaque
from jianmu.engine.node import AsyncNode, NodeMixin
from jianmu.engine.ports import Fields, check
from jianmu.engine.state import StateManager
from jianmu.engine.ticker import kind_of
from jianmu.engine.tree import descend, escape, path_of, paths, segments
from jianmu.errors import AgentBusyError, SetupError

WAITS = (AsyncNode, InteractiveNode)


class Binder:
    """Binds the trees of one run; subtrees put in later are bound when they are met.

    Args:
        run: what all contexts share.
        manager: the state of the nodes (a node with `inner_state` gives its own to those below it).
        tasks: where the coroutines of AsyncNodes live.

    Attributes:
        has_async: whether a node has coroutines.
        is_unruly: whether a node stops or ticks its children in a way of its own.
    """

    def __init__(self, run: RunContext, manager: StateManager[Any], tasks: Tasks) -> None:
        self._run = run
        self._manager = manager
        self._tasks = tasks
        self.has_async = False
        self.is_unruly = False

    def bind(self, top: Behaviour) -> list[Behaviour]:
        """Bind all nodes of a tree, or of a subtree and those beside it that are not bound yet; return their tops.

        Raises:
            SetupError: something in it cannot work; with the node's path and what to write.
            AgentBusyError: another agent is at work on the tree.
        """
        fresh = [*self._vacant(top.parent)] if top.parent is not None else [(top, path_of(top))]
        for root, place in fresh:
            for node, path, manager in self._scopes(root, place):
                self._bind(node, path, manager)
        return [root for root, _ in fresh]

    def _bind(self, node: Behaviour, path: str, manager: StateManager[Any]) -> None:
        """Bind one node."""
        holder = getattr(node, "bound_to", None)
        if holder is not None and holder is not self._run and holder.in_use:
            raise AgentBusyError(f"node '{path}' is in a tree on which another agent is at work: build a tree for each")
        _check_shape(node)
        if not isinstance(self._run.clock, RealClock):
            _check_clock(node)
        if isinstance(node, NodeMixin):
            self._adopt(node, path, manager)
        if node.children and (stopping(type(node)) == "custom" or kind_of(type(node)).inline is opaque):
            self.is_unruly = True
        if not hasattr(node, "bound_children"):
            node.bound_children = len(node.children)  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
        node.bound_to = self._run  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node

    def _vacant(self, parent: Behaviour) -> Iterator[tuple[Behaviour, str]]:
        """Yield the children that are not bound, with paths that no other child has: the others keep theirs."""
        bound = [child for child in parent.children if getattr(child, "bound_to", None) is self._run]
        taken = {child.context.path for child in bound if isinstance(child, NodeMixin)}
        above = path_of(parent)
        for child, part in zip(parent.children, segments(parent.children), strict=True):
            if getattr(child, "bound_to", None) is not self._run:
                others = (f"{above}/{escape(child.name)}[{count}]" for count in itertools.count(2))
                path = next(path for path in itertools.chain([f"{above}/{part}"], others) if path not in taken)
                taken.add(path)
                yield child, path

    def _scopes(self, root: Behaviour, place: str) -> Iterator[tuple[Behaviour, str, StateManager[Any]]]:
        """Yield each node with its path and the state that it lives on, parents first."""
        known: dict[Behaviour | None, StateManager[Any]] = {}
        for node, path in paths(root, place):
            manager = known.get(node.parent) or self._manager_above(node)
            yield node, path, manager
            known[node] = getattr(node, "inner_state", None) or manager

    def _manager_above(self, root: Behaviour) -> StateManager[Any]:
        """Return the state on which a subtree's root lives."""
        above = root.parent
        while above is not None:
            inner = getattr(above, "inner_state", None)
            if inner is not None:
                return inner
            above = above.parent
        return self._manager

    def _adopt(self, node: Any, path: str, manager: StateManager[Any]) -> None:
        """Give a node its context and check its ports."""
        context = NodeContext(self._run, manager, node, path)
        if node.declared_ports:
            schema = manager.schema
            check(
                node,
                node.declared_ports,
                node.port_bindings,
                Fields(schema.types, schema.extra is not None, schema.model.__name__),
            )
        if isinstance(node, AsyncNode) or hasattr(node, "is_asynchronous"):
            self.has_async = self.has_async or getattr(node, "is_asynchronous", True)
            cleans = isinstance(node, AsyncNode) and type(node).cleanup is not AsyncNode.cleanup
            hook = node.cleanup if cleans else None
            context.activity = Activity(node, path, self._tasks, node.update_async, hook)
        node.adopt(context)
        on_bound: Callable[[], None] | None = getattr(node, "on_bound", None)
        if on_bound is not None:
            on_bound()


def _check_shape(node: Behaviour) -> None:
    """Refuse a node that stands in two places, and arguments of py_trees' own composites of the wrong kind."""
    for child in node.children:
        if child.parent is not node:
            above = "nothing" if child.parent is None else f"'{child.parent.name}'"
            raise _refused(node, f"has the child '{child.name}', whose parent is {above}: build a node for each place")
    if isinstance(node, (Sequence, Selector)) and not isinstance(cast("object", node.memory), bool):
        kind = type(node).__name__
        fix = f'{kind}("{node.name}", memory=True, children=[...])'
        raise _refused(node, f"has memory={node.memory!r}: write {fix}")
    if isinstance(node, Parallel) and not isinstance(cast("object", node.policy), ParallelPolicy.Base):
        fix = f'Parallel("{node.name}", policy=ParallelPolicy.SuccessOnAll(), children=[...])'
        raise _refused(node, f"has policy={node.policy!r}: write {fix}")
    if isinstance(node, (RunningIsFailure, RunningIsSuccess)):
        asks = (below for below in descend(node) if isinstance(below, WAITS) or hasattr(below, "is_waiting"))
        waits = next(asks, None)
        if waits is not None:
            what = f"never lets '{path_of(waits)}' start, since it halts it in the pass that asks for it"
            raise _refused(node, f"{what}: give it a Timeout, or take the decorator away")


def _check_clock(node: Behaviour) -> None:
    """Refuse py_trees' nodes that read the machine's clock where another one counts."""
    if isinstance(node, (Timer, Timeout)):
        kind = type(node).__name__
        raise _refused(node, f"is py_trees' {kind}, which follows the real clock only: use jianmu.nodes.{kind}")


def _refused(node: Behaviour, why: str) -> SetupError:
    path = path_of(node)
    return SetupError(f"node '{path}' {why}", path=path)
