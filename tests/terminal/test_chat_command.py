"""`jianmu chat`, in this process and in a real terminal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jianmu.cli import chat as command
from jianmu.cli import main
from jianmu.errors import SetupError
from jianmu.model import ChatModel
from tests.cli.command import Terminal

HERE = Path(__file__).parent
ALTERNATE = (b"\x1b[?1049h", b"\x1b[?1049l")


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command believe that somebody is there."""
    monkeypatch.setattr(command, "_has_terminal", lambda: True)
    monkeypatch.chdir(HERE)


def chatting(*arguments: str, folder: Path) -> Terminal:
    """Start a chat in a terminal."""
    return Terminal("chat", *arguments, "--store", str(folder / "runs.db"), cwd=HERE)


def end(terminal: Terminal) -> int:
    """Quit, and see that the terminal is as it was."""
    terminal.type("\x11")
    code = terminal.end()
    assert terminal.raw.rfind(ALTERNATE[1]) > terminal.raw.rfind(ALTERNATE[0])
    return code


def test_without_a_terminal_it_says_what_works_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe is refused before anything is run."""
    assert main(["chat", "talkers:quick"]) == 2
    assert capsys.readouterr().err == (
        "error: a chat needs a terminal: `jianmu run talkers:quick --input JSON` runs an agent without one\n"
    )


@pytest.mark.usefixtures("at_terminal")
def test_without_the_extra_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of pip is in the error."""
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert main(["chat", "talkers:quick"]) == 1
    assert "the chat needs the extra 'cli': pip install 'jianmu[cli]'" in capsys.readouterr().err


@pytest.mark.usefixtures("at_terminal")
@pytest.mark.parametrize("more", [["--model", "openai:x"], ["--system", "be brief"], ["--thread-agent", "openai:x"]])
def test_an_agent_has_models_of_its_own(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Options of a model beside an agent are a mistake."""
    assert main(["chat", "talkers:quick", *more]) == 2
    assert "--model, --thread-agent and --system are for a chat without an agent" in capsys.readouterr().err


@pytest.mark.usefixtures("at_terminal")
def test_an_agent_without_a_conversation_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the line to write, and before a store is made."""
    place = tmp_path / "runs.db"
    assert main(["chat", "talkers:mute", "--store", str(place)]) == 1
    assert "write messages: Annotated[list[Message], operator.add]" in capsys.readouterr().err
    assert not place.exists()


@pytest.mark.usefixtures("at_terminal")
def test_one_talks_with_a_model_or_with_an_assistant(capsys: pytest.CaptureFixture[str]) -> None:
    """Both at once is a mistake."""
    assert main(["chat", "--model", "openai:x", "--thread-agent", "openai:x"]) == 2
    assert "--model talks with a model, --thread-agent with an assistant that has one" in capsys.readouterr().err


class Keyless(ChatModel):
    """A model whose key is missing, as is found when it is opened."""

    name = "openai:gpt-6-luna"

    async def open(self) -> None:
        """Find nothing."""
        raise SetupError("Set the `OPENAI_API_KEY` environment variable. To try Pydantic AI without one, do that")


@pytest.mark.usefixtures("at_terminal")
def test_a_model_without_a_key_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing, the three ways, and an offer; who declines it is done."""
    monkeypatch.setattr(command, "lookup", lambda _: Keyless())
    monkeypatch.setattr("builtins.input", lambda prompt: "n" if "[Y/n]" in prompt else "")
    assert main(["chat", "--model", "openai:gpt-6-luna"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("error: Set the `OPENAI_API_KEY` environment variable.\n\nThere are three ways")
    for way in ("--model anthropic:", "--model ollama:", "'openai_compatible:http://", "jianmu chat module:agent"):
        assert way in out


@pytest.mark.usefixtures("at_terminal")
def test_a_name_that_is_none_is_explained_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The form of a model's name stands in the error; the end of the input declines the offer."""

    def ended(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert main(["chat", "--model", "gpt"]) == 2
    assert capsys.readouterr().out.startswith("error: a model is named 'provider:model'")


@pytest.mark.usefixtures("at_terminal")
def test_anything_but_yes_or_no_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what can be typed."""
    typed, asked = iter(["what?", "q", " No "]), list[str]()

    def said(prompt: str) -> str:
        asked.append(prompt)
        return next(typed)

    monkeypatch.setattr("builtins.input", said)
    assert main(["chat"]) == 2
    assert asked[1:] == ["Type y or n. [Y/n] "] * 2
    assert "No model was named" in capsys.readouterr().out


def test_without_anything_it_offers_the_scripted_assistant(tmp_path: Path) -> None:
    """Enter takes it; it calculates, asks before it notes, and says at the end how to go on."""
    with chatting(folder=tmp_path) as terminal:
        terminal.expect("No model was named, and no agent.")
        terminal.expect("Talk with the built-in scripted assistant for now? [Y/n]")
        terminal.type("\r")
        terminal.expect("ready")
        terminal.type("17 * 23\r")
        terminal.expect("391")
        terminal.expect("Anything else?")
        terminal.expect("ready")
        terminal.type("note: milk\r")
        terminal.expect("May 'save_note' be called?")
        terminal.type("\x19")
        terminal.expect("noted: milk")
        terminal.expect("ready")
        assert end(terminal) == 0
        assert "go on with this chat: jianmu chat --model scripted --thread chat-" in terminal.shown


def test_the_assistant_works_in_a_sandbox_beside_the_store(tmp_path: Path) -> None:
    """A command of the script runs in the thread's folder; the chat says at its end how to go on."""
    with chatting("--thread-agent", "scripted", "--thread", "t1", folder=tmp_path) as terminal:
        terminal.expect("ready")
        terminal.type("$ echo 4711 | tee kept.txt\r")
        terminal.expect("Done: 4711")
        terminal.expect("ready")
        assert end(terminal) == 0
        assert "go on with this chat: jianmu chat --thread-agent scripted --thread t1" in terminal.shown
    assert (tmp_path / "threads" / "t1" / "workspace" / "kept.txt").read_text() == "4711\n"


def test_a_chat_that_was_killed_at_a_question_is_opened_at_it(tmp_path: Path) -> None:
    """Ctrl-C ends a turn only; the next one dies at its question, which is there again; SIGTERM ends the chat."""
    with chatting("talkers:slow", "--thread", "t1", folder=tmp_path) as terminal:
        terminal.expect("ready")
        terminal.type("hello\r")
        terminal.expect("no language model")
        terminal.type("\x03")
        terminal.expect("Stopped.")
        terminal.expect("ready")
        terminal.type("book a table\r")
        terminal.expect("At what time?")
        os.kill(terminal.process.pid, signal.SIGKILL)
        terminal.end()
    with chatting("talkers:slow", "--thread", "t1", folder=tmp_path) as terminal:
        terminal.expect("At what time?")
        terminal.type("\t\x1b[B \x19")
        terminal.expect("In whose name?")
        os.kill(terminal.process.pid, signal.SIGTERM)
        terminal.end()
        assert terminal.raw.rfind(ALTERNATE[1]) > terminal.raw.rfind(ALTERNATE[0])
        assert not terminal.has_children()
