"""The S cases: what went wrong with the state of other frameworks, as far as the manager itself decides it."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import threading
import traceback
import uuid
from typing import Annotated, Any, Generic, Literal, TypeVar

import annotated_types
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    computed_field,
    field_validator,
    model_validator,
)

from jianmu.engine.state import (
    Clear,
    Ephemeral,
    Internal,
    Replace,
    StateChange,
    StateManager,
    Transient,
    same_or_error,
    upsert,
)
from jianmu.errors import InputError, NamespaceError, SchemaError, StateWriteError, UnknownFieldError


class Log(BaseModel):
    n: int = 0
    log: Annotated[list[str], operator.add] = Field(default_factory=list)


def told(manager: StateManager[Any]) -> list[StateChange]:
    """Return a list to which every change is added."""
    found: list[StateChange] = []
    manager.subscribe(found.append)
    return found


def reloaded(manager: StateManager[Any]) -> StateManager[Any]:
    """Return a new manager with the checkpoint of another."""
    other = StateManager(manager.schema.model)
    other.load_checkpoint(manager.dump_checkpoint())
    return other


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        ({"log": ["a"], "n": "no-int"}, ("'n'", "int", "str")),
        ({"n": "no-int", "log": ["a"]}, ("'n'", "int", "str")),
        ({"n": 4, "log": [1]}, ("'log'", "list[str]", "int")),
        ({"log": "a", "n": 4}, ("'log'", "str")),
    ],
)
def test_s01_a_refused_update_changes_nothing(bad: dict[str, Any], names: tuple[str, ...]) -> None:
    """One bad field refuses the whole update, and the next good one works."""
    manager = StateManager(Log)
    changes = told(manager)
    with pytest.raises(StateWriteError) as caught:
        manager.update(bad, _writer="root/leaf")
    assert all(name in str(caught.value) for name in (*names, "'root/leaf'"))
    assert (manager.get().n, manager.get().log, manager.version, changes) == (0, [], 0, [])
    manager.update({"log": ["a"], "n": 1})
    assert (manager.get().n, manager.get().log) == (1, ["a"])


def test_s02_what_a_validator_made_is_stored() -> None:
    """The value that a validator returns is read, saved and loaded."""

    class Named(BaseModel):
        name: str = ""
        tags: Annotated[list[Annotated[str, AfterValidator(str.upper)]], operator.add] = []

        @field_validator("name")
        @classmethod
        def upper(cls, value: str) -> str:
            return value.upper()

    manager = StateManager(Named)
    manager.update({"name": "bob", "tags": ["a"]})
    for each in (manager, reloaded(manager)):
        assert (each.get().name, each.get().tags) == ("BOB", ["A"])


class Wrapped(BaseModel):
    name: str = ""
    items: Annotated[list[Annotated[str, AfterValidator(lambda x: f"h({x})")]], operator.add] = []
    ended: Annotated[list[str], AfterValidator(lambda xs: [*xs, "end"]), operator.add] = []
    n: int = 0

    @field_validator("name")
    @classmethod
    def wrap(cls, value: str) -> str:
        return f"h({value})"


def test_s03_a_value_is_validated_once() -> None:
    """A validator that wraps runs for the write of its value and never again."""
    manager = StateManager(Wrapped)
    manager.update({"name": "x", "items": ["x"]})
    for n in range(3):
        manager.update({"n": n})
        manager.update({"items": ["y"]})
    for _ in range(5):
        assert manager.get().name == "h(x)"
        assert manager.get().items == ["h(x)", "h(y)", "h(y)", "h(y)"]
    manager.transform_field("items", lambda items: [*items[1:], "z"])
    assert manager.get().items == ["h(y)", "h(y)", "h(y)", "h(z)"]


@pytest.mark.parametrize("write", [{"name": "x"}, {"items": ["x"]}, {"name": Replace("x")}, {"ended": ["x"]}])
def test_s03_with_a_store_a_value_that_would_not_come_back_is_refused(write: dict[str, Any]) -> None:
    """A validator that changes its own output is found at the write, before the commit."""
    manager = StateManager(Wrapped)
    manager.attach_store_check()
    with pytest.raises(StateWriteError, match=f"field '{next(iter(write))}'.*read back different"):
        manager.update(write, _writer="root/a")
    assert (manager.version, manager.get()) == (0, Wrapped())
    manager.update({"n": 5})
    assert manager.get().n == 5


def test_s04_none_is_a_value_and_absent_is_untouched() -> None:
    """A field that is not named keeps its value; None is written like any value."""

    class Titled(BaseModel):
        title: str | None = "x"
        n: int = 1

    manager = StateManager(Titled)
    manager.update({"n": 2})
    assert manager.get().title == "x"
    manager.update({"title": None})
    assert manager.get().title is None


def test_s05_writing_back_a_snapshot_changes_nothing() -> None:
    """A snapshot of this manager, current or old, and an empty update are no writes."""
    manager = StateManager(Log)
    old = manager.get()
    manager.update({"log": ["a"]})
    changes, version = told(manager), manager.version
    for nothing in (manager.get(), old, {}):
        manager.update(nothing)
    assert (manager.get().log, manager.version, changes) == (["a"], version, [])
    for model in (Log(log=["b"]), StateManager(Log).get()):
        with pytest.raises(StateWriteError, match="initialize takes a model"):
            manager.update(model)


class A(BaseModel):
    x: int


class B(A):
    y: int = 0


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    inner: T


def test_s06_every_value_has_the_class_it_was_written_with() -> None:
    """Generic models, subclasses and members of unions keep their classes through folds, saving and loading."""

    class Typed(BaseModel):
        box: Box[A] | None = None
        items: Annotated[list[B], operator.add] = []
        pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
        pair: tuple[A, list[B]] | None = None

    manager = StateManager(Typed)
    written = {"box": Box[A](inner=A(x=1)), "items": [B(x=1, y=2)], "pet": Dog(), "pair": (A(x=3), [B(x=4)])}
    manager.update(written)
    manager.update({"items": [B(x=3)]})
    for state in (manager.get(), reloaded(manager).get()):
        assert (state.box, state.items, state.pet) == (written["box"], [B(x=1, y=2), B(x=3)], Dog())
        assert [type(value) for value in (state.box, state.pet, *state.items)] == [Box[A], Dog, B, B]
        assert state.pair == (A(x=3), [B(x=4)])
        assert type(state.box.inner) is A


def test_s07_other_fields_survive_every_update() -> None:
    """Aliased, excluded, computed and private attributes are untouched by writes of other fields."""

    class Odd(BaseModel):
        model_config = ConfigDict(extra="forbid")
        named: int = Field(default=1, alias="Named")
        hidden: str = Field(default="h", exclude=True)
        n: int = 0
        _private: int = PrivateAttr(default=7)

        @computed_field
        @property
        def double(self) -> int:
            return 2 * self.n

    manager = StateManager(Odd)
    model = Odd(Named=5, hidden="secret")
    model._private = 9
    manager.initialize(model)
    for n in range(1, 4):
        manager.update({"n": n})
        state = manager.get()
        assert (state.named, state.hidden, state.n, state.double, state._private) == (5, "secret", n, 2 * n, 9)
    assert reloaded(manager).get().hidden == "secret"


def test_s08_the_error_names_field_types_and_both_writers() -> None:
    """Who wrote now, who wrote before, what was wanted and what came are in the error's text."""
    manager = StateManager(Log)
    with pytest.raises(StateWriteError, match="not written before"):
        manager.update({"n": "x"}, _writer="root/b")
    manager.update({"n": 1}, _writer="root/a")
    with pytest.raises(StateWriteError) as caught:
        manager.update({"n": "x"}, _writer="root/b")
    assert str(caught.value) == (
        "field 'n' takes int and was given str: int_parsing; writer 'root/b', previous writer 'root/a'; "
        "nothing was changed"
    )
    assert (caught.value.field, caught.value.path) == ("n", "root/b")


