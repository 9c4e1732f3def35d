"""A thread's state in a real store: what is there after a restart, in a fork, and what an older version has left."""

from __future__ import annotations

import hashlib
import sqlite3
from base64 import b64encode
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees.behaviour import Behaviour
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.context import NodeContext
from jianmu.engine.state import Clear, StateManager
from jianmu.errors import SetupError, StateWriteError
from jianmu.message import human
from jianmu.nodes import AgentLLMNode, Finally, Repeat, Sequence, action
from jianmu.prebuilt import react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel, Turn
from jianmu.thread import ThreadState, ViewedImage, fork_thread, give_title, renamed, title_of_text
from jianmu.tool import ToolCall, tool
from tests.cases.leaves import SUCCESS
from tests.thread.test_state_laws import writes

pytestmark = pytest.mark.anyio


def writer(*updates: dict[str, Any]) -> Behaviour:
    """Return a node that makes these writes, one after the other."""

    @action
    def write(context: NodeContext) -> None:
        for update in updates:
            context.write_state(update)

    return write("write")


def thread(root: Behaviour, store: SQLiteStore | None) -> Agent[ThreadState]:
    """Return an agent on a thread's state."""
    return Agent(root, state_schema=ThreadState, store=store)


async def run_once(path: Path, root: Behaviour, **given: Any) -> Agent[ThreadState]:
    """Run a tree on the thread `t` in a program of its own, which is over then."""
    async with SQLiteStore(path) as store:
        made = thread(root, store)
        with anyio.fail_after(20):
            assert await made.run(given, thread_id="t") is SUCCESS
        return made


async def test_a_thread_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """Every field is there in another program, but for the paths of the machine and the files of the last message."""
    reference = {"mime_type": "image/png", "size": 3, "actual_path": "a.png"}
    kept: dict[str, Any] = {
        "sandbox": {"sandbox_id": "s"},
        "title": "Trees",
        "title_by": "model",
        "artifacts": ["a.html", "b.png"],
        "todos": [{"content": "x", "status": "pending"}],
        "viewed_images": {"a.png": reference},
        "promoted": {"catalog_hash": "h", "names": ["find"]},
        "goal": {"objective": "ship", "status": "active"},
        "delegations": [{"id": "d", "status": "running"}],
        "skill_context": [{"name": "s", "path": "s.md", "description": "", "loaded_at": 0}],
        "summary_text": "before",
        "structured_response": {"pages": 3},
    }
    paths = {"workspace_path": "/srv/w", "uploads_path": "/srv/u", "outputs_path": "/srv/o"}
    given = {"uploaded_files": [{"filename": "a.txt", "size": 3, "path": "a.txt", "extension": "txt"}]}
    first = await run_once(tmp_path / "t.db", writer({**kept, "thread_data": paths}), messages=human("hello"), **given)
    assert [one.filename for one in first.state.uploaded_files] == ["a.txt"]
    assert b"/srv/" not in (tmp_path / "t.db").read_bytes()
    second = await run_once(tmp_path / "t.db", writer())
    stored = second.state_manager.dump_checkpoint()["fields"]
    assert {name: stored[name] for name in kept} == kept
    assert second.state.messages == first.state.messages
    assert (second.state.thread_data, second.state.uploaded_files) == (None, [])


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_the_nodes_that_ask_and_act_work_on_it(tmp_path: Path) -> None:
    """A ready tree answers two turns, in two programs, on a thread's state: each message is there once, by id."""
    call = ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})
    turn = {"messages": [human("one and two?", id="q")]}
    with ScriptedModel([call, "three"]) as model:
        first = await run_once(tmp_path / "t.db", react(model=model, tools=[add]), **turn)
    assert [one.text for one in first.state.messages] == ["one and two?", "", "3", "three"]
    assert (first.state.final_answer, first.state.rounds, first.state.usage.requests) == ("three", 2, 2)
    with ScriptedModel(["four"]) as model:
        second = await run_once(tmp_path / "t.db", react(model=model, tools=[add]), **turn)
    assert second.state.messages[:4] == first.state.messages
    assert [one.text for one in second.state.messages[4:]] == ["four"]
    assert (second.state.rounds, second.state.usage.requests) == (1, 3)


