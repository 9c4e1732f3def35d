"""A program that is killed in the middle of a run: nothing of it goes on, and another program comes to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.leaves import SUCCESS
from tests.house import ROOT
from tests.thread.boxes import programs, until
from tests.thread.timeline import World

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]


@pytest.mark.slow_on_trio
async def test_a_killed_program_leaves_no_process_and_a_thread_that_goes_on(tmp_path: Path) -> None:
    """SIGKILL while a command runs: the command ends with it; its result is not known, and it is not run again."""
    world = World(tmp_path)
    log = world.thread / "workspace" / "log.txt"
    command = [sys.executable, "-m", "tests.thread.killed", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT) as process:  # noqa: ASYNC220  # it is waited for below
        await until(log.exists)
        assert programs(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
    await until(lambda: not programs(tmp_path))
    done = await world.recovered(["It was cut off."])
    assert done.outcome.status is SUCCESS
    assert log.read_text() == "once\n"
    assert "whether it took effect is not known" in done.state.messages[-2].text
    assert (done.state.title, [one.status for one in done.state.todos]) == ("Wait a bit", ["completed"])
    assert done.state.thread_data == world.folders.paths("t")
