"""LoopUntilSuccess, Repeat, Retry."""

from __future__ import annotations

import itertools

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence

from jianmu.engine.node import AsyncNode
from jianmu.engine.ticker import halt, tick
from jianmu.errors import RunError, SetupError
from jianmu.nodes import LoopUntilSuccess, Repeat, Retry
from tests.cases.leaves import FAILURE, INVALID, RUNNING, SUCCESS, Diary, Do, Scripted, Sleep, passes_of
from tests.nodes.kit import Table

pytestmark = pytest.mark.anyio


class Keyed(AsyncNode):
    """Notes its idempotency key; results as scripted."""

    def __init__(self, name: str, *results: Status | Exception) -> None:
        super().__init__(name)
        self.results = list(results)
        self.keys: list[str] = []

    async def update_async(self) -> Status:
        self.keys.append(self.context.idempotency_key)
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


# LoopUntilSuccess


async def test_a_loop_goes_on_until_the_child_succeeds() -> None:
    """SUCCESS when the child has succeeded; a pass for each round, made at once."""
    table = Table(lambda diary: LoopUntilSuccess("loop", Scripted("a", FAILURE, FAILURE, SUCCESS, diary=diary)))
    passes = passes_of(table.agent, table.clock)
    assert await table.run() is SUCCESS
    assert table.diary.count("initialise", "a") == 3
    assert passes == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("limit", [2, lambda s: s.amount - 3])
async def test_a_loop_fails_after_its_last_round(limit: object) -> None:
    """FAILURE when `max_iterations` rounds have failed, also where a function of the snapshot gives them."""
    table = Table(lambda diary: LoopUntilSuccess("loop", Sleep("a", 1, diary, result=FAILURE), max_iterations=limit))
    assert await table.run() is FAILURE
    assert table.diary.at("start", "a") == [0.0, 1.0]


async def test_each_round_of_a_loop_is_a_round_of_its_own() -> None:
    """It opens rounds: what a node does in one has another identity in the next."""
    node = Keyed("a", FAILURE, FAILURE, SUCCESS)
    table = Table(lambda diary: LoopUntilSuccess("loop", node))
    assert await table.run() is SUCCESS
    assert len(set(node.keys)) == 3


async def test_a_halted_loop_begins_with_the_first_round() -> None:
    """Halting halts the child; the next entry begins with the first round."""
    loop = LoopUntilSuccess("loop", child := Scripted("a", FAILURE), max_iterations=3)
    assert [tick(loop), tick(loop)] == [RUNNING, RUNNING]
    halt(loop)
    assert child.status is INVALID
    assert [tick(loop), tick(loop), tick(loop)] == [RUNNING, RUNNING, FAILURE]


# Repeat


async def test_r01_a_repeat_takes_a_pass_for_each_round_and_no_time() -> None:
    """Repeat(3) over a leaf that succeeds at once: SUCCESS after exactly 3 passes; the clock has not moved."""
    table = Table(lambda diary: Repeat("repeat", Scripted("a", SUCCESS, diary=diary), times=3))
    passes = passes_of(table.agent, table.clock)
    assert await table.run() is SUCCESS
    assert passes == [0.0, 0.0, 0.0]
    assert table.diary.count("update", "a") == 3


async def test_a_repeat_fails_with_its_child() -> None:
    """FAILURE when the child has failed."""
    table = Table(lambda diary: Repeat("repeat", Scripted("a", SUCCESS, FAILURE, diary=diary), times=5))
    assert await table.run() is FAILURE
    assert table.diary.count("update", "a") == 2


async def test_each_round_of_a_repeat_is_a_round_of_its_own() -> None:
    """It opens rounds: three rounds, three idempotency keys."""
    node = Keyed("a", SUCCESS)
    assert await Table(lambda diary: Repeat("repeat", node, times=3)).run() is SUCCESS
    assert len(set(node.keys)) == 3


async def test_a_repeat_of_no_rounds_succeeds_at_once() -> None:
    """`times` may follow the state; where it is 0 the child is not ticked."""
    table = Table(lambda diary: Repeat("repeat", Scripted("a", FAILURE, diary=diary), times=lambda s: s.n))
    assert await table.run() is SUCCESS
    assert table.diary.order() == []


async def test_a_repeat_without_end_goes_on_at_once_after_a_round_that_took_time() -> None:
    """Without `times` it goes on until FAILURE; a round that took time is followed by the next at once."""
    table = Table(lambda diary: Repeat("repeat", Leaf("a", diary)))
    assert await table.run() is FAILURE
    assert table.diary.at("start", "a") == [0.0, 1.0, 2.0]


