"""SubagentLimit: how many tasks a model may give to subagents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar  # Any: the snapshot

from py_trees.behaviour import Behaviour

from jianmu.engine.tree import descend
from jianmu.nodes import conversation
from jianmu.nodes.base import Number, Option, Shape, is_number
from jianmu.nodes.calldecorator import CallDecorator
from jianmu.nodes.tools import ToolExecutor
from jianmu.thread.folds import MAX_DELEGATIONS
from jianmu.thread.part import Part
from jianmu.thread.task import LEDGER, Task
from jianmu.tool.types import ToolCall

COUNT: Shape = (
    (lambda value: is_number(value, int) and 0 <= value <= MAX_DELEGATIONS),
    f"a whole number from 0 to {MAX_DELEGATIONS}, which is what the ledger holds",
)


class SubagentLimit(Part, CallDecorator):
    """Refuse calls of tasks beyond a number at once, and in a run; the model is told so.

    Reads `messages` and `delegations`, the ledger, so that a restart forgets nothing: what counts are the entries of
    the run that is on, and calls that stand before one in the same reply. Calls of other tools pass, and so do those
    whose arguments do not fit: nothing is given then.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what is below, with the node that carries out the calls.
        at_once: how many tasks may be begun or wait for their turn at a time, or a function of the snapshot.
        per_run: how many there may be in a run, or a function of the snapshot; 50 at most.
    """

    reads: ClassVar[tuple[str, ...]] = ("messages", LEDGER)

    def __init__(self, name: str, child: Behaviour, *, at_once: Number = 3, per_run: Number = 20) -> None:
        super().__init__(name, child)
        self._at_once = Option(self, "at_once", at_once, COUNT)
        self._per_run = Option(self, "per_run", per_run, COUNT)

    def on_bound(self) -> None:
        """Refuse a tree in which there are no tasks."""
        super().on_bound()
        if not self._tasks() and not self._may_build_below():
            line = f'SubagentLimit("{self.name}", react(model=model, tools=[task("research", build)]))'
            raise self._refused(f"finds no task below it: write {line}")

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Return why a task is not given, or None."""
        tasks = self._tasks()
        if not _gives(tasks, call):
            return None
        reply = conversation.last_reply(snapshot.messages)
        calls = [one for one in reply.tool_calls if _gives(tasks, one)] if reply is not None else []
        ids = [one.id for one in calls]
        before = ids.index(call.id) if call.id in ids else 0
        given = [one for one in snapshot.delegations if one.run_id == str(self.context.run.run)]
        at_once, per_run = self._at_once(), self._per_run()
        left, free = per_run - len(given), at_once - sum(not one.is_finished for one in given)
        if before < min(left, free):
            return None
        if left <= free:
            return f"'{call.name}' was not called: a run may give {_tasks(per_run)} to subagents. Go on without it."
        return (
            f"'{call.name}' was not called: {_tasks(at_once)} may be given at a time. Wait for the results of the "
            "others, then call it again if that is still needed."
        )

    def _tasks(self) -> dict[str, Task]:
        """Return the tasks that can be called below, by their names."""
        boxes = (node.tools for node in descend(self) if isinstance(node, ToolExecutor))
        return {tool.name: tool for box in boxes for tool in box.tools if isinstance(tool, Task)}


def _gives(tasks: Mapping[str, Task], call: ToolCall) -> bool:
    """Whether a call gives a task."""
    tool = tasks.get(call.name)
    return tool is not None and tool.check(call) is None


def _tasks(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"
