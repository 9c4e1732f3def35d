"""Questions and their answers as data: what is asked, by whom, and how it stands.

1. A question leaves `open` once, to one of three ends; the table below is all there is.
2. Its id is a digest of who asks and of how many were asked there before; nothing else is in it.
3. What is `private` is in the record only: no dump of a `Suspension` has it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from jianmu.engine.answers import JsonObject, is_kept, json_copy
from jianmu.errors import InvalidAnswerError

QuestionStatus = Literal["open", "answered", "expired", "withdrawn"]
Rounds = tuple[tuple[str, object], ...]
Place = tuple[object, ...]
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

ENDS: dict[QuestionStatus, tuple[QuestionStatus, ...]] = {
    "open": ("answered", "expired", "withdrawn"),
    "answered": (),
    "expired": (),
    "withdrawn": (),
}


def digest(*parts: object) -> str:
    """Return 32 URL-safe characters that stand for these JSON values."""
    text = _CANONICAL.encode(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def question_id(origin: Origin, key: str, count: int) -> str:
    """Return the id of the question number `count` that is asked under one identity."""
    return digest("question", origin.identity("question", key), count)


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

    @cached_property
    def place(self) -> Place:
        """What is equal where the identities are, and is there at once."""
        is_plain = all([isinstance(at, int) and type(at) is not bool for _, at in self.rounds])  # noqa: C419  # quicker
        return (self.thread_id, self.run, self.path, self.rounds if is_plain else _CANONICAL.encode(self.rounds))

    def identity(self, kind: str, key: str) -> str:
        """Return the digest of what `key` means here; `kind` keeps questions and effects apart."""
        known: dict[tuple[str, str], str] = vars(self).setdefault("_known", {})
        if (kind, key) not in known:
            known[kind, key] = digest(kind, self.thread_id, self.run, self.path, self.rounds, key)
        return known[kind, key]

    def renamed(self, rename: Callable[[str], str]) -> Origin:
        """Return the same place in a tree whose paths have changed."""
        return replace(self, path=rename(self.path), rounds=tuple((rename(loop), at) for loop, at in self.rounds))


class Step(BaseModel):
    """One thing to do at a deadline: data, so that any process can carry it out.

    Attributes:
        kind: what to do.
        after: seconds from the step before, the first from the ask.
        to: the next assignee, of `escalate`.
        value: the answer, of `default`.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    kind: Literal["escalate", "fail", "default"]
    after: float
    to: str | None = None
    value: JsonValue = None


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

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

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
            kind = type(self.action).__name__
            raise InvalidAnswerError(self.id, f"action is accept, decline or cancel; it was given another {kind}")
        for name, given in (("id", self.id), ("by", self.by), ("key", self.key)):
            if given is not None and not isinstance(cast("object", given), str):
                raise InvalidAnswerError(None, f"{name} is a text, not {type(given).__name__}")
            if given is not None and name != "id" and not is_kept(given):
                raise InvalidAnswerError(None, f"{name} has a NUL or a lone surrogate, which no store keeps")
        try:
            object.__setattr__(self, "payload", json_copy(self.payload))
            if self.metadata is not None:
                object.__setattr__(self, "metadata", json_copy(self.metadata))
        except ValueError as error:
            problem = str(error)
        else:
            return
        raise InvalidAnswerError(self.id, f"it is no JSON value: {problem}")