@settings(max_examples=5)
@given(data=st.data())
def test_what_is_in_a_store_is_what_was_in_memory(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a run has written, in whatever order, is what another program reads."""
    named = st.sampled_from(sorted(writes)).flatmap(lambda name: st.fixed_dictionaries({name: writes[name]}))
    updates = data.draw(st.lists(named, max_size=12))
    path = tmp_path_factory.mktemp("law") / "t.db"

    async def twice() -> tuple[Any, Any]:
        first = await run_once(path, writer(*updates))
        async with SQLiteStore(path) as store:
            second = thread(writer(), store)
            await second.load("t")
            return first.state_manager.dump_checkpoint(), second.state_manager.dump_checkpoint()

    memory, stored = anyio.run(twice)
    assert stored["fields"] == memory["fields"]


async def test_t05_an_image_of_1_mb_leaves_no_bytes_in_the_store(tmp_path: Path) -> None:
    """T05, the state's part: viewed, 20 passes, cancelled in the model call: no row above 10 kB, no bytes of it."""
    image = tmp_path / "a.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\xa7\x13\xee" * 350_000)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    seen = ViewedImage(mime_type="image/png", size=image.stat().st_size, actual_path="outputs/a.png", digest=digest)
    model, asked = ScriptedModel([lambda _: (asked.append(True), Turn("late", delay=3600))[1]]), list[bool]()
    passes = Repeat("passes", writer({"repeats": {"look": 1}, "viewed_images": {"a.png": seen}}), times=20)
    root = Sequence("turn", memory=True, children=[passes, AgentLLMNode("think", model=model)])
    async with SQLiteStore(tmp_path / "t.db") as store:
        made = thread(root, store)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(made.run, {"messages": human("look")}, thread_id="t"))
                while not asked:
                    await checkpoint()
                group.cancel_scope.cancel()
        assert made.state.repeats == {"look": 20}
        shown = await store.show("t")
    assert shown.fields["viewed_images"] == {"a.png": seen.model_dump()}
    assert largest_row(tmp_path / "t.db") < 10_000
    kept = bytes_in(tmp_path)
    assert b"\xa7\x13\xee" * 10 not in kept
    assert b64encode(b"\xa7\x13\xee" * 10) not in kept


def largest_row(path: Path) -> int:
    """Return the size of the largest row of a database, as SQL."""
    with closing(sqlite3.connect(path)) as database:
        return max(len(line) for line in database.iterdump())


def bytes_in(folder: Path) -> bytes:
    """Return all that is in the files of a database."""
    return b"".join(one.read_bytes() for one in folder.glob("t.db*"))


async def test_t06_repeats_are_of_one_run_over_restarts(tmp_path: Path) -> None:
    """T06: five runs in five programs end with 1 each; one run of five calls ends with 5."""
    ends = list[int]()
    for calls in (1, 1, 1, 1, 1, 5):
        made = await run_once(tmp_path / "t.db", writer(*[{"repeats": {"search": 1}}] * calls))
        ends.append(made.state.repeats["search"])
    assert ends == [1, 1, 1, 1, 1, 5]


def titled(child: Behaviour) -> Behaviour:
    """Give the thread a title when its turn ends, in whatever way."""

    def cleanup(context: NodeContext) -> None:
        give_title(context, title_of_text(context.read_state().messages), by="text")

    return Finally("titled", child, cleanup)


async def test_t07_an_interrupted_first_turn_has_a_title(tmp_path: Path) -> None:
    """T07: halted in the first model call: the title is of the person's text, no model was asked, and it is stored."""
    asked = list[bool]()
    model = ScriptedModel([lambda _: (asked.append(True), Turn("late", delay=3600))[1]])
    async with SQLiteStore(tmp_path / "t.db") as store:
        made = thread(titled(AgentLLMNode("think", model=model)), store)

        async def halt() -> None:
            while not asked:
                await checkpoint()
            made.halt()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(halt)
                await made.run({"messages": human("How is tea\nmade?")}, thread_id="t")
    async with SQLiteStore(tmp_path / "t.db") as store:
        fields = (await store.show("t")).fields
    assert (fields["title"], fields["title_by"], asked) == ("How is tea made?", "text", [True])


