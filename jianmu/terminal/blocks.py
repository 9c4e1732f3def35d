"""What a chat shows, block by block."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

JOINERS = "\u200c\u200d"  # they hold the parts of one sign together
ReplyState = Literal["live", "done", "stopped", "void"]
CallState = Literal["wanted", "asks", "running", "done", "failed", "stopped"]
NoteKind = Literal["info", "warning", "error"]


@dataclass(kw_only=True, slots=True)
class Block:
    """The base of all blocks; they change in place.

    Attributes:
        key: the block's number in its transcript.
    """

    key: int = 0


@dataclass(slots=True)
class Said(Block):
    """What the person has said."""

    text: str


@dataclass(slots=True)
class Reply(Block):
    """What a model says; its text only grows.

    Attributes:
        path: the node that asked the model, where that is known.
        pieces: the text as it came in.
        state: "void" where another attempt takes its place, "stopped" where it was broken off.
        is_message: whether it is a message of the conversation.
    """

    path: str | None = None
    pieces: list[str] = field(default_factory=list[str])
    state: ReplyState = "live"
    is_message: bool = False

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Thought(Block):
    """What a model thinks before it answers; its text only grows, and is in no conversation.

    Attributes:
        path: the node that asked the model.
        pieces: the text as it came in.
        state: as that of a reply.
    """

    path: str
    pieces: list[str] = field(default_factory=list[str])
    state: ReplyState = "live"

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Call(Block):
    """A tool that the model wants to be called.

    Attributes:
        id: the call's.
        name: the tool's.
        arguments: by parameter, or the text that the model wrote instead of JSON.
        state: how it stands.
        result: what came of it, as the model sees it.
        is_question: whether the call is a question to the person.
    """

    id: str
    name: str
    arguments: JsonValue = None
    state: CallState = "wanted"
    result: str | None = None
    is_question: bool = False


@dataclass(slots=True)
class Asking(Block):
    """A question of the run.

    Attributes:
        id: the question's.
        text: what is asked.
        path: the node that asks.
        end: how it ended, or an empty text.
        answer: what was answered.
    """

    id: str
    text: str
    path: str = ""
    end: str = ""
    answer: str = ""


@dataclass(slots=True)
class Note(Block):
    """What the chat itself has to say."""

    text: str
    kind: NoteKind = "info"


def safe(text: str) -> str:
    """Return a text with its lines as they are, and with what a terminal would obey written out as an escape."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    if text.replace("\n", "").isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character == "\n" or character in JOINERS:
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def short(value: JsonValue, most: int = 200) -> str:
    """Return a JSON value on one line of at most so many characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(safe(text[: most * 2]).split())
    return line if len(line) <= most and len(text) <= most * 2 else f"{line[: most - 1]}…"
