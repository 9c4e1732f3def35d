"""What events say in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py_trees.common import Status

from jianmu.draw.outline import MARKS, one_line
from jianmu.engine.events import (
    Answered,
    Asked,
    CleanupFailed,
    Event,
    HotLoop,
    NodeFinished,
    NodeHalted,
    NodeStarted,
    PassStarted,
    RunEnded,
    RunStarted,
    Saved,
    Stalled,
    StateChanged,
    Token,
    ToolCalled,
    ToolReturned,
)

SILENT = (RunStarted, PassStarted, NodeStarted, StateChanged, Token, Saved, RunEnded)
QUESTIONS = (Asked, Answered)
ROUTINE = (NodeFinished, NodeHalted, *QUESTIONS)
FRAME = frozenset(Event.model_fields)


class Note(Event):
    """An event that is told in its own words."""

    text: str


class Teller:
    """Turns the events of a run into lines, and keeps count of the passes.

    A node is told when it has finished after a wait, or with another result than the last time: the
    nodes that a reactive tree asks again in each pass are told once.

    Args:
        silent: kinds of events of which nothing is told.
    """

    def __init__(self, silent: tuple[type[Event], ...] = ()) -> None:
        self.passes = 0
        self._silent = (*SILENT, *silent)
        self._since: dict[str, int] = {}
        self._last: dict[str, tuple[Status, str]] = {}
        self._paths: dict[str, str] = {}

    def line(self, event: Event) -> str | None:
        """Return what an event says, or None if it is not worth a line."""
        if isinstance(event, PassStarted):
            self.passes += 1
        path = event.path or ""
        if isinstance(event, NodeStarted):
            self._since[path] = self.passes
        if isinstance(event, self._silent):
            return None
        if isinstance(event, (NodeFinished, NodeHalted)):
            return self._node(event, path)
        return one_line(self._other(event, path))

    def _node(self, event: NodeFinished | NodeHalted, path: str) -> str | None:
        """Return the line of a node that has ended."""
        since = self._since.pop(path, None)
        has_waited = since is not None and since < self.passes
        if isinstance(event, NodeHalted):
            return one_line(f"{MARKS[Status.INVALID]} {path}: halted") if has_waited else None
        result = (event.status, event.feedback)
        is_news = has_waited or self._last.get(path) != result
        self._last[path] = result
        text = f"{MARKS[event.status]} {path}{f': {event.feedback}' if event.feedback else ''}"
        return one_line(text) if is_news else None

    def _other(self, event: Event, path: str) -> str:
        """Return the line of any other event."""
        if isinstance(event, Asked):
            self._paths[event.suspension.id] = path = event.suspension.path
            return f"? {path}: {' '.join(event.suspension.message.split())}"
        if isinstance(event, Answered):
            return (
                f"? {self._paths.get(event.id) or path or event.id}: {event.status}{'' if event.used else ', too late'}"
            )
        for kind, tell in TOLD.items():
            if isinstance(event, kind):
                return tell(event, path)
        values = [f"{name}={value!r}" for name, value in event if name not in FRAME]
        return f"* {path} {type(event).__name__} {' '.join(values)}"


TOLD: dict[type[Event], Callable[[Any, str], str]] = {  # Any: an event of the class beside it
    Note: lambda event, path: event.text,
    CleanupFailed: lambda event, path: f"! {path}: {event.reason}",
    HotLoop: lambda event, path: "! hot loop: ten passes in a row, each woken only by a write of the pass before",
    Stalled: lambda event, path: f"! stalled: nothing can wake {', '.join(event.paths)}",
    ToolCalled: lambda event, path: f"* {path}: {event.name} is called",
    ToolReturned: lambda event, path: f"* {path}: {event.name} {'failed' if event.is_error else 'has returned'}",
}
