"""Snapshots: real instances that cannot be changed, and copies of them that can."""

from __future__ import annotations

import copy
import dataclasses
import json
import operator
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, TypeAdapter, computed_field

from jianmu.engine.state import Clear, StateManager
from jianmu.errors import StateWriteError, UnsetStateError


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    xs: list[int] = []


class Assigning(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    xs: list[int] = []


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    xs: list[int] = []


class Roots(RootModel[list[int]]):
    pass


@dataclasses.dataclass
class Shared:
    xs: list[int]


class Everything(BaseModel):
    messages: Annotated[list[Any], operator.add] = Field(default_factory=list)
    n: int = 0
    data: dict[str, Any] = {}
    tags: set[str] = set()
    open: Open = Open()
    assigning: Assigning = Assigning()
    frozen: Frozen = Frozen()
    roots: Roots = Roots([])
    pair: tuple[list[int], ...] = ()
    shared: Any = None
    _private: int = PrivateAttr(default=3)

    @computed_field
    @cached_property
    def count(self) -> int:
        return len(self.messages)


def filled() -> StateManager[Everything]:
    """Return a manager with a value of each kind; its list was not read since it grew."""
    manager = StateManager(Everything)
    values: dict[str, Any] = {
        "data": {"a": [{"b": {1, 2}}]},
        "tags": {"t"},
        "open": Open.model_validate({"xs": [1], "more": [1]}),
        "assigning": Assigning(xs=[1]),
        "frozen": Frozen(xs=[1]),
        "roots": Roots([1]),
        "pair": ([1], [2]),
    }
    manager.update({**values, "messages": [[1]]})
    manager.update({"messages": [{"m": [2]}]})
    return manager


CHANGES: dict[str, Callable[[Everything], object]] = {
    "the snapshot": lambda s: setattr(s, "n", 1),
    "a private attribute": lambda s: setattr(s, "_private", 1),
    "a new attribute": lambda s: setattr(s, "other", 1),
    "deleting": lambda s: delattr(s, "n"),
    "append": lambda s: s.messages.append(1),
    "item": lambda s: operator.setitem(s.messages, 0, 1),
    "slice": lambda s: operator.setitem(s.messages, slice(0, 1), []),
    "delete item": lambda s: operator.delitem(s.messages, 0),
    "iadd": lambda s: operator.iadd(s.messages, [1]),
    "imul": lambda s: operator.imul(s.messages, 2),
    "sort": lambda s: s.messages.sort(),
    "pop": lambda s: s.messages.pop(),
    "inner list": lambda s: s.messages[0].append(1),
    "inner dict": lambda s: s.messages[1].update(m=1),
    "deep": lambda s: s.data["a"][0]["b"].add(3),
    "dict item": lambda s: operator.setitem(s.data, "a", 1),
    "dict or": lambda s: operator.ior(s.data, {"x": 1}),
    "setdefault": lambda s: s.data.setdefault("z", 1),
    "popitem": lambda s: s.data.popitem(),
    "set": lambda s: s.tags.discard("t"),
    "set or": lambda s: operator.ior(s.tags, {"x"}),
    "model": lambda s: setattr(s.open, "xs", []),
    "model extra": lambda s: setattr(s.open, "more", []),
    "new model extra": lambda s: setattr(s.open, "new", []),
    "model extra list": lambda s: s.open.model_extra["more"].append(1),
    "model list": lambda s: s.open.xs.append(1),
    "assigning": lambda s: setattr(s.assigning, "xs", []),
    "assigning list": lambda s: s.assigning.xs.append(1),
    "frozen list": lambda s: s.frozen.xs.append(1),
    "root": lambda s: setattr(s.roots, "root", []),
    "root list": lambda s: s.roots.root.append(1),
    "tuple": lambda s: s.pair[0].append(1),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("is_read", [False, True])
def test_nothing_in_a_snapshot_can_be_changed(how: str, is_read: bool) -> None:
    """Lists, dicts, sets and models at every depth refuse every change, read before or not."""
    manager = filled()
    before = manager.get().model_dump()
    if not is_read:
        manager = filled()
    with pytest.raises(StateWriteError, match=r"read-only.*update\("):
        CHANGES[how](manager.get())
    assert manager.get().model_dump() == before


def test_a_snapshot_is_an_instance_that_all_tools_take() -> None:
    """isinstance, equality, dumps, repr, iteration, vars, JSON and Pydantic see ordinary values."""
    plain = Everything.model_validate(filled().get().model_dump(exclude={"count"}))
    reads: list[Callable[[Any], Any]] = [
        Everything.model_dump,
        Everything.model_dump_json,
        repr,
        dict,
        lambda s: [name for name in vars(s) if name != "count"],
        lambda s: s.count,
        lambda s: json.dumps(s.messages),
        lambda s: TypeAdapter(list[Any]).validate_python(s.messages, strict=True),
        lambda s: TypeAdapter(set[str]).validate_python(s.tags, strict=True),
        lambda s: operator.add(s.messages[:1], s.messages),
        lambda s: s._private,
        lambda s: s.model_fields_set >= {"messages"},
        lambda s: s.__class__ is Everything,
        hash_of_type,
    ]
    for read in reads:
        snapshot = filled().get()  # a fresh one: nothing of it was read before
        assert read(snapshot) == read(copy.deepcopy(plain))
    snapshot = filled().get()
    assert isinstance(snapshot, Everything)
    assert Everything.model_validate(snapshot) is snapshot
    assert plain == snapshot == plain
    assert snapshot != plain.model_copy(update={"n": 5})
    assert isinstance(snapshot.messages, list)
    assert isinstance(snapshot.data, dict)
    assert isinstance(snapshot.tags, set)
    match snapshot.messages:
        case [[1], {"m": [2]}]:
            pass
        case _:
            pytest.fail("a pattern does not match")


def hash_of_type(state: Everything) -> list[type]:
    """Return the classes of what is inside."""
    return [type(value) for value in (state.open, state.frozen, state.roots)]


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "model_copy": lambda value: value.model_copy(deep=True),
}


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "model_copy"])
def test_deep_copies_are_ordinary(how: str) -> None:
    """A deep copy can be changed everywhere, and the state does not see it."""
    manager = filled()
    made = COPIES[how](manager.get())
    assert type(made) is Everything
    made.n = 5
    made.messages.append(3)
    made.messages[0].append(3)
    made.data["a"][0]["b"].add(3)
    made.tags.add("x")
    made.open.xs.append(2)
    made.open.more.append(2)
    made.assigning.xs = [7]
    made.frozen.xs.append(2)
    made.roots.root.append(2)
    made.pair[0].append(3)
    assert manager.get() == filled().get()


