"""ToolExecutor: halts, cancellations, crashes; what the conversation has afterwards."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from jianmu.message import ai, human
from jianmu.nodes import ForceSuccess, Guard, Race, Sequence, Timeout, Timer
from jianmu.nodes.pairing import paired
from jianmu.stores import MemoryStore
from jianmu.tool import Tool
from tests.cases.leaves import SUCCESS, Do, nothing_left
from tests.nodes.toolkit import Scene, call

pytestmark = pytest.mark.anyio
CUT = "'work' was cut off, since its turn was ended; whether it took effect is not known."
NOT = "'work' was not called, since its turn was ended before."


async def cancelled(scene: Scene, seconds: float) -> None:
    """Run, and cancel the run after so many seconds."""
    with nothing_left(scene.agent):
        async with anyio.create_task_group() as group:
            group.start_soon(scene.run)
            await scene.clock.sleep(seconds)
            group.cancel_scope.cancel()


def is_paired(scene: Scene) -> bool:
    """Whether the conversation has one result for each call, next to it."""
    messages = [*scene.agent.state.messages]
    return paired(messages) == messages


async def test_cancelled_calls_have_results() -> None:
    """One that is done has its own, one at work is cut off, one that waits for its turn was not called."""
    scene = Scene(call("a"), call("b", seconds=9), call("c", seconds=9), call("d"), node={"limit": 2})
    await cancelled(scene, 1)
    assert scene.told == [("a", "a is done", False), ("b", CUT, True), ("c", CUT, True), ("d", NOT, True)]
    assert (scene.bench.alive, is_paired(scene)) == (0, True)


async def test_a_cancelled_run_that_goes_on_calls_nothing_again() -> None:
    """`recover` finds the results that the cancellation has left."""
    scene = Scene(call("a"), call("b", seconds=9))
    await cancelled(scene, 1)
    scene.log.clear()
    assert (await scene.agent.recover()).status is SUCCESS
    assert (scene.log, len(scene.told)) == ([], 2)


async def test_halted_calls_have_results() -> None:
    """A Timeout above halts the node; the calls have results, and what comes next sees them."""
    seen: list[Any] = []
    look = Do("look", lambda leaf: seen.append(leaf.read_state().messages))
    scene = Scene(
        call("a"),
        call("b", seconds=9),
        tree=lambda node: Sequence(
            "main", memory=True, children=[ForceSuccess("on", Timeout("t", node, seconds=1)), look]
        ),
    )
    with nothing_left(scene.agent):
        assert (await scene.run()).status is SUCCESS
    assert scene.told == [("a", "a is done", False), ("b", CUT, True)]
    assert [message.role for message in seen[0]] == ["human", "ai", "tool", "tool"]


async def test_halted_while_a_call_asks() -> None:
    """The question is withdrawn; what siblings did is in the results, the call that asked was cut off."""
    scene = Scene(
        call("a"),
        call("b", "asks"),
        make=lambda bench: [bench.tool(), bench.asking()],
        tree=lambda node: Race("race", [node, Timer("timer", seconds=5)]),
    )
    assert (await scene.run()).status is SUCCESS
    assert scene.told[0] == ("a", "a is done", False)
    assert scene.told[1][2]
    assert "asks" in scene.told[1][1]
    assert (scene.agent.interaction.pending, is_paired(scene)) == ((), True)


async def test_halted_before_it_begins() -> None:
    """A node that is halted in the pass in which it was entered has called nothing; the calls have results."""
    scene = Scene(call("a"), tree=lambda node: Guard("guard", node, condition=lambda state: not state.note))
    scene.input["note"] = ""
    agent = scene.agent
    async with agent:
        scene.node.context.activity.tasks.group = None  # nothing can be started
        await agent.step(scene.input)
        agent.state_manager.update({"note": "x"})
        await agent.step()
    assert (scene.told, scene.log) == ([("a", NOT, True)], [])


async def test_new_input_after_a_suspension() -> None:
    """With `withdraw` the calls of the turn that is given up have results before the new message."""
    scene = Scene(call("a"), call("b", "asks"), make=lambda bench: [bench.tool(), bench.asking()])
    await scene.run()
    assert scene.told == []
    await scene.agent.run_until_suspend({"messages": [human("never mind")]}, on_new_input="withdraw")
    assert [message.role for message in scene.agent.state.messages] == ["human", "ai", "tool", "tool", "human"]
    assert is_paired(scene)


async def halted(scene: Scene) -> None:
    """Run until a call asks, and halt the run there."""
    async with anyio.create_task_group() as group:
        group.start_soon(scene.agent.run, scene.input)
        while not (scene.agent.interaction.pending and "a ends" in scene.log):
            await checkpoint()
        scene.agent.halt()


@pytest.mark.parametrize("has_store", [False, True])
async def test_new_input_after_a_halt_while_a_call_asks(has_store: bool) -> None:
    """The calls of the turn that is given up have results before the new message, with a store and without one."""
    store = MemoryStore() if has_store else None
    scene = Scene(call("a"), call("b", "asks"), make=lambda bench: [bench.tool(), bench.asking()], store=store)
    await halted(scene)
    assert scene.told == []
    with anyio.fail_after(20):
        await scene.agent.run({"messages": [human("never mind")]}, on_new_input="withdraw")
    assert [message.role for message in scene.agent.state.messages] == ["human", "ai", "tool", "tool", "human"]
    assert (is_paired(scene), scene.told[0]) == (True, ("a", "a is done", False))
    assert scene.agent.interaction.pending == ()


@pytest.mark.parametrize("seconds", [0, 0.5, 1, 1.5, 2, 2.5])
async def test_cancelled_at_any_moment(seconds: float) -> None:
    """Whenever a run is cancelled, each call has one result, next to it, and nothing is alive."""
    scene = Scene(*(call(id, seconds=1) for id in "abc"), node={"limit": 1})
    await cancelled(scene, seconds)
    if scene.agent.state.messages:
        assert [id for id, _, _ in scene.told] in ([*"abc"], [])
    assert scene.bench.alive == 0


async def test_a_tool_in_a_thread_is_waited_for() -> None:
    """A cancelled run ends when the thread of a sync tool has ended; its call was cut off, and the next turn works."""
    begun, release = threading.Event(), threading.Event()
    ended: list[str] = []

    def waits(label: str) -> str:
        """Wait in a thread."""
        begun.set()
        release.wait(10)
        ended.append(label)
        return "late"

    scene = Scene(call("a", "waits"), call("b"), make=lambda bench: [Tool(waits), bench.tool()])
    with nothing_left(scene.agent), anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(scene.run)
            await anyio.to_thread.run_sync(begun.wait)
            threading.Timer(0.05, release.set).start()
            group.cancel_scope.cancel()
    assert ended == ["a"]
    assert scene.told == [("a", CUT.replace("work", "waits"), True), ("b", "b is done", False)]
    await scene.agent.run_until_suspend({"messages": [ai("", tool_calls=[call("c")])]}, on_new_input="withdraw")
    assert scene.told[-1] == ("c", "c is done", False)


# Crashes


async def crashed(**options: Any) -> Scene:
    """Return a scene that goes on from where another one was when its call was at work."""
    dumps: list[Any] = []

    def scene(name: str) -> Scene:
        async def work(label: str, context: Any) -> str:
            """Work."""
            seen.append((name, context.idempotency_key))
            if not dumps:
                dumps.append(first.agent.dump_checkpoint())
            return f"{name} {label}"

        node = {"limit": 1, **options.get("node", {})}
        tool = Tool(work, idempotent=options.get("idempotent", False))
        return Scene(call("a"), call("b", "done"), make=lambda bench: [tool, bench.tool("done")], node=node)

    seen: list[tuple[str, str]] = []
    first, second = scene("first"), scene("second")
    await first.run()
    second.agent.load_checkpoint(dumps[0])
    second.seen = seen
    return second


async def test_a_call_of_unknown_outcome_is_an_error() -> None:
    """After a crash in the middle the model is told so; the call is not made again, its siblings are."""
    scene = await crashed()
    assert (await scene.agent.recover()).status is SUCCESS
    text = "'work' was begun before and broken off; whether it took effect is not known."
    assert scene.told == [("a", text, True), ("b", "b is done", False)]
    assert [name for name, _ in scene.seen] == ["first"]


@pytest.mark.parametrize("options", [{"idempotent": True}, {"node": {"on_unknown": "rerun"}}], ids=["tool", "node"])
async def test_what_can_be_repeated_is_called_again(options: dict[str, Any]) -> None:
    """An idempotent tool, or every tool of a node with `on_unknown="rerun"`, under the same idempotency key."""
    scene = await crashed(**options)
    assert (await scene.agent.recover()).status is SUCCESS
    assert scene.told == [("a", "second a", False), ("b", "b is done", False)]
    (first, key), (second, again) = scene.seen
    assert (first, second, key) == ("first", "second", again)


async def test_a_person_may_say_what_became_of_a_call() -> None:
    """With `on_unknown="ask"` the answer is the result of the call, or has it called."""
    scene = await crashed(node={"on_unknown": "ask"})
    (question,) = (await scene.agent.recover()).suspensions
    assert (question.reason, question.data["name"], question.data["key"]) == ("unknown_outcome", "work", "a")
    outcome = await scene.agent.resume({"happened": True, "result": {"content": "it did"}})
    assert outcome.status is SUCCESS
    assert scene.told[0] == ("a", "it did", False)
    assert [name for name, _ in scene.seen] == ["first"]
