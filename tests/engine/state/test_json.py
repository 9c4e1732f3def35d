"""The state as JSON: checkpoints, deltas, and the proof that what is written can be read back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import operator
import pathlib
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_serializer,
    field_validator,
)

from jianmu.engine.state import Clear, Delta, Ephemeral, Remove, Replace, StateManager, Transient, add_by_id, fold
from jianmu.errors import SchemaError, StateWriteError


class Color(enum.Enum):
    RED = 1


class Point(BaseModel):
    x: int


class Near(Point):
    pass


class Far(Point):
    y: int = 0


@dataclasses.dataclass
class Pair:
    a: int
    b: list[int]


class Rich(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    when: dt.datetime | None = None
    amount: decimal.Decimal = decimal.Decimal(0)
    key: uuid.UUID | None = None
    path: pathlib.Path | None = None
    color: Color = Color.RED
    tags: set[int] = set()
    pair: tuple[int, str] = (0, "")
    data: dict[int, list[Point]] = {}
    dc: Pair | None = None
    hidden: int = Field(default=0, exclude=True, alias="Hidden")
    raw: bytes = b""
    stepped: Annotated[list[int], Ephemeral("step")] = []
    streamed: Annotated[str, Ephemeral("call")] = ""
    handle: Annotated[Any, Transient()] = None


RICH: dict[str, Any] = {
    "when": dt.datetime(2024, 5, 6, tzinfo=dt.UTC),
    "amount": decimal.Decimal("1.10"),
    "key": uuid.UUID(int=5),
    "path": pathlib.Path("/a/b"),
    "tags": {1, 2},
    "pair": (1, "x"),
    "data": {1: [Point(x=1)]},
    "dc": Pair(1, [2]),
    "hidden": 7,
    "raw": b"abc",
    "stepped": [1],
}


@pytest.mark.parametrize("checked", [False, True])
def test_a_checkpoint_brings_back_all_that_is_stored(checked: bool) -> None:
    """Every JSON-able type of a strict schema comes back; call fields and transient ones do not."""
    manager = StateManager(Rich)
    if checked:
        manager.attach_store_check()
    manager.update({**RICH, "streamed": "x", "handle": object()})
    manager.update({"note": [1, {"a": None}], "draft": "d"}, namespace="ns")
    manager.update({"streamed": "y"}, namespace="ns")
    data = json.loads(json.dumps(manager.dump_checkpoint()))
    loaded = StateManager(Rich)
    loaded.load_checkpoint(data)
    extra = {"Hidden": 7, "ns.note": [1, {"a": None}], "ns.draft": "d"}
    assert loaded.get() == Rich(**{name: value for name, value in RICH.items() if name != "hidden"}, **extra)
    assert (loaded.version, loaded.get().hidden) == (manager.version, 7)
    assert loaded.dump_checkpoint() == manager.dump_checkpoint()
    assert loaded.last_change("when") == (manager.version, None)
    with pytest.raises(StateWriteError, match="read-only"):
        loaded.get().data[1][0].x = 5


def test_a_refused_load_changes_nothing() -> None:
    """A checkpoint that does not fit names the field; unknown fields of an older version are left out."""
    manager = StateManager(Rich)
    manager.update({"hidden": 3})
    data = manager.dump_checkpoint()
    with pytest.raises(StateWriteError, match="'pair'"):
        manager.load_checkpoint({**data, "fields": {**data["fields"], "pair": "x"}})
    assert (manager.get().hidden, manager.version) == (3, 1)

    class Newer(BaseModel):
        hidden: int = 0
        added: int = 9

    newer = StateManager(Newer)
    newer.load_checkpoint(data)
    assert newer.get() == Newer(hidden=3)


class Loose(BaseModel):
    any: Any = None
    point: Point = Point(x=0)
    either: Annotated[int | str, Field()] = 0
    number: float = 0
    text: str = ""
    raw: bytes = b""
    points: Annotated[list[Point], operator.add] = []
    by_key: dict[str, Any] = {}
    odd: Annotated[int, PlainSerializer(lambda v: v + 1)] = 0
    mixed: dict[int | str, int] = {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("any", (1, 2)),
        ("any", {1: 2}),
        ("any", Point(x=1)),
        ("any", dt.date(2024, 1, 1)),
        ("any", object()),
        ("any", [{"deep": {1}}]),
        ("point", Far(x=1, y=2)),
        ("point", Near(x=1)),
        ("points", [Point(x=1), Far(x=1, y=2)]),
        ("number", float("nan")),
        ("number", float("inf")),
        ("text", "\ud800"),
        ("raw", b"\xff"),
        ("by_key", {"a": (1,)}),
        ("odd", 1),
        ("mixed", {1: 1}),
    ],
)
def test_with_a_store_what_would_come_back_different_is_refused(field: str, value: Any) -> None:
    """Each of the writes names the field and stores nothing; without a store the same value is kept."""
    manager = StateManager(Loose)
    manager.attach_store_check()
    before = manager.get()
    writes: list[Callable[[], None]] = [
        lambda: manager.update({field: value}),
        lambda: manager.update({field: Replace(value)}),
        lambda: manager.transform_field(field, lambda _: value),
        lambda: manager.initialize({field: value}),
    ]
    if isinstance(value, dict):
        writes.append(lambda: manager.merge_dict(field, value))
    for write in writes:
        with pytest.raises(StateWriteError, match=f"field '{field}'.*read back"):
            write()
    assert (manager.get(), manager.version) == (before, 0)
    manager.attach_store_check(False)
    manager.update({field: value})


def test_types_without_a_json_form_are_refused_when_the_store_is_attached() -> None:
    """Objects, callables and dicts with keys that no text stands for are found at once; Transient ones may stay."""

    class Handle:
        pass

    arbitrary = ConfigDict(arbitrary_types_allowed=True)

    class Object(BaseModel):
        model_config = arbitrary
        x: Handle | None = None

    class Function(BaseModel):
        x: Callable[[], None] | None = None

    class Keys(BaseModel):
        x: dict[tuple[int, int], str] = {}

    class Inside(BaseModel):
        x: list[Object] = []

    for schema in (Object, Function, Keys, Inside):
        manager = StateManager(schema)
        with pytest.raises(SchemaError, match=rf"{schema.__name__}\.x.*Transient\(\)"):
            manager.attach_store_check()

    class Fine(BaseModel):
        model_config = arbitrary
        x: Annotated[Handle | None, Transient()] = None
        y: Annotated[Handle | None, Ephemeral("call")] = None
        path: pathlib.Path = pathlib.Path()

    StateManager(Fine).attach_store_check()


class Folded(BaseModel):
    model_config = ConfigDict(extra="allow")
    log: Annotated[list[int], operator.add] = []
    items: Annotated[list[dict[str, Any]], add_by_id()] = []
    maybe: Annotated[list[int] | None, operator.add] = None
    text: str = ""
    notes: dict[str, int] = {}
    numbers: dict[int, int] = {}
    n: int = 0
    stepped: Annotated[list[int], Ephemeral("step"), operator.add] = []
    counted: Annotated[int, Ephemeral("step")] = 0
    streamed: Annotated[str, Ephemeral("call")] = ""
    own: list[int] = []

    @field_serializer("own")
    def reverse(self, value: list[int]) -> str:
        return ",".join(map(str, value))


def recorded(*, is_checked: bool) -> tuple[StateManager[Folded], list[Delta], dict[str, Any]]:
    """Return a manager, the list of all its deltas, and its checkpoint before them."""
    manager = StateManager(Folded)
    if is_checked:
        manager.attach_store_check()
    else:
        manager.wants_deltas = True
    deltas: list[Delta] = []
    manager.recorders = (lambda change: deltas.extend(change.deltas),)
    return manager, deltas, manager.dump_checkpoint()


def last(deltas: list[Delta]) -> list[Any]:
    """Return the newest delta as JSON."""
    return deltas[-1].to_json()


def test_a_delta_is_the_effect_of_a_write() -> None:
    """Lists are spliced, dicts get and lose keys, texts grow; all else is set; what is not stored has none."""
    manager, deltas, start = recorded(is_checked=False)
    manager.update({"log": [1, 2]})
    assert last(deltas) == ["log", "splice", [0, 0, [1, 2]]]
    manager.update({"log": [3]})
    assert last(deltas) == ["log", "splice", [2, 0, [3]]]
    manager.transform_field("log", lambda xs: [xs[0], 9, xs[2]])
    assert last(deltas) == ["log", "splice", [1, 1, [9]]]
    manager.update({"items": [{"id": "a"}, {"id": "b"}]})
    manager.update({"items": Remove("a")})
    assert last(deltas) == ["items", "splice", [0, 1, []]]
    manager.merge_dict("notes", {"a": 1000, "b": 2000})
    assert last(deltas) == ["notes", "keys", [{"a": 1000, "b": 2000}, []]]
    manager.transform_field("notes", lambda d: {"b": d["b"], "c": 3000})
    assert last(deltas) == ["notes", "keys", [{"c": 3000}, ["a"]]]
    manager.transform_field("notes", lambda d: dict(reversed(d.items())))
    assert last(deltas) == ["notes", "set", {"c": 3000, "b": 2000}]
    manager.merge_dict("numbers", {1: 1})
    assert last(deltas) == ["numbers", "set", {"1": 1}]
    manager.update({"text": "ab"})
    manager.update({"text": "abc"})
    assert last(deltas) == ["text", "append", "c"]
    manager.update({"text": "b"})
    assert last(deltas) == ["text", "set", "b"]
    count = len(deltas)
    manager.update({"streamed": "x"})
    manager.update({"streamed": "x"}, namespace="ns")
    manager.runtime_show("journal", ("journal.k",), lambda: {"k": 1})
    assert len(deltas) == count
    manager.update({"k": 1}, namespace="ns")
    manager.clear("ns")
    assert last(deltas) == ["ns.k", "drop", None]
    assert fold(start, [Delta.from_json(json.loads(json.dumps(delta.to_json()))) for delta in deltas]) == {
        **manager.dump_checkpoint(),
        "version": 0,
    }
    assert start == StateManager(Folded).dump_checkpoint()


def test_an_append_to_a_long_list_is_checked_by_its_delta_only() -> None:
    """With a store attached an append does not read what was there before."""
    calls: list[Any] = []

    def note(value: int) -> int:
        calls.append(value)
        return value

    class Long(BaseModel):
        xs: Annotated[list[Annotated[int, PlainSerializer(note)]], operator.add] = []

    manager = StateManager(Long)
    manager.initialize({"xs": list(range(1000))})
    manager.attach_store_check()
    manager.update({"xs": [5000]})
    assert calls == [5000]


def test_marking_step_fields_spent_is_recorded() -> None:
    """What a step has returned is part of the log: load equals live."""
    manager, deltas, start = recorded(is_checked=True)
    manager.update({"stepped": [1], "counted": 1})
    manager.take_step_fields()
    assert last(deltas) == ["", "spent", ["counted", "stepped"]]
    manager.update({"counted": 1})
    assert fold(start, deltas, manager.version) == manager.dump_checkpoint()
    manager.update({"stepped": []})
    assert fold(start, deltas, manager.version) == manager.dump_checkpoint()
    manager.update({"stepped": Clear(), "own": [1, 2]})
    manager.initialize({"n": 3})
    assert fold(start, deltas, manager.version) == manager.dump_checkpoint()


class Asking(BaseModel):
    lo: int = 0
    when: dt.date | None = None
    tags: Annotated[set[int], operator.or_] = set()

    @field_validator("when", "tags")
    @classmethod
    def ask(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data["lo"] < 0:
            raise ValueError("negative")
        return value


def test_validators_that_ask_are_asked_again_with_the_same_fields() -> None:
    """With a store attached, a validator with `info` sees the other fields when the value is read back."""
    manager = StateManager(Asking)
    manager.attach_store_check()
    manager.update({"when": dt.date(2024, 1, 2), "tags": {1}, "lo": 3})
    manager.update({"tags": {2}})
    loaded = StateManager(Asking)
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert loaded.get() == manager.get() == Asking(when=dt.date(2024, 1, 2), tags={1, 2}, lo=3)


def test_a_default_need_not_be_of_its_type() -> None:
    """An unvalidated default is stored and taken again at a load, as it was."""

    class Sloppy(BaseModel):
        text: str = None
        number: float = 0
        n: int = 0

    manager = StateManager(Sloppy)
    manager.attach_store_check()
    manager.initialize({"n": 1})
    manager.update({"n": 2})
    loaded = StateManager(Sloppy)
    loaded.load_checkpoint(json.loads(json.dumps(manager.dump_checkpoint())))
    assert loaded.get() == manager.get() == Sloppy(n=2)


def test_nothing_warns_of_a_value() -> None:
    """A value that Pydantic's serializer would warn of, quoting it, warns nobody (warnings are errors here)."""

    class Counted(BaseModel):
        counts: Counter[str] = Counter()
        text: str = None

    manager = StateManager(Counted)
    manager.attach_store_check()
    manager.update({"counts": {"a": 1}})
    manager.merge_dict("counts", {"b": 2})
    loaded = StateManager(Counted)
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert loaded.get().counts == Counter(a=1, b=2)
    with pytest.raises(StateWriteError, match="read-only"):
        loaded.get().counts["c"] = 1


class Rounded(BaseModel):
    """A model that loses something on its way through JSON."""

    number: float
    more: list[float] = Field(default_factory=list[float])

    @field_serializer("number")
    def _whole(self, number: float) -> float:
        return round(number)


class Holder(BaseModel):
    """A state of such models."""

    model_config = ConfigDict(extra="allow")

    one: Rounded | None = None
    all: Annotated[list[Rounded], operator.add] = Field(default_factory=list[Rounded])


def test_a_model_that_would_come_back_different_in_one_field_is_refused() -> None:
    """Models are compared field by field, also inside of a list; one that comes back as it was is taken."""
    manager = StateManager(Holder)
    manager.attach_store_check()
    manager.update({"one": Rounded(number=2), "all": [Rounded(number=3, more=[0.5])]})
    for write in ({"one": Rounded(number=2.5)}, {"all": [Rounded(number=2), Rounded(number=2.5)]}):
        with pytest.raises(StateWriteError, match="read back different"):
            manager.update(write)
    assert (manager.version, manager.get().one) == (1, Rounded(number=2))
