"""Tasks: subagents in the thread's folders, and the ledger of what was given to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.ports import Const
from jianmu.errors import SetupError
from jianmu.message import ai, human
from jianmu.nodes import AskHuman, Race, Sequence, Timer, acting
from jianmu.nodes.fields import RepliesState
from jianmu.prebuilt import react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import ThreadData, ThreadFolders, ThreadState, local_sandboxes, sandbox_tools
from jianmu.thread.state import DelegationsState, MessagesState, ThreadDataState
from jianmu.thread.task import Task, TaskState, task
from jianmu.tool import ToolCall
from tests.cases.leaves import FAILURE, SUCCESS, DoAsync, nothing_left

pytestmark = pytest.mark.anyio


class Knowing(TaskState):
    """A subagent that is told a word and finds one."""

    word: str = ""
    found: str = ""


def works(function: Callable[[Any], Any] = lambda _: None, seconds: float = 0) -> Callable[[], Behaviour]:
    """Return what builds a tree that works with the state of its node, and answers with its task."""

    async def work(node: DoAsync) -> None:
        await node.context.clock.sleep(seconds)
        node.write_state({"final_answer": f"did {node.read_state().messages[0].text}"})
        function(node)

    return lambda: DoAsync("work", work)


def call(id: str, name: str = "task") -> ToolCall:
    """Return a call whose task is its id."""
    return ToolCall(id=id, name=name, arguments={"task": id})


class Scene:
    """An agent that carries out the calls of one reply, with a thread's folders."""

    def __init__(self, root: Path, *calls: ToolCall, tools: list[Any], tree: Any = None, **options: Any) -> None:
        self.folders = ThreadFolders(root)
        act, _ = acting("act", tools)
        children = [ThreadData("data", folders=self.folders), tree(act) if tree else act]
        main = Sequence("main", memory=True, children=children)
        self.agent: Agent[Any] = Agent(main, ThreadState, clock=VirtualClock(autojump=True), **options)
        self.input = {"messages": [human("go"), ai("", tool_calls=calls, id="reply")]}

    async def run(self, **more: Any) -> Any:
        """Run until the end or a question."""
        return await self.agent.run_until_suspend(self.input, **more)

    @property
    def ledger(self) -> list[tuple[str, str, str | None]]:
        """The ledger in short."""
        return [(one.id, one.status, one.result_brief) for one in self.agent.state.delegations]


async def test_a_task_is_done_by_a_subagent_and_noted(tmp_path: Path) -> None:
    """Its result is the call's, and the ledger says who did what, when, and what came of it."""
    scene = Scene(tmp_path, call("a"), tools=[task("task", works(seconds=3))])
    with nothing_left(scene.agent):
        assert (await scene.run()).status is SUCCESS
    (entry,) = scene.agent.state.delegations
    assert (entry.id, entry.status, entry.name, entry.task) == ("a", "completed", "task", "a")
    assert (entry.result_brief, entry.run_id) == ("did a", "1")
    assert entry.created_at is not None
    assert scene.agent.state.messages[-1].text == "did a"


async def test_a_subagent_is_handed_the_paths_of_the_thread_and_nothing_else(tmp_path: Path) -> None:
    """Paths go in, made files come out, and what the schemas have both stays apart."""
    seen: list[Any] = []

    def look(node: Any) -> None:
        seen.append(node.read_state())
        node.write_state({"artifacts": ["inner.md"], "rounds": 7})

    scene = Scene(tmp_path, call("a"), tools=[task("task", works(look))])
    scene.input["artifacts"] = ["outer.md"]
    await scene.run(thread_id="t1")
    assert seen[0].thread_data == scene.folders.paths("t1")
    assert ([one.text for one in seen[0].messages], seen[0].artifacts) == (["a"], [])
    assert (scene.agent.state.artifacts, scene.agent.state.rounds) == (["outer.md", "inner.md"], 0)


async def test_further_ports_are_bound_beside_these(tmp_path: Path) -> None:
    """`inputs` and `outputs` are as with every delegate."""
    inner = works(lambda node: node.write_state({"found": node.read_state().word.upper()}))
    made = task("task", inner, state_schema=Knowing, inputs={"word": "title"}, outputs={"summary_text": "found"})
    scene = Scene(tmp_path, call("a"), tools=[made])
    scene.input["title"] = "taxes"
    await scene.run()
    assert scene.agent.state.summary_text == "TAXES"


