"""Laws: the manager against a plain model, the ready reducers, and writes from many threads."""

from __future__ import annotations

import operator
import sys
import threading
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import BaseModel, ConfigDict

from jianmu.engine.state import (
    Clear,
    Delta,
    Remove,
    Replace,
    StateManager,
    add_by_id,
    add_items,
    fold,
    keep_first,
    merge_map,
    ordered_union,
    same_or_error,
    upsert,
)
from jianmu.errors import StateWriteError
from tests.conftest import FULL
from tests.engine.state.fields import Model, entries, int_lists, ints, maps, names, spaces, updates


def placed(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one item per id, the newest in the oldest's place."""
    return list({item["id"]: None for item in items} | {item["id"]: item for item in items}) and list(
        {item["id"]: item for item in items}.values()
    )


FOLDS: dict[str, Any] = {
    "n": lambda old, new: new,
    "total": operator.add,
    "xs": operator.add,
    "newest": lambda old, new: [*old, *new][-3:],
    "union": lambda old, new: list(dict.fromkeys([*(old or []), *new]))[-4:],
    "items": lambda old, new: placed([*old, *new]),
    "notes": lambda old, new: new,
    "merged": lambda old, new: {**old, **new},
    "stepped": operator.add,
    "text": operator.add,
}


def fits(values: dict[str, Any]) -> bool:
    """Whether the plain model's values keep the schema's bounds."""
    return values["total"] >= -20 and len(values["xs"]) <= 12


class AgainstPlainModel(RuleBasedStateMachine):
    """Every call is made on the manager and on a dict; the log of deltas has to lead to the same state."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = StateManager(Model)
        self.plain: dict[str, Any] = Model().model_dump()
        self.extra: dict[str, Any] = {}
        self.spent: set[str] = set()
        self.manager.attach_store_check()
        self.start = self.manager.dump_checkpoint()
        self.deltas: list[Delta] = []
        self.manager.recorders = (lambda change: self.deltas.extend(change.deltas),)
        self.kept: list[tuple[Any, dict[str, Any]]] = []

    def old(self, name: str) -> Any:
        """Return what a write starts from."""
        return Model().model_dump()[name] if name in self.spent else self.plain[name]

    def attempt(self, call: Any, written: dict[str, Any]) -> None:
        """Make a call; it has to be refused exactly if the plain model breaks a bound."""
        after = {**self.plain, **written}
        if fits(after):
            call()
            self.plain = after
            self.spent -= written.keys()
        else:
            version = self.manager.version
            with pytest.raises(StateWriteError):
                call()
            assert self.manager.version == version

    @rule(values=updates)
    def update(self, values: dict[str, Any]) -> None:
        self.attempt(
            lambda: self.manager.update(values),
            {name: FOLDS[name](self.old(name), value) for name, value in values.items()},
        )

    @rule(values=updates)
    def replace(self, values: dict[str, Any]) -> None:
        self.attempt(lambda: self.manager.update({name: Replace(value) for name, value in values.items()}), values)

    @rule(name=names)
    def clear_field(self, name: str) -> None:
        self.attempt(lambda: self.manager.update({name: Clear()}), {name: Model().model_dump()[name]})

    @rule(key=st.sampled_from("abc"))
    def remove(self, key: str) -> None:
        kept = [item for item in self.plain["items"] if item["id"] != key]
        if len(kept) < len(self.plain["items"]):
            self.attempt(lambda: self.manager.update({"items": Remove(key)}), {"items": kept})
        else:
            with pytest.raises(StateWriteError, match=f"'{key}'"):
                self.manager.update({"items": Remove(key)})

    @rule(values=maps, name=st.sampled_from(["notes", "merged"]))
    def merge(self, values: dict[str, int], name: str) -> None:
        self.attempt(
            lambda: self.manager.merge_dict(name, values),
            {name: {**(self.plain[name] or {}), **values}} if values else {},
        )

    @rule(name=names)
    def transform(self, name: str) -> None:
        def turned(value: Any) -> Any:
            if isinstance(value, dict):
                return dict(reversed(value.items()))
            return value if value is None or isinstance(value, int) else value[::-1] + value[:1]

        if name != "items":
            self.attempt(lambda: self.manager.transform_field(name, turned), {name: turned(self.old(name))})

    @rule(key=st.sampled_from(["k", "l"]), value=ints, space=spaces)
    def extra_value(self, key: str, value: int, space: str) -> None:
        self.manager.update({key: value}, namespace=space)
        self.extra[f"{space}.{key}"] = value

    @rule(value=st.text("ab", max_size=2), space=spaces)
    def variant(self, value: str, space: str) -> None:
        self.manager.update({"text": value}, namespace=space)
        self.extra[f"{space}.text"] = self.extra.get(f"{space}.text", "") + value

    @rule(space=spaces)
    def clear_namespace(self, space: str) -> None:
        self.manager.clear(space)
        self.extra = {name: value for name, value in self.extra.items() if not name.startswith(f"{space}.")}

    @rule(scope=st.sampled_from(["run", "step", "call"]))
    def reset(self, scope: str) -> None:
        getattr(self.manager, f"reset_{scope}_fields")()
        for name in {"run": ["n", "stepped", "text"], "step": ["stepped"], "call": ["text"]}[scope]:
            self.plain[name] = Model().model_dump()[name]
            self.spent.discard(name)
        if scope == "run":
            self.extra.update({name: "" for name in self.extra if name.endswith(".text")})

    @rule()
    def take(self) -> None:
        assert self.manager.take_step_fields() == {"stepped": self.plain["stepped"]}
        self.spent = {"stepped"}

    @rule()
    def enter_step(self) -> None:
        self.manager.enter_step()
        if "stepped" in self.spent:
            self.plain["stepped"] = []
            self.spent = set()

    @rule()
    def remember(self) -> None:
        self.kept.append((self.manager.get(), {**self.plain, **self.extra}))

    @precondition(lambda self: self.deltas)
    @rule()
    def reload(self) -> None:
        dumped = self.manager.dump_checkpoint()
        self.manager = StateManager(Model)
        self.manager.load_checkpoint(dumped)
        self.manager.attach_store_check()
        self.manager.recorders = (lambda change: self.deltas.extend(change.deltas),)
        self.plain["text"] = ""
        self.extra = {name: value for name, value in self.extra.items() if not name.endswith(".text")}

    @invariant()
    def same(self) -> None:
        state = self.manager.get()
        assert {name: getattr(state, name) for name in Model.model_fields} == self.plain
        assert dict(state.model_extra or {}) == self.extra
        assert state.model_dump() == {**self.plain, **self.extra}

    @invariant()
    def log_leads_here(self) -> None:
        folded = fold(self.start, self.deltas, self.manager.version)
        assert folded == self.manager.dump_checkpoint()

    def teardown(self) -> None:
        for state, values in self.kept:
            assert state.model_dump() == values


TestAgainstPlainModel = AgainstPlainModel.TestCase
TestAgainstPlainModel.settings = settings(max_examples=600 if FULL else 30, stateful_step_count=30, deadline=None)


@given(st.lists(int_lists, max_size=4), st.integers(1, 4))
def test_lists_do_not_depend_on_batching(batches: list[list[int]], limit: int) -> None:
    """add_items, ordered_union, upsert and add_by_id give the same for one write as for many."""
    whole = [item for batch in batches for item in batch]
    items = [[{"id": n, "at": at} for at, n in enumerate(batch)] for batch in batches]
    for reducer, parts, joined in (
        (add_items(), batches, whole),
        (add_items(limit), batches, whole),
        (ordered_union(), batches, whole),
        (upsert("id"), items, [item for batch in items for item in batch]),
        (add_by_id("id"), items, [item for batch in items for item in batch]),
    ):
        folded = None
        for part in parts:
            folded = reducer.fn(folded, part)
        assert (folded or []) == reducer.fn(None, joined)


@given(int_lists, int_lists, st.integers(1, 3))
def test_the_list_reducers(old: list[int], new: list[int], limit: int) -> None:
    """Appending keeps order and the newest; a union has each item once, what was there first."""
    assert add_items().fn(old, new) == old + new
    assert add_items(limit).fn(old, new) == (old + new)[-limit:]
    union = ordered_union().fn(old, new)
    assert union == list(dict.fromkeys(old + new))
    assert ordered_union().fn(union, new) == union
    assert ordered_union(limit).fn(old, new) == union[-limit:]
    assert ordered_union().fn([[1]], [[1], [2]]) == [[1], [2]]


@given(maps, maps)
def test_the_map_reducer(old: dict[str, int], new: dict[str, int]) -> None:
    """merge_map is a union in which the new value wins; writing the same again changes nothing."""
    merged = merge_map().fn(old, new)
    assert merged == {**old, **new}
    assert merge_map().fn(merged, new) == merged


@given(entries, entries, st.integers(1, 3))
def test_the_keyed_reducers(old: list[dict[str, Any]], new: list[dict[str, Any]], limit: int) -> None:
    """Upsert keeps places and the newest of each key; items may be dicts, objects or have a key function."""
    first = upsert("id").fn(None, old)
    both = upsert("id").fn(first, new)
    assert both == placed(first + new)
    assert [item["id"] for item in both][: len(first)] == [item["id"] for item in first]
    assert upsert(operator.itemgetter("id")).fn(first, new) == both
    assert upsert("id", max=limit).fn(first, new) == both[-limit:]
    assert upsert("real").fn([1, 2], [1]) == [1, 2]


@pytest.mark.parametrize(
    "reducer", [add_items(), ordered_union(), merge_map(), upsert("id"), add_by_id(), keep_first()]
)
def test_none_is_empty_before_and_nothing_new_after(reducer: Any) -> None:
    """Each ready reducer folds onto None, and leaves what is there when None comes."""
    value: Any = {"a": 1} if reducer.name == "merge_map" else [{"id": 1}] if "id" in reducer.name else [1]
    value = [{"id": 1}] if reducer.name == "upsert" else value
    assert reducer.fn(None, value) == value
    assert reducer.fn(value, None) == value


def test_the_reducers_that_keep() -> None:
    """keep_first keeps, same_or_error keeps or raises, a value without a key says nothing."""
    assert [keep_first().fn(None, 1), keep_first().fn(1, 2), keep_first().fn(0, 2)] == [1, 1, 0]
    same = same_or_error("id")
    assert same.fn({"id": 1}, {"id": 1, "z": 2}) == {"id": 1}
    assert same.fn({"id": 1}, {}) == {"id": 1}
    assert same.fn({}, {"id": 1}) == {"id": 1}
    assert same_or_error(len).fn("ab", "cd") == "ab"
    for reducer, old, new in ((same, {"id": 1}, {"id": 2}), (same_or_error(), 1, 2), (same_or_error(len), "a", "ab")):
        with pytest.raises(ValueError, match="another"):
            reducer.fn(old, new)
    with pytest.raises(ValueError, match="at least 1"):
        add_items(max=0)


@pytest.mark.parametrize("reducer", [ordered_union(), merge_map(), upsert("id"), add_by_id()])
def test_removing(reducer: Any) -> None:
    """Remove takes out the keys given, all or none."""
    old: Any = {"a": 1, "b": 2} if reducer.name == "merge_map" else [{"id": "a"}, {"id": "b"}]
    old = ["a", "b"] if reducer.name == "ordered_union" else old
    assert len(reducer.remove(old, ("a",))) == 1
    assert len(reducer.remove(old, ("a", "a", "b"))) == 0
    with pytest.raises(KeyError):
        reducer.remove(old, ("a", "z"))


class Shared(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0
    total: Annotated[int, operator.add] = 0
    log: Annotated[list[tuple[int, int]], operator.add] = []
    notes: dict[str, int] = {}


def hammer(count: int) -> StateManager[Shared]:
    """Have eight threads make mixed writes; every thread also reads."""
    manager = StateManager(Shared)
    told: list[int] = []
    manager.subscribe(lambda change: told.append(change.version))

    def work(me: int) -> None:
        for i in range(count // 5):
            manager.transform_field("n", lambda n: n + 1)
            manager.update({"total": 1, "log": [(me, i)]})
            manager.merge_dict("notes", {f"{me}": i})
            manager.transform_field("k", lambda n: (n or 0) + 1, namespace="ns")
            manager.update({"log": [(me, -i)]})
            if i % 50 == 0:
                assert len(manager.get().log) <= 16 * count

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as many switches in the middle of a write as there can be
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
    finally:
        sys.setswitchinterval(interval)
    assert told == list(range(1, manager.version + 1))
    return manager


def check_hammered(count: int) -> None:
    """Check that nothing of eight threads' writes is lost."""
    state, rounds = hammer(count).get(), count // 5
    assert (state.n, state.total, state.model_extra) == (8 * rounds, 8 * rounds, {"ns.k": 8 * rounds})
    assert state.notes == {f"{me}": rounds - 1 for me in range(8)}
    for me in range(8):
        mine = [i for who, i in state.log if who == me]
        assert mine == [sign for i in range(rounds) for sign in (i, -i)]


def test_eight_threads_lose_nothing() -> None:
    """Mixed writes of eight threads are all there, each thread's in its order, each told once."""
    check_hammered(500)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_eight_threads_of_ten_thousand_writes_lose_nothing() -> None:
    """The same with 8 x 10,000 writes."""
    check_hammered(10_000)