def test_s09_replace_and_clear_go_past_the_reducer() -> None:
    """Replace sets a value and Clear the default, and neither calls the reducer."""
    calls: list[Any] = []

    def add(old: list[str], new: list[str]) -> list[str]:
        calls.append(new)
        return [*old, *new]

    class Logged(BaseModel):
        log: Annotated[list[str], operator.add] = []
        own: Annotated[list[str], add] = ["d"]

    manager = StateManager(Logged)
    manager.update({"log": ["a"], "own": ["a"]})
    for op, log, own in ((Replace([]), [], []), (Replace(["x"]), ["x"], ["x"]), (Clear(), [], ["d"])):
        manager.update({"log": op, "own": op})
        assert (manager.get().log, manager.get().own) == (log, own)
    assert calls == [["a"]]


def test_s10_replace_as_the_first_write_stores_its_value() -> None:
    """The first write may be a Replace; the record itself is never stored."""

    class Boxed(BaseModel):
        box: Annotated[dict[str, int] | None, operator.or_] = None

    manager = StateManager(Boxed)
    manager.update({"box": Replace({"id": 1})})
    assert manager.get().box == reloaded(manager).get().box == {"id": 1}
    assert manager.dump_checkpoint()["fields"] == {"box": {"id": 1}}


@pytest.mark.parametrize(("first", "second", "after"), [(Replace([]), ["b"], ["b"]), (["b"], Replace([]), [])])
def test_s11_writes_count_in_their_order(first: Any, second: Any, after: list[str]) -> None:
    """A Replace and an append in one pass: the later one counts on top of the earlier one."""
    manager = StateManager(Log)
    manager.update({"log": ["a"]})
    manager.update({"log": first})
    manager.update({"log": second})
    assert manager.get().log == after