class Leaf(Sleep):
    """Takes a second; fails the third time."""

    def __init__(self, name: str, diary: Diary) -> None:
        super().__init__(name, 1, diary)

    async def update_async(self) -> Status:
        await super().update_async()
        return FAILURE if self.diary.count("start", self.name) == 3 else SUCCESS


async def test_a_repeat_without_end_over_a_child_that_takes_no_time_is_polled() -> None:
    """Without `times`, rounds that take no time come at `poll_interval`, so that the loop is not kept busy."""
    table = Table(lambda diary: Repeat("r", Scripted("a", SUCCESS, SUCCESS, FAILURE, diary=diary)), poll_interval=0.1)
    assert await table.run() is FAILURE
    assert table.diary.at("update", "a") == [0.0, 0.1, 0.2]


def test_a_halted_repeat_begins_with_the_first_round() -> None:
    """Halting halts the child; the next entry needs all rounds again."""
    repeat = Repeat("repeat", Scripted("a", SUCCESS), times=3)
    assert [tick(repeat), tick(repeat)] == [RUNNING, RUNNING]
    halt(repeat)
    assert [tick(repeat), tick(repeat), tick(repeat)] == [RUNNING, RUNNING, SUCCESS]


# Retry


async def test_a_retry_tries_again_and_succeeds() -> None:
    """SUCCESS when an attempt has succeeded; the attempts follow one another at once."""
    table = Table(lambda diary: Retry("retry", Scripted("a", FAILURE, FAILURE, SUCCESS, diary=diary), attempts=3))
    passes = passes_of(table.agent, table.clock)
    assert await table.run() is SUCCESS
    assert passes == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("attempts", [2, lambda s: s.amount - 3])
async def test_a_retry_gives_up(attempts: object) -> None:
    """FAILURE when `attempts` attempts have failed."""
    table = Table(lambda diary: Retry("retry", Sleep("a", 1, diary, result=FAILURE), attempts=attempts))
    assert await table.run() is FAILURE
    assert table.diary.count("start", "a") == 2


async def test_all_attempts_belong_to_one_round() -> None:
    """Attempts of one round: the same idempotency key."""
    node = Keyed("a", FAILURE, FAILURE, SUCCESS)
    assert await Table(lambda diary: Retry("retry", node, attempts=3)).run() is SUCCESS
    assert len(node.keys) == 3
    assert len(set(node.keys)) == 1


async def test_exceptions_listed_count_as_failures() -> None:
    """Exceptions listed in `on` are tried again, plain and async, and are FAILURE in the end; others end the run."""
    node = Keyed("a", ValueError("one"), OSError("two"), SUCCESS)
    assert await Table(lambda diary: Retry("r", node, attempts=3, on=(ValueError, OSError))).run() is SUCCESS
    table = Table(lambda diary: Retry("r", Keyed("a", ValueError("one")), attempts=2, on=ValueError))
    assert await table.run() is FAILURE
    assert table.root.feedback_message == "attempt 2 raised ValueError: one"
    table = Table(lambda diary: Retry("r", Keyed("a", KeyError("x")), attempts=2, on=ValueError))
    with pytest.raises(KeyError) as caught:
        await table.agent.run()
    assert "raised by node 'r/a'" in caught.value.__notes__


async def test_what_raised_is_halted_before_the_next_attempt() -> None:
    """The subtree that raised is halted, and its cleanups are awaited before the next attempt starts the same node."""

    def make(diary: Diary) -> Behaviour:
        failing = Do("fail", lambda node: fail_once(node.ticks))
        late = Sequence("s", memory=True, children=[Sleep("half", 0.5, diary), failing])
        return Retry(
            "r",
            Parallel("p", ParallelPolicy.SuccessOnAll(), [Sleep("a", 1, diary, cleanup=0.5), late]),
            attempts=2,
            on=ValueError,
        )

    table = Table(make)
    assert await table.run() is SUCCESS
    assert table.diary.at("start", "a") == [0.0, 1.0]
    assert table.diary.at("clean", "a") == [1.0]


def fail_once(times: int) -> None:
    """Raise at the first call."""
    if times == 1:
        raise ValueError("not yet")


async def test_the_wait_doubles() -> None:
    """`backoff` seconds after the first failure, twice as many after each further one."""
    table = Table(lambda diary: Retry("r", Scripted("a", FAILURE, diary=diary), attempts=4, backoff=1))
    assert await table.run() is FAILURE
    assert table.diary.at("update", "a") == [0.0, 1.0, 3.0, 7.0]


