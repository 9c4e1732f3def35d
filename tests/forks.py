"""Programs that cost no start of an interpreter: each is forked from a process that has imported all it needs.

What is forked is a process like any other: it has its own arguments, environment, folder, files, group and terminal,
and ends by itself or by a signal. The nursery, of which it is a child, is asked for it through a socket, tells its
number and how it ended, and kills it when nobody listens any more.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import importlib
import os
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, NoReturn, Self

from tests.house import ROOT

PYTHON = sys.executable
LAUNCH = str(ROOT / "tests" / "launch.py")
BACKENDS = ("anyio._backends._asyncio", "anyio._backends._trio")
JIANMU = ("jianmu.cli.app", "jianmu.stores.postgres", "psycopg", "pydantic.dataclasses", *BACKENDS)
"""What a program of jianmu needs, a command too."""

MESSAGE = 1 << 20
SECONDS = 60
NUMBER = struct.Struct("i")


@dataclass(frozen=True)
class Program:
    """What is to run.

    Attributes:
        main: `module:function`; what it returns is the exit code.
        arguments: what follows the program's name.
        cwd: its folder.
        environment: all of it.
        has_terminal: whether its stdin is the terminal of its session.
    """

    main: str
    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    has_terminal: bool = False

    def packed(self) -> bytes:
        """Return it as a nursery takes it."""
        place = "terminal" if self.has_terminal else ""
        given = [f"{name}={value}" for name, value in self.environment.items()]
        return "\0".join([self.main, self.cwd, place, str(len(self.arguments)), *self.arguments, *given]).encode()

    @classmethod
    def unpacked(cls, said: bytes) -> Program:
        """Return what was packed."""
        main, cwd, place, count, *rest = said.decode("utf-8", "surrogateescape").split("\0")
        given = dict(each.split("=", 1) for each in rest[int(count) :])
        return cls(main, rest[: int(count)], cwd, given, has_terminal=place == "terminal")


class Process:
    """A program that runs, as `subprocess.Popen` has it.

    Args:
        nursery: where it is born.
        program: what runs.
        files: its stdin, stdout and stderr; -1 is a pipe.
    """

    def __init__(self, nursery: Nursery, program: Program, files: tuple[int, int, int]) -> None:
        pipes = [os.pipe() if file == subprocess.PIPE else None for file in files]
        inside = [pipe[end] if pipe else file for pipe, file, end in zip(pipes, files, (0, 1, 1), strict=True)]
        outside = [pipe[end] if pipe else None for pipe, end in zip(pipes, (1, 0, 0), strict=True)]
        self._line = nursery.ask(program, inside)
        for pipe, file in zip(pipes, inside, strict=True):
            if pipe:
                os.close(file)
        self.stdin, self.stdout, self.stderr = (
            None if file is None else open(file, mode, 1, encoding="utf-8")  # noqa: SIM115, PTH123  # closed at the end
            for file, mode in zip(outside, ("w", "r", "r"), strict=True)
        )
        self.pid = _number(self._line)
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        """Begin a block at whose end it has ended."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end; where the block has failed, end it."""
        if kind is not None and self.returncode is None:
            self.kill()
        self._close()
        self.wait(SECONDS)

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended: its exit code, or minus the signal."""
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked program", timeout or 0)
            self.returncode = _number(self._line)
            self._line.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, and nobody else of its group; nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, given: str = "", timeout: float = SECONDS) -> tuple[str, str]:
        """Give it its input; return what else it says, when it has ended."""
        with ThreadPoolExecutor(2) as pool:
            said = [pool.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            try:
                if self.stdin is not None:
                    with suppress(BrokenPipeError), self.stdin as stdin:
                        stdin.write(given)
                self.wait(timeout)
            except BaseException:  # also that of a test whose time is over
                self.kill()
                raise
            out, err = (each.result() for each in said)
        self._close()
        return out, err

    def _close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def _number(line: socket.socket) -> int:
    return NUMBER.unpack(line.recv(NUMBER.size, socket.MSG_WAITALL))[0]


def _rest(stream: IO[str] | None) -> str:
    return "" if stream is None else stream.read()


class Nursery:
    """The process whose children the programs are; it is there as long as this one, or until it is closed.

    Args:
        modules: what it imports before any program is wanted.
    """

    def __init__(self, *modules: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks")
        self.address = f"{self._folder.name}/line"
        command = [PYTHON, "-c", "from tests.forks import serve; serve()", self.address, *modules]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=pipe, stdout=pipe, env=quiet(), start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def ask(self, program: Program, files: list[int]) -> socket.socket:
        """Have a program run; return the line on which its number comes, and how it ended."""
        line = socket.socket(socket.AF_UNIX)
        line.connect(self.address)
        socket.send_fds(line, [program.packed()], files)
        return line

    def close(self) -> None:
        """End it."""
        atexit.unregister(self.close)
        self._process.communicate()
        self._folder.cleanup()


@functools.cache
def nursery(*modules: str) -> Nursery:
    """Return the nursery of these modules, always the same."""
    return Nursery(*modules)


def started(main: str, *arguments: str, is_told_errors: bool = False) -> Process:
    """Return a program of jianmu that runs in the folder of the repository; its stderr is a pipe only if it is told."""
    program = Program(main, [*arguments], str(ROOT), {**os.environ})
    pipe = subprocess.PIPE
    return Process(nursery(*JIANMU), program, (pipe, pipe, pipe if is_told_errors else 2))


def command(main: str, *modules: str) -> list[str]:
    """Return the beginning of a command line that has a program run; its arguments may follow."""
    return [PYTHON, "-I", "-S", LAUNCH, nursery(*modules).address, main]


def quiet() -> dict[str, str]:
    """Return an environment in which a nursery may be started."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def serve() -> None:
    """Be a nursery: listen, fork, and tell how children end, until stdin does. A child returns from here, and is."""
    address, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is there is shared with all children
    wanted = Server(address).wanted()
    if wanted is not None:
        become(*wanted)


