"""Cases V01-V12: what a run tells while it is on, and what it is like to step through it."""

from __future__ import annotations

import socket
from collections import Counter

import anyio
import py_trees
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Inverter
from py_trees.visitors import SnapshotVisitor

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import (
    Answered,
    Asked,
    Event,
    NodeFinished,
    NodeHalted,
    NodeStarted,
    RunEnded,
    RunStarted,
    Saved,
    StateChanged,
    Token,
)
from jianmu.engine.interaction import Answer, Request
from jianmu.errors import SetupError
from jianmu.nodes import AskHuman
from jianmu.stores.memory import MemoryStore
from tests.anystore import Stores
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Diary,
    Do,
    DoAsync,
    Forever,
    Plain,
    Scripted,
    Sleep,
    World,
    events_of,
    nothing_left,
    of_kind,
    passes_of,
    run,
)
from tests.conftest import done_alone


def test_v01_importing_changes_nobodys_logging() -> None:
    """Handlers and level of the root logger and structlog's configuration are as before; nothing is printed."""
    code = (
        "import logging, structlog\n"
        "def seen():\n"
        "    root = logging.getLogger()\n"
        "    return root.handlers[:], root.level, structlog.is_configured(), structlog.get_config()\n"
        "before = seen()\n"
        "import jianmu, jianmu.testing\n"
        "from jianmu.engine.log import log\n"
        "log.warning('nobody hears this')\n"
        "assert seen() == before, seen()\n"
    )
    assert done_alone(code) == (0, "", "")


async def _stream_and_write(node: DoAsync) -> None:
    for number in range(3):
        node.write_state({"n": number + 1})
        node.emit(Token(text=str(number)))
        await checkpoint()


async def _read(agent: Agent[World], **options: object) -> list[Event]:
    """Run an agent and return all events of its stream."""
    with anyio.fail_after(5), nothing_left(agent):
        async with agent.stream(**options) as stream:
            return [event async for event in stream]


@pytest.mark.anyio
async def test_v02_a_stream_is_whole() -> None:
    """Numbers without a gap; RunStarted first, RunEnded last; each leaf and each state change once, in order."""
    leaves = [
        Do("a", lambda node: node.write_state({"a": 1})),
        DoAsync("b", _stream_and_write),
        Do("c", lambda node: node.write_state({"log": ["x"]})),
    ]
    agent = Agent(Sequence("main", memory=True, children=leaves), World)
    for _ in range(2):
        agent.state_manager.update({"a": 0, "n": 0})
        events = await _read(agent)
        numbers = [event.seq for event in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(events)))
        assert (type(events[0]), type(events[-1])) == (RunStarted, RunEnded)
        assert events[-1].outcome.status is SUCCESS
        for kind in (NodeStarted, NodeFinished):
            seen = Counter(event.path for event in of_kind(events, kind))
            assert seen == {"main": 1, "main/a": 1, "main/b": 1, "main/c": 1}
        changes = [(event.writer, event.fields) for event in of_kind(events, StateChanged)]
        assert changes == [("main/a", ("a",)), *[("main/b", ("n",))] * 3, ("main/c", ("log",))]
        times = [event.time for event in events]
        assert times == sorted(times)
        assert len({(event.thread_id, event.run) for event in events}) == 1


@pytest.mark.anyio
async def test_v03_what_a_coroutine_writes_is_seen_at_once() -> None:
    """Listeners and the stream see each write at the time at which it is made."""
    clock = VirtualClock(autojump=True)
    heard: list[tuple[float, int]] = []

    async def progress(node: DoAsync) -> None:
        for number in (1, 2):
            node.write_state({"n": number})
            await node.context.clock.sleep(1)

    agent = Agent(DoAsync("x", progress), World, clock=clock)
    agent.state_manager.subscribe(lambda change: change.fields == ("n",) and heard.append((clock.now(), agent.state.n)))
    with anyio.fail_after(5):
        async with agent.stream() as stream:
            read = [(clock.now(), agent.state.n) async for event in stream if isinstance(event, StateChanged)]
    assert heard == read == [(0, 1), (1, 2)]


@pytest.mark.anyio
@pytest.mark.parametrize("path", [None, "main", "main/flip/inner", "main/flip/inner/model"])
async def test_v04_tokens_have_the_whole_path_and_can_be_filtered(path: str | None) -> None:
    """Five tokens from three levels down, in order; each prefix of the path gives the same five."""

    async def speak(node: DoAsync) -> None:
        for token in "abcde":
            node.emit(Token(text=token))
            await checkpoint()

    model = Sequence("inner", memory=True, children=[DoAsync("model", speak), Scripted("other", FAILURE)])
    root = Sequence("main", memory=True, children=[Inverter("flip", model), DoAsync("model", speak)])
    events = await _read(Agent(root, World), path=path)
    tokens = [(event.text, event.path) for event in of_kind(events, Token) if event.path != "main/model"]
    assert tokens == [(text, "main/flip/inner/model") for text in "abcde"]
    if path not in (None, "main"):
        assert {event.path for event in events if event.path is not None} <= {
            each.path for each in events if (each.path or "").startswith(path)
        }
        assert of_kind(events, RunEnded)


