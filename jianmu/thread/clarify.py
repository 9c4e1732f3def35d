"""Clarify: the tool with which a model asks the person whom it works for, before it does anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # Any: answers

from jianmu.engine.questions import Step
from jianmu.engine.request import Request
from jianmu.errors import NotAnsweredError
from jianmu.nodes.turn import CallOutcome
from jianmu.nodes.verdicts import AskingTool
from jianmu.tool.types import ToolCall

TOOL = "ask_clarification"


class Clarify(AskingTool):
    """A tool whose call is a question to a person; the answer is its result: `tools=[Clarify(), search]`.

    The run is suspended with the question before any other call of the same reply is begun, and together with their
    approvals; they are carried out after the answer. A question that is declined, cancelled, withdrawn or has expired
    has an error for its result, which says so, and the others are carried out all the same.

    Args:
        name: what the model calls it by.
        description: what the model is told; by default when and how to ask.
        free: whether any answer is taken where the model gives options; else it is one of them.
        assignee: who is to answer.
        expires: what is done at deadlines, as for a `Request`.
    """

    def __init__(
        self,
        name: str = TOOL,
        *,
        description: str | None = None,
        free: bool = True,
        assignee: str | None = None,
        expires: Sequence[Step] | None = None,
    ) -> None:
        super().__init__(ask_clarification, name=name, description=description)
        self._free, self._assignee, self._expires = free, assignee, expires
        Request(name, assignee=assignee, expires=expires)  # refuses what no question could have

    def request_of(self, call: ToolCall) -> Request:
        """Return the question, with its options below it."""
        question = str(call.arguments["question"]).strip()
        given = call.arguments.get("options")
        options = (
            [*dict.fromkeys(text for one in given if (text := str(one).strip()))] if isinstance(given, list) else []
        )
        if not question:
            raise ValueError("the question is empty")
        return Request(
            "\n".join([question, *(f"- {one}" for one in options)]),
            answer=str if self._free or not options else {"enum": options},
            reason="clarification",
            data={"question": question, "options": [*options]},
            assignee=self._assignee,
            expires=self._expires,
        )

    def outcome_of(self, call: ToolCall, answer: Any) -> CallOutcome:
        """Return the answer as it was given."""
        if isinstance(answer, NotAnsweredError):
            return CallOutcome(content=f"Nobody has answered: {answer.reason}.", is_error=True)
        return CallOutcome(content=str(answer) or "(The answer is empty.)")


def ask_clarification(question: str, options: list[str] | None = None) -> None:
    """Ask the person you work for, where something that matters is missing, unclear or risky. Ask before you act.

    Args:
        question: the question; all that has to be known to answer it.
        options: answers to choose from, if there are some.
    """
