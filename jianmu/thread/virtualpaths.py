"""VirtualPaths: what a tool says of this machine's paths, a model is told with virtual ones."""

from __future__ import annotations

from typing import ClassVar

from py_trees.behaviour import Behaviour

from jianmu.engine.context import NodeContext
from jianmu.nodes.calldecorator import CallDecorator
from jianmu.nodes.tools import ToolExecutor
from jianmu.nodes.turn import CallOutcome
from jianmu.thread.part import Kinds, Part
from jianmu.thread.paths import ThreadFolders, checked_folders
from jianmu.tool.types import FilePart, ImagePart, TextPart, ToolCall


class VirtualPaths(Part, CallDecorator):
    """Put virtual paths in the place of this machine's, in what comes of each call: results and errors, parts too.

    It is the nearest to what carries out the calls, so that no other decorator cuts a path, or keeps it. A path that a
    tool writes in another way, in base64 for example, stays as it is.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what carries out calls.
        folders: where the folders of threads are.
    """

    wraps: ClassVar[Kinds] = (ToolExecutor,)

    def __init__(self, name: str, child: Behaviour, *, folders: ThreadFolders) -> None:
        super().__init__(name, child)
        self._folders = checked_folders(f'VirtualPaths("{name}", child, ', folders)

    async def refine(self, call: ToolCall, outcome: CallOutcome, context: NodeContext) -> CallOutcome:
        """Return the outcome with virtual paths."""
        content, thread = outcome.content, context.thread_id
        if isinstance(content, str):
            return outcome.model_copy(update={"content": self._folders.mask(thread, content)})
        parts: list[TextPart | ImagePart | FilePart] = []
        for part in content:
            texts = {field: value for field, value in part if isinstance(value, str)}
            parts.append(part.model_copy(update={key: self._folders.mask(thread, one) for key, one in texts.items()}))
        return outcome.model_copy(update={"content": tuple(parts)})
