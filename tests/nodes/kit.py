"""What the tests of nodes share: a state, ways to run a tree on the virtual clock, and a bare tick."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from tests.cases.leaves import Diary, nothing_left, run, run_with


class Item(BaseModel):
    """Something to work on."""

    id: str
    size: int = 0


class Desk(BaseModel):
    """A state with a field for whatever a node may follow, read or write."""

    n: int = 0
    ok: bool = True
    name: str = ""
    amount: int = 5
    scores: list[float] = Field(default_factory=list)
    numbers: list[int] | None = None
    items: list[Item] = Field(default_factory=list)
    results: list[Any] = Field(default_factory=list)
    outs: dict[str, Any] = Field(default_factory=dict)
    answer: str | None = None
    log: Annotated[list[str], operator.add] = Field(default_factory=list)


class Table:
    """A tree with its agent, clock and diary.

    Args:
        make: builds the tree; it is given the diary.
        values: the state to start with.
        options: those of the agent.
    """

    def __init__(
        self, make: Callable[[Diary], Behaviour], values: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.clock = VirtualClock(autojump=True)
        self.diary = Diary(self.clock)
        self.root = make(self.diary)
        self.agent: Agent[Desk] = Agent(self.root, Desk, clock=self.clock, **options)
        self.values = values or {}

    @property
    def state(self) -> Desk:
        """The newest snapshot."""
        return self.agent.state

    async def run(self) -> Status:
        """Run the tree to its end, and see that nothing is left."""
        with nothing_left(self.agent):
            return await run(self.agent, self.values)

    async def run_with(self, *others: Callable[[], Awaitable[Any]]) -> Status:
        """Run the tree beside other coroutines."""
        self.agent.state_manager.update(self.values)
        return await run_with(self.agent, *others)

    async def write(self, seconds: float, **fields: Any) -> None:
        """Write fields of the state after so many seconds."""
        await self.clock.sleep(seconds)
        self.agent.state_manager.update(fields)

    def writing(self, seconds: float, **fields: Any) -> Callable[[], Awaitable[None]]:
        """Return a coroutine function that writes fields after so many seconds."""
        return lambda: self.write(seconds, **fields)
