"""The record of a run as a versioned JSON document, and the Protocol of a store (STUB of the API)."""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from jianmu.engine.answers import JsonObject

FORMAT = 1


def check_thread_id(thread_id: object) -> str:
    """Return the thread id, or raise StoreError: 1 to 512 characters, no NUL, no lone surrogates."""
    ...


class RunRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    schema_version: int | None = None
    fingerprint: str
    thread_id: str
    run: int
    status: str                                     # suspended | interrupted | finished | failed ... (the lead's words)
    error: dict[str, str] | None = None             # type, text, path
    state: JsonObject = Field(default_factory=dict)
    position: Any = None
    questions: JsonObject = Field(default_factory=dict)
    journal: JsonObject = Field(default_factory=dict)
    usage: JsonObject = Field(default_factory=dict)

    def dump(self) -> JsonObject: ...


def load(data: object, *, schema_version: int | None = None) -> RunRecord:
    """Return the record; SchemaVersionError for a newer one, CorruptRecordError for garbage."""
    ...


class Checkpointer(Protocol):
    async def save(self, thread_id: str, record: JsonObject) -> None: ...
    async def load(self, thread_id: str) -> JsonObject | None:
        """Return the record last saved, or None."""
        ...
