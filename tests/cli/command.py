"""The command as a process of its own: with pipes, or in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.forks import JIANMU, Process, Program, nursery

HERE = Path(__file__).parent
Call = Callable[..., tuple[int, str, str]]
COMMAND = [sys.executable, "-m", "jianmu"]
SECONDS = 30
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which nothing of the caller's terminal counts."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    return {**kept, "TERM": "xterm", "PYTHONPATH": str(HERE), "COLUMNS": "80", "LINES": "24", **more}


def jianmu(*arguments: str, cwd: Path = HERE, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command with pipes."""
    pipe = subprocess.PIPE
    with _process(arguments, cwd, more, (pipe, pipe, pipe)) as process:
        out, err = process.communicate(given, SECONDS)
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)


def from_the_start(*arguments: str, cwd: Path = HERE, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command with pipes, in an interpreter that has imported nothing."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def started(*arguments: str, cwd: Path = HERE, **more: str) -> Process:
    """Start the command with pipes, in a group of its own; what it is told by its terminal it does not hear."""
    with Path(os.devnull).open() as nothing:
        return _process(arguments, cwd, more, (nothing.fileno(), subprocess.PIPE, subprocess.PIPE))


def _process(
    arguments: tuple[str, ...], cwd: Path, more: dict[str, str], files: tuple[int, int, int], **options: bool
) -> Process:
    """Start the command in a process that has imported it."""
    program = Program("jianmu.cli:main", [*arguments], str(cwd), environment(**more), **options)
    return Process(nursery(*JIANMU), program, files)


def begun(*arguments: str, folder: Path) -> Process:
    """Start the command, and wait until its node `Sleepy` is at work."""
    process = started(*arguments, SHOP=str(folder))
    for _ in range(SECONDS * 200):
        if (folder / "began").exists():
            return process
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(process.communicate()[1])


class Terminal:
    """The command in a terminal of its own; stdout can be a pipe."""

    def __init__(self, *arguments: str, cwd: Path = HERE, rows: int = 24, **more: str) -> None:
        self.screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))
        self.process = _process(arguments, cwd, more, (inside, inside, inside), has_terminal=True)
        os.close(inside)
        self.raw = b""
        self._seen = 0

    @property
    def shown(self) -> str:
        """All that was shown, without what steers the terminal."""
        return CODES.sub("", self.raw.decode("utf-8", "ignore"))

    def __enter__(self) -> Self:
        """Begin a block in which the command is on."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.screen)

    def expect(self, text: str) -> str:
        """Wait until a text is shown after the one that was waited for before; return all in between."""
        deadline = time.monotonic() + SECONDS
        while text not in self.shown[self._seen :]:
            ready = select.select([self.screen], [], [], max(deadline - time.monotonic(), 0))[0]
            if not (ready and self._read()):
                raise AssertionError(f"{text!r} was not shown:\n{self.shown}")
        start, self._seen = self._seen, self.shown.index(text, self._seen) + len(text)
        return self.shown[start : self._seen]

    def type(self, text: str) -> None:
        """Type keys."""
        os.write(self.screen, text.encode())

    def is_still(self) -> bool:
        """Whether nothing is shown while a live display would draw several times."""
        return not select.select([self.screen], [], [], 0.35)[0]

    def end(self) -> int:
        """Read on until the command has ended; return its exit code."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def has_children(self) -> bool:
        """Whether a process of the command's group is alive."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _read(self) -> bool:
        """Read what is shown; False when there will be no more."""
        try:
            some = os.read(self.screen, 65536)
        except OSError:
            return False
        self.raw += some
        return bool(some)