def test_shallow_copies_are_ordinary_at_the_top() -> None:
    """copy, slices, list(x), x + [...], | and .copy() give containers that can be changed."""
    state = filled().get()
    top = copy.copy(state)
    top.n = 7
    assert (type(top), state.n) == (Everything, 0)
    lists = [
        copy.copy(state.messages),
        state.messages[:],
        list(state.messages),
        [*state.messages],
        operator.add(state.messages, []),
    ]
    assert [type(value) for value in (*lists, state.messages.copy(), state.messages * 2)] == [list] * 7
    assert [type(value) for value in (copy.copy(state.data), state.data.copy(), state.data | {}, dict(state.data))] == [
        dict
    ] * 4
    assert [
        type(value) for value in (copy.copy(state.tags), state.tags | {"a"}, set(state.tags), state.tags - {"a"})
    ] == [set] * 4
    assert type(copy.copy(state.open)) is Open


def test_objects_of_other_classes_are_shared() -> None:
    """What is no list, dict, set or model is the very object that was written."""
    manager = StateManager(Everything)
    shared = Shared([1])
    manager.update({"shared": shared, "messages": [shared]})
    assert manager.get().shared is manager.get().messages[0] is shared


def test_old_snapshots_stay_as_they_were() -> None:
    """A snapshot is of its version, also if its list is first read after later appends."""
    manager = StateManager(Everything)
    seen = []
    for n in range(5):
        manager.update({"messages": [n]})
        seen.append(manager.get())
    manager.update({"n": 9})
    assert [state.messages for state in reversed(seen)] == [list(range(n)) for n in range(5, 0, -1)]
    assert [state.n for state in seen] == [0] * 5


