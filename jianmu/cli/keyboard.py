"""Lines that a person types, read without a thread, so that nothing stays behind when nobody types."""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

import anyio
import anyio.to_thread

if sys.platform == "win32":

    def flush(source: TextIO) -> None:
        """Nothing: what was typed cannot be dropped here."""
else:
    import termios

    def flush(source: TextIO) -> None:
        """Drop what was typed into a terminal and not read."""
        termios.tcflush(source, termios.TCIFLUSH)


class NoMoreInputError(Exception):
    """The person has ended the input (Ctrl-D)."""


class Keyboard:
    """Reads lines from a terminal.

    Args:
        source: the terminal.
    """

    def __init__(self, source: TextIO) -> None:
        self._source = source
        self._typed = b""

    async def line(self) -> str:
        """Return the next line, without its end.

        Raises:
            NoMoreInputError: there is none and will be none.
        """
        if sys.platform == "win32":
            return self._told(await anyio.to_thread.run_sync(self._source.readline, abandon_on_cancel=True))
        while b"\n" not in self._typed:
            await anyio.wait_readable(self._source)
            some = os.read(self._source.fileno(), 65536)
            if not some:
                break
            self._typed += some
        line, end, self._typed = self._typed.partition(b"\n")
        return self._told((line + end).decode("utf-8", "replace"))

    def has_more(self) -> bool:
        """Whether something was typed that was not read yet."""
        if sys.platform == "win32":
            return False
        return bool(self._typed) or bool(select.select([self._source], [], [], 0)[0])

    def forget(self) -> None:
        """Drop what was typed and not read, half a line too."""
        self._typed = b""
        flush(self._source)

    def _told(self, line: str) -> str:
        if not line:
            raise NoMoreInputError
        return line.rstrip("\r\n")


def is_terminal() -> bool:
    """Whether somebody is there to type: stdin is a terminal."""
    return sys.__stdin__ is not None and not sys.__stdin__.closed and sys.__stdin__.isatty()
