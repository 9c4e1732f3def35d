"""Questions, answers and approvals of a run: the public face and the controller (see `InteractionController`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from pydantic import JsonValue

from jianmu.engine.answers import Approval, JsonObject
from jianmu.engine.questions import (
    Answer, Origin, Record, Request, Rounds, Step, Suspension, default, digest_of_shown, escalate, fail,
)

__all__ = [
    "Answer", "Approval", "InteractionController", "Origin", "Record", "Request", "Rounds", "Step", "Suspension",
    "default", "digest_of_shown", "escalate", "fail",
]

Change = str  # "asked" | "answered" | "escalated" | "expired" | "withdrawn" | "consumed" | "unused"


class UtcClock(Protocol):
    def utc(self) -> datetime: ...


class RuntimeState(Protocol):
    def runtime_update(self, namespace: str, values: Mapping[str, JsonValue]) -> object: ...


class InteractionController:
    """STUB of the API; being filled in.

    `listener(what, record)` is called outside locks after each change, in any thread;
    `persist()` is awaited by `answer`, `approve`, `reject`, `withdraw` before they return and before the listener.
    """

    def __init__(self, clock: UtcClock, state: RuntimeState | None = None, *,
                 listener: Callable[[str, Record], None] | None = None,
                 persist: Callable[[], Awaitable[None]] | None = None) -> None: ...
    # --- for the runner (sync, thread-safe) ---
    def ask(self, origin: Origin, request: Request, snapshot: Any = None, *, key: str | None = None,
            tool_call_id: str | None = None, group: str | None = None, url: str | None = None) -> Record:
        """Open question of this identity, or a new one with the next count. key: default when request.key is None."""
        ...
    def latest(self, origin: Origin, key: str) -> Record | None:
        """The newest that still counts: not one that the tree's halt has ended or left unused."""
        ...
    def deliver(self, id: str) -> Any:
        """The validated payload, at each call; marks consumed_at once. NotAnsweredError(reason) otherwise."""
        ...
    def withdraw_open(self, where: str | Origin, reason: str = "halted") -> list[Record]:
        """A path means all at or below it. Ended but undelivered ones become `unused`."""
        ...
    def due(self, now: datetime) -> list[Record]: ...
    def next_deadline(self) -> datetime | None: ...
    def attach_adapter(self, id: str, answer: object) -> None:
        """After a load: give a question its type again. TreeMismatchError if the schema differs."""
        ...
    def dump(self) -> JsonObject: ...
    def load(self, data: object) -> None: ...
    # --- public ---
    @property
    def pending(self) -> tuple[Suspension, ...]: ...
    @property
    def suspension(self) -> Suspension | None: ...
    def record(self, id: str) -> Record: ...
    async def answer(self, *answers: Answer) -> tuple[Record, ...]: ...
    def answer_nowait(self, *answers: Answer) -> tuple[Record, ...]: ...
    async def approve(self, id: str | None = None, *, edited: JsonValue = None, by: str | None = None,
                      remember: bool = False) -> Record: ...
    async def reject(self, id: str | None = None, reason: str | None = None, *, by: str | None = None) -> Record: ...
    async def withdraw(self, id: str, reason: str | None = None) -> Record: ...
