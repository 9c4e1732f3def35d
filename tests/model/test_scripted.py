"""A model that says what a script has it say."""

from __future__ import annotations

import anyio
import pytest

from jianmu.engine.clock import VirtualClock, quiet
from jianmu.errors import RateLimitedError
from jianmu.message import Usage, human
from jianmu.model import Delta, Event, Finish, ModelRequest, ScriptedModel, Turn, complete
from jianmu.tool.types import ToolCall

pytestmark = pytest.mark.anyio
HELLO = ModelRequest([human("hello")])
ADD = ToolCall(id="1", name="add", arguments={"a": 1})


async def read(model: ScriptedModel, request: ModelRequest = HELLO) -> list[Event]:
    """Return all events of a reply."""
    async with model.stream(request) as events:
        return [event async for event in events]


async def collect(model: ScriptedModel, into: list[Event]) -> None:
    """Keep the events of a reply, also when it breaks."""
    async with model.stream(HELLO) as events:
        async for event in events:
            into.append(event)  # noqa: PERF401  # kept although the loop raises


async def test_a_text_comes_word_by_word() -> None:
    """The deltas of a text are its words, with all the spaces; together they are the message."""
    with ScriptedModel(["  one two\n three "]) as model:
        *deltas, end = await read(model)
    assert [delta.text for delta in deltas if isinstance(delta, Delta)] == ["  one ", "two\n ", "three "]
    assert isinstance(end, Finish)
    assert (end.message.content, end.reason) == ("  one two\n three ", "stop")


@pytest.mark.parametrize("turn", [ADD, [ADD], Turn(calls=[ADD])])
async def test_calls_may_be_written_short(turn: ToolCall | list[ToolCall] | Turn) -> None:
    """A call, a list of calls and a Turn with calls are the same."""
    with ScriptedModel([turn]) as model:
        delta, end = await read(model)
    assert delta == Delta('{"a": 1}', "call", 0, "1", "add")
    assert isinstance(end, Finish)
    assert (end.message.tool_calls, end.reason) == ((ADD,), "tool_calls")


async def test_a_turn_says_all_there_is() -> None:
    """Reasoning comes first, pieces stay as they are; usage, reason and metadata are in the end."""
    usage = Usage(input_tokens=3, output_tokens=2)
    turn = Turn(("o", "k"), reasoning="let me see", usage=usage, reason="length", metadata={"x": 1})
    with ScriptedModel([turn]) as model:
        *deltas, end = await read(model)
    assert [(delta.kind, delta.text) for delta in deltas if isinstance(delta, Delta)] == [
        ("reasoning", "let "),
        ("reasoning", "me "),
        ("reasoning", "see"),
        ("text", "o"),
        ("text", "k"),
    ]
    assert isinstance(end, Finish)
    assert (end.usage, end.reason, end.message.metadata) == (usage, "length", {"x": 1})


async def test_a_turn_may_depend_on_the_request() -> None:
    """A function of the request is asked when its turn has come."""
    with ScriptedModel([lambda request: f"you said {request.messages[-1].content}"]) as model:
        assert (await complete(model, HELLO)).message.content == "you said hello"


async def test_an_error_comes_after_what_was_said() -> None:
    """An error alone is raised before any delta, one in a Turn after its text."""
    broken = RateLimitedError("slow")
    model = ScriptedModel([broken, Turn("half", error=broken)])
    for said in ([], [Delta("half")]):
        found: list[Event] = []
        with pytest.raises(RateLimitedError):
            await collect(model, found)
        assert found == said
    assert model.alive == 0


async def test_a_delay_is_waited_for_on_the_clock() -> None:
    """Delays and pauses pass when the clock is turned."""
    clock = VirtualClock()
    times: list[float] = []

    async def watch() -> None:
        async with model.stream(HELLO, clock=clock) as events:
            times.extend([clock.now() async for _ in events])

    model = ScriptedModel([Turn("a b", delay=5, pause=1)])
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await quiet()
            await clock.advance(10)
    assert times == [5, 6, 7]


async def test_a_turn_too_many_fails_the_test() -> None:
    """Turns that were not asked for are reported at the end of the block."""
    with pytest.raises(AssertionError, match="1 turns of the model 'scripted' were not asked for"):  # noqa: SIM117  # the block's end is what is tested
        with ScriptedModel(["one", "two"]) as model:
            await complete(model, HELLO)


async def test_a_turn_too_few_fails_the_test() -> None:
    """A request without a turn fails, and the block too, even if something has caught the error."""
    with pytest.raises(AssertionError, match="request 1 to the model 'small' has no turn: the script has 0"):  # noqa: PT012, SIM117  # as above
        with ScriptedModel(name="small") as model:
            with pytest.raises(AssertionError):
                await complete(model, HELLO)


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (lambda request: len(request.tools) == 1, "request 1 to the model 'scripted' is not what the script expects"),
        (lambda request: request.missing, "request 1 to the model 'scripted': .*missing"),
    ],
)
async def test_a_request_that_is_not_expected_fails_the_test(check: object, problem: str) -> None:
    """A check that returns False or raises fails the request, and the block too."""
    with pytest.raises(AssertionError, match=problem):  # noqa: PT012, SIM117  # as above
        with ScriptedModel([Turn("x", check=check)]) as model:  # type: ignore[arg-type]  # a lambda
            with pytest.raises((AssertionError, AttributeError)):
                await complete(model, HELLO)


async def test_a_failed_test_is_not_failed_twice() -> None:
    """An exception in the block is raised as it is, with turns left or not."""
    with pytest.raises(KeyError), ScriptedModel(["one"]):
        raise KeyError


async def test_what_was_asked_is_kept() -> None:
    """The requests are there to look at, in order."""
    with ScriptedModel(["one", "two"]) as model:
        await complete(model, HELLO)
        await complete(model, ModelRequest([human("again")]))
    assert [request.messages[0].content for request in model.requests] == ["hello", "again"]
