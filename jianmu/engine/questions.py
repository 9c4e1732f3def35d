"""Questions and their answers as data: what is asked, by whom, and how it stands.

1. A question leaves `open` once, to one of three ends; the table below is all there is.
2. Its id is a digest of who asks and of how many were asked there before; nothing else is in it.
3. What is `private` is in the record only: no dump of a `Suspension` has it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, cast  # Any: the snapshot that a message may be a function of

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from jianmu.engine.answers import Door, JsonObject, door_of, json_copy
from jianmu.errors import InvalidAnswerError, SetupError

QuestionStatus = Literal["open", "answered", "expired", "withdrawn"]
Rounds = tuple[tuple[str, object], ...]

ENDS: dict[QuestionStatus, frozenset[QuestionStatus]] = {
    "open": frozenset({"answered", "expired", "withdrawn"}),
    "answered": frozenset(),
    "expired": frozenset(),
    "withdrawn": frozenset(),
}
_LONGEST = 100 * 366 * 86400.0


def digest(*parts: object) -> str:
    """Return 32 URL-safe characters that stand for these JSON values."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of_shown(message: str, data: JsonValue) -> str:
    """Return the digest of what a person was shown: an approval holds for this and nothing else."""
    return digest("shown", message, data)


@dataclass(frozen=True)
class Origin:
    """Where a question or an effect comes from.

    Attributes:
        thread_id: the thread.
        run: the number of the run in its thread.
        path: the node's path.
        rounds: (path, round) of each loop around the node, outermost first.
    """

    thread_id: str
    run: int
    path: str
    rounds: Rounds = ()

    def identity(self, kind: str, key: str) -> str:
        """Return the digest of what `key` means here; `kind` keeps questions and effects apart."""
        return digest(kind, self.thread_id, self.run, self.path, self.rounds, key)


class Step(BaseModel):
    """One thing to do at a deadline: data, so that any process can carry it out.

    Attributes:
        kind: what to do.
        after: seconds from the step before, the first from the ask.
        to: the next assignee, of `escalate`.
        value: the answer, of `default`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["escalate", "fail", "default"]
    after: float
    to: str | None = None
    value: JsonValue = None


def escalate(to: str, after: float) -> Step:
    """Return the step that gives the question to somebody else; it stays open under its id."""
    if not isinstance(cast("object", to), str) or not to:
        raise SetupError("escalate(to, after) needs the name of the next assignee")
    return Step(kind="escalate", to=to, after=_seconds(after))


def fail(after: float) -> Step:
    """Return the step that ends the question without an answer."""
    return Step(kind="fail", after=_seconds(after))


def default(value: JsonValue, after: float) -> Step:
    """Return the step that answers in nobody's name; the record says that the deadline did."""
    try:
        return Step(kind="default", value=json_copy(value), after=_seconds(after))
    except ValueError as error:
        problem = str(error)
    raise SetupError(f"default(value, after) needs a JSON value, not {problem}")


def _seconds(after: object) -> float:
    if isinstance(after, (int, float)) and not isinstance(after, bool) and 0 <= after <= _LONGEST:
        return float(after)
    raise SetupError(f"after= is a number of seconds, from 0 to 100 years, not {after!r}")


