"""Leaves that ask a person or wait for the outside: AskHuman, Choose, WaitFor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Union, Unpack  # Any: snapshots and answers, whose types are the user's

from py_trees.common import Status
from pydantic import JsonValue

from jianmu.engine.interaction import Request, fail
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.ports import Port
from jianmu.engine.questions import Step
from jianmu.errors import SetupError
from jianmu.nodes.options import Amount, Number, give_ports, plain, wrong_kind

Message = str | Callable[[Any], str]


class RequestOptions(TypedDict, total=False):
    """The options of a `Request` that nodes hand on."""

    reason: str
    key: str | None
    data: JsonValue | Callable[[Any], JsonValue]
    expires: Sequence[Step] | None
    assignee: str | None
    metadata: Mapping[str, JsonValue] | None
    private: JsonValue


def give_into(node: InteractiveNode, into: str | None, kind: object) -> None:
    """Give a node the output `into`, which takes answers of a kind; without a field they are dropped."""
    port = Port("into", True, Any if isinstance(kind, dict) else kind, None)
    give_ports(node, {"into": port}, {} if into is None else {"into": into})


class AskHuman(InteractiveNode):
    """Ask a person.

    Writes the answer to `into`.
    SUCCESS when it is answered.
    RUNNING while the question is open.
    FAILURE when it was declined or cancelled, has expired or was withdrawn; the feedback has the reason.
    Halting withdraws the question; the next entry asks anew.

    Args:
        name: the node's name.
        message: what to ask, or a function of the snapshot.
        answer: the type of the answer, or a JSON schema.
        into: the field that takes the answer, or `field.key` of a dict field.
        options: as those of a `Request`: `reason`, `key`, `data`, `expires`, `assignee`, `metadata`, `private`.
    """

    def __init__(
        self,
        name: str,
        *,
        message: Message,
        answer: object = str,
        into: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        super().__init__(name)
        self._request = Request(message, answer=answer, **options)
        self.answers = answer
        give_into(self, into, answer)

    def request(self) -> Request:
        """Return what is asked."""
        return self._request

    def on_answer(self, answer: Any) -> Status:  # Any: of the type asked for
        """Write the answer."""
        self.write_port("into", answer)
        return Status.SUCCESS


class Choose(InteractiveNode):
    """Ask a person to choose one of several options.

    Writes the option chosen to `into`.
    SUCCESS when one was chosen; all else is refused at the door, and the question stays open.
    RUNNING while the question is open.
    FAILURE when it was declined or cancelled, has expired or was withdrawn; the feedback has the reason.
    Halting withdraws the question; the next entry asks anew.

    Args:
        name: the node's name.
        message: what to ask, or a function of the snapshot.
        options: the JSON values to choose from, or a function of the snapshot that returns them.
        into: the field that takes the option, or `field.key` of a dict field.
        more: as those of a `Request`: `reason`, `key`, `data`, `expires`, `assignee`, `metadata`, `private`.
    """

    def __init__(
        self,
        name: str,
        *,
        message: Message,
        options: Sequence[JsonValue] | Callable[[Any], Sequence[JsonValue]],
        into: str,
        **more: Unpack[RequestOptions],
    ) -> None:
        super().__init__(name)
        self._call = f'Choose("{name}", options=...)'
        self._message, self._more = message, more
        self._options = options
        kind: object = Any
        if callable(options):
            plain(self._call, options)
        elif isinstance(options, list | tuple) and options:
            self._asking(options)
            kind = Union[tuple(type(option) for option in options)]  # noqa: UP007  # built at run time
        else:
            raise SetupError(f"{self._call} takes a list of JSON values that is not empty, not {options!r}")
        give_into(self, into, kind)

    def request(self) -> Request:
        """Return what is asked, with the options as they are now."""
        if not callable(self._options):
            return self._asking(self._options)
        options: object = self._options(self.read_state())
        if not isinstance(options, list | tuple) or not options:
            raise wrong_kind(self, self._call, "a list of JSON values that is not empty", options)
        return self._asking(options)

    def on_answer(self, answer: JsonValue) -> Status:
        """Write the option chosen."""
        self.write_port("into", answer)
        return Status.SUCCESS

    def _asking(self, options: Sequence[JsonValue]) -> Request:
        return Request(self._message, answer={"enum": list(options)}, **self._more)


class WaitFor(InteractiveNode):
    """Wait for an answer from outside, for a time, or for the one within the other.

    The run is suspended meanwhile; the question has the reason "wait", and any JSON value answers it.
    Writes the answer to `into`.
    SUCCESS when it is answered; and, without a message, when `seconds` are over.
    RUNNING until then.
    FAILURE when `seconds` are over and there is a message; when it was declined, cancelled or
    withdrawn. The feedback has the reason.
    Halting withdraws the question; the next entry waits anew.

    Args:
        name: the node's name.
        message: what is waited for, or a function of the snapshot; by default the node's name is shown.
        seconds: how long at most, or a function of the snapshot, called when the node is entered.
        into: the field that takes the answer, or `field.key` of a dict field.
    """

    def __init__(
        self, name: str, *, message: Message | None = None, seconds: Number | None = None, into: str | None = None
    ) -> None:
        super().__init__(name)
        self._message = message
        self._seconds = None if seconds is None else Amount(f'WaitFor("{name}", seconds=...)', seconds)
        self._asking(None)
        give_into(self, into, Any)

    def request(self) -> Request:
        """Return what is waited for."""
        return self._asking(None if self._seconds is None else self._seconds.of(self))

    def on_answer(self, answer: JsonValue) -> Status:
        """Write the answer."""
        self.write_port("into", answer)
        return Status.SUCCESS

    def on_unanswered(self, reason: str) -> Status:
        """Tell the end of a mere wait from a wait that was in vain."""
        record = self._record()
        if self._message is None and record is not None and record.status == "expired":
            self.feedback_message = "the time is over"
            return Status.SUCCESS
        return super().on_unanswered(reason)

    def _asking(self, seconds: float | None) -> Request:
        message = self.name if self._message is None else self._message
        expires = None if seconds is None else [fail(after=seconds)]
        return Request(message, answer=Any, reason="wait", expires=expires)
