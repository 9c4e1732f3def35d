"""thread_agent: a capable assistant from one call, built of the parts of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack, cast  # Any: an agent of a schema that only its options name

from py_trees.behaviour import Behaviour
from py_trees.composites import Sequence as InOrder
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.context import NodeContext
from jianmu.model.base import ChatModel
from jianmu.nodes import Finally, ForceFailure, HasFinalAnswer, Invert, LoopUntilSuccess, Selector
from jianmu.nodes.base import Number
from jianmu.nodes.llm import Tools
from jianmu.thread.assistantoptions import AgentOptions, ThreadOptions, check_options
from jianmu.thread.assistantparts import Parts
from jianmu.thread.paths import ThreadData
from jianmu.thread.state import ThreadState
from jianmu.thread.titlenode import Title


def thread_agent(
    model: ChatModel | str,
    tools: Tools = (),
    *,
    state_schema: type[BaseModel] = ThreadState,
    **options: Unpack[ThreadOptions],
) -> Agent[Any]:
    """Return an assistant that keeps its threads in a `ThreadState`; each of its parts can be switched off.

        agent = thread_agent("openai:gpt-6-luna", [search], skills=["./skills/letters"], store=SQLiteStore("runs.db"))

    Its model may ask the person: drive it with `run_until_suspend` and `resume`. Under `run` a question waits until it
    is answered from elsewhere, by `human=` for example.

    Args:
        model: who thinks.
        tools: what it may call beside the tools of its parts; subagents, `task(...)`, too.
        state_schema: `ThreadState`, or a schema with fields of your own.
        options: which parts there are; options of the Agent.

    Raises:
        SetupError: an option cannot be used; with what to write.
    """
    check_options({"tools": tools, **options})
    parts = Parts(options)
    act, box = parts.acting(tools)
    loop = parts.shown(_rounds([parts.thinking(model, box), *parts.guards()], act, parts.max_rounds))
    run = _in_order("run", [*parts.opening(), loop, HasFinalAnswer("has answer"), *parts.closing()])
    given = {name: value for name, value in options.items() if name in AgentOptions.__annotations__}
    return Agent(_kept(run, parts), state_schema, **cast("dict[str, Any]", given))


def _rounds(steps: Iterable[Behaviour], act: Behaviour, most: Number | None) -> Behaviour:
    """Return a loop that goes on until the model has given its final answer."""
    children = [Invert("is lost", _in_order("turn", steps)), HasFinalAnswer("is done"), ForceFailure("next", act)]
    return LoopUntilSuccess("rounds", Selector("round", memory=True, children=children), max_iterations=most)


def _kept(run: Behaviour, parts: Parts) -> Behaviour:
    """Return a run with the thread's paths, which are looked at in each pass, and with what comes after it."""

    async def leave(context: NodeContext) -> None:
        """Release the sandbox, and give a title to a first turn that was broken off."""
        if parts.has_title:
            Title.fallback(context)
        if parts.sandboxes is not None:
            await parts.sandboxes.release(context)

    if parts.folders is not None:
        # Without a memory: paths are in no checkpoint, and a run that goes on in another process has to have them.
        run = InOrder("pass", memory=False, children=[ThreadData("data", folders=parts.folders), run])
    return Finally("thread", run, leave)


def _in_order(name: str, children: Iterable[Behaviour]) -> Behaviour:
    return InOrder(name, memory=True, children=[*children])
