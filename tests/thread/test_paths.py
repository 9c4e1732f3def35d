"""Where the files of a thread are, and how a model names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.errors import SetupError
from jianmu.nodes import Sequence
from jianmu.thread import ThreadDataState, ThreadState
from jianmu.thread.paths import ThreadData, ThreadFolders
from tests.cases.leaves import SUCCESS, Do

HOSTILE = [
    "../../etc",
    "/etc/passwd",
    "..",
    ".",
    "a/b",
    "a\0b",
    "A",
    "a\n",
    "ü",
    "\udc80",
    "-rf",
    "x" * 5000,
    "con",
    "~",
]


@pytest.mark.parametrize("thread", HOSTILE)
def test_a_hostile_id_is_a_digest(tmp_path: Path, thread: str) -> None:
    """Whatever an id has in it, its folder lies directly in the root and has a harmless name."""
    folder = ThreadFolders(tmp_path).folder(thread)
    assert folder.parent == tmp_path
    assert folder.name.startswith("t.")
    assert set(folder.name) <= set("t.0123456789abcdef")


@given(one=st.text(min_size=1), other=st.text(min_size=1))
def test_two_threads_have_two_folders(one: str, other: str) -> None:
    """Different ids have folders that differ by more than capital letters."""
    folders = ThreadFolders("threads")
    names = {folders.folder(one).name.lower(), folders.folder(other).name.lower()}
    assert len(names) == (1 if one == other else 2)


def test_a_plain_id_is_the_name_of_its_folder(tmp_path: Path) -> None:
    """Whoever looks into the root finds the threads by their ids; nothing is made by asking."""
    paths = ThreadFolders(tmp_path / "threads").paths("support-42")
    assert paths.workspace_path == tmp_path / "threads/support-42/workspace"
    assert not (tmp_path / "threads").exists()


def test_a_thread_needs_an_id_and_a_root(tmp_path: Path) -> None:
    """An empty id, and a root that is the whole system, are refused."""
    with pytest.raises(SetupError, match="a thread without an id has no folder"):
        ThreadFolders(tmp_path).folder("")
    with pytest.raises(SetupError, match=r'threads need a folder of their own, ThreadFolders\("./threads"\)'):
        ThreadFolders("/")


def test_what_a_model_sees_has_no_path_of_the_machine(tmp_path: Path) -> None:
    """The thread's folder has its virtual path, and what lies beside it is not told either."""
    folders = ThreadFolders(tmp_path)
    text = f"{tmp_path}/t1/workspace/a {tmp_path}/t1 {tmp_path}/t12/x {tmp_path}"
    assert folders.mask("t1", text) == "/mnt/user-data/workspace/a /mnt/user-data /mnt/t12/x /mnt"


def test_virtual_paths_of_a_program_are_resolved(tmp_path: Path) -> None:
    """A virtual path is replaced wherever it stands as a path, and nothing that only looks like one."""
    real = f"{tmp_path}/t1"
    given = "cat '/mnt/user-data/outputs/a' >/mnt/user-data/b; ls /mnt/user-data. /mnt/user-data2 /x/mnt/user-data"
    wanted = f"cat '{real}/outputs/a' >{real}/b; ls {real}. /mnt/user-data2 /x/mnt/user-data"
    assert ThreadFolders(tmp_path).expand("t1", given) == wanted


@pytest.mark.anyio
async def test_the_paths_are_written_in_each_run(tmp_path: Path) -> None:
    """They are those of the thread that runs, they are there before the next node, and no checkpoint has them."""
    seen: list[Path] = []
    look = Do("look", lambda node: seen.append(node.read_state().thread_data.outputs_path))
    data = ThreadData("data", folders=ThreadFolders(tmp_path / "secret-root"))
    agent = Agent(Sequence("main", memory=True, children=[data, look]), state_schema=ThreadState)
    for thread in ("t1", "t2", "t1"):
        assert await agent.run(thread_id=thread) is SUCCESS
    assert seen == [tmp_path / f"secret-root/{one}/outputs" for one in ("t1", "t2", "t1")]
    assert "secret-root" not in str(agent.dump_checkpoint())


def test_a_state_without_the_field_is_refused(tmp_path: Path) -> None:
    """The error names the node and the part to derive from."""

    class Empty(BaseModel):
        pass

    data = ThreadData("data", folders=ThreadFolders(tmp_path))
    with pytest.raises(
        SetupError, match=r"node 'data' needs the field thread_data, which Empty lacks: class Empty\(ThreadDataState"
    ):
        Agent(data, state_schema=Empty)
    assert Agent(ThreadData("data", folders=ThreadFolders(tmp_path)), state_schema=ThreadDataState)
    with pytest.raises(SetupError, match=r'ThreadData\("data", folders=ThreadFolders\("./threads"\)\)'):
        ThreadData("data", folders="threads")  # pyright: ignore[reportArgumentType]  # a user's mistake
