"""Cases R01-R19: what wakes a tree, how often it is ticked, and when a run returns."""

from __future__ import annotations

import threading
import time

import anyio
import py_trees
import pytest
from py_trees.common import Access, ParallelPolicy
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Repeat, Timeout

from jianmu.agent import Agent
from jianmu.engine.clock import RealClock, VirtualClock
from jianmu.engine.events import HotLoop, Stalled
from jianmu.engine.limits import Limits
from jianmu.errors import LimitExceeded, SetupError, StalledError
from jianmu.nodes import AskHuman
from jianmu.nodes import Timeout as OwnTimeout
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
    guarded,
    nothing_left,
    of_kind,
    passes_of,
    run,
    run_with,
)

pytestmark = pytest.mark.anyio


async def test_r01_a_bounded_loop_goes_on_at_once() -> None:
    """Repeat(3) over a leaf that succeeds at once: SUCCESS after 3 passes, without any time."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Repeat("r", Scripted("x", SUCCESS), num_success=3), World, clock=clock)
    passes = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert passes == [0, 0, 0]
    assert clock.now() == 0


@pytest.mark.parametrize(
    ("statuses", "count", "result"), [([FAILURE, FAILURE, SUCCESS], 3, SUCCESS), ([FAILURE], 3, FAILURE)]
)
async def test_r01_so_do_the_other_bounded_loops(statuses: list, count: int, result: object) -> None:
    """Retry asks for its next round at once as well, whatever comes of it."""
    clock = VirtualClock(autojump=True)
    agent = Agent(py_trees.decorators.Retry("r", Scripted("x", *statuses), num_failures=3), World, clock=clock)
    passes = passes_of(agent, clock)
    assert await run(agent) is result
    assert passes == [0] * count


async def test_r02_stock_timeout_fires_by_itself_on_the_real_clock() -> None:
    """py_trees' Timeout over an async leaf: FAILURE in time, the leaf halted and cleaned up."""
    leaf = Sleep("leaf", 60)
    agent = Agent(Timeout("t", leaf, duration=0.1), World)
    began = time.monotonic()
    with nothing_left(agent):
        assert await run(agent) is FAILURE
    assert 0.1 <= time.monotonic() - began < 5  # 0.3 on a machine that is not busy
    assert leaf.diary.order() == ["start leaf", "unwound leaf", "cleanup leaf", "clean leaf"]
    assert leaf.status is INVALID


async def test_r02_own_timeout_fires_by_itself_on_the_agents_clock() -> None:
    """Timeout of jianmu.nodes: FAILURE at t=0.1 of the virtual clock, the leaf halted and cleaned up."""
    clock = VirtualClock(autojump=True)
    leaf = Sleep("leaf", 0.7, Diary(clock))
    agent = Agent(OwnTimeout("t", leaf, seconds=0.1), World, clock=clock)
    with nothing_left(agent):
        assert await run(agent) is FAILURE
    assert clock.now() == pytest.approx(0.1)
    assert leaf.diary.at("clean", "leaf") == [0.1]


async def test_r02_a_stock_timeout_stands_still_while_people_are_waited_for() -> None:
    """The time in which a person thinks is none of the 60 s that the child has (real clock)."""
    limit = Timeout("t", AskHuman("ask", message="?", into="text"), duration=60)

    async def human(_question: object) -> str:
        limit.finish_time -= 100  # as if the person had thought for so many seconds
        agent.runner.signal()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return "yes"

    agent = Agent(limit, World, human=human)
    assert await run(agent) is SUCCESS
    assert agent.state.text == "yes"


@pytest.mark.parametrize("node", [lambda: Timeout("t", Sleep("x", 1), 0.1), lambda: py_trees.timers.Timer("t", 0.1)])
async def test_r02_stock_timers_are_refused_under_another_clock(node: object) -> None:
    """They follow the machine's clock: a SetupError names jianmu's own."""
    kind = type(node()).__name__
    with pytest.raises(SetupError, match=rf"main/t' is py_trees' {kind}.*jianmu\.nodes\.{kind}") as caught:
        Agent(Sequence("main", memory=True, children=[node()]), World, clock=VirtualClock())
    assert caught.value.path == "main/t"


async def test_r03_a_plain_leaf_is_polled() -> None:
    """A py_trees leaf that is RUNNING three times: SUCCESS on the 4th tick, three intervals later."""
    clock = VirtualClock(autojump=True)
    leaf = Plain("x", RUNNING, RUNNING, RUNNING, SUCCESS)
    agent = Agent(Sequence("main", memory=True, children=[leaf]), World, clock=clock, poll_interval=0.1)
    assert await run(agent) is SUCCESS
    assert leaf.ticks == 4
    assert clock.now() == pytest.approx(0.3)


