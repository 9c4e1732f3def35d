"""The parts that a ready assistant has, each in its place: beside the tools, around the calls, around the requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any  # Any: functions of the user's

from py_trees.behaviour import Behaviour

from jianmu.nodes.base import Number
from jianmu.nodes.delegating import acting
from jianmu.nodes.llm import Tools
from jianmu.prebuilt.react import ActOptions
from jianmu.thread.deferred import DeferredTools, tool_search
from jianmu.thread.paths import ThreadFolders
from jianmu.thread.sandboxes import Sandboxes
from jianmu.thread.sandboxtools import sandbox_tools
from jianmu.thread.task import Task
from jianmu.thread.tasklimit import SubagentLimit
from jianmu.thread.todos import PlanReminder, write_todos
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Which parts there are.

    Attributes:
        plan: whether there is a plan.
        folders: where the folders of threads are, or None: there are no files.
        sandboxes: where programs run, or None: nowhere.
        deferred: tools of which the model knows the names only, or None.
        tasks_at_once: how many tasks there may be at a time.
        tasks_per_run: how many tasks a run may give.
    """

    plan: bool
    folders: ThreadFolders | None
    sandboxes: Sandboxes | None
    deferred: Toolbox | None
    tasks_at_once: Number
    tasks_per_run: Number

    def acting(self, tools: Tools, options: ActOptions) -> tuple[Behaviour, Toolbox]:
        """Return what carries out the calls, with what looks at them, and the box of all tools."""
        act, box = acting("act", [*_listed(tools), *self._tools()], **options)
        if any(isinstance(tool, Task) for tool in box.tools):
            act = SubagentLimit("tasks", act, at_once=self.tasks_at_once, per_run=self.tasks_per_run)
        return act, box

    def shown(self, loop: Behaviour) -> Behaviour:
        """Return what asks the model and carries out its calls, with what changes its requests: the last one first."""
        loop = loop if self.deferred is None else DeferredTools("deferred", loop, tools=self.deferred)
        return PlanReminder("remind", loop) if self.plan else loop

    def _tools(self) -> Iterable[Tool | Toolbox]:
        """Yield the tools of the parts."""
        if self.sandboxes is not None:
            yield sandbox_tools(self.sandboxes)
        if self.plan:
            yield write_todos
        if self.deferred is not None:
            yield from (self.deferred, tool_search(self.deferred))


def boxed(tools: Tools) -> Toolbox | None:
    """Return tools as a box; None if there are none."""
    return tools if isinstance(tools, Toolbox) else Toolbox(*found) if (found := _listed(tools)) else None


def _listed(tools: Tools) -> list[Any]:
    return [tools] if isinstance(tools, Toolbox) else [*(tools or ())]
