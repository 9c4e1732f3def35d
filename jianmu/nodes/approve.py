"""Approve: a person says whether the child may run, having been shown what it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack  # Any: a snapshot's type is the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import JsonValue

from jianmu.engine.control import Steps
from jianmu.engine.interaction import Approval, Record, Request, digest_of_shown
from jianmu.engine.passes import Pass
from jianmu.engine.watching import mark_loops
from jianmu.errors import NotAnsweredError
from jianmu.nodes.ask import Message, RequestOptions
from jianmu.nodes.base import Wrapper
from jianmu.nodes.options import plain


class Approve(Wrapper):
    """Ask for approval, then run the child.

    What `show` returns is shown. It is computed when the node asks and again before the child starts:
    if it differs, the approval was for something else, and the node asks anew.
    SUCCESS, FAILURE: as the child, once approved.
    RUNNING while the question is open, and while the child is.
    FAILURE when it was rejected or declined, has expired or was withdrawn; the feedback has the reason.
    Halting withdraws the question and halts the child; the next entry asks anew.

    Args:
        name: the node's name.
        child: what needs approval.
        message: what to ask, or a function of the snapshot.
        show: a function of the snapshot that returns JSON: what exactly is to be done.
        options: as those of a `Request`: `key`, `expires`, `assignee`, `metadata`, `private`, `reason`.

    Attributes:
        edited: what to do instead, as the person who approved has put it, or None.
    """

    is_loop = True
    keeps = ("_asked", "_is_approved", "edited")

    def __init__(
        self,
        name: str,
        child: Behaviour,
        *,
        message: Message,
        show: Callable[[Any], JsonValue] | None = None,
        **options: Unpack[RequestOptions],
    ) -> None:
        super().__init__(name, child)
        if show is not None:
            plain(f'Approve("{name}", child, show=...)', show)
            options["data"] = show
        options.setdefault("reason", "approval")
        self._request = Request(message, answer=Approval, **options)
        self.edited: JsonValue = None
        self._asked: str | None = None
        self._is_approved = False

    @property
    def is_waiting(self) -> bool:
        """Whether the node's question is open."""
        record = self._record()
        return record is not None and record.status == "open"

    def initialise(self) -> None:
        """Begin without an approval."""
        self._asked, self._is_approved, self.edited = None, False, None

    def steps(self) -> Steps:
        """Ask, wait, look at what was decided, then tick the child."""
        if not self._is_approved:
            status = self._decided()
            if status is not Status.SUCCESS:
                return status
            self._is_approved = True
        yield self.decorated
        return self.update()

    def terminate(self, new_status: Status) -> None:
        """Withdraw the question, unless the run is only parked."""
        if new_status is Status.INVALID and self._asked is not None:
            context = self.context
            if not context.run.is_parking:
                context.run.interaction.withdraw_open(context.path)
            self._asked = None

    def _decided(self) -> Status:
        """Return SUCCESS if what would be done now was approved."""
        record = self._record()
        if record is None:
            return self._ask()
        if record.status == "open":
            return Status.RUNNING
        try:
            approval: Approval = self.context.run.interaction.deliver(record.id, self._request)
        except NotAnsweredError as refused:
            self.feedback_message = refused.reason
            return Status.FAILURE
        if not approval.approved:
            self.feedback_message = approval.reason or "rejected"
            return Status.FAILURE
        if self._digest() != record.question.digest:
            return self._ask()
        self.edited = approval.edited_args
        self.feedback_message = ""
        return Status.SUCCESS

    def _ask(self) -> Status:
        """Ask, and wait."""
        context = self.context
        key = self._request.key or self.name
        record = context.run.interaction.ask(context.origin(), self._request, context.read_state(), key=key)
        self._asked = record.id
        self.feedback_message = "waits for approval"
        mark_loops(self, Pass.current().number)
        vars(self)["async_started"] = Pass.current().number
        return Status.RUNNING

    def _digest(self) -> str:
        """Return the digest of what would be shown now."""
        snapshot, request = self.read_state(), self._request
        message = request.message(snapshot) if callable(request.message) else request.message
        return digest_of_shown(message, request.data(snapshot) if callable(request.data) else request.data)

    def _record(self) -> Record | None:
        return None if self._asked is None else self.context.run.interaction.record(self._asked)
