"""How the text of a reply is cut for the screen."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from jianmu.terminal.segments import LONG, Segments

PIECES = st.lists(st.sampled_from(["a ", "\n", "\n\n", "word", "```\n", "~~~\n", "  - x\n", "x" * 900, "\n# t\n"]))


def cut(pieces: list[str]) -> list[str]:
    """Return the segments of a text that comes piece by piece."""
    segments, parts = Segments(), dict[int, str]()
    for number, piece in enumerate(pieces):
        segments.add(piece)
        for index, text in segments.take(is_end=number == len(pieces) - 1):
            parts[index] = parts.get(index, "") + text
    return list(parts.values())


@given(PIECES)
def test_nothing_is_lost_or_moved(pieces: list[str]) -> None:
    """The segments, one after the other, are the text."""
    assert "".join(cut(pieces)) == "".join(pieces)


@given(PIECES)
def test_code_is_never_cut_in_two(pieces: list[str]) -> None:
    """No segment ends inside of fenced code."""
    for segment in cut(pieces)[:-1]:
        fence = ""
        for line in segment.splitlines():
            found = re.match(r" {0,3}(`{3,}|~{3,})\s*$", line)
            if found and not fence:
                fence = found[1]
            elif found and found[1][0] == fence[0] and len(found[1]) >= len(fence):
                fence = ""
        assert not fence


def test_a_long_text_is_cut_at_its_gaps() -> None:
    """A text of many paragraphs has segments of about the same length."""
    parts = cut([word for number in range(1000) for word in (f"word{number} ", "and more of it.", "\n\n")])
    assert len(parts) > 5
    assert max(map(len, parts)) < LONG + 200
    assert all(part.endswith("\n\n") for part in parts)


def test_a_list_stays_with_its_items() -> None:
    """What is indented after an empty line belongs to what stands before it."""
    assert len(cut(["- " + "x" * LONG, "\n\n", "  more of it\n"])) == 1


def test_a_gap_in_code_is_none() -> None:
    """Only the fence of the same kind, and as long, ends the code."""
    inside = ["````\n", "x" * LONG, "\n\n", "y\n", "```\n\n", "z\n", "~~~~\n\n", "z\n"]
    assert len(cut(inside)) == 1
    assert len(cut([*inside, "````\n\n", "after\n"])) == 2


def test_long_code_is_laid_out_rarely() -> None:
    """10,000 lines without a gap are laid out in pieces that grow: the work is a fixed multiple of the text."""
    segments, work, length = Segments(), 0, 0
    for _ in range(10_000):
        segments.add("some line of code\n")
        for _, text in segments.take():
            length += len(text)
            work += length
    assert work < 50 * length
