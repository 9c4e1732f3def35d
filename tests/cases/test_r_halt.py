"""Cases R20-R41 about halting: what is cancelled, what is waited for, what may start before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Decorator

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import CleanupFailed
from jianmu.engine.node import AsyncNode
from jianmu.errors import NodeCancelledError
from jianmu.nodes import Catch
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Diary,
    DoAsync,
    Flag,
    Forever,
    Scripted,
    Sleep,
    World,
    cancelled,
    events_of,
    guarded,
    nothing_left,
    of_kind,
    passes_of,
    run,
    run_with,
)

pytestmark = pytest.mark.anyio
ALL = ParallelPolicy.SuccessOnAll


class Deaf(Decorator):
    """A decorator of a user's that overrides `terminate` and does not call the base."""

    def update(self) -> Status:
        """Report the child."""
        return self.decorated.status

    def terminate(self, new_status: Status) -> None:
        """Do nothing."""


class Selfish(Deaf):
    """A decorator of a user's whose `stop` makes only itself INVALID."""

    def stop(self, new_status: Status) -> None:
        """Leave the child as it is."""
        self.terminate(new_status)
        self.status = new_status


class OwnTick(Selfish):
    """One that ticks in its own way as well."""

    def tick(self) -> Iterator[Behaviour]:
        """Tick the child, then take its status."""
        yield from self.decorated.tick()
        self.status = self.decorated.status
        yield self


@pytest.mark.parametrize("wrap", [Deaf, Selfish, OwnTick])
async def test_r20_a_decorator_that_halts_nothing_hides_no_coroutine(wrap: type[Decorator]) -> None:
    """Whatever a user's decorator overrides, the child's coroutine is halted and its cleanup awaited."""
    clock = VirtualClock(autojump=True)
    leaf = Forever("leaf", Diary(clock), cleanup=0.5)
    agent = Agent(wrap("wrap", leaf), World, clock=clock)
    with nothing_left(agent):
        await cancelled(agent, clock, 1)
    assert leaf.diary.lines == [
        (0, "start", "leaf"),
        (1, "unwound", "leaf"),
        (1, "cleanup", "leaf"),
        (1.5, "clean", "leaf"),
    ]
    assert leaf.status is INVALID


async def test_r21_a_second_run_starts_anew_after_the_first_is_dead() -> None:
    """A cancelled run leaves nothing: the next one starts at the first child, when the old coroutine is gone."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    done, endless = Sleep("A", 0, diary), Forever("B", diary)
    agent = Agent(Sequence("main", memory=True, children=[done, endless]), World, clock=clock)
    for _ in range(2):
        with nothing_left(agent):
            await cancelled(agent, clock, 1)
    assert diary.order("start", "clean") == ["start A", "start B", "clean B"] * 2
    assert endless.most_alive == 1


async def test_r22_a_branch_that_comes_back_waits_for_its_own_cleanup() -> None:
    """Guard on at 1 and off at 1.05: never two copies of B, A is never entered, the other branch goes on."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    first, second = Forever("A", diary), Forever("B", diary, cleanup=0.3)
    choice = Selector("choice", memory=False, children=[guarded("go", first), second])

    class Polled(Scripted):
        polled = True

    agent = Agent(Parallel("p", ALL(), children=[choice, Polled("ticking", RUNNING, diary=diary)]), World, clock=clock)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})
        await clock.sleep(0.05)
        agent.state_manager.update({"go": False})
        await clock.sleep(2)
        agent.halt()

    with nothing_left(agent):
        assert await run_with(agent, turn) is INVALID
    assert diary.count("start", "A") == 0
    assert diary.at("start", "B") == [0, 1.3]
    assert second.most_alive == 1
    assert len([time for time in diary.at("update", "ticking") if 1 < time < 1.3]) >= 3


async def test_r26_two_branches_that_share_a_thing_never_hold_it_at_once() -> None:
    """The one that is left frees it in its `finally` before the other one starts."""
    clock = VirtualClock(autojump=True)
    held: list[str] = []
    most: list[int] = []

    async def use(node: DoAsync) -> None:
        held.append(node.name)
        most.append(len(held))
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await node.context.clock.sleep(0.2)
            held.remove(node.name)

    upper, lower = DoAsync("upper", use), DoAsync("lower", use)
    agent = Agent(Selector("s", memory=False, children=[guarded("go", upper), lower]), World, clock=clock)

    async def turn() -> None:
        for value in (True, False, True):
            await clock.sleep(1)
            agent.state_manager.update({"go": value})
        await clock.sleep(1)
        agent.halt()

    with nothing_left(agent):
        await run_with(agent, turn)
    assert (upper.starts, lower.starts) == (2, 2)
    assert max(most) == 1


