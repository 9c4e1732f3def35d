"""Errors name the field and the type; what was given, which may be a secret, is in none of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request, fail
from jianmu.errors import InvalidAnswerError, InvalidStatusError, SetupError
from jianmu.thread import ThreadFolders, save_upload
from jianmu.tool import mcp_http, mcp_stdio

pytestmark = pytest.mark.anyio
SECRET = "hunter2"


class Empty(BaseModel):
    """A state with nothing in it."""


class Plain(Node):
    """Returns what is no status."""

    def update(self) -> Any:
        """Return it."""
        return {"password": SECRET}


class Waiting(AsyncNode):
    """Returns what is no status, later."""

    async def update_async(self) -> Any:
        """Return it."""
        return {"password": SECRET}


class Asking(InteractiveNode):
    """Asks with what is no request."""

    def request(self) -> Any:
        """Return it."""
        return {"password": SECRET}

    def on_answer(self, answer: Any) -> Status:
        """Take the answer, which never comes."""
        return Status.SUCCESS


@pytest.mark.parametrize(
    ("call", "kind", "named"),
    [
        (Request, SetupError, "Request(message)"),
        (lambda given: Request("?", reason=given), SetupError, "Request(reason=...)"),
        (lambda given: Request("?", key=given), SetupError, "Request(key=...)"),
        (lambda given: Request("?", assignee=given), SetupError, "Request(assignee=...)"),
        (lambda given: Request("?", tool_call_id=given), SetupError, "Request(tool_call_id=...)"),
        (lambda given: Request("?", url=given), SetupError, "Request(url=...)"),
        (lambda given: Request("?", metadata=given), SetupError, "Request(metadata=...)"),
        (fail, SetupError, "after="),
        (lambda given: Answer("q", action=given), InvalidAnswerError, "action"),
        (lambda given: save_upload(ThreadFolders(Path("x")), "t", given, b""), SetupError, "name of the file"),
        (lambda given: save_upload(given, "t", "a", b""), SetupError, "save_upload"),
        (mcp_http, SetupError, "mcp_http(url)"),
    ],
)
def test_an_error_of_a_call_names_the_field_and_the_type(
    call: Callable[[Any], object], kind: type[Exception], named: str
) -> None:
    """A list with a secret in it is told as a list, in its text and in what it was raised from."""
    with pytest.raises(kind) as caught:
        call([SECRET])
    assert named in str(caught.value)
    assert "list" in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda given: mcp_http(f"htp://user:{given}@host"), "mcp_http(url)"),
        (lambda given: mcp_stdio("server", f"--token={given}"), "mcp_stdio(command, args)"),
    ],
)
def test_an_address_and_a_command_line_are_not_shown(call: Callable[[str], object], named: str) -> None:
    """Both may have a password in them."""
    with pytest.raises(SetupError) as caught:
        call(SECRET)
    assert named in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("node", "kind"), [(Plain, InvalidStatusError), (Waiting, InvalidStatusError), (Asking, SetupError)]
)
async def test_an_error_of_a_node_names_its_path_and_the_type(node: type[Behaviour], kind: type[Exception]) -> None:
    """What it has returned is told as a dict."""
    with pytest.raises(kind) as caught:
        await Agent(node("n"), Empty).run()
    assert "node 'n' returned dict" in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_status_that_is_no_result_is_named() -> None:
    """It is a word of the library and no value."""

    class Lost(Node):
        def update(self) -> Status:
            return Status.INVALID

    with pytest.raises(InvalidStatusError, match=r"returned Status\.INVALID: return Status\.SUCCESS"):
        await Agent(Lost("n"), Empty).run()
