"""The pages: every block of Python and every session at a terminal gives what the page says."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.pages import LANGUAGES, OUTPUT, Block, blocks, pages
from tests.transcripts import PROMPT, programs, replay

EXAMPLES = ROOT / "docs" / "examples.md"  # whole programs, which tests/test_examples.py runs
WITH_CODE = [page for page in pages() if page != EXAMPLES and any(block.language == "python" for block in blocks(page))]


def name_of(page: Path) -> str:
    """Name a page by its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def run(block: Block, page: Path, module: types.ModuleType) -> None:
    """Run one block in the module of its page; errors show the line of the page."""
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    exec(code, module.__dict__)


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_blocks_run_and_print_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page run one after the other; outputs and sessions at a terminal are what is printed today."""
    module = types.ModuleType("page_" + name_of(page).replace("/", "_").removesuffix(".md").replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.language == "python":
            capsys.readouterr()
            run(block, page, module)
            if block.title:
                (tmp_path / block.title).write_text(block.code)
        elif block.info == OUTPUT:
            assert capsys.readouterr().out == block.code, f"{name_of(page)}:{block.line}"
        elif block.language == "console" and PROMPT in block.code:
            assert replay(block.code, tmp_path) == block.code, f"{name_of(page)}:{block.line}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_blocks_name_a_known_language(page: Path) -> None:
    """No block escapes from running by a misspelt language."""
    assert [(block.line, block.info) for block in blocks(page) if block.language not in LANGUAGES] == []


def test_every_page_is_in_the_navigation() -> None:
    """No page is written and then found by nobody."""
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    written = [page.relative_to(ROOT / "docs").as_posix() for page in pages() if page.is_relative_to(ROOT / "docs")]
    assert sorted(listed) == sorted(written)
