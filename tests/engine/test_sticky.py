"""Sticky results: what holds while a composite that looks again is on, for how long, and what is looked at anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import py_trees
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import Inverter

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.interaction import Request
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.node import AsyncNode
from jianmu.engine.ports import In
from jianmu.errors import RunError
from jianmu.nodes import Catch, ForEach, LoopUntilSuccess, Race, Repeat, Retry, Timeout, async_condition
from tests.cases.leaves import (
    FAILURE,
    RUNNING,
    SUCCESS,
    Diary,
    DoAsync,
    Flag,
    Forever,
    Scripted,
    Sleep,
    World,
    nothing_left,
    run,
    run_with,
)

pytestmark = pytest.mark.anyio
ALL, ONE = ParallelPolicy.SuccessOnAll, ParallelPolicy.SuccessOnOne

HOLDERS: dict[str, Callable[[Behaviour, Behaviour], Behaviour]] = {
    "a memoryless Sequence": lambda first, rest: Sequence("s", memory=False, children=[first, rest]),
    "a memoryless Selector": lambda first, rest: Selector("s", memory=False, children=[Inverter("i", first), rest]),
    "an unsynchronised Parallel": lambda first, rest: Parallel("s", ALL(synchronise=False), children=[first, rest]),
}

WRAPPERS: dict[str, Callable[[Behaviour], Behaviour]] = {
    "alone": lambda node: node,
    "inverted twice": lambda node: Inverter("a", Inverter("b", node)),
    "in a memory Sequence": lambda node: Sequence("m", memory=True, children=[Scripted("before", SUCCESS), node]),
    "in two memory Sequences": lambda node: Sequence(
        "m", memory=True, children=[Sequence("mm", memory=True, children=[node, Scripted("after", SUCCESS)])]
    ),
    "in a memoryless Sequence": lambda node: Sequence("m", memory=False, children=[node, Scripted("after", SUCCESS)]),
    "in a Selector": lambda node: Selector("m", memory=True, children=[Scripted("before", FAILURE), node]),
    "in a Parallel": lambda node: Parallel("m", ALL(), children=[node, Scripted("beside", SUCCESS)]),
    "in a Timeout": lambda node: Timeout("t", node, seconds=60),
    "in a Catch": lambda node: Catch("c", node, on=(KeyError,)),
    "in a Retry": lambda node: Retry("r", node, attempts=2),
    "in a LoopUntilSuccess": lambda node: LoopUntilSuccess("l", node),
    "in a Repeat of one": lambda node: Repeat("r", node, times=1),
    "in py_trees' Repeat": lambda node: py_trees.decorators.Repeat("r", node, 1),
    "in py_trees' Retry": lambda node: py_trees.decorators.Retry("r", node, 2),
    "in a loop in a Sequence": lambda node: Sequence(
        "m", memory=True, children=[py_trees.decorators.Repeat("r", node, 1), Scripted("after", SUCCESS)]
    ),
    "in a Race": lambda node: Race("race", [node, Scripted("loser", FAILURE)]),
}


def _writer(clock: VirtualClock, agent: Agent[World]) -> Callable[[], Any]:
    """Return what writes a new value every 0.05 s."""

    async def write() -> None:
        while True:
            await clock.sleep(0.05)
            agent.state_manager.transform_field("n", lambda n: n + 1)

    return write


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_a_result_holds_until_its_composite_ends(holder: str, wrapper: str) -> None:
    """Through whatever finished nodes lie between: started once, the other is never halted."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = HOLDERS[holder](WRAPPERS[wrapper](Sleep("A", 0.01, diary)), Sleep("D", 0.3, diary))
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent):
        assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert diary.order("start", "end", "unwound") == ["start A", "end A", "start D", "end D"] or (
        holder == "an unsynchronised Parallel" and sorted(diary.order("start", "unwound")) == ["start A", "start D"]
    )


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_so_does_an_answer(wrapper: str) -> None:
    """A question that was answered is not asked again."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    class Asks(InteractiveNode):
        requests = 0

        def request(self) -> Request:
            self.requests += 1
            return Request("?", answer=bool)

        def on_answer(self, answer: bool) -> Status:
            return SUCCESS

    async def human(_question: object) -> bool:
        await clock.sleep(0.1)
        return True

    asks = Asks("ask")
    root = Sequence("s", memory=False, children=[WRAPPERS[wrapper](asks), Sleep("D", 0.3, diary)])
    agent = Agent(root, World, clock=clock, human=human)
    with nothing_left(agent):
        assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert asks.requests == 1
    assert diary.order("start", "unwound") == ["start D"]


async def test_so_does_a_failure() -> None:
    """A memoryless Selector does not try the failed child again while its fallback is at work."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    tries = Sequence("m", memory=True, children=[Sleep("A", 0.01, diary), Sleep("B", 0.01, diary, FAILURE)])
    root = Selector("s", memory=False, children=[tries, Sleep("D", 0.3, diary)])
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent):
        assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert diary.order("start", "unwound") == ["start A", "start B", "start D"]


