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
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar  # Any: JSON

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from jianmu.errors import SetupError
from jianmu.thread import files as searching
from jianmu.thread import sandboxkeeper as keeper
from jianmu.thread.files import AREAS, Entry
from jianmu.thread.items import SandboxRef
from jianmu.thread.paths import ThreadFolders, expanded, masked
from jianmu.thread.sandbox import EndedBy, Ran, SandboxLimits
from jianmu.thread.sandboxoutput import Output

T = TypeVar("T")
GIVEN = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""What a program sees of this environment."""
MARK = "JIANMU_SANDBOX_RUN"
"""The variable by which what is left of a program is found when its keeper was killed."""
LONGEST = 100_000
"""Bytes that a program given as a text may have; the system takes no longer argument."""
SEARCHING = 20.0
"""Seconds that a search may take."""
_LOOK = 0.01  # seconds between two looks whether a process is there
_SAFE_ROOT = re.compile(r"[\w./@%+=:,-]+", re.ASCII)
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
_HOPELESS = 10.0  # seconds after which a keeper that does not end is killed


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
        if not _SAFE_ROOT.fullmatch(str(folders.root)):
            raise SetupError(f"the path '{folders.root}' has signs that a shell reads: give ThreadFolders another one")
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
            "separate": self._separate,
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


async def _in_thread(act: Callable[..., T], *args: Any) -> T:
    return await anyio.to_thread.run_sync(functools.partial(act, *args))


class Watch:
    """One keeper and its program.

    Args:
        order: what the keeper is told.
        output: takes what the program writes.
        flood: bytes of output after which it is ended.
        note: called with what the keeper says of the namespaces.
    """

    def __init__(self, order: dict[str, Any], output: Output, flood: int, note: Callable[..., None]) -> None:
        self._order, self._output, self._flood, self._note = order, output, flood, note
        self._is_flooded = False
        self._said: dict[str, Any] = {}
        self._heard = b""

    async def run(self) -> Ran:
        """Run the program to its end."""
        process = await self._started()
        try:
            await self._work(process)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(process)
        return self._ran()

    async def _started(self) -> Process:
        process: Process | None = None
        with anyio.CancelScope(shield=True):  # a process that is started halfway would be nobody's
            process = await anyio.open_process(
                [sys.executable, "-I", "-S", str(keeper.__file__)],
                env={},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        assert process is not None
        return process

    async def _work(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with suppress(*_BROKEN):
            await process.stdin.send(json.dumps(self._order).encode() + b"\n")
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, process, process.stdout)
            await self._listen(process.stderr)
            with anyio.move_on_after(self._order["grace"]):  # what has escaped may hold stdout
                await self._output.is_whole.wait()
            group.cancel_scope.cancel()

    async def _read(self, process: Process, stdout: ByteReceiveStream) -> None:
        """Take what the program writes; if it is too much, ask the keeper to end it."""
        with suppress(*_BROKEN):
            async for piece in stdout:
                self._output.add(piece)
                if self._output.size > self._flood and not self._is_flooded:
                    self._is_flooded = True
                    assert process.stdin is not None
                    await process.stdin.aclose()
        self._output.is_whole.set()

    async def _listen(self, stderr: ByteReceiveStream) -> None:
        """Hear what the keeper says, until it has gone."""
        with suppress(*_BROKEN):
            async for piece in stderr:
                *lines, self._heard = (self._heard + piece).split(b"\n")
                for line in lines:
                    with suppress(ValueError):
                        self._said |= json.loads(line)
                if "is_separate" in self._said:
                    self._note(is_separate=self._said["is_separate"])

    async def _end(self, process: Process) -> None:
        """Have the keeper end everything, and see that it has."""
        assert process.stdin is not None
        with suppress(*_BROKEN):
            await process.stdin.aclose()
        with anyio.move_on_after(_HOPELESS):
            await self._listen(process.stderr) if process.stderr is not None else None
        await _gone(process, 1)
        if "code" not in self._said:  # it was killed, or cannot end the others
            kill_group(process.pid)
            kill_group(self._said.get("group", process.pid))
            await anyio.to_thread.run_sync(kill_marked, self._order["env"][MARK])
            await _gone(process, 1)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()
        close_transport(process)

    def _ran(self) -> Ran:
        said = self._said
        if said.get("problem"):
            raise ValueError(f"the program cannot be started: {said['problem']}")
        ended_by: EndedBy | None = "lost" if "code" not in said else said["ended_by"]
        return Ran(said.get("code"), self._output.text(), "output" if self._is_flooded else ended_by)


async def _gone(process: Process, seconds: float) -> None:
    """Wait until a process has ended; `process.wait()` would wait for its pipes too."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110  # nothing tells of it
            await anyio.sleep(_LOOK)


def close_transport(process: Process) -> None:
    """Close asyncio's own end of the pipes, which stays open while somebody else holds the other; trio has none."""
    close = getattr(getattr(getattr(process, "_process", None), "_transport", None), "close", None)
    if callable(close):
        with suppress(PermissionError):
            close()


def kill_group(group: int) -> None:
    """Kill a group of processes, if it is there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill the processes that have a mark in their environment, until there are none."""
    sought = f"{MARK}={mark}".encode()
    for _ in range(50):
        found = [pid for pid in keeper.parents() if _has(pid, sought)]
        keeper.send(found, signal.SIGSTOP)
        keeper.send(found, signal.SIGKILL)
        if not found:
            return


def _has(pid: int, sought: bytes) -> bool:
    with suppress(OSError):
        return sought in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
