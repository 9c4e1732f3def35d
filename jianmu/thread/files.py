"""The files of a thread, by virtual paths: nothing outside of its folder is read, written or listed.

1. A path is taken apart and never handed to the system as a whole: each folder is opened in the one before, and no link
   is followed, so there is no moment at which a folder can be changed for a link to somewhere else.
2. What is no plain file (pipes, devices, sockets) is not opened for its content.
3. A write makes a new file and puts it in the place of the old one: what other names the old one has keep its content.
4. What is wrong is a ValueError for the model: it has virtual paths only.

It is also a script that searches: a pattern can take a program for ever, so `LocalSandbox` searches in a process with
limits. It therefore imports nothing of jianmu.
"""

from __future__ import annotations

import errno
import fnmatch
import itertools
import json
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeAlias

VIRTUAL = "/mnt/user-data"
"""Where a model finds the files of its thread."""
AREAS = ("workspace", "uploads", "outputs")
"""The folders there."""
LARGEST = 10 * 1024 * 1024
"""Bytes that a file may have which is read or searched."""
DEEPEST = 32
"""Folders below each other that are looked into."""
WIDEST = 20_000
"""Files and folders that one look may find."""
LONGEST = 500
"""Characters of a line that a search shows."""

_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = _FILE | getattr(os, "O_DIRECTORY", 0)
_SAYS = {
    errno.ENOENT: "there is no '{}'",
    errno.ELOOP: "'{}' is a link, and links are not followed",
    errno.ENOTDIR: "'{}' leads through something that is no folder; links are not followed",
    errno.EISDIR: "'{}' is a folder",
    errno.EACCES: "'{}' may not be opened",
    errno.ENAMETOOLONG: "'{}' has a name that is too long",
    errno.ENOSPC: "'{}' cannot be written: there is no space left",
}

Parts: TypeAlias = tuple[str, ...]


class TakenError(ValueError):
    """Something has the name that a new file was to have."""


class Entry(NamedTuple):
    """What a look finds.

    Attributes:
        path: its virtual path.
        kind: "file", "folder", "link" or "other".
        size: bytes of a file, else 0.
    """

    path: str
    kind: str
    size: int


def parts_of(path: str) -> Parts:
    """Return the parts of a path below the virtual root; one that is not absolute is meant in the workspace.

    Raises:
        ValueError: it leads out, or is no path.
    """
    shown = path if len(path) <= 200 else path[:200] + "…"
    if any(ord(sign) < 32 or 0xD800 <= ord(sign) < 0xE000 for sign in path):
        raise ValueError(f"{shown!r} has characters that no path here may have")
    if path.startswith("/") and not (path + "/").startswith(VIRTUAL + "/"):
        raise ValueError(f"'{shown}' is outside of {VIRTUAL}, where all files of this conversation are")
    below = path.removeprefix(VIRTUAL) if path.startswith("/") else f"{AREAS[0]}/{path}"
    parts = tuple(part for part in below.split("/") if part not in {"", "."})
    if ".." in parts:
        raise ValueError(f"'{shown}' has '..' in it: write the path from {VIRTUAL} on")
    if parts and parts[0] not in AREAS:
        raise ValueError(f"'{shown}' is in none of the folders {', '.join(f'{VIRTUAL}/{one}' for one in AREAS)}")
    return parts


