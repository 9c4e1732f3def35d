"""The drawings: every node once, in order, with its status, whatever its name and depth."""

from __future__ import annotations

import re

import py_trees
import pydot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from py_trees.common import Status

from jianmu.draw import dot, lines, mermaid, text

WILD = [
    '"',
    "\\",
    "\\n",
    "a\nb",
    "<b>x</b>",
    "&amp;",
    "#35;",
    "`code`",
    "]",
    "}}",
    "%% x",
    "style a:#b;",
    "end",
    "\x1b[31m",
    "建木",
    "",
]


def desk() -> py_trees.behaviour.Behaviour:
    """A tree that shows each status, a decorator, a memory and a reactive composite."""
    root = py_trees.composites.Sequence("desk", memory=True)
    check = py_trees.behaviours.Success("check")
    choice = py_trees.composites.Selector("choice", memory=False)
    choice.add_children([py_trees.behaviours.Failure("by rule"), py_trees.behaviours.Running("ask")])
    later = py_trees.decorators.Inverter("not", py_trees.behaviours.Success("Dummy"))
    root.add_children([check, choice, later])
    root.tick_once()
    return root


def flat(names: list[str]) -> py_trees.behaviour.Behaviour:
    """A Parallel over leaves with these names."""
    children = [py_trees.behaviours.Dummy(name) for name in names]
    return py_trees.composites.Parallel("root", policy=py_trees.common.ParallelPolicy.SuccessOnAll(), children=children)


def deep(levels: int) -> py_trees.behaviour.Behaviour:
    """A chain of decorators."""
    node: py_trees.behaviour.Behaviour = py_trees.behaviours.Dummy("leaf")
    for _ in range(levels):
        node = py_trees.decorators.Inverter("not", node)
    return node


def labels_of_mermaid(drawing: str) -> list[str]:
    """Read the labels of a flowchart back as Mermaid does: entity codes after the quotes were found."""
    shape = r'(?:\[|\{\{|\(\[)"([^"]*)"(?:\]|\}\}|\]\))'
    found = re.findall(rf"^  n\d+{shape}:::(?:success|failure|running|invalid)$", drawing, re.MULTILINE)
    named = {"quot": '"', "amp": "&", "lt": "<", "gt": ">"}

    def entity(match: re.Match[str]) -> str:
        return named.get(match[1]) or chr(int(match[1]))

    return [re.sub(r"#(\w+);", entity, label.replace("<br>", "\n")) for label in found]


def labels_of_dot(drawing: str) -> list[str]:
    """Read the labels of a digraph back with a parser of the language."""
    [graph] = pydot.graph_from_dot_data(drawing)
    quoted = [node.get_label() for node in graph.get_nodes() if node.get_label()]
    plain = [re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label[1:-1]) for label in quoted]
    return [label.replace("&amp;", "&") for label in plain]


def test_text_shows_each_node_with_its_status_and_feedback() -> None:
    """One line a node: branch, mark, name, class unless it is the name, feedback if there is any."""
    root = desk()
    root.children[1].children[1].feedback_message = "waits for Ana"
    assert text(root) == snapshot("""\
▶ desk (Sequence, memory)
├─ ✓ check (Success): success
├─ ▶ choice (Selector)
│  ├─ ✗ by rule (Failure): failure
│  └─ ▶ ask (Running): waits for Ana
└─ · not (Inverter)
   └─ · Dummy (Success)\
""")


def test_mermaid_shows_each_node_and_edge() -> None:
    """Composites are boxes, decorators hexagons, leaves rounded, and the class is the status."""
    assert mermaid(desk()) == snapshot("""\
flowchart TD
  n0["▶ desk<br>Sequence, memory"]:::running
  n1(["✓ check<br>Success"]):::success
  n2["▶ choice<br>Selector"]:::running
  n3(["✗ by rule<br>Failure"]):::failure
  n4(["▶ ask<br>Running"]):::running
  n5{{"· not<br>Inverter"}}:::invalid
  n6(["· Dummy<br>Success"]):::invalid
  n0 --> n1
  n0 --> n2
  n2 --> n3
  n2 --> n4
  n0 --> n5
  n5 --> n6
  classDef success fill:#d7f0d7,stroke:#2e7d32,color:#000
  classDef failure fill:#f8d7d7,stroke:#c62828,color:#000
  classDef running fill:#d7e5f8,stroke:#1565c0,color:#000
  classDef invalid fill:#f2f2f2,stroke:#9e9e9e,color:#000\
""")


