"""The runner itself: what is polled, what counts as hot, timers, phases, exceptions and their paths, deep trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import py_trees
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Composite, Parallel, Selector, Sequence
from py_trees.decorators import Decorator, Inverter

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import HotLoop, NodeFinished, NodeStarted
from jianmu.engine.limits import Limits
from jianmu.engine.node import AsyncNode, Node, NodeMixin
from jianmu.engine.phases import REST, TRANSITIONS, Phase, advance
from jianmu.engine.tree import walk
from jianmu.errors import AgentBusyError, InvalidStatusError, LimitExceeded, SetupError
from jianmu.nodes import AskHuman, LoopUntilSuccess, Repeat, Retry, Timeout, Timer
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Diary,
    Do,
    DoAsync,
    Flag,
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
    run_with,
)

pytestmark = pytest.mark.anyio
ALL = ParallelPolicy.SuccessOnAll

# Phases


def test_the_phases_are_a_table() -> None:
    """From rest to driving or stepping and back to rest by way of parking; everything else is refused."""
    deeds = {deed for _, deed in TRANSITIONS}
    for phase in Phase:
        for deed in deeds:
            if (phase, deed) in TRANSITIONS:
                assert advance(phase, deed) is TRANSITIONS[phase, deed]
            else:
                with pytest.raises(AgentBusyError, match=phase.value):
                    advance(phase, deed)
    assert all(TRANSITIONS[phase, "drive"] is Phase.DRIVING for phase in REST)
    assert not any((phase, "drive") in TRANSITIONS for phase in Phase if phase not in REST)


async def test_the_phase_follows_the_calls() -> None:
    """Idle, driving, finished; suspended at a question; idle again after a cancellation."""
    seen: list[Phase] = []
    agent = Agent(Do("x", lambda _: seen.append(agent.runner.phase)), World)
    assert agent.runner.phase is Phase.IDLE
    await agent.run()
    assert (seen, agent.runner.phase) == ([Phase.DRIVING], Phase.FINISHED)
    await agent.step()
    assert seen[-1] is Phase.STEPPING
    asks = Agent(AskHuman("ask", message="?", into="text"), World)
    await asks.run_until_suspend()
    assert asks.runner.phase is Phase.SUSPENDED
    forever = Agent(Forever("x"), World)
    with anyio.move_on_after(0.005):
        await forever.run()
    assert forever.runner.phase is Phase.IDLE


# Polling


class Own(Composite):
    """A composite of a user's with a tick of its own."""

    def update(self) -> Status:
        """Report the last child."""
        return self.children[-1].status

    def tick(self) -> Iterator[Behaviour]:
        """Tick all children."""
        self.current_child = self.children[0]
        for child in self.children:
            yield from child.tick()
        self.status = self.update()
        yield self


class OwnUpdate(Decorator):
    """A decorator of a user's with an update of its own."""

    def update(self) -> Status:
        """Report the child."""
        return self.decorated.status


class Known(NodeMixin, OwnUpdate):
    """The same, event-driven."""


class PolledKnown(Known):
    """The same, polled again."""

    polled = True


POLLED: dict[str, Callable[[], Behaviour]] = {
    "a py_trees leaf": lambda: Plain("x", RUNNING),
    "one that has finished": lambda: Parallel(
        "p", ALL(synchronise=False), children=[Plain("x", SUCCESS), Scripted("y", RUNNING)]
    ),
    "one below a Sequence": lambda: Sequence("s", False, [Plain("x", SUCCESS), Scripted("y", RUNNING)]),
    "an unknown composite": lambda: Own("o", [Scripted("x", RUNNING)]),
    "an unknown decorator": lambda: OwnUpdate("o", Scripted("x", RUNNING)),
    "an EternalGuard": lambda: py_trees.decorators.EternalGuard("g", Scripted("x", RUNNING), condition=lambda: True),
    "FailureIsRunning over a finished child": lambda: py_trees.decorators.FailureIsRunning("d", Scripted("x", FAILURE)),
    "Condition over a finished child": lambda: py_trees.decorators.Condition("d", Scripted("x", FAILURE), SUCCESS),
    "Repeat for ever over a finished child": lambda: py_trees.decorators.Repeat("d", Scripted("x", SUCCESS), -1),
    "jianmu's Repeat for ever": lambda: Repeat("d", Scripted("x", SUCCESS)),
    "a polled decorator": lambda: PolledKnown("d", Scripted("x", RUNNING)),
}
EVENT_DRIVEN: dict[str, Callable[[], Behaviour]] = {
    "a Node": lambda: Scripted("x", RUNNING),
    "an AsyncNode": lambda: Forever("x"),
    "a constant": lambda: py_trees.behaviours.Running("x"),
    "a finished constant": lambda: Sequence("s", False, [py_trees.behaviours.Success("x"), Scripted("y", RUNNING)]),
    "FailureIsRunning over a running child": lambda: py_trees.decorators.FailureIsRunning("d", Scripted("x", RUNNING)),
    "Repeat for ever over a running child": lambda: py_trees.decorators.Repeat("d", Scripted("x", RUNNING), -1),
    "a decorator with NodeMixin": lambda: Known("d", Scripted("x", RUNNING)),
    "a Timeout": lambda: Timeout("t", Scripted("x", RUNNING), seconds=1000),
    "an Inverter": lambda: Inverter("i", Scripted("x", RUNNING)),
}


