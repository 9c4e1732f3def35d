"""Toolboxes: names, boxes of boxes, what is chosen, the hash, and boxes with a life."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jianmu.errors import SetupError
from jianmu.tool import Tool, Toolbox, tool


def fn(text: str = "") -> str:
    """Return the text."""
    return text


def made(name: str, description: str = "d") -> Tool:
    """Return a tool."""
    return Tool(fn, name=name, description=description)


A, B, C = made("a"), made("b"), made("c")


class Live(Toolbox):
    """A box whose tools come while it is open; notes what happens to it."""

    is_live = True

    def __init__(self, trace: list[str], name: str, *tools: Tool, fails: str = "") -> None:
        self.trace, self.name, self.fails = trace, name, fails
        self.mine, self.now = tools, ()
        super().__init__()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of now."""
        return self.now

    async def start(self) -> None:
        """Have the tools."""
        await anyio.lowlevel.checkpoint()
        self.note("start")
        self.now = self.mine

    async def stop(self) -> None:
        """Have none."""
        await anyio.lowlevel.checkpoint()
        self.now = ()
        self.note("stop")

    def note(self, what: str) -> None:
        """Note it, and fail if that is wanted."""
        self.trace.append(f"{what} {self.name}")
        if what == self.fails:
            raise OSError(what)


def test_a_box_has_its_tools_by_name() -> None:
    """Tools, functions and boxes become one box; each tool is found by its name."""
    box = Toolbox(A, fn, Toolbox(B, C))
    assert box.names == ("a", "fn", "b", "c")
    assert [one.name for one in box] == ["a", "fn", "b", "c"]
    assert (len(box), "a" in box, "x" in box) == (4, True, False)
    assert box.get("b") is B
    assert box.get("x") is None
    assert Toolbox().names == ()


def test_two_tools_of_one_name_are_refused() -> None:
    """The error names both functions and what to write; one tool that is found twice is one tool."""

    @tool
    def a() -> None: ...

    both = f"{re.escape(A.origin)} and {re.escape(a.origin)}; give one another name"
    with pytest.raises(SetupError, match=f"two tools are named 'a': {both}"):
        Toolbox(A, Toolbox(B, a))
    assert Toolbox(A, Toolbox(A, B)).names == ("a", "b")
    assert Toolbox(A, Toolbox(a).prefixed("my_")).names == ("a", "my_a")


def test_two_names_may_meet_while_a_box_is_open() -> None:
    """Tools that come later are checked when they are looked up."""
    box = Toolbox(A, live := Live([], "l"))
    live.now = (made("a"),)
    with pytest.raises(SetupError, match="two tools are named 'a'"):
        len(box)


def test_choosing() -> None:
    """`only`, `without`, `where` and `prefixed` make boxes; the first one stays as it is."""
    box = Toolbox(A, B, C)
    assert box.only("c", "a").names == ("a", "c")
    assert box.without("a", "x").names == ("b", "c")
    assert box.where(lambda one: one.name > "a").without("c").names == ("b",)
    prefixed = box.prefixed("x_")
    assert prefixed.names == ("x_a", "x_b", "x_c")
    assert prefixed.get("x_a") is prefixed.get("x_a")
    assert Toolbox(prefixed, prefixed.only("x_a")).names == ("x_a", "x_b", "x_c")
    assert box.names == ("a", "b", "c")
    with pytest.raises(SetupError, match="a toolbox has no tool 'x': there are: a, b, c"):
        box.only("a", "x")
    with pytest.raises(SetupError, match="name='x y_a': it takes"):
        box.prefixed("x y_")


def test_what_is_chosen_follows_a_live_box() -> None:
    """A choice is made anew when it is asked for; names that are not known yet are no fault."""
    live = Live([], "l")
    chosen = Toolbox(A, live).only("b", "a")
    assert chosen.names == ("a",)
    live.now = (B, C)
    assert chosen.names == ("a", "b")


def test_a_tool_that_is_not_there() -> None:
    """The model is told what there is, and what is near; of what it wrote no more than a name's length."""
    box = Toolbox(made("search"), B)
    assert box.missing("serch") == (
        "There is no tool 'serch', so nothing was called; did you mean 'search'? There are: search, b."
    )
    assert box.missing("zzz") == "There is no tool 'zzz', so nothing was called; there are: search, b."
    assert len(box.missing("z" * 10_000)) < 200
    assert "there are: none." in Toolbox().missing("x")


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, st.randoms())
def test_the_hash_knows_no_order(names: list[str], random: object) -> None:
    """The same tools have the same hash in any order and any boxes; one more or less has another."""
    tools = [made(name) for name in names]
    whole = Toolbox(*tools).catalogue_hash
    random.shuffle(tools)  # type: ignore[attr-defined]  # hypothesis' Random
    assert Toolbox(Toolbox(*tools[:2]), *tools[2:]).catalogue_hash == whole
    assert re.fullmatch("[0-9a-f]{16}", whole)
    assert Toolbox(*tools, made("g")).catalogue_hash != whole


