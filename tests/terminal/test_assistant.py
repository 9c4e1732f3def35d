"""Whom one talks with without an agent, and what a chat needs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.errors import MissingExtraError, SetupError
from jianmu.model import ScriptedModel
from jianmu.terminal import chat
from jianmu.terminal.assistant import model_agent, scripted_agent, scripted_thread_agent
from jianmu.terminal.blocks import Call
from jianmu.terminal.conversation import Conversation
from tests.terminal.kit import SECONDS, agent_of, blocks, until

pytestmark = pytest.mark.anyio


async def answered(talk: Conversation, text: str, *answers: Any) -> tuple[str, ...]:
    """Say something, answer what is asked, and return the last block."""
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(talk.send, text)
            for answer in answers:
                await until(lambda: talk.questions)
                id = talk.questions[0].id
                await talk.answer(id, answer)
                await until(lambda id=id: id not in {one.id for one in talk.questions})
    return blocks(talk)[-1]


@pytest.mark.parametrize(
    ("said", "result"),
    [("17 * 23", "391"), ("what is 1+1?", "2"), ("-3 x 2.5", "-7.5"), ("9 - 4", "5"), ("1 / 4", "0.25")],
)
async def test_the_scripted_assistant_calculates(said: str, result: str) -> None:
    """A tool that needs nobody."""
    talk = Conversation(scripted_agent(0.0))
    assert await answered(talk, said) == ("Reply", f"Done: **{result}**. Anything else?", "done")


async def test_the_scripted_assistant_says_when_a_tool_fails() -> None:
    """A division by nothing is an error of the tool, and no end of the chat."""
    talk = Conversation(scripted_agent(0.0))
    assert "ZeroDivisionError" in (await answered(talk, "1/0"))[1]
    assert talk.transcript.blocks[-2] == Call(
        "call-1",
        "calculate",
        {"left": 1.0, "sign": "/", "right": 0.0},
        "failed",
        "'calculate' failed: ZeroDivisionError: float division by zero",
        key=2,
    )


async def test_the_scripted_assistant_asks_before_it_notes() -> None:
    """An approval, with other arguments, or a rejection."""
    talk = Conversation(scripted_agent(0.0))
    edited = {"approved": True, "editedArgs": {"text": "buy oats"}, "remember": False}
    assert "noted: buy oats" in (await answered(talk, "note: buy milk", edited))[1]
    assert "was rejected: no" in (await answered(talk, "note: more", {"approved": False, "reason": "no"}))[1]
    assert talk.agent.state.notes == ["buy oats"]


async def test_the_scripted_assistant_books_a_table() -> None:
    """A tool that asks two things."""
    talk = Conversation(scripted_agent(0.0))
    assert "a table at 21:00 for Ada" in (await answered(talk, "book a table", "21:00", "Ada"))[1]


async def test_the_scripted_assistant_says_what_it_is() -> None:
    """To anything else."""
    talk = Conversation(scripted_agent(0.0))
    assert "no language model" in (await answered(talk, "hello"))[1]


async def test_the_scripted_assistant_with_files_runs_commands(tmp_path: Path) -> None:
    """In the sandbox of its thread, which has a title then; without a sandbox a command is a text as any other."""
    talk = Conversation(scripted_thread_agent(tmp_path, 0.0))
    assert await answered(talk, "$ echo 47 > a.txt; cat a.txt") == ("Reply", "Done: **47**. Anything else?", "done")
    assert (tmp_path / talk.thread_id / "workspace" / "a.txt").read_text() == "47\n"
    assert talk.agent.state.title == "$ echo 47 > a.txt; cat a.txt"
    assert "no language model" in (await answered(Conversation(scripted_agent(0.0)), "$ echo 47"))[1]


async def test_a_model_by_itself_talks() -> None:
    """With a system prompt; its tokens are counted."""
    model = ScriptedModel(["Hello."])
    talk = Conversation(model_agent(model, "be brief"))
    assert await answered(talk, "hi") == ("Reply", "Hello.", "done")
    assert [(one.role, one.text) for one in model.requests[0].messages] == [("system", "be brief"), ("human", "hi")]


async def test_a_chat_needs_asyncio(anyio_backend: str) -> None:
    """Textual runs on nothing else; on trio it is refused before anything is shown."""
    if anyio_backend == "trio":
        with pytest.raises(SetupError, match=r"chat\(\) needs asyncio"):
            await chat(agent_of())


def test_without_the_extra_the_import_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of pip is in the error."""
    for name in [name for name in sys.modules if name.startswith("jianmu.terminal")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "textual"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    with pytest.raises(MissingExtraError, match=r"the chat needs the extra 'cli': pip install 'jianmu\[cli\]'"):
        importlib.import_module("jianmu.terminal")
