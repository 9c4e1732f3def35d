"""Writes: the order of their checks, what is refused, who may write what, and from where."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    computed_field,
    field_validator,
    model_validator,
)

from jianmu.engine.state import Clear, Ephemeral, Remove, Replace, StateManager, add_by_id, add_items, merge_map
from jianmu.errors import NamespaceError, StateWriteError, UnknownFieldError, UnsetStateError


def refused(write: Callable[[], object], *parts: str) -> StateWriteError:
    """Return the error of a write that has to be refused."""
    with pytest.raises(StateWriteError) as caught:
        write()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    return caught.value


class Ordered(BaseModel):
    added: Annotated[list[int], operator.add, Field(max_length=3)] = []
    named: Annotated[list[int], operator.add] = []
    total: Annotated[int, operator.add, Field(ge=0)] = 0
    text: Annotated[str, operator.add, Field(max_length=4)] = ""
    merged: Annotated[dict[str, int], operator.or_, Field(max_length=2)] = {}
    tags: Annotated[set[int], operator.or_, Field(max_length=2)] = set()
    plain: int = 0

    @field_validator("named")
    @classmethod
    def sorted(cls, value: list[int]) -> list[int]:
        return sorted(value)


def test_the_type_comes_first_and_the_rules_see_the_result() -> None:
    """What comes in is converted, lengths, bounds and validators of the whole are those of the result."""
    manager = StateManager(Ordered)
    manager.update({"added": ["1", "2"], "named": [3, 1], "total": -0, "text": "ab", "merged": {"a": "1"}, "tags": [1]})
    manager.update({"added": [3], "named": ["2"], "total": 5, "text": "cd", "merged": {"a": 2, "b": 3}, "tags": {2}})
    manager.update({"total": -2})
    for field, value in (("added", [4]), ("total", -4), ("text", "e"), ("merged", {"c": 1}), ("tags", {3})):
        refused(lambda field=field, value=value: manager.update({field: value}), f"'{field}'")
    refused(lambda: manager.transform_field("added", lambda xs: [*xs, 4]), "'added'")
    refused(lambda: manager.merge_dict("merged", {"c": 1}), "'merged'")
    assert manager.get() == Ordered(
        added=[1, 2, 3], named=[1, 2, 3], total=3, text="abcd", merged={"a": 2, "b": 3}, tags={1, 2}
    )


def test_before_validators_see_what_comes_in() -> None:
    """A validator that makes a list of a text runs for each write of a reduced field, and for a transformed one."""

    class Split(BaseModel):
        words: Annotated[
            list[str], BeforeValidator(lambda v: v.split() if isinstance(v, str) else v), operator.add
        ] = []

    manager = StateManager(Split)
    manager.update({"words": "a b"})
    manager.update({"words": "c"})
    manager.transform_field("words", lambda words: " ".join(reversed(words)))
    assert manager.get().words == ["c", "b", "a"]


def test_an_own_reducers_result_is_checked_and_its_arguments_are_read_only() -> None:
    """What a reducer returns is validated where it is new; one that changes its arguments fails at once."""

    def junk(old: list[int], new: list[int]) -> Any:
        return [*old, "no-int"] if new == [0] else [*old, "7"]

    def impure(old: list[int], new: list[int]) -> list[int]:
        old.extend(new)
        return old

    class Own(BaseModel):
        junk_: Annotated[list[int], junk] = []
        impure_: Annotated[list[int], impure] = []
        keyed: Annotated[dict[int, int], lambda old, new: {**old, "5": "6"}] = {}
        whole: Annotated[set[int], lambda old, new: {*old, "x"}] = set()
        none: Annotated[int, lambda old, new: None] = 0

    manager = StateManager(Own)
    manager.update({"junk_": [1], "keyed": {}})
    manager.update({"junk_": [1]})
    assert (manager.get().junk_, manager.get().keyed) == ([7, 7], {5: 6})
    refused(lambda: manager.update({"junk_": [0]}), "'junk_'", "int_parsing")
    refused(lambda: manager.update({"impure_": [1]}), "'impure_'", "StateWriteError", "change what it is given")
    refused(lambda: manager.update({"whole": {1}}), "'whole'")
    refused(lambda: manager.update({"none": 1}), "'none'")


@pytest.mark.parametrize("old", [None, "given"])
def test_an_old_none_counts_as_empty(old: str | None) -> None:
    """operator.add and the ready reducers fold onto None as onto nothing."""

    class Nones(BaseModel):
        xs: Annotated[list[int] | None, operator.add] = None
        n: Annotated[int | None, operator.add] = None
        text: Annotated[str | None, operator.add] = None
        items: Annotated[list[int] | None, add_items()] = None
        map: Annotated[dict[str, int] | None, merge_map()] = None

    manager = StateManager(Nones)
    writes: dict[str, Any] = {"xs": [1], "n": 1, "text": "a", "items": [1], "map": {"a": 1}}
    if old:
        manager.update(dict.fromkeys(("items", "map")))
    manager.update(writes)
    assert manager.get() == Nones(**writes)
    refused(lambda: manager.update({"xs": None}), "'xs'", "None")


def test_items_that_are_the_same_objects_are_not_validated_again() -> None:
    """transform_field and own reducers validate new items only, wherever they stand, in lists and in dicts."""
    seen: list[Any] = []

    def note(value: int) -> int:
        seen.append(value)
        return value

    noted = Annotated[int, AfterValidator(note)]

    class Noted(BaseModel):
        xs: Annotated[list[noted], lambda old, new: [*new, *old]] = []
        ys: list[noted] = []
        zs: dict[str, noted] = {}

    manager = StateManager(Noted)
    big = [1000 + n for n in range(5)]
    manager.update({"xs": big, "ys": big, "zs": {str(n): n for n in big}})
    seen.clear()
    manager.update({"xs": [1]})
    manager.transform_field("ys", lambda ys: [ys[4], 2000, *ys[:3]])
    manager.transform_field("zs", lambda zs: {**zs, "new": 3000})
    manager.merge_dict("zs", {"more": 4000})
    assert seen == [1, 2000, 3000, 4000]
    assert manager.get().ys == [1004, 2000, 1000, 1001, 1002]
    assert list(manager.get().zs) == [*map(str, big), "new", "more"]


class Ruled(BaseModel):
    lo: int = 0
    hi: int = 10
    size: int = 10
    runs: list[int] = Field(default_factory=list, exclude=True)

    @model_validator(mode="after")
    def order(self) -> Ruled:
        CALLS.append("after")
        if self.lo > self.hi:
            raise ValueError("lo > hi")
        self.size = self.hi - self.lo
        return self

    @model_validator(mode="before")
    @classmethod
    def before(cls, data: Any) -> Any:
        CALLS.append("before")
        return {"lo": data.pop("low"), **data} if "low" in data else data


CALLS: list[str] = []


def test_the_models_rules_run_once_per_write_and_their_changes_are_stored() -> None:
    """`after` runs once for each write and may set fields; `before` runs for whole inputs only."""
    manager = StateManager(Ruled)
    CALLS.clear()
    manager.update({"lo": 1, "hi": 5})
    assert (CALLS, manager.get().size) == (["after"], 4)
    error = refused(lambda: manager.update({"lo": 6}, _writer="root/a"), "Ruled", "lo", "'root/a'")
    assert error.field is None
    assert (manager.get().lo, manager.get().size) == (1, 4)
    CALLS.clear()
    manager.initialize({"low": 2})
    assert (CALLS, manager.get().lo, manager.get().size) == (["before", "after"], 2, 8)
    CALLS.clear()
    manager.load_checkpoint({"version": 3, "fields": {"low": 3}, "spent": []})
    assert (CALLS, manager.get().lo, manager.version) == (["before", "after"], 3, 3)


def test_a_wrap_validator_runs_for_whole_inputs() -> None:
    """`wrap` sees what initialize and load bring, and no single write."""
    seen: list[str] = []

    class Wrapped(BaseModel):
        n: int = 0

        @model_validator(mode="wrap")
        @classmethod
        def wrap(cls, data: Any, handler: Any) -> Any:
            seen.append("wrap")
            return handler(data)

    manager = StateManager(Wrapped)
    seen.clear()
    manager.update({"n": 1})
    assert seen == []
    manager.initialize({"n": 2})
    manager.load_checkpoint(manager.dump_checkpoint())
    assert (seen, manager.get().n) == (["wrap", "wrap"], 2)


class Informed(BaseModel):
    lo: int = 0
    hi: int = 10
    other: str = "o"
    total: Annotated[int, operator.add] = 1
    items: Annotated[list[int], operator.add] = []

    @field_validator("lo", "hi", "items")
    @classmethod
    def compare(cls, value: Any, info: ValidationInfo) -> Any:
        SEEN[info.field_name] = dict(info.data)
        if info.field_name == "lo" and value > info.data.get("hi", value):
            raise ValueError("lo > hi")
        if info.field_name == "hi" and value < info.data["lo"]:
            raise ValueError("hi < lo")
        return value


SEEN: dict[Any, dict[str, Any]] = {}


def test_a_validator_that_asks_sees_the_fields_as_they_will_be() -> None:
    """Validators with `info` run for the fields written, with all others as they will be."""
    manager = StateManager(Informed)
    SEEN.clear()
    manager.update({"lo": 20, "hi": "30", "items": [1], "other": "p", "total": 4})
    assert SEEN["lo"].items() >= {"hi": 30, "other": "p", "total": 5}.items()
    assert SEEN["hi"]["lo"] == 20
    SEEN.clear()
    manager.update({"items": [2]})
    assert SEEN == {"items": {"lo": 20, "hi": 30, "other": "p", "total": 5}}
    SEEN.clear()
    manager.update({"other": "x"})
    assert SEEN == {}
    refused(lambda: manager.update({"lo": 31}), "'lo'", "value_error")


NESTED: list[Any] = []


def test_a_write_from_inside_a_write_is_refused() -> None:
    """Reducers, functions, validators and default factories may read; what they write is an error, not a deadlock."""
    manager: StateManager[Any]

    def nested(*_: Any) -> int:
        manager.read("n")
        manager.update({"other": 1}, _writer="root/inner")
        return 1

    def check(value: int) -> int:
        return nested() if value else value

    class Nested(BaseModel):
        n: Annotated[int, nested] = 0
        other: int = 0
        valid: Annotated[int, AfterValidator(check)] = 0
        made: Annotated[int, Ephemeral("run")] = Field(default_factory=lambda: nested() if NESTED else 0)

    manager = StateManager(Nested)
    manager.update({"made": 2})
    NESTED.append(1)
    calls: list[Callable[[], object]] = [
        lambda: manager.update({"n": 1}),
        lambda: manager.transform_field("other", nested),
        lambda: manager.transform_field("n", lambda _: manager.initialize()),
        lambda: manager.transform_field("n", lambda _: manager.reset_run_fields()),
        lambda: manager.update({"valid": 1}),
        manager.reset_run_fields,
    ]
    try:
        for call in calls:
            refused(call, "StateWriteError", "neither write to the state")
    finally:
        NESTED.clear()
    assert manager.get() == Nested(made=2)
    manager.update({"other": 3})
    assert manager.get().other == 3


def test_a_slow_write_holds_up_its_own_field_only() -> None:
    """While a function runs for one field, other fields are written; the same field waits for its turn."""

    class Two(BaseModel):
        x: Annotated[int, operator.add] = 0
        y: int = 0

    manager = StateManager(Two)
    entered, leave, done = threading.Event(), threading.Event(), threading.Event()

    def slow(value: int) -> int:
        entered.set()
        assert leave.wait(10)
        return value + 1

    def add() -> None:
        manager.update({"x": 10})
        done.set()

    first = threading.Thread(target=manager.transform_field, args=("x", slow))
    first.start()
    assert entered.wait(10)
    manager.update({"y": 1})
    second = threading.Thread(target=add)
    second.start()
    assert not done.wait(0.02)
    assert (manager.get().x, manager.get().y) == (0, 1)
    leave.set()
    first.join(10)
    second.join(10)
    assert manager.get().x == 11


def cyclic() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def deep(levels: int) -> Any:
    """Return nested lists."""
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


async def coroutine() -> None:
    """Do nothing."""


class Awaited:
    def __await__(self) -> Iterator[int]:
        yield 1


def later() -> Awaited:
    """Return what is not there yet."""
    return Awaited()


def generator() -> Iterator[int]:
    """Yield one item."""
    yield 1


class Loose(BaseModel):
    any: Any = None
    ints: list[int] = []
    lists: list[list[int]] = []
    added: Annotated[list[Any], operator.add] = []


@pytest.mark.parametrize("field", ["any", "added", "ints"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (cyclic, "deeper than 200"),
        (lambda: deep(202), "deeper than 200"),
        (generator, "iterator"),
        (lambda: iter([1]), "iterator"),
        (lambda: map(int, "1"), "iterator"),
        (coroutine, "coroutine"),
        (lambda: [generator()], "iterator"),
        (lambda: [[later()]], "Awaited"),
        (lambda: [{"k": (Clear(),)}], "Clear"),
        (lambda: [Replace(1)], "Replace"),
    ],
)
def test_what_cannot_be_stored_is_refused(field: str, make: Callable[[], Any], why: str) -> None:
    """Cyclic, too deep, iterators, coroutines and nested ops are refused, by each of the three writes."""
    manager = StateManager(Loose)
    if field == "ints":
        why = "'ints'"
    refused(lambda: manager.update({field: make()}), f"'{field}'", why)
    refused(lambda: manager.transform_field(field, lambda _: make()), f"'{field}'", why)
    if field == "any":
        refused(lambda: manager.merge_dict("any", {"k": make()}), why)
        refused(lambda: manager.initialize({"any": make()}), why)
        refused(lambda: manager.update({"any": Replace(make())}), why)
    assert manager.get() == Loose()
    manager.update({"any": deep(190)})


def test_ops_inside_ops_are_refused() -> None:
    """Replace(Clear()) and the like mean nothing."""
    manager = StateManager(Loose)
    for op in (Replace(Clear()), Replace(Replace(1)), Replace(Remove("a"))):
        refused(lambda op=op: manager.update({"any": op}), "inside another")
    refused(lambda: manager.update({"any": Remove("a")}), "keyed reducer")
    assert manager.version == 0


def test_a_coroutine_function_is_no_transformer() -> None:
    """transform_field takes plain functions."""

    async def later(value: Any) -> Any:
        return value

    manager = StateManager(Loose)
    refused(lambda: manager.transform_field("any", later), "plain function")
    assert manager.version == 0


def test_remove_names_the_key_that_is_not_there() -> None:
    """A keyed reducer removes by key; an unknown key may be named, and nothing is removed."""

    class Keyed(BaseModel):
        items: Annotated[list[dict[str, Any]], add_by_id()] = []

    manager = StateManager(Keyed)
    manager.update({"items": [{"id": "a"}, {"id": "b"}, {"id": "c"}]})
    refused(lambda: manager.update({"items": Remove("a", "zz")}), "'zz'")
    manager.update({"items": Remove("c", "a")})
    assert manager.get().items == [{"id": "b"}]


class Named(BaseModel):
    model_config = ConfigDict(extra="ignore")
    aliased: int = Field(default=0, alias="Aliased")
    chosen: int = Field(default=0, validation_alias=AliasChoices("one", "two"))
    fixed: int = Field(default=1, frozen=True)

    @computed_field
    @property
    def double(self) -> int:
        return self.aliased * 2


def test_names_and_aliases() -> None:
    """A field is written by its name or an alias, not by both; computed and frozen fields are not written."""
    manager = StateManager(Named)
    manager.update({"Aliased": 1, "two": 2})
    manager.update({"chosen": 3})
    assert (manager.get().aliased, manager.get().chosen) == (1, 3)
    refused(lambda: manager.update({"aliased": 1, "Aliased": 2}), "'aliased'", "twice")
    refused(lambda: manager.initialize({"one": 1, "two": 2}), "'chosen'", "twice")
    refused(lambda: manager.update({"double": 2}), "'double'", "computed")
    refused(lambda: manager.update({"fixed": 2}), "'fixed'", "initialize")
    manager.initialize({"fixed": 5, "Aliased": 7})
    assert (manager.get().fixed, manager.get().aliased, manager.get().chosen) == (5, 7, 0)
    loaded = StateManager(Named)
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert loaded.get() == manager.get()


@pytest.mark.parametrize("bad", [[("n", 1)], 3, "n", None, {1: 2}])
def test_update_takes_dicts_of_names(bad: Any) -> None:
    """What is no mapping of names is refused."""
    manager = StateManager(Loose)
    with pytest.raises((StateWriteError, NamespaceError, UnknownFieldError)):
        manager.update(bad)


def test_initialize_replaces_everything() -> None:
    """No reducer is called, fields not given get defaults, extras go, and a run that is on refuses it."""
    calls: list[Any] = []

    class Begun(BaseModel):
        model_config = ConfigDict(extra="allow")
        xs: Annotated[list[int], lambda old, new: calls.append(new) or [*old, *new]] = Field(
            default_factory=lambda: [0]
        )
        n: int = 1

    manager = StateManager(Begun)
    manager.update({"n": 5, "more": 1})
    manager.initialize({"xs": ["1"]})
    assert (manager.get(), calls, manager.version) == (Begun(xs=[1]), [], 2)
    manager.initialize(Begun(n=7, kept=[1]))
    assert manager.get().model_extra == {"kept": [1]}
    manager.initialize()
    assert manager.get() == Begun()
    manager.initialize(StateManager(Begun).get())
    tampered = Begun()
    tampered.n = "no-int"
    for bad in (tampered, {"n": "no-int"}, {"n": Replace(1)}, Loose(), [1]):
        refused(lambda bad=bad: manager.initialize(bad))
    manager.is_running = True
    refused(manager.initialize, "run is on")
    assert manager.get() == Begun()


def test_defaults_that_the_model_refuses_leave_the_state_unset() -> None:
    """Where the model's rules refuse the defaults, the first good write or initialize gives the state."""

    class Strict(BaseModel):
        n: int = 0

        @model_validator(mode="after")
        def positive(self) -> Strict:
            if self.n <= 0:
                raise ValueError("n")
            return self

    for write in (lambda m: m.update({"n": 1}), lambda m: m.initialize({"n": 1})):
        manager = StateManager(Strict)
        with pytest.raises(UnsetStateError, match="initialize"):
            manager.get()
        refused(lambda manager=manager: manager.update({"n": -1}))
        write(manager)
        assert manager.get().n == 1


