"""The timeline of `sandbox`: opened at the start or by need, once; released at the end; the same one in each run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jianmu.errors import RunError
from jianmu.message import human
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import SandboxRef
from tests.cases.leaves import SUCCESS, nothing_left
from tests.thread.boxes import none_left
from tests.thread.timeline import World, call, said

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]


async def test_three_tools_that_start_the_sandbox_at_once_share_one(tmp_path: Path) -> None:
    """Real processes, side by side, by need: one start, one write of the field; released when the run is over."""
    world = World(tmp_path)
    calls = [call(str(number), "bash", command=f"echo {number} > {number}.txt; sleep 0.1") for number in range(3)]
    with none_left(tmp_path):
        done = await world.program([calls, "done"], said())
    (box,) = world.made
    assert (box.starts, done.outcome.status) == (1, SUCCESS)
    assert done.writes("sandbox") == [("act", "sandbox")]
    assert sorted(one.name for one in (world.thread / "workspace").iterdir()) == ["0.txt", "1.txt", "2.txt"]
    assert done.marks("think", "sandbox") == ["think", "+sandbox", "think"]


async def test_three_tools_after_a_restart_share_one_too(tmp_path: Path) -> None:
    """A question of the same reply suspends before any of them; another program carries them out, side by side."""
    world = World(tmp_path)
    ask = call("q", "ask_clarification", question="Shall I?")
    calls = [call(str(number), "bash", command=f"echo {number} > {number}.txt; sleep 0.1") for number in range(3)]
    first = await world.program([[ask, *calls]], said())
    assert (first.outcome.suspended, world.made, first.state.sandbox) == (True, [], None)
    with none_left(tmp_path):
        second = await world.resumed(["done"], "yes")
    (box,) = world.made
    assert (box.starts, second.writes("sandbox")) == (1, [("act", "sandbox")])
    assert second.state.sandbox == SandboxRef.of("t")
    assert sorted(one.name for one in (world.thread / "workspace").iterdir()) == ["0.txt", "1.txt", "2.txt"]


async def test_an_eager_sandbox_is_there_before_the_model_is_asked(tmp_path: Path) -> None:
    """With `eager` the field is written at the start of the run, by its node."""
    done = await World(tmp_path).program(["hello"], said(), eager=True)
    assert done.marks("sandbox", "think") == ["sandbox", "+sandbox", "think"]


async def test_a_later_program_opens_the_same_one_and_finds_the_files(tmp_path: Path) -> None:
    """Released is not forgotten: the id stays in the state, and is written once in the thread's life."""
    world = World(tmp_path)
    first = await world.program([call("1", "bash", command="echo kept > a.txt"), "done"], said())
    second = await world.program([call("2", "read_file", path="/mnt/user-data/workspace/a.txt"), "done"], said())
    assert second.state.sandbox == first.state.sandbox == SandboxRef.of("t")
    assert second.writes("sandbox") == []
    assert second.state.messages[-2].text == "kept\n"
    assert len(world.made) == 2


async def test_a_thread_with_another_sandbox_is_refused_and_not_decided(tmp_path: Path) -> None:
    """The error names the node, the field and both ids."""
    world = World(tmp_path)
    async with SQLiteStore(world.path) as store:
        made = world.agent(ScriptedModel([call("1", "ls"), "done"]), store=store)
        given = {"messages": [human("hi")], "sandbox": {"sandbox_id": "sandbox-elsewhere"}}
        with nothing_left(made), pytest.raises(RunError, match=r"has another sandbox than its thread.*sandbox"):
            await made.run(given, thread_id="t")
