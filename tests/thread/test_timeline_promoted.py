"""The timeline of `promoted`: hidden, found, seen and called; and hidden again when a tool is another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jianmu.tool import tool
from tests.thread.timeline import Program, World, call, said

pytestmark = pytest.mark.anyio
SENT: list[str] = []


@tool
def send_email(to: str) -> str:
    """Send an email."""
    SENT.append(to)
    return f"sent to {to}"


def rewritten() -> Any:
    """Return another tool of the same name."""

    @tool(name="send_email")
    def other(to: str, urgent: bool = False) -> str:
        """Send an email, at once."""
        SENT.append(f"urgent {to}")
        return "sent"

    return other


def offered(program: Program, number: int) -> bool:
    """Whether a request had the schema of the tool."""
    return "send_email" in {one.name for one in program.model.requests[number].tools}


async def test_a_tool_is_found_called_and_still_known_in_the_next_program(tmp_path: Path) -> None:
    """The catalogue is the same: what was found stays found over a restart."""
    SENT.clear()
    world = World(tmp_path)
    script = [call("1", "send_email", to="Ada"), call("2", "tool_search", query="email"),
              call("3", "send_email", to="Ada"), "sent"]  # fmt: skip
    first = await world.program(script, said(), deferred=[send_email])
    assert [offered(first, number) for number in range(4)] == [False, False, True, True]
    assert "'send_email' is a deferred tool and was not called" in first.state.messages[2].text
    assert (SENT, first.writes("promoted")) == (["Ada"], [("act", "promoted")])
    second = await world.program([call("4", "send_email", to="Bob"), "sent"], said(), deferred=[send_email])
    assert (offered(second, 0), SENT) == (True, ["Ada", "Bob"])


async def test_a_tool_that_is_another_one_now_is_hidden_again(tmp_path: Path) -> None:
    """Found, then its implementation changed, then the thread reopened: neither shown nor called, until found anew."""
    SENT.clear()
    world = World(tmp_path)
    find = call("1", "tool_search", query="select:send_email")
    first = await world.program([find, "found"], said(), deferred=[send_email])
    known = first.state.promoted
    script = [call("2", "send_email", to="Eve"), call("3", "tool_search", query="email"),
              call("4", "send_email", to="Bob"), "sent"]  # fmt: skip
    second = await world.program(script, said(), deferred=[rewritten()])
    assert [offered(second, number) for number in range(4)] == [False, False, True, True]
    assert SENT == ["urgent Bob"]
    assert second.state.promoted.catalog_hash != known.catalog_hash
    assert second.state.promoted.names == ("send_email",)
