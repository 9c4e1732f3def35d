"""Rows of questions, and the text that bodies and records of the log are."""

from __future__ import annotations

import json
from typing import Any  # Any: JSON

from hypothesis import given
from hypothesis import strategies as st

from jianmu.engine.questionrows import text_of

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(value=JSON)
def test_text_is_compact_json_that_reads_back_as_it_was(value: Any) -> None:
    """The same value of the same types, in the same order."""
    assert repr(json.loads(text_of(value))) == repr(value)


def test_text_has_no_blanks_and_no_escapes_that_it_need_not_have() -> None:
    """Letters of other alphabets stand as they are."""
    assert text_of({"a": [1, 2.5, None], "é": "木\n"}) == '{"a":[1,2.5,null],"é":"木\\n"}'


def test_half_a_character_is_left_for_the_store_to_refuse() -> None:
    """A text that UTF-8 cannot hold is no error here: the store names it in one of its own."""
    assert text_of({"text": "\ud800"}) == '{"text":"\ud800"}'
