"""What a node asks: the request, and what is done at its deadlines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast  # Any: the snapshot that a message may be a function of

from pydantic import JsonValue

from jianmu.engine.answers import Door, JsonObject, door_of, json_copy
from jianmu.engine.questions import Step
from jianmu.engine.state.freeze import Refused, freeze
from jianmu.engine.state.readonly import NO_HINT
from jianmu.errors import SetupError

_LONGEST = 100 * 366 * 86400.0


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
    raise SetupError(f"after= is a number of seconds, from 0 to 100 years; it was given {type(after).__name__}")


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
        tool_call_id: the tool call that it is about.
        url: where to answer, if elsewhere.

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
    tool_call_id: str | None = None
    url: str | None = None
    details: JsonObject = field(init=False, repr=False)
    door: Door = field(init=False, repr=False)
    steps: tuple[Step, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what could fail only when somebody waits."""
        if not isinstance(self.message, str) and not callable(self.message):
            kind = type(self.message).__name__
            raise SetupError(f"Request(message) is a text or a function of the snapshot; it was given {kind}")
        for name in ("reason", "key", "assignee", "tool_call_id", "url"):
            given = getattr(self, name)
            if not (isinstance(given, str) and given) and (given is not None or name == "reason"):
                raise SetupError(f"Request({name}=...) is a text with something in it; it was {type(given).__name__}")
        if not callable(self.data):
            object.__setattr__(self, "data", shown_json("data", self.data))
        object.__setattr__(self, "private", shown_json("private", self.private))
        object.__setattr__(self, "details", _mapping(self.metadata))
        object.__setattr__(self, "door", door_of(self.answer))
        object.__setattr__(self, "steps", _checked_steps(self.expires, self.door))


def shown_json(name: str, value: object) -> JsonValue:
    """Return a copy of a part of a request, which has to be JSON."""
    try:
        freeze(copy := json_copy(value), NO_HINT, 10)  # the state shows it some levels down
    except (ValueError, Refused) as error:
        problem = str(error)
    else:
        return copy
    raise SetupError(f"Request({name}=...) has to be JSON; this is not: {problem}")


def _mapping(metadata: object) -> JsonObject:
    copy = shown_json("metadata", {} if metadata is None else metadata)
    if isinstance(copy, dict):
        return copy
    raise SetupError(f"Request(metadata=...) is a dict; it was given {type(metadata).__name__}")


def _checked_steps(expires: object, door: Door) -> tuple[Step, ...]:
    steps = tuple(cast("Sequence[object]", expires)) if isinstance(expires, (list, tuple)) else (expires,)
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
