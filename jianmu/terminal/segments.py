"""Cuts the text of a reply, as it comes in, into segments that are laid out apart.

1. Laying out Markdown costs what the text is long: a segment that is long enough ends at the next gap between two
   blocks, so that each piece costs what one segment is long.
2. A gap is an empty line outside of fenced code with a line behind it that is not indented.
3. What has no gap, such as long code, is handed out in pieces that grow with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LONG = 2_000
"""Characters from which on a segment ends at the next gap."""
SHARE = 32
"""A long segment is laid out again when a piece of this share of it has come in."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


@dataclass
class Segments:
    """The segments of one text.

    Attributes:
        index: the number of the segment that grows.
        length: its characters.
        pending: what came in and was not handed out.
    """

    index: int = 0
    length: int = 0
    pending: list[str] = field(default_factory=list[str])
    _waits: int = 0
    _fence: str = ""
    _line: str = ""
    _is_gap: bool = False

    def add(self, piece: str) -> None:
        """Take a piece of the text."""
        self.pending.append(piece)
        self._waits += len(piece)

    def take(self, *, is_end: bool = False) -> list[tuple[int, str]]:
        """Return what is to be laid out now, as (segment, text); empty when it is not yet time.

        Args:
            is_end: whether no more comes.
        """
        if not self._waits or (not is_end and self.length > 2 * LONG and self._waits * SHARE < self.length):
            return []
        text, self.pending, self._waits = "".join(self.pending), [], 0
        parts: dict[int, list[str]] = {}
        for line in text.splitlines(keepends=True):
            if self._ends_before(line):
                self.index, self.length = self.index + 1, 0
            parts.setdefault(self.index, []).append(line)
            self.length += len(line)
            self._read(line)
        return [(index, "".join(lines)) for index, lines in parts.items()]

    def _ends_before(self, line: str) -> bool:
        """Whether the line begins a segment; half a line never does."""
        is_start = self._is_gap and not self._line and not self._fence
        return is_start and self.length >= LONG and not line[0].isspace()

    def _read(self, line: str) -> None:
        """Note whether a line is empty, and whether it opens or closes a fence."""
        self._line += line
        if not self._line.endswith("\n"):
            return
        whole, self._line = self._line, ""
        self._is_gap = not whole.strip()
        found = _FENCE.match(whole)
        if found is None:
            return
        mark, rest = found.groups()
        if not self._fence:
            self._fence = mark
        elif mark[0] == self._fence[0] and len(mark) >= len(self._fence) and not rest.strip():
            self._fence = ""