async def test_r03_a_wake_between_polls_does_not_stop_them() -> None:
    """A pass that something else has woken is a poll as well; the next one is due an interval later."""
    clock = VirtualClock(autojump=True)
    leaf = Plain("x", RUNNING, RUNNING, SUCCESS)
    agent = Agent(leaf, World, clock=clock, poll_interval=0.1)

    async def wake() -> None:
        await clock.sleep(0.05)
        agent.runner.signal()

    assert await run_with(agent, wake) is SUCCESS
    assert clock.now() == pytest.approx(0.15)


async def test_r05_a_running_child_can_be_replaced() -> None:
    """The old one is cancelled and cleaned up once, the new one is bound, starts, and wakes the run."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    old = Forever("X", diary)

    async def work(node: DoAsync) -> None:
        await node.context.clock.sleep(0.1)
        node.write_state({"n": node.read_state().n + 1})

    new = DoAsync("Y", work)
    root = Selector("main", memory=True, children=[Scripted("no", FAILURE), old])
    agent = Agent(root, World, clock=clock)

    async def edit() -> None:
        await clock.sleep(1)
        root.replace_child(old, new)
        agent.runner.signal()

    with nothing_left(agent):
        assert await run_with(agent, edit) is SUCCESS
    assert diary.order() == ["start X", "unwound X", "cleanup X", "clean X"]
    assert (agent.state.n, new.starts, new.cleanups) == (1, 1, 0)
    assert clock.now() == pytest.approx(1.1)


async def test_r05_so_can_one_of_a_sequence_and_one_be_removed() -> None:
    """Whatever composite with memory it is: no assertion error; a removed node is halted like a replaced one."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    old = Forever("X", diary)
    root = Sequence("main", memory=True, children=[Scripted("yes", SUCCESS), old, Scripted("end", SUCCESS)])
    agent = Agent(root, World, clock=clock)

    async def edit() -> None:
        await clock.sleep(1)
        root.remove_child(old)
        agent.runner.signal()

    with nothing_left(agent):
        assert await run_with(agent, edit) is SUCCESS
    assert diary.count("clean", "X") == 1


async def test_r07_a_tree_that_writes_in_every_tick_is_slowed_and_reported_once() -> None:
    """`min_interval` limits the passes; HotLoop is told once."""
    clock = VirtualClock(autojump=True)

    def count(node: Do) -> object:
        node.write_state({"n": node.read_state().n + 1})
        return RUNNING

    agent = Agent(Do("count", count), World, clock=clock, min_interval=0.1)
    events, passes = events_of(agent), passes_of(agent, clock)

    async def watch() -> None:
        await clock.sleep(2.0)
        agent.halt()

    assert await run_with(agent, watch) is INVALID
    assert 15 <= len(passes) <= 21
    assert len(of_kind(events, HotLoop)) == 1


async def test_r07_writing_the_same_value_again_wakes_nothing() -> None:
    """An equal scalar is no change: one pass."""
    clock = VirtualClock(autojump=True)
    leaf = Do("same", lambda node: node.write_state({"passed": False}) or RUNNING)
    agent = Agent(leaf, World, clock=clock, min_interval=0.1)

    async def watch() -> None:
        await clock.sleep(2.0)
        agent.halt()

    assert await run_with(agent, watch) is INVALID
    assert leaf.ticks == 1


async def test_r08_writes_without_an_await_make_one_pass() -> None:
    """200 writes of a coroutine in a row are followed by one pass."""
    clock = VirtualClock(autojump=True)

    async def count(node: DoAsync) -> None:
        await node.context.clock.sleep(1)
        for _ in range(200):
            node.transform_field("n", lambda n: n + 1)
        await node.context.clock.sleep(1)

    agent = Agent(DoAsync("count", count), World, clock=clock)
    passes = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert agent.state.n == 200
    assert passes == [0, 1, 2]


