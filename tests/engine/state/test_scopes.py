"""Scopes, namespaces and listeners."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from jianmu.engine.state import WRITER, Clear, Ephemeral, Replace, StateChange, StateManager
from jianmu.errors import NamespaceError, SchemaError, StateWriteError, UnknownFieldError


class Scoped(BaseModel):
    model_config = ConfigDict(extra="allow")
    kept: Annotated[list[int], operator.add] = []
    run: Annotated[list[int], Ephemeral("run"), operator.add] = Field(default_factory=lambda: [FRESH.pop()])
    step: Annotated[dict[str, int], Ephemeral(scope="step")] = {}
    call: Annotated[str, Ephemeral("call"), Field(max_length=9), operator.add] = ""


FRESH = list(range(1000))


def told(manager: StateManager[Any]) -> list[StateChange]:
    """Return a list to which every change is added."""
    found: list[StateChange] = []
    manager.subscribe(found.append)
    return found


def filled() -> StateManager[Scoped]:
    """Return a manager with a value for each scope, and the same in a namespace."""
    manager = StateManager(Scoped)
    for namespace in (None, "a"):
        manager.update({"run": [-1], "step": {"x": 1}, "call": "tok"}, namespace=namespace)
    manager.update({"kept": [1], "note": 5})
    manager.update({"note": 5}, namespace="a")
    return manager


def test_a_run_resets_all_scopes_and_their_variants_in_one_commit() -> None:
    """Run, step and call fields go back to fresh defaults, past their reducers; other fields and extras stay."""
    manager = filled()
    changes, version = told(manager), manager.version
    manager.reset_run_fields()
    assert [set(change.fields) for change in changes] == [
        {"run", "step", "call", "a.run", "a.step", "a.call"},
    ]
    state = manager.get()
    assert (manager.version, state.step, state.call, state.kept) == (version + 1, {}, "", [1])
    assert manager.read_namespace("a") == {"run": manager.read("run", namespace="a"), "step": {}, "call": "", "note": 5}
    assert -1 not in state.run + manager.read("run", namespace="a")
    assert state.run != manager.read("run", namespace="a")


def test_a_variant_that_has_grown_is_a_list_to_every_reader() -> None:
    """Snapshot, namespace and JSON have what `read` has: a read-only list."""
    manager = filled()
    manager.update({"run": [7]}, namespace="a")
    state, grown = manager.get(), manager.read("run", namespace="a")
    assert isinstance(grown, list)
    assert (grown[-1], state.model_extra["a.run"], manager.read_namespace("a")["run"]) == (7, grown, grown)
    assert from_json(state.model_dump_json())["a.run"] == grown
    with pytest.raises(StateWriteError):
        state.model_extra["a.run"].append(8)


def test_a_reset_that_changes_nothing_is_no_commit() -> None:
    """A second reset in a row tells nobody."""
    manager = filled()
    manager.reset_step_fields()
    manager.reset_call_fields()
    changes = told(manager)
    manager.reset_step_fields()
    manager.reset_call_fields()
    assert changes == []


def test_each_reset_touches_its_scope_only() -> None:
    """A step's reset spares run and call fields, a call's spares the others and other namespaces."""
    manager = filled()
    manager.reset_step_fields()
    state = manager.get()
    assert (state.step, state.call, manager.read("step", namespace="a")) == ({}, "tok", {})
    manager.reset_call_fields()
    assert (manager.get().call, manager.read("call", namespace="a")) == ("", "tok")
    manager.reset_call_fields("b")
    assert manager.read("call", namespace="a") == "tok"


def test_a_default_that_does_not_fit_is_found_at_the_reset() -> None:
    """A reset is validated like any write, so what a factory makes too."""

    class Sloppy(BaseModel):
        x: Annotated[str, Ephemeral("run")] = Field(default_factory=lambda: None)  # pyright: ignore[reportArgumentType]  # refused

    manager = StateManager(Sloppy)
    manager.update({"x": "a"})
    with pytest.raises(StateWriteError, match="'x' takes str"):
        manager.reset_run_fields()
    with pytest.raises(StateWriteError, match="'x' takes str"):
        manager.update({"x": Clear()})
    assert manager.get().x == "a"


def test_a_default_that_no_reset_could_set_is_refused() -> None:
    """An ephemeral field's default has to be of its type; the error has the line to write."""

    class Empty(BaseModel):
        x: Annotated[str, Ephemeral("run")] = None  # pyright: ignore[reportAssignmentType]  # refused

    class Wrong(BaseModel):
        x: Annotated[int, Ephemeral("step")] = "no-int"  # pyright: ignore[reportAssignmentType]  # refused

    with pytest.raises(SchemaError, match=r"Empty\.x .*write x: Annotated\[str \| None, \.\.\.\] = None"):
        StateManager(Empty)
    with pytest.raises(SchemaError, match=r"Wrong\.x .*not int.*write x: Annotated\[str, "):
        StateManager(Wrong)