async def test_jitter_adds_up_to_so_many_seconds() -> None:
    """`jitter` adds a part at random to each wait, never more than it says."""
    table = Table(lambda diary: Retry("r", Scripted("a", FAILURE, diary=diary), attempts=5, backoff=0, jitter=1))
    assert await table.run() is FAILURE
    times = table.diary.at("update", "a")
    waits = [later - before for before, later in itertools.pairwise(times)]
    assert all(0 <= wait <= 1 for wait in waits)
    assert len(set(waits)) > 1


async def test_a_write_during_the_wait_starts_no_attempt() -> None:
    """A pass that comes early finds it waiting; the attempt is made when the time is over."""
    table = Table(lambda diary: Retry("r", Scripted("a", FAILURE, SUCCESS, diary=diary), attempts=2, backoff=2))
    assert await table.run_with(table.writing(0.5, n=1), table.writing(1, n=2)) is SUCCESS
    assert table.diary.at("update", "a") == [0.0, 2.0]


def test_n10_a_halted_retry_has_all_attempts_again() -> None:
    """Retry(3) halted after two failures and entered again: three more failures until FAILURE."""
    retry = Retry("retry", Scripted("a", FAILURE), attempts=3)
    assert [tick(retry), tick(retry)] == [RUNNING, RUNNING]
    halt(retry)
    assert [tick(retry), tick(retry), tick(retry)] == [RUNNING, RUNNING, FAILURE]


def test_py_trees_can_tick_loops() -> None:
    """Without an agent, under py_trees' own tick, loops work the same."""
    for loop, last in [
        (Repeat("a", Scripted("x", SUCCESS), times=2), SUCCESS),
        (Retry("b", Scripted("x", FAILURE), attempts=2), FAILURE),
        (LoopUntilSuccess("c", Scripted("x", FAILURE, SUCCESS)), SUCCESS),
    ]:
        loop.tick_once()
        assert loop.status is RUNNING
        loop.tick_once()
        assert loop.status is last


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda a: Retry("r", a, attempts=0), r'Retry\("r", child, attempts=\.\.\.\) takes a whole number from 1 up'),
        (lambda a: Retry("r", a, attempts=True), "whole number"),
        (lambda a: Retry("r", a, attempts=2, backoff=-1), r"backoff=\.\.\.\) takes seconds, from 0 to 100 years"),
        (lambda a: Retry("r", a, attempts=2, jitter="1"), "seconds"),
        (lambda a: Retry("r", a, attempts=2, on=(3,)), r"takes classes of exceptions, on=\(ValueError, OSError\)"),
        (lambda a: Retry("r", a, attempts=2, on=BaseException), "classes of exceptions"),
        (lambda a: Repeat("r", a, times=-1), "whole number from 0 up"),
        (lambda a: Repeat("r", a, times=1.5), "whole number"),
        (lambda a: LoopUntilSuccess("r", a, max_iterations=0), "whole number from 1 up"),
        (lambda a: LoopUntilSuccess("r", 3), "takes a node of a tree, not 3"),
    ],
)
def test_wrong_options_are_refused_at_once(make: object, text: str) -> None:
    """A wrong option is a SetupError at construction, with the call to write."""
    with pytest.raises(SetupError, match=text):
        make(Scripted("a", SUCCESS))


async def test_a_function_that_gives_no_number_is_an_error_with_the_path() -> None:
    """An option that follows the state and gives nonsense names the node, and no value."""
    table = Table(lambda diary: Retry("r", Scripted("a", FAILURE), attempts=lambda s: s.name), {"name": "secret"})
    with pytest.raises(RunError, match=r"node 'r': .* a whole number from 1 up, not str") as caught:
        await table.agent.run()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "starts"),
    [
        (lambda leaf: LoopUntilSuccess("l", leaf(FAILURE, SUCCESS)), 2),
        (lambda leaf: Repeat("l", leaf(SUCCESS), times=3), 3),
        (lambda leaf: Retry("l", leaf(FAILURE, FAILURE, SUCCESS), attempts=3), 3),
    ],
)
async def test_looking_again_begins_no_loop_anew(make: object, starts: int) -> None:
    """A loop that has finished, and under which a coroutine was started, holds its result."""
    leaves: list[Keyed] = []

    def leaf(*results: Status) -> Keyed:
        leaves.append(Keyed("a", *results))
        return leaves[-1]

    table = Table(lambda diary: Sequence("s", memory=False, children=[make(leaf), Sleep("b", 2, diary)]))
    assert await table.run_with(table.writing(0.5, n=1), table.writing(1, n=2)) is SUCCESS
    assert len(leaves[0].keys) == starts
    assert table.diary.order() == ["start b", "end b"]
