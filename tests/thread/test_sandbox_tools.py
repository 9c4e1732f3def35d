"""The tools of the sandbox in a tree: opened by need, released in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.errors import RunError, SetupError
from jianmu.message import ai, human
from jianmu.nodes import Finally, Sequence, ToolExecutor
from jianmu.stores import SQLiteStore
from jianmu.thread import SandboxRef, ThreadState
from jianmu.thread.paths import ThreadData, ThreadFolders
from jianmu.thread.sandbox import Ran
from jianmu.thread.sandboxes import OpenSandbox, Sandboxes
from jianmu.thread.sandboxlocal import LocalSandbox
from jianmu.thread.sandboxtools import excerpt, sandbox_tools, shown
from jianmu.tool import ToolCall
from tests.cases.leaves import SUCCESS, nothing_left
from tests.thread.boxes import none_left, small, until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]


OUTSIDE = (
    "'read_file' failed: ValueError: '/etc/passwd' is outside of /mnt/user-data, where all files of this conversation"
    " are"
)


class Scene:
    """An agent that carries out calls in a sandbox.

    Args:
        root: where the folders of threads are.
        first: nodes before the tools.
        options: the agent's.
    """

    def __init__(self, root: Path, *, eager: bool = False, **options: Any) -> None:
        self.made: list[LocalSandbox] = []
        self.folders = ThreadFolders(root)
        self.boxes = Sandboxes(self._make)
        act = ToolExecutor("act", tools=sandbox_tools(self.boxes))
        first = [OpenSandbox("open", sandboxes=self.boxes)] if eager else []
        main = Sequence("main", memory=True, children=[ThreadData("data", folders=self.folders), *first, act])
        tree = Finally("run", main, self.boxes.release)
        self.agent = Agent(tree, state_schema=ThreadState, **options)

    def _make(self, thread: str) -> LocalSandbox:
        self.made.append(LocalSandbox(self.folders, thread, limits=small()))
        return self.made[-1]

    async def run(self, *calls: tuple[str, dict[str, Any]], thread: str = "t1") -> list[str]:
        """Carry out calls; return what the model is told."""
        wishes = [ToolCall(id=f"c{number}", name=name, arguments=given) for number, (name, given) in enumerate(calls)]
        told = [human("go"), ai(tool_calls=wishes)]
        assert await self.agent.run({"messages": told}, thread_id=thread) is SUCCESS
        return [message.text for message in self.agent.state.messages[-len(calls) :]]


async def test_the_tools_work_on_the_same_files(tmp_path: Path) -> None:
    """What one writes another reads; whatever they say has virtual paths only."""
    scene, at = Scene(tmp_path), "/mnt/user-data/workspace"
    with none_left(tmp_path), nothing_left(scene.agent):
        assert await scene.run(("write_file", {"path": "a/b.py", "content": "import os\nprint(os.getcwd())\n"})) == [
            "wrote 29 bytes"
        ]
        replaced = await scene.run(("str_replace", {"path": "a/b.py", "old": "os.getcwd()", "new": "'x', os.getcwd()"}))
        assert replaced == ["replaced once"]
        assert await scene.run(
            ("bash", {"command": "python3 a/b.py; pwd > log; exit 2"}),
            ("python", {"code": "print(1 + 1)"}),
            ("read_file", {"path": f"{at}/a/b.py", "start": 2}),
            ("ls", {"path": at}),
            ("glob", {"pattern": "**/*.py"}),
            ("grep", {"pattern": "getcwd"}),
            ("read_file", {"path": "/etc/passwd"}),
            ("bash", {"command": "true"}),
        ) == [
            f"x {at}\n[exit code 2]",
            "2",
            "print('x', os.getcwd())\n[lines 2 to 2 of 2]",
            scene_listing(scene),
            f"{at}/a/b.py (34 bytes)",
            f"{at}/a/b.py:2: print('x', os.getcwd())",
            OUTSIDE,
            "(no output)",
        ]
        assert await scene.run(("read_file", {"path": "log"})) == [f"{at}\n"]
        assert await scene.run(("str_replace", {"path": "log", "old": at, "new": "x"})) == ["replaced once"]
        assert str(tmp_path) not in str(scene.agent.dump_checkpoint())


def scene_listing(scene: Scene) -> str:
    """Return what `ls` shows; the log may have been there already."""
    text = next(
        one.text for one in scene.agent.state.messages[::-1] if one.text.startswith("/mnt/user-data/workspace/a/\n")
    )
    assert text.splitlines()[:2] == ["/mnt/user-data/workspace/a/", "/mnt/user-data/workspace/a/b.py (34 bytes)"]
    return text


async def test_tools_that_start_it_at_once_share_one(tmp_path: Path) -> None:
    """Three calls side by side: one sandbox, one start, one id in the state; a second run opens that of the same id."""
    scene = Scene(tmp_path)
    for runs in (1, 2):
        await scene.run(*[("bash", {"command": "echo hi"})] * 3)
        assert [one.starts for one in scene.made] == [1] * runs
        assert scene.agent.state.sandbox == SandboxRef.of("t1") == SandboxRef(sandbox_id=scene.made[-1].id)
        assert scene.boxes.held() == ()


async def test_an_eager_one_is_there_before_the_tools(tmp_path: Path) -> None:
    """OpenSandbox starts it, also for a run without calls; it is released all the same."""
    scene = Scene(tmp_path, eager=True)
    assert await scene.agent.run({"messages": [human("go")]}, thread_id="t1") is SUCCESS
    assert ([one.starts for one in scene.made], scene.boxes.held()) == ([1], ())
    assert scene.agent.state.sandbox == SandboxRef.of("t1")
    with pytest.raises(SetupError, match=r'OpenSandbox\("open", sandboxes=local_sandboxes\(folders\)\)'):
        OpenSandbox("open", sandboxes=None)  # pyright: ignore[reportArgumentType]  # a user's mistake


async def test_a_sandbox_that_is_opened_when_all_has_been_done_is_refused(tmp_path: Path) -> None:
    """The tools before it have opened it by need; where others come later, in a loop's next part, it is right."""
    boxes = Scene(tmp_path).boxes

    def uses(name: str) -> ToolExecutor:
        return ToolExecutor(name, tools=sandbox_tools(boxes).with_options(timeout=9).only("bash"))

    def tree(*children: Any) -> Sequence:
        return Sequence("main", memory=True, children=[*children])

    Agent(tree(uses("one"), OpenSandbox("open", sandboxes=boxes), uses("two")), ThreadState)
    Agent(tree(ToolExecutor("act", tools=[shown]), OpenSandbox("open", sandboxes=boxes)), ThreadState)
    with pytest.raises(SetupError) as caught:
        Agent(tree(uses("one"), OpenSandbox("open", sandboxes=boxes)), ThreadState)
    assert str(caught.value) == (
        "node 'main/open' (OpenSandbox) comes after 'main/one', whose tools have opened the sandbox: "
        "put it before that node"
    )


