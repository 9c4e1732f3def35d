"""LocalSandbox: programs as processes of this machine, in the folder of the thread, with limits.

1. Each program has a keeper, a process that ends all that it has started: see `sandboxkeeper`.
2. A call never leaves its keeper behind: it awaits its end, also when it is cancelled. If the program that holds the
   sandbox dies, the keeper sees it.
3. A program sees of this environment what every program needs, and nothing else.
"""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar  # Any: JSON

import anyio
import anyio.to_thread

from jianmu.errors import SetupError
from jianmu.thread import files as searching
from jianmu.thread.files import AREAS, Entry
from jianmu.thread.items import SandboxRef
from jianmu.thread.paths import ThreadFolders, expanded, masked
from jianmu.thread.sandbox import Ran, SandboxLimits, as_shown
from jianmu.thread.sandboxoutput import Output
from jianmu.thread.sandboxwatch import MARK, Watch

T = TypeVar("T")
GIVEN = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""What a program sees of this environment."""
LONGEST = 100_000
"""Bytes that a program given as a text may have; the system takes no longer argument."""
SEARCHING = 20.0
"""Seconds that a search may take."""
_LOOK = 0.01  # seconds between two looks whether a process is there
_SAFE_ROOT = re.compile(r"[\w./@%+=:,-]+", re.ASCII)


class LocalSandbox:
    """The processes and files of one thread on this machine.

    It isolates less than a container: a program is a process of the user who runs jianmu. It can read what that
    user can read, write where that user can write, and use the network. `docs/concepts/sandbox.md` has the list.

    Args:
        folders: where the folders of threads are.
        thread_id: whose it is.
        limits: what each program may use.
        env: variables that programs get besides those that every program needs.
        separate: whether programs get a PID namespace where the kernel gives one.

    Raises:
        SetupError: this system cannot have one, or the path of the folders has signs that a shell reads.
    """

    def __init__(
        self,
        folders: ThreadFolders,
        thread_id: str,
        *,
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        separate: bool = True,
    ) -> None:
        check_root(folders)
        self.limits = limits or SandboxLimits()
        self.folder, self._root = folders.folder(thread_id), folders.root
        self._id = str(SandboxRef.of(thread_id).sandbox_id)
        self._files = folders.files(thread_id)
        self._env, self._separate = dict(env or {}), separate
        self._gate, self._waiting = anyio.Lock(), 0
        self._shell: str | None = None
        self._running = set[anyio.CancelScope]()
        self.starts = 0
        self.is_separate: bool | None = None

    @property
    def id(self) -> str:
        """What it is opened by."""
        return self._id

    async def start(self) -> None:
        """Make the folders and look for a shell.

        Raises:
            SetupError: there is no shell.
            OSError: the folders cannot be made; the error has virtual paths.
        """
        if self._shell is not None:
            return
        if self._waiting == 0:
            self._gate = anyio.Lock()  # of this event loop
        self._waiting += 1
        try:
            async with self._gate:
                if self._shell is None:
                    self._shell = await anyio.to_thread.run_sync(self._made)
                    self.starts += 1
        except OSError as error:
            raise as_shown(error, self.mask) from None
        finally:
            self._waiting -= 1

    def _made(self) -> str:
        shell = shutil.which("bash") or shutil.which("sh")
        if shell is None:
            raise SetupError("LocalSandbox finds no bash and no sh: install one, or set PATH")
        for area in (*AREAS, "tmp"):
            (self.folder / area).mkdir(mode=0o700, parents=True, exist_ok=True)
        return shell

    async def release(self) -> None:
        """End what runs in it, and wait until it has ended."""
        for scope in (*self._running,):
            scope.cancel()
        while self._running:  # noqa: ASYNC110  # each call leaves when its processes have gone
            await anyio.sleep(_LOOK)
        self._shell = None

    # Programs

    async def bash(self, command: str, *, seconds: float | None = None) -> Ran:
        """Run a command of the shell in the workspace; see `run`."""
        await self.start()
        return await self.run([str(self._shell), "-c", command], seconds=seconds)

    async def python(self, code: str, *, seconds: float | None = None) -> Ran:
        """Run a program in Python, the same one that runs jianmu, in the workspace; see `run`."""
        return await self.run([sys.executable, "-c", code], seconds=seconds)

    async def run(self, program: Sequence[str], *, seconds: float | None = None) -> Ran:
        """Run a program to its end: nothing that it has started outlives the call, nor its cancellation.

        Raises:
            ValueError: the program cannot be started.
        """
        if seconds is not None and not seconds > 0:
            raise ValueError(f"a program cannot run for {seconds} seconds: give more than 0")
        words = [self.expand(word) for word in program]
        if any(len(word.encode("utf-8", "surrogatepass")) > LONGEST for word in words):
            raise ValueError(f"the program has more than {LONGEST} bytes: write it to a file, and run that")
        if any("\0" in word for word in words):
            raise ValueError("the program has a NUL in it, which no program can have")
        most = self.limits.seconds if seconds is None else min(seconds, self.limits.seconds)
        ran = await self._run(words, most)
        return Ran(ran.code, self.mask(ran.output), ran.ended_by)

    async def _run(self, program: Sequence[str], seconds: float, most: int | None = None) -> Ran:
        await self.start()
        kept = self.limits.output if most is None else most
        mark, output = secrets.token_hex(16), Output(kept, str(self.folder), str(self._root))
        order = {**self._order(mark), "program": [*program], "seconds": seconds}
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                return await Watch(order, output, self.limits.flood, self._note).run()
            except ValueError as error:
                raise ValueError(self.mask(str(error))) from None
            finally:
                self._running.discard(scope)
        return Ran(None, output.text(), "released")

    def _note(self, *, is_separate: bool) -> None:
        self.is_separate = is_separate

    def _order(self, mark: str) -> dict[str, Any]:
        limits, folder = self.limits, self.folder
        given = {name: os.environ[name] for name in GIVEN if name in os.environ}
        places = {area.upper(): str(folder / area) for area in AREAS}
        own = {"HOME": str(folder / AREAS[0]), "TMPDIR": str(folder / "tmp"), "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        return {
            "cwd": str(folder / AREAS[0]),
            "env": {**given, **own, **places, **self._env, MARK: mark},
            "memory": limits.memory,
            "processes": limits.processes,
            "file_size": limits.file_size,
            "grace": limits.grace,
            "separate": self._separate
            and self.is_separate is not False,  # what this machine refuses is not tried again
        }

    # Files

    def mask(self, text: str) -> str:
        """Return a text with virtual paths in the place of those of this machine."""
        return masked(text, self.folder, self._root)

    def expand(self, text: str) -> str:
        """Return a text with the paths of this machine in the place of virtual ones."""
        return expanded(text, self.folder)

    async def read_file(self, path: str) -> bytes:
        """Return what is in a file."""
        return await _in_thread(self._files.read, path)

    async def write_file(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Write a file whole, or at its end."""
        await _in_thread(functools.partial(self._files.write, append=append), path, data)

    async def str_replace(self, path: str, old: str, new: str, *, every: bool = False) -> int:
        """Put one text in the place of another one; return how often."""
        return await _in_thread(functools.partial(self._files.replace, every=every), path, old, new)

    async def ls(self, path: str, depth: int) -> list[Entry]:
        """Return what is in a folder, and so many folders deep."""
        return await _in_thread(lambda: [*self._files.walk(path, depth)])

    async def glob(self, pattern: str, path: str) -> list[Entry]:
        """Return the files and folders below a folder that fit a pattern."""
        return await _in_thread(lambda: [*self._files.glob(pattern, path)])

    async def grep(self, pattern: str, path: str, glob: str, most: int) -> list[str]:
        """Return the lines in which a regular expression is found; searched for in a process with limits."""
        order = {"folder": str(self.folder), "pattern": pattern, "path": path, "glob": glob, "most": most}
        program = [sys.executable, "-I", "-S", str(searching.__file__), json.dumps(order)]
        seconds = min(SEARCHING, self.limits.seconds)
        ran = await self._run(program, seconds, 16 * 1024 * 1024)
        if ran.ended_by is not None:
            raise ValueError(f"the search was ended ({ran.ended_by}): look for something simpler, or in fewer files")
        found = json.loads(ran.output)
        if "problem" in found:
            raise ValueError(found["problem"])
        return [self.mask(line) for line in found["lines"]]


def check_root(folders: ThreadFolders) -> None:
    """Refuse folders whose path cannot stand in the programs of a shell."""
    if not _SAFE_ROOT.fullmatch(str(folders.root)):
        raise SetupError(f"the path '{folders.root}' has signs that a shell reads: give ThreadFolders another one")


async def _in_thread(act: Callable[..., T], *args: Any) -> T:
    return await anyio.to_thread.run_sync(functools.partial(act, *args))
