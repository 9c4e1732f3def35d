"""A thread's state under nodes that write at the same time: what is folded, in which order, and who is named."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy

from jianmu.agent import Agent
from jianmu.engine.context import NodeContext
from jianmu.errors import StateWriteError
from jianmu.message import human
from jianmu.nodes import Parallel, Sequence, async_action
from jianmu.thread import SandboxRef, ThreadState
from tests.cases.leaves import SUCCESS, nothing_left

pytestmark = pytest.mark.anyio


def late(name: str, turns: int, **fields: Any) -> Behaviour:
    """Return a node that writes after some turns of the loop, each long enough for all to have had theirs."""

    @async_action
    async def write(context: NodeContext) -> None:
        for _ in range(5 * turns):
            await checkpoint()
        context.write_state(fields)

    return write(name)


async def at_once(*children: Behaviour) -> Agent[ThreadState]:
    """Run nodes at the same time, on a thread's state."""
    made = Agent(Parallel("at once", ParallelPolicy.SuccessOnAll(), children=[*children]), state_schema=ThreadState)
    with nothing_left(made), anyio.fail_after(10):
        assert await made.run({"messages": human("go")}) is SUCCESS
    return made


async def test_three_lazy_starts_of_the_sandbox_are_one() -> None:
    """Three tools that start the thread's sandbox at once write the same id, and none of them fails."""
    ref = SandboxRef.of("t")
    made = await at_once(*(late(name, 3, sandbox=ref) for name in "abc"))
    assert made.state.sandbox == ref


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
async def test_a_sandbox_of_another_thread_ends_the_run_and_names_both_nodes(order: tuple[int, int, int]) -> None:
    """Whoever comes with another id is refused: the error names the field and two nodes; the first id stays."""
    ids = {"a": SandboxRef.of("t"), "b": SandboxRef.of("t"), "c": SandboxRef.of("other")}
    nodes = [late(name, turns, sandbox=ids[name]) for name, turns in zip("abc", order, strict=True)]
    made = Agent(Parallel("p", ParallelPolicy.SuccessOnAll(), children=nodes), state_schema=ThreadState)
    with nothing_left(made), anyio.fail_after(10), pytest.raises(StateWriteError) as caught:
        await made.run()
    came = sorted("abc", key=lambda name: order["abc".index(name)])
    refused = next(name for name in came if ids[name] != ids[came[0]])
    before = came[came.index(refused) - 1]
    assert "field 'sandbox' takes" in str(caught.value)
    assert f"writer 'p/{refused}', previous writer 'p/{before}'" in str(caught.value)
    assert made.state.sandbox == ids[came[0]]
    assert "sandbox-" not in str(caught.value)


async def test_parallel_writers_lose_nothing() -> None:
    """Two that present files, two that delegate, one that reads a skill: all of it is there, in the order it came."""
    made = await at_once(
        late("a", 2, artifacts=["report.html", "index.html"]),
        late("b", 1, artifacts=["chart.png", "index.html"]),
        late("c", 2, delegations=[{"id": "1", "status": "completed"}], repeats={"task": 1}),
        late("d", 3, delegations=[{"id": "1", "status": "running"}, {"id": "2", "status": "running"}]),
        late("e", 1, skill_context=[{"name": "tea", "path": "tea.md"}], repeats={"task": 1, "read": 1}),
        late("f", 1, artifacts=None, delegations=None, skill_context=None, todos=None, viewed_images={}),
    )
    assert made.state.artifacts == ["chart.png", "index.html", "report.html"]
    assert [(one.id, one.status) for one in made.state.delegations] == [("1", "completed"), ("2", "running")]
    assert ([one.path for one in made.state.skill_context], made.state.todos) == (["tea.md"], None)
    assert made.state.repeats == {"task": 2, "read": 1}


async def test_writes_one_after_the_other_count_in_their_order() -> None:
    """Of a field without a fold the last write counts, and None is one where the type has it."""
    made = Agent(
        Sequence(
            "s", memory=True, children=[late("a", 0, title="A", goal={"objective": "x"}), late("b", 0, goal=None)]
        ),
        state_schema=ThreadState,
    )
    assert await made.run() is SUCCESS
    assert (made.state.title, made.state.goal) == ("A", None)
