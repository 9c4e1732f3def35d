"""Where the files of each thread are, and the paths by which a model knows them.

A model sees `/mnt/user-data/workspace/report.md`, and never where that is on this machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import ClassVar

from py_trees.common import Status

from jianmu.engine.node import Node
from jianmu.errors import SetupError
from jianmu.thread.files import AREAS, VIRTUAL, ThreadFiles
from jianmu.thread.items import ThreadPaths
from jianmu.thread.part import Part

_PLAIN_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VIRTUAL = re.compile(rf"(?<![\w./-]){re.escape(VIRTUAL)}(?![\w-]|\.\w)")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)")


class ThreadFolders:
    """The folders of threads, below one folder. Nothing is made before it is used.

    A thread id that is a plain name is the name of its folder; of any other one, whatever it has in it, the folder has
    a digest as its name. Two threads never have one folder, also where capital letters do not count.

    Args:
        root: the folder that the others are in; only the program may write there.

    Raises:
        SetupError: `root` cannot be one.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        given = os.fspath(root)
        self.root = Path(given).resolve()
        if not given or self.root == Path(self.root.anchor):
            raise SetupError(
                f'ThreadFolders("{given}"): threads need a folder of their own, ThreadFolders("./threads")'
            )
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise SetupError("ThreadFolders needs a system on which files are opened in a folder: Linux or macOS")

    def folder(self, thread_id: str) -> Path:
        """Return where the files of a thread are.

        Raises:
            SetupError: the id is empty.
        """
        if not thread_id:
            raise SetupError("a thread without an id has no folder")
        if _PLAIN_ID.fullmatch(thread_id) and not _RESERVED.fullmatch(thread_id):
            return self.root / thread_id
        digest = hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self.root / f"t.{digest[:40]}"

    def paths(self, thread_id: str) -> ThreadPaths:
        """Return the paths of a thread, as the field `thread_data` has them."""
        folder = self.folder(thread_id)
        return ThreadPaths(**{f"{area}_path": folder / area for area in AREAS})

    def files(self, thread_id: str) -> ThreadFiles:
        """Return the files of a thread."""
        return ThreadFiles(self.folder(thread_id))

    def mask(self, thread_id: str, text: str) -> str:
        """Return a text with virtual paths in the place of those of this machine."""
        return masked(text, self.folder(thread_id), self.root)

    def expand(self, thread_id: str, text: str) -> str:
        """Return a text, a program for example, with the paths of this machine in the place of virtual ones."""
        return expanded(text, self.folder(thread_id))


def masked(text: str, folder: Path, root: Path) -> str:
    """Return a text in which the folder of a thread has its virtual path, and its root is not told."""
    for path, shown in ((folder, VIRTUAL), (root, "/mnt")):
        text = re.sub(re.escape(str(path)) + r"(?![\w-])", shown, text)
    return text


def expanded(text: str, folder: Path) -> str:
    """Return a text in which virtual paths are those of this machine."""
    return _VIRTUAL.sub(lambda _: str(folder), text)


def checked_folders(call: str, folders: object) -> ThreadFolders:
    """Return what was given as the folders of threads; `call` is how the call of the user begins.

    Raises:
        SetupError: it is something else.
    """
    if not isinstance(folders, ThreadFolders):
        raise SetupError(f'write {call}folders=ThreadFolders("./threads")), not folders={folders!r}')
    return folders


class ThreadData(Part, Node):
    """Write where the thread's files are, `thread_data`, in each run anew: no checkpoint has it.

    Reads nothing; writes `thread_data`. It comes before everything that reads that field, such as tasks: the first
    child of the run.
    SUCCESS at once.

    Args:
        name: the node's name.
        folders: where the folders of threads are.
    """

    writes: ClassVar[tuple[str, ...]] = ("thread_data",)

    def __init__(self, name: str | None = None, *, folders: ThreadFolders) -> None:
        super().__init__(name)
        self.folders = checked_folders(f'ThreadData("{self.name}", ', folders)

    def update(self) -> Status:
        """Write the paths, unless they are there."""
        paths = self.folders.paths(self.context.thread_id)
        if self.context.manager.read("thread_data") != paths:
            self.write_state({"thread_data": paths})
        return Status.SUCCESS
