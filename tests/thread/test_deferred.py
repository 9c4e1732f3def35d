"""DeferredTools and tool_search: T19 and T24, the two defences, other catalogues, boxes that change."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from jianmu import Agent, SetupError
from jianmu.engine.clock import VirtualClock
from jianmu.engine.state import Clear
from jianmu.message import human
from jianmu.nodes import Sequence
from jianmu.prebuilt import delegate, react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import DeferredTools, MessagesState, Promoted, PromotedState, ThreadState, tool_search
from jianmu.thread.toolsearch import search
from jianmu.tool import Tool, Toolbox, ToolCall
from tests.cases.leaves import SUCCESS, Do
from tests.tool.mcpkit import phone, stdio

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [human("go")]}
ran: list[str] = []


def act(name: str, told: str = "", **options: Any) -> Tool:
    """Return a tool that notes that it ran."""

    def work(text: str = "") -> str:
        ran.append(name)
        return f"{name} did {text}"

    return Tool(work, name=name, description=told or f"Do {name}.", **options)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Forget what ran."""
    ran.clear()


def call(name: str, id: str = "", **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id or name, name=name, arguments=arguments)


def find(query: str, id: str = "s") -> ToolCall:
    """Return a call of tool_search."""
    return call("tool_search", id, query=query)


def made(turns: Any, *deferred: Any, system: str | None = None, more: Any = (), **options: Any) -> Agent[Any]:
    """Return an agent with a plain tool and deferred ones; its model is `agent.model`."""
    box, model = Toolbox(*deferred), ScriptedModel(turns)
    inner = react(model=model, tools=[act("plain"), box, tool_search(box), *more], system=system)
    options.setdefault("clock", VirtualClock(autojump=True))
    agent = Agent(DeferredTools("deferred", inner, tools=box), ThreadState, **options)
    vars(agent)["model"] = model
    return agent


def offered(agent: Any, number: int = -1) -> list[str]:
    """Return what the model was offered."""
    return [one.name for one in agent.model.requests[number].tools]


def told(agent: Any, number: int = -1) -> str:
    """Return the system prompt."""
    first = agent.model.requests[number].messages[0]
    return first.text if first.role == "system" else ""


def results(agent: Any) -> list[tuple[str, bool]]:
    """Return the results in the conversation."""
    return [(one.text, one.is_error) for one in agent.state.messages if one.role == "tool"]


HOW = "'{0}' is a deferred tool and was not called: find it with tool_search(query=\"select:{0}\") first, then call it."


async def test_a_tool_is_known_by_name_until_it_is_found() -> None:
    """The schema is left out and the name is in the system prompt; once found it is offered, and called."""
    agent = made([find("select:a"), call("a", text="x"), "fine"], act("a"), act("b"), system="Be kind.")
    assert await agent.run(GO) is SUCCESS
    assert [offered(agent, number) for number in range(3)] == [
        ["plain", "tool_search"], ["plain", "a", "tool_search"], ["plain", "a", "tool_search"],
    ]  # fmt: skip
    names = [told(agent, number).removeprefix("Be kind.\n\n") for number in range(3)]
    assert [name.rpartition(": ")[2] for name in names] == ["a, b.", "b.", "b."]
    assert results(agent)[1] == ("a did x", False)
    assert agent.state.promoted == Promoted(catalog_hash=catalogue("a", "b"), names=("a",))


async def test_what_was_found_is_described() -> None:
    """The result of a search has name, description and parameters; names that are none are said to be none."""
    a, b = act("a"), act("b")
    agent = made([find("select:b, A,nothing"), "fine"], a, b)
    await agent.run(GO)
    found = json.loads(results(agent)[0][0])
    assert found == {
        "tools": [{"name": one.name, "description": one.description, "parameters": one.parameters} for one in (b, a)],
        "unknown": ["nothing"],
    }


async def test_nothing_is_told_when_all_were_found() -> None:
    """The request is then as it would be without the node."""
    agent = made([find("select:a"), "fine"], act("a"))
    await agent.run(GO)
    assert [told(agent, number) != "" for number in range(2)] == [True, False]


