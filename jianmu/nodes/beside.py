"""Which nodes may be at work at the same time, on the same state."""

from __future__ import annotations

from collections.abc import Iterator

from py_trees.behaviour import Behaviour
from py_trees.composites import Parallel

from jianmu.engine.tree import ancestors, descend


def beside(node: Behaviour) -> Iterator[Behaviour]:
    """Yield the nodes on the same state that may be at work at the same time."""
    child = node
    for above in ancestors(node):
        if isinstance(above, Parallel) or getattr(above, "is_parallel", False):
            for sibling in above.children:
                yield from () if sibling is child else _on_this_state(sibling)
        if getattr(above, "inner_state", None) is not None:
            return
        child = above


def _on_this_state(top: Behaviour) -> Iterator[Behaviour]:
    """Yield a node and those below it, apart from what is inside of an agent used as a node."""
    inside: set[int] = set()
    for node in descend(top):
        if id(node) in inside or getattr(node, "inner_state", None) is not None:
            inside |= {id(below) for below in node.children}
        else:
            yield node
