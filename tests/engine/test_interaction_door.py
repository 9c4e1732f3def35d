"""The door: which answers fit, by a Python type and by a JSON schema, and what the refusals say."""

from __future__ import annotations

import enum
import functools
import importlib
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from jianmu.engine.answers import door_of, door_of_stored, json_copy, json_text
from jianmu.engine.interaction import Answer, InteractionController, Request, default, escalate, fail
from jianmu.errors import InvalidAnswerError, MissingExtraError, SetupError, TreeMismatchError
from tests.engine.asking import HandClock, loaded, origin


class Colour(enum.Enum):
    RED = "red"


class Person(BaseModel):
    name: str
    born: date
    tags: tuple[str, ...] = ()


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n


GOOD: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (float, 3, 3.0),
    (datetime, "2030-01-01T00:00:00Z", datetime(2030, 1, 1, tzinfo=UTC)),
    (date, "2030-01-01", date(2030, 1, 1)),
    (timedelta, "PT5S", timedelta(seconds=5)),
    (Decimal, "1.50", Decimal("1.50")),
    (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    (tuple[int, str], [1, "a"], (1, "a")),
    (set[int], [1, 2], {1, 2}),
    (Colour, "red", Colour.RED),
    (int | None, None, None),
    (Literal["a", "b"], "b", "b"),
    (
        Person,
        {"name": "Ann", "born": "1990-05-01", "tags": ["x"]},
        Person(name="Ann", born=date(1990, 5, 1), tags=("x",)),
    ),
    (list[Person], [{"name": "Ann", "born": "1990-05-01"}], [Person(name="Ann", born=date(1990, 5, 1))]),
    (None, None, None),
    ({"type": "integer"}, 3, 3),
    ({"type": "number"}, 3, 3),
    ({}, {"a": 1}, {"a": 1}),
    ({"type": "string", "format": "date-time"}, "2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),
    ({"enum": ["a", 1, None]}, None, None),
    ({"const": 1}, 1, 1),
    ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": 1}, {"n": 1}),
]
BAD: list[tuple[Any, Any]] = [
    (int, "3"),
    (int, 3.0),
    (int, True),
    (bool, 1),
    (bool, "true"),
    (str, 5),
    (str, None),
    (float, "3"),
    (datetime, 1893456000),
    (datetime, "tomorrow"),
    (tuple[int, str], [1]),
    (Colour, "RED"),
    (Person, {"name": "Ann"}),
    (Person, [1]),
    (Even, {"n": 3}),
    ({"type": "integer"}, True),
    ({"type": "integer"}, 3.0),
    ({"type": "null"}, 0),
    ({"type": "array"}, {}),
    ({"type": "object"}, []),
    ({"enum": [1]}, True),
    ({"enum": [1, 0]}, False),
    ({"type": "string", "format": "date"}, "soon"),
    ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 3.0}),
    ({"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}, {"at": "soon"}),
    ({"type": "string", "minLength": 3}, "ab"),
    ({"$ref": "http://127.0.0.1:9/never"}, 1),
]


@pytest.mark.parametrize(("kind", "payload", "value"), GOOD, ids=repr)
def test_what_a_json_client_can_send_is_taken(kind: Any, payload: Any, value: Any) -> None:
    """The door lets it in, and the node gets it as the type that was asked for."""
    door = door_of(kind)
    assert door.check(payload) is None
    assert door.read(payload) == value
    assert door_of_stored(json_copy(door.schema)).check(payload) is None


@pytest.mark.parametrize(("kind", "payload"), BAD, ids=repr)
def test_what_only_looks_like_it_is_refused(kind: Any, payload: Any) -> None:
    """Nothing is converted: the answer has the type or is refused, here and where only the schema is known."""
    door = door_of(kind)
    assert door.check(payload)
    if kind is not Even:  # its rule is code, which no schema has
        assert door_of_stored(json_copy(door.schema)).check(payload)


@pytest.mark.parametrize(
    "payload",
    [math.nan, {1, 2}, (1,), {1: "a"}, b"x", "\ud800", pytest.param(object(), id="object"), [math.inf]],
    ids=repr,
)
def test_only_json_is_an_answer(payload: Any) -> None:
    """A value without JSON form is refused when the answer is made, and not shown."""
    with pytest.raises(InvalidAnswerError, match="it is no JSON value"):
        Answer("q", payload)


@pytest.mark.parametrize(
    "arguments",
    [
        {"id": 3},
        {"id": "q", "action": "maybe"},
        {"id": "q", "by": 1},
        {"id": "q", "key": 1},
        {"id": "q", "metadata": {1}},
    ],
)
def test_an_answer_is_checked_when_it_is_made(arguments: dict[str, Any]) -> None:
    """Each wrong part is an InvalidAnswerError."""
    with pytest.raises(InvalidAnswerError):
        Answer(**arguments)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (int, "s3cret"),
        (Even, {"n": 31337}),
        (dict[str, int], {"s3cret": "s3cret"}),
        (UUID, "s3cret"),
        (list[Colour], ["s3cret"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"s3cret": "s3cret"}),
        ({"type": "string", "maxLength": 3}, "s3cret"),
        ({"enum": ["a"]}, "s3cret"),
    ],
    ids=repr,
)
async def test_a_refusal_says_what_is_wanted_and_quotes_nothing(kind: Any, payload: Any) -> None:
    """Neither the text nor the causes hold a piece of the answer; the text has the id and the schema."""
    desk = InteractionController(HandClock())
    record = desk.ask(origin(), Request("?", answer=kind))
    with pytest.raises(InvalidAnswerError) as refused:
        await desk.answer(Answer(record.id, payload))
    text = str(refused.value)
    assert record.id in text
    assert json.dumps(record.question.response_schema)[:290] in text
    assert "s3cret" not in text
    assert "31337" not in text
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_the_place_of_the_fault_is_told() -> None:
    """Fields that the schema names are named, with what is wrong there."""
    problem = door_of(Person).check({"name": 1, "born": "1990-05-01", "tags": ["a", 2]})
    assert problem == "at name: Input should be a valid string; at tags.1: Input should be a valid string"
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert door_of(schema).check({"n": "x"}) == "at $.n: type"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"message": 5}, "is a text or a function of the snapshot"),
        ({"answer": "int"}, "cannot be asked for"),
        ({"answer": open}, "cannot be asked for"),
        ({"answer": lambda: 1}, "cannot be asked for"),
        ({"answer": {"type": "nope"}}, "no valid JSON schema"),
        ({"answer": {"a": {1}}}, "no JSON schema"),
        ({"reason": ""}, r"reason=\.\.\."),
        ({"reason": None}, r"reason=\.\.\."),
        ({"key": ""}, r"key=\.\.\."),
        ({"assignee": 3}, r"assignee=\.\.\."),
        ({"data": {1}}, "has to be JSON; this is not: set"),
        ({"data": functools.reduce(lambda deep, _: [deep], range(195), 1)}, "nested deeper than"),
        ({"private": object()}, "has to be JSON; this is not: object"),
        ({"metadata": ["a"]}, "is a dict"),
        ({"expires": [5]}, r"escalate\(to, after\), fail\(after\), default\(value, after\)"),
        ({"expires": 5}, r"escalate\(to, after\)"),
        ({"expires": [fail(1), fail(2)]}, "has to be the last step"),
        ({"expires": [default("x", 1), escalate("a", 2)]}, "has to be the last step"),
        ({"expires": [escalate("a", 3e9), fail(3e9)]}, "more than 100 years"),
        ({"expires": [default(5, after=1)]}, "the default does not fit answer="),
    ],
)
def test_a_bad_request_is_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    """Each wrong part is a SetupError when the request is made."""
    with pytest.raises(SetupError, match=text):
        Request(**{"message": "?", **arguments})


