"""What a program that may die any moment leaves behind of what it did: lines in a file outside of the store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Note = dict[str, Any]


class Notes:
    """Adds a line for each thing that happened; a line that was written survives the process.

    Args:
        path: the file.
        life: the number of the process among those that wrote to it.
    """

    def __init__(self, path: str, life: int) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._path = Path(path)
        self.life = life

    def write(self, what: str, **told: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps({"what": what, "life": self.life, **told}).encode() + b"\n")

    def all(self, what: str) -> list[Note]:
        """Return all notes of one kind, those of earlier lives too."""
        return [note for note in read(self._path) if note["what"] == what]


def read(path: Path) -> Iterator[Note]:
    """Yield the notes of a file, in the order in which they were written, each with its place."""
    for place, line in enumerate(path.read_text().splitlines() if path.exists() else ()):
        yield {**json.loads(line), "at": place}
