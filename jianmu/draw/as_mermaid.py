"""A tree as a Mermaid flowchart."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.composites import Composite
from py_trees.decorators import Decorator

from jianmu.draw.outline import kind, mark, outline, printable

STYLES = """\
  classDef success fill:#d7f0d7,stroke:#2e7d32,color:#000
  classDef failure fill:#f8d7d7,stroke:#c62828,color:#000
  classDef running fill:#d7e5f8,stroke:#1565c0,color:#000
  classDef invalid fill:#f2f2f2,stroke:#9e9e9e,color:#000"""

# Mermaid reads labels as entity codes, HTML and, after a backtick, Markdown. It looks for comments (%%) and for
# lines with `style…:…#…;`, whose last semicolon it drops, without regard to quotes.
ESCAPES = str.maketrans(
    {
        '"': "#quot;",
        "#": "#35;",
        "%": "#37;",
        "&": "#amp;",
        ":": "#58;",
        "<": "#lt;",
        ">": "#gt;",
        "\\": "#92;",
        "`": "#96;",
        "\n": "<br>",
    }
)


def mermaid(root: Behaviour) -> str:
    """Return the tree as a Mermaid flowchart: composites as boxes, decorators as hexagons, leaves rounded.

    The status of a node is its mark (see `text`) and its colour.
    """
    nodes = ["flowchart TD"]
    edges: list[str] = []
    for node, number, parent in outline(root):
        before, after = _shape(node)
        nodes.append(f'  n{number}{before}"{_label(node)}"{after}:::{node.status.value.lower()}')
        if parent is not None:
            edges.append(f"  n{parent} --> n{number}")
    return "\n".join([*nodes, *edges, STYLES])


def _label(node: Behaviour) -> str:
    """Return the label of a node, escaped."""
    return printable(f"{mark(node)} {node.name}\n{kind(node)}").translate(ESCAPES)


def _shape(node: Behaviour) -> tuple[str, str]:
    """Return the brackets of a node's shape."""
    if isinstance(node, Composite):
        return "[", "]"
    return ("{{", "}}") if isinstance(node, Decorator) else ("([", "])")
