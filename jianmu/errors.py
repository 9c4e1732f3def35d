"""Every error a user can meet, in families by whose fault it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any  # Any: a question's record, whose class lies above this file


class JianmuError(Exception):
    """The base of all errors of jianmu."""


class SetupError(JianmuError):
    """The tree, the schema or a binding is wrong; found before the first tick.

    Attributes:
        path: the node's path, or None where no node is meant.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class SchemaError(SetupError):
    """A state schema cannot be used as it is written."""


class MissingExtraError(SetupError):
    """An optional package is not installed; the text has the line that installs it."""

    def __init__(self, what: str, extra: str, *, package: str = "jianmu") -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install '{package}[{extra}]'")
        self.extra = extra


class TreeMismatchError(SetupError):
    """A saved position does not fit today's tree."""


class SchemaVersionError(SetupError):
    """A record was written by a newer version; nothing was changed."""


class StateError(JianmuError):
    """A read or a write of the state was refused; nothing was changed.

    Attributes:
        field: the name of the field, or None where several or none are meant.
        path: the path of the writer, or None where it is not known.
    """

    def __init__(self, message: str, *, field: str | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.path = path


class StateWriteError(StateError):
    """A write was refused: its text names the field, the types and the writers, and holds no values."""


class UnknownFieldError(StateError):
    """A write or read names a field that the schema does not have."""


class NamespaceError(StateError):
    """A namespace or a key cannot be used like this."""


class UnsetStateError(StateError):
    """The state was read before its required fields had values."""


class InputError(StateError):
    """The input of a call was refused."""


class InteractionError(JianmuError):
    """An answer was refused; nothing was changed.

    Attributes:
        id: the id of the question, or None where none is meant.
    """

    def __init__(self, message: str, *, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class UnknownSuspensionError(InteractionError):
    """No question has this id; `open_ids` are those that wait for an answer.

    Attributes:
        open_ids: the ids of the open questions, the oldest first.
    """

    def __init__(self, id: str | None, open_ids: Sequence[str] = ()) -> None:
        what = "there is no question to answer" if id is None else f"no question has the id {id[:80]!r}"
        hint = "; recover() goes on with one that was answered" if id is None and not open_ids else ""
        super().__init__(f"{what}: {_open(open_ids)}{hint}", id=id)
        self.open_ids = tuple(open_ids)


class AmbiguousAnswerError(InteractionError):
    """Several questions are open and the answer names none.

    Attributes:
        open_ids: the ids of the open questions, the oldest first.
    """

    def __init__(self, open_ids: Sequence[str]) -> None:
        super().__init__(f"the answer has to name its question, Answer(id, payload): {_open(open_ids)}")
        self.open_ids = tuple(open_ids)


class AlreadyAnsweredError(InteractionError):
    """The question was answered before.

    Attributes:
        record: the question's record, with the answer that was accepted.
    """

    def __init__(self, id: str, record: Any) -> None:
        super().__init__(f"question '{id}' was answered before; the first answer stands, see .record", id=id)
        self.record = record


class ExpiredError(InteractionError):
    """The question's deadline has passed."""

    def __init__(self, id: str, deadline: datetime | None = None) -> None:
        when = f" at {deadline.isoformat()}" if deadline else ""
        super().__init__(f"question '{id}' expired{when}: it takes no answer any more", id=id)


class WithdrawnError(InteractionError):
    """The question was withdrawn."""

    def __init__(self, id: str, reason: str | None = None) -> None:
        super().__init__(f"question '{id}' was withdrawn{f' ({reason})' if reason else ''}: it takes no answer", id=id)


class InvalidAnswerError(InteractionError):
    """The answer does not fit what was asked for; the text holds nothing of the answer."""

    def __init__(self, id: str | None, problem: str, wants: str | None = None) -> None:
        name = "the answer" if id is None else f"the answer to question '{id}'"
        super().__init__(f"{name} was refused: {problem}{f'; it has to fit {wants}' if wants else ''}", id=id)


class ClaimedError(InteractionError):
    """Somebody else has claimed the question."""


class NotAnsweredError(InteractionError):
    """A question ended without an answer: declined, cancelled, expired or withdrawn.

    Attributes:
        reason: why, as the node's feedback gives it.
    """

    def __init__(self, id: str | None = None, reason: str = "") -> None:
        super().__init__(f"question '{id}' has no answer: {reason}", id=id)
        self.reason = reason


def _open(ids: Sequence[str]) -> str:
    return f"open are {', '.join(ids)}" if ids else "none is open"


class RunError(JianmuError):
    """Something the runtime found while a tree was running.

    Attributes:
        path: the node's path, or None where no node is meant.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class AgentBusyError(RunError):
    """The agent is in use by another call."""


class UnfinishedRunError(RunError):
    """New input was refused, since the thread's run is not finished."""


class StalledError(RunError):
    """Nothing can wake the tree any more."""


class LimitExceeded(RunError):  # noqa: N818  # the contract's name
    """A run has used up one of its limits.

    Attributes:
        limit: the name of the limit.
    """

    def __init__(self, message: str, *, limit: str = "", path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.limit = limit


class NodeCancelledError(RunError):
    """A coroutine was cancelled from inside, by nobody of the runtime."""


class InvalidStatusError(RunError):
    """A node returned something that is not SUCCESS, FAILURE or RUNNING."""


class SwallowedSuspensionError(RunError):
    """A coroutine caught its suspension instead of letting it through."""


class StoreError(JianmuError):
    """A store refused a call or could not carry it out.

    Attributes:
        thread_id: the thread meant, or None.
    """

    def __init__(self, message: str, *, thread_id: str | None = None) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class ThreadBusyError(StoreError):
    """Another holder runs this thread."""


class LeaseLostError(StoreError):
    """The lease on the thread was lost to another holder."""


class UnknownThreadError(StoreError):
    """The store has no such thread."""


class JournalMismatchError(StoreError):
    """A key of `once` was used for another call.

    Attributes:
        key: the key.
        path: the path of the node.
    """

    def __init__(self, key: str, problem: str, *, path: str | None = None, thread_id: str | None = None) -> None:
        super().__init__(f"once('{key}') in node '{path}': {problem}", thread_id=thread_id)
        self.key = key
        self.path = path


class OutcomeUnknownError(StoreError):
    """Whether an effect happened is not known, and its policy says to fail.

    Attributes:
        key: the key of `once`.
        path: the path of the node.
    """

    def __init__(self, key: str, name: str, *, path: str | None = None, thread_id: str | None = None) -> None:
        super().__init__(
            f"once('{key}') in node '{path}': {name} was begun and its outcome is not known: find out whether it"
            ' happened, or let a person say so: on_unknown="ask"',
            thread_id=thread_id,
        )
        self.key = key
        self.path = path


class CorruptRecordError(StoreError):
    """A stored record cannot be read."""


class ModelError(JianmuError):
    """A request to a language model failed; the class says why, `is_transient` whether to try again makes sense.

    Attributes:
        model: the model's name.
        retry_after: seconds to wait before the next attempt, where the provider has said so.
        is_transient: whether the same request may succeed later.
        shown: how many deltas had come before; what they said is void.
        detail: what the provider said, in its own words; it may repeat what was sent, so the text leaves it out.
    """

    def __init__(
        self,
        problem: str,
        *,
        model: str = "",
        retry_after: float | None = None,
        is_transient: bool | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(f"model '{model}': {problem}" if model else problem)
        self.model = model
        self.retry_after = retry_after
        self.is_transient = self._is_transient if is_transient is None else is_transient
        self.shown = 0
        self.detail = detail

    _is_transient = False


class ModelRefusedError(ModelError):
    """The provider's policy refused the request or the reply: say it differently."""


class ContextTooLongError(ModelError):
    """The request has more tokens than the model takes: send less of the conversation."""


class RateLimitedError(ModelError):
    """Too many requests, or the account's quota is used up; then `is_transient` is False."""

    _is_transient = True


class ModelUnavailableError(ModelError):
    """The provider could not be reached, did not answer in time, broke off, or has a fault of its own."""

    _is_transient = True


class BadRequestError(ModelError):
    """The provider does not take the request: its form, the model's name, or the key is wrong."""


class BadReplyError(ModelError):
    """What the model or the provider sent is no valid reply."""

    _is_transient = True
