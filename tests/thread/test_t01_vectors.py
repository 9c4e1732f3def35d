"""T01: every vector of a thread's fields, each of its writes as one `update`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from jianmu.engine.state import Clear, Remove, Replace, StateManager
from jianmu.errors import StateWriteError
from jianmu.thread import ThreadState

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("thread_state_vectors.json").read_text(encoding="utf-8")
)
CASES = [pytest.param(field, case, id=case["id"]) for field, cases in VECTORS.items() for case in cases]
SAYS = {"conflict": "ConflictError", "type": "_type|missing", "unknown_id": "a key that is not there"}


def written(update: Any) -> Any:
    """Return a write of a vector as a value of `update`."""
    match update:
        case {"op": "replace", "value": value}:
            return Replace(value)
        case {"op": "clear"}:
            return Clear()
        case {"op": "remove", "keys": keys}:
            return Remove(*keys)
        case _:
            return update


def held(manager: StateManager[ThreadState], field: str) -> Any:
    """Return a field as JSON; of messages what the vectors speak of."""
    value = to_jsonable_python(manager.read(field))
    known = ("id", "role", "content")
    return [{key: message[key] for key in known} for message in value] if field == "messages" else value


def same(found: Any, wanted: Any, field: str) -> bool:
    """Whether a field is as a vector wants it, the order of keys included; `*` is any id."""
    if field == "messages" and wanted[-1:] and wanted[-1]["id"] == "*":
        wanted = [*wanted[:-1], {**wanted[-1], "id": found[-1]["id"] or "none"}]
    return json.dumps(found) == json.dumps(wanted)


@functools.cache
def state(name: str) -> StateManager[ThreadState]:
    """Return a state that all vectors share; each of them fills it anew."""
    manager = StateManager(ThreadState)
    manager.attach_store_check()
    return manager


def started(field: str, existing: Any, way: str) -> StateManager[ThreadState]:
    """Return a state in which a field holds what a vector says: stored before, or given to `initialize`."""
    manager = state(way)
    if way == "initialized" or field == "thread_data":  # which is not stored
        manager.initialize({field: existing})
    else:
        manager.load_checkpoint({"version": 1, "fields": {field: existing}, "spent": []})
    return manager


@pytest.mark.parametrize("way", ["stored", "initialized"])
@pytest.mark.parametrize(("field", "case"), CASES)
def test_t01_vector(field: str, case: dict[str, Any], way: str) -> None:
    """T01: the field is `result`, or the last write is refused with the error named and has changed nothing."""
    manager = started(field, case["existing"], way)
    *firsts, last = case["updates"]
    for update in firsts:
        manager.update({field: written(update)}, _writer="tree/first")
    if "error" in case:
        before, version = held(manager, field), manager.version
        with pytest.raises(StateWriteError, match=SAYS[case["error"]]) as caught:
            manager.update({field: written(last)}, _writer="tree/last")
        assert caught.value.field == field
        assert f"field '{field}'" in str(caught.value)
        assert "writer 'tree/last'" in str(caught.value)
        assert (held(manager, field), manager.version) == (before, version)
        return
    manager.update({field: written(last)}, _writer="tree/last")
    assert same(held(manager, field), case["result"], field)


@pytest.mark.parametrize(("field", "case"), [case for case in CASES if case.values[0] != "thread_data"])
def test_t01_vector_is_the_same_after_a_restart(field: str, case: dict[str, Any]) -> None:
    """T01: what a vector leaves, minted ids included, is what is read back from JSON text."""
    manager, other = started(field, case["existing"], "stored"), state("restarted")
    for update in case["updates"] if "result" in case else ():
        manager.update({field: written(update)})
    other.load_checkpoint(json.loads(json.dumps(manager.dump_checkpoint())))
    assert other.read(field) == manager.read(field)