async def test_r27_what_is_started_and_halted_in_one_pass_is_never_entered() -> None:
    """Parallel [async A, Failure]: FAILURE after one pass, A's coroutine was not entered, nor its cleanup."""
    leaf = Forever("A")
    agent = Agent(Parallel("p", ALL(), children=[leaf, Scripted("no", FAILURE)]), World)
    passes = passes_of(agent)
    with nothing_left(agent):
        assert await run(agent) is FAILURE
    assert leaf.diary.lines == []
    assert len(passes) == 1


@pytest.mark.parametrize("kind", ["hook", "finally"])
async def test_r33_a_cancelled_run_ends_when_its_cleanups_have(kind: str) -> None:
    """Cancelled at 0.5, cleanup of 0.2 (the hook; a shielded `finally`): ends at 0.7, the write is in."""
    clock = VirtualClock(autojump=True)

    async def clean(node: DoAsync) -> None:
        await node.context.clock.sleep(0.2)
        node.write_state({"cleaned": True})

    async def work(node: DoAsync) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if kind == "finally":
                with anyio.CancelScope(shield=True):
                    await clean(node)

    leaf = DoAsync("leaf", work, clean if kind == "hook" else None)
    root = Sequence("main", memory=True, children=[Scripted("x", SUCCESS), leaf])
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent):
        await cancelled(agent, clock, 0.5)
    assert clock.now() == pytest.approx(0.7)
    assert agent.state.cleaned
    assert {node.status for node in [root, *root.children]} == {INVALID}
    assert leaf.cleanups == 1


async def test_r32_an_exception_ends_the_run_and_all_else_in_it() -> None:
    """The original exception, with the node's path in a note; what ran beside it is dead."""
    clock = VirtualClock(autojump=True)

    async def fail(node: DoAsync) -> None:
        await node.context.clock.sleep(0.1)
        raise ValueError("no")

    async def write(node: DoAsync) -> None:
        await node.context.clock.sleep(1)
        node.write_state({"late": True})

    agent = Agent(Parallel("p", ALL(), children=[DoAsync("A", fail), DoAsync("B", write)]), World, clock=clock)
    with nothing_left(agent), pytest.raises(ValueError, match=r"^no\n") as caught:
        await run(agent)
    assert any("p/A" in note for note in caught.value.__notes__)
    assert clock.now() == pytest.approx(0.1)
    await clock.advance(5)
    assert agent.state.late is False
    assert agent.errors == [("p/A", caught.value)]


async def test_r32_of_two_in_one_pass_the_first_in_tree_order_is_raised() -> None:
    """Whichever coroutine was quicker; the others are notes, and all are in `agent.errors`."""
    clock = VirtualClock(autojump=True)

    def failing(name: str) -> DoAsync:
        async def fail(node: DoAsync) -> None:
            await node.context.clock.sleep(0.1)
            raise ValueError(node.name)

        return DoAsync(name, fail)

    for _ in range(5):
        agent = Agent(Parallel("p", ALL(), children=[failing(name) for name in "ABC"]), World, clock=clock)
        with nothing_left(agent), pytest.raises(ValueError, match=r"^A\n") as caught:
            await run(agent)
        notes = " ".join(caught.value.__notes__)
        assert all(place in notes for place in ("p/A", "p/B", "p/C"))
        assert [path for path, _ in agent.errors] == ["p/A", "p/B", "p/C"]


async def test_r34_a_coroutine_that_is_cancelled_by_its_own_doing_is_an_error_with_a_name() -> None:
    """A cancellation that nobody of the runtime asked for: no hang, NodeCancelledError with the path."""

    async def cancel(_node: DoAsync) -> None:
        kept: list[BaseException] = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await checkpoint()
            except anyio.get_cancelled_exc_class() as error:
                kept.append(error)
                raise
        raise kept[0]

    root = Sequence("main", memory=True, children=[DoAsync("leaf", cancel)])
    agent = Agent(root, World)
    with nothing_left(agent), pytest.raises(NodeCancelledError, match="main/leaf") as caught:
        await run(agent)
    assert caught.value.path == "main/leaf"
    assert agent.errors == [("main/leaf", caught.value)]


async def test_r34_a_timeout_scope_of_its_own_that_it_handles_is_its_own_affair() -> None:
    """`move_on_after` inside a node works as everywhere."""

    async def wait(_node: DoAsync) -> Status:
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep_forever()
        return SUCCESS if scope.cancelled_caught else FAILURE

    assert await run(Agent(DoAsync("leaf", wait), World)) is SUCCESS


