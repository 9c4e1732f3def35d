"""The calls of one reply, and what has become of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: JSON

from pydantic import BaseModel, ConfigDict

from jianmu.engine.context import NodeContext
from jianmu.engine.events import ToolReturned
from jianmu.engine.journal import Entry
from jianmu.engine.questions import digest
from jianmu.message import Usage, answered
from jianmu.nodes import conversation
from jianmu.tool.cut import cut
from jianmu.tool.types import Content, TextPart, ToolCall

_PLAIN = re.compile(r"[\w.:-]{1,100}")
"""Ids that can stand in a key."""

_EDIT_CHARS = 10_000
_ONE_CALL = Usage.model_construct(tool_calls=1)  # see model/scripted.py: nothing is validated at import

CUT_OFF = "was cut off, since its turn was ended; whether it took effect is not known."
NOT_CALLED = "was not called, since its turn was ended before."


class CallOutcome(BaseModel):
    """What came of a call, as the journal keeps it.

    Attributes:
        content: what the model is shown.
        is_error: whether it failed.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    content: Content = ""
    is_error: bool = False


class Turn:
    """The calls of one reply; calls are named by their place in it.

    Args:
        reply: the id of the reply's message.
        calls: its calls.
        counted: the ids of the calls that the run's usage has.

    Attributes:
        outcomes: what came of calls.
        judged: why calls are not to be carried out; None of those that are. It is not asked again after a suspension.
        begun: the calls that were begun since the node was entered.
    """

    def __init__(
        self,
        reply: str = "",
        calls: Sequence[ToolCall] = (),
        counted: Sequence[str] = (),
        judged: Mapping[int, str | None] | None = None,
    ) -> None:
        self.reply = reply
        self.calls = tuple(calls)
        self.counted = set(counted)
        self.judged = dict(judged or {})
        self.outcomes: dict[int, CallOutcome] = {}
        self.begun: set[int] = set()
        self._untold: set[int] = set()
        self._name = ""

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Turn:
        """Return a turn as `kept` has returned it."""
        calls = [ToolCall.model_validate(call) for call in kept.get("calls", ())]
        judged = {int(place): text for place, text in kept.get("judged", {}).items()}
        return cls(kept.get("reply", ""), calls, kept.get("counted", ()), judged)

    def kept(self) -> dict[str, Any]:
        """Return what tells it in another process, as JSON."""
        calls = [call.model_dump(mode="json") for call in self.calls]
        kept = {"reply": self.reply, "calls": calls, "counted": sorted(self.counted)}
        return {**kept, "judged": {str(at): text for at, text in self.judged.items()}} if self.judged else kept

    def enter(self) -> None:
        """Forget what has become of calls: the node is entered, and looks at them anew."""
        self.outcomes.clear()
        self.begun.clear()
        self._untold.clear()

    def scope(self, call: ToolCall) -> str:
        """Return what stands before the keys of a call; a model may use an id in one reply after the other."""
        self._name = self._name or digest("reply", self.reply)[:8]
        id = call.id if _PLAIN.fullmatch(call.id) else digest("call", call.id)
        return f"{id}@{self._name}"

    def due(self, context: NodeContext) -> list[int]:
        """Return the calls that have no result in the conversation."""
        answered = conversation.answered_since(conversation.messages_of(context), self.reply)
        return [place for place, call in enumerate(self.calls) if call.id not in answered]

    def fail(self, place: int, text: str) -> CallOutcome:
        """Give a call that is not carried out an error for its result."""
        return self.settle(place, CallOutcome(content=text, is_error=True))

    def settle(self, place: int, outcome: CallOutcome) -> CallOutcome:
        """Give a call that no tool carries out its result."""
        self.outcomes[place] = outcome
        self._untold.add(place)
        return outcome

    def append(self, context: NodeContext) -> None:
        """Write the results that are not in the conversation yet, in the order of the calls; count what was used."""
        due = [place for place in self.due(context) if place in self.outcomes]
        made = [(self.calls[place], self.outcomes[place]) for place in due]
        for place in due if context.run.events.is_heard else ():
            if place in self._untold:
                call, is_error = self.calls[place], self.outcomes[place].is_error
                context.emit(ToolReturned(call_id=call.id, name=call.name, is_error=is_error))
        if made:
            results = [answered(call, one.content, is_error=one.is_error) for call, one in made]
            count = len(self.counted)
            used = _ONE_CALL if count == 1 else Usage(tool_calls=count)
            conversation.append(context, results, conversation.counted(context, used) if count else None)

    def close(self, context: NodeContext) -> None:
        """Give each call a result that has none: what is known of it."""
        for place in self.due(context):
            if place not in self.outcomes and not self.recall(place, context):
                self.fail(place, self.broken_off(place, context) or f"'{self.calls[place].name}' {NOT_CALLED}")
        self.append(context)

    def recall(self, place: int, context: NodeContext) -> bool:
        """Take the outcome of a call that was carried out before; return whether it was."""
        entry = self._recorded(place, context)
        if entry is None or entry.state != "done":
            return False
        self.outcomes[place] = CallOutcome.model_validate(entry.result)
        return True

    def broken_off(self, place: int, context: NodeContext) -> str | None:
        """Return what the model is told of a call that was begun and has no outcome, or None for others."""
        if place in self.begun or self._recorded(place, context) is not None:
            return f"'{self.calls[place].name}' {CUT_OFF}"
        return None

    def _recorded(self, place: int, context: NodeContext) -> Entry | None:
        return context.run.journal.recorded(context.origin(), self.calls[place].id, per="activation")


def with_edit(call: ToolCall, content: Content) -> Content:
    """Return a result that tells the model with which arguments its call was carried out."""
    arguments = cut(json.dumps(call.arguments, ensure_ascii=False), _EDIT_CHARS)
    note = f"[The person who approved this call has changed its arguments to {arguments}]"
    return f"{note}\n{content}" if isinstance(content, str) else (TextPart(text=note), *content)
