"""A tree in the language of Graphviz."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator

from jianmu.draw.outline import kind, mark, outline, printable

COLOURS = {
    Status.SUCCESS: ("#d7f0d7", "#2e7d32"),
    Status.FAILURE: ("#f8d7d7", "#c62828"),
    Status.RUNNING: ("#d7e5f8", "#1565c0"),
    Status.INVALID: ("#f2f2f2", "#9e9e9e"),
}

# Graphviz reads labels as escapes and HTML entities.
ESCAPES = str.maketrans({'"': '\\"', "&": "&amp;", "\\": "\\\\", "\n": "\\n"})


def dot(root: Behaviour) -> str:
    """Return the tree as a Graphviz digraph: composites as boxes, decorators as hexagons, leaves as ellipses.

    The status of a node is its mark (see `text`) and its colour.
    """
    nodes: list[str] = []
    edges: list[str] = []
    for node, number, parent in outline(root):
        nodes.append(f"  n{number} [{_attributes(node)}];")
        if parent is not None:
            edges.append(f"  n{parent} -> n{number};")
    head = ["digraph tree {", "  graph [ordering=out];", '  node [style=filled, fontname="sans-serif"];']
    return "\n".join([*head, *nodes, *edges, "}"])


def _attributes(node: Behaviour) -> str:
    """Return the attributes of a node, escaped."""
    fill, line = COLOURS[node.status]
    label = printable(f"{mark(node)} {node.name}\n{kind(node)}").translate(ESCAPES)
    return f'label="{label}", shape={_shape(node)}, fillcolor="{fill}", color="{line}"'


def _shape(node: Behaviour) -> str:
    """Return the name of a node's shape."""
    if isinstance(node, Composite):
        return "box"
    return "hexagon" if isinstance(node, Decorator) else "ellipse"
