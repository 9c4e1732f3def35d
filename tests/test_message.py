"""Messages and tool calls: frozen, with ids minted once."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue, ValidationError

from jianmu.engine.state import StateManager
from jianmu.message import FilePart, ImagePart, Message, TextPart, Usage, ai, human, system, tool_result
from jianmu.tool.types import ToolCall, ToolResult

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
PARTS = st.one_of(
    st.builds(TextPart, text=TEXTS),
    st.builds(ImagePart, path=TEXTS, mime_type=st.none() | TEXTS),
    st.builds(FilePart, url=TEXTS.map("https://{}".format), name=st.none() | TEXTS),
)
CONTENTS = TEXTS | st.lists(PARTS, max_size=3).map(tuple)
CALLS = st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=OBJECTS) | st.builds(
    ToolCall, id=TEXTS, name=TEXTS, raw=TEXTS
)
COUNTS = st.integers(0, 2**40)
USAGES = st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS, cost=st.none() | st.floats(0, 1e6))
MESSAGES = st.one_of(
    st.builds(human, CONTENTS, name=st.none() | TEXTS, metadata=st.none() | OBJECTS),
    st.builds(ai, CONTENTS, tool_calls=st.lists(CALLS, max_size=2), usage=st.none() | USAGES, metadata=OBJECTS),
    st.builds(tool_result, TEXTS, CONTENTS | JSON, is_error=st.booleans()),
)


@given(MESSAGES)
def test_a_message_is_the_same_after_json(message: Message) -> None:
    """Whatever is in a message, metadata and signatures of providers among it, comes back from JSON as it was."""
    again = Message.model_validate_json(message.model_dump_json())
    assert again == message
    assert again.model_dump_json() == message.model_dump_json()
    assert Message.model_validate(message.model_dump(mode="json")) == message


@given(MESSAGES)
def test_a_message_is_the_same_after_the_state(message: Message) -> None:
    """It goes through the state, and through the state's record, as it was."""

    class Talk(BaseModel):
        messages: Annotated[list[Message], operator.add] = []

    manager, loaded = StateManager(Talk), StateManager(Talk)
    manager.update({"messages": [message]})
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert manager.get().messages == loaded.get().messages == [message]


def test_each_function_makes_its_role() -> None:
    """human, ai, system and tool_result differ by their role and what belongs to it."""
    call = ToolCall(id="c1", name="look", arguments={"q": [1]})
    made = [human("h"), ai("a", tool_calls=[call]), system("s"), tool_result("c1", "found")]
    assert [message.role for message in made] == ["human", "ai", "system", "tool"]
    assert [message.content for message in made] == ["h", "a", "s", "found"]
    assert made[1].tool_calls == (call,)
    assert made[3].tool_result == ToolResult(call_id="c1", content="found", is_error=False)
    assert tool_result("c1", {"rows": 2}, is_error=True).tool_result == ToolResult(
        call_id="c1", content={"rows": 2}, is_error=True
    )
    assert human([{"type": "text", "text": "x"}], name="ann").content == (TextPart(text="x"),)


def test_ids_are_minted_when_a_message_is_made() -> None:
    """Every message has its own id, which validation, dumping and loading keep."""
    first, second = human("x"), human("x")
    assert first.id != second.id
    assert human("x", id="mine").id == "mine"
    assert Message.model_validate_json(first.model_dump_json()) == first


