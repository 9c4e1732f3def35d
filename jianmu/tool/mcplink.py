"""The connection to one MCP server: made, kept up, made again.

1. It lives in an event loop of its own, in a thread of its own, under one task. Whoever opens, uses and closes it may
   be any task of any event loop, and a reply of 50 MB is read while the agent goes on.
2. When the connection is lost it is made again at once, then after pauses that grow; a call that comes meanwhile cuts
   the pause short.
3. A call that was under way when the connection was lost is sent again, once, and only where that does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import TYPE_CHECKING, TypeAlias, cast

import anyio
from structlog.typing import FilteringBoundLogger

from jianmu.engine.answers import JsonObject
from jianmu.errors import JianmuError
from jianmu.tool.mcpcall import Calls, Job, LostError, NotTakenError, Wanted

if TYPE_CHECKING:  # an extra: it may be absent
    from mcp.client import Client, IncomingMessage, Transport

Dial: TypeAlias = Callable[[Callable[[str], None]], "AbstractAsyncContextManager[Transport]"]
"""Makes a connection; it is given what to call when the connection is lost, with the reason."""

PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to connect; the last one counts from then on."""
_AGAIN = 1.0  # seconds until somebody listens again for changes of the list
_CLOSING = 3.0  # seconds in which a server is told that this client goes
_PAGES = 1000  # of a list of tools


