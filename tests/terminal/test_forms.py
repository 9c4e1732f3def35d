"""What is to be filled in for an answer, and what it means."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel

from jianmu.engine.interaction import Approval, Request
from jianmu.terminal.forms import FormError, answer_of, fields_of, is_approval, parse_object


class Order(BaseModel):
    """A form with all that a form can have."""

    name: str
    size: Literal["s", "m"]
    count: int = 3
    weight: float | None = None
    is_gift: bool = False
    tags: list[str] = []


def schema(answer: Any) -> Any:
    """Return the schema of a question's answer."""
    return Request("?", answer=answer).door.schema


def answer(kind: Any, given: Any) -> Any:
    """Return the answer for what was filled in."""
    fields = fields_of(schema(kind))
    return answer_of(fields, given if isinstance(given, dict) else {"": given})


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        (str, "", ""),
        (str, " a ", " a "),
        (bool, 1, True),
        (bool, 0, False),
        (int, " 12 ", 12),
        (float, "1.5", 1.5),
        (float, "2", 2),
        (Literal["a", "b"], 1, "b"),
        ({"enum": [1, None, "x"]}, 1, None),
        ({"oneOf": [{"const": "x", "title": "X"}, {"const": "y"}]}, 0, "x"),
        (str | None, "", None),
        (int | None, "", None),
        (int | None, "4", 4),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
def test_what_is_filled_in_is_an_answer(kind: Any, given: Any, meant: Any) -> None:
    """Texts, numbers, choices, yes and no, nothing, and JSON for all the rest; it fits the question."""
    found = answer(kind, given)
    assert (found, type(found)) == (meant, type(meant))
    assert Request("?", answer=kind).door.check(found) is None


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (int, "1.5", "type a whole number"),
        (int, "", "type a whole number"),
        (float, "nan", "type a number"),
        (bool, None, "choose yes or no"),
        (Literal["a", "b"], None, "choose one"),
        (list[int], "[1,", "not JSON: Expecting value (line 1, column 4)"),
        (list[int], "[NaN]", "not JSON: NaN is no JSON value"),
        (list[int], "[" * 100_000, "not JSON: it is nested too deeply"),
        (Order, {"name": "x", "size": 0, "count": "many"}, "Count: type a whole number"),
        (Order, {"name": "x", "size": 0, "tags": "{"}, "Tags: not JSON: Expecting property name enclosed in double"),
    ],
)
def test_what_is_no_answer_is_refused(kind: Any, given: Any, problem: str) -> None:
    """The error says which field it is, and what is wanted there."""
    with pytest.raises(FormError) as raised:
        answer(kind, given)
    assert str(raised.value).startswith(problem)


def test_an_object_has_a_field_for_each_property() -> None:
    """With its kind, its preset, and whether it may be left out."""
    fields = fields_of(schema(Order))
    assert [(one.name, one.kind, one.is_required, one.may_be_null, one.preset) for one in fields] == [
        ("name", "text", True, False, None),
        ("size", "choice", True, False, None),
        ("count", "integer", False, False, 3),
        ("weight", "number", False, True, None),
        ("is_gift", "flag", False, False, False),
        ("tags", "json", False, False, []),
    ]


def test_what_is_left_out_is_no_part_of_the_answer() -> None:
    """An optional field that is empty is left to its default; one that may be null is null."""
    assert answer(Order, {"name": "x", "size": 1, "count": "", "weight": ""}) == {
        "name": "x",
        "size": "m",
        "weight": None,
    }


def test_references_are_followed() -> None:
    """A property whose type stands elsewhere in the schema has its kind."""
    part = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"enum": ["x"]}}}
    (field,) = fields_of(part)
    assert (field.kind, field.options) == ("choice", ("x",))


def test_an_object_of_many_properties_is_written_as_json() -> None:
    """More fields than fit on a screen are one."""
    (field,) = fields_of({"type": "object", "properties": {f"p{number}": {} for number in range(13)}})
    assert (field.name, field.kind) == ("", "json")


def test_an_approval_is_told_by_its_schema() -> None:
    """Whatever the question's reason is called."""
    assert is_approval(schema(Approval))
    assert not is_approval(schema(bool))
    assert not is_approval(schema(Order))


def test_edited_arguments_are_an_object() -> None:
    """Anything else is refused."""
    assert parse_object('{"a": [1]}') == {"a": [1]}
    with pytest.raises(FormError, match="arguments are a JSON object"):
        parse_object("[1]")