def virtual(parts: Sequence[str]) -> str:
    """Return a virtual path; characters that would break a line are shown as escapes."""
    text = "/".join((VIRTUAL, *parts))
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class ThreadFiles:
    """The files of one thread.

    Args:
        folder: where they are; made, with the areas in it, when it is first looked into.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._lock = threading.Lock()

    def read(self, path: str, most: int = LARGEST) -> bytes:
        """Return what is in a file.

        Raises:
            ValueError: there is no such file, or it has more than `most` bytes.
        """
        *folder, name = self._file(path)
        with _refusing(path), self._opened(folder) as above, _plain(name, above, path) as file:
            return _all_of(file, path, most)

    def write(self, path: str, data: bytes, *, append: bool = False, new: bool = False) -> None:
        """Write a file whole, or at its end; folders that are missing are made.

        Raises:
            ValueError: it cannot be written.
            TakenError: with `new`: something has that name.
        """
        with self._lock:
            self._write(path, data, append=append, new=new)

    def replace(self, path: str, old: str, new: str, *, every: bool = False) -> int:
        """Put one text in the place of another; return how often.

        Raises:
            ValueError: the file cannot be read or written, is no text, or has `old` not once.
        """
        if not old:
            raise ValueError("the text to replace is empty: write_file writes a file whole")
        with self._lock:
            text = text_of(self.read(path), path)
            count = text.count(old)
            if count == 0:
                raise ValueError(f"'{path}' does not have this text; it has to be the same to the space")
            if count > 1 and not every:
                raise ValueError(f"'{path}' has this text {count} times: give more of what is around it, or say `all`")
            self._write(path, text.replace(old, new).encode())
        return count

    def walk(self, path: str = VIRTUAL, depth: int = DEEPEST) -> Iterator[Entry]:
        """Yield what is in a folder and, so many folders deep, below; sorted, no link is followed.

        Raises:
            ValueError: there is no such folder.
        """
        parts = parts_of(path)
        with _refusing(path), self._opened(parts) as folder:
            found = _below(folder, parts, min(depth, DEEPEST))
            for count, entry in enumerate(found):
                if count >= WIDEST:
                    raise ValueError(f"'{path}' has more than {WIDEST} files in it: look into a folder below")
                yield entry

    def glob(self, pattern: str, path: str = f"{VIRTUAL}/{AREAS[0]}") -> Iterator[Entry]:
        """Yield the files and folders below a folder whose paths from there fit a pattern; `**` is any folders.

        Raises:
            ValueError: there is no such folder, or the pattern is none.
        """
        if pattern.startswith(VIRTUAL + "/"):
            path, pattern = VIRTUAL, pattern.removeprefix(VIRTUAL)
        elif pattern.startswith("/"):
            parts_of(pattern)  # says what is wrong with it
        wanted = [one for one in pattern.split("/") if one not in {"", "."}]
        if not wanted or ".." in wanted:
            raise ValueError(f"'{pattern[:200]}' is no pattern: write one such as '**/*.py'")
        start = len(virtual(parts_of(path))) + 1
        return (one for one in self.walk(path) if fits(one.path[start:].split("/"), wanted))

    def grep(self, pattern: str, path: str = VIRTUAL, glob: str = "**", most: int = 200) -> list[str]:
        """Return the lines of text files, below a folder or in one file, in which a regular expression is found.

        Raises:
            ValueError: there is no such folder or file, or a pattern is none.
        """
        try:
            sought = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        return [line for line, _ in zip(self._lines(sought, path, glob), range(most + 1), strict=False)]

    def _lines(self, sought: re.Pattern[str], path: str, glob: str) -> Iterator[str]:
        for file in self._searched(path, glob):
            try:
                text = text_of(self.read(file), file)
            except ValueError:
                continue  # no text, too large, or gone
            for number, line in enumerate(text.splitlines(), 1):
                if sought.search(line):
                    yield f"{file}:{number}: {line[:LONGEST]}"

    def _searched(self, path: str, glob: str) -> Iterator[str]:
        """Yield the files that are to be searched."""
        if self.is_file(path):
            yield virtual(parts_of(path))
            return
        for entry in self.glob(glob, path):
            if entry.kind == "file":
                yield entry.path

    def is_file(self, path: str) -> bool:
        """Return whether a plain file has this path."""
        parts = parts_of(path)
        try:
            with self._opened(parts[:-1]) as above:
                return len(parts) > 1 and stat.S_ISREG(os.lstat(parts[-1], dir_fd=above).st_mode)
        except OSError:
            return False

    def descriptor(self, path: str) -> int:
        """Return an open descriptor of a plain file, to be closed by the caller; it stays this file whatever happens.

        Raises:
            ValueError: there is no such file.
        """
        *folder, name = self._file(path)
        with _refusing(path), self._opened(folder) as above, _plain(name, above, path) as file:
            return os.dup(file)

    def _file(self, path: str) -> Parts:
        parts = parts_of(path)
        if len(parts) < 2:
            raise ValueError(f"'{path}' is a folder")
        return parts

    @contextmanager
    def _opened(self, parts: Sequence[str], *, make: bool = False) -> Generator[int]:
        """Open a folder, each part in the one before."""
        os.makedirs(self.folder, 0o700, exist_ok=True)  # noqa: PTH103  # the rest here is os, too
        opened = os.open(self.folder, _FOLDER)
        try:
            for area in AREAS:
                _make(area, opened)
            for part in parts:
                if make:
                    _make(part, opened)
                above, opened = opened, os.open(part, _FOLDER, dir_fd=opened)
                os.close(above)
            yield opened
        finally:
            os.close(opened)

    def _write(self, path: str, data: bytes, *, append: bool = False, new: bool = False) -> None:
        *folder, name = self._file(path)
        with _refusing(path), self._opened(folder, make=True) as above:
            mode, old = (0o600, b"") if new else _before(name, above, path, append=append)
            _put(name, old + data, mode, above, os.link if new else os.replace)


def _before(name: str, above: int, path: str, *, append: bool) -> tuple[int, bytes]:
    """Return the mode of a file that is about to be written, and what stays of it."""
    with suppress(FileNotFoundError), _plain(name, above, path) as file:
        return os.fstat(file).st_mode & 0o777, _all_of(file, path) if append else b""
    return 0o600, b""


def _make(name: str, above: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)


def _put(name: str, data: bytes, mode: int, above: int, take: Callable[..., None]) -> None:
    """Put a new file in the place of a name, whole or not at all; `take` gives it the name."""
    new = f".{secrets.token_hex(8)}.new"
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=above)
    try:
        with open(file, "wb") as stream:  # noqa: PTH123  # a descriptor, which no Path has
            stream.write(data)
        take(new, name, src_dir_fd=above, dst_dir_fd=above)
    except FileExistsError:
        raise TakenError(f"there is a '{name}' already") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=above)  # no Path has descriptors


@contextmanager
def _plain(name: str, above: int, path: str) -> Generator[int]:
    """Open a plain file of a folder."""
    file = os.open(name, os.O_RDONLY | _FILE, dir_fd=above)
    try:
        kind = os.fstat(file).st_mode
        if stat.S_ISDIR(kind):
            raise ValueError(f"'{path}' is a folder")
        if not stat.S_ISREG(kind):
            raise ValueError(f"'{path}' is no plain file")
        yield file
    finally:
        os.close(file)


def _all_of(file: int, path: str, most: int = LARGEST) -> bytes:
    """Return what is in a file, which may still grow, unless it is too much."""
    size = os.fstat(file).st_size
    if size > most:
        raise ValueError(f"'{path}' has {size} bytes; at most {most} are read at once")
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(file, min(most, 1 << 20))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


@contextmanager
def _refusing(path: str) -> Generator[None]:
    """Turn errors of the system into those that a model can read."""
    try:
        yield
    except OSError as error:
        says = _SAYS.get(error.errno or 0, "'{}' cannot be used: " + (error.strerror or "an error of the system"))
        raise ValueError(says.format(path)) from None


def _below(folder: int, parts: Parts, depth: int) -> Iterator[Entry]:
    """Yield what is in an open folder and below it."""
    with os.scandir(folder) as found:
        names = sorted(one.name for one in itertools.islice(found, WIDEST + 1))
    for name in names:
        if not parts and name not in AREAS:
            continue
        with suppress(FileNotFoundError):
            entry = _entry(name, folder, (*parts, name))
            yield entry
            if entry.kind == "folder" and depth > 1:
                yield from _inside(name, folder, (*parts, name), depth - 1)


def _entry(name: str, folder: int, parts: Parts) -> Entry:
    found = os.lstat(name, dir_fd=folder)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return Entry(virtual(parts), kind, found.st_size if kind == "file" else 0)


def _inside(name: str, folder: int, parts: Parts, depth: int) -> Iterator[Entry]:
    try:
        opened = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return  # it has gone, or may not be read
    try:
        yield from _below(opened, parts, depth)
    finally:
        os.close(opened)


def fits(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether a path fits a pattern, part by part."""
    reached = {0}
    for name in names:
        reached = _spread(reached, wanted)
        stay = {at for at in reached if at < len(wanted) and wanted[at] == "**"}
        reached = stay | {at + 1 for at in reached - stay if at < len(wanted) and fnmatch.fnmatchcase(name, wanted[at])}
    return len(wanted) in _spread(reached, wanted)


def _spread(reached: set[int], wanted: Sequence[str]) -> set[int]:
    """Add the places after each `**`, which may stand for no folder at all."""
    for at in range(len(wanted)):
        if at in reached and wanted[at] == "**":
            reached = reached | {at + 1}
    return reached


def text_of(data: bytes, path: str) -> str:
    """Return the text of a file.

    Raises:
        ValueError: it is none.
    """
    if b"\0" in data[:8192]:
        raise ValueError(f"'{path}' is no text")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"'{path}' is no text in UTF-8") from None


def main(order: str) -> None:
    """Search, and say what was found, or what is wrong, as JSON."""
    given = json.loads(order)
    try:
        answer = {"lines": ThreadFiles(given.pop("folder")).grep(**given)}
    except ValueError as error:
        answer = {"problem": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
