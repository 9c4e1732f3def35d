"""Models that try again, and models that step in for others."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from jianmu.engine.clock import VirtualClock, quiet
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
from jianmu.message import human
from jianmu.model import (
    Again,
    ChatModel,
    Delta,
    Event,
    Fallback,
    Finish,
    ModelRequest,
    Retrying,
    ScriptedModel,
    Turn,
    complete,
)

pytestmark = pytest.mark.anyio
HELLO = ModelRequest([human("hello")])
DOWN = ModelUnavailableError("down")


class Opened(ScriptedModel):
    """Counts how often it is opened and closed."""

    users = 0
    is_broken = False

    async def open(self) -> None:
        """Count."""
        if self.is_broken:
            raise SetupError("no key")
        self.users += 1

    async def close(self) -> None:
        """Count."""
        self.users -= 1


async def watch(model: ChatModel, clock: VirtualClock, into: list[tuple[float, Event]]) -> None:
    """Note all events of a reply, and when they came."""
    async with model.stream(HELLO, clock=clock) as events:
        into.extend([(clock.now(), event) async for event in events])


async def timed(model: ChatModel, seconds: float) -> list[tuple[float, Event]]:
    """Return the events of a reply and when they came, on a clock that is turned by hand."""
    clock = VirtualClock()
    found: list[tuple[float, Event]] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, model, clock, found)
            await quiet()
            await clock.advance(seconds)
    return found


async def failure(model: ChatModel) -> ModelError:
    """Return what a request fails with."""
    with pytest.raises(ModelError) as found:
        await complete(model, HELLO)
    return found.value


async def test_waits_grow_on_the_given_clock() -> None:
    """Each wait is twice the one before, up to the longest, and is told by an Again before it begins."""
    with ScriptedModel([DOWN, DOWN, DOWN, DOWN, "hi"]) as script:
        events = await timed(Retrying(script, attempts=5, backoff=1, longest=5, jitter=0), 12)
    waits = [(when, event.wait) for when, event in events if isinstance(event, Again)]
    assert waits == [(0, 1), (1, 2), (3, 4), (7, 5)]
    assert [(when, type(event)) for when, event in events][-2:] == [(12, Delta), (12, Finish)]


async def test_a_part_of_a_wait_is_chance() -> None:
    """With jitter, a wait is shortened by a share of it that is drawn."""
    with ScriptedModel([DOWN, DOWN, "hi"]) as script:
        events = await timed(Retrying(script, backoff=4, jitter=0.5, draw=iter([1.0, 0.5]).__next__), 10)
    assert [event.wait for _, event in events if isinstance(event, Again)] == [2, 6]


async def test_the_provider_says_how_long_to_wait() -> None:
    """`retry_after` takes the place of the backoff; the share of chance does not shorten it."""
    with ScriptedModel([RateLimitedError("slow", retry_after=7), "hi"]) as script:
        events = await timed(Retrying(script, backoff=1), 7)
    assert [when for when, event in events if isinstance(event, Finish)] == [7]


async def test_a_wait_that_is_too_long_is_not_begun() -> None:
    """A provider that asks for more than the longest wait gets its error raised at once."""
    with ScriptedModel([RateLimitedError("slow", retry_after=61)]) as script:
        assert (await failure(Retrying(script, longest=60))).retry_after == 61


@pytest.mark.parametrize(
    "error",
    [
        BadRequestError("wrong"),
        ModelRefusedError("no"),
        ContextTooLongError("long"),
        RateLimitedError("quota", is_transient=False),
    ],
)
async def test_what_does_not_pass_is_not_tried_again(error: ModelError) -> None:
    """Only errors that pass are worth another attempt."""
    with ScriptedModel([error]) as script:
        assert await failure(Retrying(script)) is error


async def test_other_errors_are_no_ones_to_try_again() -> None:
    """What is no ModelError is a fault of the program and is raised as it is."""
    with ScriptedModel([KeyError("x")]) as script, pytest.raises(KeyError):
        await complete(Retrying(script), HELLO)


async def test_the_last_error_names_the_first() -> None:
    """When all attempts have failed, the last error is raised with a note of the first."""
    errors = [RateLimitedError("first"), ModelUnavailableError("second")]
    with ScriptedModel(errors) as script:
        found = await failure(Retrying(script, attempts=2, backoff=0))
    assert found is errors[1]
    assert found.__notes__ == ["all 2 attempts failed, the first with: first"]


async def test_what_was_shown_is_not_silently_replaced() -> None:
    """A stream that breaks after a delta raises; the error says how many there were, and how to allow more."""
    broken = Turn(text=("a", "b"), error=ModelUnavailableError("broke off"))
    with ScriptedModel([broken]) as script:
        found = await failure(Retrying(script, backoff=0))
    assert found.shown == 2
    assert found.__notes__[0].startswith("2 pieces of the reply had been given out, so it was not asked for again")


async def test_after_text_a_reader_is_told_that_it_is_void() -> None:
    """With after_text=True the deltas of the attempt that broke are followed by Again, then the reply begins anew."""
    broken = Turn(text="half", error=ModelUnavailableError("broke off"))
    with ScriptedModel([broken, "whole"]) as script:
        events = [event for _, event in await timed(Retrying(script, backoff=1, jitter=0, after_text=True), 1)]
    assert [type(event) for event in events] == [Delta, Again, Delta, Finish]
    assert isinstance(events[-1], Finish)
    assert events[-1].message.content == "whole"


async def test_another_model_steps_in() -> None:
    """When one model fails the next is asked at once, and Again names it."""
    first, second = ScriptedModel([DOWN], name="first"), ScriptedModel(["hi"], name="second")
    with first, second:
        events = [event for _, event in await timed(Fallback(first, second), 0)]
    assert isinstance(events[0], Again)
    assert (events[0].model, events[0].wait) == ("second", 0)
    assert isinstance(events[-1], Finish)
    assert events[-1].model == "second"


async def test_another_model_does_not_step_in_for_a_wrong_request() -> None:
    """Errors that the next model would have too are raised, unless `on` names them."""
    with ScriptedModel([BadRequestError("wrong")]) as first, ScriptedModel() as second:
        assert isinstance(await failure(Fallback(first, second)), BadRequestError)
    with ScriptedModel([ContextTooLongError("long")]) as first, ScriptedModel(["hi"]) as second:
        end = await complete(Fallback(first, second, on=(ContextTooLongError,)), HELLO)
    assert end.message.content == "hi"


async def test_a_quota_that_is_used_up_lets_another_model_step_in() -> None:
    """It does not pass by waiting, but another account may have some left."""
    spent = RateLimitedError("quota", is_transient=False)
    with ScriptedModel([spent]) as first, ScriptedModel(["hi"]) as second:
        assert (await complete(Fallback(Retrying(first), second), HELLO)).message.content == "hi"


async def test_attempts_before_the_fallback_are_attempts_of_the_first() -> None:
    """Fallback(Retrying(first), second) tries the first model as often as it may, then the second."""
    with ScriptedModel([DOWN, DOWN]) as first, ScriptedModel(["hi"]) as second:
        events = await timed(Fallback(Retrying(first, attempts=2, backoff=1, jitter=0), second), 1)
    assert [(when, type(event)) for when, event in events] == [(0, Again), (1, Again), (1, Delta), (1, Finish)]


async def test_a_stream_without_an_end_is_a_bad_reply() -> None:
    """A model of one's own that forgets the Finish does not pass for one that has answered."""
    with ScriptedModel([_Endless()]) as script:
        assert isinstance(await failure(script), BadReplyError)
    with ScriptedModel([_Endless(), "hi"]) as script:
        assert (await complete(Retrying(script, backoff=0), HELLO)).message.content == "hi"


