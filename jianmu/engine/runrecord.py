"""The record of a run as a versioned JSON document."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SkipValidation

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import check_thread_id
from jianmu.engine.journal import read_entries
from jianmu.engine.limits import Usage
from jianmu.engine.record import Record, read_records, read_rows
from jianmu.errors import CorruptRecordError, SchemaVersionError

FORMAT = 1

Json = SkipValidation[JsonValue]
"""What was read from a JSON text, and needs no look at each of its values."""


class StateRecord(BaseModel):
    """A state, as `StateManager.dump_checkpoint()` gives it."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    version: int
    fields: dict[str, Json]
    spent: list[str]


class RunRecord(BaseModel):
    """All that a run needs to go on in another process.

    Attributes:
        format: the version of this document's form.
        schema_version: the version of the state's schema, where one was given.
        fingerprint: of the tree that wrote it.
        thread_id: the thread.
        run: the number of the run in its thread.
        status: how the thread stands.
        error: type, text and path of what ended the run.
        state: of the agent.
        inner: the states of agents inside of this one, by path.
        position: where the tree stands.
        questions: as `InteractionController.dump()` gives them; those that were read are in `records` alone.
        journal: as `Journal.dump()` gives it.
        usage: what was counted against the limits.
        asked: by the paths of loops, the most questions that one identity had in their closed rounds.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    format: int = FORMAT
    schema_version: int | None = None
    fingerprint: str
    thread_id: str
    run: int
    status: str
    error: dict[str, str | None] | None = None
    state: StateRecord | None = None
    inner: dict[str, StateRecord] = Field(default_factory=dict)
    position: Json = None
    questions: dict[str, Json] = Field(default_factory=lambda: {"records": []})
    journal: dict[str, Json] = Field(default_factory=lambda: {"entries": []})
    usage: Usage = Field(default_factory=Usage)
    asked: dict[str, int] = Field(default_factory=dict[str, int])

    @property
    def records(self) -> list[Record]:
        """Its questions, read once.

        Raises:
            CorruptRecordError: one of them cannot be read.
        """
        of, records = vars(self).get("read", (None, []))
        return records if of is self.questions else self.keep_read(read_records(self.questions))

    def keep_read(self, records: list[Record]) -> list[Record]:
        """Spare reading the questions: they are these. A copy with other questions does not have them."""
        vars(self)["read"] = self.questions, records
        return records

    def dump(self) -> JsonObject:
        """Return the record as JSON."""
        questions: JsonObject = {"records": [one.model_dump(mode="json") for one in self.records]}
        return {**self.model_dump(mode="json"), "questions": questions}


def load(data: object, *, schema_version: int | None = None) -> RunRecord:
    """Return the record that `dump` has written, its questions and journal checked too.

    Args:
        data: the JSON document.
        schema_version: the version of the schema that is to read it.

    Raises:
        SchemaVersionError: it was written by a newer jianmu, or with a newer schema.
        CorruptRecordError: it is no such document.
    """
    if not isinstance(data, dict):
        raise CorruptRecordError(f"a checkpoint is a JSON object, not {type(data).__name__}")
    fields = cast("dict[str, object]", data)
    _refuse_newer("checkpoint's form", fields.get("format"), FORMAT)
    record = read_rows("record", RunRecord, [fields])[0]
    record.keep_read(read_records(record.questions))
    return _checked(record, schema_version)


def made(fields: JsonObject, questions: list[Record], *, schema_version: int | None = None) -> RunRecord:
    """Return the record that was made of a store's rows: of JSON that was read, and questions that were checked.

    Raises:
        SchemaVersionError: it was written with a newer schema.
        CorruptRecordError: the rows do not fit together.
    """
    record = read_rows("record", RunRecord, [fields], is_json=True)[0]
    record.keep_read(questions)
    return _checked(record, schema_version)


def _checked(record: RunRecord, schema_version: int | None) -> RunRecord:
    _refuse_newer("state's schema", record.schema_version, schema_version or 0)
    check_thread_id(record.thread_id)
    read_entries(record.journal)
    return record


def _refuse_newer(what: str, found: object, known: int) -> None:
    if isinstance(found, int) and found > known:
        knows = f"knows {known}: update it" if known else f"names none: write Agent(version={found}), or update it"
        raise SchemaVersionError(f"the {what} is of version {found}, and this program {knows}")