async def test_a_rename_stays_in_a_fork_to_before(tmp_path: Path) -> None:
    """Renamed by a person, then forked to before that, in other programs: the fork has the new name, and keeps it."""
    path = tmp_path / "t.db"
    await run_once(path, titled(writer()), messages=human("How is tea made?"))
    async with SQLiteStore(path) as store:
        before = (await store.show("t")).number
        made = thread(writer(), store)
        await made.load("t")
        made.state_manager.update(renamed("Tea"))
        await made.save()
    async with SQLiteStore(path) as store:
        made = thread(titled(writer()), store)
        assert (await store.show("t", at=before)).fields["title"] == "How is tea made?"
        assert await fork_thread(made, "t", "fork", at=before) == "fork"
    async with SQLiteStore(path) as store:
        made = thread(titled(writer()), store)
        with anyio.fail_after(20):
            assert await made.run({"messages": human("And coffee?")}, thread_id="fork") is SUCCESS
        assert (made.state.title, made.state.title_by) == ("Tea", "person")
        assert [one.text for one in made.state.messages] == ["How is tea made?", "And coffee?"]
        fork = await fork_thread(made, "t", at=before)
        assert (await store.show(fork)).fields["title"] == "Tea"


async def test_a_fork_of_a_thread_that_nobody_renamed_has_the_title_of_then(tmp_path: Path) -> None:
    """What a model has called the thread later does not go back with the fork; without a store there is none."""
    path = tmp_path / "t.db"
    await run_once(path, writer({"title": "First", "title_by": "model"}))
    async with SQLiteStore(path) as store:
        before = (await store.show("t")).number
    await run_once(path, writer({"title": "Second", "title_by": "model"}))
    async with SQLiteStore(path) as store:
        made = thread(writer(), store)
        fork = await fork_thread(made, "t", at=before)
        assert (made.thread_id, made.state.title) == (fork, "First")
    with pytest.raises(SetupError, match=r"fork_thread needs the store that the threads are in: Agent\(\.\.\., store="):
        await fork_thread(thread(writer(), None), "t")


class Older(BaseModel):
    """How an older program has kept a thread."""

    skill_context: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    delegations: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    viewed_images: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    promoted: dict[str, Any] = Field(default_factory=dict[str, Any])
    artifacts: list[str] | None = None
    jump_to: str | None = None
    todos: Any = None


async def kept_by_an_older_program(path: Path, **fields: Any) -> None:
    """Have a program with other types store these fields."""
    async with SQLiteStore(path) as store:
        with anyio.fail_after(20):
            await Agent(writer(fields), state_schema=Older, store=store).run(thread_id="t")


async def test_what_an_older_program_has_stored_is_cleaned(tmp_path: Path) -> None:
    """Contents, bytes, names of no catalogue, entries without a key, and where to jump: none of it is there again."""
    await kept_by_an_older_program(
        tmp_path / "t.db",
        skill_context=[{"name": "a", "path": "a.md", "content": "whole text"}, {"name": "b"}],
        delegations=[{"status": "running"}, {"id": "d", "status": "failed"}],
        viewed_images={"a.png": {"base64": "QUFB", "mime_type": "image/png"}},
        promoted={"names": ["send"]},
        artifacts=["a", "a"],
        jump_to="model",
    )
    made = await run_once(tmp_path / "t.db", writer({"artifacts": ["a"], "viewed_images": Clear()}))
    stored = made.state_manager.dump_checkpoint()["fields"]
    assert [one.path for one in made.state.skill_context] == ["a.md"]
    assert [one.id for one in made.state.delegations] == ["d"]
    assert (made.state.promoted, made.state.artifacts) == (None, ["a"])
    assert "whole text" not in str(stored)
    assert "jump" not in str(stored)


async def test_what_cannot_be_a_plan_is_refused_on_load(tmp_path: Path) -> None:
    """A thread whose stored plan is none is not opened: the error names the field, and nothing was changed."""
    await kept_by_an_older_program(tmp_path / "t.db", todos=[{"task": "secret"}])
    async with SQLiteStore(tmp_path / "t.db") as store:
        made = thread(writer(), store)
        with pytest.raises(StateWriteError, match="field 'todos' takes") as caught:
            await made.load("t")
        assert "secret" not in str(caught.value)
        assert made.state == StateManager(ThreadState).get()


async def test_a_conversation_is_cheap_to_keep(tmp_path: Path) -> None:
    """A turn of a long thread stores what it adds, not the conversation."""
    await run_once(tmp_path / "t.db", writer(), messages=[human(f"message {number}") for number in range(500)])
    size = (tmp_path / "t.db").stat().st_size
    await run_once(tmp_path / "t.db", writer({"artifacts": ["b"]}), messages=human("one more"))
    assert (tmp_path / "t.db").stat().st_size - size < 20_000
