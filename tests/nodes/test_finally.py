"""Finally: the cleanup is run in any case, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.agent import Agent
from jianmu.engine.events import CleanupFailed
from jianmu.errors import SetupError
from jianmu.nodes import AskHuman, Catch, Finally, Guard, LoopUntilSuccess, Race
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    SUCCESS,
    Diary,
    Do,
    DoAsync,
    Forever,
    Scripted,
    Sleep,
    cancelled,
    events_of,
    nothing_left,
    of_kind,
    run,
)
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio

Cleanup = Callable[[Any], Any]


def sync_cleanup(diary: Diary) -> Cleanup:
    """A cleanup that takes no time."""

    def cleanup(context: Any) -> None:
        context.write_state({"log": ["cleaned"]})
        diary.note("cleaned", context.path)

    return cleanup


def async_cleanup(diary: Diary) -> Cleanup:
    """A cleanup that takes half a second."""

    async def cleanup(context: Any) -> None:
        diary.note("cleaning", context.path)
        await context.clock.sleep(0.5)
        sync_cleanup(diary)(context)

    return cleanup


KINDS = pytest.mark.parametrize(("make", "takes"), [(sync_cleanup, 0.0), (async_cleanup, 0.5)], ids=["sync", "async"])


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


async def test_entered_again_it_cleans_up_again() -> None:
    """Once for each time it is entered."""
    table = Table(
        lambda diary: LoopUntilSuccess(
            "loop", Finally("f", Sleep("a", 1, diary, result=FAILURE), async_cleanup(diary)), max_iterations=3
        )
    )
    assert await table.run() is FAILURE
    assert table.diary.at("cleaned", "loop/f") == [1.5, 3.0, 4.5]


async def test_entered_again_while_the_cleanup_of_a_halt_is_awaited() -> None:
    """A second activation that is halted while the first one's cleanup goes on: two cleanups, one after the other."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Scripted("x", Status.RUNNING), condition=lambda s: s.n % 2 == 1),
                Finally("f", Scripted("a", Status.RUNNING), async_cleanup(diary)),
            ],
        )
    )
    writes = [table.writing(1, n=1), table.writing(1.1, n=2), table.writing(1.2, n=3), table.writing(3, n=4)]

    async def stop() -> None:
        await table.clock.sleep(4)
        table.agent.halt()

    assert await table.run_with(*writes, stop) is INVALID
    assert table.diary.at("cleaned", "s/f") == [1.5, 2.0, 4.5]


@KINDS
async def test_a_cleanup_that_raises_in_the_course_of_a_tick_ends_the_run(
    make: Callable[[Diary], Cleanup], takes: float
) -> None:
    """After a result, the cleanup's exception is the node's."""

    def failing(diary: Diary) -> Cleanup:
        if takes:

            async def later(context: Any) -> None:
                await context.clock.sleep(takes)
                raise ValueError("cleanup")

            return later

        def now(_context: Any) -> None:
            raise ValueError("cleanup")

        return now

    table = Table(lambda diary: Finally("f", Sleep("a", 1, diary), failing(diary)))
    with nothing_left(table.agent), pytest.raises(ValueError, match="cleanup") as caught:
        await run(table.agent)
    assert caught.value.__notes__ == ["raised by node 'f'"]
    table = Table(lambda diary: Catch("c", Finally("f", Sleep("a", 1, diary), failing(diary)), on=ValueError))
    assert await table.run() is FAILURE


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_cleanup_that_raises_in_a_halt_is_reported_once(is_async: bool) -> None:
    """In a halt the exception is an event with the path, and the run goes on."""

    async def later(_context: Any) -> None:
        raise ValueError("cleanup")

    def now(_context: Any) -> None:
        raise ValueError("cleanup")

    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                Finally("f", Forever("a", diary), later if is_async else now),
            ],
        )
    )
    events = events_of(table.agent)
    assert await table.run_with(table.writing(1, n=1)) is SUCCESS
    assert [(event.path, event.reason) for event in of_kind(events, CleanupFailed)] == [("s/f", "ValueError: cleanup")]


async def test_a_cleanup_that_never_ends_is_cancelled_after_halt_timeout() -> None:
    """In a halt it is shielded and cancelled after `halt_timeout`, which counts from its own start."""

    async def endless(context: Any) -> None:
        await context.clock.sleep(1000)

    table = Table(lambda diary: Finally("f", Forever("a", diary, cleanup=1), endless), halt_timeout=2)
    events = events_of(table.agent)
    with nothing_left(table.agent):
        await cancelled(table.agent, table.clock, 1)
    assert table.clock.now() == pytest.approx(4)
    assert [event.path for event in of_kind(events, CleanupFailed)] == ["f"]


async def test_a_cleanup_after_a_result_may_take_its_time() -> None:
    """Without a halt there is no time limit."""

    async def long(context: Any) -> None:
        await context.clock.sleep(100)

    table = Table(lambda diary: Finally("f", Sleep("a", 1, diary), long), halt_timeout=2)
    assert await table.run() is SUCCESS
    assert table.clock.now() == pytest.approx(101)


async def test_looking_again_does_not_clean_up_again() -> None:
    """In a memoryless Sequence that goes on, a finished Finally holds its result: nothing runs a second time."""
    table = Table(
        lambda diary: Sequence(
            "s", memory=False, children=[Finally("f", Sleep("a", 1, diary), sync_cleanup(diary)), Sleep("b", 2, diary)]
        )
    )
    assert await table.run_with(table.writing(1.5, n=1), table.writing(2, n=2)) is SUCCESS
    assert table.diary.count("cleaned", "s/f") == 1