async def test_r35_an_exception_in_a_cleanup_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the path, in the log and as an event; it ends no run."""
    clock = VirtualClock(autojump=True)

    async def bad(_node: DoAsync) -> None:
        raise RuntimeError("cleanup went wrong")

    async def wait(_node: DoAsync) -> None:
        await anyio.sleep_forever()

    leaf = DoAsync("leaf", wait, bad)
    root = Selector("main", memory=False, children=[guarded("go", Sleep("quick", 0)), leaf])
    agent = Agent(root, World, clock=clock)
    events = events_of(agent)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})

    with nothing_left(agent):
        assert await run_with(agent, turn) is SUCCESS
    told = [(event.path, event.reason) for event in of_kind(events, CleanupFailed)]
    assert told == [("main/leaf", "RuntimeError: cleanup went wrong")]
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == 1
    assert "main/leaf" in logged[0].getMessage()


@pytest.mark.parametrize("where", ["unwinding", "terminate"])
async def test_r35_so_is_one_raised_while_unwinding_or_in_terminate(where: str) -> None:
    """An exception after the halt, wherever it comes from, is told once and ends no run."""
    clock = VirtualClock(autojump=True)

    class Bad(Forever):
        async def work(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                if where == "unwinding":
                    raise RuntimeError("bad")

        def terminate(self, new_status: Status) -> None:
            if where == "terminate" and new_status is INVALID:
                raise RuntimeError("bad")

    leaf = Bad("leaf", Diary(clock))
    root = Selector("main", memory=False, children=[guarded("go", Sleep("quick", 0)), leaf])
    agent = Agent(root, World, clock=clock)
    events = events_of(agent)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})

    with nothing_left(agent):
        assert await run_with(agent, turn) is SUCCESS
    assert [(event.path, event.reason) for event in of_kind(events, CleanupFailed)] == [
        ("main/leaf", "RuntimeError: bad")
    ]
    assert leaf.diary.count("clean", "leaf") == 1


@pytest.mark.parametrize(("kind", "end"), [("hook", 3), ("shield", 6)])
async def test_r36_a_cleanup_is_bounded_and_a_shield_is_waited_for(kind: str, end: float) -> None:
    """A hook that never ends is cancelled after `halt_timeout`; a coroutine in a shield is waited for; each is told."""
    clock = VirtualClock(autojump=True)
    told_at: list[float] = []

    async def never(_node: DoAsync) -> None:
        await anyio.sleep_forever()

    async def shielded(node: DoAsync) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await node.context.clock.sleep(5)

    leaf = DoAsync("leaf", never, never) if kind == "hook" else DoAsync("leaf", shielded)
    root = Sequence("main", memory=True, children=[leaf])
    agent = Agent(root, World, clock=clock, halt_timeout=2)
    told: list[str | None] = []
    agent.runner.context.events.add(
        lambda event: (
            (told.append(event.path), told_at.append(clock.now())) if isinstance(event, CleanupFailed) else None
        )
    )
    with nothing_left(agent):
        await cancelled(agent, clock, 1)
    assert clock.now() == pytest.approx(end)
    assert (told, told_at) == (["main/leaf"], [3])


@pytest.mark.parametrize("kind", ["hook", "shield"])
async def test_r36_others_go_on_and_the_late_node_stays_barred(kind: str) -> None:
    """After `halt_timeout` what replaces the branch starts; the late node itself starts only after its end."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    class Late(Forever):
        async def work(self) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                if kind == "shield":
                    with anyio.CancelScope(shield=True):
                        await self.context.clock.sleep(5)

        async def cleanup(self) -> None:
            if kind == "hook":
                with anyio.CancelScope(shield=True):
                    await self.context.clock.sleep(5)
            await super().cleanup()

    late = Late("late", diary)
    root = Selector("s", memory=False, children=[guarded("go", Forever("upper", diary)), late])
    agent = Agent(root, World, clock=clock, halt_timeout=2)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})
        await clock.sleep(3)
        agent.state_manager.update({"go": False})
        await clock.sleep(5)
        agent.halt()

    with nothing_left(agent):
        await run_with(agent, turn)
    assert diary.at("start", "upper") == [3]
    assert diary.at("start", "late") == [0, 6]
    assert late.most_alive == 1


