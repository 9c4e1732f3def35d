"""StateMessageStore: a conversation that many may write at once."""

from __future__ import annotations

import operator
import threading
from typing import Annotated

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from jianmu.engine.state import Ephemeral, StateManager, add_by_id
from jianmu.errors import NamespaceError, SetupError, StateWriteError
from jianmu.message import ImagePart, Message, Usage, ai, human
from jianmu.thread import StateMessageStore
from jianmu.tool.types import ToolCall


class Open(BaseModel):
    """A state with conversations of several kinds."""

    model_config = ConfigDict(extra="allow")

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    plain: list[Message] = Field(default_factory=list)
    keyed: Annotated[list[Message], add_by_id(id="id")] = Field(default_factory=list)
    maybe: list[Message] | None = None
    short: Annotated[str, Ephemeral(scope="call")] = ""


class Closed(BaseModel):
    """A state with nothing for a conversation."""

    messages: list[str] = Field(default_factory=list)


PLACES = [("messages", None), ("plain", None), ("keyed", None), ("maybe", None), ("talk", "planner")]


@pytest.fixture(params=PLACES, ids=lambda place: place[0])
def store(request: pytest.FixtureRequest) -> StateMessageStore:
    """A conversation in each kind of place."""
    return StateMessageStore(StateManager(Open), *request.param)


@pytest.mark.anyio
async def test_t12_many_append_one_is_edited_one_removed(store: StateMessageStore) -> None:
    """50 tasks append; one is edited, one removed: 49, all different, in place; an unknown id changes nothing."""

    async def append(number: int) -> None:
        store.append(human(f"{number}", id=str(number)))

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(append, number)
    order = [one.id for one in store]
    place = order.index("7")
    store.edit("7", content="edited")
    store.remove("9")
    assert len(store) == len({one.id for one in store}) == 49
    assert [one.id for one in store] == [id for id in order if id != "9"]
    assert [one.text for one in store if one.id == "7"] == ["edited"]
    assert store.messages[place - (order.index("9") < place)].text == "edited"
    before = store.messages
    with pytest.raises(StateWriteError, match="it has no message with the id 'nobody'") as found:
        store.remove("nobody")
    assert found.value.field is not None
    assert found.value.field.endswith(store._key)
    assert store.messages == before


def test_threads_append_at_once(store: StateMessageStore) -> None:
    """Appends from several threads are all there, once."""
    workers = [
        threading.Thread(target=lambda name=name: [store.append(human("x", id=f"{name}{n}")) for n in range(20)])
        for name in "abcd"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({one.id for one in store}) == len(store) == 80


def test_messages_come_back_as_they_were(store: StateMessageStore) -> None:
    """Parts, calls, usage and metadata are those that were appended, also where they are kept as JSON."""
    given = [
        human(["look", ImagePart(url="https://x/y.png")], name="ann"),
        ai("hm", tool_calls=[ToolCall(id="1", name="look", arguments={"a": [1]})], usage=Usage(cost=0.5)),
        human("x", metadata={"a": {"b": None}}),
    ]
    store.append(*given)
    assert store.messages == given
    assert store.get(given[1].id) == given[1]
    assert store.get("nobody") is None
    store.clear()
    assert store.messages == []


def test_edit_gives_the_message_back(store: StateMessageStore) -> None:
    """The message keeps its id and all else that was not changed."""
    one = human("a", name="ann")
    store.append(one, human("b"))
    edited = store.edit(one.id, content=["c", ImagePart(path="x.png")])
    assert store.messages[0] == edited
    assert (edited.id, edited.name, edited.text) == (one.id, "ann", "c")


def test_what_is_no_message_is_refused(store: StateMessageStore) -> None:
    """Other things, and changes that make a message none, are a StateWriteError; nothing is changed."""
    store.append(human("a", id="1"))
    for attempt in (
        lambda: store.append(3),  # type: ignore[arg-type]  # the fault
        lambda: store.edit("1", role="tool"),
        lambda: store.edit("1", colour="red"),
        lambda: store.edit("2", content="x"),
        lambda: store.remove("1", "2"),
    ):
        with pytest.raises(StateWriteError):
            attempt()
    assert [one.text for one in store] == ["a"]


def test_places_that_cannot_be_used_are_refused() -> None:
    """A field that is not there or of another type, a declared key in a namespace, a closed schema."""
    manager = StateManager(Open)
    with pytest.raises(SetupError, match="Open has no field 'talk' for a conversation: talk: Annotated"):
        StateMessageStore(manager, key="talk")
    with pytest.raises(SetupError, match="Closed has no field 'messages' for a conversation"):
        StateMessageStore(StateManager(Closed))
    for key in ("messages", "short"):
        with pytest.raises(NamespaceError, match=f"'{key}' is a field of Open: in the namespace 'planner'"):
            StateMessageStore(manager, key=key, namespace="planner")
    with pytest.raises(NamespaceError, match="needs a schema that keeps extra values"):
        StateMessageStore(StateManager(Closed), key="talk", namespace="planner")


def test_namespaces_are_apart() -> None:
    """Two conversations in two namespaces, and the one in the field, know nothing of each other."""
    manager = StateManager(Open)
    stores = [StateMessageStore(manager), *(StateMessageStore(manager, "talk", name) for name in ("plan", "planner"))]
    for number, store in enumerate(stores):
        store.append(human(str(number)))
    assert [[one.text for one in store] for store in stores] == [["0"], ["1"], ["2"]]


@given(st.lists(st.tuples(st.sampled_from(["append", "edit", "remove"]), st.sampled_from("abcd")), max_size=30))
def test_a_conversation_is_what_a_list_would_be(deeds: list[tuple[str, str]]) -> None:
    """Any sequence of deeds gives what it would give with a list, in a field and in a namespace alike."""
    manager = StateManager(Open)
    field, space = StateMessageStore(manager), StateMessageStore(manager, "talk", "planner")
    model: dict[str, str] = {}
    for number, (deed, id) in enumerate(deeds):
        if deed == "append" and id not in model:
            model[id] = f"{number}"
            for store in (field, space):
                store.append(human(f"{number}", id=id))
        elif id in model and deed == "edit":
            model[id] = f"edited {number}"
            for store in (field, space):
                store.edit(id, content=f"edited {number}")
        elif id in model and deed == "remove":
            del model[id]
            for store in (field, space):
                store.remove(id)
    assert [(one.id, one.text) for one in field] == [(one.id, one.text) for one in space] == [*model.items()]
