"""thread_agent: the whole from one call, each part of which can be switched off."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.engine.request import Request
from jianmu.engine.tree import descend
from jianmu.errors import ModelRefusedError, SetupError
from jianmu.message import human
from jianmu.prebuilt import ReActState, react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import (
    Clarify,
    Sandboxes,
    ThreadFolders,
    ThreadState,
    local_sandboxes,
    present_files,
    sandbox_tools,
    task,
    thread_agent,
    view_image,
)
from jianmu.thread.assistantoptions import AgentOptions, ThreadOptions
from jianmu.tool import ToolCall
from tests.cases.leaves import FAILURE, SUCCESS, nothing_left
from tests.thread.turns import asked

pytestmark = pytest.mark.anyio
BARE: dict[str, Any] = {"folders": None, "plan": False, "title": False, "clarify": False, "compact": False,
                        "loop_guard": False}  # fmt: skip


def agent(model: ScriptedModel, tools: Any = (), **options: Any) -> Agent[Any]:
    """Return an assistant on the virtual clock."""
    return thread_agent(model, tools, clock=VirtualClock(autojump=True), **options)


def call(name: str, id: str = "1", **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def kinds(made: Agent[Any]) -> set[str]:
    """Return the kinds of nodes of a tree."""
    return {type(node).__name__ for node in descend(made.root)}


def skill(folder: Path) -> Path:
    """Return a folder of instructions."""
    folder.mkdir()
    text = "---\nname: letters\ndescription: How letters are written.\n---\nBegin with a greeting."
    (folder / "SKILL.md").write_text(text)
    return folder


async def test_a_turn_with_all_parts(tmp_path: Path) -> None:
    """It reads a skill, plans, works in the sandbox, and answers; the thread has a plan, a sandbox and a title."""
    model = ScriptedModel([
        call("read_skill", skill="letters"),
        [call("write_todos", "2", todos=[{"content": "write", "status": "completed"}]),
         call("write_file", "3", path="/mnt/user-data/workspace/a.txt", content="Dear Ada")],
        "It is written.",
    ])  # fmt: skip
    made = agent(model, folders=tmp_path / "threads", skills=[skill(tmp_path / "letters")])
    with nothing_left(made):
        assert await made.run({"messages": [human("Write to Ada")]}, thread_id="t1") is SUCCESS
    state = made.state
    assert (tmp_path / "threads" / "t1" / "workspace" / "a.txt").read_text() == "Dear Ada"
    assert (state.final_answer, state.title, state.title_by) == ("It is written.", "Write to Ada", "text")
    assert [one.status for one in state.todos] == ["completed"]
    assert state.sandbox is not None
    assert state.thread_data == ThreadFolders(tmp_path / "threads").paths("t1")


async def test_all_parts_can_be_switched_off() -> None:
    """What is left thinks, acts and answers, and is offered no tool that nobody has given."""
    model = ScriptedModel(["hello"])
    made = agent(model, **BARE)
    assert await made.run({"messages": [human("hi")]}) is SUCCESS
    assert ([*model.requests[0].tools], asked(model)) == ([], ["hi"])
    assert kinds(made) & {"ThreadData", "FinishPlan", "PlanReminder", "Title", "SubagentLimit", "OpenSandbox"} == set()
    assert made.state.title is None


async def test_a_long_conversation_is_said_in_short() -> None:
    """By its own model, or by another one; the transcript stays whole."""
    talk = [human("x" * 400) for _ in range(6)]
    for is_own in (True, False):
        small = ScriptedModel(["They said x."])
        model = ScriptedModel(["They said x.", "hello"] if is_own else ["hello"])
        made = agent(model, **{**BARE, "compact": is_own or small}, context_tokens=500)
        await made.run({"messages": talk})
        assert "They said x." in asked(model)[0]
        assert (len(made.state.messages), len(model.requests)) == (7, 1 + is_own)


async def test_an_early_answer_is_sent_back(tmp_path: Path) -> None:
    """With a plan: the model is reminded of what is open, and goes on."""
    todos = [{"content": "look", "status": "pending"}]
    done = [{"content": "look", "status": "completed"}]
    model = ScriptedModel([call("write_todos", todos=todos), "I am done", call("write_todos", "2", todos=done), "Done"])
    made = agent(model, folders=tmp_path)
    assert await made.run({"messages": [human("hi")]}) is SUCCESS
    assert made.state.final_answer == "Done"
    assert "- [pending] look" in asked(model, 2)[-1]


async def test_a_sandbox_is_opened_by_need_and_released_at_the_end(tmp_path: Path) -> None:
    """Without a tool that needs one there is none; with `eager` there is one in each run."""
    lazy, eager = (local_sandboxes(ThreadFolders(tmp_path)) for _ in range(2))
    for boxes, is_eager in ((lazy, False), (eager, True)):
        held: list[Any] = []
        model = ScriptedModel([lambda _, boxes=boxes, held=held: held.append(boxes.held()) or "hello"])
        made = agent(model, folders=tmp_path, sandbox=boxes, eager=is_eager)
        await made.run({"messages": [human("hi")]}, thread_id="t1")
        assert held == [("t1",) if is_eager else ()]
        assert (boxes.held(), made.state.sandbox is not None) == ((), is_eager)


async def test_a_run_that_goes_on_in_another_process_has_the_paths(tmp_path: Path) -> None:
    """They are in no checkpoint, and there again before anything else is done."""
    seen: list[Any] = []

    async def ask(context: NodeContext) -> str:
        """Ask."""
        seen.append(context.read_state().thread_data)
        return await context.ask(Request("sure?"), key="sure")

    async with SQLiteStore(tmp_path / "s.db") as store:
        made = agent(ScriptedModel([call("ask")]), [ask], folders=tmp_path / "f", store=store)
        assert (await made.run_until_suspend({"messages": [human("hi")]}, thread_id="t1")).suspended
        other = agent(ScriptedModel(["fine"]), [ask], folders=tmp_path / "f", store=store)
        assert (await other.resume("yes", thread_id="t1")).status is SUCCESS
    assert seen == [ThreadFolders(tmp_path / "f").paths("t1")] * 2
    assert (await _checkpoints(tmp_path / "s.db")).find(str(tmp_path).encode()) == -1


async def _checkpoints(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in path.parent.glob(path.name + "*"))


async def test_tasks_are_limited() -> None:
    """Where a subagent is among the tools, the limit stands around the calls; without one there is none."""
    model, inner = ScriptedModel([[call("task", id, task=id) for id in "ab"], "done"]), ScriptedModel(["did"])
    made = agent(model, [task("task", lambda: react("sub", model=inner), copies=1)], tasks_at_once=1, **BARE)
    await made.run({"messages": [human("hi")]})
    assert [one.id for one in made.state.delegations] == ["a"]
    assert "1 task may be given at a time" in made.state.messages[-2].text


async def test_a_run_that_fails_has_a_title() -> None:
    """The model cannot be reached in the first turn: the title is made of the text."""
    made = agent(ScriptedModel([ModelRefusedError("no", model="m")]), **{**BARE, "title": True})
    assert await made.run({"messages": [human("Taxes")]}) is FAILURE
    assert (made.state.title, made.state.title_by) == ("Taxes", "text")


class Bare(ThreadState):
    """A schema with a field of its own."""

    mood: str = "fine"


async def test_a_schema_of_ones_own_derives_from_that_of_threads() -> None:
    """And the system prompt can follow it."""
    model = ScriptedModel(["hello"])
    made = agent(model, system=lambda state: f"You are {state.mood}.", state_schema=Bare, **BARE)
    await made.run({"messages": [human("hi")]})
    assert asked(model) == ["You are fine.", "hi"]


class Report(BaseModel):
    """An answer."""

    subject: str


async def test_an_answer_may_be_an_object() -> None:
    """It is in `structured_response`; no input can write that."""
    made = agent(ScriptedModel(['{"subject": "tea"}']), **BARE, output=Report, state_schema=ThreadState[Report])
    await made.run({"messages": [human("hi")]})
    assert made.state.structured_response == Report(subject="tea")


async def test_a_schema_without_a_field_of_a_part_is_refused() -> None:
    """With the part of a state to derive from."""
    with pytest.raises(SetupError, match=r"needs the field thread_data, which ReActState lacks: class ReActState\("):
        agent(ScriptedModel([]), state_schema=ReActState)


WHERE = "Your files are in /mnt/user-data: "
IN, SENT, OUT = (
    "work in workspace",
    "what people have sent is in uploads",
    "what you make for them belongs into outputs",
)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ([], None),
        (["ls", "glob"], None),
        (["read_file"], f"{WHERE}{SENT}."),
        (["write_file"], f"{WHERE}{IN}; {OUT}."),
        (["bash"], f"{WHERE}{IN}; {SENT}; {OUT}."),
    ],
)
async def test_it_is_told_of_files_what_its_tools_can_do(own: list[str], told: str | None, tmp_path: Path) -> None:
    """Without a sandbox nothing, unless it is given such tools; a prompt of the caller stays what it is."""
    box = sandbox_tools(local_sandboxes(ThreadFolders(tmp_path))).only(*own) if own else ()
    for system in (None, "Be kind.", lambda _: "Be kind."):
        model = ScriptedModel(["fine"])
        await agent(model, box, system=system, **{**BARE, "folders": tmp_path, "sandbox": False}).run(
            {"messages": [human("go")]}
        )
        assert asked(model) == [
            *(["\n\n".join(one for one in ("Be kind." if system else None, told) if one)] if system or told else []),
            "go",
        ]


async def waits(snapshot: Any) -> int:
    """Return a number, when awaited."""
    return 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"plann": True}, r"there is no argument plann=: did you mean plan=\?"),
        ({"plan": "yes"}, "plan='yes': it takes True or False"),
        ({"tools": "search"}, r"tools='search': it takes a Toolbox, or a list of tools: tools=\[search\]"),
        ({"skills": "./skills"}, r"skills='./skills': it takes a list of folders: skills=\["),
        (
            {"sandbox": "docker"},
            r"sandbox='docker': it takes True, False, or sandboxes of your own: sandbox=local_",
        ),
        ({"folders": 3}, 'folders=3: it takes a folder or None: folders="./threads"'),
        ({"title": 3}, 'title=3: it takes True, False or a model: title="openai:x"'),
        (
            {"eager": True, "sandbox": False},
            r"agent\(eager=True\) has no sandbox to open: give sandbox=True as well",
        ),
        ({"eager": True, "folders": None}, 'has no sandbox to open: give folders="./threads" as well'),
        ({"sandbox": Sandboxes(lambda _: None), "folders": None}, 'give folders="./threads" as well'),
        ({"vision": True, "folders": None}, 'has no images to look at: give folders="./threads" as well'),
        ({"store": 3}, "store=3: it takes a store"),
        ({"skills": None}, r"skills=NoneType: it takes a list of folders: skills=\["),
        ({"skills": [3]}, r"skills=list: it takes a list of folders: skills=\["),
        ({"act": 3}, r"act=3: it takes a dict of limit, timeout, on_unknown, remember, approval: act=\{\"limit\": 2\}"),
        ({"act": {"limitt": 3}}, r"act=dict: it takes a dict of limit, .*: act=\{\"limit\": 2\}"),
        ({"act": {"approval": {"who": 3}}}, r"approval=...\) takes a dict of assignee and expires, not \{'who': 3\}"),
        ({"repeatable": 3}, r'repeatable=3: it takes a list of names: repeatable=\["status"\]'),
        (
            {"repeatable": [3], "loop_guard": False},
            r'repeatable=list: it takes a list of names: repeatable=\["status"\]',
        ),
        (
            {"tasks_at_once": "x"},
            "tasks_at_once='x': it takes a whole number from 1 to 50, .*: tasks_at_once=3",
        ),
        ({"tasks_at_once": -1}, "tasks_at_once=-1: it takes a whole number from 1 to 50"),
        ({"tasks_at_once": 0}, "tasks_at_once=0: it takes a whole number from 1 to 50, .*: tasks_at_once=3"),
        ({"output_chars": 1}, "output_chars=1: it takes a whole number from 200 up, None, .*: output_chars=8_000"),
        ({"max_rounds": 0}, "max_rounds=0: it takes a whole number from 1 up, None, .*: max_rounds=20"),
        ({"output": 3}, "^output=3: it takes a type of answer, that can be sent as JSON: output=Report$"),
        ({"tools": [present_files]}, r"is no tool, it returns one: write present_files\(folders\)$"),
        ({"tools": [view_image]}, r"is no tool, it returns one: write view_image\(folders\)$"),
        ({"tools": [sandbox_tools]}, r"is no tool, it returns one: write sandbox_tools\(sandboxes\)$"),
        ({"tools": [Clarify]}, r"a tool is made of a function, not of .*Clarify'>: write Clarify\(\)$"),
        ({"tools": [Clarify()]}, "two tools are named 'ask_clarification': both of .*; leave one out, or give"),
        ({"tasks_per_run": 99}, "tasks_per_run=99: it takes a whole number from 0 to 50"),
        ({"tasks_per_run": None}, "tasks_per_run=NoneType: it takes a whole number from 0 to 50"),
        ({"tasks_per_run": waits}, "tasks_per_run=function: it takes a whole number .*, or a function of the snapshot"),
        ({"context_tokens": 0, "compact": False}, "context_tokens=0: it takes a whole number from 1 up, or a function"),
        ({"output_chars": "x", "folders": None}, "output_chars='x': it takes a whole number from 200 up, None, or a"),
        ({"max_rounds": "x", "plan": False}, "max_rounds='x': it takes a whole number from 1 up, None, or a function"),
    ],
)
async def test_an_option_that_cannot_be_is_refused(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    """With what to write."""
    with pytest.raises(SetupError, match=text):
        thread_agent(ScriptedModel([]), **{"folders": tmp_path, **options})


async def test_its_options_are_those_of_an_agent_and_of_its_parts() -> None:
    """None is forgotten when an Agent gets another one."""
    known = set(inspect.signature(Agent.__init__).parameters) - {"self", "root", "state_schema", "state"}
    assert set(AgentOptions.__annotations__) == known
    assert known < set(ThreadOptions.__annotations__)
