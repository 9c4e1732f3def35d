"""What threads are called, without their program."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from py_trees.behaviours import Success
from py_trees.common import Status
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.node import Node
from jianmu.stores.base import Store
from jianmu.stores.titles import titles_of
from tests.stores.threads import finished

pytestmark = pytest.mark.anyio


class Called(BaseModel):
    """A state with a title, and more."""

    title: str | None = None
    said: Annotated[list[str], operator.add] = Field(default_factory=list)


class Other(BaseModel):
    """A state whose title is no text."""

    title: int = 7


class Rename(Node):
    """Writes one title after the other, pass by pass."""

    def __init__(self, *titles: str | None) -> None:
        super().__init__("rename")
        self.titles = [*titles]

    def update(self) -> Status:
        """Write the next one."""
        self.write_state({"title": self.titles.pop(0), "said": ['so it is a "title"']})
        self.context.wake()
        return Status.RUNNING if self.titles else Status.SUCCESS


async def called(store: Store, id: str, *titles: str | None, schema: type[BaseModel] = Called, **given: Any) -> None:
    """Run a thread that has these titles one after the other."""
    tree = Rename(*titles) if titles else Success("nothing")
    await Agent(tree, schema, store=store, durability="sync").run(given, thread_id=id)


async def test_a_title_is_that_of_the_state(store: Store) -> None:
    """At each length of the log, and after it was cut; a thread without one, or with none that is a text, has none."""
    await called(store, "grown", "Tax", "Taxes", "Taxes 2026")
    await called(store, "given", title="A title")
    await called(store, "gone", "Tax", None)
    await called(store, "blank", " ")
    await called(store, "other", schema=Other)
    await finished(store, "bare")
    wanted = {"grown": "Taxes 2026", "given": "A title"}
    ids = ["grown", "given", "gone", "blank", "other", "bare", "unknown"]
    assert await titles_of(store, ids) == wanted
    await store.prune("grown")
    await called(store, "grown", said=["more"])
    assert (
        await titles_of(store, ids)
        == wanted
        == {
            id: title
            for id in ids[:-1]
            if isinstance(title := (await store.show(id)).fields.get("title"), str) and title.strip()
        }
    )
