"""Cases of the state that a store keeps: S02, S03, S06, S10, S28, S34."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar

import anyio
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.questions import Answer
from jianmu.engine.state import Replace, Transient, merge_map, upsert
from jianmu.errors import InputError, NamespaceError, StateWriteError
from tests.anystore import Stores, each_store
from tests.cases.leaves import Do
from tests.cases.people import SUCCESS, Desk, ask, seq

pytestmark = pytest.mark.anyio
T = TypeVar("T")


def _changed(value: str) -> str:
    return value if value.startswith("h(") else f"h({value})"


def _wrapped(value: str) -> str:
    return f"h({value})"


class Named(Desk):
    """Fields whose validators change what is written."""

    name: Annotated[str, AfterValidator(str.upper)] = ""
    tag: Annotated[str, AfterValidator(_changed)] = ""
    wrapped: Annotated[str, AfterValidator(_wrapped)] = ""


class A(BaseModel):
    """One kind."""

    kind: Literal["a"] = "a"
    x: int = 1


class B(BaseModel):
    """Another kind, equal in its fields to A."""

    kind: Literal["b"] = "b"
    x: int = 1


class Box(BaseModel, Generic[T]):
    """Something around another thing."""

    inside: T


class Kinds(Desk):
    """Fields of classes, in each of the ways in which they may stand there."""

    box: Box[A] | None = None
    items: Annotated[list[B], upsert("x")] = Field(default_factory=list)
    pet: Annotated[A | B, Field(discriminator="kind")] = Field(default_factory=A)
    held: dict[str, Box[B]] = Field(default_factory=dict)


class Handles(Desk):
    """A field that has no JSON form and is not kept."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    handle: Annotated[object, Transient()] = Field(default_factory=object)
    first: Annotated[dict[str, int] | None, merge_map()] = None


async def write(any_store: Stores, schema: Any, *deeds: Callable[[Any], None]) -> tuple[Any, Any]:
    """Write by leaves, suspend, and load in an agent that has nothing but the store; return both."""

    def build(*run: Callable[[Any], None]) -> Agent[Any]:
        leaves = [Do(f"deed {at}", deed) for at, deed in enumerate(run)]
        return Agent(seq("main", *leaves, ask("q")), schema, store=any_store())

    agent, fresh = build(*deeds), build(*deeds)
    assert (await agent.run_until_suspend(thread_id="t1")).suspended
    await fresh.load("t1")
    assert fresh.dump_checkpoint()["state"] == agent.dump_checkpoint()["state"]
    return agent, fresh


@each_store
async def test_s02_what_a_validator_made_is_stored(any_store: Stores) -> None:
    """Upper case stays, here and after loading."""
    with anyio.fail_after(5):
        agent, fresh = await write(any_store, Named, lambda node: node.write_state({"name": "bob"}))
    assert (agent.state.name, fresh.state.name) == ("BOB", "BOB")


@each_store
async def test_s03_a_value_that_would_not_come_back_is_refused(any_store: Stores) -> None:
    """A validator that changes its own result refuses the write; one that does not is applied once, also by a load."""
    with anyio.fail_after(5):

        def tag(node: Any) -> None:
            node.write_state({"tag": "x"})
            node.write_state({"amount": 6})

        agent, fresh = await write(any_store, Named, tag)
        assert (agent.state.tag, fresh.state.tag) == ("h(x)", "h(x)")
        bad = Agent(Do("bad", lambda node: node.write_state({"wrapped": "x"})), Named, store=any_store())
        with pytest.raises(StateWriteError, match="'wrapped'"):
            await bad.run(thread_id="t2")
        assert (await any_store().show("t2")).fields["wrapped"] == ""


@each_store
async def test_s06_every_value_has_the_class_it_was_written_with(any_store: Stores) -> None:
    """Generic models, lists with a reducer, unions and models in dicts are equal, and of their classes."""
    with anyio.fail_after(5):
        agent, fresh = await write(
            any_store,
            Kinds,
            lambda node: node.write_state({"box": Box[A](inside=A(x=3)), "items": [B(x=1), B(x=2)], "pet": B(x=5)}),
            lambda node: node.write_state({"items": [B(x=1)], "held": {"one": Box[B](inside=B())}}),
        )
    for state in (agent.state, fresh.state):
        assert state == Kinds(
            box=Box[A](inside=A(x=3)), items=[B(x=1), B(x=2)], pet=B(x=5), held={"one": Box[B](inside=B())}
        )
        assert [type(one).__name__ for one in (state.box, state.items[0], state.pet, state.held["one"])] == [
            "Box[A]",
            "B",
            "B",
            "Box[B]",
        ]


@each_store
async def test_s10_replace_as_the_first_write_stores_its_value(any_store: Stores) -> None:
    """The value, never the word of the program."""
    with anyio.fail_after(5):
        agent, fresh = await write(
            any_store, Handles, lambda node: node.write_state({"first": Replace({"id": 1}), "handle": "mine"})
        )
    assert (agent.state.first, fresh.state.first) == ({"id": 1}, {"id": 1})
    assert "Replace" not in str(any_store.rows("t1"))
    assert "mine" not in str(any_store.rows("t1"))
    assert type(fresh.state.handle) is object


class Open(Desk):
    """A state that takes extra fields."""

    model_config = ConfigDict(extra="allow")


@each_store
async def test_s34_what_the_runtime_keeps_is_no_field_of_anybody(any_store: Stores) -> None:
    """Inputs and writes into its namespaces are refused or touch nothing; neither output nor store shows an entry."""
    refused: list[str] = []

    def pry(node: Any) -> None:
        for space in ("interaction", "journal"):
            try:
                node.write_state({"resume_payloads": {"x": 1}}, namespace=space)
            except NamespaceError:
                refused.append(space)

    def build() -> Agent[Any]:
        return Agent(seq("main", Do("pry", pry), ask("q")), Open, store=any_store())

    with anyio.fail_after(5):
        with pytest.raises(InputError, match=r"interaction\.resume_payloads"):
            await build().run({"interaction.resume_payloads": {"x": 1}}, thread_id="t1")
        agent = build()
        outcome = await agent.run_until_suspend({"interaction": {"suspensions": []}}, thread_id="t1")
        assert refused == ["interaction", "journal"]
        assert [one.status for one in outcome.suspensions] == ["open"]
        assert set(outcome.output) - set(Open.model_fields) == {"interaction"}
        fresh = build()
        await fresh.load("t1")
        assert fresh.state.model_extra == {"interaction": {"suspensions": []}}
        view = await any_store().show("t1")
        assert set(view.fields) - set(Open.model_fields) == {"interaction"}
        id = outcome.suspensions[0].id
        await fresh.interaction.answer(Answer(id, "x"))
        assert (await fresh.recover("t1")).status is SUCCESS
    assert fresh.state.values == {"q": "x"}
