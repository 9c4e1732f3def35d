"""What every drawing says of a node: where it stands, what it is, how it went."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from py_trees.behaviour import Behaviour
from py_trees.common import Status

MARKS = {Status.SUCCESS: "✓", Status.FAILURE: "✗", Status.RUNNING: "▶", Status.INVALID: "·"}


def outline(root: Behaviour) -> Iterator[tuple[Behaviour, int, int | None]]:
    """Yield each node, parents first, with its number and the number of its parent.

    Numbers count from 0 in the order of a drawing from top to bottom. No depth is too great.
    """
    waiting: list[tuple[Behaviour, int | None]] = [(root, None)]
    number = 0
    while waiting:
        node, parent = waiting.pop()
        yield node, number, parent
        waiting.extend((child, number) for child in reversed(node.children))
        number += 1


def mark(node: Behaviour) -> str:
    """Return the sign of a node's status."""
    return MARKS[node.status]


def kind(node: Behaviour) -> str:
    """Return what a node is: its class, and whether a composite remembers its place."""
    name = type(node).__name__
    return f"{name}, memory" if getattr(node, "memory", None) is True else name


def one_line(text: str) -> str:
    """Return a text on one line, with what a terminal would obey written out as an escape."""
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def printable(text: str) -> str:
    """Return a text with its line breaks as they are and other control characters written out."""
    return "\n".join(map(one_line, text.splitlines())) if text else text


def _visible(character: str) -> str:
    """Write a character that does not print as its escape; a space of any kind becomes a space."""
    if character.isprintable():
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape").decode("ascii")