def test_s12_a_snapshot_cannot_be_changed_and_says_what_to_write() -> None:
    """An append to a list of the state raises at that line, with the call that does it."""
    manager = StateManager(Log)
    manager.update({"log": ["a"]})
    with pytest.raises(StateWriteError, match=r'update\(\{"log": \[item\]\}\)'):
        manager.get().log.append("x")
    assert manager.get().log == ["a"]


@pytest.mark.parametrize("wrap", [lambda xs: xs, lambda xs: {"k": xs}, lambda xs: ({"k": [xs]},)])
def test_s13_what_was_written_is_a_copy(wrap: Any) -> None:
    """Changing a value after it was written does not change the state, at any depth."""

    class Planned(BaseModel):
        plan: Any = None

    manager = StateManager(Planned)
    xs = ["a"]
    manager.update({"plan": wrap(xs)})
    xs.append("b")
    assert manager.get().plan == wrap(["a"])


def cap(old: list[int], new: list[int], limit: int) -> list[int]:
    """Keep the last ones."""
    return [*old, *new][-limit:]


class Tag:
    """A class without arguments."""


class Pair:
    """A class with two arguments."""

    def __init__(self, a: int, b: int) -> None:
        self.both = a + b


def test_s14_what_is_a_reducer() -> None:
    """A partial folds, a plain class does not; a class of two arguments and two reducers are refused."""

    class Good(BaseModel):
        last: Annotated[list[int], functools.partial(cap, limit=3)] = []
        tagged: Annotated[list[int], Tag] = []

    manager = StateManager(Good)
    for n in range(5):
        manager.update({"last": [n], "tagged": [n]})
    assert (manager.get().last, manager.get().tagged) == ([2, 3, 4], [4])

    class TwoArguments(BaseModel):
        third: Annotated[list[int], Pair] = []

    class TwoReducers(BaseModel):
        fourth: Annotated[list[int], operator.add, cap_three] = []

    for schema, name in ((TwoArguments, "third"), (TwoReducers, "fourth")):
        with pytest.raises(SchemaError, match=name):
            StateManager(schema)


def cap_three(old: list[int], new: list[int]) -> list[int]:
    """Keep the last three."""
    return cap(old, new, 3)


class Todos(BaseModel):
    todos: Annotated[list[int], operator.add] = []


class OtherTodos(BaseModel):
    todos: Annotated[list[int], cap_three] = []


