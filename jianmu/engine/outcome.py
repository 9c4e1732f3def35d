"""How a call ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from py_trees.common import Status
from pydantic import BaseModel, ConfigDict

from jianmu.engine.answers import JsonObject
from jianmu.engine.questions import Suspension


class Outcome(BaseModel):
    """How a run stands when `run_until_suspend` or `resume` returns.

    Attributes:
        status: the root's status; RUNNING when suspended or stalled, INVALID when halted or out of limits.
        output: the fields of the state that are not hidden.
        thread_id: the thread.
        suspended: whether the run waits for answers.
        suspensions: the open questions, the oldest first.
        limit: the name of the limit that ended the run, or None.
        stalled: whether nothing but a write from outside could wake the tree.
        wake_at: the earliest deadline of the open questions, UTC, or None.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, arbitrary_types_allowed=True)

    status: Status
    output: dict[str, Any]  # Any: the schema's own types
    thread_id: str
    suspended: bool = False
    suspensions: tuple[Suspension, ...] = ()
    limit: str | None = None
    stalled: bool = False
    wake_at: datetime | None = None

    def as_json(self, fields: JsonObject) -> JsonObject:
        """Return the outcome of a run that has ended, as it is kept with its input; `fields` is the output as JSON."""
        told = self.model_dump(mode="json", include={"thread_id", "limit"})
        return {**told, "status": self.status.name, "output": fields}

    @classmethod
    def of_json(cls, kept: JsonObject) -> Outcome:
        """Return an outcome that `as_json` has made; its output is JSON."""
        return cls.model_validate({**kept, "status": Status[str(kept["status"])]})


def waiting_outcome(thread_id: str) -> Outcome:
    """Return the outcome for an input that waits for its turn."""
    return Outcome(status=Status.RUNNING, output={}, thread_id=thread_id, suspended=True)
