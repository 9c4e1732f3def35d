"""Connections to MCP servers: lost and made again, by stdio and by HTTP; and how a server's process ends."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.errors import SetupError
from jianmu.tool import MCPToolbox
from tests.tool.mcpkit import (
    PATIENCE,
    PROGRAM,
    call,
    http,
    http_server,
    phone,
    stdio,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow_on_trio]


UNKNOWN = "The connection to the MCP server '{0}' was lost during the call; whether '{1}' took effect is not known."


async def test_a_call_during_which_the_server_dies_has_an_unknown_outcome() -> None:
    """It is not made again; the server is started again, and the next call works."""
    async with phone() as line, stdio(line) as box:
        await line.hears("server runs")
        lost = await call(box, "die")
        assert lost.is_error
        assert lost.content == UNKNOWN.format("server", "die")
        assert (await call(box, "add", a=1, b=1)).content == "2"
        await line.hears("server gone", "server runs", "server add")


async def test_a_call_that_does_no_harm_is_made_again(tmp_path: Path) -> None:
    """A tool that only reads is called once more when the server has died during the call."""
    async with phone() as line, stdio(line) as box:
        assert (await call(box, "die_once", marker=str(tmp_path / "marker"))).content == "alive"
        await line.hears("server runs", "server gone", "server runs")


async def test_a_call_is_made_again_only_once() -> None:
    """A tool that only reads and kills its server each time has an unknown outcome."""
    async with phone() as line, stdio(line) as box:
        tool = box.get("die")
        assert tool is not None
        tool.idempotent = True
        assert (await call(box, "die")).content == UNKNOWN.format("server", "die")
        await line.hears(*["server runs", "server gone"] * 2)


async def test_a_server_that_dies_between_calls_is_started_again() -> None:
    """Nobody has to call for it; what the list of tools was before may have changed."""
    async with phone() as line, stdio(line) as box:
        assert (await call(box, "grow")).content == "grown"
        await call(box, "die")
        await line.hears("server runs", "server gone", "server runs")
        with anyio.fail_after(PATIENCE):
            while "more" in box:
                await anyio.lowlevel.checkpoint()


async def test_a_closed_box_ends_the_calls_that_are_under_way() -> None:
    """Who calls while the box is closed gets an error, and nobody waits."""
    results: list[Any] = []

    async def hang(box: MCPToolbox) -> None:
        results.append(await call(box, "hang"))

    async with phone() as line:
        box = stdio(line)
        async with anyio.create_task_group() as group:
            await box.open()
            group.start_soon(hang, box)
            await line.hears("server runs", "server hangs")
            await box.close()
        assert results[0].content == UNKNOWN.format("server", "hang")


async def test_a_process_that_ignores_sigterm_is_killed_with_its_group() -> None:
    """The end of stdin, SIGTERM, SIGKILL: the process and its children have gone when the box is closed."""
    async with phone() as line:
        async with stdio(line, is_forked=False, grace=0.2) as box:
            assert (await call(box, "be_stubborn")).content == "ok"
            await line.hears("server runs", "child there")
        await line.hears("server gone", "child gone")


ABANDONED = """
import os, signal, sys, anyio
from jianmu.tool import mcp_stdio, ToolCall

async def main():
    _, program, port, tool, end = sys.argv
    box = mcp_stdio(sys.executable, [program, "stdio"], env={"PHONE": port, "NAME": "server"})
    await box.open()
    await box.get(tool).call(ToolCall(id="1", name=tool, arguments={"a": 1, "b": 1} if tool == "add" else {}))
    sys.exit(3) if end == "exit" else os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


@pytest.mark.parametrize(
    ("tool", "end", "words"),
    [
        ("be_stubborn", "exit", ["child there", "server gone", "child gone"]),
        ("add", "kill", ["server add", "server gone"]),
    ],
)
async def test_the_process_ends_when_nobody_closes_the_box(tool: str, end: str, words: list[str]) -> None:
    """Where the program exits without closing anything its servers are killed; when it is killed they see it."""
    async with phone() as line:
        command = [sys.executable, "-c", ABANDONED, PROGRAM, str(line.port), tool, end]
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(command, check=False)
        assert done.returncode == (3 if end == "exit" else -9), done.stderr
        await line.hears("server runs", *words)


# By HTTP