@pytest.mark.parametrize("bases", [(Todos, OtherTodos), (OtherTodos, Todos)])
def test_s15_two_mixins_that_disagree_are_refused(bases: tuple[type[BaseModel], ...]) -> None:
    """A field that two bases declare differently is an error, unless the schema says itself which it means."""
    mixed = type("Mixed", bases, {"__module__": __name__})
    for schema in (mixed, type("Below", (mixed,), {"__module__": __name__})):
        with pytest.raises(SchemaError, match=r"todos.*(Todos and OtherTodos|OtherTodos and Todos)"):
            StateManager(schema)
    own = {"__module__": __name__, "__annotations__": {"todos": Annotated[list[int], cap_three]}, "todos": []}
    manager = StateManager(type("Own", bases, own))
    for n in range(5):
        manager.update({"todos": [n]})
    assert manager.read("todos") == [2, 3, 4]


def test_s15_overriding_one_base_is_inheritance() -> None:
    """A mixin that redeclares its own base's field does not disagree with it, nor do two that say the same."""

    class Narrow(Todos):
        todos: Annotated[list[int], cap_three] = []

    class Plain(Todos):
        more: int = 0

    class Joined(Narrow, Plain):
        pass

    class Same(BaseModel):
        todos: Annotated[list[int], operator.add] = []

    class Agreed(Todos, Same):
        pass

    assert StateManager(Joined).schema.fields["todos"].reducer is not None
    StateManager(Agreed)


def test_s16_the_first_value_goes_through_the_reducer() -> None:
    """Without initialize, too, the reducer is called, with the default."""
    calls: list[Any] = []

    def distinct(old: list[str] | None, new: list[str]) -> list[str]:
        calls.append((old, new))
        return list(dict.fromkeys([*(old or []), *new]))

    class Promoted(BaseModel):
        names: Annotated[list[str] | None, distinct] = None

    manager = StateManager(Promoted)
    manager.update({"names": ["a", "a"]})
    assert (manager.get().names, calls) == (["a"], [(None, ["a", "a"])])


class Item(BaseModel):
    id: str
    n: int = 0


def test_s17_a_reducer_gets_objects() -> None:
    """Items come to the reducer as models, whatever they were written as."""
    seen: list[Any] = []

    def by_id(old: list[Item], new: list[Item]) -> list[Item]:
        seen.extend(new)
        return list({item.id: item for item in [*old, *new]}.values())

    class Items(BaseModel):
        own: Annotated[list[Item], by_id] = []
        ready: Annotated[list[Item], upsert("id")] = []

    manager = StateManager(Items)
    for items in ([{"id": "a"}, {"id": "b"}], [Item(id="a", n=5)]):
        manager.update({"own": items, "ready": items})
    assert all(type(item) is Item for item in seen)
    assert manager.get().own == manager.get().ready == [Item(id="a", n=5), Item(id="b")]


def test_s18_reading_inside_a_write_is_no_deadlock() -> None:
    """Reducers, functions and listeners read the state while other threads write it."""
    manager: StateManager[Any]

    def plus(old: int, new: int) -> int:
        manager.get()
        return old + new

    class Counted(BaseModel):
        n: int = 0
        total: Annotated[int, plus] = 0

    manager = StateManager(Counted)
    manager.subscribe(lambda _: manager.get())

    def work() -> None:
        for _ in range(500):
            manager.transform_field("n", lambda n: n + 1 if manager.get() else 0)
            manager.update({"total": 1})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (manager.get().n, manager.get().total) == (2000, 2000)


@pytest.mark.parametrize("extra", ["ignore", "allow", "forbid"])
def test_s19_a_misspelt_field_is_named(extra: Any) -> None:
    """An unknown key is refused with the name that was probably meant."""

    class Spelt(BaseModel):
        model_config = ConfigDict(extra=extra)
        messages: list[str] = []

    manager = StateManager(Spelt)
    for write in (manager.update, manager.initialize):
        with pytest.raises(UnknownFieldError, match="'messages'") as caught:
            write({"mesages": []})
        assert caught.value.field == "mesages"
    for call in (lambda: manager.transform_field("mesages", list), lambda: manager.merge_dict("mesages", {})):
        with pytest.raises(UnknownFieldError, match="'messages'"):
            call()
    assert manager.version == 0


