"""A server of the Model Context Protocol as a process: messages are lines of its stdin and stdout.

1. The process has a group of its own, and the group ends with the block: asked by the end of stdin, then by SIGTERM,
   then killed. Where the interpreter exits and nobody has left the block, it is killed.
2. The process gets no secrets: of this environment it sees what every program needs to run (`PATH`, `HOME`, …).
3. What it writes to stderr goes to the log, and never to the terminal; its last lines tell why it has gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.abc import ByteReceiveStream, Process
from structlog.typing import FilteringBoundLogger

from jianmu.errors import SetupError

if TYPE_CHECKING:  # an extra: it may be absent
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client import Transport
    from mcp.shared.message import SessionMessage

    Incoming: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
    Heard: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
    Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]

MAX_MESSAGE = 256 * 1024 * 1024
"""Bytes that one message of a server may have."""
_LINE = 4000  # characters of stderr that one line of the log shows
_FLUSH = 0.5  # seconds in which what was sent goes out at the end, and in which the last words of a process come in
_LAST = 8  # lines of stderr that tell why a process has gone
_LOOK = 0.01  # seconds between two looks whether a process is there
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@dataclass(frozen=True)
class Command:
    """How the process of a server is started and ended.

    Attributes:
        command: the program.
        args: its arguments.
        env: what its environment has besides what every program gets.
        cwd: the folder in which it runs.
        grace: seconds that it has to end when it is asked to, each time.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | os.PathLike[str] | None = None
    grace: float = 2.0

    async def start(self) -> Process:
        """Start the process.

        Raises:
            SetupError: there is no such program, or no such folder.
        """
        try:
            return await self._start()
        except (OSError, TypeError, ValueError) as error:
            problem = error.strerror if isinstance(error, OSError) else str(error)
        raise SetupError(f"the program {self.command!r} of an MCP server cannot be started: {problem}")

    async def _start(self) -> Process:
        from mcp.client.stdio import get_default_environment  # noqa: PLC0415  # an extra

        process: Process | None = None
        with anyio.CancelScope(shield=True):  # a process that is started halfway would be nobody's
            process = await anyio.open_process(
                [self.command, *self.args],
                env={**get_default_environment(), **self.env},
                cwd=self.cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        assert process is not None
        return process


@asynccontextmanager
async def process_streams(
    command: Command, lost: Callable[[str], None], log: FilteringBoundLogger
) -> AsyncGenerator[Transport]:
    """Return a connection to the process of a server, which ends with the block.

    Args:
        command: how it is started.
        lost: called with the reason when the process has gone, or speaks no more.
        log: gets what it writes to stderr.
    """
    process = await command.start()
    kill = weakref.finalize(process, kill_group, process.pid)  # also where nobody closes anything
    try:
        yield _streams(process, lost, log)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, command.grace)
        kill.detach()


@asynccontextmanager
async def _streams(
    process: Process, lost: Callable[[str], None], log: FilteringBoundLogger
) -> AsyncGenerator[tuple[Heard, MemoryObjectSendStream[SessionMessage]]]:
    incoming, read = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    write, outgoing = anyio.create_memory_object_stream["SessionMessage"](0)
    is_flushed = anyio.Event()
    assert process.stdout is not None
    assert process.stderr is not None
    words = LastWords()
    async with incoming, read, write, outgoing, anyio.create_task_group() as group:
        group.start_soon(_read, process.stdout, incoming, lost, words, log)
        group.start_soon(_write, process, outgoing, lost, words, is_flushed)
        group.start_soon(_note, process.stderr, words, log)
        try:
            yield read, write
        finally:
            write.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_FLUSH):
                await is_flushed.wait()
            group.cancel_scope.cancel()


class LastWords:
    """What a process has written to stderr last.

    Attributes:
        lines: the lines.
        is_over: set when there will be no more.
    """

    def __init__(self) -> None:
        self.lines = deque[str](maxlen=_LAST)
        self.is_over = anyio.Event()

    async def after(self, reason: str) -> str:
        """Return why it has gone: a reason, and its last words on the lines below."""
        with anyio.move_on_after(_FLUSH):
            await self.is_over.wait()
        return "\n  ".join([f"{reason}; it wrote last:", *self.lines]) if self.lines else reason