async def _passes_in_a_second(root: Behaviour) -> int:
    clock = VirtualClock(autojump=True)
    agent = Agent(root, World, clock=clock, poll_interval=0.1)
    passes = passes_of(agent)

    async def halt() -> None:
        await clock.sleep(1.05)
        agent.halt()

    with nothing_left(agent):
        await run_with(agent, halt)
    return len(passes)


@pytest.mark.parametrize("what", POLLED)
async def test_opaque_nodes_are_polled(what: str) -> None:
    """A pass that ticked one and left the root RUNNING is followed by another after `poll_interval`."""
    assert await _passes_in_a_second(POLLED[what]()) == 11


@pytest.mark.parametrize("what", EVENT_DRIVEN)
async def test_known_nodes_are_not(what: str) -> None:
    """They are ticked when something happened: one pass, then quiet."""
    assert await _passes_in_a_second(EVENT_DRIVEN[what]()) == 1


async def test_wake_after_is_a_timer_of_the_node() -> None:
    """`wake(after=…)` asks for one pass at that time while the node is RUNNING; the earliest counts."""
    clock = VirtualClock(autojump=True)
    times: list[float] = []

    def look(node: Do) -> Status:
        times.append(clock.now())
        node.wake(after=5)
        node.wake(after=2)
        node.wake(after=9)
        return RUNNING if len(times) < 3 else SUCCESS

    assert await run(Agent(Do("x", look), World, clock=clock)) is SUCCESS
    assert times == [0, 2, 4]
    assert clock.now() == 4


async def test_a_timer_of_a_halted_node_is_forgotten() -> None:
    """Nobody is woken for a node that does not run any more."""
    clock = VirtualClock(autojump=True)

    class Waits(Node):
        def update(self) -> Status:
            self.wake(after=1)
            return RUNNING

    waits = Sequence("g", memory=False, children=[Flag("go", "go"), Waits("w")])
    root = Selector("s", memory=False, children=[waits, Sleep("x", 10)])
    agent = Agent(root, World, clock=clock)
    passes = passes_of(agent, clock)

    async def turn() -> None:
        await clock.sleep(0.5)
        agent.state_manager.update({"go": False})

    agent.state_manager.update({"go": True})
    assert await run_with(agent, turn) is SUCCESS
    assert passes == [0, 0.5, 10.5]


async def test_timers_fire_in_order_and_together_make_one_pass() -> None:
    """Two at the same time are seen in one pass; results that are ready at that time come first."""
    clock = VirtualClock(autojump=True)
    root = Parallel(
        "p", ALL(), children=[Timer("a", seconds=1), Timer("b", seconds=2), Timer("c", seconds=2), Sleep("d", 2)]
    )
    agent = Agent(root, World, clock=clock)
    passes = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert passes[:2] == [0, 1]
    assert clock.now() == 2
    assert len(passes) <= 4


async def test_min_interval_limits_polls_and_timers_too() -> None:
    """Whatever asks for a pass: it is not earlier than `min_interval` after the last."""
    clock = VirtualClock(autojump=True)
    root = Parallel("p", ALL(), children=[Plain("x", *[RUNNING] * 5, SUCCESS), Timer("t", seconds=0.3)])
    agent = Agent(root, World, clock=clock, poll_interval=0.1, min_interval=0.5)
    passes = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert passes == [0, 0.5, 1, 1.5, 2, 2.5]


# Hot loops


