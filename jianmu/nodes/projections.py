"""Projections: what a model is to see and the conversation does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias, cast  # Any: snapshots are the users'

from py_trees.behaviour import Behaviour
from pydantic import JsonValue

from jianmu.errors import ModelError, RunError, SetupError
from jianmu.message import Message, human
from jianmu.model.base import ModelRequest
from jianmu.nodes.base import TEXT, Option, Shape, Wrapper, around, call_of, checked, plain, plain_methods, whole
from jianmu.nodes.pairing import Pairing

Projection: TypeAlias = Callable[[ModelRequest, Any], ModelRequest]
Texts: TypeAlias = str | Iterable[str] | None
Summary: TypeAlias = str | Callable[[Any, Sequence[Message]], str | None] | None

TEXTS: Shape = (
    lambda value: (
        value is None
        or isinstance(value, str)
        or (isinstance(value, list | tuple) and all(isinstance(one, str) for one in cast("list[object]", value)))
    ),
    "a text, a list of texts, or None",
)
PART_TOKENS = 1_000
"""What an image or a file is taken to cost."""
ADDED: dict[str, JsonValue] = {"is_projected": True}
"""The metadata of a message that a projection adds."""


class RequestProjection(Wrapper):
    """Change each request of the LLM nodes below by `project(request, snapshot)`, or by a method of that name.

    A request passes the projections above its node from the nearest one up, then those that are late, and the pairing
    check last. A projection is pure: it returns another request, writes nothing, and the conversation stays as it is.
    It ends at an agent used as a node: what is inside of one is not seen by projections outside.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Attributes:
        is_late: whether it is to see what all others have left of the request, whichever of them stands nearer.
    """

    is_late: ClassVar[bool] = False

    def __init__(self, name: str, child: Behaviour, *, project: Projection | None = None) -> None:
        super().__init__(name, child)
        self._project = project
        plain_methods(self, "project")
        if project is not None:
            plain(self, "project", project)
        elif type(self).project is RequestProjection.project:
            call = f'{type(self).__name__}("{name}", child, project=...)'
            raise SetupError(f"{call} takes a function of the request and the snapshot that returns a request")

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request as the model is to see it."""
        assert self._project is not None
        return self._project(request, snapshot)

    def on_failed(self, error: ModelError) -> None:
        """Be told that a request which this has changed has failed; what it adds may be why."""

    def apply(self, request: ModelRequest) -> ModelRequest:
        """Project a request on the newest snapshot; writes are refused meanwhile."""
        self.context.is_read_only = True
        try:
            made = cast("object", self.project(request, self.read_state()))
        finally:
            self.context.is_read_only = False
        if not isinstance(made, ModelRequest):
            path, kind = self.context.path, type(made).__name__
            raise RunError(f"node '{path}': project() has to return a ModelRequest, not {kind}", path=path)
        return made


