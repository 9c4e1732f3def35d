"""One run with all parts, as the document tells it: which field is written in which window, and by which node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jianmu.engine.limits import Limits
from jianmu.message import human
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import SandboxRef, fork_thread, save_upload, task
from jianmu.tool import tool
from tests.cases.leaves import SUCCESS, Do
from tests.thread.boxes import none_left
from tests.thread.timeline import Program, World, call, said

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]
OUT = "/mnt/user-data/outputs"
IMAGE = f"{OUT}/chart.png"
DRAW = f"open('{IMAGE}', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(1000))"
WINDOWS = {
    "thread_data": {"data"},
    "sandbox": {"sandbox"},
    "uploaded_files": {"uploads"},
    "artifacts": {"act", "calls"},
    "todos": {"act", "calls"},
    "promoted": {"act", "calls"},
    "viewed_images": {"act", "calls", "images"},
    "delegations": {"calls"},
    "title": {"title"},
    "title_by": {"title"},
}
"""Which nodes write a field, by the last part of their paths; everything else may not."""


@tool
def search_repos(query: str) -> str:
    """Search for repositories."""
    return f"found {query}"


def helper() -> Any:
    """Return a subagent that answers at once."""
    return task("helper", lambda: Do("work", lambda node: node.write_state({"final_answer": "helped"})), copies=1)


def plan(status: str) -> dict[str, Any]:
    """Return the arguments of a call that writes the plan."""
    return {"todos": [{"content": "draw", "status": status}]}


SCRIPT = [
    [call("1", "write_todos", **plan("in_progress")), call("2", "tool_search", query="select:search_repos")],
    [call("3", "python", code=DRAW), call("4", "search_repos", query="jianmu"), call("5", "helper", task="help")],
    [call("6", "view_image", path=IMAGE), call("7", "present_files", paths=[IMAGE])],
    "too early",
    call("8", "write_todos", **plan("completed")),
    "There is your chart.",
]


async def whole(world: World, script: Any = SCRIPT, **more: Any) -> Program:
    """Run a turn with all parts on."""
    options = {"deferred": [search_repos], "vision": True, "eager": True, **more}
    message = said("Draw a chart", metadata={"files": ["data.csv"]})
    return await world.program(script, message, tools=[helper()], **options)


async def test_each_field_is_written_in_its_window_and_by_its_node(tmp_path: Path) -> None:
    """Before the model: paths, sandbox, files; by the tools: what they make; after the answer: the title."""
    world = World(tmp_path)
    save_upload(world.folders, "t", "data.csv", b"1,2")
    with none_left(tmp_path):
        done = await whole(world)
    assert (done.outcome.status, done.state.final_answer) == (SUCCESS, "There is your chart.")
    writers: dict[str, set[str]] = {}
    for writer, field in done.writes(*WINDOWS):
        writers.setdefault(field, set()).add(writer)
    assert set(writers) == set(WINDOWS)
    assert {field: found - WINDOWS[field] for field, found in writers.items() if found - WINDOWS[field]} == {}
    order = done.marks(*WINDOWS, "think")
    first, last = order.index("think"), len(order) - 1 - order[::-1].index("think")
    assert [one for one in order[:first] if one[0] == "+"] == ["+thread_data", "+sandbox", "+uploaded_files"]
    assert {one for one in order[last:] if one[0] == "+"} == {"+title", "+title_by"}


async def test_what_is_kept_is_kept_and_what_is_of_the_run_is_not(tmp_path: Path) -> None:
    """In another program: the lasting fields are as they were, those of the run are empty, and nothing is in memory."""
    world = World(tmp_path)
    save_upload(world.folders, "t", "data.csv", b"1,2")
    first = (await whole(world)).state
    second = (await world.program(["hello"], said("hi"), tools=[helper()], deferred=[search_repos], vision=True)).state
    for field in ("sandbox", "title", "artifacts", "todos", "promoted", "delegations"):
        assert getattr(second, field) == getattr(first, field), field
        assert getattr(second, field), field
    assert (second.uploaded_files, dict(second.viewed_images), dict(second.repeats)) == ([], {}, {})
    assert (second.final_answer, second.rounds) == ("hello", 1)
    assert [one.text for one in second.messages[: len(first.messages)]] == [one.text for one in first.messages]


async def test_no_checkpoint_has_paths_bytes_or_what_only_a_request_has(tmp_path: Path) -> None:
    """No path of this machine, no image, no reminder, no block of files, and no field that says where to jump."""
    world = World(tmp_path)
    save_upload(world.folders, "t", "data.csv", b"1,2")
    done = await whole(world)
    rows = b"\n".join(world.rows())
    for never in (str(tmp_path).encode(), bytes(50), b"\\x00" * 50, b"uploaded_files:", b"plan:thread", b"jump_to"):
        assert never not in rows
    told = "\n".join(one.text for request in done.model.requests for one in request.messages)
    assert "Files that came with this message:" in told
    assert "You have given a final answer" in told
    assert str(tmp_path) not in told


async def test_a_suspended_run_goes_on_where_it_was_with_all_its_fields(tmp_path: Path) -> None:
    """A question before any sibling runs; the answer comes in another program; what was done is not done again."""
    world = World(tmp_path)
    asks = [call("q", "ask_clarification", question="Which colour?"), call("w", "bash", command="echo x >> log.txt")]
    first = await world.program([call("1", "bash", command="echo a >> log.txt"), asks], said())
    assert first.outcome.suspended
    assert (world.thread / "workspace" / "log.txt").read_text() == "a\n"
    second = await world.resumed(["green it is"], "green")
    assert (second.outcome.status, second.state.messages[-3].text) == (SUCCESS, "green")
    assert (world.thread / "workspace" / "log.txt").read_text() == "a\nx\n"
    assert second.state.thread_data == world.folders.paths("t")
    assert second.state.title == "go on"


async def test_a_fork_has_a_sandbox_and_folders_of_its_own(tmp_path: Path) -> None:
    """The id in the state is that of its own thread; the files of the other one are not there."""
    world = World(tmp_path)
    await world.program([call("1", "bash", command="echo a > a.txt"), "done"], said())
    async with SQLiteStore(world.path) as store:
        made = world.agent(ScriptedModel([call("2", "ls"), "done"]), store=store)
        await fork_thread(made, "t", "fork")
        assert await made.run({"messages": [human("go on")]}, thread_id="fork") is SUCCESS
        assert made.state.thread_data == world.folders.paths("fork")
        assert made.state.sandbox == SandboxRef.of("fork")
        assert "a.txt" not in made.state.messages[-2].text


LASTING = ("sandbox", "title", "title_by", "artifacts", "todos", "promoted", "final_answer", "rounds")


def lasting(state: Any) -> dict[str, Any]:
    """Return what two runs have in common that did the same."""
    talk = [(one.role, one.text, [call.id for call in one.tool_calls]) for one in state.messages]
    ledger = [(one.id, one.status, one.result_brief) for one in state.delegations]
    return {**{name: getattr(state, name) for name in LASTING}, "talk": talk, "ledger": ledger}


@pytest.mark.parametrize("requests", [*range(1, len(SCRIPT))])
async def test_a_run_that_is_cut_at_any_request_comes_to_the_same_end(requests: int, tmp_path: Path) -> None:
    """Cut by a limit after so many requests, gone on with in another program: as if nothing had happened."""
    plain, cut = World(tmp_path / "plain"), World(tmp_path / "cut")
    for world in (plain, cut):
        world.root.mkdir()
        save_upload(world.folders, "t", "data.csv", b"1,2")
    done = await whole(plain)
    first = await whole(cut, SCRIPT[:requests], limits=Limits(requests=requests))
    assert first.outcome.limit == "requests"
    options = {"tools": [helper()], "deferred": [search_repos], "vision": True, "eager": True}
    second = await cut.recovered(SCRIPT[requests:], **options)
    assert second.outcome.status is SUCCESS
    assert lasting(second.state) == lasting(done.state)
    assert dict(second.state.viewed_images) == {}