def test_get_is_one_object_per_version_and_a_list_is_made_once() -> None:
    """Reading twice gives the same snapshot; a scalar write does not copy the list again."""
    manager = filled()
    first = manager.get()
    assert manager.get() is first
    manager.update({"n": 1})
    assert manager.get() is not first
    assert manager.get().messages is first.messages


def test_cached_properties_are_computed_for_each_snapshot() -> None:
    """A cached property is kept within one snapshot, and computed anew for the next."""
    manager = filled()
    assert [manager.get().count, manager.get().count] == [2, 2]
    manager.update({"messages": [1]})
    assert manager.get().count == 3


def test_private_attributes_stay_as_initialize_made_them() -> None:
    """Private attributes are those of the model given to initialize; they are not stored and not compared."""
    manager = StateManager(Everything)
    model = Everything(n=1)
    model._private = 8
    manager.initialize(model)
    manager.update({"n": 2})
    assert manager.get()._private == 8
    assert manager.get() == Everything(n=2)
    other = StateManager(Everything)
    other.load_checkpoint(manager.dump_checkpoint())
    assert other.get()._private == 3


class Required(BaseModel):
    a: int
    b: str
    n: Annotated[int, operator.add] = 0
    _private: int = PrivateAttr(default=3)


def test_an_unset_state_says_what_is_missing() -> None:
    """Until all required fields have values get() raises with their names; writes may give them."""
    manager = StateManager(Required)
    with pytest.raises(UnsetStateError, match="a, b"):
        manager.get()
    manager.update({"a": 1, "n": 2})
    manager.reset_run_fields()
    with pytest.raises(UnsetStateError, match=r"no value yet for b: .*initialize\(\{\"b\": \.\.\.\}\)"):
        manager.get()
    with pytest.raises(UnsetStateError):
        manager.read("b")
    assert manager.read("a") == 1
    loaded = StateManager(Required)
    loaded.load_checkpoint(manager.dump_checkpoint())
    for each in (manager, loaded):
        each.update({"b": "x"})
        assert each.get() == Required(a=1, b="x", n=2)
        assert each.get()._private == 3
    with pytest.raises(StateWriteError, match="no default"):
        manager.update({"a": Clear()})


def test_a_models_own_equality_holds_for_its_snapshots() -> None:
    """A schema that says itself what is equal is asked."""

    class Alike(BaseModel):
        n: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Alike) and self.n % 10 == other.n % 10

        def __hash__(self) -> int:
            return self.n % 10

    manager = StateManager(Alike)
    manager.update({"n": 13})
    assert manager.get() == Alike(n=3)
    assert hash(manager.get()) == 3
    assert manager.get() != Alike(n=4)


def test_fields_may_have_any_name() -> None:
    """No field is hidden by what a snapshot keeps for itself."""

    class Named(BaseModel):
        record: str = "r"
        waiting: Annotated[list[int], operator.add] = []
        hint: int = 1

    manager = StateManager(Named)
    manager.update({"waiting": [1]})
    assert (manager.get().record, manager.get().waiting, manager.get().hint) == ("r", [1], 1)


class Mixed:
    log = ()


def test_a_list_is_not_hidden_by_what_a_mixin_has() -> None:
    """A class attribute of the field's name does not take the place of a list that was not read yet."""
    with pytest.warns(UserWarning, match="shadows"):

        class Hidden(Mixed, BaseModel):
            log: Annotated[list[int], operator.add] = []

    manager = StateManager(Hidden)
    manager.update({"log": [1]})
    assert manager.get().log == [1]
