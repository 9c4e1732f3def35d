"""What a model wants to know, on a screen without a terminal; textual runs on asyncio alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot
from textual.widgets import Input, RadioSet

from jianmu.agent import Agent
from jianmu.engine.request import Request
from jianmu.message import tool_result
from jianmu.terminal.questions import ClarificationDialog
from jianmu.terminal.transcript import TOOL
from jianmu.thread import Clarify
from jianmu.tool.types import ToolCall
from tests.terminal.kit import Says, Screen, agent_of, screen_of, until

pytestmark = pytest.mark.anyio

LONG = "the long one with every single line of the log file in it, sorted by day and by hour and by minute"


@pytest.fixture
def anyio_backend() -> str:
    """What textual runs on."""
    return "asyncio"


def clarifying(*options: str, free: bool = True) -> Agent[Any]:
    """Return an agent that asks as a model does with `Clarify`."""
    call = ToolCall(id="c1", name=TOOL, arguments={"question": "Which report?", "options": [*options]})
    request = replace(Clarify(free=free).request_of(call), key="k", tool_call_id="c1")

    async def ask(node: Says) -> None:
        await node.once("speak", lambda: node.say("", tool_calls=[call]), effect=False)
        node.write_state({"messages": [tool_result("c1", await node.ask(request, key="k"))]})

    return agent_of(ask)


async def answered(screen: Screen) -> str:
    """Return what was answered."""
    await until(lambda: not screen.talk.is_on)
    await screen.look()
    return screen.talk.agent.state.messages[-1].text


async def test_a_question_of_a_model_is_shown_once() -> None:
    """Its options are to be chosen from, and the transcript has it in one place; what it is called is said nowhere."""
    async with screen_of(clarifying(LONG, "short")) as screen:
        await screen.say("report")
        assert screen.text == snapshot("""\
╭──────────────────────────────────────────────────────────────────────────────╮
│ Which report?                                                                │
│ ▐ ▌ the long one with every single line of the log file in it, sorted by day │
│ and by hour and by minute                                                    │
│ ▐ ▌ short                                                                    │
│ ▐ ▌ something else:                                                          │
│ type it here                                                                 │
│                                                                              │
│      Answer           Decline                                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ▌ report
  ? Which report?  (the long one with every single line of the log file in it,
  … / short)  waits for an answer (Ctrl-R)
╭──────────────────────────────────────────────────────────────────────────────╮
│ Say something; Enter sends, F1 shows the keys                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ? 1 question waits  ·  t1
 tab Choose  ^c Stop the turn  esc Later  ^y Answer\
""")
        await screen.press("tab", "down", "space", "ctrl+y")
        assert await answered(screen) == "short"
        assert screen.text == snapshot("""\
 ▌ report
  ✓ Which report?  (the long one with every single line of the log file in it,
  … / short)
    │ short
╭──────────────────────────────────────────────────────────────────────────────╮
│ Say something; Enter sends, F1 shows the keys                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ● ready  ·  t1
 ^c Stop  ^q Quit  ^t Tree  ^r Question  ^g Go on  ^o Threads  ^n New  f1 Keys\
""")


async def test_what_is_typed_is_marked_as_something_else() -> None:
    """It is the answer at once; who goes back to an option has that."""
    async with screen_of(clarifying("a", "b")) as screen:
        await screen.say("report")
        await screen.press("ctrl+y")
        assert screen.shows("choose one, or type something else")
        await screen.press("tab", "space", "tab", *"both")
        assert screen.app.screen.query_one(RadioSet).pressed_index == 2
        await screen.press("shift+tab", "up", "space", "tab", "enter")
        assert await answered(screen) == "b"
    async with screen_of(clarifying("a", "b")) as screen:
        await screen.say("report")
        await screen.press("tab", "tab", *"both", "enter")
        assert await answered(screen) == "both"


async def test_something_else_has_to_be_typed() -> None:
    """Its mark alone is no answer, nor are spaces."""
    async with screen_of(clarifying("a")) as screen:
        await screen.say("report")
        await screen.press("tab", "up", "space", "tab", "space", "enter")
        assert screen.shows("type what else")
        await screen.press("x", "enter")
        assert await answered(screen) == " x"


async def test_where_the_options_are_all_there_is_no_line_to_type() -> None:
    """`free=False`: one of them it is."""
    async with screen_of(clarifying("a", "b", free=False)) as screen:
        await screen.say("report")
        assert not screen.app.screen.query(Input)
        await screen.press("ctrl+y")
        assert screen.shows("choose one")
        await screen.press("tab", "down", "space", "ctrl+y")
        assert await answered(screen) == "b"


async def test_without_options_it_is_a_line() -> None:
    """And nothing but the question above it."""
    async with screen_of(clarifying()) as screen:
        await screen.say("report")
        assert isinstance(screen.app.screen, ClarificationDialog)
        assert not screen.shows("options")
        await screen.press("tab", *"all", "enter")
        assert await answered(screen) == "all"


async def test_other_data_are_shown_as_they_are() -> None:
    """A question that calls itself a clarification and has another shape is a form like any other."""

    async def ask(node: Says) -> None:
        await node.ask(Request("Well?", reason="clarification", data={"question": 1, "x": 2}), key="k")

    async with screen_of(agent_of(ask)) as screen:
        await screen.say("hi")
        assert screen.shows('"x": 2')


async def test_what_has_the_focus_is_in_sight() -> None:
    """Of many long options too, and the line below them."""
    options = [f"{number} {LONG}" for number in range(12)]
    async with screen_of(clarifying(*options)) as screen:
        await screen.say("report")
        await screen.press("tab", *["down"] * 9)
        assert screen.shows("9 the long one")
        await screen.press("tab")
        await screen.pilot.pause()
        assert screen.shows("type it here")
        await screen.press(*"typed")
        assert screen.shows("typed")
