"""Guard, Catch, and the forcing decorators."""

from __future__ import annotations

import py_trees
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.engine.ticker import tick
from jianmu.errors import RunError, SetupError
from jianmu.nodes import Catch, ForceFailure, ForceSuccess, Guard, Invert, async_condition
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, Diary, Do, DoAsync, Forever, Scripted, Sleep, run
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


# Guard


@pytest.mark.parametrize("result", [SUCCESS, FAILURE])
async def test_a_guard_lets_its_child_run_while_the_condition_holds(result: Status) -> None:
    """SUCCESS, FAILURE, RUNNING: as the child, while the condition holds."""
    table = Table(lambda diary: Guard("g", Sleep("a", 1, diary, result=result), condition=lambda s: s.ok))
    assert await table.run() is result
    assert table.clock.now() == pytest.approx(1)


async def test_a_guard_halts_its_child_when_the_condition_ends() -> None:
    """FAILURE, and the child is halted, when it does not hold, in the pass that sees it."""
    table = Table(lambda diary: Guard("g", Sleep("a", 5, diary), condition=lambda s: s.ok))
    assert await table.run_with(table.writing(1, ok=False)) is FAILURE
    assert table.diary.at("clean", "a") == [1.0]


async def test_a_guard_that_does_not_hold_lets_nothing_start() -> None:
    """The condition is asked before the child is ticked."""
    table = Table(
        lambda diary: Guard("g", Scripted("a", SUCCESS, diary=diary), condition=lambda s: s.ok), {"ok": False}
    )
    assert await table.run() is FAILURE
    assert table.diary.order() == []


async def test_a_guard_over_a_finished_child_is_seen_in_every_pass() -> None:
    """In a memoryless Sequence the guard of a finished child still ends what comes after it."""
    table = Table(
        lambda diary: Sequence(
            "s",
            memory=False,
            children=[Guard("g", Sleep("a", 1, diary), condition=lambda s: s.ok), Sleep("b", 9, diary)],
        )
    )
    assert await table.run_with(table.writing(3, ok=False)) is FAILURE
    assert table.diary.at("clean", "b") == [3.0]
    assert table.diary.count("start", "a") == 1


async def test_a_guard_wants_a_bool() -> None:
    """A condition that returns something else is an error with the path."""
    table = Table(lambda diary: Guard("g", Scripted("a", SUCCESS), condition=lambda s: s.items))
    with pytest.raises(
        RunError, match=r"node 'g': the function given as Guard\(\"g\", child, condition=...\) has to return a"
    ):
        await table.agent.run()


# Catch


def raiser(error: Exception, diary: Diary | None = None) -> Behaviour:
    """A coroutine that raises after a second."""

    async def work(node: DoAsync) -> None:
        await node.context.clock.sleep(1)
        raise error

    return DoAsync("a", work)


def at_once(error: Exception) -> Behaviour:
    """A plain leaf that raises."""

    def work(_node: Do) -> None:
        raise error

    return Do("a", work)


@pytest.mark.parametrize("make", [raiser, at_once])
async def test_n11_a_catch_turns_what_it_names_into_failure(make: object) -> None:
    """FAILURE inside the tree, the run goes on; another exception ends the run and names the child's path."""
    table = Table(
        lambda diary: Selector(
            "s", memory=True, children=[Catch("c", make(ValueError("x")), on=(ValueError,)), Sleep("b", 1, diary)]
        )
    )
    assert await table.run() is SUCCESS
    assert table.root.children[0].feedback_message == "ValueError: x"
    table = Table(lambda diary: Catch("c", make(KeyError("x")), on=(ValueError,)))
    with pytest.raises(KeyError) as caught:
        await run(table.agent)
    assert caught.value.__notes__ == ["raised by node 'c/a'"]


@pytest.mark.parametrize("result", [SUCCESS, FAILURE])
async def test_a_catch_returns_what_its_child_returns(result: Status) -> None:
    """SUCCESS, FAILURE, RUNNING: as the child."""
    table = Table(lambda diary: Catch("c", Sleep("a", 1, diary, result=result), on=ValueError))
    assert await table.run() is result


