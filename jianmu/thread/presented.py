"""The tool with which the model shows people the files that it has made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from jianmu.engine.context import NodeContext
from jianmu.thread.files import VIRTUAL, ThreadFiles, parts_of
from jianmu.thread.part import fields_for
from jianmu.thread.paths import ThreadFolders, checked_folders
from jianmu.tool.base import Tool

OUTPUTS = f"{VIRTUAL}/outputs"
"""Where the files are that may be shown."""
MOST = 100
"""Files of one call."""


def present_files(folders: ThreadFolders) -> Tool:
    """Return the tool `present_files`, which adds files to the field `artifacts`: all that a call names, or none.

    They are plain files in the thread's outputs: no folders, no links. Calls of one reply lose nothing of each other.

    Args:
        folders: where the folders of threads are.

    Raises:
        SetupError: that is something else; when it is called, also: the state has no `artifacts`.
    """
    held = checked_folders("present_files(", folders)

    async def present_files(
        paths: Annotated[list[str], Field(min_length=1, max_length=MOST)], context: NodeContext
    ) -> str:
        """Show finished files to the person. They must be in /mnt/user-data/outputs; others are copied there first.

        Args:
            paths: the files, /mnt/user-data/outputs/...
            context: of the node that calls.
        """
        fields_for(context, "artifacts")
        files = held.files(context.thread_id)
        with context.clock.working():
            found = await anyio.to_thread.run_sync(_presentable, files, paths, abandon_on_cancel=True)
        context.write_state({"artifacts": found})
        return f"The person is shown: {', '.join(found)}"

    return Tool(present_files, idempotent=True)


def _presentable(files: ThreadFiles, paths: Sequence[str]) -> list[str]:
    """Return the whole virtual paths of files, each once.

    Raises:
        ValueError: one of them cannot be shown; it tells of all that cannot.
    """
    found: list[str] = []
    problems: list[str] = []
    for path in paths:
        try:
            found.append(_checked(files, path))
        except ValueError as error:
            problems.append(f"- {error}")
    if problems:
        raise ValueError("\n".join(["none of these files was shown:", *problems]))
    return [*dict.fromkeys(found)]


def _checked(files: ThreadFiles, path: str) -> str:
    parts = parts_of(path)
    whole = "/".join((VIRTUAL, *parts))
    if parts[:1] != ("outputs",):
        raise ValueError(f"'{whole}' is not in {OUTPUTS}: copy it there first")
    os.close(files.descriptor(whole))
    return whole