@pytest.mark.parametrize("model", [human("x"), ToolCall(id="1", name="t"), ToolResult(call_id="1")])
def test_they_are_frozen(model: BaseModel) -> None:
    """Nothing can be assigned."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(model, next(iter(type(model).model_fields)), "other")


def test_an_unknown_role_is_refused() -> None:
    """There are four roles."""
    with pytest.raises(ValidationError, match="role"):
        Message(role="user", content="x")


def test_a_message_without_an_id_keeps_the_one_it_got_in_the_state() -> None:
    """An id that is minted when a dict is written is the same after a later write, saving and loading."""

    class Talk(BaseModel):
        messages: Annotated[list[Message], operator.add] = []

    manager = StateManager(Talk)
    manager.attach_store_check()
    manager.update({"messages": [{"role": "human", "content": "x"}]})
    minted = manager.get().messages[0].id
    manager.update({"messages": [ai("y")]})
    loaded = StateManager(Talk)
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert minted
    assert manager.get().messages[0].id == loaded.get().messages[0].id == minted


def test_parts_are_given_as_they_come() -> None:
    """A content takes texts, parts and JSON objects, one or several; `text` has the texts."""
    cat = ImagePart(path=Path("pictures/cat.png"), mime_type="image/png")
    assert cat.path == "pictures/cat.png"
    assert human(cat).content == (cat,)
    mixed = human(["What is", cat, {"type": "file", "url": "https://x/y.pdf", "name": "y"}, TextPart(text="this?")])
    assert mixed.content == (
        TextPart(text="What is"),
        cat,
        FilePart(url="https://x/y.pdf", name="y"),
        TextPart(text="this?"),
    )
    assert mixed.text == "What is\nthis?"
    assert human("plain").text == "plain"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"type": "image"}, "either url= or path="),
        ({"type": "image", "url": "https://x", "path": "y"}, "either url= or path="),
        ({"type": "image", "url": "DATA:image/png;base64,AAAA"}, "save the bytes"),
        ({"type": "image", "path": "x", "data": "AAAA"}, "Extra inputs"),
        ({"type": "sound", "path": "x"}, "sound"),
        (b"bytes", "content"),
    ],
)
def test_bytes_and_broken_references_are_refused(given: Any, problem: str) -> None:
    """An image has one place, and is never in the message itself."""
    with pytest.raises(ValidationError, match=problem):
        human(given if isinstance(given, bytes) else [given])


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "human", "tool_calls": [{"id": "1", "name": "t"}]},
        {"role": "tool"},
        {"role": "ai", "tool_call_id": "1"},
        {"role": "ai", "id": ""},
        {"role": "ai", "contnet": "x"},
        {"role": "ai", "metadata": {"x": float("nan")}},
        {"role": "ai", "metadata": {"x": object()}},
    ],
)
def test_what_does_not_fit_a_role_is_refused(fields: dict[str, Any]) -> None:
    """Calls are the model's, a result names its call, and what has no JSON form or no name gets nowhere."""
    with pytest.raises(ValidationError):
        Message(**fields)


def test_half_characters_do_no_harm() -> None:
    """What a cut escape leaves behind can be stored: halves become one character, or a sign that one is missing."""
    message = ai("\ud83d\ude00 \ud83d")
    assert message.content == "\U0001f600 \ufffd"
    assert Message.model_validate_json(message.model_dump_json()) == message


@pytest.mark.parametrize(
    ("text", "arguments", "raw"),
    [
        ('{"a": [1, "x"]}', {"a": [1, "x"]}, None),
        ("", {}, None),
        ("  ", {}, None),
        ('{"a": 1', {}, '{"a": 1'),
        ("[1]", {}, "[1]"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ('{"a": "\\ud83d"}', {}, '{"a": "\\ud83d"}'),
    ],
)
def test_arguments_are_read_as_the_model_writes_them(text: str, arguments: Any, raw: str | None) -> None:
    """A JSON object is the arguments; anything else is kept as it was written."""
    call = ToolCall.parse("1", "t", text)
    assert (call.arguments, call.raw) == (arguments, raw)
    assert ToolCall.model_validate_json(call.model_dump_json()) == call


def test_usages_add_up() -> None:
    """Counts are added; a cost is known as soon as one is."""
    both = Usage(input_tokens=3, output_tokens=1) + Usage(input_tokens=4, cache_read_tokens=2, cost=0.5)
    assert both == Usage(input_tokens=7, output_tokens=1, cache_read_tokens=2, cost=0.5)
    assert both.tokens == 8
    assert (Usage() + Usage()).cost is None


def test_costs_that_no_number_holds_are_refused() -> None:
    """A sum is as finite as what is added: JSON has no other numbers."""
    with pytest.raises(ValidationError):
        Usage(cost=1e308) + Usage(cost=1e308)


def test_what_a_usage_has_beside_the_counts_is_not_added() -> None:
    """A model may tell more in a class of its own: the sum is a Usage, on whichever side it stands."""

    class More(Usage):
        audio_tokens: int = 0

    more = More(input_tokens=3, audio_tokens=5)
    for both in (more + Usage(requests=1), Usage(requests=1) + more):
        assert both == Usage(input_tokens=3, requests=1)
        assert Usage.model_validate_json(both.model_dump_json()) == both


def test_a_result_of_no_json_form_is_no_message() -> None:
    """The text names the kind of value and holds nothing of it."""
    with pytest.raises(ValueError, match=r"^object has no JSON form$"):
        tool_result("1", object())
    with pytest.raises(ValueError, match="bytes have no JSON form"):
        tool_result("1", b"secret")
    assert human("x").tool_result is None
