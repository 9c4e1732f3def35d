"""Approval of tool calls: asked as one group, before anything is done.

1. An approval holds for the arguments that were shown, or for those that the person has put in their place.
2. Edited arguments replace all others and are checked as a model's are; if they do not fit, it is asked anew.
3. What is to be remembered is kept in the state: for the same tool with the same arguments, or for the tool.
4. A call that was asked about stays one that was, whatever the rule says when the node is entered again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, cast  # Any: answers, and JSON in the state

from pydantic import JsonValue

from jianmu.engine.answers import Approval
from jianmu.engine.context import NodeContext
from jianmu.engine.questions import Step as Deadline
from jianmu.engine.questions import digest
from jianmu.engine.request import Request
from jianmu.errors import NotAnsweredError
from jianmu.nodes.verdicts import Step, Verdict, Wish, refused
from jianmu.tool.types import ToolCall

FIELD = "approvals"
Remember = Literal["call", "tool"]


class ApprovalOptions(TypedDict, total=False):
    """What a `Request` for approval has beside the call: who is to answer, and until when."""

    assignee: str | None
    expires: Sequence[Deadline] | None


def is_approval(value: object) -> bool:
    """Whether it is what an executor takes as its `approval`."""
    return value is None or (isinstance(value, Mapping) and {*value} <= ApprovalOptions.__annotations__.keys())


class Approvals:
    """Who may call what: asks, and remembers.

    Args:
        remember: what an answer that is to be remembered holds for.
        options: of the requests.
    """

    def __init__(self, remember: Remember, options: ApprovalOptions) -> None:
        self._remember = remember
        self._options = options

    def is_due(self, context: NodeContext, wish: Wish) -> bool:
        """Whether a call has to be approved, or has been asked about."""
        asked = context.run.interaction.latest(context.origin(), _key(wish))
        return asked is not None or wish.tool.needs_approval(wish.call.arguments)

    def first(self, context: NodeContext, wish: Wish) -> Step:
        """Return what has to be asked about a call that has to be approved, or what is remembered."""
        return self._remembered(context, wish) or _Approving(self, context, wish)

    def request(self, context: NodeContext, wish: Wish, tries: int) -> Request:
        """Return what is asked about a call, after so many answers that could not be used."""
        call = wish.call
        return Request(
            f"{wish.problem}May '{call.name}' be called?",
            answer=Approval,
            reason="approval",
            key=_key(wish) + (f":{tries}" if tries else ""),
            data={"tool": call.name, "arguments": cast("JsonValue", call.arguments)},
            metadata={"parameters": wish.tool.parameters, "remembers": self._remember if _place(context) else None},
            tool_call_id=call.id,
            **self._options,
        )

    def judge(self, context: NodeContext, wish: Wish, answer: Any) -> Verdict | Wish:
        """Return what an answer decides, or what has to be asked anew."""
        call = wish.call
        if isinstance(answer, NotAnsweredError):
            return refused(f"'{call.name}' was not called, since nobody approved it: {answer.reason}.")
        given = cast("Approval", answer)
        if given.approved and given.edited_args is not None:
            edits = given.edited_args
            if isinstance(edits, dict):
                call = ToolCall(id=call.id, name=call.name, arguments=edits)
                problem = wish.tool.check(call)
            else:
                problem = "The edited arguments are no JSON object."
            if problem is not None:
                return Wish(wish.call, wish.tool, wish.turn, f"The edit cannot be used. {problem}\n")
        if given.remember:
            self._keep(context, call, given)
        return _verdict(call, given.approved, given.reason, is_edited=call is not wish.call)

    # What is remembered

    def _name(self, call: ToolCall) -> str:
        """Return what a decision about a call is kept under."""
        return call.name if self._remember == "tool" else f"{call.name}:{digest('arguments', call.arguments)}"

    def _remembered(self, context: NodeContext, wish: Wish) -> Verdict | None:
        if context.run.interaction.latest(context.origin(), _key(wish)) is not None:
            return None
        place = _place(context)
        kept = context.manager.read(FIELD) if place == "field" else place and context.read_state(FIELD)
        known = cast("Mapping[str, Any]", kept or {}).get(self._name(wish.call))
        return None if known is None else _verdict(wish.call, known["approved"] is True, known.get("reason"))

    def _keep(self, context: NodeContext, call: ToolCall, given: Approval) -> None:
        decision = {self._name(call): {"approved": given.approved, "reason": given.reason}}
        place = _place(context)
        if place == "field":
            context.merge_dict(FIELD, decision)
        elif place == "namespace":
            context.write_state(decision, namespace=FIELD)
        else:
            context.log.warning("an approval cannot be remembered", tool=call.name, write=f"{FIELD}: dict[str, Any]")


def _key(wish: Wish) -> str:
    """Return the key of the first question about a call; those that its tool asks have a `/` there."""
    return f"{wish.key}:approve"


def _place(context: NodeContext) -> Literal["field", "namespace"] | None:
    """Return where the state has room for what is remembered."""
    schema = context.manager.schema
    if FIELD in schema.types:
        return "field"
    return None if schema.extra is None else "namespace"


def _verdict(call: ToolCall, is_approved: bool, reason: str | None, *, is_edited: bool = False) -> Verdict:
    if is_approved:
        return Verdict(call, is_edited=is_edited)
    why = f": {reason}" if reason else "."
    return refused(f"'{call.name}' was not called, since it was rejected{why}")


class _Approving:
    """The question whether a call may be made; an edit that cannot be used is asked about anew."""

    def __init__(self, approvals: Approvals, context: NodeContext, wish: Wish, tries: int = 0) -> None:
        self._approvals, self._context, self._wish, self._tries = approvals, context, wish, tries

    def request(self) -> Request:
        return self._approvals.request(self._context, self._wish, self._tries)

    def judge(self, answer: Any) -> Step:
        found = self._approvals.judge(self._context, self._wish, answer)
        if isinstance(found, Verdict):
            return found
        return _Approving(self._approvals, self._context, found, self._tries + 1)
