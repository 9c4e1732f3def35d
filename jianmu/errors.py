"""Every error a user can meet, in families by whose fault it is."""

from __future__ import annotations


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

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': pip install 'jianmu[{extra}]'")
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
    """No question has this id."""


class AmbiguousAnswerError(InteractionError):
    """Several questions are open and the answer names none."""


class AlreadyAnsweredError(InteractionError):
    """The question was answered before."""


class ExpiredError(InteractionError):
    """The question's deadline has passed."""


class WithdrawnError(InteractionError):
    """The question was withdrawn."""


class InvalidAnswerError(InteractionError):
    """The answer does not fit what was asked for."""


class ClaimedError(InteractionError):
    """Somebody else has claimed the question."""


class NotAnsweredError(InteractionError):
    """A question ended without an answer: declined, cancelled, expired or withdrawn.

    Attributes:
        reason: why, as the node's feedback gives it.
    """

    def __init__(self, message: str, *, id: str | None = None, reason: str = "") -> None:
        super().__init__(message, id=id)
        self.reason = reason


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
    """A key of `once` was used for another call."""


class OutcomeUnknownError(StoreError):
    """Whether an effect happened is not known, and its policy says to fail."""


class CorruptRecordError(StoreError):
    """A stored record cannot be read."""
