"""Wherever an assistant is cut and gone on with in another program, it comes to the same end."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jianmu.engine.limits import Limits
from jianmu.message import human
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import task, thread_agent
from jianmu.tool import ToolCall, tool
from tests.cases.leaves import Do
from tests.conftest import FULL

FILE = "/mnt/user-data/outputs/a.md"
PAID: list[int] = []
STATUS = st.sampled_from(["pending", "completed"])
CALLS: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.builds(lambda status: ("write_todos", {"todos": [{"content": "work", "status": status}]}), STATUS),
    st.sampled_from([
        ("tool_search", {"query": "seldom"}), ("seldom", {"x": 1}), ("helper", {"task": "help"}), ("ls", {}),
        ("write_file", {"path": FILE, "content": "x"}), ("read_file", {"path": FILE}), ("pay", {"amount": 3}),
        ("present_files", {"paths": [FILE]}), ("ask_clarification", {"question": "which?"}),
    ]),
)  # fmt: skip
SCRIPTS = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=5)


@tool
def seldom(x: int) -> str:
    """Do what is seldom needed."""
    return f"did {x}"


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


class Story:
    """A script, and the programs that follow it on one thread, one after the other.

    Args:
        replies: the calls of each reply.
        root: where the store and the folders are.
        cuts: whether each program may ask the model once only.
    """

    def __init__(self, replies: list[list[tuple[str, dict[str, Any]]]], root: Path, *, cuts: bool) -> None:
        self.script: list[Any] = [
            [ToolCall(id=f"c{place}.{at}", name=name, arguments=given) for at, (name, given) in enumerate(reply)]
            for place, reply in enumerate(replies)
        ]
        self.script += ["done", "really done", "over"]
        self.root, self.cuts, self.asked = root, cuts, 0

    async def end(self) -> Any:
        """Follow the script to its end, and return the state."""
        given = {"messages": [human("go")]}
        made, outcome = await self._program(lambda one, more: one.run_until_suspend(given, thread_id="t", **more))
        for _ in range(60):
            if outcome.suspended:
                question = outcome.suspensions[0]
                answer = {"approved": True} if question.reason == "approval" else "this one"
                how = {"suspension_id": question.id, "thread_id": "t"}
                work: Any = lambda one, more, answer=answer, how=how: one.resume(answer, **how, **more)  # noqa: E731  # one call
            elif outcome.limit:
                work = lambda one, more: one.recover("t", **more)  # noqa: E731  # one call
            else:
                return made.state
            made, outcome = await self._program(work)
        raise AssertionError("it does not come to an end")

    async def _program(self, work: Callable[[Any, dict[str, Any]], Awaitable[Any]]) -> tuple[Any, Any]:
        helper = task("helper", lambda: Do("work", lambda node: node.write_state({"final_answer": "helped"})), copies=1)
        async with SQLiteStore(self.root / "runs.db") as store:
            model = ScriptedModel(self.script[self.asked :])
            options: dict[str, Any] = {"folders": self.root / "threads", "deferred": [seldom], "act": {"limit": 1}}
            made = thread_agent(model, [helper, pay], store=store, **options)
            with anyio.fail_after(60):
                outcome = await work(made, {"limits": Limits(requests=self.asked + 1)} if self.cuts else {})
            self.asked += len(model.requests)
            return made, outcome


def told(state: Any) -> dict[str, Any]:
    """Return what two stories have in common that came to the same end."""
    names = ("todos", "artifacts", "promoted", "final_answer", "rounds", "title", "sandbox", "usage", "repeats")
    talk = [(one.role, one.text, [call.id for call in one.tool_calls]) for one in state.messages]
    ledger = [(one.id, one.status, one.result_brief) for one in state.delegations]
    return {**{name: getattr(state, name) for name in names}, "talk": talk, "ledger": ledger}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_makes_no_difference_where_it_is_cut(backend: str) -> None:
    """A program for each request and each answer, or one for all: the same state, and nothing paid twice."""

    @settings(max_examples=60 if FULL else 8)
    @given(SCRIPTS)
    def law(replies: list[list[tuple[str, dict[str, Any]]]]) -> None:
        ends: list[Any] = []
        for cuts in (False, True):
            PAID.clear()
            with tempfile.TemporaryDirectory() as folder:
                state = anyio.run(Story(replies, Path(folder), cuts=cuts).end, backend=backend)
            ends.append((told(state), [*PAID]))
        assert ends[0] == ends[1]

    law()
