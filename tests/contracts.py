"""Shows the contract of a node, which its docstring has line by line, as a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

CLAUSE = re.compile(r"(SUCCESS|FAILURE|RUNNING|Halting|Reads|Writes)\b")
SECTION = re.compile(r"\w+:$")


class Contracts(griffe.Extension):
    """Turns the lines of a class's docstring that speak of a status into items of a list."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Rewrite one docstring."""
        if cls.docstring is not None and CLAUSE.search(cls.docstring.value):
            cls.docstring.value = "\n".join(listed(cls.docstring.value.splitlines()))


def listed(lines: list[str]) -> list[str]:
    """Return the lines with their clauses as items; what goes on on the next line belongs to its item."""
    found: list[str] = []
    is_item = False
    for line in lines:
        if SECTION.match(line) or not line.strip():
            is_item = False
        elif CLAUSE.match(line):
            found += [] if is_item else [""]
            line, is_item = f"- {line}", True
        elif is_item and not line.startswith(" "):
            line = f"  {line}"
        found.append(line)
    return found
