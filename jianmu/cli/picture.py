"""A tree in colours, cut to the room that there is."""

from __future__ import annotations

from itertools import islice

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from rich.text import Text

from jianmu.draw import lines
from jianmu.draw.outline import MARKS

Line = tuple[str, Behaviour]
STYLES = {Status.SUCCESS: "green", Status.FAILURE: "red", Status.RUNNING: "cyan", Status.INVALID: "bright_black"}


def picture(root: Behaviour, rows: int | None = None) -> list[Text]:
    """Return the lines of a tree; what is not at work is folded, then cut off, if there are more than `rows`."""
    if rows is None:
        return [_painted(line, node) for line, node in lines(root)]
    whole = list(islice(lines(root), rows + 1))
    if len(whole) <= rows:
        return [_painted(line, node) for line, node in whole]
    folded = [
        (line if _is_open(node) or not node.children else f"{line} …", node) for line, node in lines(root, _is_open)
    ]
    return _cut([_painted(line, node) for line, node in folded], _focus(folded), max(rows, 3))


def _is_open(node: Behaviour) -> bool:
    return node.status is Status.RUNNING


def _focus(folded: list[Line]) -> int:
    """Return the number of the last line that is at work."""
    return max((number for number, (_, node) in enumerate(folded) if _is_open(node)), default=0)


def _cut(whole: list[Text], focus: int, rows: int) -> list[Text]:
    """Return `rows` lines round the line `focus`, with a sign where some are left out."""
    if len(whole) <= rows:
        return whole
    start = min(max(focus - rows + 2, 0), len(whole) - rows)
    shown = whole[start : start + rows]
    if start > 0:
        shown[0] = Text(f"⋮ {start + 1} lines above", style="bright_black")
    if start + rows < len(whole):
        shown[-1] = Text(f"⋮ {len(whole) - start - rows + 1} lines below", style="bright_black")
    return shown


def _painted(line: str, node: Behaviour) -> Text:
    """Return a line with the branch dim, the mark in its status's colour, and a name that is bold while at work."""
    lead, mark, label = line.partition(MARKS[node.status])
    style = STYLES[node.status]
    name = {Status.RUNNING: "bold", Status.INVALID: style}.get(node.status, "")
    text = Text.assemble((lead, "bright_black"), (mark, style), (label, name))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