async def test_a_catch_halts_the_rest_of_its_subtree() -> None:
    """All of the subtree is halted, and what comes next waits for its cleanups."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=True,
            children=[
                Catch(
                    "c",
                    Parallel(
                        "p", ParallelPolicy.SuccessOnAll(), [Forever("f", diary, cleanup=1), raiser(ValueError("x"))]
                    ),
                    on=ValueError,
                ),
                Sleep("b", 1, diary),
            ],
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("clean", "f") == [2.0]
    assert table.diary.at("start", "b") == [2.0]


async def test_r41_an_exception_that_came_too_late_is_caught_as_well() -> None:
    """The leaf raised and was halted before it was ticked: with the Catch the run goes on, without it it ends."""

    def make(catch: bool) -> Table:
        def build(diary: Diary) -> Behaviour:
            async def work(node: DoAsync) -> None:
                await node.context.clock.sleep(1)
                node.write_state({"n": 1})
                raise KeyError("lost")

            leaf = DoAsync("a", work)
            other = Guard("g", Sleep("c", 1, diary), condition=lambda s: s.n == 1)
            return Selector("s", memory=False, children=[other, Catch("c", leaf, on=(KeyError,)) if catch else leaf])

        return Table(build)

    assert await make(catch=True).run() is SUCCESS
    with pytest.raises(KeyError) as caught:
        await run(make(catch=False).agent)
    assert caught.value.__notes__ == ["raised by node 's/a'"]


async def test_a_failure_that_was_an_exception_stands() -> None:
    """A memoryless Selector that looks again does not start what has raised a second time."""
    starts: list[str] = []

    async def work(_node: DoAsync) -> None:
        starts.append("a")
        raise ValueError("x")

    table = Table(
        lambda diary: Selector(
            "s", memory=False, children=[Catch("c", DoAsync("a", work), on=ValueError), Sleep("b", 2, diary)]
        )
    )
    assert await table.run_with(table.writing(0.5, n=1), table.writing(1, n=2)) is SUCCESS
    assert starts == ["a"]
    assert table.diary.order() == ["start b", "end b"]


async def test_conditions_below_a_catch_are_still_looked_at() -> None:
    """A Catch that has caught nothing holds nothing: an async condition below it is evaluated again."""

    @async_condition
    async def is_ok(state: Desk) -> bool:
        return state.ok

    table = Table(
        lambda diary: Sequence(
            "s", memory=False, children=[Catch("c", is_ok("ok"), on=ValueError), Sleep("b", 9, diary)]
        )
    )
    assert await table.run_with(table.writing(1, ok=False)) is FAILURE
    assert table.diary.at("clean", "b") == [1.0]


@pytest.mark.parametrize("on", [(), (3,), 3, "ValueError", BaseException, (ValueError, KeyboardInterrupt)])
def test_a_catch_wants_exceptions(on: object) -> None:
    """`on` names classes of exceptions; an empty tuple catches nothing and is legal."""
    if on == ():
        assert Catch("c", Scripted("a", SUCCESS), on=()).catches(ValueError()) is False
        return
    with pytest.raises(SetupError, match=r'Catch\("c", child, on=\.\.\.\) takes classes of exceptions'):
        Catch("c", Scripted("a", SUCCESS), on=on)


def test_a_catch_works_under_py_trees() -> None:
    """Without an agent, under py_trees' own tick, exceptions are caught as well."""
    catch = Catch("c", at_once(ValueError("x")), on=ValueError)
    catch.tick_once()
    assert catch.status is FAILURE
    assert tick(Catch("c", at_once(ValueError("x")), on=ValueError)) is FAILURE


# Invert, ForceSuccess, ForceFailure


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Invert, py_trees.decorators.Inverter),
        (ForceSuccess, py_trees.decorators.FailureIsSuccess),
        (ForceFailure, py_trees.decorators.SuccessIsFailure),
    ],
)
def test_forcing_decorators_have_the_meaning_of_py_trees(ours: type, theirs: type) -> None:
    """Same statuses and callbacks as py_trees' decorators, ticked by jianmu and by py_trees."""
    script = [RUNNING, SUCCESS, RUNNING, FAILURE, FAILURE, SUCCESS]

    def log(kind: type, once: object) -> list[object]:
        diary = Diary()
        node = kind("d", Scripted("a", *script, diary=diary))
        return [(once(node), node.feedback_message) for _ in script] + list(diary.order())

    def by_py_trees(node: Behaviour) -> Status:
        node.tick_once()
        return node.status

    expected = log(theirs, by_py_trees)
    assert log(ours, by_py_trees) == expected
    assert log(ours, tick) == expected


@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        (Invert, SUCCESS, FAILURE),
        (Invert, FAILURE, SUCCESS),
        (ForceSuccess, SUCCESS, SUCCESS),
        (ForceSuccess, FAILURE, SUCCESS),
        (ForceFailure, SUCCESS, FAILURE),
        (ForceFailure, FAILURE, FAILURE),
    ],
)
async def test_forcing_decorators_over_a_coroutine(kind: type, result: Status, expected: Status) -> None:
    """RUNNING while the child is, then the result that the decorator makes of it."""
    table = Table(lambda diary: kind("d", Sleep("a", 1, diary, result=result)))
    assert await table.run() is expected
    assert table.clock.now() == pytest.approx(1)


async def test_a_catch_halts_what_was_begun_in_the_pass_that_raised() -> None:
    """The child raises in its first tick, when only some of what is below it was entered: that is halted too."""

    def build(diary: Diary) -> Behaviour:
        both = Parallel(
            "p", ParallelPolicy.SuccessOnAll(), [Scripted("x", RUNNING, diary=diary), at_once(ValueError("x"))]
        )
        return Selector("s", memory=True, children=[Catch("c", both, on=ValueError), Sleep("b", 1, diary)])

    table = Table(build)
    assert await table.run() is SUCCESS
    assert table.diary.order("terminate INVALID", "start") == ["terminate INVALID x", "start b"]