async def test_r08_so_do_writes_of_other_threads() -> None:
    """Writes from another thread while the loop is busy come together as well, and none is lost."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)
    passes = passes_of(agent)

    def write() -> None:
        for _ in range(200):
            agent.state_manager.transform_field("n", lambda n: n + 1)
        agent.state_manager.update({"ready": True})

    async def block() -> None:
        await anyio.sleep(0.01)
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    assert await run_with(agent, block) is SUCCESS
    assert agent.state.n == 200
    assert len(passes) == 2


@pytest.mark.parametrize(
    ("root", "passes"),
    [
        (lambda: Scripted("x", SUCCESS), 1),
        (lambda: Sequence("s", memory=True, children=[Sleep(f"x{i}", 0) for i in range(10)]), 11),
        (lambda: Sequence("s", memory=True, children=[DoAsync(f"x{i}", _nothing) for i in range(10)]), 11),
    ],
)
async def test_r09_results_are_returned_at_once(root: object, passes: int) -> None:
    """No frame rate: nothing that is ready waits for a time to come."""
    clock = VirtualClock(autojump=True)
    agent = Agent(root(), World, clock=clock)
    seen = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert seen == [0] * passes
    assert clock.now() == 0


async def _nothing(_node: DoAsync) -> None:
    """Return at once."""


async def test_r10_early_wakes_do_not_push_a_pass_out() -> None:
    """`min_interval=0.5`: the second pass is at 0.5 whatever wakes before, and the run returns then."""
    clock = VirtualClock(autojump=True)
    agent = Agent(Sleep("x", 0.4), World, clock=clock, min_interval=0.5)
    passes = passes_of(agent, clock)

    async def wake() -> None:
        while True:
            await clock.sleep(0.05)
            agent.runner.signal()

    assert await run_with(agent, wake) is SUCCESS
    assert passes == [0, 0.5]
    assert clock.now() == pytest.approx(0.5)


async def test_r11_a_result_that_is_in_beats_a_late_timer() -> None:
    """The leaf was ready before the deadline and the loop was blocked over it: SUCCESS (real clock)."""

    async def work(_node: DoAsync) -> None:
        await anyio.sleep(0.04)

    agent = Agent(OwnTimeout("t", DoAsync("x", work), seconds=0.06), World, clock=RealClock())

    async def block() -> None:
        await anyio.sleep(0.02)
        time.sleep(0.08)  # noqa: ASYNC251  # the case is a blocked loop

    assert await run_with(agent, block) is SUCCESS


async def test_r11_also_with_a_chain_of_hops_before_the_result() -> None:
    """Everything that is ready at the deadline has its turn first, on the virtual clock too."""
    clock = VirtualClock(autojump=True)
    agent = Agent(OwnTimeout("t", Sleep("x", 0.1), seconds=0.1), World, clock=clock)
    assert await run(agent) is SUCCESS


async def test_r12_one_write_that_flips_two_guards_makes_one_pass() -> None:
    """Both branches see it in the same pass, in tree order."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    branches = [guarded(field, Forever(field.upper(), diary), diary) for field in ("a", "b")]
    root = Parallel("p", ParallelPolicy.SuccessOnAll(), children=[_else_wait(branch) for branch in branches])
    agent = Agent(root, World, clock=clock)
    passes = passes_of(agent, clock)

    async def flip() -> None:
        await clock.sleep(1)
        diary.lines.clear()
        agent.state_manager.update({"a": 1, "b": 1})
        await clock.sleep(1)
        agent.halt()

    assert await run_with(agent, flip) is INVALID
    assert passes == [0, 1]
    assert diary.order("look", "start") in (
        ["look guard A", "look guard B", "start A", "start B"],
        ["look guard A", "look guard B", "start B", "start A"],
    )


def _else_wait(branch: Sequence) -> Selector:
    return Selector(f"or {branch.name}", memory=False, children=[branch, Scripted(f"wait {branch.name}", RUNNING)])


async def test_r13_what_counts_is_the_value_not_the_moment_of_its_change() -> None:
    """A field that was written before the run begins is seen in the first pass."""
    clock = VirtualClock(autojump=True)
    leaf = Flag("ready", "ready", RUNNING)
    agent = Agent(leaf, World, clock=clock)
    passes = passes_of(agent, clock)
    agent.state_manager.update({"ready": True})
    assert await run(agent) is SUCCESS
    assert len(passes) == 1


async def test_r13_a_write_at_the_very_beginning_of_a_run_is_not_lost() -> None:
    """Whichever hop of the loop a write falls on, the run sees it."""
    for hops in range(12):
        agent = Agent(Flag("ready", "ready", RUNNING), World)

        async def write(agent: Agent = agent, hops: int = hops) -> None:
            for _ in range(hops):
                await anyio.lowlevel.checkpoint()
            agent.state_manager.update({"ready": True})

        assert await run_with(agent, write) is SUCCESS


async def test_r14_a_stalled_run_says_so_once_and_goes_on_by_a_write() -> None:
    """`Stalled` with the waiting paths, once; an outside write wakes the run and it ends."""
    clock = VirtualClock(autojump=True)
    leaf = Flag("ready", "ready", RUNNING)
    agent = Agent(Sequence("main", memory=True, children=[leaf]), World, clock=clock)
    events = events_of(agent)

    async def write() -> None:
        await clock.sleep(1)
        agent.runner.wake.set()  # stirred without a reason: still the same stall
        await clock.sleep(1)
        agent.state_manager.update({"ready": True})

    assert await run_with(agent, write) is SUCCESS
    assert [event.paths for event in of_kind(events, Stalled)] == [("main/ready",)]
    assert clock.now() == 2


