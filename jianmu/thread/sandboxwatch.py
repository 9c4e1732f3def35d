"""A program and its keeper, as seen from the process that runs jianmu.

1. Whatever happens to a call, also where it is cancelled, it leaves when the keeper has gone, and the program with it.
2. A keeper that was killed leaves processes behind: they are found by a mark in their environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any  # Any: JSON

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process

from jianmu.thread.sandbox import EndedBy, Ran
from jianmu.thread.sandboxoutput import Output

KEEPER = Path(__file__).with_name("sandboxkeeper.py")
MARK = "JIANMU_SANDBOX_RUN"
"""The variable by which what is left of a program is found when its keeper was killed."""
_LOOK = 0.01  # seconds between two looks whether a process is there
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
SLACK = 4.0
"""Seconds that a keeper has to end what cannot be asked; one that was stopped or hangs is killed then."""


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
        self._is_flooded = self._is_hopeless = False
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
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(KEEPER),
                    self._order["cwd"],
                ],  # for whoever looks at processes
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
            with anyio.move_on_after(self._order["seconds"] + self._order["grace"] + SLACK) as scope:
                await self._listen(process.stderr)
            self._is_hopeless = scope.cancelled_caught
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
                self._take(lines)

    def _take(self, lines: list[bytes]) -> None:
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
        if process.stderr is not None and not self._is_hopeless:
            with anyio.move_on_after(self._order["grace"] + SLACK):
                await self._listen(process.stderr)
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
    for _ in range(50):
        found = list(_marked(f"{MARK}={mark}".encode()))
        if not found:
            return
        _send(found, signal.SIGSTOP)  # what is stopped starts no others
        _send(found, signal.SIGKILL)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _marked(sought: bytes) -> Iterator[int]:
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sought in (one / "environ").read_bytes().split(b"\0"):
                yield int(one.name)
