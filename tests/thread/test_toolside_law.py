"""The tool side of a thread as a whole: wherever a run is broken off, another process brings it to the same end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from jianmu import Agent, Outcome
from jianmu.engine.clock import VirtualClock
from jianmu.engine.questions import Answer, Suspension
from jianmu.message import human
from jianmu.model.base import ModelRequest
from jianmu.nodes import AskHuman
from jianmu.nodes import Sequence as InOrder
from jianmu.nodes.pairing import paired
from jianmu.prebuilt import delegate, react
from jianmu.stores import MemoryStore, SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import Clarify, DeferredTools, LoopGuard, OutputBudget, ThreadFolders, ThreadState, tool_search
from jianmu.tool import Tool, Toolbox, ToolCall
from tests.cases.leaves import SUCCESS, Do
from tests.thread.turns import positions

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [human("go", id="go")]}


def call(id: str, name: str, **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


SAME = call("same", "big", label="x")
TURNS: list[Any] = [
    [call("q", "ask_clarification", question="Which?"), call("h", "look", task="x"),
     call("s", "tool_search", query="look")],
    [SAME, call("d", "look", task="x"), call("f", "find", label="y")],
    [SAME, call("p", "pay", label="z"), call("q2", "ask_clarification", question="And?")],
    [SAME, call("p2", "pay", label="z")],
    SAME,
    SAME,
    SAME,
    "done",
]  # fmt: skip


def script(request: ModelRequest) -> Any:
    """Return the turn that follows what a request has."""
    return TURNS[sum(message.role == "ai" for message in request.messages)]


def build(root: Path, ran: list[str], **options: Any) -> Agent[Any]:
    """Return an agent with all parts of the tool side."""

    def big(label: str) -> str:
        """Return much."""
        ran.append("big")
        return label * 3000

    def pay(label: str) -> str:
        """Pay."""
        ran.append(f"pay {label}")
        return "paid"

    def work() -> Any:
        end = Do("work", lambda node: ran.append("look") or node.write_state({"final_answer": "seen" * 800}))
        return InOrder("all", memory=True, children=[AskHuman("ask", message="sure?"), end])

    def read_file(path: str) -> str:
        """Read."""
        return path

    def find(label: str) -> str:
        """Find, look."""
        ran.append("find")
        return label

    deferred = Toolbox(delegate("look", work, state_schema=ThreadState), Tool(find, idempotent=True))
    tools = [
        Clarify(), deferred, tool_search(deferred), Tool(read_file, idempotent=True), Tool(big, idempotent=True),
        Tool(pay, idempotent=True, requires_approval=True),
    ]  # fmt: skip
    tree: Any = LoopGuard("guard", react(model=ScriptedModel([script] * 99), tools=tools), warn=2, stop=3)
    tree = OutputBudget("budget", tree, folders=ThreadFolders(root), chars=1000)
    tree = DeferredTools("deferred", tree, tools=deferred)
    return Agent(tree, ThreadState, clock=VirtualClock(autojump=True), **options)


async def through(agent: Agent[Any], outcome: Outcome) -> list[Any]:
    """Answer what is asked until the run has ended, and return what the thread has then."""
    while outcome.suspended:
        question = outcome.suspensions[0]
        answer: Any = True if question.reason == "approval" else "yes"
        outcome = await agent.resume(answer, suspension_id=question.id, thread_id="t")
    assert outcome.status is SUCCESS
    state = agent.state
    said = [(one.role, one.text, one.tool_call_id, one.is_error) for one in state.messages]
    return [said, state.repeats, state.promoted, state.usage.tool_calls]


@pytest.fixture
async def expected(tmp_path: Path) -> list[Any]:
    """Return what comes of a run that nobody disturbs."""
    ran: list[str] = []
    agent = build(tmp_path / "expected", ran)
    made = await through(agent, await agent.run_until_suspend(GO, thread_id="t"))
    assert sorted(ran) == ["big"] * 4 + ["find", "look", "pay z", "pay z"]
    texts = {id: (text, is_error) for _, text, id, is_error in made[0] if id}
    assert texts["h"][1]
    assert "find it with tool_search" in texts["h"][0]
    assert "characters are left out here" in texts["d"][0]
    assert "characters are left out here" in texts["f"][0] or texts["f"][0] == "y"
    assert [text for _, text, id, _ in made[0] if id and id.startswith("same")][4].startswith("'big' was not called")
    return made


@pytest.mark.slow_on_trio
async def test_from_every_position_another_process_comes_to_the_same_end(
    tmp_path: Path, expected: list[Any], *, full: bool
) -> None:
    """A position in the run, put into a new agent: the same conversation, the same counts, the same files."""
    agent = build(tmp_path / "one", [])

    async def as_expected() -> None:
        assert await through(agent, await agent.run_until_suspend(GO, thread_id="t")) == expected

    found = await positions(agent, as_expected)
    assert len(found) > 50
    for number, data in enumerate(found if full else found[:: len(found) // 20]):
        other = build(tmp_path / f"other{number}", [])
        other.load_checkpoint(data)
        assert await through(other, await other.recover()) == expected


@pytest.mark.slow_on_trio
@pytest.mark.parametrize("step", [0, 5])
async def test_halted_again_and_again_each_call_has_one_result(step: int, tmp_path: Path, expected: list[Any]) -> None:
    """Every few turns the run is halted while it works, and another agent goes on from the store, to the end."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        for number in range(200):
            agent = build(tmp_path / "files", [], store=store)
            if await halted(agent, step + number, is_first=number == 0) is SUCCESS:
                break
        messages = agent.state.messages
    assert paired(messages) == messages
    ids = [one.tool_call_id for one in messages if one.tool_call_id]
    assert ids == [call.id for one in messages for call in one.tool_calls]
    assert [one.role for one in messages] == [role for role, *_ in expected[0]]
    texts = {one.text for one in messages if one.is_error and "refused" not in one.text}
    assert all("was not called" in text or "cut off" in text for text in texts)