async def test_r14_on_stall_raise_fails_with_the_path() -> None:
    """With `on_stall="raise"` the run fails, names the path, and is quiet."""
    root = Sequence("main", memory=True, children=[Flag("ready", "ready", RUNNING)])
    agent = Agent(root, World, on_stall="raise")
    with nothing_left(agent), pytest.raises(StalledError, match="main/ready") as caught:
        await run(agent)
    assert caught.value.path == "main/ready"
    assert root.status is INVALID


async def test_r14_until_suspend_a_stall_ends_the_call() -> None:
    """`run_until_suspend` does not wait for ever: the outcome says that it is stalled."""
    agent = Agent(Flag("ready", "ready", RUNNING), World)
    with anyio.fail_after(2), nothing_left(agent):
        outcome = await agent.run_until_suspend()
    assert (outcome.stalled, outcome.suspended, outcome.status) == (True, False, RUNNING)


async def test_r15_branches_of_a_parallel_do_not_wait_for_each_other() -> None:
    """What follows a fast leaf starts at once, not when the slow branch is done."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    fast = Sequence("s", memory=True, children=[Sleep("fast", 0, diary), Sleep("after", 0, diary)])
    root = Parallel("p", ParallelPolicy.SuccessOnAll(), children=[fast, Sleep("slow", 10, diary)])
    assert await run(Agent(root, World, clock=clock)) is SUCCESS
    assert diary.at("start", "after") == [0]
    assert clock.now() == 10


async def test_r16_one_pass_runs_all_that_can_run() -> None:
    """Five leaves that succeed at once after an async one: one pass for all of them."""
    clock = VirtualClock(autojump=True)
    leaves = [Scripted(f"x{i}", SUCCESS) for i in range(5)]
    agent = Agent(Sequence("s", memory=True, children=[Sleep("first", 0.1), *leaves]), World, clock=clock)
    passes = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert passes == [0, 0.1]


async def test_r17_a_stream_of_writes_does_not_flood_the_tree() -> None:
    """200 writes in a second with `min_interval=0.1`: at most 12 passes, and the text is complete."""
    clock = VirtualClock(autojump=True)

    async def stream(node: DoAsync) -> None:
        for _ in range(200):
            await node.context.clock.sleep(0.005)
            node.write_state({"text": node.read_state().text + "x"})

    agent = Agent(DoAsync("stream", stream), World, clock=clock, min_interval=0.1)
    passes = passes_of(agent, clock)
    assert await run(agent) is SUCCESS
    assert len(passes) <= 12
    assert agent.state.text == "x" * 200


async def test_r18_leaves_that_look_at_the_blackboard_are_polled() -> None:
    """WaitForBlackboardVariable: SUCCESS within an interval of the write by somebody else."""
    clock = VirtualClock(autojump=True)
    wait = py_trees.behaviours.WaitForBlackboardVariable("wait", "r18")
    agent = Agent(Sequence("s", memory=True, children=[wait]), World, clock=clock, poll_interval=0.1)
    board = py_trees.blackboard.Client(name="r18")
    board.register_key("r18", Access.WRITE)

    async def write() -> None:
        await clock.sleep(1)
        board.set("r18", 1)

    try:
        assert await run_with(agent, write) is SUCCESS
    finally:
        board.unset("r18")
    assert 1 <= clock.now() <= 1.1 + 1e-6


async def test_r19_a_hot_loop_lets_others_have_their_turn_and_ends_at_its_limit() -> None:
    """Two nodes that turn over each other's flag: 50 ticks, one HotLoop, others got their turn in between."""

    def turn(mine: str, other: str) -> object:
        def flip(node: Do) -> object:
            node.write_state({other: 1 - getattr(node.read_state(), other)})
            return RUNNING

        return Do(mine, flip)

    root = Parallel("p", ParallelPolicy.SuccessOnAll(), children=[turn("a", "b"), turn("b", "a")])
    agent = Agent(root, World, limits=Limits(max_ticks=50))
    events, passes = events_of(agent), passes_of(agent)
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(passes))
            await anyio.lowlevel.checkpoint()

    with pytest.raises(LimitExceeded, match="50") as caught:
        await run_with(agent, other)
    assert caught.value.limit == "max_ticks"
    assert len(passes) == 50
    assert len(of_kind(events, HotLoop)) == 1
    assert len(set(turns)) > 20
