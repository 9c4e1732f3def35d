"""The inputs of a thread: the one that its run began with, and those that wait for their turn."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any  # Any: any schema

from pydantic_core import to_jsonable_python

from jianmu.engine.answers import JsonObject, json_text
from jianmu.engine.checkpoint import Row
from jianmu.engine.log import log
from jianmu.engine.questionrows import text_of
from jianmu.engine.state import StateManager
from jianmu.errors import InputError, StateError


def queued_row(values: Mapping[str, object], id: str | None) -> Row:
    """Return the row of an input that waits for its turn.

    Raises:
        InputError: it is no JSON.
    """
    try:
        return Row("input", id or uuid.uuid4().hex, json_text({"input": to_jsonable_python(dict(values))}))
    except ValueError as error:
        problem = str(error)
    raise InputError(f"an input that is queued has to be JSON: {problem}", path="input")


class Inputs:
    """The inputs of the thread that is held.

    Args:
        put: has a row written with the next commit, `is_done` or to be found again.

    Attributes:
        queued: those that wait for their turn, the oldest first.
        may_apply: whether it is their turn in the run that is on: its last question was done with.
    """

    def __init__(self, put: Callable[..., None]) -> None:
        self.queued: list[Row] = []
        self.may_apply = False
        self._applied: list[Row] = []
        self._put = put

    def take_over(self, rows: Iterable[Row]) -> None:
        """Go on with the inputs that the store has, the oldest first."""
        inputs = [row for row in rows if row.kind == "input"]
        self.queued = [row for row in inputs if not row.came]
        self._applied = [row for row in inputs if row.came]

    def begin(self, id: str | None, run: int) -> None:
        """Note the input that a run begins with."""
        self._applied.clear()
        self.may_apply = False
        if id is not None:
            self._note(Row("input", id, text_of({"run": run})))

    def end(self, outcome: Callable[[], JsonObject]) -> None:
        """Keep the outcome of the run with the inputs that it was given."""
        told = outcome() if self._applied else {}
        for row in self._applied:
            body = {**json.loads(row.body), "outcome": told}
            self._put(replace(row, body=text_of(body)), is_done=True)
        self._applied.clear()

    def apply(self, manager: StateManager[Any], run: int) -> None:
        """Write the input whose turn it is; one that the state refuses is passed over, and told."""
        row = self.queued.pop(0)
        try:
            values = json.loads(row.body)["input"]
            manager.check_input(values)
            manager.update(values, _writer="input")
        except (StateError, ValueError, LookupError) as error:
            log.warning("a queued input was refused", input=row.id, error=type(error).__name__)
        self._note(replace(row, body=text_of({"run": run})))

    def _note(self, row: Row) -> None:
        self._applied.append(row)
        self._put(row)
