"""Parts of MCP boxes that need no server: lines, names, contents."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jianmu.tool import FilePart, TextPart
from jianmu.tool.mcpcall import Job, Wanted
from jianmu.tool.mcpcontent import content_of_result
from jianmu.tool.mcplink import Link
from jianmu.tool.mcpstdio import Lines, TooLongError
from jianmu.tool.mcptool import Catalogue, Server

DATA = base64.b64encode(b"sound").decode()


@given(st.lists(st.binary(max_size=6)))
def test_lines_are_what_a_split_gives(pieces: list[bytes]) -> None:
    """However a stream is cut into pieces, the lines are the same; empty ones are left out."""
    lines = Lines(1000)
    found = [line for piece in pieces for line in lines.fed(piece)]
    *whole, _ = b"".join(pieces).split(b"\n")
    assert found == [line for line in whole if line.strip()]


def test_a_line_that_is_too_long_is_refused_or_cut() -> None:
    """A message that is too long is an error; a line for the log comes in parts."""
    with pytest.raises(TooLongError, match="it sent a message of more than 4 bytes"):
        Lines(4).fed(b"12345")
    lines = Lines(4)
    assert [*lines.fed(b"123", cuts=True), *lines.fed(b"45", cuts=True), *lines.fed(b"6\n", cuts=True)] == [
        b"12345",
        b"6",
    ]


def catalogue(*listed: dict[str, Any]) -> tuple[Catalogue, list[str]]:
    """Return the catalogue of a server that lists these tools, and what could not be a tool."""
    link: Any = Link("server", lambda _: None, "auto", 1.0, None)  # type: ignore[arg-type]  # it is never used
    link.listed = listed
    bad: list[str] = []
    return Catalogue(Server("server", link), {}, lambda name, _: bad.append(name)), bad


@given(st.lists(st.one_of(st.sampled_from(["a", "a.b", "a/b", "x" * 65, "x" * 66]), st.text()), max_size=8))
def test_each_tool_has_a_name_of_its_own_that_models_can_call(names: list[str]) -> None:
    """Whatever a server calls its tools, there are as many, with names that are different and allowed."""
    made = catalogue(*({"name": name, "inputSchema": {"type": "object"}} for name in names))[0].tools()
    assert [tool.remote_name for tool in made] == names
    assert len({tool.name for tool in made}) == len(names)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool.name) for tool in made)


def test_a_tool_that_cannot_be_one_leaves_the_others_alone() -> None:
    """A schema that is none is told, and its tool left out."""
    good = {"name": "good", "inputSchema": {"type": "object"}, "title": "Good"}
    made, bad = catalogue({"name": "bad", "inputSchema": {"type": "nonsense"}}, good)
    assert [tool.name for tool in made.tools()] == ["good"]
    assert made.tools()[0].description == "Good"
    assert bad == ["bad"]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "resource_link", "uri": "x://y", "name": "n", "description": "d"}, "[x://y, n, d]"),
        ({"type": "resource", "resource": {"uri": "x://y", "text": "hello"}}, "[x://y]\nhello"),
        (
            {"type": "image", "data": "###", "mimeType": "image/png"},
            "[image/png, which is no base64 and cannot be shown]",
        ),
        ({"type": "image"}, "[a part of the type 'image', which cannot be shown]"),
        ({"type": "video"}, "[a part of the type 'video', which cannot be shown]"),
    ],
)
def test_each_kind_of_part_is_shown(block: Any, text: str) -> None:
    """What is no text is a line that says what it is."""
    assert content_of_result({"content": [block]}, None) == text


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"type": "audio", "data": DATA, "mimeType": "audio/mpeg"}, None),
        ({"type": "resource", "resource": {"uri": "x://y/z.mp3", "blob": DATA, "mimeType": "audio/mpeg"}}, "z.mp3"),
    ],
)
def test_other_bytes_are_files(block: Any, name: str | None, tmp_path: Path) -> None:
    """Sounds and resources with bytes are saved, and referred to as files."""
    (part,) = content_of_result({"content": [block]}, tmp_path)
    assert isinstance(part, FilePart)
    assert (part.mime_type, part.name) == ("audio/mpeg", name)
    assert part.path is not None
    assert Path(part.path).read_bytes() == b"sound"
    assert Path(part.path).suffix == ".mp3"


def test_an_empty_result_is_an_empty_text() -> None:
    """A tool that gives nothing has given nothing."""
    assert content_of_result({"content": []}, None) == ""


def test_texts_and_files_stay_in_order(tmp_path: Path) -> None:
    """Parts are in the server's order."""
    image = {"type": "image", "data": DATA, "mimeType": "image/png"}
    content = content_of_result({"content": [{"type": "text", "text": "a"}, image]}, tmp_path)
    assert content[0] == TextPart(text="a")


def test_an_answer_serves_for_one_question_only() -> None:
    """What was said to a question is said once; where something else is asked too, nothing is."""
    job = Job("tool", {}, known=[({"message": "a"}, {"action": "accept"})])
    assert job.answers(Wanted({"x": {"message": "a"}, "y": {"message": "a"}})) is None
    assert job.answers(Wanted({"x": {"message": "a"}})) == {"x": {"action": "accept"}}
    assert job.answers(Wanted({"x": {"message": "a"}})) is None
    assert job.answers(Wanted({}, state="s")) == {}