@pytest.mark.parametrize(
    "root",
    [
        lambda: Repeat("r", Do("x", lambda node: node.transform_field("n", lambda n: n + 1)), times=40),
        lambda: py_trees.decorators.Repeat("r", Do("x", lambda node: node.transform_field("n", lambda n: n + 1)), 40),
        lambda: Retry("r", Do("x", lambda node: node.transform_field("n", lambda n: n + 1) or FAILURE), attempts=40),
        lambda: LoopUntilSuccess("r", Do("x", _counted_to_forty)),
    ],
)
async def test_bounded_loops_are_not_hot(root: Callable[[], Behaviour]) -> None:
    """Forty rounds, each of which writes, are what was asked for."""
    agent = Agent(root(), World)
    events = events_of(agent)
    await run(agent)
    assert agent.state.n == 40
    assert of_kind(events, HotLoop) == []


def _counted_to_forty(node: Do) -> Status:
    node.transform_field("n", lambda n: n + 1)
    return SUCCESS if node.read_state().n == 40 else FAILURE


async def test_polls_that_are_due_are_not_hot() -> None:
    """A polled leaf beside one that writes in every tick: the polls are reasons of their own."""
    clock = VirtualClock(autojump=True)
    writes = Do("w", lambda node: node.transform_field("n", lambda n: n + 1) or RUNNING)
    root = Parallel("p", ALL(), children=[Plain("x", RUNNING), writes])
    agent = Agent(root, World, clock=clock, poll_interval=0.1, min_interval=0.1)
    events = events_of(agent)

    async def halt() -> None:
        await clock.sleep(3)
        agent.halt()

    await run_with(agent, halt)
    assert agent.state.n > 20
    assert of_kind(events, HotLoop) == []