def test_s20_the_last_write_wins_without_a_reducer() -> None:
    """Two plain writes of one field are no conflict."""
    manager = StateManager(Log)
    for n in (1, 2, 2, 1):
        manager.update({"n": n})
        assert manager.get().n == n


def test_s21_a_reducer_may_refuse_and_no_value_is_told() -> None:
    """same_or_error keeps the first and refuses another one, with both writers and without the values."""

    class Owned(BaseModel):
        owner: Annotated[str | None, same_or_error()] = None
        box: Annotated[dict[str, str] | None, same_or_error("id")] = None

    manager = StateManager(Owned)
    for leaf in ("root/a", "root/b", "root/c"):
        manager.update({"owner": "id-one", "box": {"id": "id-one"}}, _writer=leaf)
    for bad in ({"owner": "id-two"}, {"box": {"id": "id-two"}}):
        with pytest.raises(StateWriteError) as caught:
            manager.update(bad, _writer="root/d")
        text = str(caught.value)
        assert all(part in text for part in (*bad, "'root/d'", "'root/c'"))
        assert "id-one" not in text
        assert "id-two" not in text
    assert manager.get() == Owned(owner="id-one", box={"id": "id-one"})


def test_s22_validators_run_for_what_is_written_only() -> None:
    """An append to 10,000 items validates one, a scalar write and reads validate none."""
    calls = 0

    def count(value: str) -> str:
        nonlocal calls
        calls += 1
        return value

    class Long(BaseModel):
        messages: Annotated[list[Annotated[str, AfterValidator(count)]], operator.add] = []
        own: Annotated[list[Annotated[str, AfterValidator(count)]], cap_many] = []
        n: int = 0

    manager = StateManager(Long)
    manager.initialize({"messages": ["x"] * 10_000, "own": [str(n) for n in range(10_000)]})
    for write, wanted in (
        (lambda: manager.update({"messages": ["y"]}), 1),
        (lambda: manager.update({"own": ["y"]}), 1),
        (lambda: manager.transform_field("own", lambda xs: ["new", *xs[1:]]), 1),
        (lambda: manager.update({"n": 1}), 0),
        (lambda: [manager.get().messages[-1] for _ in range(1000)], 0),
    ):
        calls = 0
        write()
        assert calls == wanted


def cap_many(old: list[Any], new: list[Any]) -> list[Any]:
    """Append."""
    return [*old, *new]