@pytest.mark.parametrize("after", [-1, math.nan, math.inf, True, "5", None, 1e12])
def test_a_step_takes_seconds(after: Any) -> None:
    """Each kind of step refuses what is no number of seconds; escalate needs a name, default JSON."""
    for make in (lambda: fail(after), lambda: escalate("a", after), lambda: default(None, after)):
        with pytest.raises(SetupError, match="number of seconds"):
            make()
    with pytest.raises(SetupError, match="next assignee"):
        escalate("", 1)
    with pytest.raises(SetupError, match="needs a JSON value"):
        default({1}, 1)  # pyright: ignore[reportArgumentType]  # it is the mistake that is tested


def test_functions_of_a_request_are_checked_when_asked() -> None:
    """A message or data that cannot be shown is an error with the path, and nothing is asked."""
    desk = InteractionController(HandClock())
    functions: Any = (lambda _: 5, lambda _: {1})
    for request in (Request(functions[0]), Request("?", data=functions[1])):
        with pytest.raises(SetupError):
            desk.ask(origin(), request)
    assert desk.pending == ()


@pytest.mark.anyio
async def test_without_the_library_only_simple_schemas_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `jsonschema` a stored simple schema is checked, a harder one names the extra and changes nothing."""
    desk = InteractionController(HandClock())
    easy = desk.ask(origin("m/a"), Request("?", answer=int)).id
    hard = desk.ask(origin("m/b"), Request("?", answer=Person)).id
    new = loaded(desk, HandClock())
    real = importlib.import_module

    def without(name: str) -> Any:
        if name == "jsonschema":
            raise ImportError
        return real(name)

    monkeypatch.setattr(importlib, "import_module", without)
    person = {"name": "Ann", "born": "1990-05-01"}
    await new.answer(Answer(easy, 3))
    with pytest.raises(MissingExtraError, match=r"pip install 'jianmu\[cli\]'"):
        await new.answer(Answer(hard, person))
    assert new.record(hard).status == "open"
    new.attach_adapter(hard, Person)
    await new.answer(Answer(hard, person))
    assert new.deliver(hard) == Person(name="Ann", born=date(1990, 5, 1))


@pytest.mark.anyio
async def test_a_loaded_question_gets_its_type_again() -> None:
    """By attach_adapter, by the request at delivery, or by asking again; another shape is a TreeMismatchError."""
    desk = InteractionController(HandClock())
    request = Request("?", answer=Person)
    id = desk.ask(origin(), request).id
    person = {"name": "Ann", "born": "1990-05-01"}
    for adopt in (
        lambda new: new.attach_adapter(id, Person),
        lambda new: new.ask(origin(), request),
        lambda new: None,
    ):
        new = loaded(desk, HandClock())
        adopt(new)
        await new.answer(Answer(id, person))
        assert new.deliver(id, request) == Person(name="Ann", born=date(1990, 5, 1))
    with pytest.raises(TreeMismatchError, match="node 'main/ask' was asked for an answer of another shape") as refused:
        new.attach_adapter(id, int)
    assert refused.value.path == "main/ask"


def test_a_field_description_and_bounds_reach_the_schema() -> None:
    """The schema that is shown is the type's own."""

    class Bounded(BaseModel):
        n: int = Field(ge=1, description="how many")

    door = door_of(Bounded)
    assert door.schema["properties"]["n"]["description"] == "how many"
    assert door.check({"n": 0}) == "at n: greater_than_equal"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_is_copied_exactly(value: Any) -> None:
    """A JSON value comes back equal and of the same types, and is no part of the one given."""
    copy = json_copy(value)
    assert json_text(copy) == json_text(value)
    assert repr(copy) == repr(value)
    if isinstance(value, (list, dict)):
        assert copy is not value
