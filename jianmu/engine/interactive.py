"""InteractiveNode: a leaf that asks a person, inside the pass."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, cast, get_type_hints  # Any: answers and JSON

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.activity import RESULTS
from jianmu.engine.answers import Door, door_of
from jianmu.engine.node import NodeMixin
from jianmu.engine.passes import Pass, holds, may_hold
from jianmu.engine.record import Record
from jianmu.engine.request import Request
from jianmu.engine.shapes import is_plain, is_same_shape, refuse_other
from jianmu.engine.watching import mark_loops
from jianmu.errors import NotAnsweredError, SetupError


class InteractiveNode(NodeMixin, Behaviour):
    """A leaf that asks and goes on with the answer: override `request()` and `on_answer(answer)`.

    RUNNING while its question is open; then what `on_answer` or `on_unanswered` returns. A Request
    returned by `on_answer` is the next question. Both run inside the pass, as one step with their
    writes, so they are repeated only if that pass was not saved. Halting withdraws the question.

    Args:
        name: the node's name; by default its class's name.
        ports: what each port is bound to.

    Attributes:
        answers: the type that the node always asks for; with it, an answer that comes in another process
            is checked and read as that type too. None: that of the argument of `on_answer` or, where that says
            nothing, of what `request()` returns then, as far as it fits the question's stored schema.
    """

    answers: object = None
    _asked: str | None = None
    _is_again = False
    _is_typed = False
    _finished = -1

    def __init__(self, name: str | None = None, **ports: object) -> None:
        super().__init__(name if name is not None else type(self).__name__)
        self.bind_ports(ports)

    def request(self) -> Request:
        """Return what to ask."""
        raise SetupError(f"{type(self).__name__} has no request(): override it and return a Request")

    def on_answer(self, answer: Any) -> Status | Request:  # Any: the type that was asked for
        """Use the validated answer; return a Status, or the next Request."""
        raise SetupError(f"{type(self).__name__} has no on_answer(): override it and return a Status or a Request")

    def on_unanswered(self, reason: str) -> Status:
        """Go on without an answer: declined, cancelled, expired or withdrawn."""
        self.feedback_message = reason
        return Status.FAILURE

    @property
    def known_request(self) -> Request | None:
        """What the node always asks, where that is known before it asks."""
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether the node's question is open."""
        record = self._record()
        return record is not None and record.status == "open"

    def update(self) -> Status:
        """Ask, wait, or use the answer."""
        record = self._record()
        if record is None:
            return self._ask(self.request())
        if record.status == "open":
            return Status.RUNNING
        try:
            answer = self.context.run.interaction.deliver(record.id, self._typed(record))
        except NotAnsweredError as refused:
            return self.on_unanswered(refused.reason)
        result = self.on_answer(answer)
        return self._ask(result, is_again=True) if isinstance(result, Request) else result

    def tick_direct(self, run: Pass) -> Status:
        """Tick the node: ask at its entry, hold a result, or go on with the answer."""
        if self.status is not Status.RUNNING:
            if self.is_held():
                return self.status
            self._asked = None
            run.enter(self)
            mark_loops(self, run.number)
        status = run.finish(self, self.update())
        if status is not Status.RUNNING:
            self._finished = run.number
            self._asked = None
        return status

    def tick(self) -> Iterator[Behaviour]:
        """Tick the node inside of a composite that jianmu does not know."""
        self.tick_direct(Pass.current())
        yield self

    def stop(self, new_status: Status) -> None:
        """Stop the node; with INVALID its question is withdrawn."""
        if new_status is Status.INVALID:
            self.on_halt()
        self.terminate(new_status)  # what py_trees' stop does, apart from its log line
        self.status = new_status

    def on_halt(self) -> None:
        """Withdraw the question, unless the run is only parked."""
        if self._asked is not None and not self.context.run.is_parking:
            self.context.run.interaction.withdraw_open(self.context.path)
        self._asked = None

    def is_held(self) -> bool:
        """Whether the node has finished and stands by its result: it is not entered again, only reported."""
        return self.status in RESULTS and holds(self, self._finished)

    def memento(self) -> Any:  # Any: JSON
        """Return the question's id, or that a result may have to be held."""
        if self.status in RESULTS:
            return {"held": self._finished} if may_hold(self) else None
        if not self._asked or self.status is not Status.RUNNING:
            return None
        return {"asked": self._asked} | ({"again": True} if self._is_again else {})

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take back the question, or the result held."""
        self._asked = value.get("asked")
        self._is_again, self._is_typed = value.get("again", False), False
        self._finished = value.get("held", -1)
        record, interaction = self._record(), self.context.run.interaction
        if record is None:
            return
        declared = declared_answer(type(self)) if self.answers is None else None
        if self.answers is not None:
            interaction.attach_adapter(record.id, self.answers)
        elif declared is not None and is_same_shape(declared.schema, record.question.response_schema):
            interaction.attach_adapter(record.id, _answer_hint(type(self)))
            self._is_typed = True

    def _typed(self, record: Record) -> Request | None:
        """Return the request again, where only it can tell what type an answer is of: not for what was asked here.

        Nothing can be written meanwhile; a `request()` that fails then leaves the answer as JSON.
        """
        context, asked = self.context, record.question
        is_known = record.id in context.asked_here or self.answers is not None or self._is_typed or self._is_again
        if is_known or record.refusal is not None or is_plain(asked.response_schema):
            return None
        context.is_read_only = True
        try:
            request = self.request()
        except Exception:  # noqa: BLE001  # it was called to be looked at only
            return None
        finally:
            context.is_read_only = False
        refuse_other(asked, request, context.path)
        return request

    def _ask(self, request: Request, *, is_again: bool = False) -> Status:
        """Ask and wait."""
        if not isinstance(cast("object", request), Request):
            path, kind = self.context.path, type(request).__name__
            raise SetupError(f"node '{path}' returned {kind} from request(): return a Request", path=path)
        context = self.context
        key = request.key or self.name
        before = context.asked_before
        record = context.run.interaction.ask(
            context.origin(), request, context.read_state(), key=key, asked_before=before
        )
        self._asked, self._is_again = record.id, is_again
        context.asked_here.add(record.id)
        return Status.RUNNING

    def _record(self) -> Record | None:
        """Return the record of the question that the node waits for."""
        return None if self._asked is None else self.context.run.interaction.record(self._asked)


def declared_answer(cls: type[InteractiveNode]) -> Door | None:
    """Return what the argument of `on_answer` takes, or None where it does not say."""
    kind = _answer_hint(cls)
    if kind in (None, Any, object):
        return None
    try:
        return door_of(kind)
    except SetupError:
        return None


def _answer_hint(cls: type[InteractiveNode]) -> Any:
    try:
        name = [*inspect.signature(cls.on_answer).parameters][1]
        return get_type_hints(cls.on_answer).get(name)
    except Exception:  # noqa: BLE001  # names of types that are not at the top of their module, whatever they are
        return None
