"""Nodes that ask a person or wait for the outside: AskHuman, Choose, WaitFor, Approve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Union, Unpack  # Any: snapshots and answers, whose types are the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.decorators import Decorator
from pydantic import JsonValue

from jianmu.engine.control import Steps
from jianmu.engine.interaction import Approval, Request, digest_of_shown, fail
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.passes import Pass
from jianmu.engine.ports import Port
from jianmu.engine.questions import Step
from jianmu.engine.watching import mark_loops
from jianmu.nodes.base import SECONDS, Number, Option, Shape, Wrapper, give_ports, plain

Message = str | Callable[[Any], str]
Show = Callable[[Any], JsonValue]
Choices = Sequence[JsonValue] | Callable[[Any], Sequence[JsonValue]]
CHOICES: Shape = (
    (lambda v: isinstance(v, list | tuple) and v not in ([], ())),
    "a list of JSON values that is not empty",
)


class Options(TypedDict, total=False):
    """The options of a `Request` that nodes hand on."""

    reason: str
    key: str | None
    data: JsonValue | Show
    expires: Sequence[Step] | None
    assignee: str | None
    metadata: Mapping[str, JsonValue] | None
    private: JsonValue


class Asking(InteractiveNode):
    """What the leaves share: the answer is written to the output `into`; without a field it is dropped."""

    _request: Request

    def _write_into(self, into: str | None, kind: object) -> None:
        port = Port("into", True, Any if isinstance(kind, dict) else kind, None)
        give_ports(self, {"into": port}, {} if into is None else {"into": into})

    @property
    def known_request(self) -> Request | None:
        """What the node always asks."""
        return self._request

    def request(self) -> Request:
        """Return what is asked."""
        return self._request

    def on_answer(self, answer: Any) -> Status:  # Any: of the type asked for
        """Write the answer."""
        self.write_port("into", answer)
        return Status.SUCCESS


class AskHuman(Asking):
    """Ask a person for an `answer` of a type, or of a JSON schema; the options are those of a `Request`.

    Writes the answer to the field `into`, or to `field.key` of a dict field.
    SUCCESS when it is answered.
    RUNNING while the question is open.
    FAILURE when it was declined or cancelled, has expired or was withdrawn; the feedback has the reason.
    Halting withdraws the question; the next entry asks anew.
    """

    def __init__(
        self, name: str, *, message: Message, answer: object = str, into: str | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(name)
        self._request = Request(message, answer=answer, **options)
        self.answers = answer
        self._write_into(into, answer)


class Choose(Asking):
    """Ask a person to choose one of the `options`, which are JSON; `more` options are those of a `Request`.

    Writes the option chosen to the field `into`, or to `field.key` of a dict field.
    SUCCESS when one was chosen; all else is refused at the door, and the question stays open.
    RUNNING while the question is open.
    FAILURE when it was declined or cancelled, has expired or was withdrawn; the feedback has the reason.
    Halting withdraws the question; the next entry asks anew.
    """

    def __init__(self, name: str, *, message: Message, options: Choices, into: str, **more: Unpack[Options]) -> None:
        super().__init__(name)
        self._message, self._more = message, more
        self._options = Option(self, "options", options, CHOICES)
        kind: object = Any
        if not callable(options):
            self.request()
            kind = Union[tuple(type(option) for option in options)]  # noqa: UP007  # built at run time
        self._write_into(into, kind)

    @property
    def known_request(self) -> Request | None:
        """What the node always asks, unless the options follow the state."""
        return None if self._options.is_function else self.request()

    def request(self) -> Request:
        """Return what is asked, with the options as they are now."""
        return Request(self._message, answer={"enum": list(self._options())}, **self._more)


class WaitFor(Asking):
    """Wait for an answer from outside, for `seconds` from the entry on, or for the one within the other.

    The run is suspended meanwhile; the question has the reason "wait", and any JSON value answers it.
    Writes the answer to the field `into`, or to `field.key` of a dict field.
    SUCCESS when it is answered; and, without a message, when `seconds` are over.
    RUNNING until then.
    FAILURE when `seconds` are over and there is a message; when it was declined, cancelled or
    withdrawn. The feedback has the reason.
    Halting withdraws the question; the next entry waits anew.
    """

    def __init__(
        self, name: str, *, message: Message | None = None, seconds: Number | None = None, into: str | None = None
    ) -> None:
        super().__init__(name)
        self._request = Request(name if message is None else message, answer=Any, reason="wait")
        self._is_mere = message is None
        self._seconds = None if seconds is None else Option(self, "seconds", seconds, SECONDS)
        self._write_into(into, Any)

    def request(self) -> Request:
        """Return what is waited for."""
        expires = None if self._seconds is None else [fail(after=self._seconds())]
        return replace(self._request, expires=expires)

    def on_unanswered(self, reason: str) -> Status:
        """Tell the end of a mere wait from a wait that was in vain."""
        record = self._record()
        if self._is_mere and record is not None and record.status == "expired":
            self.feedback_message = "the time is over"
            return Status.SUCCESS
        return super().on_unanswered(reason)


class Approve(Wrapper, InteractiveNode):
    """Ask for approval, then run the child; the options are those of a `Request`.

    What `show(snapshot)` returns, which is JSON, is shown beside the message. Both are computed when the node asks and
    again before the child starts: if they differ, the approval was for something else, and the node asks anew.
    SUCCESS, FAILURE: as the child, once approved.
    RUNNING while the question is open, and while the child is.
    FAILURE when it was rejected or declined, has expired or was withdrawn; the feedback has the reason.
    Halting withdraws the question and halts the child; the next entry asks anew.

    Attributes:
        edited: what to do instead, as the person who approved has put it, or None.
    """

    is_loop = True
    keeps = ("_asked", "_is_approved", "edited")
    stop = Decorator.stop  # pyright: ignore[reportAssignmentType]  # a decorator stops its child as well
    answers = Approval
    edited: JsonValue = None
    _is_approved = False

    def __init__(
        self, name: str, child: Behaviour, *, message: Message, show: Show | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(name, child)
        if show is not None:
            plain(self, "show", show)
            options["data"] = show
        options.setdefault("reason", "approval")
        self._request = Request(message, answer=Approval, **options)

    def initialise(self) -> None:
        """Begin without an approval; what is asked now is not asked again by being looked at."""
        super().initialise()
        mark_loops(self.decorated, Pass.current().number)

    def steps(self) -> Steps:
        """Ask, wait, look at what was decided, then tick the child."""
        if not self._is_approved:
            status = InteractiveNode.update(self)
            if status is Status.RUNNING:
                self.feedback_message = "waits for approval"
            if status is not Status.SUCCESS:
                return status
            self._is_approved = True
        yield self.decorated
        return self.update()

    @property
    def known_request(self) -> Request | None:
        """What the node always asks."""
        return self._request

    def request(self) -> Request:
        """Return what is asked."""
        return self._request

    def on_answer(self, answer: Approval) -> Status | Request:
        """Look whether what would be done now was approved; if something else was, ask anew."""
        if not answer.approved:
            self.feedback_message = answer.reason or "rejected"
            return Status.FAILURE
        record, snapshot, message, data = self._record(), self.read_state(), self._request.message, self._request.data
        shown = message(snapshot) if callable(message) else message
        if record and record.question.digest != digest_of_shown(shown, data(snapshot) if callable(data) else data):
            return self._request
        self.edited, self.feedback_message = answer.edited_args, ""
        return Status.SUCCESS

    def terminate(self, new_status: Status) -> None:
        """Withdraw the question, unless the run is only parked."""
        if new_status is Status.INVALID:
            self.on_halt()

    def restore(self, value: Any) -> None:
        """Take back the question, or the approval."""
        super().restore(value)
        if self._asked is not None and not self._is_approved:
            self.context.run.interaction.attach_adapter(self._asked, Approval)
