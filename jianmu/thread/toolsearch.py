"""How tools are found by what a model writes: names, words, or a pattern that takes no time to match.

A query is one of:
- `select:send_mail,read_mail`: these names;
- `mail|chat`, `^github_.*issue$`: a pattern for names, of which `|`, `.*`, and `^` and `$` at its ends have a meaning;
- `send mail`, `+github issue`: words, of which those with a `+` have to be in the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jianmu.tool.base import Tool

LONGEST = 500
"""Characters of a pattern, or of words, that are looked at; names that are selected are looked at all."""
SELECT = "select:"
_WORD = re.compile(r"\+?\w+")
_PATTERN = re.compile(r"\||\.\*|^\^|\$$")


def search(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools that fit a query, the best first."""
    if (names := selected(query)) is not None:
        known: dict[str, list[Tool]] = {}
        for one in tools:
            known.setdefault(one.name.lower(), []).append(one)
        return [one for name in names for one in known.get(name, ())]
    query = query.strip()[:LONGEST].lower()
    if _PATTERN.search(query) is not None:
        found = [one for one in tools if _fits(query, one.name.lower())]
        if found:
            return found
    words = _WORD.findall(query.replace("_", " "))
    scored = [(_score(words, one), one) for one in tools]
    return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score]


def selected(query: str) -> list[str] | None:
    """Return the names, in small letters, that a query selects; None if it is another query."""
    query = query.strip().lower()
    if not query.startswith(SELECT):
        return None
    return [*dict.fromkeys(name.strip() for name in query.removeprefix(SELECT).split(",") if name.strip())]


def _score(words: Sequence[str], tool: Tool) -> int:
    """Return how well a tool fits words: its name counts more than what is said of it."""
    name = tool.name.lower()
    said = f"{tool.description} {' '.join(map(str, _parameters(tool)))}".lower()
    if any(word.startswith("+") and word[1:] not in name for word in words):
        return 0
    parts = set(re.split(r"[_-]", name))
    plain = [word.removeprefix("+") for word in words]
    return sum(4 if word in parts else 2 if word in name else int(word in said) for word in plain)


def _parameters(tool: Tool) -> Sequence[str]:
    shown = tool.parameters.get("properties")
    return [*shown] if isinstance(shown, dict) else []


def _fits(pattern: str, name: str) -> bool:
    return any(_fits_one(one.strip(), name) for one in pattern.split("|") if one.strip())


def _fits_one(pattern: str, name: str) -> bool:
    """Whether a name has the pieces of a pattern one after the other: each is sought once, from the left."""
    pieces = pattern.removeprefix("^").removesuffix("$").split(".*")
    pieces = [*([] if pattern.startswith("^") else [""]), *pieces, *([] if pattern.endswith("$") else [""])]
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return name == first
    at = len(first)
    for piece in pieces[1:-1]:
        at = name.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return name.startswith(first) and name.endswith(last) and at + len(last) <= len(name)
