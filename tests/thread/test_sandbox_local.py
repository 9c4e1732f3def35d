"""LocalSandbox: programs with limits, in the folder of a thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from jianmu.errors import SetupError
from jianmu.thread.paths import ThreadFolders
from jianmu.thread.sandbox import Ran, Sandbox
from jianmu.thread.sandboxlocal import LocalSandbox
from tests.thread.boxes import box, none_left, programs, small, until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]
WORKSPACE = "/mnt/user-data/workspace"


@pytest.fixture
def separate(anyio_backend: str) -> bool:
    """Whether programs have a PID namespace: on one backend they do, if this machine has them, on the other not."""
    return anyio_backend == "asyncio"


async def test_a_program_runs_in_the_workspace(tmp_path: Path) -> None:
    """It gets its paths resolved, and what it says comes back with virtual ones; files stay for the next."""
    sandbox = box(tmp_path)
    assert isinstance(sandbox, Sandbox)
    with none_left(tmp_path):
        ran = await sandbox.bash("pwd; echo hi > /mnt/user-data/outputs/x; ls /nowhere; echo $HOME; exit 3")
        *_, home = ran.output.splitlines()
        assert (ran.code, ran.ended_by, ran.output.splitlines()[0], home) == (3, None, WORKSPACE, WORKSPACE)
        assert "/nowhere" in ran.output
        code = "print(open('/mnt/user-data/outputs/x').read(), end='')"
        assert await sandbox.python(code) == Ran(0, "hi\n")
    assert (tmp_path / "t1/outputs/x").read_text() == "hi\n"


async def test_what_a_program_starts_ends_with_it(tmp_path: Path, separate: bool) -> None:
    """Also what has a session of its own, was forked twice, ignores SIGTERM, or holds the output open."""
    with none_left(tmp_path), anyio.fail_after(8):
        command = "(setsid sh -c 'trap \"\" TERM HUP; (sleep 30 & sleep 30)' &) & nohup sleep 30 & echo started"
        ran = await box(tmp_path, separate=separate).bash(command)
    assert (ran.code, ran.ended_by, ran.output) == (0, None, "started\n")


async def test_a_program_that_ignores_sigterm_is_ended_in_time(tmp_path: Path, separate: bool) -> None:
    """It is asked, and then killed; what it has written so far is there."""
    with none_left(tmp_path), anyio.fail_after(8):
        sandbox = box(tmp_path, separate=separate)
        ran = await sandbox.bash("trap '' TERM; echo here; while :; do sleep 1; done", seconds=0.6)
    assert (ran.output, ran.ended_by) == ("here\n", "time")


async def test_a_program_may_end_by_itself_when_its_time_is_over(tmp_path: Path) -> None:
    """SIGTERM comes first, and there is a moment to react."""
    with none_left(tmp_path), anyio.fail_after(8):
        ran = await box(tmp_path, grace=3.0).bash("trap 'echo bye; exit 5' TERM; sleep 30 & wait", seconds=0.6)
    assert (ran.output, ran.code, ran.ended_by) == ("bye\n", 5, "time")


async def test_cancelling_ends_everything(tmp_path: Path, separate: bool) -> None:
    """When the call has left, its processes have gone; one that is cancelled at once as well."""
    sandbox = box(tmp_path, separate=separate)
    ready = tmp_path / "t1/workspace/ready"
    with none_left(tmp_path), anyio.fail_after(8):
        async with anyio.create_task_group() as group:
            group.start_soon(sandbox.bash, "trap '' TERM; setsid sleep 30 & touch ready; sleep 30")
            await until(ready.exists)
            group.cancel_scope.cancel()
        with anyio.move_on_after(0.02) as scope:
            await sandbox.bash("sleep 30")
    assert scope.cancelled_caught


async def test_a_release_ends_what_runs(tmp_path: Path) -> None:
    """The call that waits is told so; afterwards the sandbox can be started again, with its files."""
    sandbox, ran = box(tmp_path), list[Ran]()

    async def run() -> None:
        ran.append(await sandbox.bash("touch ready; sleep 30"))

    with none_left(tmp_path), anyio.fail_after(8):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await until((tmp_path / "t1/workspace/ready").exists)
            await sandbox.release()
        assert (await sandbox.bash("ls")).output == "ready\n"
    assert [one.ended_by for one in ran] == ["released"]


async def test_starts_side_by_side_are_one(tmp_path: Path) -> None:
    """Whoever needs it first starts it, the others wait; a release makes the next start another one."""
    sandbox = box(tmp_path)
    for count in (1, 2):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(sandbox.start)
        assert sandbox.starts == count
        await sandbox.release()


async def test_the_id_is_that_of_the_thread(tmp_path: Path) -> None:
    """A later run, in whatever process, opens the same one; another thread has another one."""
    one, again, other = (LocalSandbox(ThreadFolders(tmp_path), id) for id in ("a", "a", "b"))
    assert one.id == again.id != other.id


async def test_a_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    """What is missing is told, and where the output is cut no part of a real path is left."""
    sandbox = box(tmp_path)
    real = len(str(tmp_path / "t1/workspace"))
    for shift in (0, real // 2):
        ran = await sandbox.bash(f"printf '%{shift}s' ''; for i in $(seq 200); do printf %s \"$PWD\"; done; echo end")
        size = shift + 200 * real + 4
        assert f"\n[cut: {size - 2000} of {size} bytes are left out here]\n" in ran.output
        assert ran.output.endswith("end\n")
        rest = ran.output.replace(WORKSPACE, "").split("\n[cut")
        assert not [part for part in (tmp_path.name[:8], tmp_path.name[-8:]) if any(part in one for one in rest)]


async def test_output_that_is_no_text_is_shown_as_far_as_it_is_one(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and NULs, which some stores do not take, are replaced."""
    with none_left(tmp_path):
        assert (await box(tmp_path).bash(r"printf 'a\377b\0c'")).output == "a\ufffdb\ufffdc"


