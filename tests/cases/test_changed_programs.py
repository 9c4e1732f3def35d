"""Cases of programs that have changed: K08, K30; the others that need no store on disk are in `test_k_resume`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.migrations import migrate
from jianmu.engine.runrecord import load
from jianmu.engine.state import migration
from jianmu.errors import SchemaVersionError, StateWriteError
from jianmu.stores import MemoryStore
from tests.cases.people import SUCCESS, AskInside, Desk, ask, seq

pytestmark = pytest.mark.anyio


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


async def test_k08_a_thread_of_an_older_schema_is_migrated_or_refused() -> None:
    """With the migration the values are today's and the question can be answered; without, nothing is changed."""
    old = Agent(seq("main", ask("q")), First, version=1)
    with anyio.fail_after(5):
        await old.run_until_suspend(thread_id="t1")
        record = load(json.loads(json.dumps(old.dump_checkpoint())), schema_version=2)
        with pytest.raises(
            SchemaVersionError, match=r"Unmigrated has no migration from version 1, .*: write .*\(1, 2\)"
        ):
            migrate(Unmigrated, record, 2)
        new = Agent(seq("main", ask("q")), Second, version=2)
        new.load_checkpoint(migrate(Second, record, 2).dump())
        assert (new.state.first, new.state.last) == ("Ada", "Byrne")
        assert (await new.resume("yes")).status is SUCCESS
    assert new.state.values == {"q": "yes"}


class Text(BaseModel):
    """One kind of part."""

    kind: Literal["text"] = "text"
    text: str


class Image(BaseModel):
    """A kind of part that is given up."""

    kind: Literal["image"] = "image"
    url: str


class Parts(BaseModel):
    """A list of both kinds."""

    parts: list[Annotated[Text | Image, Field(discriminator="kind")]] = Field(default_factory=list)
    values: dict[str, Any] = Field(default_factory=dict)


class Fewer(BaseModel):
    """A list of two kinds, one of which is another."""

    class Sound(BaseModel):
        """A new kind of part."""

        kind: Literal["sound"] = "sound"

    parts: list[Annotated[Text | Sound, Field(discriminator="kind")]] = Field(default_factory=list)
    values: dict[str, Any] = Field(default_factory=dict)


async def test_k30_a_member_that_a_union_has_lost_is_an_error_with_field_and_tag() -> None:
    """A part of that kind is in the list: nothing is loaded, nothing is started."""
    old = Agent(seq("main", ask("q")), Parts)
    with anyio.fail_after(5):
        await old.run_until_suspend({"parts": [Text(text="a"), Image(url="s3cret")]}, thread_id="t1")
    data = json.loads(json.dumps(old.dump_checkpoint()))
    new = Agent(seq("main", ask("q")), Fewer)
    with pytest.raises(StateWriteError, match=r"field 'parts' .*union_tag_invalid 'image' at \[1\]") as told:
        new.load_checkpoint(data)
    assert "s3cret" not in str(told.value)
    assert (new.state.parts, new.interaction.pending, new.tree.count) == ([], (), 0)


async def test_k20_a_thread_that_went_on_under_new_names_needs_no_aliases_any_more() -> None:
    """What was taken over is written at its new paths: questions, effects, position, and the answer's own way."""

    class Pays(AskInside):
        async def update_async(self) -> Any:
            await self.once("pay", paid)
            return await super().update_async()

    async def paid() -> int:
        calls.append("paid")
        return 1

    calls: list[str] = []
    store = MemoryStore()

    def agent_of(first: str, **options: Any) -> Agent[Any]:
        tree = seq("main", seq(first, Pays("q")), ask("last"))
        return Agent(tree, Desk, store=store, **options)

    with anyio.fail_after(5):
        await agent_of("old").run_until_suspend(thread_id="t1")
        renamed = agent_of("new", aliases={"main/old": "main/new"})
        assert (await renamed.resume("yes", thread_id="t1")).suspended
        later = agent_of("new", aliases={"main/new": "main/old", "main/old": "main/new"})
        assert (await later.resume("end", thread_id="t1")).status is SUCCESS
    assert calls == ["paid"]
    assert later.state.values == {"q": "yes", "last": "end"}