def catalogue(*names: str) -> str:
    """Return the hash of the deferred tools of that name."""
    return Toolbox(*map(act, names)).catalogue_hash


@pytest.mark.parametrize(
    ("promoted", "is_offered"),
    [
        (None, []),
        ({"catalog_hash": catalogue("a", "b"), "names": ["a"]}, ["a"]),
        ({"catalog_hash": catalogue("a"), "names": ["a"]}, []),
        ({"names": ["a"]}, []),
    ],
)
async def test_t24_what_was_promoted_in_this_catalogue_is_offered(promoted: Any, is_offered: list[str]) -> None:
    """T24: of another catalogue, or of none, nothing counts; a call of what is hidden says how to find it."""
    agent = made([[call("a"), call("b")], "fine"], act("a"), act("b"))
    assert await agent.run({**GO, "promoted": promoted}) is SUCCESS
    assert offered(agent, 0) == ["plain", *is_offered, "tool_search"]
    assert ran == is_offered
    assert results(agent) == [
        ("a did ", False) if name in is_offered else (HOW.format(name), True) for name in ("a", "b")
    ]


async def test_t19_what_one_agent_has_found_another_has_not() -> None:
    """T19: promoted in one task, the model called in another, a second agent built in between: its state is its own."""
    first, second = made([find("select:a"), "found", "fine"], act("a")), None
    async with anyio.create_task_group() as group:
        group.start_soon(first.run, GO)
    second = made(["fine"], act("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(first.run, {"messages": [human("again")]})
        group.start_soon(second.run, GO)
    assert (offered(first), offered(second)) == (["plain", "a", "tool_search"], ["plain", "tool_search"])


async def test_a_hidden_call_asks_nobody_and_counts_nothing() -> None:
    """It would need approval; it is refused before; in the same reply as the search it is still hidden."""
    agent = made([[find("select:a"), call("a")], call("a", "2"), "fine"], act("a", requires_approval=True))
    outcome = await agent.run_until_suspend(GO)
    (question,) = outcome.suspensions
    assert (question.tool_call_id, results(agent)[1]) == ("2", (HOW.format("a"), True))
    assert (await agent.resume(True)).status is SUCCESS
    assert (ran, agent.state.usage.tool_calls) == (["a"], 2)


async def test_another_catalogue_hides_what_was_found(tmp_path: Path) -> None:
    """A description or a schema has changed, a tool has come: the thread, opened again, has to search again."""
    changed = [[act("a", "Other words.")], [act("a"), act("new")], [Tool(other, name="a", description="Do a.")]]
    async with SQLiteStore(tmp_path / "s.db") as store:
        await made([find("select:a"), "fine"], act("a"), store=store).run(GO, thread_id="t")
        same = made([call("a", "1"), "fine"], act("a"), store=store)
        await same.run({"messages": [human("again")]}, thread_id="t")
        assert ("a" in offered(same, 0), ran) == (True, ["a"])
        for number, tools in enumerate(changed):
            agent = made([call("a", f"c{number}"), "fine"], *tools, store=store)
            await agent.run({"messages": [human("again")]}, thread_id="t")
            assert ("a" in offered(agent, 0), results(agent)[-1]) == (False, (HOW.format("a"), True))
    assert ran == ["a"]


CHANGED = (
    "'a' was not called: deferred tools have changed since. "
    'Find it with tool_search(query="select:a"), then call it again.'
)


@pytest.mark.parametrize("change", ["same", "words", "schema", "new"])
async def test_an_approval_holds_for_the_tools_as_they_were(change: str, tmp_path: Path) -> None:
    """Two calls wait for approval when the program is changed: what is hidden now is not called, the other one is.

    It is found and called again, and asked about anew.
    """
    pay, b = act("pay", requires_approval=True), act("b", requires_approval=True)
    a = act("a", requires_approval=True)
    now = {
        "same": [a, b],
        "words": [act("a", "Other words.", requires_approval=True), b],
        "schema": [Tool(other, name="a", description="Do a.", requires_approval=True), b],
        "new": [a, b, act("new")],
    }[change]
    turns = [find("select:a"), call("a", "again"), "fine"] if change != "same" else ["fine"]
    async with SQLiteStore(tmp_path / "s.db") as store:
        first = made([find("select:a", "f"), [call("a"), call("pay")]], a, b, more=[pay], store=store)
        await first.run_until_suspend(GO, thread_id="t")
        agent = made(turns, *now, more=[pay], store=store)
        waits = await agent.recover("t")
        assert [one.tool_call_id for one in waits.suspensions] == ["a", "pay"]
        half = await agent.resume(True, suspension_id=waits.suspensions[0].id, thread_id="t")
        assert [one.tool_call_id for one in half.suspensions] == ["pay"]
        after = await agent.resume(True, suspension_id=half.suspensions[0].id, thread_id="t")
        assert results(agent)[1] == (("a did ", False) if change == "same" else (CHANGED, True))
        assert results(agent)[2] == ("pay did ", False)
        assert [one.tool_call_id for one in after.suspensions] == ([] if change == "same" else ["again"])
    assert sorted(ran) == (["a", "pay"] if change == "same" else ["pay"])


async def test_an_approval_holds_for_the_tools_of_a_box_as_they_were() -> None:
    """They change in the same program while the question is open."""
    box = Changing()
    box.found = (act("a", requires_approval=True),)
    agent = made([find("select:a"), call("a"), "fine"], box)
    await agent.run_until_suspend(GO)
    box.found = (act("a", "Other words.", requires_approval=True),)
    assert (await agent.resume(True)).status is SUCCESS
    assert (ran, results(agent)[1]) == ([], (CHANGED, True))


def other(text: str = "", more: int = 0) -> str:
    """Do something else."""
    raise AssertionError


PROGRAM = """
import sys, anyio
from jianmu import Agent
from jianmu.message import human
from jianmu.prebuilt import react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import DeferredTools, ThreadState, tool_search
from jianmu.tool import Tool, Toolbox, ToolCall

def before(to: str) -> str:
    "Send."
    return "sent"

def after(to: str, text: str) -> str:
    "Send."
    return "sent"

async def main(place, step):
    box = Toolbox(Tool(after if step == "after" else before, name="send"))
    arguments = {"query": "select:send"} if step == "first" else {"to": "x"}
    name = "tool_search" if step == "first" else "send"
    with ScriptedModel([ToolCall(id=step, name=name, arguments=arguments), "fine"]) as model:
        tree = DeferredTools("deferred", react(model=model, tools=[box, tool_search(box)]), tools=box)
        async with SQLiteStore(place) as store:
            agent = Agent(tree, ThreadState, store=store)
            await agent.run({"messages": [human(step)]}, thread_id="t")
            print("send" in [one.name for one in model.requests[0].tools], agent.state.messages[-2].text)

anyio.run(main, *sys.argv[1:])
"""


def test_a_thread_that_another_process_opens_has_what_was_found_until_the_catalogue_changes(tmp_path: Path) -> None:
    """Promoted in one process, offered in the next; in a third, with another schema, hidden again, and refused."""
    said = {
        step: subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "s.db", step], capture_output=True, text=True, check=True
        ).stdout.strip()
        for step in ("first", "same", "after")
    }
    assert said["first"].startswith('False {"tools": [{"name": "send"')
    assert (said["same"], said["after"]) == ("True sent", f"False {HOW.format('send')}")


