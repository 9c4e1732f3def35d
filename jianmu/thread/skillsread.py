"""RememberSkills: which skills the model has read, so that it reads them again when their text is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar  # Any: snapshots

from jianmu.engine.context import NodeContext
from jianmu.engine.tree import descend
from jianmu.message import Message
from jianmu.model.base import ModelRequest
from jianmu.nodes.calldecorator import CallDecorator
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.projections import RequestProjection, note
from jianmu.nodes.skill import FILE, TOOL, Skill, skills_for
from jianmu.nodes.tools import ToolExecutor
from jianmu.nodes.turn import CallOutcome
from jianmu.thread.items import LoadedSkill
from jianmu.thread.part import Kinds, Part
from jianmu.tool.types import ToolCall

FOLDER = "skills"
"""What stands before the name of a skill where it is noted: no path of this machine."""
_GONE = "You have read these skills, and their instructions are not in this conversation any more:"


class RememberSkills(Part, RequestProjection, CallDecorator):
    """Note which skills the model reads, and tell it of those whose instructions are in the request no more.

    Reads `skill_context`; writes it when `read_skill` has returned the instructions of a skill: name, description and a
    path that leads nowhere on this machine, never what is in it. A skill that there is no more is told of no more.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.
    """

    is_late: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("skill_context",)
    writes: ClassVar[tuple[str, ...]] = ("skill_context",)
    wraps: ClassVar[Kinds] = (AgentLLMNode, ToolExecutor)

    async def refine(self, call: ToolCall, outcome: CallOutcome, context: NodeContext) -> CallOutcome:
        """Note a skill whose instructions were read; the outcome stays as it is."""
        skill = _read(call, skills_for(context.node))
        if skill is not None and not outcome.is_error:
            now = int(context.clock.utc().timestamp())
            path = f"{FOLDER}/{skill.title}/{FILE}"
            entry = LoadedSkill(name=skill.title, path=path, description=skill.description, loaded_at=now)
            context.write_state({"skill_context": [entry]})
        return outcome

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with the names of skills that were read and are not there any more."""
        known: Sequence[LoadedSkill] = snapshot.skill_context
        if not known:
            return request
        there = _names(request.messages)
        gone = [one.name for one in known if one.name not in there]
        offered = {one.title for node in descend(self) if isinstance(node, AgentLLMNode) for one in skills_for(node)}
        names = ", ".join(name for name in gone if name in offered)
        if not names:
            return request
        text = f"{_GONE} {names}. Read one again with {TOOL} before you go on with its task."
        return replace(request, messages=[*request.messages, note(f"skills:{self.context.path}", text)])


def _read(call: ToolCall, skills: Iterable[Skill]) -> Skill | None:
    """Return the skill whose instructions a call reads."""
    if call.name != TOOL or call.arguments.get("file") is not None:
        return None
    return next((one for one in skills if one.title == call.arguments.get("skill")), None)


def _names(messages: Sequence[Message]) -> set[str]:
    """Return the skills whose instructions were asked for in a request."""
    calls = (call for message in messages for call in message.tool_calls if call.name == TOOL)
    return {str(call.arguments.get("skill")) for call in calls if call.arguments.get("file") is None}
