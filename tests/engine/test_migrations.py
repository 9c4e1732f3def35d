"""A record that was saved with an older schema, made one of today's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.migrations import migrate
from jianmu.engine.node import AsyncNode
from jianmu.engine.request import Request
from jianmu.engine.runrecord import RunRecord, load
from jianmu.engine.state import migration
from jianmu.errors import SchemaVersionError
from tests.cases.people import SUCCESS


class Old(BaseModel):
    """The schema that it was saved with."""

    name: str = "Ada Byrne"


class Pays(AsyncNode):
    """Does something once, then asks."""

    async def update_async(self) -> Any:
        """Pay, ask."""
        await self.once("pay", pay)
        await self.ask(Request("Really?"))
        return SUCCESS


async def pay() -> str:
    """Return a secret."""
    return "s3cret"


def record_of(agent: Agent[Any]) -> RunRecord:
    return load(json.loads(json.dumps(agent.dump_checkpoint())), schema_version=9)


async def suspended(version: int | None = 1) -> RunRecord:
    """Return the record of a run that has paid and asks."""
    agent = Agent(Pays("pays"), Old, version=version)
    await agent.run_until_suspend(thread_id="t1")
    return record_of(agent)


class New(BaseModel):
    """The schema of today."""

    first: str
    last: str

    @staticmethod
    @migration(1, 2)
    def split(saved: dict[str, Any]) -> dict[str, Any]:
        """Make two names of one."""
        first, last = saved["state"].pop("name").split()
        saved["state"] |= {"first": first, "last": last}
        saved["journal"][0]["result"] = {"receipt": saved["journal"][0]["result"]}
        return saved

    @staticmethod
    @migration(2, 4)
    def ask_politely(saved: dict[str, Any]) -> dict[str, Any]:
        """Ask otherwise."""
        for one in saved["questions"]:
            one["question"]["message"] = "Really, please?"
        return {**saved, "state": {**saved["state"], "seen": [*saved["state"]]}}


@pytest.mark.anyio
async def test_steps_are_walked_and_the_record_given_stays_as_it_is() -> None:
    """State, questions and journal go through both steps; all else, and the record that was given, is as before."""
    record = await suspended()
    before = record.dump()
    made = migrate(New, record, 4)
    assert record.dump() == before
    assert made.state is not None
    assert made.state.fields == {"first": "Ada", "last": "Byrne", "seen": ["first", "last"]}
    assert made.questions["records"][0]["question"]["message"] == "Really, please?"
    assert made.journal["entries"][0]["result"] == {"receipt": "s3cret"}
    assert made.schema_version == 4
    other = ("state", "questions", "journal", "schema_version")
    assert made.model_dump(exclude={*other}) == record.model_dump(exclude={*other})
    assert migrate(New, made, 4) is made


@pytest.mark.anyio
async def test_what_was_saved_without_a_version_has_the_first() -> None:
    """A program that gets its first version has its first migration from 1."""
    record = await suspended(version=None)
    assert migrate(New, record, 2).schema_version == 2
    assert migrate(Old, record, None) is record
    assert migrate(Old, record, 1) is record


@pytest.mark.anyio
async def test_the_states_of_agents_inside_are_there_too() -> None:
    """By their path, beside the state of the agent itself, where there are any."""

    class Inside(BaseModel):
        @staticmethod
        @migration(1, 2)
        def rename(saved: dict[str, Any]) -> dict[str, Any]:
            saved["inner"]["agent"] = {"title": saved["inner"]["agent"]["name"]}
            return saved

    inner = Agent(Pays("pays"), Old)
    agent = Agent(inner.as_node("agent"), Old, version=1)
    await agent.run_until_suspend(thread_id="t1")
    made = migrate(Inside, record_of(agent), 2)
    assert {path: state.fields for path, state in made.inner.items()} == {"agent": {"title": "Ada Byrne"}}


def raising(saved: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(saved["state"]["name"])


def spoiled(key: str, value: Any) -> Any:
    return lambda saved: {**saved, key: value}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fn", "problem"),
    [
        (raising, "raised KeyError; nothing was changed"),
        (lambda _: None, "returned another shape"),
        (lambda saved: [saved], "returned another shape"),
        (lambda saved: saved["state"], "returned another shape"),
        (spoiled("more", 1), "returned another shape"),
        (spoiled("inner", {}), "returned another shape"),
        (spoiled("journal", {}), "returned another shape"),
        (spoiled("state", {"name": {1, 2}}), "returned dict with something in it that has no JSON form"),
        (spoiled("questions", [{"id": "s3cret"}]), "returned question number 0 of a checkpoint cannot be read"),
        (spoiled("journal", ["s3cret"]), "returned journal entry number 0 of a checkpoint cannot be read"),
    ],
)
async def test_a_step_that_fails_is_named_without_values(fn: Any, problem: str) -> None:
    """What it raises, and what it returns that is no thread, is one typed error."""

    class Fails(BaseModel):
        @staticmethod
        @migration(1, 2)
        def step(saved: dict[str, Any]) -> dict[str, Any]:
            return fn(saved)

    with pytest.raises(SchemaVersionError, match=r"migration from version 1 to 2, Fails\.step, ") as told:
        migrate(Fails, await suspended(), 2)
    assert problem in str(told.value)
    assert not [secret for secret in ("s3cret", "Ada") if secret in str(told.value)]


@pytest.mark.anyio
async def test_a_later_version_is_refused() -> None:
    """A record from a newer program is no mistake of a migration: the program has to be updated."""
    record = (await suspended()).model_copy(update={"schema_version": 3})
    with pytest.raises(SchemaVersionError, match="of version 3, and this program knows 2: update it"):
        migrate(New, record, 2)
    with pytest.raises(
        SchemaVersionError, match=r"New has no migration from version 3, .* to 4: write .*migration\(3, 4\)"
    ):
        migrate(New, record, 4)
