"""One point of a thread's log: what a body adds to it, and the record of a run that is made of it.

A body of the log, and a snapshot too, is a JSON object with some of these keys; a snapshot has all that are set:

- `time`: when it was written; `what`: what for.
- `state`, `inner`: whole states, of the agent and by path of the agents inside of it.
- `v`, `s`: the version after some deltas of the state, and these; `i`: the same by path of the agents inside.
- `tree`: the id of the row with the tree's paths, and with it a position from nothing; None: there is no position.
- `pass`, `nodes`: a number larger than those of all passes, and what each changed node keeps (None: it is as new).
- `run`, `status`, `error`, `usage`, `asked`, `schema`, `fingerprint`: as in `RunRecord`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast  # Any: JSON

from pydantic import JsonValue
from pydantic_core import from_json

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Stored
from jianmu.engine.positions import whole
from jianmu.engine.questionrows import record_of, text_of
from jianmu.engine.runrecord import RunRecord, made
from jianmu.engine.state import Delta, fold
from jianmu.errors import CorruptRecordError

KEPT = ("run", "status", "error", "usage", "asked", "schema", "fingerprint", "pass")
"""What a body replaces."""


@dataclass
class Point:
    """What a log has come to at one of its numbers.

    Attributes:
        values: what is kept of the run itself, by key.
        states: checkpoints of states, that of the agent under the empty path.
        tree: the id of the tree's row, or None: no position.
        nodes: what nodes keep, by number.
    """

    values: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    states: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    tree: str | None = None
    nodes: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    def body(self) -> str:
        """Return the point as the body of a snapshot."""
        states = dict(self.states)
        own = {"state": states.pop("", None), "inner": states}
        return text_of({**self.values, **own, "tree": self.tree, "nodes": self.nodes})


def point_of(bodies: Iterable[str]) -> Point:
    """Return what a snapshot and the bodies after it come to, or bodies from the beginning of a log.

    Raises:
        CorruptRecordError: one of them cannot be read.
    """
    point, deltas = Point(), dict[str, list[Delta]]()
    versions: dict[str, int] = {}
    try:
        for text in bodies:
            body = body_of(text)
            point.values.update({key: body[key] for key in KEPT if key in body})
            _take_states(point, deltas, body)
            for path, (version, changes) in _changes(body):
                deltas.setdefault(path, []).extend(map(Delta.from_json, changes))
                versions[path] = version
            if "tree" in body:
                point.tree, point.nodes = body["tree"], {}
            _take_nodes(point.nodes, body.get("nodes") or {})
        for path, found in deltas.items():
            point.states[path] = fold(point.states[path], found, versions.get(path))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        problem = type(error).__name__
    else:
        return point
    raise CorruptRecordError(f"the log of a thread cannot be read ({problem}): it was changed by something else")


def body_of(text: str) -> Any:
    """Return a body of the log, or of a snapshot; what a state has is nested deeper in it than pydantic-core reads."""
    try:
        return from_json(text)
    except ValueError as error:
        if "recursion" not in str(error):
            raise
    return json.loads(text)


def _take_states(point: Point, deltas: dict[str, list[Delta]], body: dict[str, Any]) -> None:
    """Begin anew with the whole states of a body."""
    wholes: dict[str, Any] = {**(body.get("inner") or {}), **({"": body["state"]} if body.get("state") else {})}
    for path, state in wholes.items():
        point.states[path] = state
        deltas.pop(path, None)


def _changes(body: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    yield from ([("", (body["v"], body["s"]))] if "s" in body else [])
    yield from (body.get("i") or {}).items()


def _take_nodes(nodes: dict[str, JsonValue], changed: Mapping[str, JsonValue]) -> None:
    for number, entry in changed.items():
        if entry is None:
            nodes.pop(number, None)
        else:
            nodes[number] = entry


def stored_point(stored: Stored) -> Point:
    """Return the point that a thread was read at."""
    bodies = [body for _, body in stored.log]
    return point_of(bodies if stored.snapshot is None else [stored.snapshot.body, *bodies])


def run_record(stored: Stored, point: Point | None = None, *, schema_version: int | None = None) -> RunRecord:
    """Return the record of a run as the rows of a store have it.

    Args:
        stored: the rows.
        point: what their log has come to, where that is known.
        schema_version: the version of the schema that is to read it.

    Raises:
        CorruptRecordError: they do not fit together.
        SchemaVersionError: they were written by a newer jianmu, or with a newer schema.
    """
    point = point or stored_point(stored)
    values, states = point.values, dict(point.states)
    questions = [record_of(row) for row in stored.questions]
    record: dict[str, Any] = {
        "schema_version": values.get("schema"),
        "fingerprint": values.get("fingerprint", ""),
        "thread_id": stored.thread.thread_id,
        "run": values.get("run", 0),
        "status": "interrupted" if values.get("status") == "running" else values.get("status", "new"),
        "error": values.get("error"),
        "state": states.pop("", None),
        "inner": states,
        "position": _position(stored, point),
        "journal": {"entries": [_loaded(row.body) for row in stored.rows if row.kind == "effect"]},
        "usage": values.get("usage") or {},
        "asked": values.get("asked") or {},
    }
    return made(record, questions, schema_version=schema_version)


def _position(stored: Stored, point: Point) -> JsonValue:
    if point.tree is None:
        return None
    body = next((row.body for row in stored.rows if row.kind == "tree" and row.id == point.tree), None)
    if body is None:
        raise CorruptRecordError("the tree of a position is not in the store", thread_id=stored.thread.thread_id)
    return whole(body, point.nodes, cast("int", point.values.get("pass", 0)))


def _loaded(text: str) -> JsonObject:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    raise CorruptRecordError("a row of a thread is no JSON: it was changed by something else")
