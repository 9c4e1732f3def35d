"""Streams: one run and its events, for readers that are quick, slow, late or gone."""

from __future__ import annotations

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.composites import Sequence

from jianmu.agent import Agent
from jianmu.engine.events import Event, PassStarted, RunEnded, StateChanged, Token
from jianmu.engine.limits import Limits
from jianmu.engine.stream import LAG
from jianmu.errors import AgentBusyError, LimitExceeded
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Do,
    DoAsync,
    Flag,
    Scripted,
    World,
    events_of,
    nothing_left,
    of_kind,
)

pytestmark = pytest.mark.anyio
MANY = 1_000


async def _speak(node: DoAsync) -> None:
    for number in range(MANY):
        node.emit(Token(text="x"))
        if number % 100 == 0:
            node.write_state({"n": number + 1})
    await checkpoint()


async def test_a_reader_that_lags_gets_merged_text_and_all_else() -> None:
    """Token pieces come together once it lags; the text is complete, and every other event is kept."""
    agent = Agent(DoAsync("x", _speak), World)
    with anyio.fail_after(5), nothing_left(agent):
        async with agent.stream() as stream:
            while agent.status is not SUCCESS:
                await checkpoint()
            events = [event async for event in stream]
    tokens = of_kind(events, Token)
    assert "".join(token.text for token in tokens) == "x" * MANY
    assert sum(token.count for token in tokens) == MANY
    assert len(tokens) < LAG + 20
    assert len(of_kind(events, StateChanged)) == 10
    assert type(events[-1]) is RunEnded


async def test_tokens_of_different_nodes_are_not_mixed() -> None:
    """Merging never crosses from one node's text into another's."""

    def both(node: Do) -> None:
        for number in range(MANY):
            node.context.run.events.emit(Token(text="ab"[number % 2]), "xy"[number % 2])

    agent = Agent(Do("do", both), World)
    with anyio.fail_after(5):
        async with agent.stream() as stream:
            while agent.status is not SUCCESS:
                await checkpoint()
            events = [event async for event in stream]
    for path, text in (("x", "a"), ("y", "b")):
        said = "".join(token.text for token in of_kind(events, Token) if token.path == path)
        assert said == text * (MANY // 2)


async def test_reasoning_and_text_of_a_node_are_not_mixed() -> None:
    """Merging never crosses from what a model thinks into what it says."""

    def both(node: Do) -> None:
        for number in range(MANY):
            node.emit(Token(text="tr"[number % 2], kind=("text", "reasoning")[number % 2]))

    agent = Agent(Do("do", both), World)
    with anyio.fail_after(5):
        async with agent.stream() as stream:
            while agent.status is not SUCCESS:
                await checkpoint()
            events = [event async for event in stream]
    for kind, text in (("text", "t"), ("reasoning", "r")):
        assert "".join(one.text for one in of_kind(events, Token) if one.kind == kind) == text * (MANY // 2)


async def test_a_reader_that_is_quick_gets_every_token() -> None:
    """Nothing is merged for one that does not lag."""

    async def speak(node: DoAsync) -> None:
        for _ in range(300):
            node.emit(Token(text="x"))
            await checkpoint()

    agent = Agent(DoAsync("x", speak), World)
    with anyio.fail_after(5):
        async with agent.stream() as stream:
            tokens = [event async for event in stream if isinstance(event, Token)]
    assert [token.count for token in tokens] == [1] * 300


async def test_events_of_threads_arrive() -> None:
    """Writes of another thread are told to a reader that waits."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)

    def write() -> None:
        for _ in range(50):
            agent.state_manager.transform_field("n", lambda n: n + 1)
        agent.state_manager.update({"ready": True})

    with anyio.fail_after(5):
        async with agent.stream() as stream:
            threading.Thread(target=write).start()
            events = [event async for event in stream]
    assert len(of_kind(events, StateChanged)) == 51
    assert of_kind(events, RunEnded)[0].outcome.status is SUCCESS


async def test_what_the_run_raises_comes_out_after_its_last_event() -> None:
    """The reader sees all events, RunEnded included, then the exception; once."""
    agent = Agent(Do("x", lambda node: 1 // node.read_state().n), World)
    events: list[Event] = []

    async def read() -> None:
        async with agent.stream() as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401  # what was read before the exception counts

    with anyio.fail_after(5), nothing_left(agent), pytest.raises(ZeroDivisionError) as caught:
        await read()
    assert type(events[-1]) is RunEnded
    assert any("'x'" in note for note in caught.value.__notes__)


async def test_a_limit_is_raised_to_the_reader() -> None:
    """As run() raises it."""

    class Polled(Scripted):
        polled = True

    agent = Agent(Polled("x", RUNNING), World, poll_interval=0.001)

    async def read() -> list[Event]:
        async with agent.stream(limits=Limits(max_ticks=3)) as stream:
            return [event async for event in stream]

    with anyio.fail_after(5), nothing_left(agent), pytest.raises(LimitExceeded):
        await read()


async def test_a_reader_that_never_reads_stops_nothing() -> None:
    """Without a look at the events the run ends all the same while the block is on; its error is raised at the end."""
    agent = Agent(Sequence("s", memory=True, children=[Scripted("x", SUCCESS)]), World)
    with anyio.fail_after(5), nothing_left(agent):
        async with agent.stream():
            while agent.status is not SUCCESS:
                await checkpoint()
    bad = Agent(Do("x", lambda node: 1 // node.read_state().n), World)
    with anyio.fail_after(5), nothing_left(bad), pytest.raises(ZeroDivisionError):  # noqa: PT012  # the block raises
        async with bad.stream():
            while not bad.errors:
                await checkpoint()


async def test_a_stream_beside_a_run_is_refused() -> None:
    """One call at a time: the reader gets AgentBusyError, the run goes on."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)
    found = []

    async def read() -> None:
        with pytest.raises(AgentBusyError):  # noqa: PT012  # the block raises
            async with agent.stream() as stream:
                async for _ in stream:
                    pass
        agent.state_manager.update({"ready": True})

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            found.append(await agent.run())
    assert found == [SUCCESS]


async def test_reading_past_the_end_ends_again() -> None:
    """After the last event iteration stops, however often it is tried."""
    agent = Agent(Scripted("x", FAILURE), World)
    with anyio.fail_after(5):
        async with agent.stream() as stream:
            first = [event async for event in stream]
            assert [event async for event in stream] == []
    assert len(of_kind(first, PassStarted)) == 1


async def test_several_listeners_see_the_same() -> None:
    """A stream does not take events from another listener."""
    agent = Agent(Scripted("x", SUCCESS), World)
    heard = events_of(agent)
    with anyio.fail_after(5):
        async with agent.stream() as stream:
            read = [event async for event in stream]
    assert read == heard


async def test_without_a_listener_no_event_is_made() -> None:
    """Events cost nothing to whoever does not ask for them."""
    agent = Agent(Scripted("x", SUCCESS), World)
    assert await agent.run() is SUCCESS
    assert agent.runner.context.events.seq == 0
    assert not agent.runner.context.events.is_heard
    async with agent.stream() as stream:
        assert agent.runner.context.events.is_heard
        _ = [event async for event in stream]
    assert not agent.runner.context.events.is_heard
    assert agent.status is not INVALID
