"""The files that people send along: kept in the thread's folder, never in a message.

1. What a message says of a file is not believed: only plain files in the thread's uploads are taken, and their sizes
   and types are those on the disk.
2. The field `uploaded_files` has those of the current message; older ones are found in the folder.
"""

from __future__ import annotations

import itertools
import mimetypes
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast  # Any: JSON, and snapshots

import anyio.to_thread
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.node import AsyncNode
from jianmu.errors import SetupError
from jianmu.message import Message
from jianmu.nodes import conversation
from jianmu.nodes.llm import AgentLLMNode
from jianmu.thread.files import VIRTUAL, TakenError, ThreadFiles, parts_of, virtual
from jianmu.thread.items import UploadedFile
from jianmu.thread.part import Kinds, Part, nodes_above, nodes_around
from jianmu.thread.paths import ThreadData, ThreadFolders, checked_folders
from jianmu.tool.types import TextPart

UPLOADS = f"{VIRTUAL}/uploads"
"""Where the model finds the files that people have sent."""
KEY = "files"
"""The key of a message's metadata under which its files are: names, or objects with a `filename` or a `path`."""
MOST = 100
"""Files of one message that are taken."""
_TRIES = 1000
_NAME_BYTES = 200


def save_upload(folders: ThreadFolders, thread_id: str, filename: str, data: bytes) -> UploadedFile:
    """Put a file into the uploads of a thread, whole or not at all; another one of its name stays.

    Send it along with `human(text, metadata={"files": [file.filename]})`.

    Args:
        folders: where the folders of threads are.
        thread_id: the thread; it need not have begun.
        filename: as people call it; folders in it are left out, and so is what no name may have.
        data: what is in it.

    Returns:
        The file under the name that it has there.

    Raises:
        SetupError: an argument is something else.
        ValueError: it cannot be written.
    """
    call = 'save_upload(ThreadFolders("./threads"), thread_id, "sales.csv", data)'
    if not isinstance(folders, ThreadFolders):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
        raise SetupError(f"write {call}, with the folders of the agent's parts, not a {type(folders).__name__}")
    if not isinstance(filename, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
        raise SetupError(f"{call} takes the name of the file as a text, not {type(filename).__name__}")
    if not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
        raise SetupError(f"{call} takes the bytes of the file, not a {type(data).__name__}: write text.encode()")
    files, (stem, ending) = folders.files(thread_id), os.path.splitext(_plain_name(filename))  # noqa: PTH122  # of a name
    for number in itertools.count(1):
        path = f"{UPLOADS}/{stem}{f' ({number})' if number > 1 else ''}{ending}"
        try:
            files.write(path, data, new=True)
        except TakenError:
            if number < _TRIES:
                continue
            raise
        return _found(files, path)
    raise AssertionError


def _plain_name(filename: str) -> str:
    """Return the name under which a file is kept."""
    name = unicodedata.normalize("NFC", filename.encode("utf-8", "replace").decode()).replace("\\", "/")
    name = "".join(sign if sign.isprintable() else "_" for sign in name.rpartition("/")[2]).strip(" .")
    stem, ending = os.path.splitext(name)  # noqa: PTH122  # of a name
    ending = ending if len(ending.encode()) <= 32 else ""
    return stem.encode()[:_NAME_BYTES].decode(errors="ignore").strip(" .") + ending if stem else "file"


def _found(files: ThreadFiles, path: str) -> UploadedFile:
    """Return what is known of a file in the uploads.

    Raises:
        ValueError: there is no such file, or it is elsewhere.
    """
    parts = parts_of(path)
    if parts[:1] != ("uploads",):
        raise ValueError(f"'{virtual(parts)}' is not in {UPLOADS}")
    path = "/".join((VIRTUAL, *parts))
    opened = files.descriptor(path)
    try:
        size = os.fstat(opened).st_size
    finally:
        os.close(opened)
    name = parts[-1]
    kind, _ = mimetypes.guess_type(name)
    ending = os.path.splitext(name)[1][1:]  # noqa: PTH122  # of a name
    return UploadedFile(filename=name, size=size, path=path, extension=ending, mime_type=kind)


class Uploads(Part, AsyncNode):
    """Write the files that came with the current message: `uploaded_files`, `[]` in a run whose message has none.

    The current message is the last of the conversation, if it is a person's. Its files are those that its metadata
    names under `files`, a list or one name, and its parts whose path is virtual. What is not a plain file in the
    thread's uploads is left out; the feedback, the log and ShownUploads say so. It comes before the model
    that is told of them; best as the first child of the run, after ThreadData.
    Reads `messages`; writes `uploaded_files`, also over what the caller's input has there.
    SUCCESS when they are written.
    RUNNING while the folder is looked at.
    Halting leaves the field as it is.

    Args:
        name: the node's name.
        folders: where the folders of threads are.
    """

    reads: ClassVar[tuple[str, ...]] = ("messages",)
    writes: ClassVar[tuple[str, ...]] = ("uploaded_files",)
    after: ClassVar[Kinds] = (ThreadData,)
    before: ClassVar[Kinds] = (AgentLLMNode,)

    def __init__(self, name: str | None = None, *, folders: ThreadFolders) -> None:
        super().__init__(name)
        self.folders = checked_folders(f'Uploads("{self.name}", ', folders)

    def concerns(self, node: Behaviour) -> bool:
        """Whether a model is told of the files; where there is nothing that tells of them, any may be."""
        tells = [one for one in nodes_around(self) if isinstance(one, Part) and "uploaded_files" in one.reads]
        return not isinstance(node, AgentLLMNode) or not tells or any(above in tells for above in nodes_above(node))

    async def update_async(self) -> Status:
        """Look at the files that the message names."""
        message = _current(conversation.messages_of(self.context))
        named = [] if message is None else named_in(message)
        found: list[UploadedFile] = []
        if named:
            files = self.folders.files(self.context.thread_id)
            with self.context.clock.working():
                found = await anyio.to_thread.run_sync(all_found, files, named[:MOST], abandon_on_cancel=True)
        if len(found) < len(named):
            self.feedback_message = f"left out {len(named) - len(found)} files that are not in the uploads"
            there = {one.path for one in found}
            lost = [path[:_NAME_BYTES] for path in named if path not in there][:MOST]
            self.context.log.warning("files of a message are not in the uploads", files=lost)
        if self.context.manager.read("uploaded_files") != found:
            self.write_state({"uploaded_files": found})
        return Status.SUCCESS


def _current(messages: Sequence[Message]) -> Message | None:
    """Return the message that has not been answered yet, or None."""
    last = next((one for one in reversed(messages) if one.role != "system"), None)
    return last if last is not None and last.role == "human" else None


def named_in(message: Message) -> list[str]:
    """Return the paths of the files that a message says it has, each once."""
    return [*dict.fromkeys(_named(message))]


def _named(message: Message) -> Iterator[str]:
    listed: Any = (message.metadata or {}).get(KEY)
    for one in [listed] if isinstance(listed, str) else cast("list[Any]", listed) if isinstance(listed, list) else []:
        given = _path_in(one)
        if given:
            yield given
    for part in message.content if not isinstance(message.content, str) else ():
        if not isinstance(part, TextPart) and part.path is not None and part.path.startswith(f"{VIRTUAL}/"):
            yield part.path


def _path_in(entry: Any) -> str | None:
    """Return the path of a file that a message's metadata names."""
    if isinstance(entry, Mapping):
        known = cast("Mapping[str, Any]", entry)
        path, entry = known.get("path"), known.get("filename")
        if isinstance(path, str) and path.startswith(f"{VIRTUAL}/"):
            return path
    return f"{UPLOADS}/{entry}" if isinstance(entry, str) and entry else None


def all_found(files: ThreadFiles, paths: Sequence[str]) -> list[UploadedFile]:
    """Return what is known of files, each once, without those that are not there."""
    found: dict[str, UploadedFile] = {}
    for path in paths:
        try:
            one = _found(files, path)
        except ValueError:
            continue
        found[one.path] = one
    return [*found.values()]