class Changing(Toolbox):
    """A box whose tools change while it is open."""

    is_live = True
    found: tuple[Tool, ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of now."""
        return self.found if self._users else ()


async def test_a_box_that_changes_is_followed() -> None:
    """Its tools are known once it is open; when one more comes, all are hidden again until they are found again."""
    box = Changing()
    box.found = (act("a"),)

    def more(request: Any) -> Any:
        box.found = (act("a"), act("b"))
        return call("a", "late")

    agent = made([find("select:a"), call("a"), more, find("letters b"), call("b"), "fine"], box)
    assert await agent.run(GO) is SUCCESS
    assert ["a" in offered(agent, number) for number in range(6)] == [False, True, True, False, False, False]
    assert (ran, results(agent)[2]) == (["a", "b"], (HOW.format("a"), True))


async def test_the_tools_of_a_server_may_be_deferred() -> None:
    """An MCP server's tools are found and called; when its list changes they are hidden again."""
    async with phone() as line:
        box = stdio(line)
        grown = anyio.Event()

        async def wait() -> str:
            while "more" not in box.names:  # noqa: ASYNC110  # nobody tells of it
                await anyio.sleep(0.01)
            grown.set()
            return "there"

        turns = [find("+add numbers"), call("add", a=1, b=2), [find("select:grow", "g")], call("grow"),
                 call("wait"), call("add", "again", a=1, b=2), "fine"]  # fmt: skip
        agent = made(turns, box, more=[Tool(wait)], clock=None)
        with anyio.fail_after(30):
            assert await agent.run(GO) is SUCCESS
    assert grown.is_set()
    assert [text for text, _ in results(agent)][1::2] == ["3", "grown", HOW.format("add")]
    assert ["add" in offered(agent, number) for number in range(3)] == [False, True, True]


async def test_a_delegate_may_be_deferred() -> None:
    """Its tree is there all the time, and does nothing before it was found."""
    seen = delegate("look", lambda: Do("work", lambda node: node.write_state({"final_answer": "seen"})),
                    state_schema=ThreadState)  # fmt: skip
    agent = made([call("look", "1", task="x"), find("task"), call("look", "2", task="x"), "fine"], seen)
    assert await agent.run(GO) is SUCCESS
    assert results(agent)[0] == (HOW.format("look"), True)
    assert results(agent)[2] == ("seen", False)


async def test_a_search_that_finds_nothing_says_so() -> None:
    """It names what is near, and promotes nothing; one with too many finds the best and names the others."""
    many = [act(f"tool_{number}") for number in range(9)]
    agent = made([find("select:tol_3"), find("zzz", "2"), find("tool", "3"), "fine"], *many)
    await agent.run(GO)
    first, second, third = (text for text, _ in results(agent))
    assert first.startswith("No deferred tool fits 'select:tol_3'; did you mean tool_3")
    assert second == "No deferred tool fits 'zzz'; try other words"
    assert [one["name"] for one in json.loads(third)["tools"]] == [f"tool_{number}" for number in range(5)]
    assert json.loads(third)["more"] == [f"tool_{number}" for number in range(5, 9)]
    assert agent.state.promoted.names == tuple(f"tool_{number}" for number in range(5))


async def test_all_names_that_are_selected_are_found() -> None:
    """However many there are, and however long they are; one that is none is said to be none, and no other."""
    names = [f"a_tool_with_quite_a_long_name_{number:03d}" for number in range(60)]
    agent = made([find(f"select: {','.join([*names, 'none'])}"), "fine"], *map(act, names))
    await agent.run(GO)
    found = json.loads(results(agent)[0][0])
    assert ([one["name"] for one in found["tools"]], found["unknown"]) == (names, ["none"])
    assert agent.state.promoted.names == tuple(names)
    assert offered(agent) == ["plain", *names, "tool_search"]


# What fits a query


BOX = [
    act("github_create_issue", "Open an issue."),
    act("github_search", "Search repositories by words."),
    act("send_mail", "Send a message to somebody."),
    act("slack_send", "Say something in a channel."),
    act("weather", "查询天气。"),
]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select:weather,send_mail", ["weather", "send_mail"]),
        ("SELECT: Weather", ["weather"]),
        ("send", ["send_mail", "slack_send"]),
        ("message", ["send_mail"]),
        ("+slack send", ["slack_send"]),
        ("天气", ["weather"]),
        ("^github_.*issue$", ["github_create_issue"]),
        ("mail|slack", ["send_mail", "slack_send"]),
        ("^send", ["send_mail"]),
        ("(create|update)_issue", ["github_create_issue"]),
        ("text", [one.name for one in BOX]),
        ("", []),
        ("select:", []),
        (".*", [one.name for one in BOX]),
    ],
)
def test_queries(query: str, names: list[str]) -> None:
    """Names, words and patterns; a pattern that fits no name is taken for words."""
    assert [one.name for one in search(query, BOX)][: len(names) or None] == names