def test_s23_one_write_is_one_notice_and_a_bad_listener_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Each listener gets one change with all fields; what one raises is logged and reaches nobody."""

    class Two(BaseModel):
        a: int = 0
        b: int = 0

    manager = StateManager(Two)
    first = told(manager)

    def bad(_: StateChange) -> None:
        raise ValueError("boom")

    manager.subscribe(bad)
    third = told(manager)
    with caplog.at_level(logging.ERROR, logger="jianmu"):
        manager.update({"a": 1, "b": 2})
    assert [change.fields for change in first] == [change.fields for change in third] == [("a", "b")]
    assert "ValueError: boom" in caplog.text


def test_s24_merge_dict_takes_none_and_refuses_what_is_no_mapping() -> None:
    """None counts as empty, None as a value of a key is kept, other types are refused."""

    class Meta(BaseModel):
        meta: dict[str, Any] | None = None

    manager = StateManager(Meta)
    manager.merge_dict("meta", {"a": 1})
    manager.merge_dict("meta", None)
    assert manager.get().meta == {"a": 1}
    manager.merge_dict("meta", {"b": None})
    for bad in ([1], 1, "ab", [("a", 1)]):
        with pytest.raises(StateWriteError, match="mapping"):
            manager.merge_dict("meta", bad)
    assert manager.get().meta == {"a": 1, "b": None}


def test_s25_bounds_and_reducers_stand_side_by_side() -> None:
    """A bound holds for the result of a fold; a function of one argument is no reducer."""

    class Bounded(BaseModel):
        n: Annotated[int, annotated_types.Gt(0), operator.add] = 5
        xs: Annotated[list[int], len] = []

    manager = StateManager(Bounded)
    manager.update({"n": -3, "xs": [1]})
    manager.update({"xs": [2]})
    assert (manager.get().n, manager.get().xs) == (2, [2])
    with pytest.raises(StateWriteError, match="'n'"):
        manager.update({"n": -2})
    assert manager.get().n == 2


def test_s26_a_run_field_outlives_a_suspension_and_not_a_run() -> None:
    """A run field is stored with its value; only the entry of a run resets it."""

    class Rounds(BaseModel):
        rounds: Annotated[int, Ephemeral("run"), operator.add] = 0

    manager = StateManager(Rounds)
    manager.reset_run_fields()
    manager.update({"rounds": 2})
    resumed = reloaded(manager)
    resumed.update({"rounds": 1})
    assert resumed.get().rounds == 3
    resumed.reset_run_fields()
    assert resumed.get().rounds == 0


class Stepped(BaseModel):
    actions: Annotated[list[str], Ephemeral("step")] = []
    log: Annotated[list[str], Ephemeral("step"), operator.add] = []


def step(manager: StateManager[Any], **writes: Any) -> dict[str, Any]:
    """Do what `step()` does with a state."""
    manager.enter_step()
    if writes:
        manager.update(writes)
    return manager.take_step_fields()


@pytest.mark.parametrize("stored", [False, True])
def test_s27_what_is_written_between_two_steps_is_returned_once(stored: bool) -> None:
    """A step field written between steps is in the next result and not in the one after."""
    manager: StateManager[Any] = StateManager(Stepped)
    step(manager, actions=["first"])
    manager.update({"actions": ["go"]})
    manager = reloaded(manager) if stored else manager
    assert step(manager)["actions"] == ["go"]
    manager = reloaded(manager) if stored else manager
    assert step(manager)["actions"] == []


def test_s28_a_transient_field_is_never_stored() -> None:
    """A handle is one object within a run and a fresh one after a load."""

    class Handle:
        pass

    class Held(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        handle: Annotated[Handle, Transient()] = Field(default_factory=Handle)
        n: int = 0

    manager = StateManager(Held)
    manager.attach_store_check()
    handle = Handle()
    manager.update({"handle": handle, "n": 1})
    manager.update({"n": 2})
    assert all(manager.get().handle is handle for _ in range(3))
    assert "handle" not in manager.dump_checkpoint()["fields"]
    fresh = reloaded(manager).get().handle
    assert isinstance(fresh, Handle)
    assert fresh is not handle


class Streams(BaseModel):
    model_config = ConfigDict(extra="allow")
    streaming_output: Annotated[str, Ephemeral("call")] = ""
    messages: Annotated[list[str], operator.add] = []


def test_s29_a_variant_is_reset_alone() -> None:
    """One namespace's call fields are reset; a second time nothing happens; a variant has its field's type."""
    manager = StateManager(Streams)
    manager.update({"streaming_output": "plain"})
    manager.update({"streaming_output": "abc"}, namespace="planner")
    manager.update({"streaming_output": "de"}, namespace="writer")
    changes = told(manager)
    manager.reset_call_fields("planner")
    manager.reset_call_fields("planner")
    assert [change.fields for change in changes] == [("planner.streaming_output",)]
    assert [manager.read("streaming_output", namespace=space) for space in ("planner", "writer", None)] == [
        "",
        "de",
        "plain",
    ]
    with pytest.raises(StateWriteError, match=r"planner\.streaming_output"):
        manager.update({"streaming_output": 1}, namespace="planner")
    with pytest.raises(NamespaceError, match="messages"):
        manager.update({"messages": ["a"]}, namespace="planner")


def test_s30_clear_removes_one_namespace() -> None:
    """A namespace whose name starts like another's is not touched."""
    manager = StateManager(Streams)
    manager.update({"draft": "a"}, namespace="plan")
    manager.update({"draft": "a"}, namespace="planner")
    manager.clear("plan")
    assert manager.read_namespace("plan") == {}
    assert manager.read("draft", namespace="planner") == "a"