@pytest.mark.parametrize("has_store", [False, True])
async def test_given_up_at_each_question_each_call_has_one_result(has_store: bool, tmp_path: Path) -> None:
    """Halted while it asks, then given up by a new message: what stands before that is as it has to be."""
    told: list[int] = []
    kept = MemoryStore if has_store else lambda: None
    while (
        agent := await halted_at(len(told), lambda human: build(tmp_path, [], human=human, store=kept()))
    ) is not None:
        await agent.run_until_suspend({"messages": [human("no", id="no")]}, thread_id="t", on_new_input="withdraw")
        messages = [*agent.state.messages]
        before = messages[: [one.id for one in messages].index("no")]
        assert paired(before) == before
        told.append(sum(one.role == "tool" for one in before))
    assert told == [3, 6, 9, 9, 11]


async def halted_at(number: int, make: Callable[..., Agent[Any]]) -> Agent[Any] | None:
    """Run, answer so many questions, and halt the run at the next one; return the agent, if there was one."""
    asked = 0

    async def answer(question: Suspension) -> Any:
        nonlocal asked
        asked += 1
        if asked > number:
            agent.halt()
            await anyio.sleep_forever()
        return True if question.reason == "approval" else "yes"

    agent = make(answer)
    return None if await agent.run(GO, thread_id="t") is SUCCESS else agent


async def halted(agent: Agent[Any], turns: int, *, is_first: bool) -> Any:
    """Go on with a thread for so many turns of the event loop, answer what is asked, and return how it stands."""
    outcomes: list[Outcome] = []

    async def go() -> None:
        outcomes.append(await (agent.run_until_suspend(GO, thread_id="t") if is_first else agent.recover("t")))

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        for _ in range(turns):
            await checkpoint()
        agent.halt()
    for question in outcomes[0].suspensions:
        await agent.interaction.answer(Answer(question.id, True if question.reason == "approval" else "yes"))
    return outcomes[0].status