@KINDS
async def test_a_suspended_run_does_not_clean_up(make: Callable[[Diary], Cleanup], takes: float) -> None:
    """Suspended, the cleanup is not run; it runs once when the run has gone on, in another agent too."""
    tables = [Table(lambda diary: Finally("f", AskHuman("ask", message="?"), make(diary))) for _ in range(2)]
    first, second = tables
    outcome = await first.agent.run_until_suspend(thread_id="t")
    assert outcome.suspended
    assert first.diary.order("cleaned") == []
    second.agent.load_checkpoint(first.agent.dump_checkpoint())
    outcome = await second.agent.resume("yes")
    assert outcome.status is SUCCESS
    assert second.diary.at("cleaned", "f") == [takes]


async def test_n19_a_guard_leaf_ends_the_loop_and_the_title_is_set() -> None:
    """A guard leaf ends the loop with FAILURE; the Finally around it sets its field; nothing else is ticked."""
    ticked: list[str] = []

    def model(_node: Do) -> None:
        ticked.append("model")

    def guard(_node: Do) -> Status:
        ticked.append("guard")
        return FAILURE

    def title(context: Any) -> None:
        context.write_state({"name": "title"})

    loop = Sequence("loop", memory=True, children=[Do("model", model), Do("guard", guard), Do("never", model)])
    agent = Agent(Finally("f", loop, title), Desk)
    assert await run(agent) is FAILURE
    assert agent.state.name == "title"
    assert ticked == ["model", "guard"]


def test_a_plain_tree_needs_no_place_for_coroutines() -> None:
    """A sync cleanup in a tree without coroutines works with step_sync()."""
    cleaned: list[str] = []
    agent = Agent(Finally("f", Scripted("a", Status.RUNNING, SUCCESS), lambda context: cleaned.append(context.path)))
    agent.step_sync()
    assert cleaned == []
    agent.step_sync()
    assert cleaned == ["f"]
    assert agent.status is SUCCESS


async def test_a_lambda_that_returns_a_coroutine_is_refused() -> None:
    """A function that turns out to return something to await is an error that says what to write."""

    async def later(_context: Any) -> None:
        return

    table = Table(lambda diary: Finally("f", Scripted("a", SUCCESS), lambda context: later(context)))  # noqa: PLW0108  # it hides that it is async
    with pytest.raises(Exception, match="write `async def`"):
        await run(table.agent)


def test_a_cleanup_is_a_function() -> None:
    """Anything that cannot be called is refused at once."""
    with pytest.raises(SetupError, match=r'Finally\("f", child, cleanup\) takes a function of the context'):
        Finally("f", Scripted("a", SUCCESS), 3)


def test_its_child_is_found_as_that_of_a_decorator() -> None:
    """`decorated` is the child."""
    child: Behaviour = Scripted("a", SUCCESS)
    assert Finally("f", child, lambda _: None).decorated is child


async def test_a_cleanup_that_is_halted_and_never_ends_is_cancelled() -> None:
    """Halted while the cleanup after a result is awaited: it is cancelled `halt_timeout` later."""

    async def endless(context: Any) -> None:
        await context.clock.sleep(1000)

    table = Table(lambda diary: Finally("f", Sleep("a", 1, diary), endless), halt_timeout=2)
    with nothing_left(table.agent):
        await cancelled(table.agent, table.clock, 4)
    assert table.clock.now() == pytest.approx(6)


async def test_looking_again_does_not_repeat_an_async_cleanup() -> None:
    """The same where only the cleanup takes time."""
    table = Table(
        lambda diary: Sequence(
            "s",
            memory=False,
            children=[Finally("f", Scripted("a", SUCCESS, diary=diary), async_cleanup(diary)), Sleep("b", 2, diary)],
        )
    )
    assert await table.run_with(table.writing(1.5, n=1), table.writing(2, n=2)) is SUCCESS
    assert table.diary.count("cleaned", "s/f") == 1
    assert table.diary.count("update", "a") == 1


@KINDS
@pytest.mark.parametrize("way", ["reset", "withdraw", "switch"])
async def test_what_becomes_of_a_suspended_cleanup(make: Callable[[Diary], Cleanup], takes: float, way: str) -> None:
    """A reset, or an input that withdraws, halts it: the cleanup runs. Another thread only puts it aside."""
    table = Table(lambda diary: Finally("f", AskHuman("ask", message="?"), make(diary)))
    await table.agent.run_until_suspend(thread_id="one")
    if way == "reset":
        await table.agent.reset()
    elif way == "withdraw":
        await table.agent.run_until_suspend({"n": 1}, on_new_input="withdraw")
    else:
        await table.agent.run_until_suspend(thread_id="two")
    assert table.diary.at("cleaned", "f") == ([] if way == "switch" else [takes])


async def test_a_cleanup_that_was_put_aside_is_not_run_for_another_thread() -> None:
    """Put aside in one thread, halted in another where it was never entered: nothing is due there."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                Catch("c", Finally("f", AskHuman("ask", message="?"), sync_cleanup(diary)), on=ValueError),
            ],
        )
    )
    await table.agent.run_until_suspend(thread_id="one")
    assert await table.agent.run({"n": 1}, thread_id="two") is SUCCESS
    await table.agent.reset()
    assert table.diary.count("cleaned", "s/c/f") == 0
