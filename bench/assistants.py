"""A round of the ready assistant with all its parts on, beside one of the bare ReAct tree.

A round is the time from one request to the model to the next: a reply that calls a tool, the call, its result. Neither
side keeps its threads. The assistant has a skill, a subagent, a plan, 50 deferred tools and a file that was sent; its
sandbox is there and no program is run in it, as nobody calls one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any  # Any: agents of every schema

import anyio

from bench.measure import Effort, Pair, steady
from jianmu.message import Message, ai, human, tool_result
from jianmu.model import ScriptedModel
from jianmu.prebuilt import react, react_agent
from jianmu.thread import ThreadFolders, save_upload, task, thread_agent
from jianmu.tool import Tool, ToolCall

ROUNDS = 40
WARM = 5
"""Rounds at the beginning that do not count: caches are empty."""
Side = tuple[Callable[[ScriptedModel, Path], Any], int]
SKILL = "---\nname: letters\ndescription: How letters are written.\n---\nBegin with a greeting."


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def bare(model: ScriptedModel, _: Path) -> Any:
    """Return the bare ReAct agent."""
    return react_agent(model, [add], max_rounds=None)


def assistant(model: ScriptedModel, folder: Path) -> Any:
    """Return the assistant with all its parts."""
    skill = folder / "letters"
    skill.mkdir(exist_ok=True)
    (skill / "SKILL.md").write_text(SKILL)
    folders = ThreadFolders(folder / "threads")
    save_upload(folders, "t", "data.csv", b"1,2")
    helper = task("helper", lambda: react(model=ScriptedModel([]), tools=[add]))
    options: dict[str, Any] = {"skills": [skill], "deferred": [_late(number) for number in range(50)], "vision": True}
    return thread_agent(model, [add, helper], folders=folders, max_rounds=None, **options)


def _late(number: int) -> Tool:
    def late(text: str) -> str:
        """Do something that is seldom needed."""
        return text

    return Tool(late, name=f"late_{number}")


def talk(length: int) -> list[Message]:
    """Return a conversation of so many messages, most of them calls and results."""
    made: list[Message] = [human("go")]
    for number in range((length - 2) // 2):
        call = ToolCall(id=f"old{number}", name="add", arguments={"a": number, "b": 1})
        made += [ai("", tool_calls=[call]), tool_result(call.id, number + 1)]
    return [*made, human("and now?")]


async def rounds(side: Side, count: int, folder: Path) -> list[float]:
    """Return how long each round takes."""
    make, length = side
    marks: list[float] = []

    def says(number: int) -> Callable[[object], Any]:
        def turn(_: object) -> Any:
            marks.append(time.perf_counter())
            return ToolCall(id=f"c{number}", name="add", arguments={"a": number, "b": 1}) if number < count else "done"

        return turn

    agent = make(ScriptedModel([says(number) for number in range(count + 1)]), folder)
    with steady():
        await agent.run({"messages": talk(length)}, thread_id="t")
    assert agent.state.final_answer == "done"
    return [after - before for before, after in pairwise(marks)]


def a_round(effort: Effort) -> Pair:
    """Compare a round of the assistant with one of the bare tree, both at 200 messages."""
    return _compared(((assistant, 200), (bare, 200)), effort)


def a_long_round(effort: Effort) -> Pair:
    """Compare a round of the assistant at 5,000 messages with its own at 200."""
    return _compared(((assistant, 5_000), (assistant, 200)), effort)


def _compared(sides: Sequence[Side], effort: Effort) -> Pair:
    """Run both in turns; of each round the fastest counts, and of these the average."""
    count = WARM + effort.times(ROUNDS)

    async def main() -> Pair:
        best: list[list[float]] = []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(effort.few):
                found = [await rounds(side, count, Path(folder)) for side in sides]
                best = [
                    [min(both) for both in zip(*pair, strict=True)] for pair in zip(best or found, found, strict=True)
                ]
        return Pair(*(sum(side[WARM:]) / len(side[WARM:]) for side in best))

    return anyio.run(main, backend="asyncio")
