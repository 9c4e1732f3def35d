"""The diagrams of the docs are those that the tables in the code give."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import diagrams
from tests.house import ROOT
from tests.pages import blocks


@pytest.mark.parametrize(("page", "draw"), [("runner", diagrams.phases), ("interaction", diagrams.questions)])
def test_a_diagram_is_drawn_from_its_table(page: str, draw: Callable[[], str]) -> None:
    """A page's diagram has every transition of the table, and no other."""
    drawn = [block.code for block in blocks(ROOT / "docs" / "concepts" / f"{page}.md") if block.language == "mermaid"]
    assert drawn == [draw() + "\n"]
