"""The plan: how the model writes it, comes to think of it again, and is kept from ending before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, cast  # Any: snapshots, and the arguments of a call

from py_trees.common import Status
from pydantic import Field

from jianmu.engine.context import NodeContext
from jianmu.engine.node import Node
from jianmu.engine.state import Clear
from jianmu.message import Message
from jianmu.model.base import ModelRequest
from jianmu.nodes import conversation
from jianmu.nodes.base import Number, Option, whole
from jianmu.nodes.llm import AgentLLMNode, HasFinalAnswer
from jianmu.nodes.projections import RequestProjection, note
from jianmu.thread.items import Todo
from jianmu.thread.loopguard import LoopGuard
from jianmu.thread.part import Kinds, Part, fields_for, nodes_above
from jianmu.tool.base import tool

MOST_ITEMS = 100
"""Items that a plan may have."""
SENT_BACK = "todos:sent-back"
"""The key of `repeats` under which it is counted how often an answer was sent back."""
_SHOWN = 300
_ROLLED_OUT = "These items of your plan are open; what you said of them is not in this conversation any more:"
_GO_ON = "Tell of each change with write_todos."
_TOO_EARLY = "You have given a final answer, and these items of your plan are open:"
_DECIDE = "Go on with them. If they are done or no longer needed, say so with write_todos; then answer again."


@tool(idempotent=True)
async def write_todos(todos: Annotated[list[Todo], Field(max_length=MOST_ITEMS)], context: NodeContext) -> str:
    """Write the plan: the whole list, which takes the place of the one before. An empty list clears it.

    Use it for work of three steps or more. Set an item to in_progress before you begin with it, and to completed as
    soon as it is done.

    Args:
        todos: all items, in order.
        context: of the node that calls.
    """
    fields_for(context, "todos")
    if _siblings(context) > 1:
        raise ValueError(
            "one reply writes the plan once: none of these calls was carried out; call it once, with all items"
        )
    context.write_state({"todos": todos})
    return f"The plan has {len(todos)} items; open: {sum(one.is_open for one in todos)}."


def _siblings(context: NodeContext) -> int:
    """Return how many calls of the reply are of the tool that is called."""
    reply = conversation.last_reply(conversation.messages_of(context))
    calls = () if reply is None else reply.tool_calls
    name = next((call.name for call in calls if call.id == context.tool_call_id), None)
    return sum(call.name == name for call in calls)


class PlanReminder(Part, RequestProjection):
    """Remind the model of the open items of its plan, in the request only, when nothing there tells of them.

    That is so when the newest `write_todos` call that is left in the request is not the one that the plan is from: it
    was left out by another projection, wherever that stands, or somebody else has written the plan. After a final
    answer that was sent back (see FinishPlan) the model is always reminded. Reads `todos` and `messages`.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.
    """

    is_late: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("todos", "messages")
    wraps: ClassVar[Kinds] = (AgentLLMNode,)
    twice: ClassVar[str] = "the model would be reminded"

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with the open items at its end, if they are to be told."""
        todos: Sequence[Todo] = snapshot.todos or ()
        if not any(one.is_open for one in todos):
            return request
        if _is_answered(snapshot.messages):
            text = _listed(_TOO_EARLY, todos, _DECIDE)
        elif _last_told(request.messages) != [*todos]:
            text = _listed(_ROLLED_OUT, todos, _GO_ON)
        else:
            return request
        return replace(request, messages=[*request.messages, note(f"plan:{self.context.path}", text)])


def _is_answered(messages: Sequence[Message]) -> bool:
    """Whether a conversation ends with a final answer."""
    return bool(messages) and messages[-1].role == "ai" and not messages[-1].tool_calls


def _last_told(messages: Sequence[Message]) -> list[Todo] | None:
    """Return the plan as the model has written it last, or None."""
    calls = (call for message in reversed(messages) for call in reversed(message.tool_calls))
    written = next((call.arguments.get("todos") for call in calls if call.name == write_todos.name), None)
    try:
        return [Todo.model_validate(one) for one in cast("list[Any]", written or [])]
    except (TypeError, ValueError):
        return None


def _listed(before: str, todos: Sequence[Todo], after: str) -> str:
    """Return the open items for the model."""
    lines = [f"- [{one.status}] {_short(one.content)}" for one in todos if one.is_open]
    return "\n".join([before, *lines[:MOST_ITEMS], after])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


class FinishPlan(Part, Node):
    """Send a final answer back while items of the plan are open, so often in a run; the model goes on, reminded.

    It stands after the model node and before what looks for the answer. Reads `todos`, `final_answer`, `done` and
    `repeats`, where it is counted. When it sends an answer back it sets `final_answer` and `done` back to their
    defaults, so that the loop around goes on; the answer stays in `messages`. The reminder is the PlanReminder's. An
    answer that a LoopGuard above has asked for stands: the model may call no tool any more, so it cannot go on.
    SUCCESS in any case, at once.

    Args:
        name: the node's name.
        most: how often an answer is sent back in one run, or a function of the snapshot.
        max_rounds: how many replies the loop around has room for: an answer in the last one stands. None: no bound.
    """

    reads: ClassVar[tuple[str, ...]] = ("todos", "final_answer", "done", "rounds")
    writes: ClassVar[tuple[str, ...]] = ("repeats", "final_answer", "done")
    requires: ClassVar[Kinds] = (AgentLLMNode, PlanReminder)
    after: ClassVar[Kinds] = (AgentLLMNode,)
    before: ClassVar[Kinds] = (HasFinalAnswer,)

    def __init__(self, name: str | None = None, *, most: Number = 2, max_rounds: Number | None = None) -> None:
        super().__init__(name)
        self._most = Option(self, "most", most, whole(0))
        self._max_rounds = None if max_rounds is None else Option(self, "max_rounds", max_rounds, whole(1))

    def update(self) -> Status:
        """Send the answer back, if there is one too early."""
        state = self.read_state()
        has_answer = state.done or state.final_answer not in (None, "")
        if has_answer and any(one.is_open for one in state.todos or ()) and self._may(state):
            self.write_state({"repeats": {SENT_BACK: 1}, "final_answer": Clear(), "done": Clear()})
            self.feedback_message = "sent an answer back: the plan is not done"
        return Status.SUCCESS

    def _may(self, state: Any) -> bool:
        """Whether an answer may be sent back once more."""
        has_room = self._max_rounds is None or state.rounds < self._max_rounds()
        is_last = any(isinstance(above, LoopGuard) and above.wants_answer for above in nodes_above(self))
        return has_room and not is_last and state.repeats.get(SENT_BACK, 0) < self._most()
