"""What the tests of a thread's nodes share: a loop of rounds, and runs of it, also in programs of their own."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.errors import SetupError
from jianmu.message import Message
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, ForceFailure, HasFinalAnswer, Invert, LoopUntilSuccess, Selector, ToolExecutor
from jianmu.nodes import Sequence as InOrder
from jianmu.stores import SQLiteStore
from jianmu.thread import ThreadState
from jianmu.tool import ToolCall
from tests.cases.leaves import nothing_left


def rounds(*steps: Behaviour, tools: Sequence[Any] = (), most: int = 20) -> Behaviour:
    """Return a loop of rounds: these steps, which think, then the tools, until there is a final answer."""
    think = InOrder("think first", memory=True, children=[*steps])
    act = ForceFailure("next", ToolExecutor("act", tools=tools))
    each = Selector("round", memory=True, children=[Invert("is lost", think), HasFinalAnswer("is done"), act])
    loop = LoopUntilSuccess("rounds", each, max_iterations=most)
    return InOrder("turn", memory=True, children=[loop, HasFinalAnswer("has answer")])


def thread(root: Behaviour, schema: Any = ThreadState, **options: Any) -> Agent[Any]:
    """Return an agent on a thread's state and the virtual clock."""
    options.setdefault("clock", VirtualClock(autojump=True))
    return Agent(root, state_schema=schema, **options)


async def run(made: Agent[Any], *messages: Message, **values: Any) -> Status:
    """Run the thread `t`, and see that nothing is left."""
    given = {**values, **({"messages": [*messages]} if messages else {})}
    with anyio.fail_after(20), nothing_left(made):
        return await made.run(given, thread_id="t")


async def run_stored(path: Path, root: Behaviour, *messages: Message, **values: Any) -> Agent[Any]:
    """Run the thread `t` in a program of its own, which is over then; return its agent."""
    async with SQLiteStore(path) as store:
        made = thread(root, store=store)
        await run(made, *messages, **values)
        return made


def call(id: str, name: str, **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def asked(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return the texts of a request, calls and results in short."""
    return [
        f"ai({' '.join(one.name for one in message.tool_calls)})" if message.tool_calls else message.text
        for message in model.requests[number].messages
    ]


def think() -> AgentLLMNode:
    """Return a node that asks a model, which nobody runs."""
    return AgentLLMNode("think", model=ScriptedModel())


def refusal(*children: Behaviour, schema: Any = ThreadState) -> str:
    """Return why a tree of these nodes is refused."""
    with pytest.raises(SetupError) as caught:
        Agent(InOrder("main", memory=True, children=[*children]), schema)
    return str(caught.value)


async def positions(agent: Agent[Any], work: Callable[[], Awaitable[None]]) -> list[Any]:
    """Return an agent's checkpoints after each turn of the event loop in which it is at work, each once."""
    dumps = dict[str, Any]()

    async def look() -> None:
        while True:
            await checkpoint()
            data = agent.dump_checkpoint() if agent.runner.host.is_open and agent.state.messages else {}
            if data.get("status") != "new":  # it has begun, and is not about to be parked
                dumps[json.dumps(data, sort_keys=True, default=str)] = data

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        await work()
        group.cancel_scope.cancel()
    return [data for data in dumps.values() if data]
