"""A tree as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from py_trees.behaviour import Behaviour

from jianmu.draw.outline import kind, mark, one_line


def text(root: Behaviour) -> str:
    """Return the tree as text, one line a node: its status, name, class and feedback.

    The marks are `✓` SUCCESS, `✗` FAILURE, `▶` RUNNING and `·` INVALID (not ticked, or halted).
    """
    return "\n".join(line for line, _ in lines(root))


def lines(root: Behaviour, opens: Callable[[Behaviour], bool] | None = None) -> Iterator[tuple[str, Behaviour]]:
    """Yield the line of each node with the node, parents first, for displays that add colours.

    Args:
        root: the tree.
        opens: whether the children of a node are drawn; by default all are.
    """
    waiting: list[tuple[Behaviour, str, str]] = [(root, "", "")]
    while waiting:
        node, lead, below = waiting.pop()
        yield f"{lead}{_label(node)}", node
        if opens is not None and not opens(node):
            continue
        last = len(node.children) - 1
        for index in range(last, -1, -1):
            ends = index == last
            waiting.append(
                (node.children[index], below + ("└─ " if ends else "├─ "), below + ("   " if ends else "│  "))
            )


def _label(node: Behaviour) -> str:
    """Return what the line of a node says after its branch."""
    name = one_line(node.name)
    what = kind(node)
    label = f"{mark(node)} {name}" if what == name else f"{mark(node)} {name} ({what})"
    return f"{label}: {one_line(str(node.feedback_message))}" if node.feedback_message else label
