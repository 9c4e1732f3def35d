"""The timelines of `thread_data`, `uploaded_files` and `artifacts`: real files, and programs one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from jianmu.thread import save_upload
from tests.cases.leaves import SUCCESS
from tests.thread.timeline import World, call, said

pytestmark = pytest.mark.anyio
OUT = "/mnt/user-data/outputs"


async def test_the_paths_are_there_before_all_else_in_each_run_and_in_no_checkpoint(tmp_path: Path) -> None:
    """Written anew by each program, first of all fields; no row of the store has a path of this machine."""
    world = World(tmp_path)
    for _ in range(2):
        write = call("1", "write_file", path=f"{OUT}/a.md", content="hi")
        done = await world.program([write, "done"], said(), eager=True)
        assert done.writes("thread_data", "sandbox", "uploaded_files", "actions")[0] == ("data", "thread_data")
        assert done.state.thread_data == world.folders.paths("t")
    rows = world.rows()
    assert rows
    assert [row for row in rows if str(tmp_path).encode() in row] == []


async def test_the_files_of_a_message_are_those_of_its_run(tmp_path: Path) -> None:
    """Written before the model is asked, told in the request only; the next run has none, and is told of the older."""
    world = World(tmp_path)
    save_upload(world.folders, "t", "report.pdf", b"%PDF")
    first = await world.program(["read"], said("look", metadata={"files": ["report.pdf"]}))
    assert first.marks("uploads", "uploaded_files", "think") == ["uploads", "+uploaded_files", "think"]
    assert [one.path for one in first.state.uploaded_files] == ["/mnt/user-data/uploads/report.pdf"]
    assert "Files that came with this message:" in first.model.requests[0].messages[-1].text
    second = await world.program(["well"], said("and?"))
    assert second.state.uploaded_files == []
    assert "Files of earlier messages:" in second.model.requests[0].messages[-1].text
    assert not any("report.pdf" in one.text for one in second.state.messages)


async def test_two_calls_of_present_files_at_once_lose_nothing(tmp_path: Path) -> None:
    """Side by side in one reply; both are there, in the next program too, where a third one is added."""
    world = World(tmp_path)
    folder = world.thread / "outputs"
    folder.mkdir(parents=True)
    for name in ("report.html", "chart.png", "more.md"):
        (folder / name).write_text(name)
    both = [call(name, "present_files", paths=[f"{OUT}/{name}"]) for name in ("report.html", "chart.png")]
    first = await world.program([both, "done"], said())
    assert set(first.state.artifacts) == {f"{OUT}/report.html", f"{OUT}/chart.png"}
    again = call("3", "present_files", paths=[f"{OUT}/more.md", f"{OUT}/report.html"])
    second = await world.program([again, "done"], said())
    assert second.outcome.status is SUCCESS
    assert list(second.state.artifacts) == [*first.state.artifacts, f"{OUT}/more.md"]


async def test_two_calls_of_present_files_after_a_restart_lose_nothing(tmp_path: Path) -> None:
    """A question of the same reply suspends before them; another program shows both files."""
    world = World(tmp_path)
    for name in ("report.html", "chart.png"):
        world.folders.files("t").write(f"{OUT}/{name}", name.encode())
    both = [call(name, "present_files", paths=[f"{OUT}/{name}"]) for name in ("report.html", "chart.png")]
    first = await world.program([[call("q", "ask_clarification", question="Shall I?"), *both]], said())
    assert first.outcome.suspended
    assert first.state.artifacts == []
    second = await world.resumed(["done"], "yes")
    assert set(second.state.artifacts) == {f"{OUT}/report.html", f"{OUT}/chart.png"}


async def test_a_large_result_is_in_a_file_that_a_later_program_reads(tmp_path: Path) -> None:
    """The conversation has its beginning and end, and where the whole is; the model reads it after a restart."""
    world = World(tmp_path)

    def look() -> str:
        """Look."""
        return "\n".join(f"line {number}" for number in range(5000))

    first = await world.program([call("1", "look"), "done"], said(), tools=[look])
    told = first.state.messages[2].text
    assert len(told) <= 12_000
    path = next(word.rstrip("]") for word in told.split() if word.startswith(f"{OUT}/.results/"))
    read = call("2", "read_file", path=path, start=2500, end=2500)
    second = await world.program([read, "done"], said())
    assert "line 2499" in second.state.messages[-2].text