class Spent(BaseModel):
    model_config = ConfigDict(extra="allow")
    log: Annotated[list[int], Ephemeral("step"), operator.add] = []
    out: Annotated[dict[str, int] | None, Ephemeral("step")] = None
    n: Annotated[int, Ephemeral("step")] = 5


@pytest.mark.parametrize(
    ("write", "field", "value"),
    [
        (lambda m, ns: m.update({"log": [2]}, namespace=ns), "log", [2]),
        (lambda m, ns: m.update({"log": []}, namespace=ns), "log", []),
        (lambda m, ns: m.update({"log": Replace([3])}, namespace=ns), "log", [3]),
        (lambda m, ns: m.merge_dict("out", {"b": 2}, namespace=ns), "out", {"b": 2}),
        (lambda m, ns: m.transform_field("n", lambda n: n + 1, namespace=ns), "n", 6),
    ],
)
@pytest.mark.parametrize("namespace", [None, "a"])
def test_the_first_write_to_a_spent_field_starts_from_its_default(
    write: Any, field: str, value: Any, namespace: str | None
) -> None:
    """Each of the writes starts anew; the second one goes on; what was not written is cleared at the next step."""
    manager = StateManager(Spent)
    first = {"log": [1], "out": {"a": 1}, "n": 1}
    manager.update(first)
    manager.update(first, namespace="a")
    result = manager.take_step_fields()
    assert result == {**first, **{f"a.{name}": item for name, item in first.items()}} == manager.get_step_fields()
    write(manager, namespace)
    assert manager.read(field, namespace=namespace) == value
    manager.enter_step()
    for space in (None, "a"):
        for name, default in (("log", []), ("out", None), ("n", 5)):
            expected = value if (space, name) == (namespace, field) else default
            assert manager.read(name, namespace=space) == expected
    changes = told(manager)
    manager.take_step_fields()
    manager.take_step_fields()
    assert changes == []


def test_spent_fields_are_stored_as_spent() -> None:
    """A load between two steps forgets neither what was returned nor what was not."""
    manager = StateManager(Spent)
    manager.update({"log": [1], "n": 1})
    manager.take_step_fields()
    manager.update({"n": 2})
    loaded = StateManager(Spent)
    loaded.load_checkpoint(manager.dump_checkpoint())
    loaded.update({"log": [2]})
    loaded.enter_step()
    assert (loaded.get().log, loaded.get().n) == ([2], 2)