def test_s31_internal_fields_are_hidden_from_callers() -> None:
    """An internal field is refused in input and left out of output; nodes see it."""

    class Inner(BaseModel):
        secret: Annotated[int, Internal()] = Field(default=0, alias="Secret")
        given: Annotated[int, Internal(input=True)] = 0
        shown: Annotated[int, Internal(output=True)] = 0
        plain: int = 0

    manager = StateManager(Inner)
    for name in ("secret", "Secret", "shown"):
        with pytest.raises(InputError, match=name.lower()) as caught:
            manager.check_input({"plain": 1, name: 1})
        assert caught.value.field == name.lower()
    manager.check_input({"given": 1, "plain": 1})
    manager.update({"secret": 3})
    assert manager.get().secret == 3
    assert manager.output().keys() == {"shown", "plain"}
    assert manager.schema.input_fields == ("given", "plain")


class Range(BaseModel):
    lo: int = 0
    hi: int = 10

    @model_validator(mode="after")
    def ordered(self) -> Range:
        if self.lo > self.hi:
            raise ValueError(f"{self.lo} > {self.hi}")
        return self


def test_s32_two_writes_cannot_break_a_rule_that_each_keeps() -> None:
    """Of two writes at the same moment that together break a model's rule one is refused."""
    for _ in range(200):
        manager = StateManager(Range)
        barrier, refused = threading.Barrier(2), []

        def write(
            update: dict[str, int], manager: Any = manager, barrier: Any = barrier, refused: Any = refused
        ) -> None:
            barrier.wait()
            try:
                manager.update(update)
            except StateWriteError as error:
                refused.append(error)

        threads = [threading.Thread(target=write, args=(update,)) for update in ({"lo": 9}, {"hi": 1})]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(refused) == 1
        assert manager.get().lo <= manager.get().hi