async def test_so_does_a_timeout_that_has_fired() -> None:
    """The fallback goes on: the child that took too long is not begun anew by every change of the state."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    slow = Sequence("m", memory=True, children=[Timeout("t", Forever("A", diary), seconds=0.1)])
    root = Selector("s", memory=False, children=[slow, Sleep("D", 0.5, diary)])
    agent = Agent(Repeat("r", root, times=2), World, clock=clock)
    with nothing_left(agent):
        assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert diary.order("start", "clean", "end") == ["start A", "clean A", "start D", "end D"] * 2
    assert clock.now() == pytest.approx(1.2)


async def test_items_of_a_for_each_hold_too() -> None:
    """Three items are done once each."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    each = ForEach("each", lambda item, _index: Sleep(f"item {item}", 0.01, diary), over=lambda _state: [1, 2, 3])
    root = Sequence("s", memory=False, children=[each, Sleep("D", 0.3, diary)])
    agent = Agent(root, World, clock=clock)
    with nothing_left(agent):
        assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert sorted(diary.order("start", "unwound")) == ["start D", "start item 1", "start item 2", "start item 3"]


async def test_plain_nodes_are_simply_asked_again() -> None:
    """In every pass, also below a finished branch that holds."""
    clock = VirtualClock(autojump=True)
    plain = Scripted("plain", SUCCESS)
    first = Sequence("m", memory=True, children=[plain, Sleep("A", 0.01)])
    root = Sequence("s", memory=False, children=[first, Sleep("D", 0.3)])
    agent = Agent(root, World, clock=clock)
    assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert plain.ticks > 3


async def test_a_plain_condition_that_turns_ends_it() -> None:
    """Guards work as ever: the branch is left, its held result is over, and another activation starts anew."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    branch = Sequence("s", memory=False, children=[Flag("go", "go"), Sleep("A", 0.1, diary), Forever("D", diary)])
    root = Selector("sel", memory=False, children=[branch, Scripted("idle", RUNNING)])
    agent = Agent(root, World, clock=clock)

    async def turn() -> None:
        for value in (True, False, True):
            agent.state_manager.update({"go": value})
            await clock.sleep(1)
        agent.halt()

    await run_with(agent, turn)
    assert diary.order("start", "clean") == ["start A", "start D", "clean D"] * 2


async def test_a_new_run_starts_anew() -> None:
    """What was held in one run is not held in the next, with a result or without."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Sequence("s", memory=False, children=[Sleep("A", 0.01, diary), Sleep("D", 0.1, diary)])
    agent = Agent(root, World, clock=clock)
    for _ in range(3):
        assert await run(agent) is SUCCESS
    assert diary.count("start", "A") == 3


@pytest.mark.parametrize(
    "loop", [lambda child: Repeat("r", child, times=3), lambda child: py_trees.decorators.Repeat("r", child, 3)]
)
async def test_a_loop_starts_its_child_anew_as_it_means_to(loop: Callable[[Behaviour], Behaviour]) -> None:
    """Each round executes the child, also below a composite that looks again; the finished loop then holds."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Sequence("s", memory=False, children=[loop(Sleep("A", 0.01, diary)), Sleep("D", 0.3, diary)])
    agent = Agent(root, World, clock=clock)
    assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert (diary.count("start", "A"), diary.count("start", "D")) == (3, 1)


async def test_each_round_of_a_loop_around_it_is_a_new_activation() -> None:
    """The composite is entered anew in each round, and so is what it held."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    inner = Sequence(
        "s", memory=False, children=[Sequence("m", True, [Sleep("A", 0.01, diary)]), Sleep("D", 0.1, diary)]
    )
    agent = Agent(Repeat("r", inner, times=3), World, clock=clock)
    assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert (diary.count("start", "A"), diary.count("start", "D")) == (3, 3)


