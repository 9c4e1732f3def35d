"""How the text of a reply is shown and told: at most once in a turn of the loop, soon, and in linear time."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import anyio
import pytest
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel
from pydantic import Field

from jianmu.agent import Agent
from jianmu.engine.clock import RealClock, VirtualClock
from jianmu.engine.events import Event, StateChanged, Token
from jianmu.errors import StateWriteError
from jianmu.message import human
from jianmu.model import ScriptedModel, Turn
from jianmu.nodes import AgentLLMNode, Sequence, Timer
from jianmu.nodes.streaming import EACH, LONG, Pausing
from tests.cases.leaves import SUCCESS, Do
from tests.nodes.talk import Talk, agent, events_of, run

pytestmark = pytest.mark.anyio


class Turns(RealClock):
    """A clock that counts how often somebody waited, and so gave the loop a turn."""

    count = 0

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        self.count += 1
        await super().sleep(seconds)


class Watch:
    """Notes the stream's values, and the turns of the loop in which listeners were told."""

    def __init__(self, made: Agent[Any], clock: Any) -> None:
        self.texts: list[str] = []
        self.turns: list[int] = []
        self._made, self._clock = made, clock
        made.state_manager.subscribe(self._note)

    def _note(self, change: Any) -> None:
        if "streaming_output" in change.changed:
            self.turns.append(getattr(self._clock, "count", 0))
            self.texts.append(self._made.state.streaming_output)


async def watched(turn: Turn, clock: Any) -> Watch:
    """Run a node with one reply and return what was seen of it."""
    made = agent(AgentLLMNode("think", model=ScriptedModel([turn])), clock=clock)
    watch = Watch(made, clock)
    assert await run(made, human("hello")) is SUCCESS
    assert watch.texts[-1] == made.state.final_answer
    return watch


async def test_pieces_of_one_turn_are_one_write() -> None:
    """What comes in without the loop having a turn is written once, together with the reply."""
    made = agent(AgentLLMNode("think", model=ScriptedModel([Turn(["a", "b", "c"])])))
    changes: list[tuple[str, ...]] = []
    made.state_manager.subscribe(lambda change: changes.append(change.fields))
    await run(made, human("hello"))
    assert [set(fields) for fields in changes if "streaming_output" in fields] == [
        {"messages", "actions", "rounds", "final_answer", "done", "usage", "streaming_output"}
    ]


async def test_listeners_are_woken_at_most_once_a_turn() -> None:
    """With a turn after each piece each piece of a short text is written, and never two in one turn."""
    watch = await watched(Turn(["a", "b", "c", "d"], pause=0), Turns())
    assert watch.texts == ["a", "ab", "abc", "abcd"]
    assert len({*watch.turns}) == len(watch.turns)


async def test_a_long_text_is_written_in_growing_pieces() -> None:
    """The number of writes grows with the logarithm of the text, so that all of them cost what the text is long."""
    counts: list[int] = []
    for number in (10_000, 40_000):
        watch = await watched(Turn(["word "] * number, pause=0), VirtualClock(autojump=True))
        counts.append(len(watch.texts))
    assert counts[0] < 1_000
    assert counts[1] - counts[0] < 200


async def test_what_is_held_back_is_shown_soon() -> None:
    """A piece of a long text that nothing follows is shown and told after a tenth of a second, not at the end."""
    pieces = ["x" * LONG, *(["y"] * EACH), "z"]
    clock = VirtualClock(autojump=True)

    def late(_: object) -> Turn:
        return Turn(pieces, pause=0)

    class Slow(ScriptedModel):
        """A model that says nothing for a long time after its last piece."""

        def stream(self, request: Any, *, clock: Any = None) -> Any:
            return _Slow(super().stream(request, clock=clock), clock)

    made = agent(Sequence("s", memory=True, children=[AgentLLMNode("think", model=Slow([late]))]), clock=clock)
    seen: list[tuple[float, int]] = []
    made.state_manager.subscribe(lambda _: seen.append((clock.now(), len(made.state.streaming_output))))
    started = clock.now()
    events = await events_of(made, human("hello"))
    whole = sum(len(piece) for piece in pieces)
    assert min(at for at, length in seen if length == whole) - started == pytest.approx(0.1)
    tokens = [event for event in events if isinstance(event, Token)]
    assert "".join(token.text for token in tokens) == "".join(pieces)
    assert (tokens[-1].count, tokens[-1].text) == (2, "yz")
    assert clock.now() - started >= 60


class _Slow:
    def __init__(self, block: Any, clock: Any) -> None:
        self._block = block
        self._clock = clock
        self._left = EACH + 2

    async def __aenter__(self) -> Any:
        self._events = await self._block.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._block.__aexit__(*error)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        self._left -= 1
        if self._left < 0:
            await self._clock.sleep(60)
        return await anext(self._events)


async def test_what_was_held_back_at_a_halt_is_in_no_later_stream() -> None:
    """A piece that was held back when the run was halted is not written into the stream of the next one."""
    turns = [Turn(["x" * LONG, "y", "z"], pause=0.06), Turn("fine", delay=1)]
    later = [Timer("first", seconds=0.3), AgentLLMNode("think", model=ScriptedModel(turns))]
    halt = Do("halt", lambda _: made.halt() if made.runner.context.run == 1 else None)
    branches = [[Timer("wait", seconds=0.4), halt], later]
    children = [Sequence(str(place), memory=True, children=branch) for place, branch in enumerate(branches)]
    clock = VirtualClock(autojump=True)
    made = agent(Parallel("p", policy=ParallelPolicy.SuccessOnAll(), children=children), clock=clock)
    with anyio.fail_after(20):
        await made.run({"messages": [human("hello")]})
        assert made.state.streaming_output == "x" * LONG
        texts: list[str] = []
        made.state_manager.subscribe(lambda _: texts.append(made.state.streaming_output))
        assert await made.run({"messages": [human("again")]}) is SUCCESS
    assert {*texts} == {"", "fine"}


