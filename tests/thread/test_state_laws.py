"""Laws of a thread's fields: idempotence, order, batching, nothing new, and what is stored, whatever it is."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jianmu.engine.state import StateChange, StateManager
from jianmu.errors import StateWriteError
from jianmu.thread import ThreadState
from jianmu.thread.folds import MAX_DELEGATIONS, MAX_SKILLS
from tests.conftest import FULL

Updates = Sequence[Any]

MORE = 10 if FULL else 1

names = st.sampled_from("abcdef")
texts = st.text(max_size=4)
statuses = st.sampled_from(["pending", "running", "in_progress", "completed", "failed", "cancelled", "timed_out"])
optional: Any = {"created_at": texts, "run_id": texts, "result_brief": texts}
many = st.one_of(names, st.integers(0, 70).map(lambda number: f"n{number}"))
entries: dict[str, Any] = {
    "messages": st.fixed_dictionaries({"id": names, "role": st.just("human"), "content": texts}),
    "artifacts": names,
    "delegations": st.fixed_dictionaries({"id": many, "status": statuses}, optional=optional),
    "skill_context": st.fixed_dictionaries(
        {"name": texts.filter(bool), "path": st.one_of(names, st.integers(0, 9).map(str))},
        optional={"description": st.text(" ab\n", max_size=5), "loaded_at": st.integers()},
    ),
}
images = st.fixed_dictionaries({"mime_type": names, "size": st.integers(0, 9), "actual_path": names})
files = st.fixed_dictionaries({"filename": names, "size": st.just(1), "path": names})
todos = st.fixed_dictionaries({"content": names, "status": st.sampled_from(["pending", "in_progress", "completed"])})
promoted = st.fixed_dictionaries({}, optional={"catalog_hash": st.sampled_from(["h1", "h2"]), "names": st.lists(names)})
writes: dict[str, Any] = {
    **{field: st.lists(one, max_size=5) for field, one in entries.items()},
    "sandbox": st.sampled_from([None, {}, {"sandbox_id": None}, {"sandbox_id": "s", "more": 1}]),
    "todos": st.none() | st.lists(todos, max_size=3),
    "viewed_images": st.none() | st.dictionaries(names, images, max_size=3),
    "promoted": st.none() | promoted,
    "goal": st.none() | st.fixed_dictionaries({"objective": names}),
    "title": st.none() | texts,
    "title_by": st.sampled_from([None, "model", "text", "person"]),
    "summary_text": st.none() | texts,
    "uploaded_files": st.lists(
        st.fixed_dictionaries({"filename": names, "size": st.just(1), "path": names}), max_size=3
    ),
}
NOTHING: dict[str, list[Any]] = {
    "sandbox": [None, {}, {"sandbox_id": None}],
    "artifacts": [None, []],
    "todos": [None],
    "viewed_images": [None, {}],
    "promoted": [None, {}, {"names": ["x"]}],
    "delegations": [None, []],
    "skill_context": [None, []],
    "title_by": [None],
    "messages": [[]],
}


@functools.cache
def state() -> StateManager[ThreadState]:
    """Return a state that all examples share; each of them begins with `fresh`."""
    manager = StateManager(ThreadState)
    manager.attach_store_check()
    return manager


def fresh(stored: dict[str, Any] | None = None) -> StateManager[ThreadState]:
    """Return a state with some fields as they are stored, and the others at their defaults."""
    manager = state()
    manager.load_checkpoint({"version": 1, "fields": stored or {}, "spent": []})
    return manager


def refusal(call: Callable[[], object]) -> StateWriteError | None:
    """Return the error of the state that a call raises, if it does."""
    try:
        call()
    except StateWriteError as error:
        return error
    return None


def after(field: str, updates: Updates, stored: dict[str, Any] | None = None) -> Any:
    """Return what is stored of a field after some writes."""
    manager = fresh(stored)
    for update in updates:
        manager.update({field: update})
    return manager.dump_checkpoint()["fields"][field]


@pytest.mark.parametrize("field", writes)
@settings(max_examples=12 * MORE)
@given(data=st.data())
def test_a_write_repeated_changes_nothing(field: str, data: st.DataObject) -> None:
    """The same write twice is the same as once."""
    *before, last = data.draw(st.lists(writes[field], min_size=1, max_size=5))
    assert after(field, [*before, last, last]) == after(field, [*before, last])


@pytest.mark.parametrize("field", ["sandbox", "artifacts", "promoted", "delegations", "skill_context"])
@settings(max_examples=10 * MORE)
@given(data=st.data())
def test_what_is_known_already_wakes_nothing(field: str, data: st.DataObject) -> None:
    """A repeated write leaves the very value that was there."""
    manager = fresh()
    *before, last = data.draw(st.lists(writes[field], min_size=1, max_size=4))
    for update in (*before, last):
        manager.update({field: update})
    held = manager.read(field)
    manager.update({field: last})
    assert manager.read(field) is held


@pytest.mark.parametrize("field", entries)
@settings(max_examples=12 * MORE)
@given(data=st.data())
def test_entries_may_be_split_into_writes_in_any_way(field: str, data: st.DataObject) -> None:
    """One write of many entries is the same as many writes of one, and as anything between."""
    given = data.draw(st.lists(entries[field], max_size=12))
    cut = data.draw(st.integers(0, len(given)))
    whole = after(field, [given])
    assert after(field, [[one] for one in given]) == whole
    assert after(field, [given[:cut], given[cut:]]) == whole


@settings(max_examples=12 * MORE)
@given(st.lists(st.dictionaries(names, images, max_size=3), max_size=4))
def test_images_may_be_split_into_writes_in_any_way(given: list[dict[str, Any]]) -> None:
    """Images written key by key are the same as written together: the newest by key, in the place of the first."""
    single = [{key: image} for write in given for key, image in write.items()]
    merged: dict[str, Any] = {}
    for write in given:
        merged.update(write)
    for writes in (given, single, [merged]):
        found = after("viewed_images", writes)
        assert (found, list(found)) == (merged, list(merged))


@settings(max_examples=12 * MORE)
@given(st.lists(st.lists(names, max_size=4), max_size=5))
def test_artifacts_of_parallel_writers_are_all_there(given: list[list[str]]) -> None:
    """In whatever order writers come nothing is lost or doubled, and each path is where it came first."""
    there = [path for paths in given for path in paths]
    assert after("artifacts", given) == list(dict.fromkeys(there))
    assert sorted(after("artifacts", given[::-1])) == sorted(set(there))


@settings(max_examples=12 * MORE)
@given(st.lists(entries["delegations"], max_size=12))
def test_a_finished_delegation_stays_finished(given: list[dict[str, Any]]) -> None:
    """After an entry has finished none of its later reports says otherwise; its first `created_at` stays."""
    manager, finished, created = fresh(), set[str](), dict[str, str]()
    for entry in given:
        manager.update({"delegations": [entry]})
        held = {one.id: one for one in manager.get().delegations}
        finished |= {one.id for one in held.values() if one.is_finished}
        assert all(held[id].is_finished for id in finished if id in held)
        for one in held.values():
            assert one.created_at == created.setdefault(one.id, one.created_at or "") or not created[one.id]
            created[one.id] = one.created_at or ""


@settings(max_examples=4 * MORE)
@given(st.lists(st.integers(0, 99), min_size=60, max_size=90))
def test_the_newest_are_kept(given: list[int]) -> None:
    """Of delegations the 50 that were given last, of skills the 8 that were read last."""
    ledger = after("delegations", [[{"id": f"{number}", "status": "running"} for number in range(given[0] + 60)]])
    assert [one["id"] for one in ledger] == [str(number) for number in range(given[0] + 60)][-MAX_DELEGATIONS:]
    read = after("skill_context", [[{"name": "s", "path": f"{number}"} for number in given]])
    newest = list(dict.fromkeys(reversed(given)))[:MAX_SKILLS]
    assert [one["path"] for one in read] == [str(number) for number in reversed(newest)]


@pytest.mark.parametrize("field", NOTHING)
@settings(max_examples=5 * MORE)
@given(data=st.data())
def test_nothing_new_changes_and_wakes_nothing(field: str, data: st.DataObject) -> None:
    """None where it means nothing new, and what is empty, leave the very value that was there, and wake no run."""
    manager, told = fresh(), list[StateChange]()
    for update in data.draw(st.lists(writes[field], max_size=3)):
        manager.update({field: update})
    before = manager.read(field)
    unsubscribe = manager.subscribe(told.append)
    for nothing in NOTHING[field]:
        manager.update({field: nothing})
        assert manager.read(field) is before
    unsubscribe()
    assert [change.wakes for change in told] == [False] * len(told)


@pytest.mark.parametrize("field", writes)
@settings(max_examples=12 * MORE)
@given(data=st.data())
def test_what_is_stored_is_what_is_read_back(field: str, data: st.DataObject) -> None:
    """A field is the same after JSON text, and so is what the next write makes of it."""
    updates = data.draw(st.lists(writes[field], max_size=4))
    *_, next_one = data.draw(st.lists(writes[field], min_size=1, max_size=1))
    stored = json.loads(json.dumps({field: after(field, updates)}))
    assert after(field, [], stored) == stored[field]
    assert after(field, [next_one], stored) == after(field, [*updates, next_one])


keys = st.sampled_from(
    ["id", "status", "path", "name", "names", "catalog_hash", "sandbox_id", "base64", "content", "x"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("field", [*writes, "structured_response"])
@settings(max_examples=15 * MORE)
@given(data=st.data())
def test_whatever_is_stored_is_read_or_refused_by_name(field: str, data: st.DataObject) -> None:
    """Any JSON in the place of a field is loaded, and can be written then, or it is refused with the field's name."""
    stored = data.draw(json_values)
    error = refusal(lambda: fresh({field: stored}))
    if error is not None:
        assert error.field == field
        return
    update = data.draw(writes.get(field, st.none()))
    error = refusal(lambda: state().update({field: update}))
    assert error is None or (field, "ConflictError" in str(error)) == ("sandbox", True)


@pytest.mark.parametrize("field", [*writes, "structured_response"])
@settings(max_examples=12 * MORE)
@given(given=json_values)
def test_whatever_is_written_is_taken_or_refused_whole(field: str, given: object) -> None:
    """Any value in a write is taken, or refused with an error of the state that has changed nothing."""
    manager = fresh()
    before = manager.dump_checkpoint()
    error = refusal(lambda: manager.update({field: given}))
    if error is not None:
        assert error.field == field
        assert manager.dump_checkpoint() == before
