"""What the model is told of the files that people have sent: in the request only, by virtual paths.

No name of a file can end its line or the block that it is in.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, cast  # Any: snapshots

from py_trees.behaviour import Behaviour

from jianmu.message import Message
from jianmu.model.base import ModelRequest
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.pairing import Held
from jianmu.nodes.projections import RequestProjection, is_added, note
from jianmu.thread.files import VIRTUAL, Entry, ThreadFiles, parts_of, virtual
from jianmu.thread.items import UploadedFile
from jianmu.thread.part import Kinds, Part
from jianmu.thread.paths import ThreadFolders, checked_folders
from jianmu.thread.uploads import UPLOADS, Uploads, all_found, named_in
from jianmu.tool.types import FilePart, ImagePart, TextPart

MOST = 100
"""Lines about older files that a request has."""
_LOOKED_AT = 1000
_DEPTH = 4
_SHOWN = 200
_BEING_WRITTEN = re.compile(r"\.[0-9a-f]{16}\.new")


class ShownUploads(Part, RequestProjection):
    """Tell the model, in the request only, of the files that came with the message and of the older ones there are.

    The block stands after the newest message of a person. A part of a message whose path is virtual becomes a text that
    names it: what is in the file the model reads with a tool. Files that the message names and that are not there are
    named too. Reads `uploaded_files`, `messages` and the folder of the thread.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what is below.
        folders: where the folders of threads are.
    """

    reads: ClassVar[tuple[str, ...]] = ("uploaded_files", "messages")
    requires: ClassVar[Kinds] = (Uploads,)
    wraps: ClassVar[Kinds] = (AgentLLMNode,)
    twice: ClassVar[str] = "the model would be told of each file"

    def __init__(self, name: str, child: Behaviour, *, folders: ThreadFolders) -> None:
        super().__init__(name, child)
        self.folders = checked_folders(f'ShownUploads("{name}", child, ', folders)
        self._held = Held()
        self._named: list[Message] = []

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with the block of files."""
        messages = self._with_names(request.messages)
        lines = [*self._lines(snapshot.uploaded_files, _newest(snapshot.messages))]
        if lines:
            messages.insert(_after_person(messages), note(f"uploaded_files:{self.context.path}", "\n".join(lines)))
        return replace(request, messages=messages)

    def _with_names(self, messages: Sequence[Message]) -> list[Message]:
        """Return a request's messages with names for files; of one that goes on, only what is new is read."""
        start = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
        talk = [*messages[start:]]  # a system prompt is a new message in each request
        fresh = self._held.fresh(talk)
        kept = [] if fresh is None else self._named
        new = talk if fresh is None else fresh
        self._named = [*kept, *(one if isinstance(one.content, str) else _with_names(one) for one in new)]
        self._held.hold(talk)
        return [*messages[:start], *self._named]

    def _lines(self, current: Sequence[UploadedFile], message: Message | None) -> Iterator[str]:
        if current:
            yield "Files that came with this message:"
            yield from (_line(one.path, one.size) for one in current)
        files, known = self.folders.files(self.context.thread_id), {virtual(parts_of(one.path)) for one in current}
        lost = [] if message is None else _lost(files, named_in(message)[:MOST], known)
        if lost:
            yield "Files that this message names and that are not in the uploads:"
            yield from (f"- {_told(path.removeprefix(f'{UPLOADS}/')[:_SHOWN])}" for path in lost)
        older = [one for one in _older(files) if one.path not in known]
        if older:
            yield "Files of earlier messages:"
            yield from (_line(one.path, one.size) for one in older[:MOST])
            yield from [f"and more: look into {UPLOADS}"] if len(older) > MOST else []


def _newest(messages: Sequence[Message]) -> Message | None:
    """Return the newest message of a person, or None."""
    return next((one for one in reversed(messages) if one.role == "human" and not is_added(one)), None)


def _lost(files: ThreadFiles, named: Sequence[str], known: Collection[str]) -> list[str]:
    """Return which paths are those of no file in the uploads."""
    return [path for path in named if path not in known and not all_found(files, [path])]


def _after_person(messages: Sequence[Message]) -> int:
    """Return the place after the newest message of a person, or the end."""
    for place in range(len(messages), 0, -1):
        if messages[place - 1].role == "human" and not is_added(messages[place - 1]):
            return place
    return len(messages)


def _older(files: ThreadFiles) -> list[Entry]:
    """Return the files in the uploads, of as many entries as are looked at."""
    if not os.path.isdir(files.folder):  # noqa: PTH112  # a text
        return []
    try:
        with closing(cast("Any", files.walk(UPLOADS, _DEPTH))) as entries:
            looked_at: list[Entry] = [*itertools.islice(entries, _LOOKED_AT)]
    except ValueError:
        return []  # it cannot be looked into: the model is told of the current files
    return [one for one in looked_at if one.kind == "file" and not _BEING_WRITTEN.fullmatch(_name(one))]


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def _line(path: str, size: int) -> str:
    return f"- {_told(path)} ({size} bytes)"


def _told(path: str) -> str:
    """Return a path that ends neither its line nor the block."""
    return "".join(sign if sign.isprintable() and sign not in "<>" else f"\\u{ord(sign):04x}" for sign in path)


def _with_names(message: Message) -> Message:
    """Return a message in which files of the thread have become their names."""
    if isinstance(message.content, str) or message.role != "human" or is_added(message):
        return message
    content = tuple(_named_part(part) for part in message.content)
    return message if content == message.content else message.model_copy(update={"content": content})


def _named_part(part: TextPart | ImagePart | FilePart) -> TextPart | ImagePart | FilePart:
    if isinstance(part, TextPart) or part.path is None or not part.path.startswith(f"{VIRTUAL}/"):
        return part
    return TextPart(text=f"[{part.type}: {_told(part.path)}]")