async def test_each_run_tells_its_own_hot_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Once in a run, in the log as well."""
    writes = Do("w", lambda node: node.transform_field("n", lambda n: n + 1) or RUNNING)
    agent = Agent(writes, World, limits=Limits(max_ticks=40))
    events = events_of(agent)
    for _ in range(2):
        with pytest.raises(LimitExceeded):
            await run(agent)
    assert [event.run for event in of_kind(events, HotLoop)] == [1, 2]
    assert sum("hot loop" in record.getMessage() for record in caplog.records) == 2


async def test_a_hot_loop_that_comes_back_is_told_once() -> None:
    """A write from outside between two hot stretches does not make it a second one."""
    clock = VirtualClock(autojump=True)
    writes = Do("w", lambda node: node.transform_field("n", lambda n: n + 1) or RUNNING)
    agent = Agent(writes, World, clock=clock, min_interval=0.1)
    events = events_of(agent)

    async def disturb() -> None:
        for _ in range(3):
            await clock.sleep(2)
            agent.state_manager.update({"ready": not agent.state.ready})
        agent.halt()

    assert await run_with(agent, disturb) is INVALID
    assert len(of_kind(events, HotLoop)) == 1


# Exceptions


class Fails(Behaviour):
    """A leaf of py_trees that raises."""

    def update(self) -> Status:
        """Raise."""
        raise LookupError(self.name)


PLACES: dict[str, Callable[[Behaviour], Behaviour]] = {
    "s/x": lambda leaf: Sequence("s", memory=True, children=[leaf]),
    "p/x": lambda leaf: Parallel("p", ALL(), children=[Scripted("y", SUCCESS), leaf]),
    "i/x": lambda leaf: Inverter("i", leaf),
    "o/x": lambda leaf: Own("o", [leaf]),
    "d/x": lambda leaf: OwnUpdate("d", leaf),
    "r/x": lambda leaf: py_trees.decorators.Retry("r", leaf, 3),
    "t/x": lambda leaf: Timeout("t", leaf, seconds=5),
    "s/o/i/x": lambda leaf: Sequence("s", memory=False, children=[Own("o", [Inverter("i", leaf)])]),
    "x": lambda leaf: leaf,
}


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("kind", [Fails, lambda name: Do(name, _fail), lambda name: DoAsync(name, _fail_async)])
async def test_an_exception_names_the_path_of_its_node(path: str, kind: Callable[[str], Behaviour]) -> None:
    """Wherever it is, whatever kinds of nodes are above it: in the note and in `agent.errors`."""
    agent = Agent(PLACES[path](kind("x")), World)
    with nothing_left(agent), pytest.raises(LookupError) as caught:
        await run(agent)
    assert caught.value.__notes__ == [f"raised by node '{path}'"]
    assert agent.errors == [(path, caught.value)]
    assert {node.status for node in walk(agent.root)} == {INVALID}


def _fail(node: Do) -> Status:
    raise LookupError(node.name)


async def _fail_async(node: DoAsync) -> Status:
    await checkpoint()
    raise LookupError(node.name)


async def test_one_of_update_and_one_of_a_coroutine_in_one_pass() -> None:
    """The first in tree order is raised, whichever was found first; the other is a note."""
    for order in ("plain first", "coroutine first"):

        def plain(node: Do) -> Status:
            return _fail(node) if node.ticks == 2 else RUNNING

        nodes: list[Behaviour] = [Do("plain", plain), DoAsync("coroutine", _fail_async)]
        if order == "coroutine first":
            nodes.reverse()
        agent = Agent(Parallel("p", ALL(), children=nodes), World)
        with nothing_left(agent), pytest.raises(LookupError, match=nodes[0].name) as caught:
            await run(agent)
        assert len(agent.errors) in (1, 2)
        assert agent.errors[0] == (f"p/{nodes[0].name}", caught.value)


@pytest.mark.parametrize("status", [INVALID, None, "SUCCESS", 1, True])
@pytest.mark.parametrize("kind", ["py_trees", "Node", "AsyncNode"])
async def test_what_is_no_status_is_an_error_with_the_path(status: Any, kind: str) -> None:
    """`update()` and `update_async()` return SUCCESS, FAILURE (or RUNNING): all else is an InvalidStatusError."""

    class Leaf(Behaviour):
        def update(self) -> Any:
            return status

    class OwnNode(Node):
        def update(self) -> Any:
            return status

    class OwnAsync(AsyncNode):
        async def update_async(self) -> Any:
            return status

    node = {"py_trees": Leaf, "Node": OwnNode, "AsyncNode": OwnAsync}[kind]("x")
    agent = Agent(Sequence("s", memory=True, children=[node]), World)
    with nothing_left(agent), pytest.raises(InvalidStatusError, match="s/x") as caught:
        await run(agent)
    assert caught.value.path == "s/x"


async def test_an_async_node_may_not_return_running() -> None:
    """It has finished when it returns: RUNNING would never be ticked again."""

    async def returns(_node: DoAsync) -> Status:
        return RUNNING

    agent = Agent(DoAsync("x", returns), World)
    with nothing_left(agent), pytest.raises(InvalidStatusError, match=r"return Status\.SUCCESS or FAILURE"):
        await run(agent)


@pytest.mark.parametrize(
    ("kind", "text"), [(Node, r"Node has no update\(\)"), (AsyncNode, r"AsyncNode has no update_async\(\)")]
)
async def test_a_leaf_that_overrides_nothing_says_what_to_override(kind: type, text: str) -> None:
    """The class as it comes does nothing."""
    with pytest.raises(SetupError, match=text):
        await run(Agent(kind(), World))


def test_a_leafs_name_defaults_to_its_class() -> None:
    """`Node()` is called "Node"; a subclass by its own name."""

    class Pay(AsyncNode):
        """Does nothing."""

    assert (Node().name, Pay().name, Pay("other").name) == ("Node", "Pay", "other")


async def test_an_async_node_outside_of_an_agent_says_so() -> None:
    """Ticked by py_trees alone it cannot start: a SetupError with the line to write."""
    tree = py_trees.trees.BehaviourTree(Sequence("s", memory=True, children=[Sleep("x", 1)]))
    with pytest.raises(SetupError, match=r"Agent\(root\)"):
        tree.tick()


class GivesUp(OwnUpdate):
    """A decorator of a user's that succeeds at its second tick and leaves its child as it is."""

    ticks = 0

    def tick(self) -> Iterator[Behaviour]:
        """Tick the child once, then only oneself."""
        self.ticks += 1
        if self.ticks == 1:
            yield from self.decorated.tick()
        self.status = RUNNING if self.ticks == 1 else SUCCESS
        yield self