async def test_r36_what_was_cleaned_up_in_time_is_not_reported() -> None:
    """The run goes on long after `halt_timeout`: nothing is said of a node that was clean at once."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Selector(
        "s", memory=False, children=[guarded("go", Sleep("upper", 10, diary)), Forever("lower", diary, 0.5)]
    )
    agent = Agent(root, World, clock=clock, halt_timeout=1)
    events = events_of(agent)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})

    with nothing_left(agent):
        assert await run_with(agent, turn) is SUCCESS
    assert clock.now() == pytest.approx(11.5)
    assert of_kind(events, CleanupFailed) == []


async def test_r39_what_replaces_a_branch_waits_for_it_and_no_other_does() -> None:
    """(a) C, whose predecessor has no cleanup, starts at 1; A waits for B's until 2."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    pairs = [("A", "B", 1.0), ("C", "D", 0.0)]
    branches = [
        Selector(
            f"or{upper}", memory=False, children=[guarded("go", Forever(upper, diary)), Forever(lower, diary, time)]
        )
        for upper, lower, time in pairs
    ]
    agent = Agent(Parallel("p", ALL(), children=branches), World, clock=clock)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})
        await clock.sleep(3)
        agent.halt()

    with nothing_left(agent):
        await run_with(agent, turn)
    assert (diary.at("start", "C"), diary.at("start", "A")) == ([1], [2])


async def test_r39_what_follows_a_parallel_waits_for_what_it_has_halted() -> None:
    """(b) E starts at 1.5: after the cleanup of the endless leaf that SuccessOnOne has halted at 0.5."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    both = Parallel(
        "p", ParallelPolicy.SuccessOnOne(), children=[Sleep("half", 0.5, diary), Forever("endless", diary, cleanup=1)]
    )
    agent = Agent(Sequence("main", memory=True, children=[both, Sleep("E", 0, diary)]), World, clock=clock)
    with nothing_left(agent):
        assert await run(agent) is SUCCESS
    assert diary.at("start", "E") == [1.5]


@pytest.mark.parametrize("how", ["guard", "cancel"])
async def test_r40_an_invalid_ancestor_hides_nothing(how: str) -> None:
    """Below a decorator that stops only itself: each leaf is terminated, halted, cleaned up, before anything starts."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    class Bad(Forever):
        def terminate(self, new_status: Status) -> None:
            diary.note("terminate", self.name)
            if self.name == "one":
                raise RuntimeError("bad")

    leaves = [Bad("one", diary, cleanup=0.5), Bad("two", diary, cleanup=0.5)]
    below = Selfish("selfish", Parallel("p", ALL(), children=leaves))
    root = Selector("s", memory=False, children=[guarded("go", Sleep("upper", 0, diary)), below])
    agent = Agent(root, World, clock=clock)

    async def turn() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})

    with nothing_left(agent):
        if how == "cancel":
            await cancelled(agent, clock, 1)
        else:
            assert await run_with(agent, turn) is SUCCESS
            assert diary.at("start", "upper") == [1.5]
    for name in ("one", "two"):
        assert diary.count("terminate", name) == 1
        assert diary.at("clean", name) == [1.5]
        assert diary.count("start", name) == 1


async def test_r41_a_late_status_is_dropped_an_exception_is_not() -> None:
    """A raised and was halted before it was ticked: run() raises it, with A's path."""
    clock = VirtualClock(autojump=True)
    agent, _ = _raising_then_halted(clock, lambda child: child)
    with nothing_left(agent), pytest.raises(KeyError) as caught:
        await run(agent)
    assert any("s/A" in note for note in caught.value.__notes__)
    assert [path for path, _ in agent.errors] == ["s/A"]


async def test_r41_a_late_status_alone_changes_nothing() -> None:
    """The same with a result in place of the exception: the run goes on with C."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    async def end(node: AsyncNode) -> Status:
        node.write_state({"go": True})
        return FAILURE

    root = Selector("s", memory=False, children=[guarded("go", Sleep("C", 0.1, diary)), DoAsync("A", end)])
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent):
        assert await run(agent) is SUCCESS
    assert diary.count("start", "C") == 1


async def test_r41_a_catch_above_takes_it() -> None:
    """With a Catch above A the run goes on with C."""
    clock = VirtualClock(autojump=True)
    agent, diary = _raising_then_halted(clock, lambda child: Catch("c", child, on=(KeyError,)))
    with nothing_left(agent):
        assert await run(agent) is SUCCESS
    assert diary.count("start", "C") == 1
    assert agent.errors == []


def _raising_then_halted(clock: VirtualClock, wrap: Callable[[Behaviour], Behaviour]) -> tuple[Agent[World], Diary]:
    """Return an agent in which A raises at 1 in the same moment in which a guard turns away from it."""
    diary = Diary(clock)

    async def fail(node: DoAsync) -> None:
        await node.context.clock.sleep(1)
        node.write_state({"go": True})
        raise KeyError("gone")

    upper = Sequence("g", memory=False, children=[Flag("f", "go"), Sleep("C", 0.1, diary)])
    return Agent(Selector("s", memory=False, children=[upper, wrap(DoAsync("A", fail))]), World, clock=clock), diary