@pytest.mark.parametrize(("mode", "format"), [("auto", "sse"), ("legacy", "json")])
async def test_a_server_behind_an_address_has_tools(mode: str, format: str) -> None:
    """By HTTP it is as by stdio: tools, results, errors, a long text; whichever form the replies have."""
    async with phone() as line, http_server(line, format) as (url, _), http(url, mode=mode) as box:
        assert (await call(box, "add", a=1, b=2)).content == "3"
        assert (await call(box, "fail")).is_error
        assert "[cut:" in str((await call(box, "big", megabytes=5)).content)
        assert (await call(box, "only_structured")).content == '{"n": [1, 2]}'
        assert (await call(box, "die")).content == UNKNOWN.format("web", "die")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_by_http_is_cancelled_at_the_server(mode: str) -> None:
    """A call that is cut off ends at the server too; the next one works."""
    async with phone() as line, http_server(line) as (url, _), http(url, mode=mode, timeout=0.3) as box:
        late = await call(box, "hang")
        assert late.content == "'hang' was cut off after 0.3 seconds; whether it took effect is not known."
        await line.hears("web hangs", "web cancelled")
        assert (await call(box, "add", a=1, b=2)).content == "3"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_behind_an_address_may_be_started_again(mode: str) -> None:
    """While it is away a call was not made, and the text says so; when it is back the next one works."""
    async with phone() as line:
        async with http_server(line) as (url, process):
            box = http(url, mode=mode)
            await box.open()
            assert (await call(box, "add", a=1, b=2)).content == "3"
            process.kill()
            await line.hears("web add", "web gone")
            away = await call(box, "add", a=1, b=2)
            assert away.is_error
            assert "so nothing was called" in str(away.content)
        port = int(url.split(":")[2].split("/")[0])
        async with http_server(line, port=port):
            assert (await call(box, "add", a=2, b=2)).content == "4"
            await box.close()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_list_of_a_server_behind_an_address_is_followed(mode: str) -> None:
    """What the server says of its list comes by HTTP too."""
    async with phone() as line, http_server(line) as (url, _), http(url, mode=mode) as box:
        assert (await call(box, "grow")).content == "grown"
        with anyio.fail_after(PATIENCE):
            while "more" not in box:
                await anyio.lowlevel.checkpoint()


async def test_a_server_behind_an_address_is_told_that_its_client_goes() -> None:
    """A server that keeps something for a client can let it go when the box is closed."""
    async with phone() as line, http_server(line) as (url, _):
        async with http(url, mode="legacy") as box:
            assert (await call(box, "add", a=1, b=2)).content == "3"
        await line.hears("web add", "web is left")


async def test_headers_are_sent_and_shown_to_nobody() -> None:
    """What proves who calls goes with each request, newly made if a function makes it, and is in no text."""
    seen: list[str] = []
    count = iter(range(100))

    async def serve(stream: Any) -> None:
        async with stream:
            seen.append((await stream.receive()).decode().lower())
            await stream.send(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/mcp"
    box = http(url, headers=lambda: {"Authorization": f"Bearer secret-{next(count)}"})
    async with listener, anyio.create_task_group() as group:
        group.start_soon(partial(listener.serve, serve))
        with anyio.fail_after(PATIENCE), pytest.raises(SetupError) as raised:
            await box.open()
        group.cancel_scope.cancel()
    assert "authorization: bearer secret-0" in seen[0]
    assert "authorization: bearer secret-1" in seen[1]
    assert "secret" not in f"{raised.value} {box!r}"
    assert "the MCP server 'web' cannot be reached" in str(raised.value)


async def test_headers_that_cannot_be_had_are_told_of() -> None:
    """A function for headers that raises makes a request that is not sent; its own words stay here."""

    def headers() -> dict[str, str]:
        raise OSError("no token at secret-place")

    async with phone() as line, http_server(line) as (url, _):
        with pytest.raises(SetupError) as raised:
            await http(url, headers=headers).open()
        assert str(raised.value) == "the MCP server 'web' cannot be reached: MCPError: headers() raised OSError"


async def test_nobody_behind_an_address_is_a_setup_error() -> None:
    """An address where nobody listens is found when the box is opened."""
    async with phone() as line:
        port = line.port
    with pytest.raises(SetupError, match="the MCP server 'web' cannot be reached"):
        await http(f"http://127.0.0.1:{port}/mcp").open()
