"""Messages in the provider library's form and back: nothing that a provider needs is lost, nothing else leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import messages as wire
from pydantic_ai.usage import RequestUsage

from jianmu.message import FilePart, ImagePart, Message, TextPart, ai, human, tool_result
from jianmu.model import ModelRequest, OutputSpec, Settings
from jianmu.model.translate import KEPT, Deltas, finish, wire_messages, wire_parameters, wire_settings
from jianmu.tool.types import ToolCall

THOUGHT = wire.ThinkingPart(
    "hm", id="r1", signature="c2lnbmVk", provider_name="anthropic", provider_details={"index": 3}
)
TEXT = st.text(max_size=8)
PARTS = st.lists(
    st.one_of(
        TEXT.map(wire.TextPart),
        st.just(THOUGHT),
        st.builds(
            wire.ToolCallPart,
            tool_name=st.sampled_from(["add", "find"]),
            args=st.sampled_from(['{"a":1}', "{}"]),
            tool_call_id=st.uuids().map(str),
            id=st.sampled_from([None, "fc1"]),
            provider_details=st.sampled_from([None, {"thought_signature": "xyz"}]),
        ),
    ),
    max_size=6,
)


def reply(*parts: wire.ModelResponsePart, **more: Any) -> wire.ModelResponse:
    """Return a reply as a provider of the library gives it."""
    return wire.ModelResponse(
        parts=list(parts),
        usage=RequestUsage(input_tokens=1),
        model_name="claude",
        provider_name="anthropic",
        provider_response_id="resp1",
        provider_details={"container": "c1"},
        **more,
    )


def stored(message: Message) -> Message:
    """Return a message as it comes back from a store."""
    return Message.model_validate_json(message.model_dump_json())


def back(message: Message) -> wire.ModelResponse:
    """Return what is sent of a reply with the next request."""
    (found,) = wire_messages([stored(message)])
    assert isinstance(found, wire.ModelResponse)
    return found


@given(PARTS)
def test_a_reply_goes_back_as_it_came(parts: list[wire.ModelResponsePart]) -> None:
    """Signatures, ids, details and the order of the parts survive storing and sending back."""
    sent = back(finish(reply(*parts)).message)
    assert [(type(part), _plain(part)) for part in sent.parts] == [(type(part), _plain(part)) for part in parts]
    assert (sent.provider_name, sent.provider_response_id, sent.provider_details) == (
        "anthropic",
        "resp1",
        {"container": "c1"},
    )


def test_a_text_is_not_kept_twice() -> None:
    """What a provider wants back is kept without the text and the calls' arguments, which the message has."""
    call = wire.ToolCallPart("add", '{"word": "rosebud"}', "c1")
    message = finish(reply(wire.TextPart("snowglobe"), call)).message
    assert message.metadata is not None
    assert list(message.metadata) == [KEPT]
    assert "snowglobe" not in str(message.metadata)
    assert "rosebud" not in str(message.metadata)


def test_an_edited_reply_goes_back_as_it_is_now() -> None:
    """When text or calls were changed, what was kept does not fit any more: the message counts."""
    message = finish(reply(THOUGHT, wire.TextPart("yes"), wire.ToolCallPart("add", "{}", "c1"))).message
    shorter = message.model_copy(update={"content": "no", "tool_calls": ()})
    assert [_plain(part) for part in back(shorter).parts] == [_plain(wire.TextPart("no"))]
    longer = message.model_copy(update={"content": "yes, surely"})
    assert [part.content for part in back(longer).parts if isinstance(part, wire.TextPart)] == ["yes, surely"]
    changed = message.model_copy(update={"tool_calls": (ToolCall(id="c1", name="add", arguments={"a": 2}),)})
    assert isinstance(back(changed).parts[-1], wire.ToolCallPart)
    assert back(changed).parts[-1].args == {"a": 2}


def test_a_kept_form_that_nobody_knows_is_left_aside() -> None:
    """Metadata of another version or another program does not break a conversation."""
    for kept in ({}, {"parts": 3}, {"parts": [{"part_kind": "new"}]}, "text", None):
        message = ai("hi", metadata={KEPT: kept})
        assert [_plain(part) for part in back(message).parts] == [_plain(wire.TextPart("hi"))]


def test_a_password_in_an_address_is_not_kept() -> None:
    """The address of a server with a password in it is not written into messages."""
    message = finish(reply(wire.TextPart("x"), provider_url="http://me:hidden@localhost/v1")).message
    assert "hidden" not in message.model_dump_json()


