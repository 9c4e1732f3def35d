"""What is told of this machine's paths: nothing to the model, and nothing to the store, whatever goes wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.errors import SetupError
from jianmu.message import human
from jianmu.nodes import ToolExecutor
from jianmu.prebuilt import react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import (
    Sandboxes,
    ThreadFolders,
    ThreadState,
    VirtualPaths,
    local_sandboxes,
    sandbox_tools,
    task,
    thread_agent,
)
from jianmu.thread.sandboxlocal import LocalSandbox
from jianmu.tool import FilePart, TextPart, ToolCall
from tests.cases.leaves import SUCCESS, Do
from tests.thread.boxes import small

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [human("go")]}


def workspace(context: NodeContext) -> Path:
    """Return where the workspace is on this machine."""
    return context.read_state().thread_data.workspace_path


async def fails(context: NodeContext) -> str:
    """Fail in the thread's folder."""
    return (workspace(context) / "none.txt").read_text()


async def says(context: NodeContext) -> str:
    """Say where the thread's folder is."""
    return f"it is in {workspace(context)}, below {workspace(context).parent.parent}"


async def shows(context: NodeContext) -> Any:
    """Say it in parts."""
    path = str(workspace(context) / "a.pdf")
    return (TextPart(text=f"in {path}"), FilePart(path=path, name=path))


async def large(context: NodeContext) -> str:
    """Say it so often that the result has to be in a file."""
    return f"{workspace(context)}\n" * 3000


def kept(folder: Path) -> bytes:
    """Return all that a store has."""
    return b"".join(one.read_bytes() for one in folder.glob("s.db*"))


def call(name: str, id: str = "1", **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


class Scene:
    """An assistant with a store, all of whose requests are looked at.

    Args:
        place: where its folders and its store are.
        calls: those of its first reply.
        tools: of the caller.
        options: those of `thread_agent`.
    """

    def __init__(self, place: Path, *calls: ToolCall, tools: Any = (), **options: Any) -> None:
        self.place, self.calls, self.tools, self.options = place, calls, tools, options
        self.model = ScriptedModel([[*calls], "done"])

    async def run(self) -> Agent[Any]:
        """Run it, and see that neither the model nor the store has a path of this machine."""
        async with SQLiteStore(self.place / "s.db") as store:
            agent = thread_agent(
                self.model, self.tools, folders=self.place / "f", store=store, clock=VirtualClock(autojump=True),
                **self.options,
            )  # fmt: skip
            try:
                assert await agent.run(GO, thread_id="t") is SUCCESS
            finally:
                asked = "".join(str(one.messages) for one in self.model.requests)
                assert (str(self.place) in asked, str(self.place).encode() in kept(self.place)) == (False, False)
        return agent


def told(agent: Agent[Any]) -> list[Any]:
    """Return the results."""
    return [one.content for one in agent.state.messages if one.role == "tool"]


async def test_what_tools_return_and_raise_has_virtual_paths(tmp_path: Path) -> None:
    """Texts, errors and parts of the caller's own tools; large results too, which are cut."""
    calls = [call("fails", "1"), call("says", "2"), call("shows", "3"), call("large", "4")]
    agent = await Scene(tmp_path, *calls, tools=[fails, says, shows, large]).run()
    one, two, three, four = told(agent)
    where = "/mnt/user-data/workspace"
    assert one == f"'fails' failed: FileNotFoundError: [Errno 2] No such file or directory: '{where}/none.txt'"
    assert two == f"it is in {where}, below /mnt"
    assert three == (TextPart(text=f"in {where}/a.pdf"), FilePart(path=f"{where}/a.pdf", name=f"{where}/a.pdf"))
    assert all(line in where or line.startswith("[") for line in four.split("\n"))


async def test_a_subagent_has_its_own(tmp_path: Path) -> None:
    """What it says is masked for the model that asked it and in the ledger; what its tools say, by one in its tree."""
    inner = ScriptedModel([call("says"), lambda request: request.messages[-1].text])
    folders = ThreadFolders(tmp_path / "f")

    def build() -> Any:
        return VirtualPaths("paths", react("sub", model=inner, tools=[says]), folders=folders)

    agent = await Scene(tmp_path, call("task", task="x"), tools=[task("task", build, copies=1)]).run()
    assert told(agent) == ["it is in /mnt/user-data/workspace, below /mnt"]
    bare = task(
        "task", lambda: react("sub", model=ScriptedModel([call("says"), str(folders.root)]), tools=[says]), copies=1
    )
    model = ScriptedModel([call("task", task="x"), "done"])
    agent = thread_agent(model, [bare], folders=folders, clock=VirtualClock(autojump=True))
    await agent.run(GO)
    assert told(agent) == ["/mnt"]
    assert [one.result_brief for one in agent.state.delegations] == ["/mnt"]


ANY = [
    call("bash", "1", command="ls"),
    call("ls", "2"),
    call("write_file", "3", path="/mnt/user-data/workspace/a", content="x"),
    call("present_files", "4", paths=["/mnt/user-data/outputs/a"]),
]


@pytest.mark.parametrize("eager", [False, True])
async def test_a_sandbox_that_cannot_be_opened_tells_no_path(eager: bool, tmp_path: Path) -> None:
    """A file is where the folders should be: results have virtual paths, and so has the error that ends a run."""
    (tmp_path / "f").write_text("x")
    scene = Scene(tmp_path, *ANY, eager=eager)
    if eager:
        with pytest.raises(NotADirectoryError, match="Not a directory: '/mnt/user-data/workspace'"):
            await scene.run()
        return
    results = told(await scene.run())
    assert results[0] == "'bash' failed: NotADirectoryError: [Errno 20] Not a directory: '/mnt/user-data/workspace'"


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (("no room in {}",), "OSError: no room in /mnt/user-data"),
        ((28, "No room", "{}"), "OSError: [Errno 28] No room: '/mnt/user-data'"),
        ((1, "{} is not ours"), "PermissionError: [Errno 1] /mnt/user-data is not ours"),
    ],
)
async def test_a_sandbox_of_another_kind_tells_no_path(problem: tuple[Any, ...], text: str, tmp_path: Path) -> None:
    """Whatever error of the system its start has; also in a tree without the node."""

    class Broken(LocalSandbox):
        async def start(self) -> None:
            raise OSError(*(one.format(self.folder) if isinstance(one, str) else one for one in problem))

    boxes = Sandboxes(lambda thread: Broken(ThreadFolders(tmp_path / "f"), thread))
    assert told(await Scene(tmp_path, ANY[0], sandbox=boxes).run()) == [f"'bash' failed: {text}"]
    tree = react(model=ScriptedModel([ANY[0], "done"]), tools=sandbox_tools(boxes))
    agent = Agent(tree, ThreadState, clock=VirtualClock(autojump=True))
    await agent.run(GO)
    assert told(agent) == [f"'bash' failed: {text}"]


