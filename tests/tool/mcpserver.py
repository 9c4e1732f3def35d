"""A server of the Model Context Protocol, as a program: `mcpserver.py stdio` or `mcpserver.py http PORT`.

It rings the test up at the port in PHONE, as soon as it runs, and says there what it does: `name word`. When the line
goes dead the test knows that the process has ended.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

PIXEL = base64.b64encode(b"\x89PNG not really").decode()
server = MCPServer("demo", instructions="Add before you multiply.")
stubborn: list[object] = []
lines: list[socket.socket] = []
READ_ONLY = ToolAnnotations(read_only_hint=True)


def say(word: object) -> None:
    """Tell the test."""
    lines[0].sendall(f"{os.environ.get('NAME', 'server')} {word}\n".encode())


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    say("add")
    return a + b


@server.tool()
def environment() -> dict[str, str]:
    """Return the environment."""
    return dict(os.environ)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("no such thing")


@server.tool()
def grumble() -> str:
    """Write to stderr."""
    os.write(2, b"grumble, grumble\n")
    return "done"


@server.tool()
def big(megabytes: int) -> str:
    """Return a long text."""
    return "x" * (megabytes * 1024 * 1024)


@server.tool()
def picture() -> list[Any]:
    """Return a text, an image and a link."""
    image = ImageContent(type="image", data=PIXEL, mime_type="image/png")
    link = ResourceLink(type="resource_link", uri="file:///notes.txt", name="notes")
    return [TextContent(type="text", text="look:"), image, link]


@server.tool()
def only_structured() -> CallToolResult:
    """Return structured content and nothing else."""
    return CallToolResult(content=[], structured_content={"n": [1, 2]})


@server.tool()
async def hang() -> str:
    """Hang until the call is cancelled."""
    say("hangs")
    try:
        await anyio.sleep_forever()
    finally:
        say("cancelled")
    return ""


@server.tool()
def die() -> str:
    """Die at once."""
    os._exit(1)


@server.tool(annotations=READ_ONLY)
def die_once(marker: str) -> str:
    """Die at the first call."""
    if Path(marker).exists():
        return "alive"
    Path(marker).touch()
    os._exit(1)


@server.tool()
async def grow(ctx: Context) -> str:
    """Get another tool."""

    def more(text: str = "more") -> str:
        """Say more."""
        return text

    server.add_tool(more)
    await ctx.notify_tools_changed()
    if ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()
    return "grown"


CHILD = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
line.sendall(b"child there\\n")
print("there", flush=True)
time.sleep(1000)
"""


@server.tool()
async def be_stubborn() -> str:
    """Ignore SIGTERM and the end of stdin from now on; and have a child that does."""
    child = await anyio.open_process([sys.executable, "-c", CHILD, os.environ["PHONE"]])
    assert child.stdout is not None
    await child.stdout.receive()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stubborn.append(child)
    return "ok"


class Size(BaseModel):
    """What is asked for."""

    size: int = Field(ge=1)


class Colour(BaseModel):
    """What is asked for, too."""

    colour: str


def ask_size() -> Elicit[Size]:
    """Ask."""
    return Elicit("Which size?", Size)


def ask_colour() -> Elicit[Colour]:
    """Ask."""
    return Elicit("Which colour?", Colour)


@server.tool()
def order(what: str, size: Annotated[Size, Resolve(ask_size)], colour: Annotated[Colour, Resolve(ask_colour)]) -> str:
    """Order something, after a question or two."""
    say(f"orders {what}")
    return f"{what} {size.size} {colour.colour}"


@server.tool()
async def pay(ctx: Context) -> InputRequiredResult | str:
    """Pay at an address, after two rounds of questions."""
    if ctx.request_state is None:
        url = ElicitRequestURLParams(message="Pay there, please.", url="https://pay.example.com/1")
        return InputRequiredResult(input_requests={"pay": ElicitRequest(params=url)}, request_state="secret-1")
    said = ctx.input_responses or {}
    if ctx.request_state == "secret-1" and said["pay"].action == "accept":
        form = ElicitRequestFormParams(
            message="Your name?",
            requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        )
        return InputRequiredResult(input_requests={"name": ElicitRequest(params=form)}, request_state="secret-2")
    if ctx.request_state == "secret-2":
        say("paid")
        return f"paid by {said['name'].content['name']}"
    return f"not paid: {said['pay'].action}"


@server.tool()
async def lure(ctx: Context) -> InputRequiredResult | str:
    """Want somebody to go where nobody should."""
    url = ElicitRequestURLParams(message="Click!", url="javascript:alert(1)")
    return InputRequiredResult(input_requests={"click": ElicitRequest(params=url)}, request_state="1")


@server.tool()
async def later(ctx: Context) -> InputRequiredResult | str:
    """Say "not yet" twice."""
    count = int(ctx.request_state or 0)
    return f"after {count}" if count == 2 else InputRequiredResult(request_state=str(count + 1))


@server.tool()
async def confirm(what: str, ctx: Context) -> str:
    """Ask in the midst of a call, as servers did before 2026."""
    say("asks")
    answer = await ctx.elicit(f"Really {what}?", Size)
    say(f"goes on with {answer.action}")
    return f"{what}: {answer.action} {getattr(answer, 'data', None)}"


@server.tool()
def sign_in(marker: str) -> str:
    """Want somebody to sign in elsewhere first, as servers did before 2026."""
    if Path(marker).exists():
        return "signed in"
    Path(marker).touch()
    url = ElicitRequestURLParams(message="Sign in.", url="https://id.example.com", elicitation_id="1")
    raise UrlElicitationRequiredError([url])


async def served(scope: Any, receive: Any, send: Any, app: Any) -> None:
    """Serve by HTTP, and tell when a client says that it goes."""
    if scope.get("method") == "DELETE":
        say("is left")
    await app(scope, receive, send)


def main() -> None:
    """Serve, as the arguments of the program say."""
    lines.append(socket.create_connection(("127.0.0.1", int(os.environ["PHONE"]))))
    say("runs")
    if sys.argv[1] == "http":
        told = partial(served, app=server.streamable_http_app(json_response="json" in sys.argv))
        listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
        say(f"listens {listener.getsockname()[1]}")
        uvicorn.Server(uvicorn.Config(told, log_level="error", interface="asgi3")).run(sockets=[listener])
        return
    os.write(1, f"{os.environ.get('GREETING', '')}\n".encode())  # against the protocol
    server.run("stdio")
    while stubborn:
        time.sleep(1000)


if __name__ == "__main__":
    main()
