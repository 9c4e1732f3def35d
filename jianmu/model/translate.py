"""Messages in the provider library's form, and replies in jianmu's.

What only the provider of a reply needs to get back (signatures of its reasoning, ids, the order of the parts) is kept
in the message's metadata under `KEPT`, without the text and the calls, which the message has anyway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast  # Any: JSON

from jianmu.message import Message, Usage, ai
from jianmu.model.base import Delta, Finish, ModelRequest, OutputSpec, Reason, Settings
from jianmu.tool.types import ImageBytes, ImagePart, Part, TextPart, ToolCall

if TYPE_CHECKING:  # an extra: it may be absent
    from pydantic_ai import messages as wire
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
KEPT = "provider"
"""The key of a message's metadata under which a provider's own data is."""

REASONS: Mapping[str | None, Reason] = {"tool_call": "tool_calls", "length": "length", "error": "error"}
LOSE = ("usage", "timestamp", "model_id", "run_id", "conversation_id", "metadata", "state", "kind", "failed_attempts")
"""What a response carries that is nothing for the next request."""


def wire_messages(messages: Sequence[Message]) -> list[wire.ModelMessage]:
    """Return a conversation as requests and responses by turns."""
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    names = {call.id: _named(call) for message in messages for call in message.tool_calls}
    found: list[wire.ModelMessage] = []
    for message in messages:
        if message.role == "ai":
            found.append(_response(message))
            continue
        part = _request_part(message, names)
        if found and isinstance(last := found[-1], wire.ModelRequest):
            found[-1] = replace(last, parts=[*last.parts, part])
        else:
            found.append(wire.ModelRequest(parts=[part]))
    return found


def wire_parameters(request: ModelRequest, is_native: bool) -> ModelRequestParameters:
    """Return a request's tools and the form of its output.

    Args:
        request: the request.
        is_native: whether the provider holds the reply to a schema; else the schema is put into the prompt.
    """
    from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415  # an extra
    from pydantic_ai.tools import ToolDefinition  # noqa: PLC0415  # an extra

    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema))
        for tool in request.tools
    ]
    if request.output is None:
        return ModelRequestParameters(function_tools=tools)
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if is_native else "prompted",
        output_object=_output(request.output),
    )


def wire_settings(settings: Settings) -> ModelSettings:
    """Return the settings that were made; the library's own attempts are none: jianmu tries again itself."""
    named = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop_sequences": list(settings.stop) or None,
        "thinking": settings.thinking,
        "tool_choice": _choice(settings.tool_choice),
        "request_timeout": settings.timeout,
        "first_event_timeout": settings.first_token,
        **settings.extra,
        "max_retries": 0,
    }
    return cast("ModelSettings", {name: value for name, value in named.items() if value is not None})


class Deltas:
    """Turns the library's events into deltas; it numbers the tool calls of one reply."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def read(self, event: wire.ModelResponseStreamEvent) -> Delta | None:
        """Return what an event adds to the reply, or None."""
        from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

        match event:
            case (
                wire.PartStartEvent(part=wire.TextPart(content=text))
                | wire.PartDeltaEvent(delta=wire.TextPartDelta(content_delta=text))
            ) if text:
                return Delta(text)
            case (
                wire.PartStartEvent(part=wire.ThinkingPart(content=text))
                | wire.PartDeltaEvent(delta=wire.ThinkingPartDelta(content_delta=text))
            ) if text:
                return Delta(text, "reasoning")
            case wire.PartStartEvent(index=index, part=wire.ToolCallPart() as call):
                number = self._numbers.setdefault(index, len(self._numbers))
                return Delta(_fragment(call.args), "call", number, call.tool_call_id, call.tool_name)
            case wire.PartDeltaEvent(index=index, delta=wire.ToolCallPartDelta(args_delta=arguments)) if arguments:
                return Delta(_fragment(arguments), "call", self._numbers.get(index, 0))
            case _:
                return None


def finish(response: wire.ModelResponse) -> Finish:
    """Return the end of a reply."""
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    texts = [part.content for part in response.parts if isinstance(part, wire.TextPart)]
    calls = tuple(_call(part) for part in response.parts if isinstance(part, wire.ToolCallPart))
    usage = _usage(response)
    message = ai("".join(texts), tool_calls=calls, usage=usage, metadata={KEPT: _kept(response)})
    reason = "tool_calls" if calls and response.finish_reason == "stop" else _reason(response.finish_reason)
    return Finish(message, usage, reason, response.model_name or "")


def _reason(reason: str | None) -> Reason:
    if reason == "content_filter":
        return "content_filter"
    return REASONS.get(reason, "stop")


def _request_part(message: Message, names: Mapping[str, str]) -> wire.ModelRequestPart:
    """Return a message of anybody but the model."""
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    content = message.content if isinstance(message.content, str) else [_item(part) for part in message.content]
    if message.role == "system":
        return wire.SystemPromptPart(content=message.text)
    if message.tool_call_id is None:
        return wire.UserPromptPart(content=content)
    return wire.ToolReturnPart(
        tool_name=names.get(message.tool_call_id) or message.name or "unknown",
        content=content,
        tool_call_id=message.tool_call_id,
        outcome="failed" if message.is_error else "success",
    )


def _item(part: Part) -> str | wire.ImageUrl | wire.DocumentUrl | wire.BinaryContent:
    """Return a part; a file on this machine is read, others are fetched by the provider."""
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ImageBytes):
        return wire.BinaryContent(part.data, media_type=part.mime_type or "image/png")
    if part.path is not None:
        read = wire.BinaryContent.from_path(Path(part.path))
        return read if part.mime_type is None else replace(read, media_type=part.mime_type)
    link = wire.ImageUrl if isinstance(part, ImagePart) else wire.DocumentUrl
    return link(url=part.url or "", media_type=part.mime_type)


def _response(message: Message) -> wire.ModelResponse:
    """Return a reply as its provider wants it back; one that was edited since has no more than its text and calls."""
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    kept: Any = (message.metadata or {}).get(KEPT)
    if kept:
        try:
            return _restored(kept, message)
        except (LookupError, TypeError, ValueError, AttributeError):  # edited, or kept by another version
            pass
    text = [wire.TextPart(content=message.text)] if message.text else []
    return wire.ModelResponse(parts=[*text, *(_call_part(call) for call in message.tool_calls)])


def _kept(response: wire.ModelResponse) -> dict[str, Any]:
    """Return what only the provider needs to get back: the response without what the message has."""
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    data: dict[str, Any] = wire.ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    kept = {name: value for name, value in data.items() if value is not None and name not in LOSE}
    if "@" in kept.get("provider_url", ""):  # somebody's password may be in it
        del kept["provider_url"]
    kept["parts"] = [_slim(part) for part in data["parts"]]
    return kept


def _slim(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part without text or arguments; a text leaves its length behind."""
    slim = {name: value for name, value in part.items() if value is not None}
    if part["part_kind"] == "text":
        slim["content"] = len(part["content"])
    if part["part_kind"] == "tool-call":
        slim.pop("args", None)
    return slim