def test_v05_stepping_is_one_tick_at_a_time_and_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three leaves, RUNNING once each: statuses between the steps are those of each tick; writes cause none."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    leaves = [Scripted(name, RUNNING, SUCCESS) for name in "abc"]
    agent = Agent(Sequence("main", memory=True, children=leaves), World)
    passes = passes_of(agent)
    monkeypatch.setattr(socket, "socket", refuse)
    seen = []
    for _ in range(3):
        agent.step_sync()
        seen.append([leaf.status.name[0] for leaf in leaves])
        agent.state_manager.update({"n": len(seen)})
    assert seen == [["R", "I", "I"], ["S", "R", "I"], ["S", "S", "R"]]
    assert len(passes) == 3


@pytest.mark.anyio
async def test_v07_an_object_that_stands_twice_in_an_event_is_whole_in_both_places() -> None:
    """Dumped as JSON too: only a circle would have to be cut."""

    class Two(Event):
        first: dict[str, list[int]]
        second: dict[str, list[int]]

    shared = {"x": [1, 2]}

    async def tell(node: DoAsync) -> None:
        node.emit(Two(first=shared, second=shared))

    events = await _read(Agent(DoAsync("x", tell), World))
    told = of_kind(events, Two)[0]
    assert told.first == told.second == shared
    dumped = told.model_dump(mode="json")
    assert dumped["first"] == dumped["second"] == shared