def test_a_base_exception_leaves_nothing_behind() -> None:
    """A KeyboardInterrupt in user code passes through, changes nothing and frees the locks."""
    manager = StateManager(Loose)

    def stop(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        manager.transform_field("any", stop)
    manager.update({"any": 1})
    assert (manager.get().any, manager.version) == (1, 1)


def test_values_given_to_the_writer_belong_to_the_error_only_by_type() -> None:
    """The unknown-field error carries field and path."""
    with pytest.raises(UnknownFieldError) as caught:
        StateManager(Loose).update({"anny": 1}, _writer="root/a")
    assert (caught.value.field, caught.value.path) == ("anny", "root/a")
    assert "root/a" in str(caught.value)


def test_types_are_named_as_a_user_would_write_them() -> None:
    """The type in an error's text is without metadata."""

    class Typed(BaseModel):
        x: dict[str, Annotated[int, Field(ge=0)]] | None = None
        y: list[tuple[Annotated[str, AfterValidator(str)], ...]] = []

    manager = StateManager(Typed)
    refused(lambda: manager.update({"x": 1}), "takes dict[str, int] | None and was given int")
    refused(lambda: manager.update({"y": 1}), "takes list[tuple[str, ...]] and was given int")
    assert manager.version == 0


def test_validators_of_the_whole_run_once_for_each_write() -> None:
    """`before` sees what comes in, the others the result; each is called once per write."""
    seen: list[tuple[str, list[int]]] = []

    def note(what: str) -> Callable[[list[int]], list[int]]:
        return lambda value: seen.append((what, list(value))) or value

    class Noted(BaseModel):
        xs: Annotated[list[int], BeforeValidator(note("before")), AfterValidator(note("after")), operator.add] = []
        own: Annotated[list[int], BeforeValidator(note("before")), AfterValidator(note("after")), longer] = []

    manager = StateManager(Noted)
    for field in ("xs", "own"):
        manager.update({field: [1]})
        seen.clear()
        manager.update({field: [2]})
        assert seen == [("before", [2]), ("after", [1, 2])]
        seen.clear()
        manager.transform_field(field, lambda xs: [*xs, 3])
        assert seen == [("before", [1, 2, 3]), ("after", [1, 2, 3])]


def longer(old: list[int], new: list[int]) -> list[int]:
    """Append."""
    return [*old, *new]


def test_a_refused_append_leaves_no_trace() -> None:
    """An append that is refused because of another field is in no later list, read now or later."""

    class Grown(BaseModel):
        xs: Annotated[list[int], operator.add] = []
        n: int = 0

    manager = StateManager(Grown)
    manager.update({"xs": [1]})
    before = manager.get()
    refused(lambda: manager.update({"xs": [98, 99], "n": "x"}), "'n'")
    manager.update({"xs": [2]})
    refused(lambda: manager.update({"xs": [98], "n": "x"}), "'n'")
    after = manager.get()
    manager.update({"xs": [3]})
    assert [state.xs for state in (before, after, manager.get())] == [[1], [1, 2], [1, 2, 3]]


def test_a_transform_that_returns_what_it_got_changes_nothing() -> None:
    """The same object back is a write that wakes nobody."""
    manager = StateManager(Loose)
    manager.update({"ints": [1]})
    changes: list[Any] = []
    manager.subscribe(changes.append)
    manager.transform_field("ints", lambda value: value)
    assert [(change.fields, change.changed) for change in changes] == [(("ints",), ())]


def test_an_incomplete_input_is_still_checked() -> None:
    """What is given is refused by its name, though other required fields are missing."""

    class Required(BaseModel):
        a: int
        b: int

    manager = StateManager(Required)
    refused(lambda: manager.initialize({"b": "x"}), "'b'")
    manager.initialize({"b": 1})
    assert manager.read("b") == 1
