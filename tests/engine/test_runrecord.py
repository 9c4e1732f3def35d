"""The record of a run: whole through JSON, and refused whole when it is newer or spoiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jianmu.engine.checkpoint import check_thread_id
from jianmu.engine.interaction import Answer, InteractionController, Request, fail
from jianmu.engine.journal import Journal
from jianmu.engine.runrecord import FORMAT, RunRecord, load
from jianmu.errors import CorruptRecordError, SchemaVersionError, StoreError
from tests.engine.asking import HandClock, origin


def record(**changes: Any) -> RunRecord:
    """Return a record with a question that was answered and one that is open."""
    desk = InteractionController(HandClock())
    desk.ask(origin("main/a"), Request("?", private={"token": 1}, expires=[fail(60)]))
    desk.answer_nowait(Answer(None, action="decline", key="k"))
    desk.ask(origin("main/b", ("main", 2)), Request("?"))
    journal = Journal()
    journal.begin(journal.find(origin(), "k", "pay", "0"))
    fields: dict[str, Any] = {
        "fingerprint": "f",
        "thread_id": "t",
        "run": 1,
        "status": "suspended",
        "schema_version": 2,
        "state": {"version": 3, "fields": {"n": [1]}, "spent": []},
        "position": {"0": ["RUNNING", None]},
        "usage": {"ticks": 3},
        "questions": desk.dump(),
        "journal": journal.dump(),
        "error": {"type": "E", "text": "x", "path": None},
    }
    return RunRecord(**{**fields, **changes})


def test_a_record_comes_back_whole() -> None:
    """What was dumped, sent as text and loaded is equal, and its questions and journal go on."""
    old = record()
    new = load(json.loads(json.dumps(old.dump())), schema_version=2)
    assert new == old
    desk, journal = InteractionController(HandClock()), Journal()
    desk.load(new.questions)
    journal.load(new.journal)
    assert (desk.dump(), journal.dump()) == (old.questions, old.journal)
    assert [one.path for one in desk.pending] == ["main/b"]


@pytest.mark.parametrize(
    ("changes", "known", "text"),
    [
        ({"format": FORMAT + 1}, 2, "checkpoint's form is of version 2, and this program knows 1"),
        ({"format": 99, "spoiled": True}, 2, "is of version 99"),
        ({}, 1, "state's schema is of version 2, and this program knows 1"),
        ({}, None, "state's schema is of version 2, and this program names none"),
    ],
)
def test_a_newer_record_is_refused(changes: dict[str, Any], known: int | None, text: str) -> None:
    """A newer form or schema is a SchemaVersionError, whatever else is in the record."""
    with pytest.raises(SchemaVersionError, match=text):
        load({**record().dump(), **changes}, schema_version=known)


def test_an_older_schema_is_let_through() -> None:
    """The state's own loading judges it."""
    assert load(record(schema_version=1).dump(), schema_version=2).schema_version == 1
    assert load(record(schema_version=None).dump()).schema_version is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: None,
        lambda data: [data],
        lambda data: "os.system",
        lambda data: b"\x80\x04.",
        lambda data: {},
        lambda data: {**data, "run": "s3cret"},
        lambda data: {**data, "call": "os.system"},
        lambda data: {**data, "state": b"\x80\x04."},
        lambda data: {**data, "format": "s3cret"},
        lambda data: {**data, "thread_id": ""},
        lambda data: {**data, "questions": {"records": ["s3cret"]}},
        lambda data: {**data, "journal": {"entries": [{"s3cret": 1}]}},
        lambda data: {name: value for name, value in data.items() if name != "fingerprint"},
    ],
)
def test_garbage_is_refused_without_values(spoil: Any) -> None:
    """K07: a typed error, nothing imported, nothing of the record in its text."""
    with pytest.raises(StoreError) as refused:
        load(spoil(record().dump()), schema_version=2)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__context__ is None


def test_the_place_of_the_fault_is_told() -> None:
    """The error names the field."""
    with pytest.raises(CorruptRecordError, match="cannot be read: run"):
        load({**record().dump(), "run": "x"}, schema_version=2)


@pytest.mark.parametrize("id", ["a", "../x", "user/1", "it's", "a_b", "a%b", "A_B", "线程", "x" * 512, " ", "\ud7ff"])
def test_thread_ids(id: str) -> None:
    """K19, K32: any text of 1 to 512 characters is a thread's id, as it is."""
    assert check_thread_id(id) == id


@pytest.mark.parametrize("id", ["", "x" * 513, "a\0b", "\ud800", "a\udfff", None, 5, b"a"], ids=repr)
def test_what_is_no_thread_id(id: object) -> None:
    """Too short, too long, NUL, lone surrogates and other types are a StoreError with the rule."""
    with pytest.raises(StoreError, match="1 to 512 characters, without NUL and lone surrogates"):
        check_thread_id(id)
