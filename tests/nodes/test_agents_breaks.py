"""Tools on a bad night: changed programs, cancellations from inside, halts while a call asks, keys that clash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.engine.activity import Activity
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.engine.request import Request
from jianmu.message import ai, human
from jianmu.nodes.delegating import acting
from jianmu.stores import SQLiteStore
from jianmu.tool import Tool
from tests.cases.leaves import SUCCESS, nothing_left
from tests.nodes.toolkit import Scene, call
from tests.prebuilt.test_delegate import Outer, looks
from tests.prebuilt.test_delegate import call as delegated

pytestmark = pytest.mark.anyio
INSIDE = "'bad' failed: it was cancelled from inside; whether it took effect is not known."


@pytest.mark.parametrize("is_approved", [False, True])
async def test_a_tool_may_ask_under_any_key(is_approved: bool) -> None:
    """A tool that asks under the key "approve" gets its own answer, not that to the approval of its call."""

    async def deploy(label: str, context: NodeContext) -> str:
        """Deploy."""
        answer: str = await context.ask(Request(f"{label}: where to?"), key="approve")
        return answer

    scene = Scene(call("a", "deploy"), make=lambda bench: [bench.tool(), Tool(deploy, requires_approval=is_approved)])
    outcome = await scene.run()
    if is_approved:
        outcome = await scene.agent.resume(True)
    assert [question.message for question in outcome.suspensions] == ["a: where to?"]
    assert (await scene.agent.resume("north")).status is SUCCESS
    assert scene.told == [("a", "north", False)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio has no cancellation but that of a scope
@pytest.mark.parametrize("ids", ["b", "ab", "abc"])
@pytest.mark.parametrize("seconds", [None, 5])
async def test_a_tool_that_is_cancelled_from_inside(ids: str, seconds: float | None) -> None:
    """A tool that waits for a cancelled task has an error for its result; its siblings have theirs."""

    async def bad(label: str) -> str:
        """Wait for a task that somebody cancels."""
        task = asyncio.ensure_future(asyncio.sleep(9))
        await asyncio.sleep(0)
        task.cancel()
        await task
        return label

    calls = [call(id, "bad" if id == "b" else "work") for id in ids]
    scene = Scene(*calls, make=lambda bench: [Tool(bad, timeout=seconds), bench.tool()])
    assert (await scene.run()).status is SUCCESS
    assert scene.told == [(id, INSIDE, True) if id == "b" else (id, f"{id} is done", False) for id in ids]


async def test_cancelled_while_one_asks_and_another_works() -> None:
    """The question stays open, its answer goes to the call that asked, and each call has one result."""
    scene = Scene(call("a", "asks"), call("b", seconds=9), make=lambda bench: [bench.asking(), bench.tool()])
    with nothing_left(scene.agent):
        async with anyio.create_task_group() as group:
            group.start_soon(scene.run)
            await scene.clock.sleep(1)
            group.cancel_scope.cancel()
    (question,) = (await scene.agent.recover()).suspensions
    assert question.message == "a: sure?"
    assert (await scene.agent.resume("yes")).status is SUCCESS
    lost = "'work' was begun before and broken off; whether it took effect is not known."
    assert scene.told == [("a", "a is done: yes", False), ("b", lost, True)]


async def test_what_was_carried_out_is_not_asked_about() -> None:
    """A rule that changes its mind while a sibling asks finds the call done: its result stands."""
    is_strict: list[bool] = []

    def rule(arguments: dict[str, Any]) -> bool:
        return arguments["label"] == "a" and bool(is_strict)

    scene = Scene(
        call("a"),
        call("b", "asks"),
        make=lambda bench: [bench.tool(requires_approval=rule), bench.asking()],
    )
    await scene.run()
    is_strict.append(True)
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert scene.told == [("a", "a is done", False), ("b", "b is done: yes", False)]


async def test_a_program_without_a_tool_that_was_called(tmp_path: Path) -> None:
    """What a tool has done is its result, also when the next program has not got it any more."""
    async with SQLiteStore(str(tmp_path / "s.db")) as store:
        first = Scene(call("a"), call("b", "asks"), make=lambda bench: [bench.tool(), bench.asking()], store=store)
        await first.run(thread_id="t")
        second = Scene(make=lambda bench: [bench.asking()], store=store)
        assert (await second.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert second.told == [("a", "a is done", False), ("b", "b is done: yes", False)]


async def test_a_program_without_a_tool_that_was_begun(tmp_path: Path) -> None:
    """Of a call that was begun the model is not told that nothing was called."""
    async with SQLiteStore(str(tmp_path / "s.db")) as store:
        first = Scene(call("a", "asks"), make=lambda bench: [bench.asking()], store=store)
        await first.run(thread_id="t")
        second = Scene(store=store)
        assert (await second.agent.resume("yes", thread_id="t")).status is SUCCESS
    assert second.told == [
        ("a", "'asks' was cut off, since its turn was ended; whether it took effect is not known.", True)
    ]


async def test_saved_between_plain_calls_and_delegates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies when the plain calls are done, and no pass has seen it, loses none of the calls."""
    dumps: list[Any] = []
    noted: list[str] = []
    settle = Activity.settle

    def build() -> Agent[Any]:
        def note(topic: str) -> str:
            """Note."""
            noted.append(topic)
            return "noted"

        return Agent(acting("act", [looks(), note])[0], Outer, clock=VirtualClock(autojump=True))

    def then_dumped(activity: Activity, live: Any, status: object, error: BaseException | None) -> None:
        settle(activity, live, status, error)
        if activity.path == "act/calls":
            dumps.append(first.dump_checkpoint())

    monkeypatch.setattr(Activity, "settle", then_dumped)
    first, second = build(), build()
    calls = [delegated("a"), delegated("b", "note"), delegated("c")]
    await first.run({"messages": [human("go"), ai("", tool_calls=calls)]}, thread_id="t")
    second.load_checkpoint(dumps[0])
    assert (await second.recover()).status is SUCCESS
    for agent in (first, second):
        told = [(message.tool_call_id, message.text) for message in agent.state.messages if message.role == "tool"]
        assert told == [("a", "a/1"), ("b", "noted"), ("c", "c/1")]
    assert noted == ["b"]


