"""The code blocks of Markdown pages."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.house import ROOT

FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
INCLUDE = re.compile(r'^ *--8<-- "(?P<path>[^"]+)"$', re.MULTILINE)

# What a block may call itself. `python` blocks run; the commands of a `console` block run too, each at its `$ `.
LANGUAGES = {"console", "dot", "ini", "json", "mermaid", "python", "sh", "text", "toml"}
OUTPUT = 'text title="Output"'


@dataclass(frozen=True)
class Block:
    """One fenced block: its info string, its code, the line on which the code starts, and the file it is taken from."""

    info: str
    code: str
    line: int
    source: str | None = None

    @property
    def language(self) -> str:
        """The first word of the info string."""
        return self.info.split()[0] if self.info else ""

    @property
    def title(self) -> str:
        """The name of the file that the block stands for, or an empty text."""
        found = re.search(r'title="([^"]+\.py)"', self.info)
        return found[1] if found else ""


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, with what they include."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            info=match["info"].strip(),
            code=INCLUDE.sub(lambda include: (ROOT / include["path"]).read_text(), textwrap.dedent(match["code"])),
            line=text.count("\n", 0, match.start("code")) + 1,
            source=found["path"] if (found := INCLUDE.fullmatch(match["code"].rstrip("\n"))) else None,
        )
        for match in FENCE.finditer(text)
    ]


def pages() -> list[Path]:
    """Return all Markdown pages of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