def test_no_pattern_takes_long() -> None:
    """What would take a matcher of regular expressions for ever is literal here."""
    name = act("a" * 64)
    assert search("^" + "(a+)+" * 20 + "$|b" + ".*b" * 100, [name] * 500) is not None
    assert len(search(".*a" * 60, [name] * 500)) == 500


@given(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=4), st.booleans(), st.booleans(), st.text("ab", max_size=8)
)
def test_a_pattern_is_the_regular_expression_that_it_looks_like(
    pieces: list[str], is_first: bool, is_last: bool, name: str
) -> None:
    """With `.*`, `^` and `$` at the ends it finds the names that a regular expression finds."""
    pattern = "^" * is_first + ".*".join(pieces) + "$" * is_last
    if not name or not re.search(r"\.\*|\^|\$", pattern):
        return
    found = search(pattern, [act(name, "-")])
    if re.search(pattern, name) is not None:
        assert len(found) == 1
    elif found:  # it was taken for words
        assert any(word in name for word in re.findall(r"\w+", pattern))


# Trees in which it could not work


class Talk(MessagesState, PromotedState):
    """What the tests of refusals need."""


def refused(box: Any, inner: Any, schema: type[BaseModel] = Talk) -> str:
    """Return what a tree is refused with."""
    with pytest.raises(SetupError) as caught:
        Agent(Sequence("main", memory=True, children=[DeferredTools("deferred", inner, tools=box)]), schema).run_sync()
    return str(caught.value)


