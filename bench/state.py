"""What a write and a read of the state cost, by the size of the state."""

from __future__ import annotations

import itertools
import operator
from typing import Annotated

from pydantic import BaseModel, Field

from bench.measure import Effort, Pair, block, in_turns
from jianmu.engine.state import Ephemeral, StateManager
from jianmu.message import Message, human
from jianmu.tool.types import ToolCall

SMALL, LONG, LARGE = 100, 10_000, 100_000


class ReActState(BaseModel):
    """The state of an agent that talks and calls tools."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    done: Annotated[bool, Ephemeral(scope="run")] = False
    final_answer: Annotated[str | None, Ephemeral(scope="run")] = None
    actions: Annotated[list[ToolCall], Ephemeral(scope="step")] = Field(default_factory=list)
    rounds: Annotated[int, Ephemeral(scope="run")] = 0
    streaming_output: Annotated[str, Ephemeral(scope="call")] = ""


def manager_of(size: int) -> StateManager[ReActState]:
    """Build a manager whose conversation has `size` messages."""
    manager = StateManager(ReActState)
    manager.initialize({"messages": [human(f"message {index}") for index in range(size)]})
    return manager


def scalar_write(effort: Effort) -> Pair:
    """Write a new number beside 100,000 messages, and beside 100."""

    def writer(size: int) -> float:
        manager = managers[size]
        return block(lambda: manager.update({"rounds": next(numbers)}), effort.times(300))

    numbers = itertools.count(1)
    managers = {size: manager_of(size) for size in (LARGE, SMALL)}
    return in_turns(lambda: writer(LARGE), lambda: writer(SMALL), effort.rounds)


def appending(size: int, times: int) -> float:
    """Time the append of `times` messages, one by one, to a conversation of `size`."""
    manager = manager_of(size)
    new = iter([human(f"new {index}") for index in range(times)])
    return block(lambda: manager.update({"messages": [next(new)]}), times)


def append(effort: Effort) -> Pair:
    """Append one message to 10,000, and to 100, without reading in between."""
    times = effort.times(200)
    return in_turns(lambda: appending(LONG, times), lambda: appending(SMALL, times), effort.rounds)


def get(effort: Effort) -> Pair:
    """Take a snapshot of 100,000 messages, and of 100; each block starts with one after a write."""

    def reader(size: int) -> float:
        managers[size].update({"rounds": next(numbers)})
        return block(managers[size].get, effort.times(10_000))

    numbers = itertools.count(1)
    managers = {size: manager_of(size) for size in (LARGE, SMALL)}
    return in_turns(lambda: reader(LARGE), lambda: reader(SMALL), effort.rounds)
