"""The live questions as the state shows them, in its namespace `interaction`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from pydantic import JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.book import Book
from jianmu.engine.record import Record
from jianmu.engine.state.freeze import freeze
from jianmu.engine.state.readonly import NO_HINT

NAMES = ("interaction.suspensions", "interaction.resume_payloads", "interaction.runtime_metadata")


class RuntimeState(Protocol):
    """What questions need of the state: the runtime's own namespaces."""

    def runtime_show(
        self, namespace: str, names: tuple[str, ...], show: Callable[[], Mapping[str, JsonValue]], /
    ) -> object:
        """Have a namespace of the runtime made when it is read, and tell that these full names have changed."""
        ...


class View:
    """Shows `suspensions`, `resume_payloads` and `runtime_metadata`: made when they are looked at.

    Telling that they have changed calls the state's listeners, so it happens under no lock, and not before there is
    something to show.

    Args:
        state: shows them, if there is one.
        book: the questions.
        hidden: the ids of those that are not shown yet.
    """

    def __init__(self, state: RuntimeState | None, book: Book, hidden: Collection[str]) -> None:
        self._state = state
        self._book = book
        self._hidden = hidden
        self._is_empty = True
        self._rows: dict[str, tuple[Record, JsonObject | None, JsonObject]] = {}

    def refresh(self) -> None:
        """Tell that the questions have changed."""
        was_empty, self._is_empty = self._is_empty, self._book.is_quiet
        if self._state is not None and not (was_empty and self._is_empty):
            self._state.runtime_show("interaction", NAMES, self._contents)

    def _contents(self) -> JsonObject:
        live = [record for record in self._book.live() if record.id not in self._hidden]
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
