"""The tools of an MCP server, as tools that a model can call."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast  # Any: arguments and results

from anyio.from_thread import BlockingPortal
from pydantic import JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.context import NodeContext
from jianmu.errors import SetupError
from jianmu.tool.base import Tool
from jianmu.tool.mcpasks import Round, Rounds, known
from jianmu.tool.mcpcall import CallError, Job, StateRefusedError, Wanted
from jianmu.tool.mcpcontent import content_of_result
from jianmu.tool.mcplink import Link
from jianmu.tool.types import ToolCall, ToolResult

MAX_ROUNDS = 10
"""How often a server may ask in one call."""
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 64


@dataclass
class Server:
    """A server as its tools know it.

    Attributes:
        name: what it is called.
        link: the connection to it.
        portal: the way to the connection's event loop, while the box is open.
        files: where images and other bytes are saved, or None.
    """

    name: str
    link: Link
    files: Path | None = None
    portal: BlockingPortal | None = None

    async def call(self, job: Job) -> ToolResult | Wanted:
        """Return what a call has given; if this task is cancelled, the call is ended, and the server is told.

        Raises:
            CallError: it came to nothing.
            SetupError: the box is closed.
        """
        if self.portal is None:
            raise SetupError(f"the box of the MCP server '{self.name}' is closed: async with box: ...")
        return await self.portal.call_async(self._result, job)

    async def _result(self, job: Job) -> ToolResult | Wanted:
        """Do the work on a result in the thread of the connection."""
        result = await self.link.call(job)
        if isinstance(result, Wanted):
            return result
        content = content_of_result(result, self.files)
        return ToolResult(call_id="", content=content, is_error=result.get("isError") is True)


class MCPTool(Tool):
    """A tool of an MCP server; made by its box.

    A server that asks a person is answered through the context of the node that calls; without one the call fails.

    Args:
        server: whose it is.
        shown: what the server says of it.
        name: what the model calls it by.
        options: those of a tool, from `timeout` on.

    Attributes:
        remote_name: what the server calls it.
        annotations: what the server says about it besides: `readOnlyHint`, `destructiveHint`, ….

    Raises:
        SetupError: it cannot be a tool: its schema is none, for example.
    """

    def __init__(self, server: Server, shown: JsonObject, name: str, **options: Any) -> None:
        self._server = server
        self.remote_name = str(shown["name"])
        self.annotations = cast("JsonObject", shown.get("annotations") or {})
        is_harmless = self.annotations.get("readOnlyHint") is True or self.annotations.get("idempotentHint") is True
        description = shown.get("description") or shown.get("title") or self.annotations.get("title") or ""
        super().__init__(
            self._called,
            name=name,
            description=str(description),
            parameters=cast("JsonObject", shown["inputSchema"]),
            idempotent=is_harmless,
            **options,
        )
        self.origin = f"the tool '{self.remote_name}' of the MCP server '{server.name}'"

    async def _called(self, arguments: JsonObject) -> Any:
        """Return the content of what the tool gives."""
        return (await self.call(ToolCall(id="call", name=self.name, arguments=arguments))).content

    async def _run(
        self, call: ToolCall, context: NodeContext | None, values: dict[str, Any], returned: list[Any]
    ) -> ToolResult:
        (arguments,) = values.values()
        try:
            made = await self._answered(call, context, arguments)
        except CallError as error:
            made = ToolResult(call_id=call.id, content=str(error), is_error=True)
        returned.append(made)
        return made

    async def _answered(self, call: ToolCall, context: NodeContext | None, arguments: JsonObject) -> ToolResult:
        """Return the result, after all rounds of questions; those that were asked before are not sent again."""
        rounds: Rounds = []
        while True:
            asking = None if context is None else Round(context, call.id, len(rounds), self._told())
            wanted = None if asking is None else asking.asked()
            if wanted is None:
                with nullcontext() if context is None else context.clock.working():
                    found = await self._sent(arguments, rounds)
                if not isinstance(found, Wanted):
                    return found
                wanted = found
            if asking is None:
                raise CallError(f"'{self.name}' asks for input, and here is nobody who could be asked.")
            if len(rounds) == MAX_ROUNDS:
                raise CallError(f"'{self.name}' has asked for input {MAX_ROUNDS} times, and was given up.")
            rounds.append((wanted, await asking.ask(wanted)))

    async def _sent(self, arguments: JsonObject, rounds: Rounds) -> ToolResult | Wanted:
        """Return what comes of a call after some rounds; a server that has forgotten them is called from the top."""
        job = Job(self.remote_name, arguments, is_harmless=self.idempotent, known=known(rounds))
        if rounds and rounds[-1][0].way == "next":
            job.state, job.responses = rounds[-1][0].state, rounds[-1][1]
        try:
            return await self._server.call(job)
        except StateRefusedError:
            job.state = job.responses = None
            job.known = known(rounds, everything=True)
        return await self._server.call(job)

    def _told(self) -> dict[str, JsonValue]:
        return {"server": self._server.name, "tool": self.remote_name}


class Catalogue:
    """Makes tools of what a server lists; what stays the same in the list stays the same tool.

    Args:
        server: whose they are.
        options: of each tool.
        bad: told the name and the fault of what cannot be a tool.
    """

    def __init__(self, server: Server, options: Mapping[str, Any], bad: Callable[[str, str], None]) -> None:
        self._server = server
        self._options = options
        self._bad = bad
        self._listed: tuple[JsonObject, ...] = ()
        self._made: dict[str, tuple[JsonObject, MCPTool | None]] = {}

    def tools(self) -> tuple[MCPTool, ...]:
        """Return the tools of now."""
        listed = self._server.link.listed
        if listed is not self._listed:
            names = _names(str(one["name"]) for one in listed)
            self._made = {name: self._tool(name, one) for name, one in zip(names, listed, strict=True)}
            self._listed = listed
        return tuple(tool for _, tool in self._made.values() if tool is not None)

    def _tool(self, name: str, shown: JsonObject) -> tuple[JsonObject, MCPTool | None]:
        before = self._made.get(name)
        if before is not None and before[0] == shown:
            return before
        try:
            return shown, MCPTool(self._server, shown, name, **self._options)
        except SetupError as error:
            self._bad(str(shown["name"]), str(error))
            return shown, None


def _names(given: Iterable[str]) -> list[str]:
    """Return names that models can call, each of its own: what they cannot have becomes `_`."""
    found: dict[str, None] = {}
    for name in given:
        made = wanted = _OTHER.sub("_", name)[:_LONGEST] or "_"
        while made in found or (made == wanted and len(name) > _LONGEST):
            told = f"{name} {len(found)}" if made != wanted else name
            made = f"{wanted[: _LONGEST - 9]}_{hashlib.sha256(told.encode()).hexdigest()[:8]}"
        found[made] = None
    return [*found]