def test_trees_in_which_nothing_could_be_found_are_refused() -> None:
    """Without the field, a model, the search, the tools themselves, and below another one."""
    box, model = Toolbox(act("a"), act("b")), ScriptedModel([])
    tools = [box, tool_search(box)]

    def inner(*given: Any) -> Any:
        return react(model=model, tools=[*given])

    where = "node 'main/deferred' "
    assert refused(box, inner(*tools), MessagesState) == (
        f"{where}needs the field promoted, which MessagesState lacks: class MessagesState(PromotedState, ...)"
    )
    assert refused(box, Do("leaf", lambda _: SUCCESS)) == (
        f"{where}(DeferredTools) needs an AgentLLMNode and a ToolExecutor below it: "
        'write DeferredTools("deferred", react(...), tools=...)'
    )
    assert refused(box, inner(box), ThreadState) == (
        f"{where}(DeferredTools) needs the tool tool_search among those that are carried out below it: "
        "write tools=[..., tool_search(tools)]"
    )
    assert refused(box, inner(act("a"), tools[1]), ThreadState) == (
        f"{where}(DeferredTools) defers tools that nothing below it carries out: b: give them to it"
    )
    twice = DeferredTools("deferred", inner(*tools), tools=box)
    assert refused(box, twice, ThreadState) == (
        "node 'main/deferred/deferred' (DeferredTools) stands below 'main/deferred', and a state has one catalogue: "
        "give all tools to one"
    )


def test_what_is_no_list_of_tools_is_refused() -> None:
    """A single tool, a function, and a number of results that is none: at once, with what to write."""
    for wrong in (act("a"), other, "a"):
        with pytest.raises(SetupError, match=r"takes a Toolbox or a list of tools, not .*: write \["):
            tool_search(wrong)  # pyright: ignore[reportArgumentType]  # it is refused
    with pytest.raises(SetupError, match=r"most=...\) takes a whole number from 1 up, not 0"):
        tool_search([act("a")], most=0)


async def test_clearing_hides_everything_again() -> None:
    """`Clear()` of the field takes back what was found."""
    agent = made([find("select:a"), "fine", "again"], act("a"))
    await agent.run(GO)
    await agent.run({"messages": [human("again")], "promoted": Clear()})
    assert offered(agent) == ["plain", "tool_search"]
