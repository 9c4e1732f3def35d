"""The front matter of a Markdown file: the part of YAML that names and descriptions are written in.

Texts are read as YAML reads them: plain, in quotes, or as a block (`|`, `>`). What else stands in a front matter
(lists, mappings) is passed over; asked for as a text, it is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?")
_BLOCK = re.compile(r"([|>])([+-]?)(?:\s+#.*)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_OTHER = "[{&*!%@`?"


def split(text: str) -> tuple[dict[str, str | None], str]:
    """Return the texts of a front matter by key, None for what is no text, and what comes after it.

    Raises:
        ValueError: there is none, or it cannot be read; with the line.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise ValueError("it does not begin with a line ---")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == "---"), None)
    if end is None:
        raise ValueError("its front matter has no end: a second line ---")
    found: dict[str, str | None] = {}
    for number, key, value, below in _entries(lines[1:end]):
        if key in found:
            raise ValueError(f"line {number}: '{key}' is there twice")
        found[key] = _text(value, below, number)
    return found, "\n".join(lines[end + 1 :]).strip()


def _entries(lines: list[str]) -> Iterator[tuple[int, str, str, list[str]]]:
    """Yield each key with its line, the text beside it and the lines below it."""
    place = 0
    while place < len(lines):
        line, number = lines[place], place + 2
        place += 1
        if not line.strip() or line.startswith("#"):
            continue
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            raise ValueError(f"line {number} is not of the form key: text")
        start = place
        while place < len(lines) and (not lines[place].strip() or lines[place][0] in " -"):
            place += 1
        yield number, match[1], (match[2] or "").strip(), lines[start:place]


def _text(value: str, below: list[str], number: int) -> str | None:
    """Return the text that a value is, or None if it is something else."""
    block = _BLOCK.fullmatch(value)
    if block is not None:
        return _block(below, is_folded=block[1] == ">", keeps_end=block[2] == "+", has_end=block[2] != "-")
    if value[:1] in ("'", '"'):
        return _quoted(" ".join([value, *(line.strip() for line in below if line.strip())]), number)
    if value[:1] in _OTHER and value:
        return None
    lines = [_COMMENT.sub("", line).strip() for line in (value, *below) if not line.lstrip().startswith("#")]
    return _folded("\n".join(lines).strip()) if lines and lines[0] else None


def _quoted(text: str, number: int) -> str:
    mark = text[0]
    whole = re.fullmatch(r"('(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\")(?:\s+#.*)?", text)
    if whole is None:
        raise ValueError(f"line {number}: the text in quotes has no end, or something after it")
    if mark == "'":
        return whole[1][1:-1].replace("''", "'")
    try:
        return json.loads(whole[1])
    except ValueError:
        raise ValueError(f"line {number}: the text in quotes has an escape that JSON does not know") from None


def _block(lines: list[str], *, is_folded: bool, keeps_end: bool, has_end: bool) -> str:
    """Return the text of a block: its lines without their common indent, folded or as they are."""
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    cut = [line[indent:].rstrip() for line in lines]
    text = "\n".join(cut)
    body = text.rstrip("\n")
    body = _folded(body) if is_folded else body
    end = text[len(text.rstrip("\n")) :] + "\n" if keeps_end else "\n" if has_end and body else ""
    return body + end


def _folded(text: str) -> str:
    """Return a text whose lines are joined by spaces; empty and indented lines stay lines."""
    joined = re.sub(r"(?m)^([^\s\n].*)\n(?=[^\s\n])", r"\1 ", text)
    return re.sub(r"(?m)^([^\s\n].*)\n(\n+)(?=[^\s\n])", r"\1\2", joined)
