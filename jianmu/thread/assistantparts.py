"""The parts that a ready assistant has, each in its place: beside the tools, around the calls, around the requests."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any  # Any: functions of the user's

from py_trees.behaviour import Behaviour

from jianmu.model.base import ChatModel
from jianmu.nodes import AgentLLMNode, Skill
from jianmu.nodes.delegating import acting
from jianmu.nodes.llm import Tools
from jianmu.nodes.replies import Prompt
from jianmu.prebuilt.react import ActOptions
from jianmu.thread.assistantoptions import Place, ThreadOptions
from jianmu.thread.clarify import Clarify
from jianmu.thread.compact import Compact
from jianmu.thread.deferred import DeferredTools, tool_search
from jianmu.thread.images import view_image
from jianmu.thread.imagesshown import ForgetImages, ShownImages
from jianmu.thread.loopguard import LoopGuard
from jianmu.thread.outputs import CHARS, OutputBudget
from jianmu.thread.paths import ThreadFolders
from jianmu.thread.presented import present_files
from jianmu.thread.sandboxes import OpenSandbox, Sandboxes, local_sandboxes
from jianmu.thread.sandboxtools import sandbox_tools
from jianmu.thread.skillsread import RememberSkills
from jianmu.thread.task import Task
from jianmu.thread.tasklimit import SubagentLimit
from jianmu.thread.titlenode import Title
from jianmu.thread.todos import FinishPlan, PlanReminder, write_todos
from jianmu.thread.uploads import Uploads
from jianmu.thread.uploadsshown import ShownUploads
from jianmu.thread.virtualpaths import VirtualPaths
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox

FOLDERS = ".jianmu/threads"
MAX_ROUNDS = 50
TOKENS = 60_000
TASKS_AT_ONCE, TASKS_PER_RUN = 3, 20
READING, WRITING = {"read_file", "bash", "python"}, {"write_file", "bash", "python"}
"""Tools, of which it takes one to read or write a file."""


class Parts:
    """Which parts there are.

    Args:
        options: as they were given.

    Attributes:
        folders: where the folders of threads are, or None: there are no files.
        sandboxes: where programs run, or None: nowhere.
        has_plan: whether there is a plan.
        has_title: whether threads get a title.
        max_rounds: how many replies a run may have.
    """

    def __init__(self, options: ThreadOptions) -> None:
        self._given = options
        folders, sandbox = options.get("folders", FOLDERS), options.get("sandbox", True)
        self.folders = ThreadFolders(folders) if isinstance(folders, (str, os.PathLike)) else folders
        self.sandboxes: Sandboxes | None = None
        if self.folders is not None and sandbox is not False:
            self.sandboxes = local_sandboxes(self.folders) if sandbox is True else sandbox
        self.has_plan = options.get("plan", True)
        self.has_title = options.get("title", True) is not False
        self.max_rounds = options.get("max_rounds", MAX_ROUNDS)
        self._has_vision = self.folders is not None and options.get("vision", False)
        self._output_chars = options.get("output_chars", CHARS) if self.sandboxes is not None else None
        self._deferred = _boxed(options.get("deferred"))

    def acting(self, tools: Tools) -> tuple[Behaviour, Toolbox]:
        """Return what carries out the calls, with what looks at them, and the box of all tools."""
        given = self._given
        act, box = acting("act", [*_listed(tools), *self._tools()], **(given.get("act") or ActOptions()))
        if self.folders is not None:
            act = VirtualPaths("paths", act, folders=self.folders)
        if self.folders is not None and self._output_chars is not None:
            act = OutputBudget("outputs", act, folders=self.folders, chars=self._output_chars)
        if any(isinstance(tool, Task) for tool in box.tools):
            at_once = given.get("tasks_at_once", TASKS_AT_ONCE)
            act = SubagentLimit("tasks", act, at_once=at_once, per_run=given.get("tasks_per_run", TASKS_PER_RUN))
        return act, box

    def _prompt(self, box: Toolbox) -> Prompt:
        """Return the system prompt, with where the files are that the tools can read and write."""
        given, told = self._given.get("system"), "" if self.folders is None else _files(box.names)
        if not told:
            return given
        return (lambda snapshot: _joined(given(snapshot), told)) if callable(given) else _joined(given, told)

    def thinking(self, model: ChatModel | str, box: Toolbox) -> Behaviour:
        """Return what asks the model, with what keeps its requests from growing with the conversation."""
        settings, output = self._given.get("settings"), self._given.get("output")
        system, compact = self._prompt(box), self._given.get("compact", True)
        think = AgentLLMNode("think", model=model, tools=box, system=system, settings=settings, output=output)
        if compact is False:
            return think
        tokens = self._given.get("context_tokens", TOKENS)
        return Compact("compact", think, model=model if compact is True else compact, tokens=tokens)

    def guards(self) -> Iterator[Behaviour]:
        """Yield what looks at each reply."""
        if self._has_vision:
            yield ForgetImages("forget images")
        if self.has_plan:
            yield FinishPlan("finish plan", max_rounds=self.max_rounds)

    def shown(self, loop: Behaviour) -> Behaviour:
        """Return what asks the model and carries out its calls, with what changes its requests: the last one first."""
        if self.folders is not None and self._given.get("uploads", True):
            loop = ShownUploads("uploads shown", loop, folders=self.folders)
        if self.folders is not None and self._has_vision:
            loop = ShownImages("images", loop, folders=self.folders)
        if self._given.get("loop_guard", True):
            loop = LoopGuard("loop guard", loop, exempt=self._given.get("repeatable", ()))
        if self._given.get("skills"):
            loop = RememberSkills("skills", loop)
        if self._deferred is not None:
            loop = DeferredTools("deferred", loop, tools=self._deferred)
        return PlanReminder("remind", loop) if self.has_plan else loop

    def opening(self) -> Iterator[Behaviour]:
        """Yield what comes before the model in each run."""
        if self.sandboxes is not None and self._given.get("eager", False):
            yield OpenSandbox("sandbox", sandboxes=self.sandboxes)
        if self.folders is not None and self._given.get("uploads", True):
            yield Uploads("uploads", folders=self.folders)
        yield from map(_skill, self._given.get("skills", ()))

    def closing(self) -> Iterator[Behaviour]:
        """Yield what comes after the answer."""
        title = self._given.get("title", True)
        if title is not False:
            yield Title("title", model=None if title is True else title)

    def _tools(self) -> Iterator[Tool | Toolbox]:
        """Yield the tools of the parts."""
        if self.sandboxes is not None:
            yield sandbox_tools(self.sandboxes)
        if self.folders is not None and self._given.get("present", True):
            yield present_files(self.folders)
        if self.folders is not None and self._has_vision:
            yield view_image(self.folders)
        if self.has_plan:
            yield write_todos
        if self._given.get("clarify", True):
            yield Clarify()
        if self._deferred is not None:
            yield from (self._deferred, tool_search(self._deferred))


def _files(tools: Collection[str]) -> str:
    """Return what a model with these tools is told of its files: nothing, if it cannot read or write one."""
    writes = not WRITING.isdisjoint(tools)
    told = {
        "work in workspace": writes,
        "what people have sent is in uploads": not READING.isdisjoint(tools),
        "what you make for them belongs into outputs": writes,
    }
    true = "; ".join(text for text, is_true in told.items() if is_true)
    return f"Your files are in /mnt/user-data: {true}." if true else ""


def _joined(prompt: str | None, told: str) -> str:
    return f"{prompt}\n\n{told}" if prompt else told


def _skill(given: Place | Skill) -> Skill:
    """Return a skill; its node is named after its folder."""
    return given if isinstance(given, Skill) else Skill(Path(given).name or "skill", given)


def _boxed(tools: Tools) -> Toolbox | None:
    """Return tools as a box; None if there are none."""
    return tools if isinstance(tools, Toolbox) else Toolbox(*found) if (found := _listed(tools)) else None


def _listed(tools: Tools) -> list[Any]:
    return [tools] if isinstance(tools, Toolbox) else [*(tools or ())]