@pytest.mark.anyio
async def test_v08_questions_are_told_in_the_same_stream() -> None:
    """Asked, Answered (with who), NodeFinished, Saved, RunEnded: in this order, without a gap."""
    agent = Agent(
        Sequence("main", memory=True, children=[AskHuman("ask", message="?", into="text")]), World, store=MemoryStore()
    )
    events: list[Event] = []
    with anyio.fail_after(5):
        async with agent.stream(until_suspend=True) as stream:
            events += [event async for event in stream]
        assert type(events[-1]) is RunEnded
        assert events[-1].outcome.suspended
        async with agent.stream_resume("yes", by="ann") as stream:
            events += [event async for event in stream]
    numbers = [event.seq for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    wanted = [Asked, Saved, RunEnded, Answered, RunStarted, NodeFinished, Saved, RunEnded]
    order = iter(type(event) for event in events)
    assert all(kind in order for kind in wanted)
    answered = of_kind(events, Answered)
    assert [(each.by, each.status, each.path, each.used) for each in answered] == [
        ("ann", "answered", "main/ask", True)
    ]
    assert of_kind(events, Asked)[0].suspension.id == answered[0].id


class Snapshots:
    """What a SnapshotVisitor and the handlers have seen of a tree, tick by tick."""

    def __init__(self, tree: py_trees.trees.BehaviourTree) -> None:
        self.seen: list[tuple[dict[str, Status], dict[str, Status], bool]] = []
        self.calls: list[str] = []
        self.visitor = SnapshotVisitor()
        tree.visitors.append(self.visitor)
        tree.add_pre_tick_handler(lambda tree: self.calls.append(f"pre {tree.count}"))
        tree.add_post_tick_handler(self.note)

    def note(self, tree: py_trees.trees.BehaviourTree) -> None:
        """Note what was visited, by name."""
        self.calls.append(f"post {tree.count}")
        names = {node.id: node.name for node in tree.root.iterate()}
        visitor = self.visitor
        now = {names[id]: status for id, status in visitor.visited.items()}
        before = {names[id]: status for id, status in visitor.previously_visited.items()}
        self.seen.append((now, before, visitor.changed))


def _looked_at() -> Behaviour:
    """Return a tree some of whose nodes are not ticked in some ticks."""
    first = Sequence(
        "first", memory=False, children=[py_trees.behaviours.SuccessEveryN("n", 3), Plain("a", RUNNING, SUCCESS)]
    )
    second = Parallel("second", ParallelPolicy.SuccessOnAll(), children=[Plain("b", RUNNING), Plain("c", SUCCESS)])
    return Selector("main", memory=False, children=[Inverter("i", first), second])


@pytest.mark.anyio
async def test_v09_visitors_and_handlers_are_those_of_py_trees() -> None:
    """Ten ticks: the same visits, statuses and calls as under py_trees; what was not ticked is not visited."""
    theirs = py_trees.trees.BehaviourTree(_looked_at())
    expected = Snapshots(theirs)
    for _ in range(10):
        theirs.tick()
    agent = Agent(_looked_at())
    found = Snapshots(agent.tree)
    for _ in range(10):
        await agent.step()
    assert found.seen == expected.seen
    assert found.calls == expected.calls
    assert any(len(now) < 7 for now, _, _ in found.seen)


@pytest.mark.anyio
async def test_v09_those_of_a_given_tree_are_kept() -> None:
    """An agent that is built from a BehaviourTree has its visitors and handlers."""
    tree = py_trees.trees.BehaviourTree(_looked_at())
    found = Snapshots(tree)
    agent = Agent(tree)
    await agent.step()
    assert found.calls == ["pre 0", "post 0"]
    assert len(found.seen) == 1


@pytest.mark.anyio
async def test_v10_what_is_never_reached_is_never_told() -> None:
    """Over three passes one child under a Parallel is not ticked: no event of any kind for it."""
    unreached = Scripted("unreached", SUCCESS)
    branch = Selector("branch", memory=False, children=[Scripted("taken", RUNNING), Sequence("s", True, [unreached])])
    root = Parallel("p", ParallelPolicy.SuccessOnAll(), children=[branch, Plain("ticks", RUNNING, RUNNING, FAILURE)])
    agent = Agent(root, World, poll_interval=0.001)
    events = events_of(agent)
    passes = passes_of(agent)
    assert await run(agent) is FAILURE
    assert len(passes) == 3
    told = {event.path for event in events if isinstance(event, NodeStarted | NodeFinished | NodeHalted)}
    assert told == {"p", "p/branch", "p/branch/taken", "p/ticks"}
    assert [event.path for event in of_kind(events, NodeHalted)] in (
        ["p/branch/taken", "p/branch"],
        ["p/branch", "p/branch/taken"],
    )


@pytest.mark.anyio
async def test_v11_step_does_not_wait_and_settle_does() -> None:
    """Without `settle` it returns at t=0 with the leaf RUNNING; with it at 0.5; outside of a block it is refused."""
    clock = VirtualClock(autojump=True)
    leaf = Sleep("x", 0.5, Diary(clock))
    agent = Agent(Sequence("main", memory=True, children=[leaf]), World, clock=clock)
    with anyio.fail_after(5), nothing_left(agent):
        async with agent:
            assert await agent.step() == {}
            assert (clock.now(), leaf.status) == (0, RUNNING)
            await agent.step(settle=True)
            assert clock.now() == 0.5
        with pytest.raises(SetupError, match="async with agent:"):
            await agent.step()


@pytest.mark.anyio
async def test_v11_settle_returns_when_a_leaf_asks_instead() -> None:
    """Without a human the question is open when it returns; with a scripted one it is answered in time."""
    clock = VirtualClock(autojump=True)

    async def asks(node: DoAsync) -> None:
        await node.context.clock.sleep(0.5)
        node.write_state({"text": await node.ask(Request("?"), key="k")})

    agent = Agent(DoAsync("x", asks), World, clock=clock)
    with anyio.fail_after(5), nothing_left(agent):
        async with agent:
            await agent.step(settle=True)
            assert clock.now() == 0.5
            question = agent.interaction.suspension
            assert question is not None
            await agent.interaction.answer(Answer(question.id, "yes"))
            await agent.step(settle=True)
            await agent.step()
            assert (agent.status, agent.state.text) == (SUCCESS, "yes")


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["break", "exception"])
async def test_v12_a_consumer_that_leaves_halts_the_run(any_store: Stores, how: str) -> None:
    """After two events, by `break` or by an exception of its own: quiet, INVALID, free, and saved."""
    diary = Diary()
    agent = Agent(
        Sequence("main", memory=True, children=[Scripted("a", SUCCESS), Forever("b", diary)]), World, store=any_store()
    )
    events = events_of(agent)

    async def consume() -> None:
        async with agent.stream(thread_id="t1") as stream:
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == 2 and how == "break":
                    break
                if seen == 2:
                    raise LookupError("mine")

    with anyio.fail_after(5), nothing_left(agent):
        if how == "break":
            await consume()
        else:
            with pytest.raises(LookupError, match="mine"):
                await consume()
    assert of_kind(events, RunEnded)[-1].outcome.status is INVALID
    assert diary.count("start", "b") == diary.count("clean", "b")
    kept = await any_store().show("t1")
    live = agent.dump_checkpoint()["position"]
    statuses = {live["paths"][int(at)]: one["status"] for at, one in live["nodes"].items()} if live else {}
    assert (kept.status, kept.run, kept.position) == ("interrupted", 1, statuses)
