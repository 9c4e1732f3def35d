"""Whether two requests ask for the same."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from jianmu.engine.answers import door_of
from jianmu.engine.shapes import is_other_kind, is_plain, is_same_shape


class Before(BaseModel):
    """What was asked for."""

    title: str = Field(description="before")
    at: date


def after() -> type[BaseModel]:
    """Return the same under another name."""

    class After(BaseModel):
        """What is asked for."""

        title: str = Field(description="after", title="The title")
        at: date

    return After


class Colour(Enum):
    """One of two."""

    RED = "red"
    BLUE = "blue"


def schema(kind: Any) -> Any:
    return door_of(kind).schema


def test_titles_and_descriptions_make_no_difference() -> None:
    """A class may be called otherwise, and its fields described otherwise; what they are named and hold counts."""
    assert schema(Before) != schema(after())
    assert is_same_shape(schema(Before), schema(after()))
    assert is_same_shape(schema(Colour), schema(Literal["red", "blue"]))
    assert is_same_shape({"items": [{"title": "a"}]}, {"items": [{"title": "b"}]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (int, str),
        (Literal["a", "b"], Literal["a", "c"]),
        (list[int], list[str]),
        ({"properties": {"title": {}}}, {"properties": {"text": {}}}),
        ({"properties": {"description": {}}}, {"properties": {}}),
        ({"enum": [{"title": "a"}]}, {"enum": [{"title": "b"}]}),
        ({"const": {"title": "a"}}, {"const": {"title": "b"}}),
    ],
)
def test_all_else_does(one: Any, other: Any) -> None:
    """Names of properties and literal values are no titles."""
    assert not is_same_shape(schema(one), schema(other))


@pytest.mark.parametrize(
    ("one", "other", "is_other"),
    [
        (int, str, True),
        (Before, str, True),
        (list[int], dict[str, int], True),
        (int, float, False),
        (str, Literal["a"], False),
        (str, Any, False),
        (str | int, bool, False),
        (list[int], list[str], False),
    ],
)
def test_schemas_are_of_other_kinds_where_no_value_fits_both(one: Any, other: Any, is_other: bool) -> None:
    """Only where both say what kind of JSON they want."""
    assert (is_other_kind(schema(one), schema(other)), is_other_kind(schema(other), schema(one))) == (
        is_other,
        is_other,
    )


def test_plain_is_what_python_reads_as_json_does() -> None:
    """An Enum, a date, a float and a model are read otherwise than their JSON."""
    assert all(is_plain(schema(kind)) for kind in (str, int, bool, None, Any, {"enum": ["a", 1]}))
    assert not any(is_plain(schema(kind)) for kind in (Colour, date, float, Before, list[int], set[str], str | None))
