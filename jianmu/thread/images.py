"""Images that the model asks to see: the state has references, and what is in a file is looked at, not its name."""

from __future__ import annotations

import hashlib

import anyio.to_thread
from py_trees.behaviour import Behaviour

from jianmu.engine.context import NodeContext
from jianmu.engine.tree import path_of
from jianmu.errors import SetupError
from jianmu.thread.files import VIRTUAL, ThreadFiles, parts_of
from jianmu.thread.items import ViewedImage
from jianmu.thread.part import Part, fields_for, nodes_above
from jianmu.thread.paths import ThreadFolders, checked_folders
from jianmu.tool.base import Tool

FIELD = "viewed_images"
LARGEST = 20 * 1024 * 1024
"""Bytes that an image may have."""
_TURN = 'Sequence("turn", memory=True, children=[think, ForgetImages("forget")])'
_SHOWN = f'ShownImages("images", {_TURN}, folders=folders), or thread_agent(..., vision=True)'
_PNG, _JPEG, _GIF = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", (b"GIF87a", b"GIF89a")


def view_image(folders: ThreadFolders) -> Tool:
    """Return the tool `view_image`, which writes a reference to the field `viewed_images`: offer it to vision models.

    The bytes go into the next request by ShownImages, around the model that has the tool, and are forgotten by
    ForgetImages after it; without them the tree is refused.

    Args:
        folders: where the folders of threads are.

    Raises:
        SetupError: that is something else; when it is called, also: the state has no `viewed_images`.
    """
    held = checked_folders("view_image(", folders)

    async def view_image(path: str, context: NodeContext) -> str:
        """Look at an image of this conversation: png, jpeg, gif or webp, at most 20 MiB. You see it right after this.

        Args:
            path: the file, /mnt/user-data/...
            context: of the node that calls.
        """
        fields_for(context, FIELD)
        files = held.files(context.thread_id)
        with context.clock.working():
            image = await anyio.to_thread.run_sync(_looked_at, files, path, abandon_on_cancel=True)
        context.write_state({FIELD: {image.actual_path: image}})
        return f"You see {image.actual_path} ({image.mime_type}, {image.size} bytes) below."

    return _ViewImage(view_image, idempotent=True)


class _ViewImage(Tool):
    def on_offered(self, node: Behaviour) -> None:
        """Refuse a model that would be told that it sees an image, and would not."""
        if not any(isinstance(above, Part) and FIELD in above.reads for above in nodes_above(node)):
            path = path_of(node)
            text = f"node '{path}' offers view_image, and nothing above it shows the model the image: write {_SHOWN}"
            raise SetupError(text, path=path)


def image_type(data: bytes) -> str | None:
    """Return what an image is by its first bytes: png, jpeg, gif or webp; None for all else."""
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    found = {
        "png": data.startswith(_PNG),
        "jpeg": data.startswith(_JPEG),
        "gif": data.startswith(_GIF),
        "webp": is_webp,
    }
    return next((f"image/{kind}" for kind, fits in found.items() if fits), None)


def digest_of(data: bytes) -> str:
    """Return what the bytes of an image are known by."""
    return hashlib.sha256(data).hexdigest()


def _looked_at(files: ThreadFiles, path: str) -> ViewedImage:
    """Return a reference to an image.

    Raises:
        ValueError: it is none, is too large, or is not there.
    """
    whole = "/".join((VIRTUAL, *parts_of(path)))
    data = files.read(whole, LARGEST)
    kind = image_type(data)
    if kind is None:
        raise ValueError(f"'{whole}' has no png, jpeg, gif or webp in it")
    return ViewedImage(mime_type=kind, size=len(data), actual_path=whole, digest=digest_of(data))
