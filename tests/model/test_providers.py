"""The real adapter against a real server on loopback that speaks the OpenAI protocol, well and badly."""

from __future__ import annotations

import gc
import warnings
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from jianmu.errors import (
    BadReplyError,
    BadRequestError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    RateLimitedError,
    SetupError,
)
from jianmu.message import Message, ai, human, system, tool_result
from jianmu.model import (
    Again,
    ChatModel,
    Delta,
    Event,
    Finish,
    ModelRequest,
    OutputSpec,
    Retrying,
    Settings,
    ToolSpec,
    complete,
    lookup,
)
from jianmu.tool.types import ToolCall
from tests.model.server import Answer, called, chunk, said, serving

pytestmark = pytest.mark.anyio
HELLO = ModelRequest([human("hello")])
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})


async def read(model: ChatModel, request: ModelRequest = HELLO) -> list[Event]:
    """Return all events of a reply."""
    with anyio.fail_after(20):
        async with model.stream(request) as events:
            return [event async for event in events]


async def failure(model: ChatModel, request: ModelRequest = HELLO) -> ModelError:
    """Return the error that a request ends with."""
    with pytest.raises(ModelError) as found:
        await read(model, request)
    return found.value


async def test_a_reply_comes_piece_by_piece_and_then_whole() -> None:
    """Each chunk is a delta; the Finish has the message, its usage, and the reason."""
    async with serving(Answer(said("Hel", "lo"))) as server:
        *deltas, end = await read(server.model())
    assert deltas == [Delta("Hel"), Delta("lo")]
    assert isinstance(end, Finish)
    assert (end.message.role, end.message.content, end.reason, end.model) == ("ai", "Hello", "stop", "small")
    assert (end.usage.input_tokens, end.usage.output_tokens, end.usage.cost) == (7, 2, None)
    assert end.message.usage == end.usage


async def test_tool_calls_come_in_fragments() -> None:
    """The fragments of several calls are told apart by their number; the message has the calls, parsed."""
    answer = [*called(0, "c1", "add", '{"a":', " 1}"), *called(1, "c2", "add", '{"a": 2}'), *said(finish="tool_calls")]
    async with serving(Answer(answer)) as server:
        *deltas, end = await read(server.model(), ModelRequest([human("1 + 2")], [ADD]))
    assert deltas == [
        Delta("", "call", 0, "c1", "add"),
        Delta('{"a":', "call", 0),
        Delta(" 1}", "call", 0),
        Delta("", "call", 1, "c2", "add"),
        Delta('{"a": 2}', "call", 1),
    ]
    assert isinstance(end, Finish)
    assert end.reason == "tool_calls"
    assert [(call.id, call.arguments) for call in end.message.tool_calls] == [("c1", {"a": 1}), ("c2", {"a": 2})]


async def test_arguments_that_are_no_json_object_stay_as_they_are() -> None:
    """A call with bad JSON is kept, with the text as the model wrote it, and goes back to the provider."""
    async with serving(
        Answer([*called(0, "c1", "add", "{bad"), *said(finish="tool_calls")]), Answer(said("ok"))
    ) as server:
        model = server.model()
        first = await complete(model, HELLO)
        (call,) = first.message.tool_calls
        assert (call.arguments, call.raw) == ({}, "{bad")
        await complete(
            model, ModelRequest([human("hello"), first.message, tool_result("c1", "no JSON", is_error=True)])
        )
    assert "{bad" in server.requests[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]


async def test_a_conversation_arrives_as_the_protocol_wants_it() -> None:
    """System prompts, people, replies with calls, results and tools have their places in the body."""
    call = ToolCall(id="c1", name="add", arguments={"a": 1})
    messages = [system("be short"), human("1?"), ai(tool_calls=[call]), tool_result("c1", {"sum": 1}), human("and?")]
    settings = Settings(temperature=0.5, max_tokens=9, stop=["END"], seed=3, tool_choice="add")
    async with serving(Answer(said("1"))) as server:
        await complete(server.model(), ModelRequest(messages, [ADD], settings=settings))
    (body,) = server.requests
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["messages"][2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}
    assert (body["messages"][3]["tool_call_id"], body["messages"][3]["content"]) == ("c1", '{"sum":1}')
    assert (body["tools"][0]["function"]["name"], body["tools"][0]["function"]["description"]) == (
        "add",
        "Add two numbers.",
    )
    assert body["tool_choice"] == "required"  # there is one tool
    assert (body["temperature"], body["max_completion_tokens"], body["stop"], body["seed"]) == (0.5, 9, ["END"], 3)


async def test_a_schema_for_the_reply_is_sent_along() -> None:
    """With an OutputSpec the provider is asked for JSON that fits the schema; the reply's text is that JSON."""
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    async with serving(Answer(said('{"sum":', " 3}"))) as server:
        end = await complete(server.model(), ModelRequest([human("1+2")], output=OutputSpec(schema, name="sum")))
    form = server.requests[0]["response_format"]
    assert (form["type"], form["json_schema"]["name"]) == ("json_schema", "sum")
    assert form["json_schema"]["schema"]["properties"] == schema["properties"]
    assert end.message.content == '{"sum": 3}'


