"""What the tests of tools share: a conversation that ends in calls, an executor, and tools that note what they do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from py_trees.behaviour import Behaviour
from pydantic import BaseModel, Field, JsonValue

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.engine.request import Request
from jianmu.message import Message, ai, human
from jianmu.nodes.tools import ToolExecutor
from jianmu.tool import Tool, ToolCall


class Talk(BaseModel):
    """A conversation, and room for what is remembered."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    approvals: dict[str, JsonValue] = Field(default_factory=dict)
    note: str = ""


class Bench:
    """Tools that note when they begin and end.

    Args:
        clock: on which they take their time.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.log: list[str] = []
        self.alive = 0

    async def work(self, name: str, seconds: float = 0.0) -> str:
        """Take time, and return the name."""
        self.log.append(f"{name} begins")
        self.alive += 1
        try:
            await self.clock.sleep(seconds)
        finally:
            self.alive -= 1
        self.log.append(f"{name} ends")
        return f"{name} is done"

    def tool(self, name: str = "work", **options: Any) -> Tool:
        """Return a tool that works."""

        async def work(label: str, seconds: float = 0.0) -> str:
            """Work."""
            return await self.work(label, seconds)

        return Tool(work, name=name, **options)

    def asking(self, name: str = "asks", **options: Any) -> Tool:
        """Return a tool that asks before it works."""

        async def asks(label: str, context: NodeContext) -> str:
            """Ask, then work."""
            self.log.append(f"{label} asks")
            answer = await context.ask(Request(f"{label}: sure?"), key="sure")
            return f"{await self.work(label)}: {answer}"

        return Tool(asks, name=name, **options)


def call(id: str, name: str = "work", **arguments: Any) -> ToolCall:
    """Return a call; the label of the work is the call's id."""
    return ToolCall(id=id, name=name, arguments={"label": id, **arguments} if name != "other" else arguments)


class Scene:
    """An agent whose tree is an executor, on a conversation that ends in calls.

    Args:
        calls: those of the last reply.
        make: makes the tools.
        tree: puts the executor into a tree.
        node: options of the executor.
        options: those of the agent.
    """

    def __init__(
        self,
        *calls: ToolCall,
        make: Callable[[Bench], Sequence[Any]] = lambda bench: [bench.tool()],
        tree: Callable[[ToolExecutor], Behaviour] = lambda node: node,
        node: dict[str, Any] | None = None,
        schema: type[BaseModel] = Talk,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock(autojump=True)
        self.bench = Bench(self.clock)
        self.node = ToolExecutor("act", tools=make(self.bench), **(node or {}))
        self.agent: Agent[Any] = Agent(tree(self.node), schema, clock=self.clock, **options)
        self.seen: list[Any] = []
        self.input = {"messages": [human("go", id="h"), ai("", tool_calls=calls, id="reply")]}

    async def run(self, **more: Any) -> Any:
        """Run until the end or a question."""
        return await self.agent.run_until_suspend(self.input, **more)

    @property
    def log(self) -> list[str]:
        """What the tools have done."""
        return self.bench.log

    @property
    def results(self) -> list[Message]:
        """The results in the conversation."""
        return [one for one in self.agent.state.messages if one.role == "tool"]

    @property
    def told(self) -> list[tuple[str | None, str, bool]]:
        """The results, as (call, text, is it an error)."""
        return [(one.tool_call_id, one.text, one.is_error) for one in self.results]
