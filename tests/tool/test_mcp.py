"""MCP servers as boxes: what their tools are, what they give, and what goes wrong with a call."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.errors import MissingExtraError, SetupError
from jianmu.tool import ImagePart, TextPart, Toolbox, ToolCall, mcp_http, mcp_stdio
from tests.tool.mcpkit import PATIENCE, call, phone, stdio, threads

pytestmark = [pytest.mark.anyio, pytest.mark.slow_on_trio]


async def test_the_tools_are_the_servers_own() -> None:
    """Names, descriptions and schemas are as the server gives them; hints are kept; arguments are checked."""
    async with phone() as line, stdio(line, is_forked=False) as box:
        add = box.get("add")
        assert add is not None
        assert add.description.startswith("Add two numbers.")
        assert add.parameters["required"] == ["a", "b"]
        assert (await call(box, "add", a=1, b=2)).content == "3"
        wrong = await call(box, "add", a=1)
        assert wrong.is_error
        assert wrong.content == "The arguments of 'add' do not fit, so it was not called:\n- b: is missing"
        assert box.instructions == "Add before you multiply."
        assert [one.name for one in box if one.idempotent] == ["die_once"]


async def test_a_box_is_opened_and_closed_by_different_tasks() -> None:
    """Whoever opens the box, anybody may call and anybody may close it; the process ends with it."""
    async with phone() as line:
        box = stdio(line)
        for task in (box.open, box.open, box.close):
            async with anyio.create_task_group() as group:
                group.start_soon(task)
        await line.hears("server runs")
        assert (await call(box, "add", a=1, b=2)).content == "3"
        async with anyio.create_task_group() as group:
            group.start_soon(box.close)
        await line.hears("server add", "server gone")
        assert threads() == []
        with pytest.raises(SetupError, match="the box of the MCP server 'server' is closed"):
            await call(box, "add", a=1, b=2)


async def test_several_calls_run_side_by_side() -> None:
    """A call that hangs keeps no other from its turn."""
    async with phone() as line, stdio(line) as box, anyio.create_task_group() as group:
        await line.hears("server runs")
        group.start_soon(call, box, "hang")
        await line.hears("server hangs")
        assert (await call(box, "add", a=2, b=2)).content == "4"
        group.cancel_scope.cancel()


async def test_an_error_of_the_server_is_an_error_of_the_call(tmp_path: Path) -> None:
    """What a tool raises there is told to the model; a tool that is gone too."""
    async with phone() as line, stdio(line) as box:
        failed = await call(box, "fail")
        assert failed.is_error
        assert "no such thing" in str(failed.content)
        tool = box.get("add")
        assert tool is not None
        tool.remote_name = "subtract"  # type: ignore[attr-defined]  # of an MCP tool
        gone = await call(box, "add", a=1, b=2)
        assert gone.is_error
        assert "subtract" in str(gone.content)


async def test_images_are_saved_and_referred_to(tmp_path: Path) -> None:
    """Bytes go into files, one for the same bytes; a message has no more than their paths."""
    async with phone() as line, stdio(line, files=tmp_path / "files") as box:
        for _ in range(2):
            text, image, link = (await call(box, "picture")).content
            assert text == TextPart(text="look:")
            assert isinstance(image, ImagePart)
            assert image.mime_type == "image/png"
            assert image.path is not None
            assert await anyio.Path(image.path).read_bytes() == b"\x89PNG not really"
            assert link == TextPart(text="[file:///notes.txt, notes]")
        assert len([*(tmp_path / "files").iterdir()]) == 1


async def test_without_a_folder_bytes_are_left_out() -> None:
    """A box that has no folder for files says what it has left out."""
    async with phone() as line, stdio(line) as box:
        content = str((await call(box, "picture")).content)
        assert content == (
            "look:\n[image/png, 15 bytes, left out: there is no folder for files]\n[file:///notes.txt, notes]"
        )


async def test_structured_content_is_shown_where_there_is_no_other() -> None:
    """A result without texts is its structured content, as JSON."""
    async with phone() as line, stdio(line) as box:
        assert (await call(box, "only_structured")).content == '{"n": [1, 2]}'


async def test_a_result_of_50_mb_is_cut() -> None:
    """A result is read whatever its size, the agent goes on meanwhile, and the model gets the beginning."""
    async with phone() as line, stdio(line, max_result_chars=1000) as box:
        content = (await call(box, "big", megabytes=50)).content
        assert isinstance(content, str)
        assert content.startswith("x" * 1000)
        assert content.endswith("[cut: these are the first 1000 of 52428800 characters]")


async def test_a_server_that_says_not_yet_is_asked_again() -> None:
    """A result with a state and no questions means: call again with the state."""
    async with phone() as line, stdio(line) as box:
        assert (await call(box, "later")).content == "after 2"


async def test_nothing_secret_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this environment a server sees what every program needs, and what it is given."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with phone() as line, stdio(line) as box:
        seen = str((await call(box, "environment")).content)
        assert "secret" not in seen
        assert "PATH" in seen
        assert "PHONE" in seen


async def test_what_a_server_writes_goes_to_the_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its stderr, and what it writes to stdout against the rules, never reach the terminal."""
    caplog.set_level(logging.INFO, "jianmu")
    async with phone() as line, stdio(line, greeting="Welcome!") as box:
        assert (await call(box, "grumble")).content == "done"
    assert "an MCP server wrote to stderr server='server' line='grumble, grumble'" in caplog.text
    assert "wrote to stdout what is no message server='server' line='Welcome!'" in caplog.text
    assert capfd.readouterr() == ("", "")


