"""Archives: unpacked into the folder of a thread, unless anything in them is not what it should be.

1. All names and sizes are looked at before anything is written.
2. Members are written as any other file is: by virtual paths, through no link. An archive brings no links with it.
3. What an archive says of its sizes is not believed: no more is read than was counted.
"""

from __future__ import annotations

import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, NamedTuple, TypeAlias

from jianmu.thread.files import AREAS, VIRTUAL, ThreadFiles, parts_of, virtual

MOST = 2000
"""Members that an archive may have."""
LARGEST = 100 * 1024 * 1024
"""Bytes that they may have together."""
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError)

Archive: TypeAlias = zipfile.ZipFile | tarfile.TarFile


class Member(NamedTuple):
    """A file of an archive."""

    info: zipfile.ZipInfo | tarfile.TarInfo
    path: str
    size: int


def unpack(
    files: ThreadFiles, path: str, into: str = f"{VIRTUAL}/{AREAS[0]}", *, count: int = MOST, size: int = LARGEST
) -> list[str]:
    """Unpack a zip or tar archive; return the virtual paths of its files.

    Args:
        files: the thread's.
        path: the archive.
        into: a folder of the thread; what is there already is replaced.
        count: how many members it may have.
        size: how many bytes these may have together.

    Raises:
        ValueError: it is no such archive, is too large, or has a member that is a link or leads out: nothing was
            written. Or a member is broken, or a link is in its way: those before it were written.
    """
    try:
        with os.fdopen(files.descriptor(path), "rb") as file:
            with _opened(file, path) as archive:
                members = _checked(archive, path, into, count, size)
            file.seek(0)
            with _opened(file, path) as archive:
                _write(archive, members, files)
    except (*_BROKEN, RuntimeError) as error:  # zipfile has no other one for what is encrypted
        raise ValueError(f"'{path}' cannot be unpacked: {str(error)[:200] or type(error).__name__}") from None
    return [one.path for one in members]


def _write(archive: Archive, members: list[Member], files: ThreadFiles) -> None:
    for one in members:
        files.write(one.path, _content(archive, one))


@contextmanager
def _opened(file: IO[bytes], path: str) -> Generator[Archive]:
    if zipfile.is_zipfile(file):
        file.seek(0)
        with zipfile.ZipFile(file) as archive:
            yield archive
        return
    file.seek(0)
    try:
        tar = tarfile.open(fileobj=file)  # noqa: SIM115  # closed below; an error here is that of no archive
    except tarfile.ReadError:
        raise ValueError(f"'{path}' is no zip and no tar archive") from None
    with tar:
        yield tar


def _checked(archive: Archive, path: str, into: str, count: int, size: int) -> list[Member]:
    """Return the files of an archive, all of which may be written."""
    found: list[Member] = []
    total = 0
    for number, info in enumerate(archive.infolist() if isinstance(archive, zipfile.ZipFile) else archive):
        name, kind, bytes_of = _told(info)
        total += bytes_of
        if number >= count or total > size:
            raise ValueError(f"'{path}' has more than {count} members, or more than {size} bytes in them")
        if kind == "other":
            raise ValueError(f"'{path}' has {name[:200]!r} in it, which is a link or no plain file")
        if name.startswith("/") or "\\" in name:
            raise ValueError(f"'{path}' has {name[:200]!r} in it, which leads out")
        place = virtual(parts_of(f"{into}/{name}"))
        if kind == "file":
            found.append(Member(info, place, bytes_of))
    return found


def _told(info: zipfile.ZipInfo | tarfile.TarInfo) -> tuple[str, str, int]:
    """Return name, kind and size of a member."""
    if isinstance(info, tarfile.TarInfo):
        return (
            info.name,
            "file" if info.isreg() and not info.issparse() else "folder" if info.isdir() else "other",
            info.size,
        )
    kind = (info.external_attr >> 16) & 0o170000
    plain = {0: "file", 0o100000: "file", 0o040000: "folder"}.get(kind, "other")
    return info.filename, "folder" if info.is_dir() and plain != "other" else plain, info.file_size


def _content(archive: Archive, member: Member) -> bytes:
    """Return what is in a member, which may have no more than it says."""
    info = member.info
    if isinstance(archive, zipfile.ZipFile) and isinstance(info, zipfile.ZipInfo):
        stream = archive.open(info)
    else:
        assert isinstance(archive, tarfile.TarFile)
        assert isinstance(info, tarfile.TarInfo)
        stream = archive.extractfile(info)
    assert stream is not None
    with stream:
        data = stream.read(member.size + 1)
    if len(data) != member.size:
        raise ValueError(f"'{member.path}' has another size in the archive than the archive says")
    return data
