"""Lists that keep one item per key: the quick way of an append gives what the reducer gives."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from jianmu.engine.state import Clear, Remove, Replace, StateManager, add_by_id, ordered_union, upsert
from jianmu.engine.state.readonly import Growing
from jianmu.errors import SchemaError, StateWriteError


class Item(BaseModel, frozen=True):
    """One item."""

    id: str
    n: int = 0


class Talk(BaseModel):
    """A list by id, which takes five at most."""

    items: Annotated[list[Item], add_by_id(), Field(max_length=5)] = Field(default_factory=list)


ids = st.sampled_from("abcdefg")
batches = st.lists(st.lists(st.builds(Item, id=ids, n=st.integers(0, 9)), max_size=4), max_size=12)


def expected(held: list[Item], batch: list[Item]) -> list[Item]:
    """Return what a write leaves: the items by id, or the old ones where they would be too many."""
    made = list({item.id: item for item in [*held, *batch]}.values())
    return made if len(made) <= 5 else held


@given(batches, st.integers(0, 12))
def test_appends_and_replacements_are_those_of_a_dict(written: list[list[Item]], back: int) -> None:
    """Whatever is appended, replaced, refused, or put back to an earlier version, one item per id is kept in place."""
    manager, held = StateManager(Talk), list[Item]()
    go_back, then = manager.bookmark(), held
    for number, batch in enumerate(written):
        if number == back:
            go_back, then = manager.bookmark(), list(held)
        try:
            manager.update({"items": batch})
        except StateWriteError:
            assert expected(held, batch) == held
        held = expected(held, batch)
        assert manager.get().items == held
        if number == back + 2:
            go_back()
            held = then
    assert manager.get().items == held


def test_an_append_looks_at_no_item_that_it_knows() -> None:
    """Appending takes the key of each item once, however long the list is."""
    asked: list[Any] = []

    def key(item: Item) -> str:
        asked.append(item.id)
        return item.id

    class Counted(BaseModel):
        items: Annotated[list[Item], add_by_id(key)] = Field(default_factory=list)

    manager = StateManager(Counted)
    manager.update({"items": [Item(id=str(n)) for n in range(100)]})
    asked.clear()
    for n in range(100, 110):
        manager.update({"items": [Item(id=str(n))]})
    assert len(asked) <= 100 + 2 * 10


def test_an_item_with_a_key_twice_in_stored_data_is_one_after_the_next_write() -> None:
    """What was stored with a key twice is cleaned when something is written."""
    manager = StateManager(Talk)
    manager.update({"items": Replace([Item(id="a", n=1), Item(id="a", n=2)])})
    manager.update({"items": [Item(id="b")]})
    assert manager.get().items == [Item(id="a", n=2), Item(id="b")]


def test_one_item_counts_as_a_list_of_it() -> None:
    """An item may be given without a list, as a model or as a mapping; anything else is refused."""
    manager = StateManager(Talk)
    manager.update({"items": Item(id="a")})
    manager.update({"items": {"id": "b", "n": 2}})
    assert manager.get().items == [Item(id="a"), Item(id="b", n=2)]
    for wrong in ("c", 3, None):
        with pytest.raises(StateWriteError, match="list_type"):
            manager.update({"items": wrong})


def test_after_a_removal_and_a_clear_appends_go_on() -> None:
    """An id that was removed is new again, at the end."""
    manager = StateManager(Talk)
    manager.update({"items": [Item(id="a"), Item(id="b")]})
    manager.update({"items": Remove("a")})
    manager.update({"items": Item(id="a")})
    assert [item.id for item in manager.get().items] == ["b", "a"]
    manager.update({"items": Clear()})
    manager.update({"items": Item(id="a")})
    assert [item.id for item in manager.get().items] == ["a"]


def test_a_version_that_has_grown_shares_its_places() -> None:
    """A refused write leaves nothing behind: neither in the list nor among the keys that are known."""
    first = Growing(["a"], 1, ("", ""))
    assert first.has_none(["b"], str)
    second = first.grown(["b"])
    assert not second.has_none(["b"], str)
    assert first.has_none(["b"], str)
    other = first.grown(["c"])
    assert other.has_none(["b"], str)
    assert not other.has_none(["c"], str)


def test_two_parts_that_name_the_same_ready_reducer_agree() -> None:
    """Ready reducers are equal when they were made by the same call, so two parts may declare the same field."""

    class Part(BaseModel):
        items: Annotated[list[Item], upsert("id", max=3)] = Field(default_factory=list)

    class Same(BaseModel):
        items: Annotated[list[Item], upsert("id", max=3)] = Field(default_factory=list)

    class Longer(BaseModel):
        items: Annotated[list[Item], upsert("id", max=4)] = Field(default_factory=list)

    class Both(Part, Same):
        pass

    class Torn(Part, Longer):
        pass

    assert StateManager(Both).get().items == []
    with pytest.raises(SchemaError, match=r"Torn\.items is declared differently by Part and Longer"):
        StateManager(Torn)
    assert ordered_union() != ordered_union(max=2)