class SilentError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        """Raise."""
        raise ValueError


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "text"), [(SystemExit(2), "RuntimeError: it has called sys.exit(2)"), (SilentError(), "SilentError")]
)
async def test_a_tool_that_ends_the_process_or_cannot_say_why(is_async: bool, error: BaseException, text: str) -> None:
    """`sys.exit()`, and an exception whose text cannot be read, are error results; siblings have theirs."""

    def bad(label: str) -> str:
        """Raise."""
        raise error

    async def worse(label: str) -> str:
        """Raise."""
        return bad(label)

    scene = Scene(
        call("a", "bad"), call("b"), make=lambda bench: [Tool(worse if is_async else bad, name="bad"), bench.tool()]
    )
    assert (await scene.run()).status is SUCCESS
    assert scene.told == [("a", f"'bad' failed: {text}", True), ("b", "b is done", False)]


async def test_one_part_of_a_tool_asks_and_another_fails_at_its_end() -> None:
    """The tool has asked; after the answer it is entered again, and its result is what comes of it then."""

    async def fails_at_its_end() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError

    async def parts(label: str, context: NodeContext) -> str:
        """Ask, beside other work."""
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await context.ask(Request("sure?")))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            if not context.run.interaction.ids():
                group.start_soon(fails_at_its_end)
        return f"{label}: {answers[0]}"

    scene = Scene(call("a", "parts"), call("b"), make=lambda bench: [Tool(parts), bench.tool()])
    (question,) = (await scene.run()).suspensions
    assert (question.message, question.tool_call_id) == ("sure?", "a")
    assert (await scene.agent.resume("yes")).status is SUCCESS
    assert scene.told == [("a", "a: yes", False), ("b", "b is done", False)]


async def test_edited_arguments_are_told_in_short() -> None:
    """The note about what a person has put in is no longer than a model can read, and in the letters of that person."""
    scene = Scene(call("a"), make=lambda bench: [bench.tool(requires_approval=True, max_result_chars=10)])
    await scene.run()
    await scene.agent.resume({"approved": True, "editedArgs": {"label": "ä" * 1_000_000}})
    ((_, text, is_error),) = scene.told
    assert ('changed its arguments to {"label": "äää' in text, is_error, len(text) < 11_000) == (True, False, True)