async def test_a_timeout_ends_the_call_and_tells_the_server() -> None:
    """A call that takes too long is cut off, there too; the next one works."""
    async with phone() as line, stdio(line, timeout=0.3) as box:
        await line.hears("server runs")
        late = await call(box, "hang")
        assert late.content == "'hang' was cut off after 0.3 seconds; whether it took effect is not known."
        await line.hears("server hangs", "server cancelled")
        assert (await call(box, "add", a=1, b=1)).content == "2"


async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    """Whoever is cancelled while a tool is called ends the call; nothing is left, and the next one works."""
    async with phone() as line, stdio(line) as box:
        await line.hears("server runs")
        async with anyio.create_task_group() as group:
            group.start_soon(call, box, "hang")
            await line.hears("server hangs")
            group.cancel_scope.cancel()
        await line.hears("server cancelled")
        assert (await call(box, "add", a=1, b=1)).content == "2"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_tools_follow_the_servers_list(mode: str) -> None:
    """When the server says that its list has changed it is read again; what has not changed is the same tool."""
    async with phone() as line, stdio(line, mode=mode) as box:
        before, add = box.catalogue_hash, box.get("add")
        assert (await call(box, "grow")).content == "grown"
        with anyio.fail_after(PATIENCE):
            while "more" not in box:
                await anyio.lowlevel.checkpoint()
        assert box.catalogue_hash != before
        assert box.get("add") is add
        assert (await call(box, "more")).content == "more"


async def test_boxes_of_servers_are_parts_of_boxes() -> None:
    """A box of boxes opens and closes them, and a prefix keeps their names apart."""
    async with phone() as line:
        box = Toolbox(stdio(line, "one").only("add").prefixed("one_"), stdio(line, "two").only("add").prefixed("two_"))
        async with box:
            await line.hears("one runs", "two runs")
            assert box.names == ("one_add", "two_add")
            two = box.get("two_add")
            assert two is not None
            result = await two.call(ToolCall(id="1", name="two_add", arguments={"a": 1, "b": 2}))
            assert result.content == "3"
            await line.hears("two add")
        await line.hears("one gone", "two gone")


async def test_a_program_that_is_not_there_is_a_setup_error() -> None:
    """What cannot be started is found when the box is opened, with what it is."""
    box = mcp_stdio("no-such-program")
    with pytest.raises(SetupError) as raised:
        await box.open()
    assert str(raised.value) == (
        "the MCP server 'no-such-program' cannot be reached: "
        "the program 'no-such-program' of an MCP server cannot be started: No such file or directory"
    )