async def test_a_program_that_cannot_be_started_tells_no_path(tmp_path: Path) -> None:
    """Its folder has gone since the sandbox was opened."""
    box = LocalSandbox(ThreadFolders(tmp_path), "t", limits=small())
    await box.bash("true")
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(ValueError, match="the program cannot be started") as caught:
        await box.bash("true")
    assert str(tmp_path) not in str(caught.value)
    await box.release()


def test_folders_that_no_program_can_name_are_refused_at_once(tmp_path: Path) -> None:
    """Not in the run, whose error would have their path."""
    with pytest.raises(SetupError, match="has signs that a shell reads: give ThreadFolders another one"):
        local_sandboxes(ThreadFolders(tmp_path / "a b"))


def test_a_tree_without_calls_is_refused(tmp_path: Path) -> None:
    """There is nothing whose results it could look at; so for folders that are none."""
    folders = ThreadFolders(tmp_path)
    with pytest.raises(SetupError, match=r"needs a ToolExecutor below it: write VirtualPaths\(\"paths\", ToolExecutor"):
        Agent(VirtualPaths("paths", Do("leaf", lambda _: SUCCESS), folders=folders), ThreadState)
    with pytest.raises(SetupError, match=r'VirtualPaths\("paths", child, folders=ThreadFolders\("./threads"\)\)'):
        VirtualPaths("paths", ToolExecutor("act", tools=[]), folders="x")  # pyright: ignore[reportArgumentType]  # callers err


async def test_it_stands_in_a_tree_of_ones_own(tmp_path: Path) -> None:
    """Around any tree that carries out calls."""

    async def where() -> str:
        return str(tmp_path)

    tree = VirtualPaths(
        "paths", react(model=ScriptedModel([call("where"), "done"]), tools=[where]), folders=ThreadFolders(tmp_path)
    )
    agent = Agent(tree, ThreadState, clock=VirtualClock(autojump=True))
    await agent.run(GO)
    assert told(agent) == ["/mnt"]
