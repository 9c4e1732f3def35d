"""Sandbox: where the programs of a thread run and its files are; a Protocol, so that a container can be one as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from jianmu.errors import SetupError
from jianmu.thread.files import Entry

EndedBy: TypeAlias = Literal["time", "memory", "processes", "output", "released", "lost"]
"""Why a program was ended: a limit that it has passed, the end of the sandbox, or the loss of what watched it."""


@dataclass(frozen=True)
class SandboxLimits:
    """What a program may use.

    Attributes:
        seconds: how long it may run.
        memory: bytes that all of its processes may have in use together, and each may ask for.
        processes: how many of them there may be at a time.
        output: bytes of its output that are kept: the beginning and the end.
        flood: bytes of output after which it is ended.
        file_size: bytes that each file may have which it writes.
        grace: seconds that it has to end by itself when it is asked to.

    Raises:
        SetupError: one of them is no number above 0.
    """

    seconds: float = 60.0
    memory: int = 1024 * 1024 * 1024
    processes: int = 64
    output: int = 40_000
    flood: int = 64 * 1024 * 1024
    file_size: int = 256 * 1024 * 1024
    grace: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole = name not in {"seconds", "grace"}
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 < value < inf:
                kind = "whole number" if whole else "number"
                raise SetupError(f"SandboxLimits({name}={value!r}): it takes a {kind} above 0")


def as_shown(error: OSError, mask: Callable[[str], str]) -> OSError:
    """Return an error of the system with virtual paths, since models and stores see its text."""
    if error.errno is None:
        return OSError(mask(str(error)))
    path = error.filename if isinstance(error.filename, str) else None
    return OSError(error.errno, mask(error.strerror or ""), None if path is None else mask(path))


@dataclass(frozen=True)
class Ran:
    """What came of a program.

    Attributes:
        code: its exit code, 128 and the number of the signal that ended it, or None where it is not known.
        output: what it wrote, stdout and stderr as they came, with virtual paths; a note stands where it is cut.
        ended_by: why it was ended, or None: it has ended by itself.
    """

    code: int | None
    output: str
    ended_by: EndedBy | None = None


@runtime_checkable
class Sandbox(Protocol):
    """Where the programs of one thread run, and its files.

    All paths are virtual. What is refused is a ValueError whose text is for the model.

    Attributes:
        id: what it is opened by; the same one in every run of the thread.
    """

    @property
    def id(self) -> str:
        """What it is opened by."""
        ...

    async def start(self) -> None:
        """Have it ready; again and side by side, it is started once.

        Raises:
            OSError: the system refuses it.
        """
        ...

    async def release(self) -> None:
        """End all that runs in it, and give back what it holds; the files stay. It can be started again."""
        ...

    async def run(self, program: Sequence[str], *, seconds: float | None = None) -> Ran:
        """Run a program to its end: nothing that it has started outlives the call, nor its cancellation.

        Args:
            program: its name and arguments; virtual paths in them are resolved.
            seconds: how long it may run, where that is less than the limit.
        """
        ...

    async def bash(self, command: str, *, seconds: float | None = None) -> Ran:
        """Run a command of the shell."""
        ...

    async def python(self, code: str, *, seconds: float | None = None) -> Ran:
        """Run a program in Python."""
        ...

    def mask(self, text: str) -> str:
        """Return a text with virtual paths in the place of real ones, which no model is to see."""
        ...

    def expand(self, text: str) -> str:
        """Return a text with real paths in the place of virtual ones."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return what is in a file."""
        ...

    async def write_file(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Write a file whole, or at its end."""
        ...

    async def str_replace(self, path: str, old: str, new: str, *, every: bool = False) -> int:
        """Put one text in the place of another one; return how often."""
        ...

    async def ls(self, path: str, depth: int) -> list[Entry]:
        """Return what is in a folder, and so many folders deep."""
        ...

    async def glob(self, pattern: str, path: str) -> list[Entry]:
        """Return the files and folders below a folder that fit a pattern."""
        ...

    async def grep(self, pattern: str, path: str, glob: str, most: int) -> list[str]:
        """Return the lines, `most` and one more, in which a regular expression is found."""
        ...
