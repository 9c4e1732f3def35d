"""A thread that was saved with an older version of its schema, made one of today's."""

from __future__ import annotations

import json
from typing import Any, cast  # Any: JSON

from pydantic import BaseModel

from jianmu.engine.answers import JsonObject, json_text
from jianmu.engine.journal import read_entries
from jianmu.engine.record import read_records
from jianmu.engine.runrecord import RunRecord, StateRecord
from jianmu.engine.state.versions import Migration, Saved, steps_between
from jianmu.errors import CorruptRecordError, SchemaVersionError

FIRST = 1
"""The version of what was saved without one."""


def migrate(schema: type[BaseModel], record: RunRecord, version: int | None) -> RunRecord:
    """Return the record of a thread as a later version of its schema would have saved it; nothing is changed.

    Args:
        schema: the state's schema, with its migrations.
        record: the thread.
        version: the version of the schema; None: it has none, and nothing is migrated.

    Raises:
        SchemaError: the schema has two migrations for one step.
        SchemaVersionError: the record has a later version, a step is missing, or one of them raised or returned
            something that is no thread.
    """
    saved_with = FIRST if record.schema_version is None else record.schema_version
    if version is None or saved_with == version:
        return record
    if saved_with > version:
        text = f"the state's schema is of version {saved_with}, and this program knows {version}: update it"
        raise SchemaVersionError(text)
    saved: Saved = {
        "state": {} if record.state is None else record.state.fields,
        "questions": [one.model_dump(mode="json") for one in record.records],
        "journal": record.journal["entries"],
    }
    if record.inner:
        saved["inner"] = {path: state.fields for path, state in record.inner.items()}
    for step in steps_between(schema, saved_with, version):
        saved = _carried_out(schema, step, saved)
    return _record_of(record, saved, version)


def _carried_out(schema: type[BaseModel], step: Migration, saved: Saved) -> Saved:
    """Return what a step makes of a copy of what was saved."""
    name = f"the migration from version {step.start} to {step.end}, {schema.__name__}.{step.name}"
    try:
        made: Any = step.fn(json.loads(json_text(saved)))
    except Exception as error:
        raise SchemaVersionError(f"{name}, raised {type(error).__name__}; nothing was changed") from error
    problem = _problem(saved, made)
    if problem is not None:
        raise SchemaVersionError(f"{name}, returned {problem}: it has to return what it was given, changed")
    return made


def _problem(saved: Saved, made: Any) -> str | None:
    """Return what is wrong with what a step has returned, or None."""
    if _shape(made) != _shape(saved):
        return "another shape"
    try:
        json_text(made)
        read_records({"records": made["questions"]})
        read_entries({"entries": made["journal"]})
    except (ValueError, CorruptRecordError) as error:
        return str(error)
    return None


def _shape(saved: Any) -> list[dict[Any, str]]:
    """Return what a step must not change: the keys, and what kind of thing each holds."""
    inner: Any = cast("Saved", saved).get("inner") if isinstance(saved, dict) else saved
    parts = [
        cast("Saved", each) if isinstance(each, dict) else {"": each} for each in cast("list[Any]", [saved, inner])
    ]
    return [{name: type(part).__name__ for name, part in each.items()} for each in parts]


def _record_of(record: RunRecord, saved: Saved, version: int) -> RunRecord:
    inner = {path: _state_of(state, saved["inner"][path]) for path, state in record.inner.items()}
    return record.model_copy(
        update={
            "schema_version": version,
            "state": None if record.state is None else _state_of(record.state, saved["state"]),
            "inner": inner,
            "questions": {"records": saved["questions"]},
            "journal": {"entries": saved["journal"]},
        }
    )


def _state_of(state: StateRecord, fields: JsonObject) -> StateRecord:
    """Return a state with other fields; what they called spent may be no field any more."""
    spent = [name for name in state.spent if name in fields]
    return state.model_copy(update={"fields": fields, "spent": spent})
