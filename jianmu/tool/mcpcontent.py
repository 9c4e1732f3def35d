"""Results of MCP servers as contents: texts as they are, bytes in files, the rest as a line that says what it is."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from pydantic import JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.tool.types import Content, FilePart, ImagePart, Part, TextPart, whole_text

Kind = Literal["image", "file"]


def content_of_result(result: JsonObject, folder: Path | None) -> Content:
    """Return what a model is shown of a result.

    A result that has structured content only is shown as that, as JSON; where it has both, the server's own texts are
    the same in words.

    Args:
        result: a `CallToolResult`.
        folder: where images and other bytes are saved; None: they are left out, and a text says so.

    Raises:
        OSError: a file cannot be written.
    """
    blocks = cast("list[JsonObject]", result.get("content") or [])
    if not blocks and "structuredContent" in result:
        return whole_text(json.dumps(result["structuredContent"], ensure_ascii=False))
    parts = [_part(block, folder) for block in blocks]
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _part(block: JsonObject, folder: Path | None) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _saved("image" if kind == "image" else "file", data, block.get("mimeType"), folder)
        case {"type": "resource", "resource": {"text": str(text), **more}}:
            return TextPart(text=f"[{_told(more, 'uri', 'mimeType')}]\n{text}")
        case {"type": "resource", "resource": {"blob": str(data), **more}}:
            return _saved("file", data, more.get("mimeType"), folder, str(more.get("uri", "")))
        case {"type": "resource_link"}:
            return TextPart(text=f"[{_told(block, 'uri', 'name', 'mimeType', 'description')}]")
        case _:
            return TextPart(text=f"[a part of the type {block.get('type')!r}, which cannot be shown]")


def _told(values: Mapping[str, JsonValue], *names: str) -> str:
    return ", ".join(str(values[name]) for name in names if values.get(name))


def _saved(kind: Kind, data: str, mime_type: object, folder: Path | None, uri: str = "") -> Part:
    mime = mime_type if isinstance(mime_type, str) else "application/octet-stream"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return TextPart(text=f"[{mime}, which is no base64 and cannot be shown]")
    if folder is None:
        return TextPart(text=f"[{mime}, {len(content)} bytes, left out: there is no folder for files]")
    path = _write(folder, content, mime)
    if kind == "image":
        return ImagePart(path=os.fspath(path), mime_type=mime)
    return FilePart(path=os.fspath(path), mime_type=mime, name=uri.rpartition("/")[2] or None)


def _write(folder: Path, content: bytes, mime: str) -> Path:
    """Save bytes under their digest, so that the same ones are one file, whole or not there."""
    path = folder / (hashlib.sha256(content).hexdigest()[:32] + (mimetypes.guess_extension(mime) or ""))
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torn = path.with_name(f".{path.name}.{os.getpid()}")
        torn.write_bytes(content)
        torn.replace(path)
    return path
