"""What the model sees of the images that it has asked for: in one request that succeeds, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar  # Any: snapshots

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.node import Node
from jianmu.errors import BadRequestError, ContextTooLongError, ModelError, ModelRefusedError
from jianmu.message import human
from jianmu.model.base import ModelRequest
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.projections import ADDED, RequestProjection
from jianmu.thread.files import ThreadFiles
from jianmu.thread.images import LARGEST, digest_of, image_type
from jianmu.thread.items import ViewedImage
from jianmu.thread.part import Kinds, Part, nodes_above, nodes_around
from jianmu.thread.paths import ThreadFolders, checked_folders
from jianmu.tool.types import ImageBytes, TextPart

TOGETHER = LARGEST
"""Bytes of images that one request has."""
REFUSED = (BadRequestError, ContextTooLongError, ModelRefusedError)
"""How a request fails that is not taken for what it holds."""


class ShownImages(Part, RequestProjection):
    """Put the images that the model has asked to see into the request: their bytes are nowhere else.

    They are a message at its end. A file that is gone, or is no longer what was asked for, is told as a text, and so
    are images for which there is no room. Reads `viewed_images` and the folder of the thread. By the ForgetImages after
    the model, which it needs, an image is in the requests up to the first one that succeeds. One that was refused for
    what it holds may have been so for its images: they are forgotten, or no later one would be taken.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what is below.
        folders: where the folders of threads are.

    Attributes:
        shown: what the last request had of them, by path.
    """

    reads: ClassVar[tuple[str, ...]] = ("viewed_images",)
    writes: ClassVar[tuple[str, ...]] = ("viewed_images",)
    wraps: ClassVar[Kinds] = (AgentLLMNode,)
    twice: ClassVar[str] = "each image would be shown"

    def __init__(self, name: str, child: Behaviour, *, folders: ThreadFolders) -> None:
        super().__init__(name, child)
        self.folders = checked_folders(f'ShownImages("{name}", child, ', folders)
        self.shown: Mapping[str, ViewedImage] = {}

    def on_failed(self, error: ModelError) -> None:
        """Forget the images of a request that cannot be taken, neither now nor later."""
        if isinstance(error, REFUSED):
            self.forget()

    def forget(self) -> None:
        """Forget what the last request had, as far as it has not come anew since."""
        shown, self.shown = self.shown, {}
        if shown:
            self.transform_field("viewed_images", lambda held: _without(held, shown))

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with the images at its end."""
        self.shown = dict(snapshot.viewed_images)
        if not self.shown:
            return request
        files, room = self.folders.files(self.context.thread_id), TOGETHER
        parts: list[TextPart | ImageBytes] = [TextPart(text="The images that you have asked to see:")]
        for path, image in self.shown.items():
            data, problem = _bytes_of(files, image, room)
            room -= len(data)
            parts.append(TextPart(text=f"{path}: {problem}" if problem else f"{path}:"))
            if not problem:
                parts.append(ImageBytes(path=path, mime_type=image_type(data), data=data))
        shown = human(parts, id=f"viewed_images:{self.context.path}", metadata=ADDED)
        return replace(request, messages=[*request.messages, shown])


def _without(held: Mapping[str, ViewedImage], shown: Mapping[str, ViewedImage]) -> dict[str, ViewedImage]:
    return {path: image for path, image in held.items() if shown.get(path) != image}


def _bytes_of(files: ThreadFiles, image: ViewedImage, room: int) -> tuple[bytes, str]:
    """Return the bytes of an image, or why it is not shown."""
    if image.size > room:
        return b"", "not shown, since there are too many at once; view it again"
    try:
        data = files.read(image.actual_path, LARGEST)
    except ValueError:
        return b"", "not shown, since it cannot be read any more"
    if len(data) != image.size or image_type(data) is None or image.digest not in (None, digest_of(data)):
        return b"", "not shown, since it has changed; view it again"
    return data, ""


class ForgetImages(Part, Node):
    """Forget the images that were in the request, so that each is shown once.

    It stands right after the model node, in a Sequence: it is reached when the request has succeeded. Images that were
    asked for since then stay. Writes `viewed_images`. In another process it no longer knows what was in the request:
    those images are shown once more.
    SUCCESS at once.
    """

    reads: ClassVar[tuple[str, ...]] = ("viewed_images",)
    writes: ClassVar[tuple[str, ...]] = ("viewed_images",)
    requires: ClassVar[Kinds] = (ShownImages,)
    after: ClassVar[Kinds] = (AgentLLMNode, ShownImages)

    def concerns(self, node: Behaviour) -> bool:
        """Whether a node shows the images that are forgotten here, or is shown them."""
        sources = self._sources()
        return node in sources or any(above in sources for above in nodes_above(node))

    def _sources(self) -> list[ShownImages]:
        """Return what shows the images: what stands above, else what comes earlier, else all there are."""
        around = nodes_around(self)
        for among in (nodes_above(self), around[: around.index(self)], around):
            if found := [node for node in among if isinstance(node, ShownImages)]:
                return found
        return []

    def update(self) -> Status:
        """Forget them."""
        for source in self._sources():
            source.forget()
        return Status.SUCCESS


ShownImages.requires = (ForgetImages,)  # each needs the other
