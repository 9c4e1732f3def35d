"""thread_agent: a capable assistant from one call, built of the parts of this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any  # Any: snapshots, and options of an Agent

from py_trees.behaviour import Behaviour
from py_trees.composites import Sequence as InOrder
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.context import NodeContext
from jianmu.model.base import ChatModel, Settings
from jianmu.nodes import AgentLLMNode, Finally, ForceFailure, HasFinalAnswer, Invert, LoopUntilSuccess, Selector, Skill
from jianmu.nodes.base import Number
from jianmu.nodes.llm import Tools
from jianmu.nodes.replies import Prompt
from jianmu.prebuilt.react import ActOptions
from jianmu.thread.assistantoptions import FOLDERS, Folders, Place, check_options, folders_of, sandboxes_of, skill_of
from jianmu.thread.assistantparts import Parts, boxed
from jianmu.thread.paths import ThreadData
from jianmu.thread.sandboxes import OpenSandbox, Sandboxes
from jianmu.thread.state import ThreadState
from jianmu.thread.titlenode import Title
from jianmu.thread.todos import FinishPlan

MAX_ROUNDS = 50


def thread_agent(
    model: ChatModel | str,
    tools: Tools = (),
    *,
    skills: Iterable[Place | Skill] = (),
    plan: bool = True,
    sandbox: bool | Sandboxes = True,
    eager: bool = False,
    folders: Folders = FOLDERS,
    deferred: Tools = None,
    title: bool | ChatModel | str = True,
    system: Prompt = None,
    settings: Settings | None = None,
    tasks_at_once: Number = 3,
    tasks_per_run: Number = 20,
    max_rounds: Number | None = MAX_ROUNDS,
    act: ActOptions | None = None,
    state_schema: type[BaseModel] = ThreadState,
    **agent: Any,
) -> Agent[Any]:
    """Return an assistant that keeps its threads in a `ThreadState`.

        agent = thread_agent("openai:gpt-6-luna", [search], skills=["./skills/writing"], store=SQLiteStore("runs.db"))

    Args:
        model: who thinks.
        tools: what it may call beside the tools of its parts; subagents, `task(...)`, too.
        skills: folders of instructions, or `Skill(...)` nodes.
        plan: whether it keeps a plan, and is sent back when it ends before that is done.
        sandbox: whether programs run, on this machine, or the `Sandboxes` in which they do.
        eager: whether the sandbox is opened at the start of each run, not when a tool needs it.
        folders: where the folders of threads are; None: it has no files, and no sandbox.
        deferred: further tools, of which the model knows the names only until it searches for them.
        title: whether threads get titles, from their first text; or the model that makes them.
        system: the system prompt, or a function of the snapshot that returns it.
        settings: how the model is to answer.
        tasks_at_once: how many tasks there may be at a time.
        tasks_per_run: how many tasks a run may give.
        max_rounds: how many replies a run may have; None: as many as it takes.
        act: options of the ToolExecutor.
        state_schema: `ThreadState`, or a schema with fields of your own.
        agent: options of the Agent.

    Raises:
        SetupError: an option cannot be used; with what to write.
    """
    check_options(locals(), agent)
    places = folders_of(folders)
    parts = Parts(
        plan=plan,
        folders=places,
        sandboxes=sandboxes_of(sandbox, places),
        deferred=boxed(deferred),
        tasks_at_once=tasks_at_once,
        tasks_per_run=tasks_per_run,
    )
    act_node, box = parts.acting(tools, act or ActOptions())
    think = AgentLLMNode("think", model=model, tools=box, system=system, settings=settings)
    guards = [FinishPlan("finish plan", max_rounds=max_rounds)] if plan else []
    loop = parts.shown(_rounds([think, *guards], act_node, max_rounds))
    opened = [OpenSandbox("sandbox", sandboxes=parts.sandboxes)] if parts.sandboxes and eager else []
    named = [Title("title", model=None if title is True else title)] if title is not False else []
    run = _in_order("run", [*opened, *map(skill_of, skills), loop, HasFinalAnswer("has answer"), *named])
    return Agent(_kept(run, parts, is_named=bool(named)), state_schema, **agent)


def _rounds(steps: list[Behaviour], act: Behaviour, most: Number | None) -> Behaviour:
    """Return a loop that goes on until the model has given its final answer."""
    children = [Invert("is lost", _in_order("turn", steps)), HasFinalAnswer("is done"), ForceFailure("next", act)]
    return LoopUntilSuccess("rounds", Selector("round", memory=True, children=children), max_iterations=most)


def _kept(run: Behaviour, parts: Parts, *, is_named: bool) -> Behaviour:
    """Return a run with the thread's paths, which are looked at in each pass, and with what comes after it."""

    async def leave(context: NodeContext) -> None:
        """Release the sandbox, and give a title to a first turn that was broken off."""
        if is_named:
            Title.fallback(context)
        if parts.sandboxes is not None:
            await parts.sandboxes.release(context)

    if parts.folders is not None:
        # Without a memory: paths are in no checkpoint, and a run that goes on in another process has to have them.
        run = InOrder("pass", memory=False, children=[ThreadData("data", folders=parts.folders), run])
    return Finally("thread", run, leave)


def _in_order(name: str, children: Sequence[Behaviour]) -> Behaviour:
    return InOrder(name, memory=True, children=[*children])