async def test_a_subagent_works_in_the_sandbox_of_the_thread(tmp_path: Path) -> None:
    """What it writes is there for others, and there is one sandbox."""
    sandboxes = local_sandboxes(ThreadFolders(tmp_path))
    box = sandbox_tools(sandboxes)
    write = ToolCall(id="w", name="write_file", arguments={"path": "/mnt/user-data/workspace/a.txt", "content": "hi"})
    model = ScriptedModel([write, "written"])
    made = task("task", lambda: react("agent", model=model, tools=box), copies=1)
    scene = Scene(tmp_path, call("a"), tools=[made])
    assert (await scene.run(thread_id="t1")).status is SUCCESS
    assert sandboxes.held() == ("t1",)
    assert (scene.folders.folder("t1") / "workspace" / "a.txt").read_text() == "hi"
    assert scene.agent.state.sandbox is not None
    assert scene.agent.state.messages[-1].text == "written"


@pytest.mark.parametrize(
    ("work", "options", "ended"),
    [
        (lambda _: 1 / 0, {}, ("failed", "'task' failed: ZeroDivisionError: division by zero")),
        (lambda _: None, {"seconds": 2}, ("timed_out", "'task' failed: timed out")),
    ],
    ids=["raises", "too long"],
)
async def test_what_went_wrong_is_in_the_ledger(work: Any, options: Any, ended: Any, tmp_path: Path) -> None:
    """A subagent that raises has failed; one that takes too long has timed out."""
    scene = Scene(tmp_path, call("a"), tools=[task("task", works(work, seconds=5), **options)])
    assert (await scene.run()).status is SUCCESS
    assert scene.ledger == [("a", *ended)]


@pytest.mark.parametrize("ends", ["well", "failed", "raises", "too late"])
async def test_what_a_subagent_has_made_is_there_however_it_ends(ends: str, tmp_path: Path) -> None:
    """Its outputs are written when it fails, raises or takes too long, too: a file that a person was shown stays."""

    def build() -> Behaviour:
        async def work(node: DoAsync) -> Any:
            node.write_state({"artifacts": ["/mnt/user-data/outputs/a.txt"], "final_answer": "made"})
            if ends == "raises":
                raise ValueError("no")
            await node.context.clock.sleep(9 if ends == "too late" else 0)
            return FAILURE if ends == "failed" else None

        return DoAsync("work", work)

    scene = Scene(tmp_path, call("a"), tools=[task("task", build, seconds=5)])
    assert (await scene.run()).status is SUCCESS
    assert scene.agent.state.artifacts == ["/mnt/user-data/outputs/a.txt"]
    wanted = {"well": "completed", "too late": "timed_out"}.get(ends, "failed")
    assert [one.status for one in scene.agent.state.delegations] == [wanted]


async def test_outputs_that_cannot_be_written_are_the_result(tmp_path: Path) -> None:
    """The error is told, and nothing is raised when it is tried once more; that of the tree comes before it."""
    raised = ValueError("no")
    for error, text in (
        (None, "'task' failed: StateWriteError: field 'title_by'"),
        (raised, "'task' failed: ValueError"),
    ):

        def build(error: Exception | None = error) -> Behaviour:
            async def work(node: DoAsync) -> Any:
                node.write_state({"found": "x"})
                if error is not None:
                    raise error

            return DoAsync("work", work)

        tools = [task("task", build, state_schema=Knowing, outputs={"title_by": "found"})]
        scene = Scene(tmp_path, call("a"), tools=tools)
        assert (await scene.run()).status is SUCCESS
        assert scene.agent.state.messages[-1].text.startswith(text)


async def test_a_call_that_does_not_fit_gives_no_task(tmp_path: Path) -> None:
    """The subagent was not run, and the ledger does not have it; the result says what is wrong."""
    wrong = ToolCall(id="a", name="task", arguments={})
    scene = Scene(tmp_path, wrong, tools=[task("task", works())])
    await scene.run()
    assert scene.agent.state.delegations == []
    assert scene.agent.state.messages[-1].is_error


async def test_a_halt_cancels_what_was_not_done(tmp_path: Path) -> None:
    """One that is done stays so; one at work and one that waits for its turn are cancelled."""
    tools = [task("quick", works()), task("task", works(seconds=9), copies=1)]
    race: Any = lambda act: Race("race", [act, Timer("timer", seconds=1)])  # noqa: E731  # one line of a tree
    scene = Scene(tmp_path, call("a", "quick"), call("b"), call("c"), tools=tools, tree=race)
    with nothing_left(scene.agent):
        await scene.run()
    assert scene.ledger == [("a", "completed", "did a"), ("b", "cancelled", None), ("c", "cancelled", None)]


def asks() -> Behaviour:
    """Return a tree that asks a person."""
    return AskHuman("ask", message="sure?", into="final_answer")


