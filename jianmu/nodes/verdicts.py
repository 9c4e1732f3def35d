"""What is asked about the calls of a reply before any of them is begun, and what comes of it.

1. All that is asked is asked as one group; what an answer leads to is asked when all of the group are answered.
2. For each call there is a verdict at the end: what is to be carried out, or the result that it has without that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias  # Any: answers

from jianmu.engine.context import NodeContext
from jianmu.engine.request import Request
from jianmu.errors import SetupError
from jianmu.nodes.turn import CallOutcome, Turn, with_edit
from jianmu.tool.base import Tool
from jianmu.tool.types import ToolCall, ToolResult, content_of

_NOTHING = CallOutcome.model_construct()  # see model/scripted.py: nothing is validated at import


class Wish(NamedTuple):
    """A call of a tool that is there.

    Attributes:
        call: as the model wants it.
        tool: what it calls.
        turn: what it is a call of.
        problem: why the answer before could not be used.
    """

    call: ToolCall
    tool: Tool
    turn: Turn
    problem: str = ""

    @property
    def key(self) -> str:
        """What tells its questions from others of the node."""
        return self.turn.scope(self.call)


class Verdict(NamedTuple):
    """What is to become of a call.

    Attributes:
        call: what is to be carried out, or None.
        outcome: what the model is shown instead.
        is_edited: whether the arguments are a person's.
    """

    call: ToolCall | None = None
    outcome: CallOutcome = _NOTHING
    is_edited: bool = False


class Question(Protocol):
    """What is asked about a call."""

    def request(self) -> Request:
        """Return what is asked; it has a key."""
        ...

    def judge(self, answer: Any) -> Step:
        """Return what an answer, or the `NotAnsweredError` in its place, decides, or what has to be asked then."""
        ...


Step: TypeAlias = Verdict | Question


class AskingTool(Tool):
    """A tool whose calls are questions: the answer is the result, and nothing else is carried out.

    It is asked before any call of its reply is begun, together with the approvals; after its own approval, if it needs
    one. Subclasses have `request_of` and `outcome_of`; the function gives name, arguments and description.
    """

    def request_of(self, call: ToolCall) -> Request:
        """Return what is asked for a call whose arguments fit; key and call are filled in.

        Raises:
            ValueError: it cannot be asked; the text is for the model.
        """
        raise SetupError(f"{type(self).__name__} has no request_of(): override it and return a Request")

    def outcome_of(self, call: ToolCall, answer: Any) -> CallOutcome:
        """Return the result for an answer, or for the `NotAnsweredError` in its place."""
        raise SetupError(f"{type(self).__name__} has no outcome_of(): override it and return a CallOutcome")

    async def call(self, call: ToolCall, *, context: NodeContext | None = None, deps: Any = None) -> ToolResult:
        """Refuse to be called as a plain tool."""
        raise SetupError(f"tool '{self.name}' is a question: give it to a ToolExecutor, which asks it")


def refused(text: str) -> Verdict:
    """Return the verdict that a call is not carried out."""
    return Verdict(outcome=CallOutcome(content=text, is_error=True))


async def decide(
    context: NodeContext, wishes: Mapping[int, Wish], first: Callable[[Wish], Step], group: str
) -> dict[int, Verdict]:
    """Return the verdict about each call, in their order.

    Args:
        context: of the node that asks.
        wishes: the calls, by their places.
        first: says what has to be asked about a call before it is begun, if anything.
        group: shown with each question.
    """
    steps = {place: _then(wish, first(wish)) for place, wish in wishes.items()}
    while asked := {place: step for place, step in steps.items() if not isinstance(step, Verdict)}:
        answers = await context.ask_all([one.request() for one in asked.values()], group=group)
        judged = zip(asked.items(), answers, strict=True)
        steps |= {place: _then(wishes[place], one.judge(answer)) for (place, one), answer in judged}
    return {place: step for place, step in steps.items() if isinstance(step, Verdict)}


def _then(wish: Wish, step: Step) -> Step:
    """Return the question that a call is, once it may be carried out, in the place of that verdict."""
    tool = wish.tool
    if not isinstance(tool, AskingTool) or not isinstance(step, Verdict) or step.call is None:
        return step
    problem = tool.check(step.call)
    if problem is not None:
        return refused(problem)
    try:
        return _Asked(tool, step.call, wish.key, tool.request_of(step.call), is_edited=step.is_edited)
    except ValueError as error:
        problem = str(error)
    return refused(f"'{tool.name}' was not asked: {problem}")


class _Asked:
    """The question that a call is."""

    def __init__(self, tool: AskingTool, call: ToolCall, key: str, request: Request, *, is_edited: bool) -> None:
        self._tool, self._call, self._is_edited = tool, call, is_edited
        self._request = replace(request, key=f"{key}:ask", tool_call_id=call.id)

    def request(self) -> Request:
        return self._request

    def judge(self, answer: Any) -> Verdict:
        outcome = self._tool.outcome_of(self._call, answer)
        content = with_edit(self._call, outcome.content) if self._is_edited else outcome.content
        return Verdict(outcome=CallOutcome(content=content_of(content), is_error=outcome.is_error))