def test_s32_two_writes_are_never_checked_at_once() -> None:
    """While one write is with the model's validator, another one waits, though it is of another field."""
    inside, most = [], []
    meet = threading.Barrier(2)

    class Slow(BaseModel):
        lo: int = 0
        hi: int = 0

        @model_validator(mode="after")
        def wait(self) -> Slow:
            inside.append(1)
            most.append(len(inside))
            if threading.current_thread() is not threading.main_thread():
                with contextlib.suppress(threading.BrokenBarrierError):
                    meet.wait(0.05)
            inside.pop()
            return self

    manager = StateManager(Slow)
    threads = [threading.Thread(target=manager.update, args=({name: 1},)) for name in ("lo", "hi")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert max(most) == 1
    assert manager.get() == Slow(lo=1, hi=1)


def test_s32_a_write_is_checked_as_a_whole() -> None:
    """Two fields that are legal together may be written together."""
    manager = StateManager(Range)
    manager.update({"lo": 20, "hi": 30})
    assert (manager.get().lo, manager.get().hi) == (20, 30)


class Guarded(BaseModel):
    n: int = 0
    quoted: str = ""
    folded: Annotated[str, lambda old, new: (_ for _ in ()).throw(ValueError(new))] = ""
    nested: dict[str, dict[str, int]] = {}
    tagged: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    removed: Annotated[list[str], operator.add] = []

    @field_validator("quoted")
    @classmethod
    def quote(cls, value: str) -> str:
        raise ValueError(f"bad: {value}")


def raise_key(value: str) -> Any:
    """Raise an error that holds the value."""
    raise KeyError(value)


SECRET = f"s3cret-{uuid.uuid4().hex}"


@pytest.mark.parametrize(
    ("field", "write"),
    [
        ("n", lambda m: m.update({"n": SECRET}, _writer="root/a")),
        ("quoted", lambda m: m.update({"quoted": SECRET}, _writer="root/a")),
        ("folded", lambda m: m.update({"folded": SECRET}, _writer="root/a")),
        ("n", lambda m: m.transform_field("n", lambda _: raise_key(SECRET), _writer="root/a")),
        ("nested", lambda m: m.update({"nested": {SECRET: {SECRET: SECRET}}}, _writer="root/a")),
        ("nested", lambda m: m.merge_dict("nested", {SECRET: SECRET}, _writer="root/a")),
        ("tagged", lambda m: m.update({"tagged": {"kind": SECRET}}, _writer="root/a")),
        ("n", lambda m: m.update({"n": Replace(SECRET)}, _writer="root/a")),
        ("removed", lambda m: m.transform_field("removed", lambda _: [SECRET, 1], _writer="root/a")),
    ],
)
@pytest.mark.parametrize("has_store", [False, True])
def test_s33_no_error_tells_a_value(field: str, write: Any, has_store: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A refused secret is neither in the text, nor in the traceback with all causes, nor in the log."""
    manager = StateManager(Guarded)
    if has_store:
        manager.attach_store_check()
    manager.subscribe(lambda _: None)
    with pytest.raises(StateWriteError) as caught:
        write(manager)
    error = caught.value
    assert field in str(error)
    assert "'root/a'" in str(error)
    assert (error.__cause__, error.__context__) == (None, None)
    printed = "".join(traceback.format_exception(error))
    assert SECRET not in printed + caplog.text + repr(error.__dict__)


def test_s33_initialize_and_load_tell_no_value_either() -> None:
    """A whole input that is refused does not show what was given."""
    for write in (
        lambda m, v: m.initialize(v),
        lambda m, v: m.load_checkpoint({"version": 1, "fields": v, "spent": []}),
    ):
        for value in ({"n": SECRET}, {"quoted": SECRET}, {"nested": {SECRET: SECRET}}):
            manager = StateManager(Guarded)
            with pytest.raises(StateWriteError) as caught:
                write(manager, value)
            assert SECRET not in "".join(traceback.format_exception(caught.value))
            assert manager.version == 0


def test_s34_the_runtimes_namespaces_cannot_be_forged() -> None:
    """Neither input nor a node reaches the runtime's namespaces, and nothing of them is in the model."""
    manager = StateManager(Streams)
    manager.runtime_show("interaction", ("interaction.suspensions",), lambda: {"suspensions": [{"id": "q"}]})
    with pytest.raises(InputError, match=r"interaction\.resume_payloads"):
        manager.check_input({"interaction.resume_payloads": {"q": True}})
    with pytest.raises(NamespaceError):
        manager.update({"interaction.resume_payloads": {"q": True}})
    manager.update({"interaction": {"resume_payloads": {"q": True}}})
    for space in ("interaction", "journal"):
        for call in (
            lambda space=space: manager.update({"resume_payloads": {}}, namespace=space),
            lambda space=space: manager.merge_dict("resume_payloads", {"q": True}, namespace=space),
            lambda space=space: manager.transform_field("resume_payloads", lambda _: {}, namespace=space),
            lambda space=space: manager.clear(space),
            lambda space=space: manager.reset_call_fields(space),
        ):
            with pytest.raises(NamespaceError, match="runtime"):
                call()
    assert manager.read_namespace("interaction") == {"suspensions": [{"id": "q"}]}
    assert manager.read("suspensions", namespace="interaction") == [{"id": "q"}]
    state = manager.get()
    assert state.model_extra == {"interaction": {"resume_payloads": {"q": True}}}
    assert "suspensions" not in str(state.model_dump()) + str(manager.output()) + str(manager.dump_checkpoint())


def test_s35_a_spent_field_starts_anew_at_its_first_write() -> None:
    """What a step has returned can be read until it is written; then it starts from its default."""
    manager = StateManager(Stepped)
    assert step(manager, log=["a"])["log"] == ["a"]
    assert manager.get().log == ["a"]
    manager.update({"log": ["b"]})
    assert manager.get().log == ["b"]
    assert step(manager)["log"] == ["b"]
    assert step(manager)["log"] == []