async def test_a_coroutine_that_its_parent_has_forgotten_is_halted() -> None:
    """Below a node that is not RUNNING nothing is: it is cleaned up, and what follows starts after that."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    forgets = GivesUp("g", Forever("x", diary, cleanup=0.5))
    agent = Agent(Sequence("s", memory=True, children=[forgets, Sleep("next", 1, diary)]), World, clock=clock)
    with nothing_left(agent):
        assert await run(agent) is SUCCESS
    assert diary.at("clean", "x") == diary.at("start", "next")
    assert clock.now() == pytest.approx(diary.at("start", "next")[0] + 1)


# Callbacks and events
async def test_the_lifecycle_of_an_async_node() -> None:
    """initialise, start after the pass, update in each tick, terminate with the result or INVALID, then cleanup."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    class Leaf(Sleep):
        def initialise(self) -> None:
            diary.note("initialise", self.name)

        def terminate(self, new_status: Status) -> None:
            diary.note(f"terminate {new_status.name} from {self.status.name}", self.name)

    leaf = Leaf("x", 1, diary)
    agent = Agent(leaf, World, clock=clock)
    assert await run(agent) is SUCCESS
    assert diary.order() == ["initialise x", "start x", "end x", "terminate SUCCESS from RUNNING x"]
    diary.lines.clear()

    async def halt() -> None:
        await clock.sleep(0.5)
        agent.halt()

    assert await run_with(agent, halt) is INVALID
    assert diary.order() == [
        "initialise x",
        "start x",
        "terminate INVALID from RUNNING x",
        "unwound x",
        "cleanup x",
        "clean x",
    ]


async def test_events_of_a_pass_are_in_the_order_of_the_ticks() -> None:
    """Started before what is below, finished after it."""
    root = Sequence("s", memory=True, children=[Inverter("i", Scripted("a", FAILURE)), Scripted("b", SUCCESS)])
    agent = Agent(root, World)
    events = events_of(agent)
    assert await run(agent) is SUCCESS
    told = [(type(event).__name__[4:], event.path) for event in events if isinstance(event, NodeStarted | NodeFinished)]
    assert told == [
        ("Started", "s"),
        ("Started", "s/i"),
        ("Started", "s/i/a"),
        ("Finished", "s/i/a"),
        ("Finished", "s/i"),
        ("Started", "s/b"),
        ("Finished", "s/b"),
        ("Finished", "s"),
    ]


async def test_coroutines_are_called_by_their_paths() -> None:
    """In a debugger or a task dump each can be told from the others."""
    agent = Agent(Sequence("s", memory=True, children=[Forever("x")]), World)
    names: set[str | None] = set()

    async def look() -> None:
        while "s/x" not in names:
            names.update(task.name for task in anyio.get_running_tasks())
            await checkpoint()
        agent.halt()

    assert await run_with(agent, look) is INVALID


# Size


async def test_deep_trees_work_in_a_run() -> None:
    """5,000 levels: bound, set up, run, suspended, halted and shut down, without recursion."""
    leaf = Sleep("x", 0)
    top: Behaviour = leaf
    for number in range(5_000):
        top = Sequence(f"s{number}", memory=bool(number % 2), children=[top]) if number % 3 else Inverter("i", top)
    agent = Agent(top, World)
    with nothing_left(agent):
        assert await run(agent, within=20) in (SUCCESS, FAILURE)
        assert leaf.diary.count("end", "x") == 1
        leaf.seconds = 1000

        async def halt() -> None:
            while leaf.diary.count("start", "x") < 2:  # noqa: ASYNC110  # whatever the machine's load is
                await anyio.sleep(0.01)
            agent.halt()

        assert await run_with(agent, halt, within=20) is INVALID
    assert top.status is INVALID
    assert leaf.diary.count("clean", "x") == 1


async def test_wide_trees_work_in_a_run() -> None:
    """A thousand coroutines at once: started, finished, and the other half halted."""
    clock = VirtualClock(autojump=True)
    quick = [Sleep(f"q{number}", 1) for number in range(500)]
    slow = [Forever(f"f{number}") for number in range(500)]
    done = Parallel("done", ALL(), children=quick)
    root = Parallel("p", ParallelPolicy.SuccessOnOne(), children=[done, *slow])
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent):
        assert await run(agent, within=20) is SUCCESS
    assert clock.now() == 1
    assert all(leaf.diary.count("clean", leaf.name) == 1 for leaf in slow)


async def test_a_run_that_never_waits_opens_no_group_of_coroutines() -> None:
    """A place for coroutines is made when one starts or the run waits, and not before."""
    opened: list[str] = []

    class Here(Behaviour):
        def update(self) -> Status:
            opened.append(str(agent.runner.host.is_open))
            return Status.SUCCESS

    agent = Agent(Here("here"))
    with anyio.fail_after(5):
        assert await agent.run() is Status.SUCCESS
    assert opened == ["False"]
    assert not agent.runner.host.is_open
