"""The diagrams of the docs are those that the tables in the code give."""

from __future__ import annotations

import pytest

from tests.diagrams import DRAWINGS, FOLDER


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_diagram_is_drawn_from_its_table(name: str) -> None:
    """A diagram has every state and every arrow of its table, and no other."""
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name](), "run python -m tests.diagrams"