def test_namespaces_and_their_rules() -> None:
    """Keys are kept under 'namespace.key'; dots, empty names, declared names and closed schemas are refused."""
    manager = filled()
    manager.update({"x": [1], "y": {"k": None}}, namespace="ns")
    manager.transform_field("x", lambda xs: [*xs, 2], namespace="ns")
    manager.merge_dict("y", {"j": 1.5}, namespace="ns")
    manager.merge_dict("z", {"new": True}, namespace="ns")
    manager.transform_field("w", lambda old: old is None, namespace="ns")
    assert manager.read_namespace("ns") == {"x": [1, 2], "y": {"k": None, "j": 1.5}, "z": {"new": True}, "w": True}
    assert manager.get().model_extra["ns.x"] == [1, 2]
    assert manager.output() == {**{name: getattr(manager.get(), name) for name in Scoped.model_fields}, "note": 5}
    assert manager.read("call", namespace="nobody") == ""
    for key, namespace in (
        ("a.b", "ns"),
        ("", "ns"),
        ("x", ""),
        ("x", "a.b"),
        ("x", 3),
        ("kept", "ns"),
        ("ns.x", None),
    ):
        for write in (
            lambda k=key, n=namespace: manager.update({k: 1}, namespace=n),
            lambda k=key, n=namespace: manager.transform_field(k, lambda _: 1, namespace=n),
            lambda k=key, n=namespace: manager.merge_dict(k, {"a": 1}, namespace=n),
        ):
            with pytest.raises(NamespaceError):
                write()
    for call in (manager.update, manager.initialize):
        with pytest.raises(NamespaceError, match="namespace='ns'"):
            call({"ns.x": 1})
    with pytest.raises(UnknownFieldError, match=r"'gone'.*'ns'"):
        manager.read("gone", namespace="ns")
    with pytest.raises(StateWriteError, match=r"clear\(namespace\)"):
        manager.update({"x": Clear()}, namespace="ns")


@pytest.mark.parametrize("extra", ["ignore", "forbid"])
def test_a_closed_schema_has_no_namespaces(extra: Any) -> None:
    """Without extra values a namespace is refused at once, with the line to write; the runtime's work all the same."""

    class Closed(BaseModel):
        model_config = ConfigDict(extra=extra)
        stream: Annotated[str, Ephemeral("call")] = ""

    manager = StateManager(Closed)
    for call in (
        lambda: manager.update({"x": 1}, namespace="a"),
        lambda: manager.update({}, namespace="a"),
        lambda: manager.update({"stream": "x"}, namespace="a"),
        lambda: manager.clear("a"),
        lambda: manager.reset_call_fields("a"),
        lambda: manager.read_namespace("a"),
    ):
        with pytest.raises(NamespaceError, match="ConfigDict\\(extra='allow'\\)"):
            call()
    manager.runtime_show("journal", ("journal.k",), lambda: {"k": [1]})
    assert manager.runtime_read("journal") == {"k": [1]} == manager.read_namespace("journal")
    assert (manager.get(), manager.get().model_extra) == (Closed(), None)
    assert manager.runtime_read("interaction") == {}
    with pytest.raises(NamespaceError):
        manager.runtime_read("mine")


class Thing:
    """No JSON value."""


@pytest.mark.parametrize("value", [{1: "a"}, (1,), {1}, Thing(), b"x", float("nan"), [float("inf")], {"a": [Thing()]}])
def test_extra_values_are_json(value: Any) -> None:
    """An extra value that JSON does not have is refused, plain or in a namespace."""
    manager = StateManager(Scoped)
    for namespace in (None, "ns"):
        with pytest.raises(StateWriteError, match="JSON"):
            manager.update({"free": value}, namespace=namespace)
    with pytest.raises(StateWriteError, match="JSON"):
        manager.initialize({"free": value})


def test_extra_values_are_of_the_type_that_the_schema_declares() -> None:
    """`__pydantic_extra__` types extra values; variants have their field's type."""

    class Typed(BaseModel):
        model_config = ConfigDict(extra="allow")
        __pydantic_extra__: dict[str, int]
        stream: Annotated[str, Ephemeral("call")] = ""

    manager = StateManager(Typed)
    manager.update({"free": "5"})
    manager.update({"free": 6, "stream": "x"}, namespace="ns")
    assert (manager.read("free"), manager.read_namespace("ns")) == (5, {"free": 6, "stream": "x"})
    for bad in ({"free": "x"}, {"stream": 1}):
        with pytest.raises(StateWriteError):
            manager.update(bad, namespace="ns")
    loaded = StateManager(Typed)
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert loaded.get().model_extra == {"free": 5, "ns.free": 6}


