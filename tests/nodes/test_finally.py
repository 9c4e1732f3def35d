"""Finally: the cleanup is run in any case, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.nodes import Catch, Finally, Guard, Race
from tests.cases.leaves import (
    FAILURE,
    SUCCESS,
    Diary,
    Do,
    DoAsync,
    Forever,
    Scripted,
    Sleep,
    cancelled,
    nothing_left,
    run,
)
from tests.nodes.cleanups import KINDS, Cleanup, async_cleanup, sync_cleanup
from tests.nodes.kit import Table

pytestmark = pytest.mark.anyio


@KINDS
@pytest.mark.parametrize("result", [SUCCESS, FAILURE])
async def test_n17_after_a_result(make: Callable[[Diary], Cleanup], takes: float, result: Status) -> None:
    """The child succeeds or fails: the cleanup runs once, then the outcome is the child's own."""
    table = Table(lambda diary: Finally("f", Sleep("a", 1, diary, result=result), make(diary)))
    assert await table.run() is result
    assert table.clock.now() == pytest.approx(1 + takes)
    assert table.diary.at("cleaned", "f") == [1 + takes]
    assert table.state.log == ["cleaned"]


@KINDS
async def test_n17_after_an_exception(make: Callable[[Diary], Cleanup], takes: float) -> None:
    """The child raises: the cleanup runs once, and the exception is the child's own."""

    async def fail(node: DoAsync) -> None:
        await node.context.clock.sleep(1)
        raise KeyError("x")

    for child in (DoAsync("a", fail), Sequence("q", memory=True, children=[Sleep("w", 1), Do("a", raise_key_error)])):
        table = Table(lambda diary, child=child: Finally("f", child, make(diary)))
        with nothing_left(table.agent), pytest.raises(KeyError) as caught:
            await run(table.agent)
        assert caught.value.__notes__[0].startswith("raised by node 'f/")
        assert table.diary.at("cleaned", "f") == [1 + takes]


def raise_key_error(_node: Do) -> None:
    """Raise."""
    raise KeyError("x")


@KINDS
async def test_an_exception_in_the_first_pass_under_a_catch(make: Callable[[Diary], Cleanup], takes: float) -> None:
    """The child raises in the pass that enters it and a Catch takes it: the cleanup runs, what follows waits for it."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=True,
            children=[
                Catch("c", Finally("f", Do("a", raise_key_error), make(diary)), on=KeyError),
                Sleep("next", 1, diary),
            ],
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("cleaned", "s/c/f") == [takes]
    assert table.diary.at("start", "next") == [takes]


@KINDS
async def test_n17_after_a_halt_by_a_sibling(make: Callable[[Diary], Cleanup], takes: float) -> None:
    """A sibling halts it: the cleanup runs once, after the coroutine below was cleaned up; what replaces it waits."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                Finally("f", Forever("a", diary, cleanup=0.25), make(diary)),
            ],
        )
    )
    assert await table.run_with(table.writing(1, n=1)) is SUCCESS
    assert table.diary.at("clean", "a") == [1.25]
    assert table.diary.at("cleaned", "s/f") == [1.25 + takes]
    assert table.diary.at("start", "other") == [1.25 + takes]


@KINDS
async def test_n17_after_a_cancellation(make: Callable[[Diary], Cleanup], takes: float) -> None:
    """The run is cancelled: the cleanup runs once and is awaited before the run ends."""
    table = Table(lambda diary: Finally("f", Forever("a", diary, cleanup=0.25), make(diary)))
    with nothing_left(table.agent):
        await cancelled(table.agent, table.clock, 1)
    assert table.diary.at("cleaned", "f") == [1.25 + takes]
    assert table.state.log == ["cleaned"]


@KINDS
async def test_after_the_halt_of_a_plain_subtree(make: Callable[[Diary], Cleanup], takes: float) -> None:
    """A subtree without coroutines is halted: the child first, then the cleanup; a sync one in the same pass."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                Finally("f", Scripted("a", Status.RUNNING, diary=diary), make(diary)),
            ],
        )
    )
    assert await table.run_with(table.writing(1, n=1)) is SUCCESS
    assert table.diary.order("terminate INVALID", "cleaned")[0] == "terminate INVALID a"
    assert table.diary.at("cleaned", "s/f") == [1 + takes]
    assert table.diary.at("start", "other") == [1 + takes]


async def test_a_sync_cleanup_after_a_result_waits_for_what_was_halted_below() -> None:
    """The child has its result, but a loser of its race still cleans up: the cleanup comes after that."""
    table = Table(
        lambda diary: Finally(
            "f", Race("r", [Sleep("a", 1, diary), Forever("b", diary, cleanup=1)]), sync_cleanup(diary)
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("clean", "b") == [2.0]
    assert table.diary.at("cleaned", "f") == [2.0]


async def test_a_halt_during_the_cleanup_does_not_cut_it_short() -> None:
    """Halted while the cleanup after a result is awaited: it goes on to its end, once; what comes next waits."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                Finally("f", Sleep("a", 1, diary), async_cleanup(diary)),
            ],
        )
    )
    assert await table.run_with(table.writing(1.25, n=1)) is SUCCESS
    assert table.diary.at("cleaning", "s/f") == [1.0]
    assert table.diary.at("cleaned", "s/f") == [1.5]
    assert table.diary.at("start", "other") == [1.5]


async def test_halted_in_the_pass_that_began_the_cleanup() -> None:
    """The child's result and the halt fall into one pass: the cleanup runs all the same, once."""
    table = Table(
        lambda diary: Parallel(
            "p",
            ParallelPolicy.SuccessOnAll(),
            [
                Finally("f", Sleep("a", 1, diary), async_cleanup(diary)),
                Sequence("s", memory=True, children=[Sleep("b", 1, diary), Scripted("no", FAILURE)]),
            ],
        )
    )
    assert await table.run() is FAILURE
    assert table.diary.count("cleaned", "p/f") == 1
    assert table.clock.now() == pytest.approx(1.5)