# Conditions


class Watches(AsyncNode):
    """A condition that takes 0.01 s to look at a field."""

    is_condition: ClassVar[bool] = True

    def __init__(self, name: str, field: str, diary: Diary, reads: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        self.field = field
        self.diary = diary
        self.__dict__["reads"] = reads

    async def update_async(self) -> Status:
        """Look."""
        self.diary.note("start", self.name)
        await self.context.clock.sleep(0.01)
        return SUCCESS if getattr(self.read_state(), self.field) else FAILURE


async def test_a_condition_is_evaluated_again_in_the_background() -> None:
    """While the old result holds D goes on; when the new one is in, it counts: D is halted."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Sequence("s", memory=False, children=[Watches("check", "go", diary), Forever("D", diary)])
    agent = Agent(root, World, clock=clock)

    async def write() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"n": 1})
        await clock.sleep(1)
        agent.state_manager.update({"go": False})

    agent.state_manager.update({"go": True})
    with nothing_left(agent):
        assert await run_with(agent, write) is FAILURE
    assert diary.at("start", "check") == [0, 1, 2]
    assert diary.at("start", "D") == [0.01]
    assert diary.at("clean", "D") == [2.01]


async def test_a_condition_watches_what_it_reads_only() -> None:
    """With `reads` other fields are none of its business."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)
    root = Sequence("s", memory=False, children=[Watches("check", "go", diary, reads=("go",)), Sleep("D", 1, diary)])
    agent = Agent(root, World, clock=clock)
    agent.state_manager.update({"go": True})
    assert await run_with(agent, _writer(clock, agent)) is SUCCESS
    assert diary.at("start", "check") == [0]


async def test_bound_inputs_are_watched() -> None:
    """The fields that its `In` ports are bound to count as what it reads."""
    clock = VirtualClock(autojump=True)
    starts: list[float] = []

    class Bound(AsyncNode):
        is_condition: ClassVar[bool] = True
        flag: In[bool]

        async def update_async(self) -> Status:
            starts.append(clock.now())
            return SUCCESS if self.flag else FAILURE

    root = Sequence("s", memory=False, children=[Bound("check", flag="go"), Forever("D")])
    agent = Agent(root, World, clock=clock)
    agent.state_manager.update({"go": True})

    async def write() -> None:
        for values in ({"n": 1}, {"go": True}, {"n": 2}, {"go": False}):
            await clock.sleep(1)
            agent.state_manager.update(values)

    assert await run_with(agent, write) is FAILURE
    assert starts == [0, 4]


async def test_writes_of_a_node_between_make_a_condition_look_again_once() -> None:
    """Many changes while it is being evaluated are one more evaluation after it, not one each."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    async def work(node: DoAsync) -> None:
        for number in range(20):
            node.write_state({"n": number + 1})
        await node.context.clock.sleep(1)

    root = Sequence("s", memory=False, children=[Watches("check", "go", diary), DoAsync("D", work)])
    agent = Agent(root, World, clock=clock)
    agent.state_manager.update({"go": True})
    assert await run(agent) is SUCCESS
    assert diary.count("start", "check") == 2


async def test_functions_are_conditions_too() -> None:
    """`@async_condition` is evaluated again when the state changes; the same value starts nothing."""
    clock = VirtualClock(autojump=True)
    looked: list[float] = []

    @async_condition
    async def is_going(state: World) -> bool:
        looked.append(clock.now())
        return state.go

    root = Selector(
        "sel",
        memory=False,
        children=[Sequence("s", False, [is_going("going"), Forever("D")]), Scripted("end", SUCCESS)],
    )
    agent = Agent(root, World, clock=clock)
    agent.state_manager.update({"go": True})

    async def write() -> None:
        await clock.sleep(1)
        agent.state_manager.update({"go": True})
        await clock.sleep(1)
        agent.state_manager.update({"go": False})

    assert await run_with(agent, write) is SUCCESS
    assert looked == [0, 2]


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda node: node.write_state({"n": 1}), "may not write state"),
        (lambda node: node.merge_dict("n", {}), "may not write state"),
        (lambda node: node.transform_field("n", lambda n: n), "may not write state"),
    ],
)
async def test_a_condition_that_writes_is_an_error(act: Callable[[Any], Any], text: str) -> None:
    """It is evaluated again and again, so it may only read; with its path, nothing was written."""

    class Writes(AsyncNode):
        is_condition: ClassVar[bool] = True

        async def update_async(self) -> Status:
            act(self)
            return SUCCESS

    agent = Agent(Sequence("s", memory=False, children=[Writes("w"), Sleep("D", 1)]), World)
    with nothing_left(agent), pytest.raises(RunError, match=f"'s/w' {text}") as caught:
        await run(agent)
    assert caught.value.path == "s/w"
    assert agent.state.n == 0


@pytest.mark.parametrize("what", ["ask", "once"])
async def test_a_condition_that_asks_or_acts_is_an_error(what: str) -> None:
    """`ask` and `once` are refused as well."""

    class Acts(AsyncNode):
        is_condition: ClassVar[bool] = True

        async def update_async(self) -> Status:
            await (self.ask(Request("?")) if what == "ask" else self.once("k", checkpoint))
            return SUCCESS

    agent = Agent(Acts("w"), World)
    with nothing_left(agent), pytest.raises(RunError, match=f"condition 'w' may not .*{what}"):
        await run(agent)


async def test_a_condition_that_raises_in_the_background_ends_the_run() -> None:
    """Its exception is a node's exception, whenever it comes."""
    clock = VirtualClock(autojump=True)

    class Breaks(AsyncNode):
        is_condition: ClassVar[bool] = True

        async def update_async(self) -> Status:
            if self.read_state().n:
                raise LookupError("broken")
            return SUCCESS

    agent = Agent(Sequence("s", memory=False, children=[Breaks("check"), Forever("D")]), World, clock=clock)
    with nothing_left(agent), pytest.raises(LookupError) as caught:
        await run_with(agent, _writer(clock, agent))
    assert any("s/check" in note for note in caught.value.__notes__)


async def test_a_condition_in_the_background_is_halted_with_its_composite() -> None:
    """Nothing of it is alive when the composite has ended."""
    clock = VirtualClock(autojump=True)
    diary = Diary(clock)

    class Slow(Watches):
        async def update_async(self) -> Status:
            diary.note("start", self.name)
            await self.context.clock.sleep(0.01 if not self.read_state().n else 100)
            return SUCCESS

    root = Sequence("s", memory=False, children=[Slow("check", "go", diary), Sleep("D", 1, diary)])
    agent = Agent(Sequence("main", memory=True, children=[root, Sleep("after", 1, diary)]), World, clock=clock)

    async def write() -> None:
        await clock.sleep(0.5)
        agent.state_manager.update({"n": 1})

    with nothing_left(agent):
        assert await run_with(agent, write) is SUCCESS
    assert diary.at("start", "check") == [0, 0.5]
    assert clock.now() == pytest.approx(2.01)


async def test_results_of_earlier_entries_are_dropped() -> None:
    """A status counts for the activation that gave it only: a halted leaf that is started again gives its new one."""
    clock = VirtualClock(autojump=True)
    results = [FAILURE, SUCCESS]

    async def work(node: DoAsync) -> Status:
        result = results.pop(0)
        with anyio.CancelScope(shield=True):
            await node.context.clock.sleep(1)
        return result

    root = Selector(
        "s", memory=False, children=[Sequence("g", False, [Flag("go", "go"), Forever("C")]), DoAsync("A", work)]
    )
    agent = Agent(root, World, clock=clock)

    async def turn() -> None:
        await clock.sleep(0.5)
        agent.state_manager.update({"go": True})
        await clock.sleep(0.1)
        agent.state_manager.update({"go": False})

    with nothing_left(agent):
        assert await run_with(agent, turn) is SUCCESS
    assert results == []
    assert clock.now() == pytest.approx(2)
