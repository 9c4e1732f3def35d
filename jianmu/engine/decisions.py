"""The decisions about a question, each a pure function of its record.

A decision returns the new record, or None for no change, or raises a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

from jianmu.engine.questions import Answer, Origin
from jianmu.engine.record import Record
from jianmu.errors import AlreadyAnsweredError, ExpiredError, WithdrawnError

Deed = Literal["asked", "answered", "escalated", "expired", "withdrawn", "consumed", "unused"]
Decision = Callable[[Record], Record | None]


class Change(NamedTuple):
    """What happened to a question, and how it stands since."""

    deed: Deed
    record: Record


def accept(answer: Answer, now: datetime) -> Decision:
    """Return the decision to take an answer: the one way to `answered`."""

    def decide(record: Record) -> Record | None:
        if is_repeated(record, answer):
            return None
        refuse_if_ended(record, now)
        return record.ended("answered", answer=answer, ended_at=now, source="person")

    return decide


def is_repeated(record: Record, answer: Answer) -> bool:
    """Whether this very answer, by its key, was taken before."""
    return answer.key is not None and record.answer is not None and record.answer.key == answer.key


def refuse_if_ended(record: Record, now: datetime) -> None:
    """Raise why a question takes no answer, unless it is open and its deadline lies ahead."""
    if record.status == "answered":
        raise AlreadyAnsweredError(record.id, record)
    if record.status == "withdrawn":
        raise WithdrawnError(record.id, record.why)
    if record.status == "expired" or record.is_over(now):
        raise ExpiredError(record.id, record.question.expires_at)


def withdraw(now: datetime, reason: str) -> Decision:
    """Return the decision of a person to withdraw a question."""

    def decide(record: Record) -> Record:
        refuse_if_ended(record, now)
        return record.ended("withdrawn", ended_at=now, source="person", why=reason)

    return decide


def halt(where: str | Origin, now: datetime, reason: str) -> Decision:
    """Return the decision of the tree, which halted the asking node: nobody waits any more."""

    def decide(record: Record) -> Record | None:
        if not _is_at(record.origin, where):
            return None
        if record.status == "open":
            record = record.ended("withdrawn", ended_at=now, source="tree", why=reason)
        return record.changed(unused=True)

    return decide


def _is_at(origin: Origin, where: str | Origin) -> bool:
    if isinstance(where, Origin):
        return origin.path == where.path and origin.identity("", "") == where.identity("", "")
    return origin.path.startswith(where) and origin.path[len(where) : len(where) + 1] in ("", "/")


def step(now: datetime) -> Decision:
    """Return the decision to carry out all steps that are due."""

    def decide(record: Record) -> Record | None:
        before = record
        while record.next_at is not None and record.next_at <= now:
            record = _stepped(record, record.next_at)
        return None if record is before else record

    return decide


def _stepped(record: Record, at: datetime) -> Record:
    due = record.steps[record.taken]
    record = record.changed(taken=record.taken + 1)
    if due.kind == "escalate":
        return record.with_question(assignee=due.to)
    answer = Answer(record.id, due.value) if due.kind == "default" else None
    return record.ended("expired", answer=answer, ended_at=at, source="deadline", why="expired")


def consume(now: datetime) -> Decision:
    """Return the decision that its end was delivered to the node."""
    return lambda record: None if record.consumed_at else record.changed(consumed_at=now)


def deed(before: Record, after: Record) -> Deed:
    """Return what has happened between two records of a question."""
    if after.status not in ("open", before.status):
        return after.status
    if after.taken != before.taken:
        return "escalated"
    return "unused" if after.unused else "consumed"
