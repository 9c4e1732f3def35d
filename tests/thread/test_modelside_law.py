"""The model side of a thread as a whole: wherever a run is broken off, another process brings it to the same end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.message import human
from jianmu.model import ModelRequest, ScriptedModel
from jianmu.nodes import AgentLLMNode, Finally
from jianmu.nodes import Sequence as InOrder
from jianmu.thread import (
    Compact,
    FinishPlan,
    ForgetImages,
    PlanReminder,
    ShownImages,
    ShownUploads,
    ThreadData,
    ThreadFolders,
    ThreadState,
    Title,
    Uploads,
    present_files,
    save_upload,
    view_image,
    write_todos,
)
from jianmu.tool.types import ImageBytes
from tests.cases.leaves import SUCCESS
from tests.nodes.test_projections import check_paired
from tests.thread.turns import call, positions, rounds

pytestmark = pytest.mark.anyio

AT = "/mnt/user-data"
PNG = b"\x89PNG\r\n\x1a\n"
GO: Any = {"messages": [human("go", id="go", metadata={"files": ["u.txt"]})]}
PLAN: Any = [{"content": "first"}, {"content": "second"}]


class World:
    """The files of a thread, and models that answer by what they are asked, so that an answer is not an accident.

    Args:
        root: where the folders of threads are.
    """

    def __init__(self, root: Path) -> None:
        self.folders = ThreadFolders(root)
        self.folders.files("t").write(f"{AT}/workspace/a.png", PNG)
        self.folders.files("t").write(f"{AT}/outputs/r.html", b"x")
        save_upload(self.folders, "t", "u.txt", b"1")
        self.requests: list[ModelRequest] = []
        self.named = 0

    def says(self, request: ModelRequest) -> Any:
        """Return the reply to a request."""
        self.requests.append(request)
        text = " ".join(message.text for message in request.messages)
        done = {one.id for message in request.messages for one in message.tool_calls} | {*text.split()}
        if "You have given a final answer" in text:
            return call("c4", "write_todos", todos=[])
        if "c1" not in done:
            return call("c1", "write_todos", todos=PLAN)
        if "c2" not in done:
            return [call("c2", "view_image", path="a.png"), call("c3", "present_files", paths=[f"{AT}/outputs/r.html"])]
        return "the end" if "c4" in done else "too early"

    def remembers(self, request: ModelRequest) -> str:
        """Return a summary: which calls there were."""
        text = request.messages[-1].text
        marks = {"c1": "first", "c2": "view_image", "c4": '"todos": []'}
        return " ".join(["remembered", *(id for id, mark in marks.items() if mark in text or id in text.split())])

    def titles(self, request: ModelRequest) -> str:
        """Return a title."""
        self.named += 1
        return "A title"

    def agent(self, **options: Any) -> Agent[Any]:
        """Return an agent with all parts of the model side."""
        think = AgentLLMNode("think", model=ScriptedModel([self.says] * 99))
        memory = ScriptedModel([self.remembers] * 99)
        node: Any = Compact("compact", think, model=memory, messages=5, tokens=None)
        node = ShownImages("images", node, folders=self.folders)
        node = PlanReminder("remind", ShownUploads("files", node, folders=self.folders))
        tools = [write_todos, view_image(self.folders), present_files(self.folders)]
        steps = [
            ThreadData("data", folders=self.folders),
            Uploads("uploads", folders=self.folders),
            rounds(node, ForgetImages("forget"), FinishPlan("finish"), tools=tools),
            Title("title", model=ScriptedModel([self.titles] * 99)),
        ]
        tree = Finally("run", InOrder("main", memory=True, children=steps), Title.fallback)
        return Agent(tree, ThreadState, clock=VirtualClock(autojump=True), **options)

    def seen(self) -> int:
        """Return how many requests had the image."""
        parts = [
            [part for message in one.messages if isinstance(message.content, tuple) for part in message.content]
            for one in self.requests
        ]
        return sum(any(isinstance(part, ImageBytes) for part in one) for one in parts)


def end_of(agent: Agent[Any]) -> dict[str, Any]:
    """Return what a thread has in the end, apart from ids."""
    state = agent.state
    kept = ("final_answer", "todos", "artifacts", "viewed_images", "uploaded_files", "repeats", "summary_text")
    said = [(one.role, one.text, one.tool_call_id, one.is_error) for one in state.messages]
    return {"said": said, "title": bool(state.title), **{name: getattr(state, name) for name in kept}}


async def ended(agent: Agent[Any]) -> list[Any]:
    """Run an agent to its end, and return its checkpoints on the way."""

    async def through() -> None:
        assert await agent.run(GO, thread_id="t") is SUCCESS

    return await positions(agent, through)


async def test_a_turn_with_all_parts_comes_to_its_end(tmp_path: Path) -> None:
    """The plan is written and closed, one answer is sent back, one request has the image, and all can be sent."""
    world = World(tmp_path)
    agent = world.agent()
    with anyio.fail_after(30):
        found = await ended(agent)
    end = end_of(agent)
    assert [role for role, *_ in end["said"]] == [
        "human", "ai", "tool", "ai", "tool", "tool", "ai", "ai", "tool", "ai"
    ]  # fmt: skip
    assert (end["final_answer"], end["title"], end["repeats"]) == ("the end", True, {"todos:sent-back": 1})
    assert (end["todos"], end["artifacts"], end["viewed_images"]) == ([], [f"{AT}/outputs/r.html"], {})
    assert [one.filename for one in end["uploaded_files"]] == ["u.txt"]
    assert (world.seen(), world.named, "c2" in end["summary_text"]) == (1, 1, True)
    for request in world.requests:
        check_paired(request.messages)
        assert any(message.id == "go" for message in request.messages)
    kept = json.dumps(found, default=str)
    assert "PNG" not in kept
    assert str(tmp_path) not in kept


@pytest.mark.slow_on_trio
async def test_from_every_position_another_process_comes_to_the_same_end(tmp_path: Path, *, full: bool) -> None:
    """A position in the run, put into a new agent: the same conversation, plan, files, counts and summary."""
    one = World(tmp_path)
    agent = one.agent()
    with anyio.fail_after(400 if full else 100):
        found = await ended(agent)
        assert len(found) > 30
        for data in found if full else found[:: len(found) // 30]:
            other = World(tmp_path)
            again = other.agent()
            again.load_checkpoint(data)
            assert (await again.recover()).status is SUCCESS
            assert end_of(again) == end_of(agent)
            assert other.seen() <= 1