async def test_the_ledger_stands_over_a_restart(tmp_path: Path) -> None:
    """A task that asks is running, others wait; the answer comes in another process, and each is noted once."""

    def scene(store: SQLiteStore) -> Scene:
        return Scene(tmp_path, call("a"), call("b"), tools=[task("task", asks, copies=1)], store=store)

    async with SQLiteStore(tmp_path / "s.db") as store:
        one = scene(store)
        (question,) = (await one.run(thread_id="t1")).suspensions
        assert question.path == "main/act/task/ask"
        assert one.ledger == [("a", "running", None), ("b", "pending", None)]
        two = scene(store)
        await two.agent.resume("yes", thread_id="t1")
        assert two.ledger == [("a", "completed", "yes"), ("b", "running", None)]
        assert (await two.agent.resume("no")).status is SUCCESS
        assert two.ledger == [("a", "completed", "yes"), ("b", "completed", "no")]
        assert {one.run_id for one in two.agent.state.delegations} == {"1"}


async def test_a_cancelled_run_goes_on_with_its_tasks(tmp_path: Path) -> None:
    """`recover` enters the subagent where it was; the entry is the same one."""
    scene = Scene(tmp_path, call("a"), tools=[task("task", works(seconds=9))])
    async with anyio.create_task_group() as group:
        group.start_soon(scene.run)
        await scene.agent.clock.sleep(1)
        group.cancel_scope.cancel()
    assert [status for _, status, _ in scene.ledger] == ["running"]
    assert (await scene.agent.recover()).status is SUCCESS
    assert scene.ledger == [("a", "completed", "did a")]


async def test_what_is_long_is_short_in_the_ledger(tmp_path: Path) -> None:
    """Task and result have 300 characters at most; the result itself is whole."""
    long = ToolCall(id="a", name="task", arguments={"task": "x" * 900})
    scene = Scene(tmp_path, long, tools=[task("task", works())])
    await scene.run()
    (entry,) = scene.agent.state.delegations
    assert (len(entry.task), len(entry.result_brief)) == (300, 300)
    assert scene.agent.state.messages[-1].text == "did " + "x" * 900


async def test_a_schema_without_the_ledger_is_refused(tmp_path: Path) -> None:
    """With the part of a state to derive from."""
    act, _ = acting("act", [task("task", works(), copies=1)])
    with pytest.raises(SetupError, match=r"node 'act/task' needs the field delegations, which TaskState lacks: "):
        Agent(act, TaskState)


async def test_a_schema_without_what_goes_in_is_refused() -> None:
    """The paths of the thread, for one: with the part of a state to derive from; not where the caller binds another."""

    class Small(MessagesState, DelegationsState):
        final_answer: str | None = None

    def give(**inputs: Any) -> Behaviour:
        return react(model=ScriptedModel(), tools=[task("task", works(), copies=1, state_schema=Inner, inputs=inputs)])

    class Inner(RepliesState, ThreadDataState, MessagesState):
        """What a subagent needs."""

    with pytest.raises(
        SetupError, match=r"needs the field thread_data, which Small lacks: class Small\(ThreadDataState, "
    ):
        Agent(give(), Small)
    Agent(give(thread_data=Const(None)), Small)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"build": works()()},
            r'takes a function that builds the tree, not .*: write task\("task", lambda: react\("task"',
        ),
        ({"copies": 0}, r'task\("task", build, copies=3\) takes a whole number from 1 up, not copies=0'),
        (
            {"build": react},
            r'calls build\(\) without arguments, which react needs: write task\("task", lambda: react\(model=model\)\)',
        ),
        ({"build": lambda: 3}, r"what build\(\) of task 'task' returns takes a node of a tree, not 3"),
        ({"result": "anwser"}, "delegate 'task': result='anwser' is no field of TaskState"),
    ],
)
async def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], text: str) -> None:
    """With what to write."""
    given = {"build": works(), **options}
    with pytest.raises(SetupError, match=text):
        task("task", given.pop("build"), **given)


async def test_a_task_is_a_delegate() -> None:
    """What the model is told is the docstring of its arguments, or a description."""
    assert isinstance(task("task", works()), Task)
    assert task("task", works(), description="Looks things up.").description == "Looks things up."


async def test_tasks_of_a_run_that_was_given_up_are_cancelled(tmp_path: Path) -> None:
    """Its program is gone; a new message comes in another one: what was running and waiting is not left so."""

    def scene(store: SQLiteStore) -> Scene:
        return Scene(tmp_path, call("a"), call("b"), tools=[task("task", asks, copies=1)], store=store)

    async with SQLiteStore(tmp_path / "s.db") as store:
        await scene(store).run(thread_id="t1")
        two = scene(store)
        given = {"messages": [ai("", tool_calls=[], id="new")]}
        await two.agent.run(given, thread_id="t1", on_new_input="withdraw")
        assert two.ledger == [("a", "cancelled", None), ("b", "cancelled", None)]