class Link:
    """Keeps a server in reach; its methods are for its own event loop, its attributes for everybody.

    Args:
        server: what the server is called.
        dial: makes a connection.
        mode: how the protocol's version is found: "auto", "legacy", or a version.
        connect_timeout: seconds that a connection may take to be made.
        log: gets what happens to the connection.

    Attributes:
        listed: the server's tools, as it describes them.
        instructions: what it says about itself.
        problem: why the last attempt to connect has failed; below that what the server's process wrote last.
    """

    def __init__(self, server: str, dial: Dial, mode: str, connect_timeout: float, log: FilteringBoundLogger) -> None:
        self.listed: tuple[JsonObject, ...] = ()
        self.instructions: str | None = None
        self.problem = ""
        self._server, self._dial, self._mode, self._log = server, dial, mode, log
        self._connect_timeout = connect_timeout
        self._calls = Calls(server)
        self._client: Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._following: anyio.CancelScope | None = None
        self._pauses = iter(PAUSES)
        self._attempts = 0
        self._has_begun = self._is_made = self._is_ending = False
        self._moved = self._hurry = self._over = anyio.Event()

    async def run(self) -> None:
        """Hold the connection until `end` is called; the first attempt to make it has to succeed."""
        self._moved, self._hurry, self._over = anyio.Event(), anyio.Event(), anyio.Event()
        self._has_begun = self._is_ending = False
        self._attempts = 0
        self._pauses = iter(PAUSES)
        try:
            await self._attempt()
            while self._has_begun and not self._is_ending:
                await self._pause()
                await self._attempt()
        finally:
            self._is_ending = True
            self._move()
            self._over.set()

    async def begun(self) -> bool:
        """Return whether the first attempt to connect has succeeded."""
        while not (self._has_begun or self._attempts):
            await self._moved.wait()
        return self._has_begun

    async def end(self) -> None:
        """Close the connection, and return when it is closed."""
        self._is_ending = True
        self._hurry.set()
        if self._scope is not None and self._following is not None:
            self._scope.deadline = anyio.current_time() + _CLOSING
            self._following.cancel()
        elif self._scope is not None:
            self._scope.cancel()
        await self._over.wait()

    async def call(self, job: Job) -> JsonObject | Wanted:
        """Return what a call has given, or what the server wants to know first.

        Raises:
            CallError: it came to nothing.
        """
        pauses = iter(PAUSES[1:3])
        was_lost = False
        while True:
            client = await self._reached()
            try:
                return await self._calls.make(client, job)
            except NotTakenError as error:
                pause = next(pauses, None)
                if pause is None:
                    raise
                await self._prepare(client, error.why, pause)
            except LostError:
                if was_lost or not job.is_harmless:
                    raise
                was_lost = True

    async def _prepare(self, client: Client, why: str, pause: float) -> None:
        """Have a call that was not taken be taken the next time."""
        if why == "changed":
            await self._list(client)
        elif why == "forgotten" and client is self._client:
            self._lost("it does not know this client any more")
        else:
            await anyio.sleep(pause)

    async def _reached(self) -> Client:
        """Return the connection, when there is one."""
        seen = self._attempts
        while self._client is None:
            if self._is_ending or self._attempts > seen:
                problem = "it is closed" if self._is_ending else self.problem.partition("\n")[0]
                text = f"The MCP server '{self._server}' cannot be reached, so nothing was called"
                raise NotTakenError(f"{text}: {problem}.")
            self._hurry.set()
            await self._moved.wait()
        self._pauses = iter(PAUSES)
        return self._client

    # The connection

    async def _attempt(self) -> None:
        """Connect, and return when the connection is lost or could not be made."""
        self.problem = f"it did not answer in {self._connect_timeout:g} seconds"
        with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout) as self._scope:
            if self._is_ending:
                return
            self._is_made = False
            try:
                await self._hold(self._scope)
            except Exception as error:  # noqa: BLE001  # whatever the library raises: there is no connection
                self._lost(_cause(error))
        self._client = self._scope = self._following = None
        self._attempts += not self._is_made
        if not self._is_ending:
            self._log.warning("an MCP server is away", problem=self.problem.partition("\n")[0])
        self._move()

    async def _hold(self, scope: anyio.CancelScope) -> None:
        async with AsyncExitStack() as stack:
            transport = await stack.enter_async_context(self._dial(self._lost))
            client = await stack.enter_async_context(self._client_of(transport))
            await self._list(client)
            self.instructions = client.instructions
            scope.deadline = math.inf
            self.problem = "the connection was lost"
            self._client, self._is_made, self._has_begun = client, True, True
            self._move()
            with anyio.CancelScope() as self._following:
                await self._follow(client)
            self._following = None

    def _client_of(self, transport: Transport) -> Client:
        from mcp.client import Client  # noqa: PLC0415  # an extra
        from mcp.types import Implementation  # noqa: PLC0415  # an extra

        return Client(
            transport,
            mode=self._mode,
            cache=None,
            message_handler=self._heard,
            elicitation_callback=self._calls.elicited,
            client_info=Implementation(name="jianmu", version="1"),
        )

    def _lost(self, problem: str) -> None:
        """Give the connection up."""
        self._client, self.problem = None, problem
        if self._scope is not None:
            self._scope.cancel()

    def _move(self) -> None:
        """Tell those who wait for the connection that something has happened."""
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def _pause(self) -> None:
        """Wait before the next attempt, unless somebody has a call."""
        self._hurry = anyio.Event()
        with anyio.move_on_after(0 if self._is_ending else next(self._pauses, PAUSES[-1])):
            await self._hurry.wait()

    # The tools

    async def _list(self, client: Client) -> None:
        """Read the list of tools again."""
        found: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        self.listed = tuple(found)

    async def _follow(self, client: Client) -> None:
        """Read the list of tools again whenever it has changed, as long as the connection holds."""
        from mcp.client.subscriptions import SubscriptionLost  # noqa: PLC0415  # an extra
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415  # an extra
        from mcp.types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415  # an extra

        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            await anyio.sleep_forever()
        while True:
            with suppress(SubscriptionLost, MCPError):
                await self._listen(client)
            await anyio.sleep(_AGAIN)

    async def _listen(self, client: Client) -> None:
        async with client.listen(tools_list_changed=True) as changes:
            await self._list(client)  # it may have changed before somebody listened
            async for _ in changes:
                await self._list(client)

    async def _heard(self, message: IncomingMessage) -> None:
        """Take what a server of an older protocol says by itself."""
        from mcp.types import ToolListChangedNotification  # noqa: PLC0415  # an extra

        if isinstance(message, ToolListChangedNotification) and self._client is not None:
            await self._list(self._client)


def _cause(error: BaseException) -> str:
    """Return the first exception of a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = str(error).strip().splitlines()
    if isinstance(error, JianmuError):
        return text[0]
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