def test_the_hash_stands_for_what_the_model_is_shown() -> None:
    """Another name, description or schema is another catalogue; options that no model sees are not."""

    def other(text: int = 0) -> str:
        return str(text)

    plain = Toolbox(A).catalogue_hash
    assert Toolbox(A.replace(timeout=3, requires_approval=True)).catalogue_hash == plain
    others = [A.replace(name="b"), A.replace(description="e"), Tool(other, name="a", description="d")]
    assert len({plain, *(Toolbox(one).catalogue_hash for one in others)}) == 4


def test_the_hash_is_the_same_in_every_process() -> None:
    """It is kept in states: this is the hash of today's form."""
    assert Toolbox(A, B).catalogue_hash == "c4b8cc43f0032c3b"


@pytest.mark.anyio
async def test_boxes_open_in_order_and_close_in_reverse() -> None:
    """A box opens what is in it, itself last; a choice of it as well; tools are there in between."""
    trace: list[str] = []
    box = Toolbox(Live(trace, "one", A).only("a"), A, Live(trace, "two", B).prefixed("x_"))
    with anyio.fail_after(10):
        async with box as same:
            assert same is box
            assert box.names == ("a", "x_b")
    assert trace == ["start one", "start two", "stop two", "stop one"]
    assert box.names == ("a",)


@pytest.mark.anyio
async def test_a_box_that_several_use_is_open_until_the_last_has_closed_it() -> None:
    """It starts once, also if two open it at the same moment, and stops once; then it can be opened again."""
    trace: list[str] = []
    live = Live(trace, "l", A)
    first, second = Toolbox(live), Toolbox(live, B)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(first.open)
            group.start_soon(second.open)
        assert first.names == ("a",)
        await first.close()
        assert trace == ["start l"]
        await second.close()
        await second.close()
        async with first:
            pass
    assert trace == ["start l", "stop l"] * 2


@pytest.mark.anyio
async def test_opening_while_it_closes_opens_it_again() -> None:
    """Whoever opens a box has it open, whatever others do at that moment."""
    trace: list[str] = []
    live = Live(trace, "l", A)
    with anyio.fail_after(10):
        await live.open()
        async with anyio.create_task_group() as group:
            group.start_soon(live.close)
            group.start_soon(live.open)
        assert live.names == ("a",)
        await live.close()
    assert trace in (["start l", "stop l"], ["start l", "stop l"] * 2)


@pytest.mark.anyio
async def test_what_was_opened_is_closed_when_opening_fails() -> None:
    """The error goes up, nothing stays open, and the box can be tried again."""
    trace: list[str] = []
    bad = Live(trace, "bad", fails="start")
    box = Toolbox(Live(trace, "good", A), bad)
    with anyio.fail_after(10):
        with pytest.raises(OSError, match="start"):
            await box.open()
        assert trace == ["start good", "start bad", "stop good"]
        bad.fails = ""
        async with box:
            assert box.names == ("a",)


@pytest.mark.anyio
async def test_all_are_closed_when_closing_fails() -> None:
    """One that raises does not keep the others open."""
    trace: list[str] = []
    box = Toolbox(Live(trace, "one"), Live(trace, "two", fails="stop"))
    with anyio.fail_after(10), pytest.raises(OSError, match="stop"):
        async with box:
            pass
    assert trace[2:] == ["stop two", "stop one"]


@pytest.mark.anyio
async def test_a_cancelled_block_closes_its_box() -> None:
    """A cancellation does not cut a closing off."""
    trace: list[str] = []
    with anyio.move_on_after(0):
        async with Toolbox(Live(trace, "l")):
            await anyio.sleep_forever()
    assert trace == []
    with anyio.CancelScope() as scope:
        async with Toolbox(Live(trace, "l")):
            scope.cancel()
            await anyio.sleep_forever()
    assert trace == ["start l", "stop l"]


def test_a_box_gives_its_tools_other_options() -> None:
    """The tools of the box are as before but for the options; each is the same one each time."""
    box = Toolbox(A, B)
    other = box.with_options(requires_approval=True, timeout=3.0)
    assert [(one.name, one.requires_approval, one.timeout) for one in other] == [("a", True, 3.0), ("b", True, 3.0)]
    assert [*other] == [*other]
    assert A.requires_approval is False
    assert other.catalogue_hash == box.catalogue_hash


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "x"}, "with_options() takes other options, not name="),
        ({"nmae": "x"}, "tool 'a' has no option nmae="),
        ({"timeout": -1}, "timeout=-1: it takes a number of seconds above 0"),
    ],
)
def test_options_that_no_tool_has_are_refused(options: dict[str, Any], text: str) -> None:
    """What cannot be meant is a SetupError at once."""
    with pytest.raises(SetupError, match=re.escape(text)):
        Toolbox(A).with_options(**options)


def test_a_box_whose_tools_do_not_change_is_looked_through_once() -> None:
    """A box of boxes too; a model is asked in each round what there is."""
    box = Toolbox(A, Toolbox(B))
    assert box.tools is box.tools
