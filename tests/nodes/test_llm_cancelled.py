"""An LLM node that is cancelled, halted or killed at each of its awaits, and the turn after that."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import Status

from jianmu.errors import ModelUnavailableError
from jianmu.message import Message, human, tool_result
from jianmu.model import ModelRequest, Retrying, ScriptedModel, Turn
from jianmu.nodes import AgentLLMNode, AskHuman, ForEach, Guard, Selector, Sequence, Timeout, ToolExecutor
from jianmu.nodes.pairing import paired
from jianmu.stores import MemoryStore, SQLiteStore
from jianmu.tool import Toolbox, tool
from tests.cases.leaves import FAILURE, SUCCESS
from tests.nodes.talk import agent, call, run, texts

pytestmark = pytest.mark.anyio


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    await checkpoint()
    return f"{place} is wide"


class Counted(Toolbox):
    """A box that counts who has it open."""

    users = 0

    async def start(self) -> None:
        """Open it, which takes a turn of the loop."""
        await checkpoint()
        self.users += 1

    async def stop(self) -> None:
        """Close it."""
        self.users -= 1


class Opened(ScriptedModel):
    """A model that counts who has it open."""

    users = 0

    async def open(self) -> None:
        """Open it, which takes a turn of the loop."""
        await checkpoint()
        self.users += 1

    async def close(self) -> None:
        """Close it."""
        await checkpoint()
        self.users -= 1


def script() -> list[Any]:
    """Return a round with a failed attempt and a call, and an answer."""
    return [
        Turn(["I ", "look"], pause=0, error=ModelUnavailableError("cut")),
        Turn(["I ", "look"], pause=0, calls=[call("1", place="sea"), call("2", place="bay")]),
        Turn(["It ", "is ", "wide"], pause=0),
    ]


def build(model: ScriptedModel, box: Toolbox) -> Sequence:
    """Return a tree that asks, acts and asks again."""
    patient = Retrying(model, after_text=True, backoff=0)
    nodes = [AgentLLMNode("a", model=patient, tools=box), ToolExecutor("act", tools=box)]
    return Sequence("s", memory=True, children=[*nodes, AgentLLMNode("b", model=patient, tools=box)])


async def cut(made: Any, turns: int, stop: Callable[[Any, anyio.CancelScope], None]) -> bool:
    """Run an agent for so many turns of the loop, then stop it; whether it had ended before."""
    ended: list[Status] = []
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def turn_off() -> None:
                for _ in range(turns):
                    await checkpoint()
                if not ended:
                    stop(made, scope)

            group.start_soon(turn_off)
            ended.append(await made.run({"messages": [human("how wide?")]}))
            group.cancel_scope.cancel()
    return ended == [SUCCESS]


def cancelled(_: Any, scope: anyio.CancelScope) -> None:
    """Cancel the task of the run."""
    scope.cancel()


def halted(made: Any, _: anyio.CancelScope) -> None:
    """Halt the agent."""
    made.halt()


@pytest.mark.parametrize("stop", [cancelled, halted])
async def test_whenever_it_is_stopped_the_next_turn_works(stop: Callable[[Any, anyio.CancelScope], None]) -> None:
    """Stopped after each number of turns of the loop: nothing is open, and the next request is valid and answered."""
    has_ended = False
    turns = 0
    while not has_ended:
        model, box = Opened(script()), Counted(look)
        made = agent(build(model, box), clock=None)
        has_ended = await cut(made, turns, stop)
        assert (model.alive, model.users, box.users) == (0, 0, 0), turns
        assert not made.runner.tasks.lives

        def check(request: ModelRequest) -> bool:
            return paired(request.messages) == [*request.messages] and request.messages[-1].text == "and now?"

        again = Opened([Turn("fine", check=check), "fine"])
        with again, anyio.fail_after(20):
            after = agent(build(again, box), state=None)
            await after.run({"messages": [*made.state.messages, human("and now?")]})
        turns += 1 if turns < 60 else 5
    assert turns > 10
    assert texts(made.state.messages) == ["how wide?", "ai(1 2)", "result 1", "result 2", "It is wide"]


@pytest.mark.parametrize("stop", [cancelled, halted])
@pytest.mark.parametrize("has_store", [False, True])
async def test_whenever_it_is_stopped_and_given_up_each_call_has_a_result(
    stop: Callable[[Any, anyio.CancelScope], None], has_store: bool
) -> None:
    """After each number of turns, with a store and without: results stand before the next message, and none is lost."""
    has_ended = False
    turns = 0
    while not has_ended:
        box, store = Toolbox(look), MemoryStore() if has_store else None
        made = agent(build(ScriptedModel([answering] * 4), box), clock=None, store=store)
        has_ended = await cut(made, turns, stop)
        with anyio.fail_after(20):
            await made.run({"messages": [human("and now?")]}, on_new_input="withdraw")
        messages = [*made.state.messages]
        assert paired(messages) == messages, turns
        turns += 1
    assert turns > 10


@pytest.mark.parametrize("has_store", [False, True])
async def test_calls_that_wait_behind_a_question_have_results_when_the_run_is_given_up(has_store: bool) -> None:
    """The executor was not reached yet: nobody will carry the calls out, wherever the run stood."""
    box, store = Toolbox(look), MemoryStore() if has_store else None
    model = ScriptedModel([[call("1", place="sea"), call("2", place="bay")], "fine"])
    nodes = [
        AgentLLMNode("a", model=model, tools=box),
        AskHuman("ask", message="Sure?"),
        ToolExecutor("act", tools=box),
    ]
    made = agent(Sequence("s", memory=True, children=nodes), clock=None, store=store)
    with anyio.fail_after(20):
        assert (await made.run_until_suspend({"messages": [human("how wide?")]})).suspended
        assert texts(made.state.messages) == ["how wide?", "ai(1 2)"]
        await made.run_until_suspend({"messages": [human("and now?")]}, on_new_input="withdraw")
    assert texts(made.state.messages) == ["how wide?", "ai(1 2)", "result 1", "result 2", "and now?", "fine"]
    assert made.state.messages[2].text == "'look' was not called, since its turn was ended before."


@pytest.mark.parametrize("is_json", [False, True])
async def test_results_that_the_new_input_has_are_those_of_the_calls(is_json: bool) -> None:
    """Whoever gives a run up may have carried its calls out: only the others are said not to have been called."""
    box = Toolbox(look)
    model = ScriptedModel([[call("1", place="sea"), call("2", place="bay")], "fine"])
    nodes = [AgentLLMNode("a", model=model, tools=box), AskHuman("ask", message="?"), ToolExecutor("act", tools=box)]
    made = agent(Sequence("s", memory=True, children=nodes), clock=None)
    mine: Any = tool_result("2", "bay is mine")
    if is_json:
        mine = mine.model_dump(mode="json")
    with anyio.fail_after(20):
        await made.run_until_suspend({"messages": [human("how wide?")]})
        await made.run_until_suspend({"messages": [mine, human("and now?")]}, on_new_input="withdraw")
    assert texts(made.state.messages) == ["how wide?", "ai(1 2)", "result 1", "result 2", "and now?", "fine"]
    assert made.state.messages[3].text == "bay is mine"


async def test_a_run_is_given_up_in_a_tree_to_which_an_executor_was_added_since() -> None:
    """One that no run has met has nothing to put in order; the one that has does."""
    box = Toolbox(look)
    model = ScriptedModel([[call("1", place="sea")], "fine"])
    nodes = [AgentLLMNode("a", model=model, tools=box), AskHuman("ask", message="?"), ToolExecutor("act", tools=box)]
    made = agent(Sequence("s", memory=True, children=nodes), clock=None)
    with anyio.fail_after(20):
        await made.run_until_suspend({"messages": [human("how wide?")]})
        made.tree.root.insert_child(ToolExecutor("first", tools=box), 0)
        await made.run_until_suspend({"messages": [human("and now?")]}, on_new_input="withdraw")
    assert texts(made.state.messages) == ["how wide?", "ai(1)", "result 1", "and now?", "fine"]


async def test_calls_that_a_run_has_left_to_the_next_one_stay_open() -> None:
    """A run that has ended by itself has left them on purpose: the next one carries them out."""
    box = Toolbox(look)
    model = ScriptedModel([[call("1", place="sea")]])
    think = AgentLLMNode("a", model=model, tools=box)
    once = Guard("once", think, condition=lambda state: not state.topic)
    act = Guard("sure", ToolExecutor("act", tools=box), condition=lambda state: bool(state.topic))
    made = agent(Selector("s", memory=True, children=[once, act]), clock=None)
    with anyio.fail_after(20):
        assert await made.run({"messages": [human("how wide?")]}) is SUCCESS
        assert await made.run({"topic": "yes"}) is SUCCESS
    assert texts(made.state.messages) == ["how wide?", "ai(1)", "result 1"]
    assert made.state.messages[-1].text == "sea is wide"


async def test_a_run_goes_on_in_another_process_where_the_model_was_asked(tmp_path: Any) -> None:
    """Cancelled while the model is asked, and recovered from the store: the request is the same, ids included."""
    path = str(tmp_path / "runs.sqlite")
    seen: list[list[Message]] = []

    def note(request: ModelRequest) -> str:
        seen.append([*request.messages])
        return "fine"

    slow = ScriptedModel([lambda request: Turn(note(request), delay=60)])
    async with SQLiteStore(path) as store:
        made = agent(AgentLLMNode("think", model=slow, system="Be kind."), clock=None, store=store)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(made.run, {"messages": [human("hello")]}, thread_id="t"))
                while not seen:
                    await checkpoint()
                group.cancel_scope.cancel()
    async with SQLiteStore(path) as store:
        made = agent(AgentLLMNode("think", model=ScriptedModel([note]), system="Be kind."), clock=None, store=store)
        with anyio.fail_after(20):
            assert (await made.recover("t")).status is SUCCESS
        assert seen[0] == seen[1]
        ids = [message.id for message in made.state.messages]
        other = agent(AgentLLMNode("think", model=ScriptedModel()), clock=None, store=store)
        await other.load("t")
        assert [message.id for message in other.state.messages] == ids
        assert other.state.usage.requests == 1  # the request that was cancelled had no reply to be written with
        assert made.runner.context.usage.requests == 2


async def test_a_question_in_between_keeps_what_was_used() -> None:
    """Suspended between two requests and resumed by another agent: the run's and the thread's counts go on."""
    store, model = MemoryStore(), ScriptedModel(["one", "two"])

    def made() -> Any:
        ask = AskHuman("ask", message="Go on?", answer=bool)
        nodes = [AgentLLMNode("a", model=model), ask, AgentLLMNode("b", model=model)]
        return agent(Sequence("s", memory=True, children=nodes), clock=None, store=store)

    with anyio.fail_after(20):
        outcome = await made().run_until_suspend({"messages": [human("hello")]}, thread_id="t")
        assert outcome.suspended
        last = made()
        assert (await last.resume(True, thread_id="t")).status is SUCCESS
    assert last.runner.context.usage.requests == last.state.usage.requests == 2
    assert texts(last.state.messages) == ["hello", "one", "two"]


async def test_a_node_that_was_put_in_late_closes_what_it_opened() -> None:
    """Halted in the midst of a request, a node that opened its model itself closes it."""
    model, box = Opened([Turn("late", delay=60)]), Counted(look)
    body = ForEach("each", lambda _item, _place: AgentLLMNode("think", model=model, tools=box), over=lambda _: [1])
    made = agent(Timeout("t", body, seconds=5))
    assert await run(made, human("hello")) is FAILURE
    assert (len(model.requests), model.alive, model.users, box.users) == (1, 0, 0, 0)


def answering(request: ModelRequest) -> Turn:
    """Call two tools when a person has spoken, else answer."""
    if request.messages[-1].role == "human":
        return Turn(["I ", "look"], pause=0, calls=[call("1", place="sea"), call("2", place="bay")])
    return Turn(["It ", "is ", "wide"], pause=0)


def copied(path: Path, copy: Path) -> None:
    """Copy a store as a process would leave it that is killed now, with its lease run out."""
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(copy)) as other:
        one.backup(other)
        other.execute("UPDATE threads SET lease_until = 1")
        other.commit()


async def test_killed_after_each_commit_it_goes_on_and_asks_for_nothing_twice(tmp_path: Path) -> None:
    """From what each commit has left, another process ends the run: no reply that is there is asked for again."""
    copies: list[Path] = []
    async with SQLiteStore(str(tmp_path / "runs.sqlite")) as store:
        commit = store.commit

        async def then_copied(transaction: Any) -> bool:
            is_done = await commit(transaction)
            copies.append(tmp_path / f"{len(copies)}.sqlite")
            copied(tmp_path / "runs.sqlite", copies[-1])
            return is_done

        store.commit = then_copied  # type: ignore[method-assign]  # a spy
        made = agent(build(ScriptedModel([answering] * 2), Toolbox(look)), clock=None, store=store)
        with anyio.fail_after(20):
            await made.run({"messages": [human("how wide?")]}, thread_id="t")
    whole = texts(made.state.messages)
    seen: set[int] = set()
    for copy in copies:
        async with SQLiteStore(str(copy)) as store:
            model = ScriptedModel([answering] * 2)
            made = agent(build(model, Toolbox(look)), clock=None, store=store)
            await made.load("t")
            replies = sum(message.role == "ai" for message in made.state.messages)
            with anyio.fail_after(20):
                assert (await made.recover("t")).status is SUCCESS
        assert texts(made.state.messages) == whole
        assert len(model.requests) == 2 - replies
        seen.add(replies)
    assert seen == {0, 1, 2}
