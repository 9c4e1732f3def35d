"""The README claims what was measured, and points at what is there."""

from __future__ import annotations

import re

import pytest

from tests.house import ROOT
from tests.measured import factor, peers, shown


def test_the_figures_are_those_of_the_benchmarks() -> None:
    """Every row beside another library is shown, none is left out, and its factor is the measured one, noise aside."""
    measured = {(row["work"], row["against"]): factor(row) for row in peers()}
    expected = {row: pytest.approx(times, rel=0.3) for row, times in measured.items()}
    assert shown() == expected, "run python -m tests.measured"


def test_every_link_to_a_file_leads_somewhere() -> None:
    """No link of the README to a file of the repository is dead."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