@dataclass(frozen=True, eq=False)
class Request:
    """What a node asks of a person or of an outside job.

    Args:
        message: what to show, or a function of the snapshot that returns it.
        answer: the type of the answer, or a JSON schema as a dict.
        reason: what kind of question it is, for those who sort them.
        key: tells the questions of one node apart; by default the node's name.
        data: JSON to show beside the message, or a function of the snapshot that returns it.
        expires: steps at deadlines: any number of `escalate`, then `fail` or `default` or neither.
        assignee: who is to answer.
        metadata: JSON for programs that deal with the question.
        private: JSON that is kept with the question and never shown.

    Raises:
        SetupError: a part of it cannot be used; at once.
    """

    message: str | Callable[[Any], str]
    _: KW_ONLY
    answer: object = str
    reason: str = "input"
    key: str | None = None
    data: JsonValue | Callable[[Any], JsonValue] = None
    expires: Sequence[Step] | None = None
    assignee: str | None = None
    metadata: Mapping[str, JsonValue] | None = None
    private: JsonValue = field(default=None, repr=False)
    door: Door = field(init=False, repr=False)
    steps: tuple[Step, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what could fail only when somebody waits."""
        if not isinstance(self.message, str) and not callable(self.message):
            raise SetupError(f"Request(message) is a text or a function of the snapshot, not {self.message!r}")
        for name, given in (("reason", self.reason), ("key", self.key), ("assignee", self.assignee)):
            if not (isinstance(given, str) and given or given is None and name != "reason"):
                raise SetupError(f"Request({name}=...) is a text that is not empty, not {given!r}")
        if not callable(self.data):
            object.__setattr__(self, "data", shown_json("data", self.data))
        object.__setattr__(self, "private", shown_json("private", self.private))
        object.__setattr__(self, "metadata", _mapping(self.metadata))
        object.__setattr__(self, "door", door_of(self.answer))
        object.__setattr__(self, "steps", _checked_steps(self.expires, self.door))


def shown_json(name: str, value: object) -> JsonValue:
    """Return a copy of a part of a request, which has to be JSON."""
    try:
        return json_copy(value)
    except ValueError as error:
        problem = str(error)
    raise SetupError(f"Request({name}=...) has to be JSON, not {problem}")


def _mapping(metadata: object) -> JsonObject:
    copy = shown_json("metadata", {} if metadata is None else metadata)
    if isinstance(copy, dict):
        return copy
    raise SetupError(f"Request(metadata=...) is a dict, not {metadata!r}")


def _checked_steps(expires: object, door: Door) -> tuple[Step, ...]:
    steps: tuple[object, ...] = tuple(expires) if isinstance(expires, (list, tuple)) else (expires,)
    if expires is None:
        return ()
    if not all(isinstance(step, Step) for step in steps):
        raise SetupError("Request(expires=[...]) is a list of escalate(to, after), fail(after), default(value, after)")
    found = cast("tuple[Step, ...]", steps)
    if any(step.kind != "escalate" for step in found[:-1]):
        raise SetupError("Request(expires=[...]): fail or default ends the question, so it has to be the last step")
    if math.fsum(step.after for step in found) > _LONGEST:
        raise SetupError("Request(expires=[...]): the steps take more than 100 years")
    problem = found[-1].kind == "default" and door.check(found[-1].value) if found else None
    if problem:
        raise SetupError(f"Request(expires=[...]): the default does not fit answer=: {problem}")
    return found


class Suspension(BaseModel):
    """An open question as everybody may see it; its names are AG-UI's where that has them.

    Attributes:
        id: the question's id.
        thread_id: the thread.
        path: the path of the node that asks.
        key: tells the questions of one node apart.
        reason: what kind of question it is.
        message: what to show.
        data: JSON to show beside it.
        tool_call_id: the tool call that it is about.
        response_schema: the JSON schema that an answer has to fit.
        expires_at: when it ends by itself, UTC, or None.
        assignee: who is to answer; changed by escalation.
        group: questions that belong together.
        url: where to answer, if elsewhere.
        metadata: JSON for programs that deal with it.
        digest: of what was shown, message and data.
        status: how it stands.
        private: JSON kept with it; in no dump and no repr.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    thread_id: str
    path: str
    key: str
    reason: str
    message: str
    data: JsonValue = None
    tool_call_id: str | None = None
    response_schema: JsonObject = Field(default_factory=dict)
    expires_at: datetime | None = None
    assignee: str | None = None
    group: str | None = None
    url: str | None = None
    metadata: JsonObject = Field(default_factory=dict)
    digest: str = ""
    status: QuestionStatus = "open"
    private: JsonValue = Field(default=None, exclude=True, repr=False)


@dataclass(frozen=True)
class Answer:
    """An answer to a question; any JSON value is one, `None` and `{}` too.

    Args:
        id: the question's id; None if only one is open.
        payload: the answer.
        action: `accept` it, or `decline` to answer, or `cancel` what is asked for.
        by: who answers.
        key: a repeated delivery under the same key is the same answer.
        metadata: JSON to keep with it.

    Raises:
        InvalidAnswerError: a part of it cannot be used.
    """

    id: str | None
    payload: JsonValue = field(default=None, repr=False)
    action: Literal["accept", "decline", "cancel"] = "accept"
    by: str | None = None
    key: str | None = None
    metadata: JsonObject | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no answer to any question."""
        if self.action not in ("accept", "decline", "cancel"):
            raise InvalidAnswerError(self.id, f"action is accept, decline or cancel, not {self.action!r}")
        for name, given in (("id", self.id), ("by", self.by), ("key", self.key)):
            if given is not None and not isinstance(cast("object", given), str):
                raise InvalidAnswerError(None, f"{name} is a text, not {type(given).__name__}")
        try:
            object.__setattr__(self, "payload", json_copy(self.payload))
            object.__setattr__(self, "metadata", json_copy(self.metadata))
        except ValueError as error:
            problem = str(error)
        else:
            return
        raise InvalidAnswerError(self.id, f"it is no JSON value: {problem}")


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

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    def moved(self, status: QuestionStatus, **changes: Any) -> Record:
        """Return the record with its question at another status of the table."""
        if status not in ENDS[self.status]:
            raise ValueError(f"a question goes from open to {status}, not from {self.status}")
        question = self.question.model_copy(update={"status": status})
        return self.model_copy(update={"question": question, **changes})


def ends_at(asked_at: datetime, steps: Sequence[Step]) -> datetime | None:
    """Return when a question with these steps ends by itself, or None."""
    if not steps or steps[-1].kind == "escalate":
        return None
    return asked_at + timedelta(seconds=math.fsum(step.after for step in steps))
