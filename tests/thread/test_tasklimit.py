"""SubagentLimit: how many tasks a model may give, counted in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour

from jianmu.errors import SetupError
from jianmu.message import human
from jianmu.nodes import (
    AgentLLMNode,
    AskHuman,
    ForceFailure,
    HasFinalAnswer,
    Invert,
    LoopUntilSuccess,
    Selector,
    Timer,
    acting,
)
from jianmu.nodes import Sequence as InOrder
from jianmu.prebuilt import react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import SubagentLimit, TaskState, task
from jianmu.tool import ToolCall
from tests.cases.leaves import SUCCESS, Do
from tests.thread.turns import run, thread

pytestmark = pytest.mark.anyio
LATER = "Wait for the results of the others, then call it again if that is still needed."


def note(task: str) -> str:
    """Note something."""
    return f"noted {task}"


def works(seconds: float = 0) -> Callable[[], Behaviour]:
    """Return what builds a subagent that takes its time and answers with its task."""

    def answer(node: Any) -> None:
        node.write_state({"final_answer": f"did {node.read_state().messages[0].text}"})

    return lambda: InOrder("work", memory=True, children=[Timer("time", seconds=seconds), Do("answer", answer)])


def asks() -> Behaviour:
    """Return a subagent that asks a person."""
    return AskHuman("ask", message="sure?", into="final_answer")


def call(id: str, name: str = "task") -> ToolCall:
    """Return a call whose task is its id."""
    return ToolCall(id=id, name=name, arguments={"task": id})


def limited(model: ScriptedModel, build: Callable[[], Behaviour], tools: Any = (), **limits: Any) -> Behaviour:
    """Return rounds in which a model gives tasks, with a limit."""
    act, box = acting("act", [task("task", build), *tools])
    steps: list[Behaviour] = [
        Invert("is lost", AgentLLMNode("think", model=model, tools=box)),
        HasFinalAnswer("is done"),
        ForceFailure("next", SubagentLimit("limit", act, **limits)),
    ]
    return LoopUntilSuccess("rounds", Selector("round", memory=True, children=steps), max_iterations=9)


def told(made: Any) -> list[str]:
    """Return the results."""
    return [one.text for one in made.state.messages if one.role == "tool"]


async def test_more_tasks_than_may_be_given_at_once_are_refused() -> None:
    """The first of a reply are given, others are told to wait; in the next round there is room again."""
    model = ScriptedModel([[call(id) for id in "abc"], call("c2"), "done"])
    made = thread(limited(model, works(1), at_once=2))
    assert await run(made, human("go")) is SUCCESS
    refused = f"'task' was not called: 2 tasks may be given at a time. {LATER}"
    assert told(made) == ["did a", "did b", refused, "did c2"]
    assert [one.id for one in made.state.delegations] == ["a", "b", "c2"]


async def test_a_run_gives_so_many_tasks() -> None:
    """The next run begins to count anew."""
    model = ScriptedModel([call("a"), [call("b"), call("c"), call("d")], "done", call("e"), "done"])
    made = thread(limited(model, works(), per_run=2, at_once=2))
    await run(made, human("go"))
    over = "'task' was not called: a run may give 2 tasks to subagents. Go on without it."
    assert told(made) == ["did a", "did b", over, over]
    await run(made, human("more"))
    assert told(made)[-1] == "did e"


async def test_other_tools_are_not_counted_and_not_refused() -> None:
    """A limit of no task at all leaves the others as they are."""
    model = ScriptedModel([[call("a"), call("b", "note")], "done"])
    made = thread(limited(model, works(), [note], at_once=0))
    await run(made, human("go"))
    assert told(made)[0].startswith("'task' was not called: 0 tasks may be given at a time.")
    assert told(made)[1] == "noted b"


@pytest.mark.parametrize("arguments", [{}, {"task": 3}, {"task": "x", "more": 1}, None])
async def test_a_call_whose_arguments_do_not_fit_does_not_count(arguments: Any) -> None:
    """It takes no place in its reply, none in the run, and is not in the ledger; its result says what is wrong."""
    bad = ToolCall(id="x", name="task", arguments=arguments or {}, raw=None if arguments is not None else "{")
    model = ScriptedModel([[bad, call("a")], [bad, bad], [call("b"), call("c")], "done"])
    made = thread(limited(model, works(), per_run=2, at_once=1))
    assert await run(made, human("go")) is SUCCESS
    results = told(made)
    assert all(text.startswith("The arguments of 'task' ") for text in (results[0], *results[2:4]))
    over = "'task' was not called: a run may give 2 tasks to subagents. Go on without it."
    assert (results[1], *results[4:]) == ("did a", "did b", over)
    assert [one.id for one in made.state.delegations] == ["a", "b"]


async def test_a_call_that_the_arguments_function_refuses_is_no_task_of_the_run() -> None:
    """It has its place in the reply, since nobody knows before; the run may give as many tasks as before."""

    def check(task: str) -> dict[str, Any]:
        if task == "bad":
            raise ValueError("not that")
        return {"messages": [human(task)]}

    bad = ToolCall(id="x", name="research", arguments={"task": "bad"})
    model = ScriptedModel([[bad, call("a", "research")], bad, call("b", "research"), "done"])
    made = thread(limited(model, works(), [task("research", works(), arguments=check)], per_run=2, at_once=2))
    assert await run(made, human("go")) is SUCCESS
    failed = "'research' failed: ValueError: not that"
    assert told(made) == [failed, "did a", failed, "did b"]
    assert [(one.id, one.status) for one in made.state.delegations] == [("a", "completed"), ("b", "completed")]


async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    """Given before the suspension, counted after it, in another process: it is the same run."""
    path = tmp_path / "s.db"
    async with SQLiteStore(path) as store:
        made = thread(limited(ScriptedModel([call("a")]), asks, per_run=2), store=store)
        assert (await made.run_until_suspend({"messages": [human("go")]}, thread_id="t")).suspended
    async with SQLiteStore(path) as store:
        model = ScriptedModel([call("b"), call("c"), "done"])
        made = thread(limited(model, asks, per_run=2), store=store)
        assert (await made.resume("A", thread_id="t")).suspended
        assert (await made.resume("B")).status is SUCCESS
    assert told(made)[:2] == ["A", "B"]
    assert told(made)[2].startswith("'task' was not called: a run may give 2 tasks")


async def test_what_was_refused_stays_refused_over_a_restart(tmp_path: Path) -> None:
    """A sibling asks, the run goes on in another process: neither is given what had no room."""
    path = tmp_path / "s.db"
    async with SQLiteStore(path) as store:
        made = thread(limited(ScriptedModel([[call("a"), call("b")]]), asks, at_once=1), store=store)
        assert len((await made.run_until_suspend({"messages": [human("go")]}, thread_id="t")).suspensions) == 1
    async with SQLiteStore(path) as store:
        made = thread(limited(ScriptedModel(["done"]), asks, at_once=1), store=store)
        assert (await made.resume("A", thread_id="t")).status is SUCCESS
    assert told(made) == ["A", f"'task' was not called: 1 task may be given at a time. {LATER}"]


async def test_what_the_ledger_has_of_this_run_counts_whoever_has_written_it() -> None:
    """One that another part of the tree has begun takes a place; one of another run, or that is over, takes none."""
    ledger = [
        {"id": "x", "status": "running", "run_id": "1"},
        {"id": "y", "status": "running", "run_id": "0"},
        {"id": "z", "status": "completed", "run_id": "1"},
    ]
    model = ScriptedModel([[call("a"), call("b")], "done"])
    made = thread(limited(model, works(), at_once=2))
    await run(made, human("go"), delegations=ledger)
    assert [one.id for one in made.state.delegations if one.name == "task"] == ["a"]


async def test_the_limits_may_follow_the_state() -> None:
    """A function of the snapshot says how many."""
    model = ScriptedModel([[call("a"), call("b")], "done"])
    made = thread(limited(model, works(), at_once=lambda state: len(state.title)))
    await run(made, human("go"), title="x")
    assert [one.id for one in made.state.delegations] == ["a"]


async def test_a_tree_without_tasks_is_refused() -> None:
    """The error says what belongs below, in a line that works when it is pasted."""
    act, _ = acting("act", [note])
    with pytest.raises(SetupError) as caught:
        thread(SubagentLimit("limit", act))
    why, line = str(caught.value).split(": write ")
    assert why == "node 'limit' (SubagentLimit) finds no task below it"
    model = ScriptedModel([call("a", "research"), "done"])
    known = {"SubagentLimit": SubagentLimit, "react": react, "task": task, "model": model, "build": works()}
    made = thread(eval(line, known))
    assert await run(made, human("go")) is SUCCESS
    assert [one.name for one in made.state.delegations] == ["research"]


@pytest.mark.parametrize("limits", [{"at_once": 51}, {"per_run": -1}, {"per_run": True}])
async def test_a_number_that_the_ledger_cannot_count_is_refused(limits: dict[str, Any]) -> None:
    """It holds the newest 50."""
    act, _ = acting("act", [task("task", works(), copies=1)])
    with pytest.raises(SetupError, match="takes a whole number from 0 to 50, which is what the ledger holds"):
        SubagentLimit("limit", act, **limits)


async def test_a_schema_without_the_ledger_is_refused() -> None:
    """With the part of a state to derive from."""
    act, _ = acting("act", [task("task", works(), copies=1)])
    with pytest.raises(SetupError, match="node 'limit' needs the field delegations, which TaskState lacks"):
        thread(SubagentLimit("limit", act), TaskState)