async def _read(
    stdout: ByteReceiveStream,
    incoming: Incoming,
    lost: Callable[[str], None],
    words: LastWords,
    log: FilteringBoundLogger,
) -> None:
    """Hand on what the server says, until it says no more."""
    lines = Lines(MAX_MESSAGE)
    reason = "its process has ended"
    async with incoming:
        try:
            async for piece in stdout:
                await _hand_on(lines.fed(piece), incoming, log)
        except TooLongError as error:
            reason = str(error)
        except _BROKEN:
            pass
        lost(await words.after(reason))  # before anybody sees the end of the stream


async def _hand_on(lines: list[bytes], incoming: Incoming, log: FilteringBoundLogger) -> None:
    for line in lines:
        message = _parsed(line)
        if message is not None:
            await incoming.send(message)
        else:
            log.warning("an MCP server wrote to stdout what is no message", line=_shown(line))


def _parsed(line: bytes) -> SessionMessage | None:
    from mcp.shared.message import SessionMessage  # noqa: PLC0415  # an extra
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415  # an extra

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


async def _write(
    process: Process, outgoing: Outgoing, lost: Callable[[str], None], words: LastWords, is_flushed: anyio.Event
) -> None:
    """Tell the server what there is to tell."""
    assert process.stdin is not None
    try:
        async for one in outgoing:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(text.encode() + b"\n")
    except _BROKEN:
        lost(await words.after("its process takes no messages any more"))
    finally:
        is_flushed.set()


async def _note(stderr: ByteReceiveStream, words: LastWords, log: FilteringBoundLogger) -> None:
    """Log what the server writes to stderr."""
    lines = Lines(_LINE)

    def note(piece: bytes) -> None:
        for line in map(_shown, lines.fed(piece, cuts=True)):
            words.lines.append(line)
            log.info("an MCP server wrote to stderr", line=line)

    with suppress(*_BROKEN):
        async for piece in stderr:
            note(piece)
    note(b"\n")
    words.is_over.set()


def _shown(line: bytes) -> str:
    return line[:_LINE].decode("utf-8", "replace").rstrip("\r\n")


class TooLongError(Exception):
    """A message is too long."""


class Lines:
    """Makes lines of pieces, in linear time.

    Args:
        most: bytes that a line may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0

    def fed(self, piece: bytes, *, cuts: bool = False) -> list[bytes]:
        """Return the lines that are whole now, without empty ones.

        Args:
            piece: what comes next.
            cuts: whether a line that is too long is cut.

        Raises:
            TooLongError: it is not, and a line is too long.
        """
        head, newline, rest = piece.partition(b"\n")
        self._pieces.append(head)
        self._size += len(head)
        if self._size > self._most and not cuts:
            raise TooLongError(f"it sent a message of more than {self._most} bytes")
        if not newline and self._size <= self._most:
            return []
        *more, last = rest.split(b"\n")
        found = [b"".join(self._pieces), *more]
        self._pieces, self._size = [last], len(last)
        return [line for line in found if line.strip()]


async def _end(process: Process, grace: float) -> None:
    """End a process and all of its group; each step has its time."""
    assert process.stdin is not None
    with suppress(*_BROKEN):
        await process.stdin.aclose()
    await _gone(lambda: process.returncode is not None, grace)
    if process.returncode is None or _is_alive(process.pid):
        _signal(process, process.pid, "SIGTERM")
        await _gone(lambda: process.returncode is not None and not _is_alive(process.pid), grace)
    if process.returncode is None or _is_alive(process.pid):
        _signal(process, process.pid, "SIGKILL")
        await _gone(lambda: process.returncode is not None, grace)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.aclose()
    _close_transport(process)


def _close_transport(process: Process) -> None:
    """Close asyncio's own end of the pipes, which stays open while somebody else holds the other; trio has none."""
    close = getattr(getattr(getattr(process, "_process", None), "_transport", None), "close", None)
    if callable(close):
        with suppress(PermissionError):
            close()


async def _gone(is_gone: Callable[[], bool], seconds: float) -> None:
    """Wait until something has gone; `process.wait()` would wait for the pipes too, which a child may hold open."""
    with anyio.move_on_after(seconds):
        while not is_gone():  # noqa: ASYNC110  # nothing tells of it
            await anyio.sleep(_LOOK)


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, AttributeError):  # Windows has no groups
        return False
    except PermissionError:
        return True
    return True


def _signal(process: Process, group: int, name: str) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(group, getattr(signal, name))
        else:
            process.kill()


def kill_group(group: int) -> None:
    """Kill a group of processes, if it is there."""
    with suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(group, signal.SIGKILL)
