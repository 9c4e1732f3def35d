"""Servers of the Model Context Protocol as toolboxes; needs the extra `mcp`.

```python
files = mcp_stdio("uvx", ["mcp-server-git", "--repository", "."])
issues = mcp_http("https://mcp.example.com/mcp", headers={"Authorization": f"Bearer {token}"})
```
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack  # Any: options of tools
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal
from structlog.typing import FilteringBoundLogger

from jianmu.engine.log import log
from jianmu.errors import MissingExtraError, SetupError
from jianmu.tool.base import MAX_RESULT_CHARS, Approval, Tool
from jianmu.tool.mcphttp import Address, Headers, checked_url, http_streams
from jianmu.tool.mcplink import Dial, Link
from jianmu.tool.mcpstdio import Command, process_streams
from jianmu.tool.mcpthread import LoopThread
from jianmu.tool.mcptool import Catalogue, Server
from jianmu.tool.toolbox import Toolbox


class Options(TypedDict, total=False):
    """The options of every server's box."""

    name: str | None
    timeout: float | None
    requires_approval: Approval
    max_result_chars: int | None
    files: str | os.PathLike[str] | None
    connect_timeout: float
    mode: str


class MCPToolbox(Toolbox):
    """The tools of an MCP server; made by `mcp_stdio` and `mcp_http`.

    The tools are known while the box is open, and follow the server's list when that changes. A connection that is
    lost is made again.

    Args:
        dial: makes connections that note what the server tells in a log.
        place: where the server is.
        name: what errors, questions and the log call it; by default the place.
        timeout: seconds after which a call is cut off; the server is told.
        requires_approval: as for a tool; of all tools of the server.
        max_result_chars: where a result is cut.
        files: the folder in which images and other bytes of results are saved; messages refer to the files. Without
            it they are left out, and a text in their place says so.
        connect_timeout: seconds that a connection may take to be made.
        mode: how the protocol's version is found: "auto" asks the server, "legacy" begins with the handshake of the
            versions up to 2025; or a newer version, which is taken without asking.

    Raises:
        MissingExtraError: the extra `mcp` is not installed.
        SetupError: an option has another shape.
    """

    is_live = True

    def __init__(
        self,
        dial: Callable[[FilteringBoundLogger], Dial],
        place: str,
        *,
        name: str | None = None,
        timeout: float | None = 300.0,
        requires_approval: Approval = False,
        max_result_chars: int | None = MAX_RESULT_CHARS,
        files: str | os.PathLike[str] | None = None,
        connect_timeout: float = 30.0,
        mode: str = "auto",
    ) -> None:
        if importlib.util.find_spec("mcp") is None:
            raise MissingExtraError("a server of the Model Context Protocol", "mcp")
        options: dict[str, Any] = {
            "timeout": timeout,
            "requires_approval": requires_approval,
            "max_result_chars": max_result_chars,
        }
        Tool(_nothing, name="options", **options)  # refuses what no tool could have
        if not _is_seconds(connect_timeout):
            raise SetupError(f"connect_timeout={connect_timeout!r}: it takes a number of seconds above 0")
        self.name = name or place
        self._log = log.bind(server=self.name)
        link = Link(self.name, dial(self._log), mode, connect_timeout, self._log)
        self._server = Server(self.name, link, None if files is None else Path(files))
        self._catalogue = Catalogue(self._server, options, self._left_out)
        self._thread: LoopThread | None = None
        super().__init__()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of now, in the server's order; none before the box was opened."""
        return self._catalogue.tools()

    @property
    def instructions(self) -> str | None:
        """What the server says about how it is used, or None."""
        return self._server.link.instructions

    async def start(self) -> None:
        """Connect and read the list of tools.

        Raises:
            SetupError: the server cannot be reached.
        """
        self._thread = LoopThread(f"mcp {self.name}")
        self._server.portal = portal = await anyio.to_thread.run_sync(
            _begin, self._thread, self._server.link, limiter=anyio.CapacityLimiter(1)
        )
        try:
            is_there = await portal.call_async(self._server.link.begun)
        except BaseException:
            await self.stop()
            raise
        if not is_there:
            problem = self._server.link.problem
            await self.stop()
            raise SetupError(f"the MCP server '{self.name}' cannot be reached: {problem}")

    async def stop(self) -> None:
        """End all calls, close the connection, and end the server's process."""
        thread, self._thread = self._thread, None
        portal, self._server.portal = self._server.portal, None
        if thread is None or portal is None:
            return
        with anyio.CancelScope(shield=True):
            await portal.call_async(self._server.link.end)
            await anyio.to_thread.run_sync(thread.stop, limiter=anyio.CapacityLimiter(1))

    def _left_out(self, name: str, problem: str) -> None:
        self._log.warning("a tool of an MCP server cannot be used", tool=name, problem=problem)


def mcp_stdio(
    command: str,
    args: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    grace: float = 2.0,
    **options: Unpack[Options],
) -> MCPToolbox:
    """Return the tools of a server that is started as a process and ends when the box is closed.

    Args:
        command: the program.
        args: its arguments.
        env: what its environment has besides `PATH`, `HOME` and the like; nothing else of this process's environment
            is handed on, so give it what it needs: `env={"GITHUB_TOKEN": os.environ["GITHUB_TOKEN"]}`.
        cwd: the folder in which it runs.
        grace: seconds that it has to end by itself when the box is closed, and again after SIGTERM.
        options: those of an `MCPToolbox`; `name` is the program's name by default.

    Raises:
        MissingExtraError: the extra `mcp` is not installed.
        SetupError: an option has another shape. That there is no such program is found when the box is opened.
    """
    if isinstance(args, str):
        raise SetupError('mcp_stdio(command, args) takes a program and a list, mcp_stdio("uvx", ["x"]), not one text')
    program = Command(command, [*map(os.fspath, args)], dict(env or {}), cwd, grace)
    return MCPToolbox(lambda log: lambda lost: process_streams(program, lost, log), Path(command).name, **options)


def mcp_http(url: str, *, headers: Headers | None = None, **options: Unpack[Options]) -> MCPToolbox:
    """Return the tools of a server behind an address, by streamable HTTP.

    Args:
        url: the address.
        headers: more headers of each request, such as `Authorization`; or a plain and quick function that returns
            them, for tokens that are renewed.
        options: those of an `MCPToolbox`; `name` is the host by default.

    Raises:
        MissingExtraError: the extra `mcp` is not installed.
        SetupError: an option has another shape.
    """
    address = Address(checked_url(url), headers or {})
    host = urlsplit(url).netloc.rpartition("@")[2]
    return MCPToolbox(lambda _log: lambda _lost: http_streams(address), host, **options)


def _begin(thread: LoopThread, link: Link) -> BlockingPortal:
    """Start the thread of a connection; the library is imported here, which takes a second."""
    importlib.import_module("mcp.client")
    for name in ("mcp", "client"):  # else Python prints what they log, where the user has not set logging up
        logging.getLogger(name).addHandler(logging.NullHandler())
    portal = thread.start()
    portal.start_task_soon(link.run)
    return portal


def _nothing() -> None:
    """Do nothing."""


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