async def test_reasoning_is_told_apart_and_goes_back() -> None:
    """Reasoning comes as deltas of its own, is no part of the content, and is sent back with the next request."""
    thought = chunk({"reasoning_content": "hmm"})
    async with serving(Answer([thought, *said("yes")]), Answer(said("ok"))) as server:
        model = server.model()
        *deltas, end = await read(model)
        assert isinstance(end, Finish)
        assert deltas == [Delta("hmm", "reasoning"), Delta("yes")]
        assert end.message.content == "yes"
        stored = Message.model_validate_json(end.message.model_dump_json())
        await complete(model, ModelRequest([human("hello"), stored, human("sure?")]))
    back = server.requests[1]["messages"][1]
    assert (back["content"], back["reasoning_content"]) == ("yes", "hmm")


ERRORS: list[tuple[int, Any, type[ModelError], bool]] = [
    (400, {"code": "context_length_exceeded", "message": "too long"}, ContextTooLongError, False),
    (400, {"code": "content_filter", "message": "secret words"}, ModelRefusedError, False),
    (400, {"message": "no such parameter"}, BadRequestError, False),
    (401, {"message": "no key"}, BadRequestError, False),
    (404, {"code": "model_not_found", "message": "no model"}, BadRequestError, False),
    (409, {"message": "conflict"}, ModelUnavailableError, True),
    (429, {"message": "slow down"}, RateLimitedError, True),
    (429, {"code": "insufficient_quota", "message": "pay"}, RateLimitedError, False),
    (500, {"message": "oops"}, ModelUnavailableError, True),
    (503, {"message": "later"}, ModelUnavailableError, True),
]


@pytest.mark.parametrize(("status", "error", "family", "passes"), ERRORS)
async def test_an_error_of_the_provider_has_its_family(
    status: int, error: Any, family: type[ModelError], passes: bool
) -> None:
    """The class says whose fault it is, `is_transient` whether it passes; the text has nothing the provider said."""
    async with serving(Answer(status=status, body={"error": error})) as server:
        found = await failure(server.model())
    assert (type(found), found.is_transient, found.retry_after) == (family, passes, None)
    assert f"status {status}" in str(found)
    assert error["message"] not in str(found)
    assert error["message"] in found.detail
    assert len(server.requests) == 1, "the library below must not try again by itself"


async def test_a_rate_limit_says_when_to_come_back() -> None:
    """Retry-After is the error's hint, and a Retrying waits for that long and goes on."""
    limited = Answer(status=429, headers={"Retry-After": "3"}, body={"error": {"message": "slow down"}})
    async with serving(limited, limited, Answer(said("ok"))) as server:
        assert (await failure(server.model())).retry_after == 3
        model = Retrying(server.model(), longest=1)
        assert (await failure(model)).retry_after == 3
        assert len(server.requests) == 2


async def test_faults_of_a_server_are_tried_again() -> None:
    """A 500 and a cut connection before any text are followed by another attempt, announced by Again."""
    broken = [Answer(status=500), Answer([], cut=True)]
    async with serving(*broken, Answer(said("ok"))) as server:
        first, second, *rest = await read(Retrying(server.model(), backoff=0))
    assert [type(first), type(second)] == [Again, Again]
    assert rest[0] == Delta("ok")


async def test_a_reply_that_breaks_after_text_is_not_asked_for_again() -> None:
    """What was shown is not silently replaced: the error says how much there was, and what would try again."""
    async with serving(Answer([chunk({"content": "par"}), chunk({"content": "t"})], cut=True)) as server:
        found = await failure(Retrying(server.model(), backoff=0))
    assert (type(found), found.shown) == (ModelUnavailableError, 2)
    assert "after_text=True" in found.__notes__[0]
    assert len(server.requests) == 1


async def test_a_reply_may_be_asked_for_again_after_text() -> None:
    """With after_text=True an Again says that the deltas before it are void."""
    async with serving(Answer([chunk({"content": "par"})], cut=True), Answer(said("whole"))) as server:
        events = await read(Retrying(server.model(), backoff=0, after_text=True))
    assert [type(event) for event in events] == [Delta, Again, Delta, Finish]


