"""What a docstring in Google's style says about a function and its arguments."""

from __future__ import annotations

import inspect
import itertools
import re

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Params|Attributes|Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|Warns|Todo"
    r"|Keyword Args|Keyword Arguments|Other Parameters|References|See Also):\s*$"
)
_ARGUMENTS = ("Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments", "Other Parameters")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return what stands before the first section, and the description of each argument, in one line each."""
    lines = inspect.cleandoc(text or "").splitlines()
    heads = [number for number, line in enumerate(lines) if _SECTION.match(line)]
    told: dict[str, str] = {}
    for head, end in itertools.pairwise([*heads, len(lines)]):
        if lines[head].strip().rstrip(":") in _ARGUMENTS:
            told |= _entries(lines[head + 1 : end])
    return "\n".join(lines[: heads[0] if heads else None]).strip(), told


def _entries(lines: list[str]) -> dict[str, str]:
    """Return the entries of a section; what is indented deeper than the first line goes on with the entry above."""
    depth = next((_depth(line) for line in lines if line.strip()), 0)
    found: dict[str, str] = {}
    name = None
    for line in lines:
        entry = _ENTRY.match(line.strip()) if _depth(line) == depth else None
        if entry:
            name = entry[1]
        elif line.strip() and _depth(line) <= depth:
            name = None
        if name is not None:
            found[name] = f"{found.get(name, '')} {entry[2] if entry else line.strip()}".strip()
    return found


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
