"""What nodes open and close, when something goes wrong in between."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from py_trees.common import Status
from py_trees.composites import Sequence

from jianmu.agent import Agent
from jianmu.engine.checkpoint import Transaction
from jianmu.engine.events import RunEnded, Saved
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.node import Node
from jianmu.engine.request import Request
from jianmu.errors import SetupError, StoreError
from jianmu.nodes import ForEach
from jianmu.stores.memory import MemoryStore
from tests.cases.leaves import SUCCESS, Do, World, events_of, of_kind

pytestmark = pytest.mark.anyio
WITHIN = 5
SET_UP, OPENED = "setup a, setup b, setup c", "open a, open b, open c"
CLOSED, SHUT_DOWN = "close c, close b, close a", "shutdown a, shutdown b, shutdown c"


class Noted(Node):
    """Notes its hooks; raises in those of `bad`."""

    def __init__(self, name: str, notes: list[str], *bad: str, error: type[BaseException] = ValueError) -> None:
        super().__init__(name)
        self.notes = notes
        self.bad = bad
        self.error = error

    def note(self, what: str) -> None:
        """Write a line, or raise."""
        self.notes.append(f"{what} {self.name}")
        if what in self.bad:
            raise self.error(what)

    def setup(self, **_: Any) -> None:
        """Note it."""
        self.note("setup")

    def shutdown(self) -> None:
        """Note it."""
        self.note("shutdown")

    async def open(self) -> None:
        """Note it."""
        self.note("open")

    async def close(self) -> None:
        """Note it."""
        self.note("close")

    def update(self) -> Status:
        """Succeed."""
        return SUCCESS


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("what", "after"),
    [
        ("setup", "setup a, setup b, shutdown a"),
        ("open", f"{SET_UP}, open a, open b, close a, {SHUT_DOWN}"),
        ("close", f"{SET_UP}, {OPENED}, {CLOSED}, {SHUT_DOWN}"),
        ("shutdown", f"{SET_UP}, {OPENED}, {CLOSED}, {SHUT_DOWN}"),
    ],
)
async def test_a_hook_that_raises_keeps_no_other_node_from_being_closed(
    what: str, after: str, error: type[BaseException]
) -> None:
    """Whoever was set up is shut down, whoever was opened is closed, and the next run begins with all of it anew."""
    notes: list[str] = []
    bad = Noted("b", notes, what, error=error)
    agent = Agent(Sequence("s", memory=True, children=[Noted("a", notes), bad, Noted("c", notes)]), World)
    with anyio.fail_after(WITHIN):
        with pytest.raises(error):
            await agent.run()
        assert ", ".join(notes) == after
        notes.clear()
        bad.bad = ()
        assert await agent.run() is SUCCESS
    assert ", ".join(notes) == f"{SET_UP}, {OPENED}, {CLOSED}, {SHUT_DOWN}"


class Item(InteractiveNode):
    """Asks; notes when it is set up."""

    notes: list[str]

    def setup(self, **_: Any) -> None:
        """Note it."""
        self.notes.append(self.name)

    def request(self) -> Request:
        """Ask."""
        return Request("?")

    def on_answer(self, _: Any) -> Status:
        """Succeed."""
        return SUCCESS


async def test_what_is_built_by_a_load_is_set_up_once() -> None:
    """The subtrees of a ForEach that are built when a thread is loaded are set up with the rest of the tree."""
    store = MemoryStore()
    notes: list[str] = []

    def agent() -> Agent[World]:
        def body(_: int, index: int) -> Item:
            item = Item(f"item {index}")
            item.notes = notes
            return item

        return Agent(ForEach("each", body, over=[1, 2]), World, store=store)

    with anyio.fail_after(WITHIN):
        await agent().run_until_suspend(thread_id="t")
        notes.clear()
        other = agent()
        await other.load("t")
        for question in other.interaction.pending:
            outcome = await other.resume("yes", suspension_id=question.id)
    assert outcome.status is SUCCESS
    assert notes == ["item 0", "item 1"]


async def test_a_node_that_would_have_to_be_opened_in_the_midst_of_a_run_is_refused() -> None:
    """`open()` is awaited before the first pass: a node put in later with one is a SetupError, not left unopened."""
    notes: list[str] = []
    agent = Agent(ForEach("each", lambda _, index: Noted(f"item {index}", notes), over=[1]), World)
    with anyio.fail_after(WITHIN), pytest.raises(SetupError, match=r"'each/item 0' has open\(\) or close\(\)"):
        await agent.run()
    assert "open item 0" not in notes


@pytest.mark.parametrize("room", [0, 1])
async def test_a_run_that_cannot_be_saved_ends_all_the_same(room: int) -> None:
    """The store's exception comes out, RunEnded is told, the agent is free, and with room again it runs."""

    class Full(MemoryStore):
        """A store with room for so many transactions."""

        room = 0

        async def commit(self, transaction: Transaction) -> bool:
            """Fail when it is full."""
            if not self.room:
                raise StoreError("the disk is full")
            self.room -= 1
            return await super().commit(transaction)

    store = Full()
    agent = Agent(Do("x", lambda node: node.write_state({"n": node.read_state().n + 1})), World, store=store)
    events = events_of(agent)
    with anyio.fail_after(WITHIN):
        for n in range(2):
            store.room = room
            with pytest.raises(StoreError, match="the disk is full"):
                await agent.run(thread_id=f"t{n}")
            assert agent.interaction.pending == ()
        assert len(of_kind(events, RunEnded)) == 2
        assert len(of_kind(events, Saved)) == 2 * room
        store.room = 99
        assert await agent.run(thread_id="t0", on_new_input="withdraw") is SUCCESS
        assert [thread.status for thread in await store.list()] == ["finished"] + ["crashed"] * (room > 0)
