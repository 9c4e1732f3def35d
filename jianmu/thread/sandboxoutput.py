"""What a program writes, of which the beginning and the end are kept."""

from __future__ import annotations

from collections import deque

import anyio


class Output:
    """Keeps so many bytes of what a program writes, whatever it writes.

    Args:
        most: bytes that are kept: half of them from the beginning, half from the end.
        hidden: texts of which no part may be left where the output is cut.

    Attributes:
        size: bytes that were written.
        is_whole: set when nothing more comes.
    """

    def __init__(self, most: int, *hidden: str) -> None:
        self._half = max(most // 2, 1)
        self._hidden = hidden
        self._head = bytearray()
        self._tail = deque[bytes]()
        self._kept = 0
        self.size = 0
        self.is_whole = anyio.Event()

    def add(self, piece: bytes) -> None:
        """Take what comes next."""
        self.size += len(piece)
        room = max(self._half - len(self._head), 0)
        self._head += piece[:room]
        rest = piece[room:]
        if rest:
            self._tail.append(rest)
            self._kept += len(rest)
        while self._tail and self._kept - len(self._tail[0]) >= self._half:
            self._kept -= len(self._tail.popleft())

    def text(self) -> str:
        """Return the output, with a note where something is missing."""
        head, tail = bytes(self._head), b"".join(self._tail)
        if len(head) + len(tail) == self.size and len(tail) <= self._half:
            return _clean((head + tail).decode("utf-8", "replace"))
        tail = tail[-self._half :]
        missing = self.size - len(head) - len(tail)
        note = f"\n[cut: {missing} of {self.size} bytes are left out here]\n"
        begin, end = (part.decode("utf-8", "replace") for part in (head, tail))
        return _clean(self._without_end(begin) + note + self._without_begin(end))

    def _without_end(self, text: str) -> str:
        """Return a text without the first part of what is hidden at its end."""
        ends = (n for one in self._hidden for n in range(len(one), 0, -1) if text.endswith(one[:n]))
        return text[: len(text) - max(ends, default=0)]

    def _without_begin(self, text: str) -> str:
        """Return a text without the last part of what is hidden at its beginning."""
        begins = (n for one in self._hidden for n in range(len(one), 0, -1) if text.startswith(one[-n:]))
        return text[max(begins, default=0) :]


def _clean(text: str) -> str:
    """Return a text that every store takes: a NUL is one for none of them."""
    return text.replace("\0", "\ufffd")
