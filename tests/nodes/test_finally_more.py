"""Finally: entered again, looked at again, suspended, put aside; and cleanups that go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Selector, Sequence

from jianmu.agent import Agent
from jianmu.engine.events import CleanupFailed
from jianmu.errors import SetupError
from jianmu.nodes import AskHuman, Catch, Finally, Guard, LoopUntilSuccess
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    SUCCESS,
    Diary,
    Do,
    Forever,
    Scripted,
    Sleep,
    cancelled,
    events_of,
    nothing_left,
    of_kind,
    run,
)
from tests.nodes.cleanups import KINDS, Cleanup, async_cleanup, sync_cleanup
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


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
