"""The live questions as the state shows them, in its namespace `interaction`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from pydantic import JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.book import Book
from jianmu.engine.record import Record


class RuntimeState(Protocol):
    """What questions need of the state: the runtime's own namespaces."""

    def runtime_update(self, namespace: str, updates: Mapping[str, JsonValue], /) -> object:
        """Write keys of a namespace of the runtime."""
        ...


class View:
    """Keeps `suspensions`, `resume_payloads` and `runtime_metadata` up to date.

    Writing tells the state's listeners, so it happens under no lock: when two threads change questions
    at once, one of them shows both changes.
    """

    def __init__(self, state: RuntimeState | None, book: Book) -> None:
        self._state = state
        self._book = book
        self._lock = threading.Lock()
        self._is_stale = False
        self._is_writing = False

    def refresh(self) -> None:
        """Show the questions as they are now, or leave it to the thread that is at it."""
        if self._state is None or not self._is_mine():
            return
        try:
            while self._takes_turn():
                self._state.runtime_update("interaction", self._contents())
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
        return {
            "suspensions": [record.question.model_dump(mode="json") for record in live if record.status == "open"],
            "resume_payloads": {record.id: record.answer.payload for record in live if record.answer},
            "runtime_metadata": {record.id: _standing(record) for record in live},
        }


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
