"""The schema, read once: markers, reducers, and every declaration that is refused with the line to write."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from typing import Annotated, Any, Generic, Optional, TypeVar

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel
from typing_extensions import TypeAliasType

from jianmu.engine.state import Ephemeral, Internal, Reducer, StateManager, Transient, add_items
from jianmu.errors import SchemaError
from jianmu.message import Message, human
from jianmu.tool.types import ToolCall

Adds = TypeAliasType("Adds", Annotated[list[int], operator.add])
T = TypeVar("T")
Many = TypeAliasType("Many", Annotated[list[T], operator.add], type_params=(T,))


class ReActState(BaseModel):
    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    done: Annotated[bool, Ephemeral(scope="run")] = False
    final_answer: Annotated[str | None, Ephemeral(scope="run")] = None
    actions: Annotated[list[ToolCall], Ephemeral(scope="step")] = Field(default_factory=list)
    rounds: Annotated[int, Ephemeral(scope="run")] = 0
    streaming_output: Annotated[str, Ephemeral(scope="call")] = ""


def test_the_contracts_example_works_as_written() -> None:
    """The schema of the contract: appends, resets of each scope, values taken as they are."""
    manager = StateManager[ReActState](ReActState)
    hello = human("hello")
    manager.update({"messages": [hello]})
    manager.update({"messages": [human("again")], "done": True, "rounds": 2, "streaming_output": "tok"})
    manager.update({"actions": [ToolCall(id="1", name="t")]})
    assert [message.content for message in manager.get().messages] == ["hello", "again"]
    manager.reset_call_fields()
    assert (manager.get().streaming_output, manager.get().done) == ("", True)
    manager.reset_step_fields()
    assert (manager.get().actions, manager.get().rounds) == ([], 2)
    manager.reset_run_fields()
    assert manager.get() == ReActState(messages=manager.get().messages)


def refused(schema: Any) -> str:
    """Return why a schema is refused."""
    with pytest.raises(SchemaError) as caught:
        StateManager(schema)
    return str(caught.value)


class Callable2:
    def __call__(self, old: int, new: int) -> int:
        return old + new


async def later(old: int, new: int) -> int:
    """Fold later."""
    return old + new


class NoDefaultEphemeral(BaseModel):
    x: Annotated[int, Ephemeral("run")]


class NoDefaultTransient(BaseModel):
    x: Annotated[int, Transient()]


class NoDefaultInternal(BaseModel):
    x: Annotated[int, Internal(output=True)]


class Deeper(BaseModel):
    x: Annotated[list[int], operator.add] | None = None


class DeeperOptional(BaseModel):
    x: Optional[Annotated[list[int], Ephemeral("run")]] = None  # noqa: UP045  # as users write it


class DeepestMarker(BaseModel):
    x: dict[str, list[Annotated[int, Transient()]]] = {}


class DeeperAlias(BaseModel):
    x: Adds | None = None


class MarkerClass(BaseModel):
    x: Annotated[int, Ephemeral] = 0


class ReducerClass(BaseModel):
    x: Annotated[int, Reducer] = 0


class Instance(BaseModel):
    x: Annotated[int, Callable2()] = 0


class Unsigned(BaseModel):
    x: Annotated[int, max] = 0


class Coroutine(BaseModel):
    x: Annotated[int, later] = 0


class Iterated(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    x: Iterator[int] | None = None


class Iterated2(BaseModel):
    x: Iterable[int] = ()


class Iterated3(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    x: list[Generator[int, None, None]] = []


class Iterated4(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    x: AsyncIterator[int] | None = None


class BadAlias(BaseModel):
    x: int = Field(default=0, alias="y")
    y: int = 0


class BadAlias2(BaseModel):
    x: int = Field(default=0, serialization_alias="y")
    y: int = 0


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        (NoDefaultEphemeral, "x: Annotated"),
        (NoDefaultTransient, "x: Annotated"),
        (NoDefaultInternal, "x: Annotated"),
        (Deeper, "x: Annotated[<the whole type>"),
        (DeeperOptional, "x: Annotated[<the whole type>"),
        (DeepestMarker, "x: Annotated[<the whole type>"),
        (DeeperAlias, "x: Annotated[<the whole type>"),
        (MarkerClass, "write Ephemeral(scope='run')"),
        (ReducerClass, "write Reducer(fn)"),
        (Instance, "write Reducer(...)"),
        (Unsigned, "write Reducer(max)"),
        (Coroutine, "plain def"),
        (Iterated, "write list[...]"),
        (Iterated2, "write list[...]"),
        (Iterated3, "write list[...]"),
        (Iterated4, "write list[...]"),
        (BadAlias, "'y'"),
        (BadAlias2, "'y'"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(schema: type[BaseModel], line: str) -> None:
    """The error names schema and field, and has the line to write."""
    text = refused(schema)
    assert f"{schema.__name__}.x" in text
    assert line in text


@pytest.mark.parametrize("no_schema", [dict, 3, NoDefaultInternal(x=1), RootModel[list[int]]])
def test_only_models_with_fields_are_schemas(no_schema: Any) -> None:
    """What is no model class with fields is refused."""
    assert "BaseModel" in refused(no_schema)


def test_a_scope_that_does_not_exist_is_refused() -> None:
    """The error names the scopes that there are."""
    with pytest.raises(SchemaError, match=r"'run'.*'step'.*'call'"):
        Ephemeral("turn")


def test_reducer_wraps_what_has_no_signature_and_instances() -> None:
    """Reducer(max) and Reducer(instance) fold."""

    class Wrapped(BaseModel):
        top: Annotated[int, Reducer(max)] = 0
        total: Annotated[int, Reducer(Callable2())] = 0

    manager = StateManager(Wrapped)
    for n in (3, 5, 4):
        manager.update({"top": n, "total": n})
    assert (manager.get().top, manager.get().total) == (5, 12)


class Base(BaseModel, Generic[T]):
    items: Annotated[list[T], operator.add] = []


class Derived(Base[int]):
    more: Many[str] = []
    alias: Adds = []
    later: Later | None = None


class Later(BaseModel):
    n: int = 0


def test_aliases_generics_inheritance_and_forward_references_are_resolved() -> None:
    """`type` aliases are unwrapped; generic bases and forward references are as Pydantic has them."""
    manager = StateManager(Derived)
    for _ in range(2):
        manager.update({"items": ["1"], "more": ["a"], "alias": [2], "later": {"n": 4}})
    assert manager.get() == Derived(items=[1, 1], more=["a", "a"], alias=[2, 2], later=Later(n=4))


def test_an_unknown_reference_is_named() -> None:
    """A forward reference that nobody defined is named with the call to make."""

    class Unresolved(BaseModel):
        x: Nowhere | None = None  # noqa: F821  # that it is unknown is the point

    text = refused(Unresolved)
    assert "Nowhere" in text
    assert "Unresolved.model_rebuild()" in text


def test_a_deferred_schema_is_built() -> None:
    """A model whose building was deferred is built at construction."""

    class Deferred(BaseModel):
        model_config = ConfigDict(defer_build=True)
        n: int = 0

    manager = StateManager(Deferred)
    manager.update({"n": "4"})
    assert manager.get().n == 4


def test_other_metadata_is_left_alone() -> None:
    """Validators, constraints and texts in the metadata are no reducers."""

    class Plain(BaseModel):
        x: Annotated[int, BeforeValidator(int), Field(ge=0, description="d"), "text", str] = 0

    manager = StateManager(Plain)
    manager.update({"x": "5"})
    manager.update({"x": "6"})
    assert manager.get().x == 6


def test_markers_are_values() -> None:
    """Markers compare by what they say and show it."""
    assert Ephemeral("run") == Ephemeral(scope="run") != Ephemeral("step")
    assert repr(Ephemeral("run")) == "Ephemeral(scope='run')"
    assert Internal() == Internal(input=False, output=False)
    assert len({Transient(), Transient(), Internal()}) == 2


def test_the_facts_that_ports_need() -> None:
    """Annotations, dict fields, reducers and lasting fields can be asked for."""

    class Facts(BaseModel):
        model_config = ConfigDict(extra="allow")
        notes: Annotated[dict[str, int] | None, operator.or_] = None
        items: Annotated[list[int], add_items()] = []
        stream: Annotated[str, Ephemeral("call")] = ""
        done: Annotated[bool, Ephemeral("run")] = False

    manager = StateManager(Facts)
    manager.update({"stream": "x", "kept": 1}, namespace="a")
    assert [manager.schema.fields[name].is_dict for name in ("notes", "items")] == [True, False]
    assert manager.schema.fields["notes"].annotation == dict[str, int] | None
    assert manager.schema.types["stream"] is str
    assert [manager.has_reducer(name) for name in ("notes", "stream", "nothing")] == [True, False, False]
    assert manager.lasting_fields == ("notes", "items", "done", "a.kept")