def _restored(kept: Mapping[str, Any], message: Message) -> wire.ModelResponse:
    """Return a reply with the message's text and calls put into what was kept.

    Raises:
        ValueError: they do not fit; other errors: what was kept has another form.
    """
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    slim, calls = kept["parts"], {call.id: _call_part(call) for call in message.tool_calls}
    length = sum(part["content"] for part in slim if part["part_kind"] == "text")
    ids = [part["tool_call_id"] for part in slim if part["part_kind"] == "tool-call"]
    if length != len(message.text) or ids != [call.id for call in message.tool_calls]:
        raise ValueError("edited")
    data = [{**kept, "kind": "response", "parts": list(_filled(slim, message.text, calls))}]
    return cast("wire.ModelResponse", wire.ModelMessagesTypeAdapter.validate_python(data)[0])


def _filled(
    slim: Sequence[Mapping[str, Any]], text: str, calls: Mapping[str, wire.ToolCallPart]
) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a reply, whole again."""
    at = 0
    for part in slim:
        if part["part_kind"] == "text":
            yield {**part, "content": text[at : at + part["content"]]}
            at += part["content"]
        elif part["part_kind"] == "tool-call":
            call = calls[part["tool_call_id"]]
            yield {**part, "tool_name": call.tool_name, "args": call.args}
        else:
            yield part


def _call(part: wire.ToolCallPart) -> ToolCall:
    """Return a call; arguments that are no JSON object stay as the model wrote them."""
    return ToolCall.parse(part.tool_call_id, part.tool_name, _fragment(part.args))


def _call_part(call: ToolCall) -> wire.ToolCallPart:
    from pydantic_ai import messages as wire  # noqa: PLC0415  # an extra

    return wire.ToolCallPart(_named(call), call.arguments if call.raw is None else call.raw, call.id)


def _named(call: ToolCall) -> str:
    """Return a call's tool as providers take it; a model may have called one by a name that none can have."""
    return _NO_NAME.sub("_", call.name)[:64] or "unknown"


def _usage(response: wire.ModelResponse) -> Usage:
    """Return what a reply cost; the price is None where nobody knows it."""
    counted = response.usage
    cost = None if counted.cost is None else float(counted.cost)
    if cost is None and response.model_name:
        try:
            cost = float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):  # the price list does not have the model
            cost = None
    return Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cache_read_tokens=counted.cache_read_tokens,
        cache_write_tokens=counted.cache_write_tokens,
        reasoning_tokens=counted.output_reasoning_tokens,
        cost=cost,
    )


def _output(output: OutputSpec) -> Any:  # Any: the library's OutputObjectDefinition
    from pydantic_ai.output import OutputObjectDefinition  # noqa: PLC0415  # an extra

    return OutputObjectDefinition(
        json_schema=dict(output.schema), name=output.name, description=output.description or None
    )


def _choice(choice: str | None) -> str | list[str] | None:
    return choice if choice is None or choice in {"auto", "none", "required"} else [choice]


def _fragment(arguments: object) -> str:
    """Return arguments as JSON text; a provider that sends them whole has them as an object."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