class Reminders(RequestProjection):
    """Remind the model: `remind` is a text, or a function of the snapshot that returns a text, texts, or None.

    Each text is a message at the end of the request, after all results of tools; the conversation never has it.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.
    """

    def __init__(self, name: str, child: Behaviour, *, remind: str | Callable[[Any], Texts]) -> None:
        super().__init__(name, child)
        self._remind = Option(self, "remind", remind, TEXTS)

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with what is due at its end."""
        due: Texts = self._remind()
        texts = [due] if isinstance(due, str) else [*(due or ())]
        notes = [note(f"reminder:{self.context.path}:{number}", text) for number, text in enumerate(texts) if text]
        return replace(request, messages=[*request.messages, *notes]) if notes else request


class ContextBudget(RequestProjection):
    """Leave out the oldest messages of a request that has more than so many `messages` or `tokens`.

    System messages, the newest message of a person and what other projections have added always stay; a reply with
    calls stays or goes together with all its results. What is left out is left out of the request only.
    `summary` says what the model is told in its place: a text, or a function of the snapshot and the messages left out.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what is below.
        messages: the most messages, or a function of the snapshot.
        tokens: the most tokens, or a function of the snapshot; by default a token is taken for four characters.
        summary: what stands for the messages left out.
        count: returns the tokens of a message.
    """

    def __init__(
        self,
        name: str,
        child: Behaviour,
        *,
        messages: int | Callable[[Any], int] | None = None,
        tokens: int | Callable[[Any], int] | None = None,
        summary: Summary = None,
        count: Callable[[Message], int] | None = None,
    ) -> None:
        super().__init__(name, child)
        if messages is None and tokens is None:
            raise SetupError(f'ContextBudget("{name}", child) limits nothing: give messages=... or tokens=...')
        self._messages = None if messages is None else Option(self, "messages", messages, whole(1))
        self._tokens = None if tokens is None else Option(self, "tokens", tokens, whole(1))
        for option, fn in (("summary", summary), ("count", count)):
            if callable(fn):
                plain(self, option, fn)
        self._summary = summary
        self._pair = Pairing()
        self._count = count or tokens_of

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with the messages for which there is room."""
        groups = groups_of(self._pair(request.messages))
        kept = self._kept(groups)
        if len(kept) == len(groups):
            return request
        left_out = [message for place, group in enumerate(groups) if place not in kept for message in group]
        stay = [message for place, group in enumerate(groups) if place in kept for message in group]
        given = self._summary(snapshot, left_out) if callable(self._summary) else self._summary
        text: str | None = checked(self, call_of(self, "summary"), TEXT, given)
        return replace(request, messages=_with_summary(stay, text, f"summary:{self.context.path}"))

    def _kept(self, groups: Sequence[Sequence[Message]]) -> set[int]:
        """Return the places of the groups that stay: those that have to, and the newest for which there is room."""
        kept = _needed(groups)
        counts = [(len(group), sum(map(self._count, group)) if self._tokens else 0) for group in groups]
        limits = (self._messages, self._tokens)
        room = [option() if option else math.inf for option in limits]
        room = [most - sum(counts[place][unit] for place in kept) for unit, most in enumerate(room)]
        for place in reversed(range(len(groups))):
            if place in kept:
                continue
            room = [most - cost for most, cost in zip(room, counts[place], strict=True)]
            if min(room) < 0:
                break
            kept.add(place)
        return kept


def projected(node: Behaviour, request: ModelRequest, pair: Pairing) -> ModelRequest:
    """Return a request after all projections above a node, the nearest first, and the pairing check."""
    for above in sorted(projections_of(node), key=lambda one: one.is_late):
        request = above.apply(request)
    messages = pair(request.messages)
    return request if messages is request.messages else replace(request, messages=messages)


def projections_of(node: Behaviour) -> list[RequestProjection]:
    """Return the projections above a node, the nearest first."""
    return around(node, RequestProjection)


def tokens_of(message: Message) -> int:
    """Return about how many tokens a message has."""
    parts = 0 if isinstance(message.content, str) else sum(part.type != "text" for part in message.content)
    calls = sum(len(call.name) + len(call.raw or str(call.arguments)) for call in message.tool_calls)
    return 4 + (len(message.text) + calls) // 4 + parts * PART_TOKENS


def note(id: str, text: str) -> Message:
    """Return a message that a projection adds; what stands before the colon of its id is told around the text."""
    return human(f"<{id.partition(':')[0]}>\n{text}\n</{id.partition(':')[0]}>", id=id, metadata=ADDED)


def is_added(message: Message) -> bool:
    """Whether a projection has added a message."""
    return bool(message.metadata and message.metadata.get("is_projected"))


def groups_of(messages: Sequence[Message]) -> list[list[Message]]:
    """Return a paired conversation in the pieces that stay or go as one: a message with the results of its calls."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _needed(groups: Sequence[Sequence[Message]]) -> set[int]:
    """Return the places of what always stays."""
    firsts = [group[0] for group in groups]
    people = [place for place, first in enumerate(firsts) if first.role == "human" and not is_added(first)]
    fixed = {place for place, first in enumerate(firsts) if first.role == "system" or is_added(first)}
    return fixed | {*people[-1:]}


def _with_summary(messages: Sequence[Message], text: str | None, id: str) -> list[Message]:
    """Return what stays, with what stands for the rest before it; providers want a person to speak first."""
    start = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
    is_open = start < len(messages) and messages[start].role != "human"
    text = text or ("Earlier messages of this conversation are left out." if is_open else None)
    return [*messages[:start], *([note(id, text)] if text else []), *messages[start:]]