async def test_each_attempt_is_closed_before_the_next() -> None:
    """At no time two streams are open, and none is when the block is left early or cancelled."""
    alive: list[int] = []
    script = ScriptedModel([DOWN, lambda _: alive.append(script.alive) or "one two", DOWN])
    model = Retrying(script, backoff=0)
    async with model.stream(HELLO) as events:
        async for event in events:
            if isinstance(event, Delta):
                break
        alive.append(script.alive)
    assert (alive, script.alive) == ([0, 1], 0)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, Retrying(script), VirtualClock(), [])
            await quiet()
            tasks.cancel_scope.cancel()
    assert script.alive == 0


async def test_all_models_are_opened_or_none() -> None:
    """A model that cannot be opened closes those that were; closing closes all."""
    first, second = Opened(), Opened()
    model = Fallback(Retrying(first), second)
    await model.open()
    assert (first.users, second.users) == (1, 1)
    await model.close()
    assert (first.users, second.users) == (0, 0)
    second.is_broken = True
    with pytest.raises(SetupError, match="no key"):
        await model.open()
    assert first.users == 0


def test_nothing_to_ask_is_a_mistake() -> None:
    """A Fallback without models and a Retrying without attempts are refused when they are built."""
    with pytest.raises(SetupError, match=r"Fallback\(first, second\)"):
        Fallback()
    with pytest.raises(SetupError, match="give 1 or more"):
        Retrying(ScriptedModel(), attempts=0)


class _Endless(Turn):
    """A turn whose stream just ends."""

    def events(self, model: str) -> Sequence[Event]:
        """Return no Finish."""
        return ()