def test_changes_say_what_was_written_and_what_differs() -> None:
    """Scalars are compared, other values count as changed; version and writer are told."""

    class Told(BaseModel):
        model_config = ConfigDict(extra="allow")
        n: float = 0
        xs: list[int] = []
        log: Annotated[list[int], operator.add] = []

    manager = StateManager(Told)
    changes = told(manager)
    manager.update({"n": 0.0, "xs": []}, _writer="root/a")
    manager.update({"n": float("nan"), "log": []})
    manager.update({"n": float("nan"), "log": [1]})
    manager.update({"k": 1}, namespace="ns")
    token = WRITER.set("root/b")
    manager.merge_dict("k2", {}, namespace="ns")
    manager.update({})
    manager.update({"n": 1})
    WRITER.reset(token)
    manager.signal()
    assert [(change.version, change.fields, change.changed, change.writer) for change in changes] == [
        (1, ("n", "xs"), ("xs",), "root/a"),
        (2, ("n", "log"), ("n",), None),
        (3, ("n", "log"), ("log",), None),
        (4, ("ns.k",), ("ns.k",), None),
        (5, ("n",), ("n",), "root/b"),
        (5, (), (), None),
    ]
    assert [change.wakes for change in changes] == [True] * 6
    manager.update({"n": 1})
    assert not changes[-1].wakes
    assert manager.last_change("n") == (5, "root/b")
    assert manager.last_change("nothing") == (0, None)
    assert manager.last_change("ns.k") == (4, None)


def test_listeners_may_write_subscribe_and_leave() -> None:
    """What a listener writes is the next change; those who leave are told no more, those who came are."""
    manager = StateManager(Scoped)
    order: list[Any] = []

    def first(change: StateChange) -> None:
        order.append(("first", change.version))
        if change.version == 1:
            manager.update({"kept": [2]})
            order.append("written")
            leave()
            manager.subscribe(lambda change: order.append(("late", change.version)))

    manager.subscribe(first)
    leave = manager.subscribe(lambda change: order.append(("second", change.version)))
    manager.update({"kept": [1]})
    assert order == [("first", 1), "written", ("second", 1), ("first", 2), ("late", 2)]
    leave()


def test_changes_are_told_once_in_order_whoever_tells_them() -> None:
    """Eight threads write; each change is told once, in the order of the commits, never two at a time."""
    manager = StateManager(Scoped)
    seen: list[int] = []
    busy = threading.Lock()

    def listen(change: StateChange) -> None:
        assert busy.acquire(blocking=False)
        seen.append(change.version)
        busy.release()

    manager.subscribe(listen)
    threads = [threading.Thread(target=lambda: [manager.update({"kept": [n]}) for n in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == list(range(1, 1601))


def test_a_writer_does_not_wait_for_anothers_listeners() -> None:
    """While a listener is busy, another thread's write returns, and its change is told afterwards."""
    manager = StateManager(Scoped)
    entered, leave, seen = threading.Event(), threading.Event(), []

    def slow(change: StateChange) -> None:
        if change.version == 1:
            entered.set()
            assert leave.wait(10)
        seen.append(change.version)

    manager.subscribe(slow)
    first = threading.Thread(target=manager.update, args=({"kept": [1]},))
    first.start()
    assert entered.wait(10)
    manager.update({"kept": [2]})
    assert seen == []
    leave.set()
    first.join(10)
    assert seen == [1, 2]


def test_the_recorder_sees_each_commit_before_any_listener() -> None:
    """What the runtime records is recorded inside the commit, the runtime's own namespaces too."""
    manager = StateManager(Scoped)
    order: list[Any] = []
    manager.recorders = (lambda change: order.append(("recorded", change.fields)),)
    manager.subscribe(lambda change: order.append(("told", change.fields)))
    manager.update({"kept": [1]})
    manager.runtime_show("interaction", ("interaction.q",), lambda: {"q": 1})
    assert order == [(what, fields) for fields in (("kept",), ("interaction.q",)) for what in ("recorded", "told")]