async def test_what_is_no_sandboxes_gives_no_tools(tmp_path: Path) -> None:
    """The folders of threads, for one: with what to write."""
    with pytest.raises(SetupError, match=r"write sandbox_tools\(local_sandboxes\(folders\)\), not sandbox_tools\("):
        sandbox_tools(ThreadFolders(tmp_path))  # pyright: ignore[reportArgumentType]  # a user's mistake


async def test_a_halt_ends_the_programs(tmp_path: Path) -> None:
    """When the run has ended nothing runs any more, and the sandbox is released."""
    scene = Scene(tmp_path)
    ready = tmp_path / "t1/workspace/ready"
    with none_left(tmp_path), nothing_left(scene.agent), anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            call = ToolCall(id="c", name="bash", arguments={"command": "trap '' TERM; touch ready; sleep 20"})
            group.start_soon(
                lambda: scene.agent.run({"messages": [human("go"), ai(tool_calls=[call])]}, thread_id="t1")
            )
            await until(ready.exists)
            scene.agent.halt()
    assert scene.boxes.held() == ()


async def test_another_process_opens_the_same_one(tmp_path: Path) -> None:
    """The id is kept with the thread, and files written before the restart are there after it."""
    for text, wanted in (("> x", "(no output)"), ("", "x")):
        store = SQLiteStore(tmp_path / "store.db")
        scene = Scene(tmp_path / "threads", store=store)
        async with scene.agent:
            assert await scene.run(("bash", {"command": f"ls {text}"})) == [wanted]
            assert scene.agent.state.sandbox == SandboxRef.of("t1")


async def test_another_id_is_a_conflict(tmp_path: Path) -> None:
    """A thread whose state has the id of another sandbox starts none: the run ends, and the error names the field."""
    scene = Scene(tmp_path)
    scene.agent.state_manager.update({"sandbox": SandboxRef(sandbox_id="other")})
    call = ToolCall(id="c", name="bash", arguments={"command": "true"})
    with pytest.raises(RunError, match=r"node 'run/main/act' has another sandbox than its thread: .*sandbox"):
        await scene.agent.run({"messages": [human("go"), ai(tool_calls=[call])], "sandbox": {"sandbox_id": "other"}})
    assert [one.starts for one in scene.made] == [0]


def test_what_a_model_is_told_of_a_program() -> None:
    """An exit code is told, an end by a limit is an error that says which."""
    assert shown(Ran(0, "")).content == "(no output)"
    assert (shown(Ran(1, "x\n")).content, shown(Ran(1, "x")).is_error) == ("x\n[exit code 1]", False)
    ended = shown(Ran(137, "x", "time"))
    assert (ended.content, ended.is_error) == ("x\n[ended: it ran longer than it may]", True)


def test_a_long_file_is_read_in_parts() -> None:
    """The note says which lines were shown, so that the model can go on from there."""
    text = "".join(f"{number:0999}\n" for number in range(1, 101))
    assert excerpt(text, 1, None).endswith("\n[lines 1 to 40 of 100]")
    assert excerpt(text, 41, 42).splitlines()[2] == "[lines 41 to 42 of 100]"
    assert excerpt("", 1, None) == "(empty)"
