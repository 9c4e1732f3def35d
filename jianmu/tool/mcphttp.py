"""A server of the Model Context Protocol behind an address: each message is a request of its own (streamable HTTP).

1. A request that fails is one call's fault: it is answered by an error of the protocol, and no other call sees it.
2. A request that did not reach the server has its own error: it was not carried out.
3. Headers are in no log and no text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias  # Any: the client's own options

from jianmu.errors import SetupError
from jianmu.tool.mcpcall import FORGOTTEN, NOT_SENT

if TYPE_CHECKING:  # an extra: it may be absent
    import httpx2
    from mcp.client import Transport

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]

CONNECT = 30.0
"""Seconds in which a connection has to be made, or a request written; how long a reply may take is the call's own."""
MAX_EVENT = 256 * 1024 * 1024
"""Bytes that one event of a server may have."""
_SESSION = "mcp-session-id"
_NOT_FOUND = 404


@dataclass(frozen=True)
class Address:
    """Where a server is, and what it is told with each request.

    Attributes:
        url: the address.
        headers: more headers, or a plain and quick function that returns them, asked for each request.
    """

    url: str
    headers: Headers = field(default_factory=dict[str, str], repr=False)


@asynccontextmanager
async def http_streams(address: Address) -> AsyncGenerator[Transport]:
    """Return a connection to a server behind an address."""
    import httpx2  # noqa: PLC0415  # an extra
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415  # an extra

    timeout = httpx2.Timeout(CONNECT, read=None)
    async with _client_class()(address, timeout=timeout) as client:
        yield streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_EVENT)


def _client_class() -> Callable[..., httpx2.AsyncClient]:
    import httpx2  # noqa: PLC0415  # an extra

    class Client(httpx2.AsyncClient):
        """A client whose requests fail one by one."""

        def __init__(self, address: Address, **options: Any) -> None:
            super().__init__(**options)
            self._address = address

        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            """Return the reply, or one that says what went wrong."""
            try:
                request.headers.update(_headers(self._address))
            except Exception as error:  # noqa: BLE001  # the user's own function runs here
                return _failed(request, NOT_SENT, LookupError(f"headers() raised {type(error).__name__}"))
            try:
                response = await super().send(request, **options)
                if response.status_code == _NOT_FOUND and _SESSION in request.headers:
                    await response.aclose()
                    return _failed(request, FORGOTTEN, LookupError("the session is not known"))
                if response.headers.get("content-type", "").startswith("application/json"):
                    await response.aread()
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
                return _failed(request, NOT_SENT, error)
            except httpx2.RequestError as error:
                return _failed(request, _closed(), error)
            return response

    def _failed(request: httpx2.Request, code: int, error: Exception) -> httpx2.Response:
        told = {"code": code, "message": str(error) or type(error).__name__}
        return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": told}, request=request)

    return Client


def _closed() -> int:
    from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415  # an extra

    return CONNECTION_CLOSED


def _headers(address: Address) -> Mapping[str, str]:
    return address.headers() if callable(address.headers) else address.headers


def checked_url(url: object) -> str:
    """Return an address that a server can have.

    Raises:
        SetupError: it is none.
    """
    if isinstance(url, str) and url.startswith(("http://", "https://")):
        return url
    told = "one that begins otherwise" if isinstance(url, str) else type(url).__name__  # it may have a password in it
    raise SetupError(f"mcp_http(url) takes an address such as 'http://localhost:8000/mcp', not {told}")
