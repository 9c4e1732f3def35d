"""What the tests of MCP servers share: servers of their own, and a line on which they say what they do."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process, SocketStream

from jianmu.tool import MCPToolbox, ToolCall, ToolResult, mcp_http, mcp_stdio
from tests import forks

PROGRAM = str(Path(__file__).with_name("mcpserver.py"))
IMPORTED = ("tests.tool.mcpserver", "uvicorn.lifespan.off", "uvicorn.protocols.http.auto", "anyio._backends._asyncio")
PATIENCE = 60.0
"""Seconds after which a test has failed; a loaded machine takes some to start a process."""


class Phone:
    """What the servers of a test say, in order.

    Attributes:
        port: where they ring up.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._said, self._heard = anyio.create_memory_object_stream[str](100)

    async def take(self, line: SocketStream) -> None:
        """Listen to one server until its process has gone."""
        name, rest = "", b""
        async with line:
            try:
                while True:
                    *words, rest = (rest + await line.receive()).split(b"\n")
                    for word in words:
                        name = word.decode().partition(" ")[0]
                        await self._said.send(word.decode())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                await self._said.send(f"{name} gone")

    async def hears(self, *words: str) -> str:
        """Return when all these were said, in whatever order; nothing else may be said meanwhile."""
        left = [*words]
        word = ""
        with anyio.fail_after(PATIENCE):
            while left:
                word = await self._heard.receive()
                left.remove(next((one for one in left if word.startswith(one)), word))
        return word

    def has_said(self) -> int:
        """Return how many words nobody has heard yet."""
        return self._heard.statistics().current_buffer_used

    def close(self) -> None:
        """Listen no more."""
        self._said.close()
        self._heard.close()


def threads() -> list[str]:
    """Return the threads of connections that are there."""
    return [one.name for one in threading.enumerate() if one.name.startswith("mcp ")]


@asynccontextmanager
async def phone() -> AsyncGenerator[Phone]:
    """Have a line that servers ring up."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    made = Phone(listener.extra(anyio.abc.SocketAttribute.local_port))
    try:
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, made.take)
            yield made
            group.cancel_scope.cancel()
    finally:
        made.close()


def command(*arguments: str, is_forked: bool = True) -> list[str]:
    """Return the command line of a server: as it is, or of one that is forked from a process that has imported it."""
    begin = forks.command("tests.tool.mcpserver:main", *IMPORTED) if is_forked else [sys.executable, PROGRAM]
    return [*begin, *arguments]


def stdio(line: Phone, name: str = "server", greeting: str = "", *, is_forked: bool = True, **more: Any) -> MCPToolbox:
    """Return the box of a server that is a process, which may say something before it speaks the protocol."""
    env = {"PHONE": str(line.port), "NAME": name, "GREETING": greeting}
    program, *arguments = command("stdio", is_forked=is_forked)
    return mcp_stdio(program, arguments, env=env, name=name, **more)


@asynccontextmanager
async def http_server(
    line: Phone, *args: str, port: int = 0, is_forked: bool = True
) -> AsyncGenerator[tuple[str, Process]]:
    """Have a server behind an address: the address, and its process."""
    env = {**os.environ, "PHONE": str(line.port), "NAME": "web"}
    process = await anyio.open_process(command("http", str(port), *args, is_forked=is_forked), env=env)
    try:
        said = await line.hears("web runs", "web listens")
        yield f"http://127.0.0.1:{said.split()[-1]}/mcp", process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.aclose()


def http(url: str, **options: Any) -> MCPToolbox:
    """Return the box of a server behind an address."""
    return mcp_http(url, name="web", **options)


async def call(box: MCPToolbox, name: str, /, **arguments: Any) -> ToolResult:
    """Return what a tool gives, without a node that calls."""
    tool = box.get(name)
    assert tool is not None
    with anyio.fail_after(PATIENCE):
        return await tool.call(ToolCall(id="c1", name=name, arguments=arguments))