def test_images_and_files_are_sent_by_reference_or_read(tmp_path: Path) -> None:
    """What has an address is fetched by the provider; what is on this machine is read."""
    path = tmp_path / "dot.png"
    path.write_bytes(b"png")
    parts = [
        "look",
        ImagePart(url="https://example.org/cat.png"),
        FilePart(url="https://example.org/a.pdf"),
        ImagePart(path=str(path)),
    ]
    (request,) = wire_messages([human(parts)])
    (prompt,) = request.parts
    assert isinstance(prompt, wire.UserPromptPart)
    text, image, document, read = prompt.content
    assert text == "look"
    assert isinstance(image, wire.ImageUrl)
    assert isinstance(document, wire.DocumentUrl)
    assert isinstance(read, wire.BinaryContent)
    assert (read.data, read.media_type) == (b"png", "image/png")


def test_results_stand_behind_their_calls() -> None:
    """Results name the tool that was called, and say whether they failed; neighbours are one request."""
    calls = [ToolCall(id="1", name="add"), ToolCall(id="2", name="find")]
    messages = [ai(tool_calls=calls), tool_result("1", [TextPart(text="x")]), tool_result("2", "no", is_error=True)]
    response, request = wire_messages([*messages, human("well?")])
    assert isinstance(response, wire.ModelResponse)
    first, second, prompt = request.parts
    assert isinstance(first, wire.ToolReturnPart)
    assert isinstance(second, wire.ToolReturnPart)
    assert (first.tool_name, first.content, first.outcome) == ("add", ["x"], "success")
    assert (second.tool_name, second.content, second.outcome) == ("find", "no", "failed")
    assert isinstance(prompt, wire.UserPromptPart)


def test_only_settings_that_were_made_are_sent() -> None:
    """What is None is left to the provider; the library's own attempts are always off; `extra` goes along."""
    assert wire_settings(Settings()) == {"max_retries": 0}
    made = wire_settings(Settings(temperature=0.0, thinking=False, tool_choice="add", extra={"openai_user": "u"}))
    assert made == {
        "temperature": 0.0,
        "thinking": False,
        "tool_choice": ["add"],
        "openai_user": "u",
        "max_retries": 0,
    }


def test_a_schema_is_put_into_the_prompt_where_the_provider_has_no_other_way() -> None:
    """The form of the output is native where it can be."""
    request = ModelRequest([], output=OutputSpec({"type": "object"}))
    assert [wire_parameters(request, is_native).output_mode for is_native in (True, False)] == ["native", "prompted"]


def test_calls_that_come_whole_are_one_fragment() -> None:
    """A provider that sends arguments as an object yields their JSON; the calls of one reply are numbered."""
    deltas = Deltas()
    events = [
        wire.PartStartEvent(index=0, part=wire.TextPart("")),
        wire.PartStartEvent(index=1, part=wire.ToolCallPart("add", {"a": 1}, "c1")),
        wire.PartStartEvent(index=4, part=wire.ToolCallPart("add", None, "c2")),
        wire.PartDeltaEvent(index=4, delta=wire.ToolCallPartDelta(args_delta={"a": 2})),
    ]
    found = [delta for event in events if (delta := deltas.read(event)) is not None]
    assert [(delta.text, delta.number) for delta in found] == [('{"a": 1}', 0), ("", 1), ('{"a": 2}', 1)]


def test_a_price_is_told_where_it_is_known() -> None:
    """What a provider says counts first, then the price list; else the cost is None."""
    from decimal import Decimal

    known = reply(wire.TextPart("x"))
    known.usage = RequestUsage(input_tokens=1, cost=Decimal("0.25"))
    assert finish(known).usage.cost == 0.25
    listed = wire.ModelResponse(
        parts=[], usage=RequestUsage(input_tokens=1000), model_name="gpt-4o", provider_name="openai"
    )
    assert (finish(listed).usage.cost or 0) > 0
    assert finish(wire.ModelResponse(parts=[], model_name="nobody-knows")).usage.cost is None


def _plain(part: Any) -> dict[str, Any]:
    """Return what counts of a part; arguments as a dict."""
    data = {name: value for name, value in vars(part).items() if value is not None}
    if isinstance(part, wire.ToolCallPart):
        data["args"] = part.args_as_dict()
    return data