MALFORMED: list[list[Any]] = [
    ["data: {nonsense\n\n"],
    ["data: 5\n\n"],
    ["data: []\n\n"],
    ["data: null\n\n"],
    ['data: {"choices": 7}\n\n'],
    ['data: {"choices": [{"delta": {"tool_calls": 3}}]}\n\n'],
    [chunk({"content": {"not": "text"}})],
    ["nonsense\n\n"],
    [],
    [chunk({"content": "cut off between two chunks"})],
    [chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": None, "arguments": "{}"}}]})],
]


@pytest.mark.parametrize("chunks", MALFORMED)
async def test_a_malformed_stream_is_a_bad_reply(chunks: list[Any]) -> None:
    """Whatever a server sends instead of the protocol, and a stream without an end, is a BadReplyError."""
    async with serving(Answer(chunks), Answer(said("ok"))) as server:
        model = server.model()
        assert isinstance(await failure(model), BadReplyError)
        assert (await complete(model, HELLO)).message.content == "ok"


async def test_an_error_in_the_stream_has_its_family() -> None:
    """What a provider reports after it has begun to answer is sorted as what it reports at once."""
    broken = [chunk({"content": "x"}), {"error": {"message": "busy", "code": "rate_limit_exceeded"}}]
    async with serving(Answer(broken)) as server:
        assert isinstance(await failure(server.model()), RateLimitedError)


async def test_a_refusal_is_an_error_and_an_empty_reply_is_not() -> None:
    """A reply that the policy stopped before any text is a ModelRefusedError; an empty one is an empty message."""
    async with serving(
        Answer(said(finish="content_filter")), Answer(said()), Answer(said("x", finish="length"))
    ) as server:
        model = server.model()
        assert isinstance(await failure(model), ModelRefusedError)
        empty = await complete(model, HELLO)
        cut = await complete(model, HELLO)
    assert (empty.message.content, empty.reason, cut.reason) == ("", "stop", "length")


@pytest.mark.parametrize("hold", [0, 1])
async def test_a_server_that_does_not_answer_is_given_up(hold: int) -> None:
    """A slow first byte and a reply that stands still end as ModelUnavailableError after the seconds they may take."""
    settings = Settings(first_token=0.5) if hold == 0 else Settings(timeout=0.5)
    async with serving(Answer([chunk({"content": "x"})], hold=hold)) as server:
        found = await failure(server.model(), ModelRequest([human("hello")], settings=settings))
        assert isinstance(found, ModelUnavailableError)
        await _gone(server, 1)


async def test_an_address_where_nobody_is_is_unavailable() -> None:
    """A refused connection is a ModelUnavailableError, which passes."""
    async with serving() as server:
        model = server.model()
    found = await failure(model)
    assert (type(found), found.is_transient) == (ModelUnavailableError, True)


@pytest.mark.parametrize("hold", [0, 1])
async def test_cancelling_a_request_ends_it(hold: int) -> None:
    """Cancelled before the head or between two chunks, the connection is closed, and the next request works."""
    async with serving(Answer([chunk({"content": "x"})], hold=hold), Answer(said("ok"))) as server:
        model = server.model()
        await model.open()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, model)
                await server.holding.wait()
                tasks.cancel_scope.cancel()
            await _gone(server, 1)
            assert (await complete(model, HELLO)).message.content == "ok"
        await model.close()


@pytest.mark.parametrize("leave", [StopAsyncIteration, KeyError])
async def test_a_stream_may_be_left_early(leave: type[Exception]) -> None:
    """Leaving the block ends the request at once; no generator of a library is left for the event loop."""

    async def read_one(model: ChatModel) -> None:
        async with model.stream(HELLO) as events:
            await anext(events)
            if leave is KeyError:
                raise KeyError

    async with serving(Answer([chunk({"content": "x"}), chunk({"content": "y"})], hold=2)) as server:
        gc.collect()
        with warnings.catch_warnings(record=True) as told, anyio.fail_after(20):
            warnings.simplefilter("always")
            model = server.model()
            await model.open()  # so that leaving the stream, not closing the model, ends the request
            with suppress(KeyError):
                await read_one(model)
            await _gone(server, 1)
            gc.collect()
            await checkpoint()
            await model.close()
    assert [str(warning.message) for warning in told if warning.category is ResourceWarning] == []


async def test_one_object_serves_many_requests_at_once() -> None:
    """Requests that overlap share the connections of an event loop; the last one closes them."""
    async with serving(*(Answer(said("ok")) for _ in range(8))) as server:
        model = server.model()
        await model.open()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(read, model)
            assert server.connections > 0
            await model.close()
            while server.connections:
                await anyio.wait_all_tasks_blocked()


async def test_a_key_is_sent_and_a_password_is_not_told() -> None:
    """The key goes into the header; who logs in by the address is in no name and no message."""
    async with serving(Answer(said("ok"))) as server:
        await complete(lookup(f"openai_compatible:{server.url}#small", api_key="k-1"), HELLO)
        assert "authorization: bearer k-1" in server.headers[0].lower()
    model = lookup("openai_compatible:http://me:hidden@localhost:1/v1#small")
    assert "hidden" not in model.name + str(await failure(model))


async def test_a_missing_key_is_told_when_the_model_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first request: a SetupError that names the variable."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SetupError, match="OPENAI_API_KEY"):
        await lookup("openai:gpt-5").open()


async def _gone(server: Any, clients: int) -> None:
    """Wait until so many clients have left an answer that was held."""
    while server.left < clients:
        await anyio.wait_all_tasks_blocked()
