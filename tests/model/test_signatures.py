"""Other protocols than OpenAI's chat, on loopback: what a provider signs comes back to it as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jianmu.errors import ModelUnavailableError, RateLimitedError
from jianmu.message import Message, human, tool_result
from jianmu.model import Delta, Finish, ModelRequest, ToolSpec, complete, lookup
from tests.model.server import Answer, serving

pytestmark = pytest.mark.anyio
THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
CALL = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
TOOLS = [ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})]


def events(*items: dict[str, Any]) -> list[str]:
    """Return events as Anthropic's protocol and OpenAI's Responses have them: with a name."""
    return [f"event: {item['type']}\ndata: {json.dumps(item)}\n\n" for item in items]


def started(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of one block of a reply."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-5-5",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 1},
}
ANTHROPIC = events(
    {"type": "message_start", "message": MESSAGE},
    *started(
        0, THOUGHT, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}
    ),
    *started(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "one moment"}),
    *started(2, CALL, {"type": "input_json_delta", "partial_json": '{"a": 1}'}),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    },
    {"type": "message_stop"},
)


async def test_a_signature_comes_back_to_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reasoning, its signature, text and call go back in their order, after the message was stored as JSON."""
    async with serving(Answer(ANTHROPIC, done=""), Answer(ANTHROPIC, done="")) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        model = lookup("anthropic:claude-haiku-5-5", api_key="k")
        async with model.stream(ModelRequest([human("1?")], TOOLS)) as stream:
            *deltas, end = [event async for event in stream]
        assert isinstance(end, Finish)
        stored = Message.model_validate_json(end.message.model_dump_json())
        await complete(model, ModelRequest([human("1?"), stored, tool_result("t1", "1")], TOOLS))
    assert [(delta.kind, delta.text) for delta in deltas if isinstance(delta, Delta) and delta.text] == [
        ("reasoning", "hm"),
        ("text", "one moment"),
        ("call", '{"a": 1}'),
    ]
    assert (end.reason, end.usage.input_tokens, end.usage.output_tokens) == ("tool_calls", 9, 5)
    thought, text, call = server.requests[1]["messages"][1]["content"]
    assert (thought["thinking"], thought["signature"]) == ("hm", "c2ln")
    assert text["text"] == "one moment"
    assert (call["id"], call["input"]) == ("t1", {"a": 1})
    assert server.requests[1]["messages"][2]["content"][0]["tool_use_id"] == "t1"


async def test_errors_of_anthropic_have_their_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rate limits and its overload are told apart, with the seconds to wait."""
    limited = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    answers = [
        Answer(status=429, headers={"retry-after": "4"}, body=limited),
        Answer(status=529, body=overloaded),
    ]
    async with serving(*answers) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        model = lookup("anthropic:claude-haiku-5-5", api_key="k")
        with pytest.raises(RateLimitedError) as found:
            await complete(model, ModelRequest([human("hello")]))
        assert found.value.retry_after == 4
        with pytest.raises(ModelUnavailableError):
            await complete(model, ModelRequest([human("hello")]))
    assert len(server.requests) == 2


REASONING = {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "enc0", "status": "completed"}
SPOKEN = {
    "type": "message",
    "id": "msg1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "yes", "annotations": []}],
}


def responses() -> list[str]:
    """Return a reply of OpenAI's Responses protocol, with encrypted reasoning."""
    base = {
        "id": "resp1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "in_progress",
    }
    usage = {
        "input_tokens": 9,
        "output_tokens": 5,
        "total_tokens": 14,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    part = {"type": "output_text", "text": "", "annotations": []}
    items: list[dict[str, Any]] = [
        {"type": "response.created", "response": base},
        {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "encrypted_content": None}},
        {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
        {"type": "response.output_item.added", "output_index": 1, "item": {**SPOKEN, "content": []}},
        {"type": "response.content_part.added", "item_id": "msg1", "output_index": 1, "content_index": 0, "part": part},
        {
            "type": "response.output_text.delta",
            "item_id": "msg1",
            "output_index": 1,
            "content_index": 0,
            "delta": "yes",
            "logprobs": [],
        },
        {"type": "response.output_item.done", "output_index": 1, "item": SPOKEN},
        {
            "type": "response.completed",
            "response": {**base, "status": "completed", "output": [REASONING, SPOKEN], "usage": usage},
        },
    ]
    return events(*({**item, "sequence_number": number} for number, item in enumerate(items)))


async def test_encrypted_reasoning_comes_back_to_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Responses protocol gets its encrypted reasoning and the ids of its items back; cached tokens are counted."""
    async with serving(Answer(responses(), done=""), Answer(responses(), done="")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = lookup("openai:gpt-5", api_key="k")
        end = await complete(model, ModelRequest([human("hello")]))
        stored = Message.model_validate_json(end.message.model_dump_json())
        await complete(model, ModelRequest([human("hello"), stored, human("sure?")]))
    assert (end.message.content, end.reason) == ("yes", "stop")
    assert (end.usage.cache_read_tokens, end.usage.reasoning_tokens) == (4, 3)
    sent = [item for item in server.requests[1]["input"] if item.get("type") == "reasoning"]
    assert [(item["id"], item["encrypted_content"]) for item in sent] == [("r1", "enc0")]
