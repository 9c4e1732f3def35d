"""What a docstring says of a function and its arguments."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jianmu.tool.docstring import read_docstring


def test_sections_of_google() -> None:
    """The description ends at the first section; an argument's text goes on in deeper lines, types are left out."""
    text = """Look something up.

    Slow: it asks a server.

    Args:
        query: what to look for: words,
            or a phrase.

        limit (int, optional): how many.
        *rest: not one of these

    Returns:
        query: not an argument.

    Keyword Args:
        deep: whether to go on.
    """
    described, told = read_docstring(text)
    assert described == "Look something up.\n\nSlow: it asks a server."
    assert told == {
        "query": "what to look for: words, or a phrase.",
        "limit": "how many.",
        "rest": "not one of these",
        "deep": "whether to go on.",
    }


@pytest.mark.parametrize("text", [None, "", "Args:", "One line.", "Args:\n\n\nReturns:\n    x"])
def test_a_docstring_may_say_little(text: str | None) -> None:
    """Where nothing is told, nothing is found."""
    assert read_docstring(text)[1] == {}


@given(st.text())
def test_any_text_can_be_a_docstring(text: str) -> None:
    """Nothing that stands in a docstring raises, and a text without sections is the description."""
    described, told = read_docstring(text)
    assert told == {} or ":" in text
    assert ":" in text or described.splitlines() == inspect.cleandoc(text).strip().splitlines()
