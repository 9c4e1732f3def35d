"""A question with all that has become of it, as one frozen record."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, cast  # Any: changed values of a record

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from jianmu.engine.answers import json_text
from jianmu.engine.questions import ENDS, Answer, Origin, QuestionStatus, Step, Suspension
from jianmu.engine.state.freeze import instance
from jianmu.engine.tree import name_in
from jianmu.errors import CorruptRecordError, JianmuError

Row = TypeVar("Row", bound=BaseModel)


class Record(BaseModel):
    """A question with all that has become of it.

    Attributes:
        question: what is shown.
        origin: where it comes from.
        count: how many were asked under the same identity before.
        steps: what is done at its deadlines.
        taken: how many of these were carried out.
        asked_at: when it was asked, UTC.
        answer: the answer, of a person or of the deadline.
        ended_at: when it left `open`, UTC.
        source: what ended it: a person, its deadline, or the tree, which halted the node.
        why: the reason of an end without an answer.
        consumed_at: when the run delivered it to its node, UTC.
        unused: whether it ended and the node was halted before it was told.
        private: as in the request.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    question: Suspension
    origin: Origin
    count: int
    steps: tuple[Step, ...] = ()
    taken: int = 0
    asked_at: datetime
    answer: Answer | None = Field(default=None, repr=False)
    ended_at: datetime | None = None
    source: Literal["person", "deadline", "tree"] | None = None
    why: str | None = None
    consumed_at: datetime | None = None
    unused: bool = False
    private: JsonValue = Field(default=None, repr=False)

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id

    @property
    def status(self) -> QuestionStatus:
        """How the question stands."""
        return self.question.status

    @property
    def is_live(self) -> bool:
        """Whether somebody still waits: for an answer, or for its delivery."""
        return self.consumed_at is None and not self.unused

    @property
    def next_at(self) -> datetime | None:
        """When its next step is due, or None if none is left or it is not open."""
        if self.status != "open" or self.taken == len(self.steps):
            return None
        return self.asked_at + timedelta(seconds=math.fsum(step.after for step in self.steps[: self.taken + 1]))

    @property
    def refusal(self) -> str | None:
        """Why its node gets no payload, or None if it gets one."""
        if self.answer is not None and self.answer.action == "accept":
            return None
        if self.answer is None:
            return self.why or self.status
        told = f": {self.answer.payload}" if isinstance(self.answer.payload, str) else ""
        return f"{'declined' if self.answer.action == 'decline' else 'cancelled'}{told}"

    def is_over(self, now: datetime) -> bool:
        """Whether an open question's deadline has passed, though nobody has moved it yet."""
        ends = self.question.expires_at
        return self.status == "open" and ends is not None and ends <= now

    @property
    def shown(self) -> Suspension:
        """The question, with what is private for programs that look at the attribute."""
        return self.question if self.private is None else self.question.model_copy(update={"private": self.private})

    def with_question(self, **changes: Any) -> Record:
        """Return the record with something changed in what is shown."""
        return self.changed(question=_changed(self.question, changes))

    def renamed(self, rename: Callable[[str], str]) -> Record:
        """Return the record at the place that its node has today; a key that was the node's name still is."""
        if rename is str:
            return self
        origin, key = self.origin.renamed(rename), self.question.key
        if origin == self.origin:
            return self
        if origin.path != self.origin.path and key == name_in(self.origin.path):
            key = name_in(origin.path)
        return self.changed(origin=origin).with_question(path=origin.path, key=key)

    def ended(self, status: QuestionStatus, **changes: Any) -> Record:
        """Return the record with its question at an end of the table."""
        if status not in ENDS[self.status]:
            raise ValueError(f"a question goes from open to {status}, not from {self.status}")
        return self.changed(question=_changed(self.question, {"status": status}), **changes)

    def changed(self, **changes: Any) -> Record:
        """Return the record with something changed in it."""
        return _changed(self, changes)


def _changed(model: Row, changes: dict[str, Any]) -> Row:
    """Return a frozen model with some of its values changed, as `model_copy` would, in half the time."""
    fields_set = model.__pydantic_fields_set__ | changes.keys()
    return cast("Row", instance(type(model), {**model.__dict__, **changes}, fields_set, None, None))


def ends_at(asked_at: datetime, steps: Sequence[Step]) -> datetime | None:
    """Return when a question with these steps ends by itself, or None."""
    if not steps or steps[-1].kind == "escalate":
        return None
    return asked_at + timedelta(seconds=math.fsum(step.after for step in steps))


def read_records(data: object) -> list[Record]:
    """Return the records of a dump; those that were read are as they are.

    Raises:
        CorruptRecordError: it is no such dump.
    """
    if isinstance(data, list):
        return cast("list[Record]", data)
    rows = cast("dict[str, object]", data).get("records") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise CorruptRecordError("the questions of a checkpoint are no list of records")
    return read_rows("question", Record, cast("list[object]", rows))


def read_rows(what: str, model: type[Row], rows: Sequence[object], *, is_json: bool = False) -> list[Row]:
    """Return the rows of a dump as models; a fault is told by its place, without values.

    Args:
        what: what they are.
        model: the model.
        rows: the rows.
        is_json: whether they came from a JSON text as they are, and have only types that JSON has.
    """
    found: list[Row] = []
    for number, row in enumerate(rows):
        try:
            if is_json:
                found.append(model.model_validate(row))
            else:
                found.append(model.model_validate_json(json_text(row), strict=True))
        except ValidationError as error:
            problem = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        except (ValueError, JianmuError) as error:
            problem = str(error)
        else:
            continue
        raise CorruptRecordError(f"{what} number {number} of a checkpoint cannot be read: {problem}")
    return found
