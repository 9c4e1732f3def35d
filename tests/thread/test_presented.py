"""Files that people are shown: all of a call or none, from the outputs only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jianmu.agent import Agent
from jianmu.errors import SetupError
from jianmu.message import ai, human
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, ToolExecutor
from jianmu.prebuilt import ReActState
from jianmu.thread import ThreadFolders, present_files
from tests.cases.leaves import SUCCESS
from tests.thread.test_state_stored import bytes_in
from tests.thread.turns import call, rounds, run, run_stored, thread

pytestmark = pytest.mark.anyio

AT = "/mnt/user-data/outputs"


class Scene:
    """A thread with files in its outputs."""

    def __init__(self, root: Path, *names: str) -> None:
        self.folders = ThreadFolders(root / "threads")
        for name in names:
            self.folders.files("t").write(f"{AT}/{name}", b"x")

    async def present(self, *calls: Any, **values: Any) -> tuple[list[tuple[str, bool]], list[str]]:
        """Carry out calls, each with these paths; return their results and the field."""
        made = thread(ToolExecutor("act", tools=[present_files(self.folders)]))
        wishes = [call(str(number), "present_files", paths=paths) for number, paths in enumerate(calls)]
        assert await run(made, human("go"), ai(tool_calls=wishes), **values) is SUCCESS
        results = [(one.text, one.is_error) for one in made.state.messages if one.role == "tool"]
        return results, [*made.state.artifacts]


async def test_files_are_added_in_order_each_once(tmp_path: Path) -> None:
    """Whole virtual paths are written, however they are given; what was shown before stays in its place."""
    scene = Scene(tmp_path, "a.html", "b c.png", "d/e.txt")
    results, shown = await scene.present(
        [f"{AT}/a.html", f"{AT}//./a.html", f"{AT}/d/e.txt", f"{AT}/b c.png"], artifacts=[f"{AT}/d/e.txt"]
    )
    assert shown == [f"{AT}/d/e.txt", f"{AT}/a.html", f"{AT}/b c.png"]
    assert results == [(f"The person is shown: {AT}/a.html, {AT}/d/e.txt, {AT}/b c.png", False)]


async def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    """Two calls of one reply: the files of both are there."""
    scene = Scene(tmp_path, "report.html", "chart.png")
    _, shown = await scene.present([f"{AT}/report.html"], [f"{AT}/chart.png"])
    assert sorted(shown) == [f"{AT}/chart.png", f"{AT}/report.html"]


async def test_all_or_nothing(tmp_path: Path) -> None:
    """One file that cannot be shown: none is, and the model is told of all that are wrong."""
    scene = Scene(tmp_path, "a.html")
    results, shown = await scene.present([f"{AT}/gone.html", f"{AT}/a.html", "b.html"])
    assert shown == []
    why = [
        "'present_files' failed: ValueError: none of these files was shown:",
        "- there is no '/mnt/user-data/outputs/gone.html'",
        "- '/mnt/user-data/workspace/b.html' is not in /mnt/user-data/outputs: copy it there first",
    ]
    assert results == [("\n".join(why), True)]


async def test_what_is_no_file_of_the_outputs_is_refused(tmp_path: Path) -> None:
    """Links, folders, pipes, other areas, other threads and real paths: refused, and no real path is told."""
    scene = Scene(tmp_path, "a.html", "d/e.txt")
    outputs = tmp_path / "threads/t/outputs"
    (tmp_path / "secret").write_text("secret")
    (outputs / "link").symlink_to(tmp_path / "secret")
    (outputs / "inner").symlink_to(outputs / "a.html")
    (outputs / "way").symlink_to(tmp_path)
    os.mkfifo(outputs / "pipe")
    scene.folders.files("t").write("/mnt/user-data/workspace/w", b"x")
    scene.folders.files("other").write(f"{AT}/theirs", b"x")
    for path in (
        f"{AT}/link", f"{AT}/inner", f"{AT}/way/secret", f"{AT}/d", AT, f"{AT}/pipe", f"{AT}/../workspace/w",
        "/etc/passwd",
        "/mnt/user-data/workspace/w", str(outputs / "a.html"), f"{AT}/../../other/outputs/theirs", f"{AT}/a.html\n",
        "", f"{AT}/" + "x" * 5000, "data:text/html,x",
    ):  # fmt: skip
        ((told, is_error),), shown = await scene.present([path, f"{AT}/a.html"])
        assert (is_error, shown) == (True, [])
        assert told.startswith("'present_files' failed: ValueError: none of these files was shown:\n- ")
        assert str(tmp_path) not in told.replace(path, "")


@pytest.mark.parametrize("paths", [[], "a", [1], ["x"] * 101])
async def test_arguments_are_checked(tmp_path: Path, paths: Any) -> None:
    """No files, a text, what is no path, and too many: not called."""
    ((told, is_error),), shown = await Scene(tmp_path).present(paths)
    assert (is_error, shown) == (True, [])
    assert "so it was not called" in told


async def test_they_are_there_after_a_restart(tmp_path: Path) -> None:
    """Shown in one program, there in the next, where more are added; no real path is in the store."""
    scene = Scene(tmp_path, "a.html", "b.html")
    for name in ("a", "b"):
        with ScriptedModel([call(name, "present_files", paths=[f"{AT}/{name}.html"]), "done"]) as model:
            tree = rounds(AgentLLMNode("think", model=model), tools=[present_files(scene.folders)])
            made = await run_stored(tmp_path / "t.db", tree, human(name))
    assert made.state.artifacts == [f"{AT}/a.html", f"{AT}/b.html"]
    assert str(tmp_path).encode() not in bytes_in(tmp_path)


async def test_a_state_without_the_field_is_refused(tmp_path: Path) -> None:
    """The run ends with the part of the state to derive from; folders of another kind are refused at once."""
    made = Agent(ToolExecutor("act", tools=[present_files(ThreadFolders(tmp_path))]), state_schema=ReActState)
    wish = ai(tool_calls=[call("1", "present_files", paths=["x"])])
    with pytest.raises(SetupError, match=r"node 'act' needs the field artifacts, .* class ReActState\(ArtifactsState"):
        await made.run({"messages": [human("go"), wish]})
    with pytest.raises(SetupError, match=r'present_files\(folders=ThreadFolders\("./threads"\)\), not folders=7'):
        present_files(7)  # pyright: ignore[reportArgumentType]  # a user's mistake
