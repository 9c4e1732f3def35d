"""What happened in a run, as typed records, and the hub that numbers and hands them out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from py_trees.common import Status
from pydantic import BaseModel, ConfigDict

from jianmu.engine.clock import Clock
from jianmu.engine.outcome import Outcome
from jianmu.engine.questions import Suspension


class Event(BaseModel):
    """The base of all events; subclass it for your own and give it to `emit`.

    Attributes:
        seq: the event's number in its thread, without gaps.
        time: when it happened, UTC.
        thread_id: the thread.
        run: the number of the run in its thread.
        path: the node's path, or None where the whole run is meant.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, arbitrary_types_allowed=True)

    seq: int = 0
    time: datetime | None = None
    thread_id: str = ""
    run: int = 0
    path: str | None = None


PLACE = ("seq", "time", "thread_id", "run", "path")


class RunStarted(Event):
    """A run began, or goes on after an answer (`resumed`)."""

    resumed: bool = False


class PassStarted(Event):
    """A pass over the tree begins."""

    number: int


class NodeStarted(Event):
    """A node that was not RUNNING is ticked."""


class NodeFinished(Event):
    """A node returned SUCCESS or FAILURE."""

    status: Status
    feedback: str = ""


class NodeHalted(Event):
    """A node was set to INVALID before it had finished."""


class CleanupFailed(Event):
    """The cleanup of a halted node, or its `terminate`, raised or did not end in time."""

    reason: str


class StateChanged(Event):
    """A commit changed the state; values are read from the state itself."""

    version: int
    fields: tuple[str, ...]
    changed: tuple[str, ...]
    writer: str | None = None


class Token(Event):
    """A piece of text that a model has sent.

    Attributes:
        text: the piece.
        count: how many pieces it is made of, merged for a reader that lags.
        kind: whether it is of the answer or of the reasoning before it.
    """

    text: str
    count: int = 1
    kind: Literal["text", "reasoning"] = "text"


class Retried(Event):
    """A request to a model has failed and is sent again: what `Token` has told of its reply is void.

    Attributes:
        reason: why it failed.
        wait: seconds until it is sent again.
        model: who is asked then.
    """

    reason: str
    wait: float = 0.0
    model: str = ""


class ToolCalled(Event):
    """A tool is called."""

    call_id: str
    name: str
    arguments: dict[str, Any]  # Any: JSON


class ToolReturned(Event):
    """A tool has returned or failed."""

    call_id: str
    name: str
    is_error: bool = False


class Asked(Event):
    """A question was asked."""

    suspension: Suspension


class Answered(Event):
    """A question was answered, has expired or was withdrawn.

    Attributes:
        id: the question's id.
        status: answered, expired or withdrawn.
        by: who answered, where that was said.
        used: False for an answer that came too late for the node that asked.
    """

    id: str
    status: str
    by: str | None = None
    used: bool = True


class Saved(Event):
    """All events before this one are in the store."""


class Stalled(Event):
    """Nothing can wake the tree any more but a write from outside."""

    paths: tuple[str, ...]


class HotLoop(Event):
    """Ten passes in a row were each woken only by a write made during the pass before."""


class RunEnded(Event):
    """The run's last event."""

    outcome: Outcome


class Events:
    """Numbers events and hands them to its sinks, one at a time; safe from every thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sinks: list[Callable[[Event], None]] = []
        self.seq = 0
        self.thread_id = ""
        self.run = 0

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens; without listeners no event is made."""
        return bool(self._sinks)

    def add(self, sink: Callable[[Event], None]) -> Callable[[], None]:
        """Have `sink` called with each event, under a lock: it must be quick and not block."""
        with self._lock:
            self._sinks = [*self._sinks, sink]
        return lambda: self._remove(sink)

    def _remove(self, sink: Callable[[Event], None]) -> None:
        with self._lock:
            self._sinks = [other for other in self._sinks if other is not sink]

    def emit(self, event: Event, path: str | None = None) -> None:
        """Fill in number, time and place of an event and hand it out."""
        if not self._sinks:
            return
        with self._lock:
            self.seq += 1
            full = _placed(event, (self.seq, self._clock.utc(), self.thread_id, self.run, path))
            for sink in self._sinks:
                sink(full)


def _placed(event: Event, place: tuple[object, ...]) -> Event:
    """Return an event with its place; as `model_copy` would, in a third of the time: there is one for each token."""
    full, put, private = object.__new__(type(event)), object.__setattr__, event.__pydantic_private__
    put(full, "__dict__", {**event.__dict__, **dict(zip(PLACE, place, strict=True))})
    put(full, "__pydantic_fields_set__", event.__pydantic_fields_set__ | {*PLACE})
    put(full, "__pydantic_extra__", event.__pydantic_extra__)
    put(full, "__pydantic_private__", private and {**private})
    return full