def test_dot_shows_each_node_and_edge() -> None:
    """Composites are boxes, decorators hexagons, leaves ellipses, and the colour is the status."""
    assert dot(desk()) == snapshot("""\
digraph tree {
  graph [ordering=out];
  node [style=filled, fontname="sans-serif"];
  n0 [label="▶ desk\\nSequence, memory", shape=box, fillcolor="#d7e5f8", color="#1565c0"];
  n1 [label="✓ check\\nSuccess", shape=ellipse, fillcolor="#d7f0d7", color="#2e7d32"];
  n2 [label="▶ choice\\nSelector", shape=box, fillcolor="#d7e5f8", color="#1565c0"];
  n3 [label="✗ by rule\\nFailure", shape=ellipse, fillcolor="#f8d7d7", color="#c62828"];
  n4 [label="▶ ask\\nRunning", shape=ellipse, fillcolor="#d7e5f8", color="#1565c0"];
  n5 [label="· not\\nInverter", shape=hexagon, fillcolor="#f2f2f2", color="#9e9e9e"];
  n6 [label="· Dummy\\nSuccess", shape=ellipse, fillcolor="#f2f2f2", color="#9e9e9e"];
  n0 -> n1;
  n0 -> n2;
  n2 -> n3;
  n2 -> n4;
  n0 -> n5;
  n5 -> n6;
}\
""")


def test_lines_come_with_their_nodes() -> None:
    """A display can colour each line by the node that it belongs to."""
    root = desk()
    drawn = list(lines(root))
    assert [node.name for _, node in drawn] == ["desk", "check", "choice", "by rule", "ask", "not", "Dummy"]
    assert [node.status for _, node in drawn][:3] == [Status.RUNNING, Status.SUCCESS, Status.RUNNING]
    assert "\n".join(line for line, _ in drawn) == text(root)


@pytest.mark.parametrize("name", WILD)
def test_names_cannot_break_a_drawing(name: str) -> None:
    """Quotes, brackets, markup, line breaks and escapes in a name stay part of that name."""
    root = flat([name, "other"])
    assert len(text(root).splitlines()) == 3
    assert "\x1b" not in text(root) + mermaid(root) + dot(root)
    shown = name.replace("\x1b", "\\x1b")
    assert labels_of_mermaid(mermaid(root))[1:] == [f"· {shown}\nDummy", "· other\nDummy"]
    assert labels_of_dot(dot(root))[1:] == [f"· {shown}\nDummy", "· other\nDummy"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=5))
def test_every_name_is_drawn_once_and_readable(names: list[str]) -> None:
    """Whatever text names are, each drawing has one entry for each node and no control character."""
    root = flat(names)
    drawings = [text(root), mermaid(root), dot(root)]
    assert len(drawings[0].split("\n")) == len(names) + 1
    assert len(labels_of_mermaid(drawings[1])) == len(names) + 1
    assert len(labels_of_dot(drawings[2])) == len(names) + 1
    assert all(line.isprintable() for drawing in drawings for line in drawing.split("\n"))


def test_depth_has_no_limit() -> None:
    """A chain of 3,000 decorators is drawn without recursion."""
    root = deep(3_000)
    assert text(root).count("\n") == 3_000
    assert mermaid(root).count(" --> ") == 3_000
    assert dot(root).count(" -> ") == 3_000


def test_drawing_changes_nothing() -> None:
    """A drawing ticks nothing and moves nothing."""
    root = desk()
    before = [(node.status, node.feedback_message) for node in root.iterate()]
    assert [text(root), mermaid(root), dot(root)] == [text(root), mermaid(root), dot(root)]
    assert [(node.status, node.feedback_message) for node in root.iterate()] == before