async def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    """The text says what is wrong, for the model."""
    sandbox = box(tmp_path)
    with none_left(tmp_path), pytest.raises(ValueError, match="cannot be started: FileNotFoundError"):
        await sandbox.run(["no-such-program"])
    with pytest.raises(ValueError, match="more than 100000 bytes: write it to a file"):
        await sandbox.bash("#" * 100_001)
    with pytest.raises(ValueError, match="has a NUL in it"):
        await sandbox.bash("a\0")


async def test_files_and_searches(tmp_path: Path) -> None:
    """What programs write the file calls read, and the other way round; a search runs in a process with limits."""
    sandbox = box(tmp_path)
    await sandbox.write_file("a/b.txt", b"one\n")
    assert (await sandbox.bash("cat a/b.txt; pwd -P > a/c.txt")).output == "one\n"
    assert await sandbox.str_replace("a/b.txt", "one", "two") == 1
    with none_left(tmp_path), anyio.fail_after(8):
        assert await sandbox.grep("two|mnt|t1", WORKSPACE, "**", 10) == [
            f"{WORKSPACE}/a/b.txt:1: two",
            f"{WORKSPACE}/a/c.txt:1: {WORKSPACE}",
        ]
        with pytest.raises(ValueError, match="no regular expression"):
            await sandbox.grep("(", WORKSPACE, "**", 10)
        await sandbox.write_file("evil", b"a" * 60)
        with pytest.raises(ValueError, match=r"the search was ended \(time\)"):
            await box(tmp_path, seconds=0.7).grep("(a+)+$x", WORKSPACE, "evil", 10)


async def test_seconds_of_a_model_are_checked(tmp_path: Path) -> None:
    """What is no time is refused; what is more than the limit is cut to it."""
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="give more than 0"):
            await box(tmp_path).bash("true", seconds=seconds)
    with none_left(tmp_path), anyio.fail_after(8):
        assert (await box(tmp_path, seconds=0.3).bash("sleep 20", seconds=1e9)).ended_by == "time"


@pytest.mark.parametrize("option", ["seconds", "memory", "processes", "output", "flood", "file_size", "grace"])
def test_limits_are_numbers_above_0(option: str) -> None:
    """The error has the option and what was given."""
    for value in (0, -1, True, "1", float("inf")):
        with pytest.raises(SetupError, match=rf"SandboxLimits\({option}=.*\): it takes a (whole )?number above 0"):
            small(**{option: value})


async def test_a_text_in_any_language_is_run(tmp_path: Path) -> None:
    """Also where the environment says nothing of an encoding."""
    with none_left(tmp_path):
        assert (await box(tmp_path, env={"LC_ALL": "C"}).bash("echo 建木 ü > 木; cat 木; ls")).output == "建木 ü\n木\n"


def test_a_root_that_a_shell_would_read_is_refused(tmp_path: Path) -> None:
    """Virtual paths are resolved inside of commands: a real one with a space in it would fall apart."""
    with pytest.raises(SetupError, match="has signs that a shell reads: give ThreadFolders another one"):
        LocalSandbox(ThreadFolders(tmp_path / "a b"), "t1")


def test_when_the_holder_dies_its_programs_end(tmp_path: Path) -> None:
    """SIGKILL for the process that runs jianmu: the keeper sees it and ends everything."""
    code = (
        "import anyio, sys; from pathlib import Path; from tests.thread.boxes import box\n"
        "anyio.run(box(Path(sys.argv[1])).bash, 'trap \"\" TERM HUP; setsid sleep 30 & echo > ready; sleep 30')"
    )
    with none_left(tmp_path):
        holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
        try:
            anyio.run(until, (tmp_path / "t1/workspace/ready").exists)
        finally:
            holder.kill()
            holder.wait()
        anyio.run(until, lambda: not programs(tmp_path))
