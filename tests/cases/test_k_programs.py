"""Cases of programs that have changed, on threads of a store: K08, K20, K37; nothing runs and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.state import migration
from jianmu.errors import JianmuError, SchemaVersionError, TreeMismatchError
from tests.anystore import Stores, each_store
from tests.cases.people import SUCCESS, AskInside, Desk, Note, ask, par, seq

pytestmark = pytest.mark.anyio
each_asking = pytest.mark.parametrize("asking", [ask, AskInside])
GOING_ON: dict[str, Callable[[Agent[Any]], Any]] = {
    "load": lambda agent: agent.load("t1"),
    "recover": lambda agent: agent.recover("t1"),
    "resume": lambda agent: agent.resume("x", thread_id="t1"),
    "run": lambda agent: agent.run(thread_id="t1"),
    "queue": lambda agent: agent.run(thread_id="t1", on_new_input="queue"),
    "step": lambda agent: agent.step(thread_id="t1", settle=True),
}


async def refused(any_store: Stores, build: Callable[[], Agent[Any]], error: type[JianmuError], match: str) -> None:
    """Check that whoever goes on with the thread is refused, and that this leaves nothing behind."""
    kept = any_store.rows("t1")
    for name, call in GOING_ON.items():
        fresh = build()
        with pytest.raises(error, match=match):
            await call(fresh)
        assert (name, fresh.tree.count, fresh.interaction.pending) == (name, 0, ())
        assert (name, any_store.rows("t1")) == (name, kept)
        row = await any_store.reader().thread("t1")
        assert row is not None
        assert not row.is_held


@each_store
@each_asking
async def test_k20_a_renamed_node_is_found_by_its_alias(any_store: Stores, asking: Any) -> None:
    """Without: an error that names the old path, before the first tick. With: the old question can be answered."""
    done: list[str] = []

    def build(name: str, **options: Any) -> Agent[Any]:
        return Agent(seq("root", Note("first", done), asking(name)), Desk, store=any_store(), **options)

    with anyio.fail_after(10):
        id = (await build("ask").run_until_suspend(thread_id="t1")).suspensions[0].id
        await refused(any_store, lambda: build("confirm"), TreeMismatchError, "'root/ask'")
        fresh = build("confirm", aliases={"root/ask": "root/confirm"})
        await fresh.load("t1")
        assert [(one.id, one.path) for one in fresh.interaction.pending] == [(id, "root/confirm")]
        assert (await fresh.resume("x", suspension_id=id)).status is SUCCESS
        assert (await any_store().show("t1")).fields["values"] == {"confirm": "x"}
    assert done == ["first"]


@each_asking
@pytest.mark.parametrize("changed", [
    lambda asking: par("main", asking("ask"), asking("ask"), asking("ask")),
    lambda asking: par("main", asking("ask")),
    lambda asking: par("main", Note("ask", []), asking("ask")),
    lambda asking: par("main", Note("new", []), asking("ask"), asking("ask")),
])  # fmt: skip
async def test_k37_one_of_same_named_siblings_is_not_taken_for_another(
    any_store: Stores, asking: Any, changed: Any
) -> None:
    """The second `ask` is open and the new code has others beside it: an error with the path. The old code loads."""

    def old() -> Agent[Any]:
        return Agent(par("main", asking("ask"), asking("ask")), Desk, store=any_store())

    with anyio.fail_after(10):
        outcome = await old().run_until_suspend(thread_id="t1")
        first = next(one.id for one in outcome.suspensions if one.path == "main/ask")
        id = (await old().resume("one", suspension_id=first, thread_id="t1")).suspensions[0].id
        await refused(
            any_store, lambda: Agent(changed(asking), Desk, store=any_store()), TreeMismatchError, r"main/ask\[2\]"
        )
        again = old()
        await again.load("t1")
        assert [one.id for one in again.interaction.pending] == [id]
        assert (await again.resume("two")).status is SUCCESS


class First(BaseModel):
    """Schema 1."""

    name: str = "Ada Byrne"
    values: dict[str, Any] = Field(default_factory=dict)


class Unmigrated(BaseModel):
    """Schema 2, to which nothing leads."""

    first: str
    last: str
    values: dict[str, Any] = Field(default_factory=dict)


class Second(Unmigrated):
    """Schema 2."""

    @staticmethod
    @migration(1, 2)
    def split(saved: dict[str, Any]) -> dict[str, Any]:
        """Make two names of one."""
        first, last = saved["state"].pop("name").split()
        saved["state"] |= {"first": first, "last": last}
        return saved


@each_store
async def test_k08_a_thread_of_an_older_schema_is_migrated_or_refused(any_store: Stores) -> None:
    """Without: an error before the first tick. With: migrated, answered, saved whole; then the old code is refused."""

    def build(schema: Any, version: int) -> Agent[Any]:
        return Agent(seq("main", ask("q"), ask("z")), schema, version=version, store=any_store())

    with anyio.fail_after(10):
        await build(First, 1).run_until_suspend(thread_id="t1")
        await refused(any_store, lambda: build(Unmigrated, 2), SchemaVersionError, "no migration from version 1")
        new = build(Second, 2)
        await new.load("t1")
        assert (new.state.first, new.state.last) == ("Ada", "Byrne")
        assert (await new.resume("yes", thread_id="t1")).suspended
        assert (await any_store().show("t1")).fields == {"first": "Ada", "last": "Byrne", "values": {"q": "yes"}}
        await refused(any_store, lambda: build(First, 1), SchemaVersionError, "version 2")
        assert (await build(Second, 2).resume("end", thread_id="t1")).status is SUCCESS
        view = await any_store().show("t1")
    assert view.fields["values"] == {"q": "yes", "z": "end"}