async def test_a_program_that_is_no_server_is_a_setup_error() -> None:
    """A program that ends at once is no server."""
    with pytest.raises(SetupError, match="cannot be reached: its process has ended"):
        await mcp_stdio(sys.executable, ["-c", "pass"], name="x").open()


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("import nothing_there", "ModuleNotFoundError: No module named 'nothing_there'"),
        ("import sys; sys.stderr.write('a\\n' * 9 + 'no key, no tools'); sys.exit(2)", "no key, no tools"),
        ("import os, sys; os.close(0); os.close(1); print('I hear nothing', file=sys.stderr)", "I hear nothing"),
    ],
)
async def test_a_server_that_dies_at_its_start_is_heard(code: str, last: str) -> None:
    """The error ends with the last lines that it wrote to stderr."""
    with pytest.raises(SetupError) as raised:
        await mcp_stdio(sys.executable, ["-c", code], name="x").open()
    first, *lines = str(raised.value).splitlines()
    assert first.startswith("the MCP server 'x' cannot be reached: its process ")
    assert first.endswith("; it wrote last:")
    assert (len(lines) <= 8, lines[-1]) == (True, f"  {last}")


async def test_a_program_that_says_nothing_is_given_up() -> None:
    """A connection that is not made in time is an error, and the process ends."""
    async with phone() as line:
        code = f"import socket, time; s = socket.create_connection(('127.0.0.1', {line.port})); s.sendall(b'x runs\\n')"
        box = mcp_stdio(sys.executable, ["-c", f"{code}; time.sleep(1000)"], name="x", connect_timeout=0.5, grace=0.1)
        with pytest.raises(SetupError, match=r"cannot be reached: it did not answer in 0\.5 seconds"):
            await box.open()
        await line.hears("x runs", "x gone")


async def test_opening_can_be_cancelled() -> None:
    """Who gives up while a box is opened leaves no process behind."""
    async with phone() as line:
        code = f"import socket, time; s = socket.create_connection(('127.0.0.1', {line.port})); s.sendall(b'x runs\\n')"
        box = mcp_stdio(sys.executable, ["-c", f"{code}; time.sleep(1000)"], name="x", grace=0.1)
        async with anyio.create_task_group() as group:
            group.start_soon(box.open)
            await line.hears("x runs")
            group.cancel_scope.cancel()
        await line.hears("x gone")
        assert threads() == []


async def test_a_box_that_is_opened_in_vain_can_be_opened_again() -> None:
    """Neither a cancellation nor a server that is away leaves anything in the box."""
    async with phone() as line:
        box = stdio(line)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await box.open()
        assert threads() == []
        async with box:
            assert (await call(box, "add", a=1, b=1)).content == "2"
        async with box:
            assert (await call(box, "add", a=2, b=1)).content == "3"
        assert threads() == []


async def test_without_the_extra_the_line_to_install_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the box cannot be made, and the error says how to get it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as raised:
        mcp_stdio("x")
    text = "a server of the Model Context Protocol needs the extra 'mcp': pip install 'jianmu[mcp]'"
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: mcp_http("localhost:8000"),
            r"an address such as 'http://localhost:8000/mcp', not one that begins otherwise",
        ),
        (lambda: mcp_stdio("uvx", "server"), r"a program and a list, mcp_stdio\(\"uvx\", \[\"x\"\]\), not one text"),
        (lambda: mcp_stdio("x", timeout=0), r"timeout=0: it takes a number of seconds above 0"),
        (lambda: mcp_stdio("x", connect_timeout=-1), r"connect_timeout=-1: it takes a number of seconds above 0"),
    ],
)
async def test_wrong_options_are_refused(make: Any, text: str) -> None:
    """What cannot be meant is a SetupError when the box is made."""
    with pytest.raises(SetupError, match=text):
        make()