async def test_each_piece_is_an_event() -> None:
    """Pieces that come at a readable pace are an event each, however many there are."""
    made = agent(AgentLLMNode("think", model=ScriptedModel([Turn(["word "] * 300, pause=0.02)])))
    events = await events_of(made, human("hello"))
    assert [(one.text, one.count) for one in events if isinstance(one, Token)] == [("word ", 1)] * 300


async def test_pieces_that_come_too_fast_are_events_together() -> None:
    """After the first hundred, what comes at once is one event with its count; nothing is lost and all is in order."""
    made = agent(AgentLLMNode("think", model=ScriptedModel([Turn([f"{number} " for number in range(1_000)])])))
    events = await events_of(made, human("hello"))
    tokens = [event for event in events if isinstance(event, Token)]
    assert [token.count for token in tokens] == [1] * EACH + [900]
    assert "".join(token.text for token in tokens) == made.state.final_answer


@pytest.mark.parametrize("pieces", [2, 300])
async def test_reasoning_is_told_apart_from_the_text(pieces: int) -> None:
    """Its pieces are `Token` events of their kind, all before those of the answer, and in no text of the state."""
    turn = Turn(["so "] * pieces, reasoning=["hm "] * pieces)
    made = agent(AgentLLMNode("think", model=ScriptedModel([turn])))
    tokens = [event for event in await events_of(made, human("hello")) if isinstance(event, Token)]
    kinds = [token.kind for token in tokens]
    assert kinds == sorted(kinds)
    said = {kind: "".join(token.text for token in tokens if token.kind == kind) for kind in kinds}
    assert said == {"reasoning": "hm " * pieces, "text": "so " * pieces}
    assert made.state.final_answer == made.state.streaming_output == "so " * pieces


async def test_the_last_token_comes_before_the_reply() -> None:
    """When the reply is in the state, all of its text has been told."""
    made = agent(AgentLLMNode("think", model=ScriptedModel([Turn(["a"] * 300)])))
    events: list[Event] = await events_of(made, human("hello"))
    last = max(place for place, one in enumerate(events) if isinstance(one, Token))
    reply = next(
        place
        for place, one in enumerate(events)
        if isinstance(one, StateChanged) and "messages" in one.changed and one.path == "think"
    )
    assert last < reply


async def test_nobody_listens_and_nothing_is_shown() -> None:
    """Without a field and without a reader the reply is the same."""

    class Quiet(Talk):
        streaming_output: str = Field(default="", exclude=True)

    made = agent(AgentLLMNode("think", model=ScriptedModel([Turn(["a", "b"], pause=0)])), Quiet)
    assert await run(made, human("hello")) is SUCCESS
    assert made.state.final_answer == "ab"


async def test_a_write_that_is_refused_ends_the_request() -> None:
    """A stream that the schema refuses is the run's error, with the field; the request is ended."""

    class Short(Talk):
        streaming_output: str = Field(default="", max_length=3)

    with ScriptedModel([Turn(["ab", "cd", "ef"], pause=0)]) as model:
        made = agent(AgentLLMNode("think", model=model), Short)
        with pytest.raises(StateWriteError, match="field 'streaming_output'"):
            await run(made, human("hello"))
    assert model.alive == 0


async def test_time_grows_with_the_number_of_tokens() -> None:
    """Four times as many tokens take about four times as long, with a turn of the loop after each."""
    seconds: list[float] = []
    for number in (5_000, 20_000):
        best = 1e9
        for _ in range(3):
            made = Agent(AgentLLMNode("t", model=ScriptedModel([Turn(["word "] * number, pause=0)])), state_schema=Talk)
            began = time.process_time()
            await events_of(made, human("hello"))
            best = min(best, time.process_time() - began)
        seconds.append(best)
    assert seconds[1] < 8 * seconds[0]


# Pausing


class Wish:
    """An awaitable that asks the loop for something and returns what it is given."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __await__(self) -> Generator[str, Any, Any]:
        given = yield self.what
        return given


def test_pausing_hands_everything_on() -> None:
    """Wishes, what is given, what is thrown in and what is returned pass through; `pause` comes before each wish."""
    seen: list[Any] = []

    async def work() -> str:
        seen.append(await Wish("one"))
        try:
            await Wish("two")
        except ValueError as error:
            seen.append(str(error))
        return "end"

    made = Pausing(work(), lambda: seen.append("pause"))
    steps = made.__await__()
    assert (next(steps), steps.send(1)) == ("one", "two")
    with pytest.raises(StopIteration) as end:
        steps.throw(ValueError("x"))
    assert end.value.value == "end"
    assert seen == ["pause", 1, "pause", "x"]


def test_what_pause_raises_is_raised_in_the_work() -> None:
    """It is raised where the work was waiting, when that goes on, so that its blocks are left in order."""
    left: list[str] = []

    async def work() -> None:
        try:
            await Wish("one")
        finally:
            left.append("left")

    def pause() -> None:
        raise KeyError("refused")

    steps = Pausing(work(), pause).__await__()
    assert next(steps) == "one"
    assert left == []
    with pytest.raises(KeyError):
        steps.send(None)
    assert left == ["left"]


def test_closing_closes_the_work() -> None:
    """A coroutine that is given up closes what it awaits."""
    left: list[str] = []

    async def work() -> None:
        try:
            await Wish("one")
        finally:
            left.append("left")

    steps = Pausing(work(), lambda: None).__await__()
    next(steps)
    steps.close()
    assert left == ["left"]