class Server:
    """What a nursery does.

    Args:
        address: where it listens.
    """

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen()
        self._children: dict[int, socket.socket] = {}
        self._ended, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes)
        self._selector = selectors.DefaultSelector()
        for each in (0, self._listener, self._ended):
            self._selector.register(each, selectors.EVENT_READ)

    def wanted(self) -> tuple[Program, list[int]] | None:
        """Return in each child what it is to run with which files, and None here, at the end."""
        os.write(1, b"ready\n")
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return self._end()
                if key.fileobj is self._listener:
                    found = self._fork()
                    if found:
                        return found
                elif key.fileobj == self._ended:
                    self._tell()
                else:
                    self._hang_up(key.data)

    def _fork(self) -> tuple[Program, list[int]] | None:
        line, _ = self._listener.accept()
        said, files, _, _ = socket.recv_fds(line, MESSAGE, 3)
        child = os.fork()
        if not child:
            os.setsid()
            with line:
                line.sendall(NUMBER.pack(os.getpid()))
            self._leave()
            return Program.unpacked(said), files
        for file in files:
            os.close(file)
        self._children[child] = line
        self._selector.register(line, selectors.EVENT_READ, child)
        return None

    def _leave(self) -> None:
        """Have nothing of the nursery in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
        self._selector.close()
        self._listener.close()
        for each in (self._ended, self._wakes):
            os.close(each)
        for line in self._children.values():
            line.close()

    def _tell(self) -> None:
        """Tell of all children that have ended."""
        os.read(self._ended, 1000)
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            line = self._children.pop(child)
            with suppress(KeyError):  # nobody waits any more
                self._selector.unregister(line)
            with line, suppress(OSError):
                line.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def _hang_up(self, child: int) -> None:
        """Kill a child for which nobody waits any more."""
        if child in self._children:
            self._selector.unregister(self._children[child])
            os.kill(child, signal.SIGKILL)

    def _end(self) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)


def become(program: Program, files: list[int]) -> NoReturn:
    """Be a program, and end as it does."""
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    if program.has_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(program.cwd)
    os.environ.clear()
    os.environ.update(program.environment)
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [program.cwd, *filter(None, places)]
    sys.argv = [program.main, *program.arguments]
    _open_files()
    module, _, name = program.main.partition(":")
    sys.exit(getattr(importlib.import_module(module), name)())


def _open_files() -> None:
    """Have stdin, stdout and stderr as the interpreter opens them at its start."""
    opened = partial(open, encoding="utf-8", closefd=False)
    is_told_at_once = os.isatty(1) or "PYTHONUNBUFFERED" in os.environ
    sys.stdin = sys.__stdin__ = opened(0)
    sys.stdout = sys.__stdout__ = opened(1, "w", buffering=1 if is_told_at_once else -1)
    sys.stderr = sys.__stderr__ = opened(2, "w", errors="backslashreplace", buffering=1)


def run_text() -> None:
    """Run the text that is the first argument, as `python -c` does."""
    text = sys.argv[1]
    sys.argv[:2] = ["-c"]
    module = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), module.__dict__)


def run_file() -> None:
    """Run the file that is the first argument, as `python` does."""
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
