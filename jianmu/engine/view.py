"""The live questions as the state shows them, in its namespace `interaction`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from pydantic import JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.book import Book
from jianmu.engine.record import Record
from jianmu.engine.state.freeze import freeze
from jianmu.engine.state.readonly import NO_HINT


class RuntimeState(Protocol):
    """What questions need of the state: the runtime's own namespaces."""

    def runtime_update(self, namespace: str, updates: Mapping[str, JsonValue], /) -> object:
        """Write keys of a namespace of the runtime."""
        ...


class View:
    """Keeps `suspensions`, `resume_payloads` and `runtime_metadata` up to date.

    Writing tells the state's listeners, so it happens under no lock (when two threads change questions at once,
    one of them shows both changes), and not before there is something to show.
    """

    def __init__(self, state: RuntimeState | None, book: Book) -> None:
        self._state = state
        self._book = book
        self._lock = threading.Lock()
        self._is_stale = False
        self._is_writing = False
        self._rows: dict[str, tuple[Record, JsonObject | None, JsonObject]] = {}

    def refresh(self) -> None:
        """Show the questions as they are now, or leave it to the thread that is at it."""
        if self._state is None or not self._is_mine():
            return
        try:
            while self._takes_turn():
                was_empty, contents = not self._rows, self._contents()
                if self._rows or not was_empty:
                    self._state.runtime_update("interaction", contents)
        except BaseException:
            self._is_writing = False
            raise

    def _is_mine(self) -> bool:
        with self._lock:
            self._is_stale = True
            is_free, self._is_writing = not self._is_writing, True
            return is_free

    def _takes_turn(self) -> bool:
        with self._lock:
            is_due, self._is_stale = self._is_stale, False
            self._is_writing = is_due
            return is_due

    def _contents(self) -> JsonObject:
        live = self._book.live()
        rows = self._rows = {record.id: self._row(record) for record in live}
        return {
            "suspensions": [rows[record.id][1] for record in live if record.status == "open"],
            "resume_payloads": {record.id: record.answer.payload for record in live if record.answer},
            "runtime_metadata": {id: standing for id, (_, _, standing) in rows.items()},
        }

    def _row(self, record: Record) -> tuple[Record, JsonObject | None, JsonObject]:
        """Return what is shown of a record while it is open, and how it stands; made once, and frozen."""
        known = self._rows.get(record.id)
        if known is not None and known[0] is record:
            return known
        is_open = record.status == "open"
        shown = freeze(record.question.model_dump(mode="json"), NO_HINT) if is_open else None
        return record, shown, freeze(_standing(record), NO_HINT)


def _standing(record: Record) -> JsonObject:
    answer = record.answer
    return {
        "status": record.status,
        "source": record.source,
        "why": record.why,
        "action": answer.action if answer else None,
        "by": answer.by if answer else None,
        "steps_taken": record.taken,
    }
