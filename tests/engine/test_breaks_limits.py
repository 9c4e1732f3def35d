"""Limits at their edges: what is used up counts only where more is wanted."""

from __future__ import annotations

import anyio
import pytest
from py_trees.composites import Sequence

from jianmu.agent import Agent
from jianmu.engine.limits import Limits
from jianmu.errors import LimitExceeded
from jianmu.nodes import AskHuman
from tests.cases.leaves import INVALID, RUNNING, SUCCESS, Do, DoAsync, World

pytestmark = pytest.mark.anyio
WITHIN = 5


async def test_a_run_that_suspends_in_its_last_pass_is_suspended() -> None:
    """Nothing more is wanted than an answer: the question is told, not the limit."""
    agent = Agent(AskHuman("ask", message="?"), World, limits=Limits(max_ticks=1))
    with anyio.fail_after(WITHIN):
        outcome = await agent.run_until_suspend()
    assert outcome.suspended
    assert outcome.limit is None


async def test_a_resumed_run_makes_no_pass_beyond_its_limit() -> None:
    """What was used before the suspension counts: the answer is taken, and nothing is ticked any more."""
    after = Do("after", lambda _: None)
    agent = Agent(Sequence("s", memory=True, children=[AskHuman("ask", message="?"), after]), World)
    with anyio.fail_after(WITHIN):
        assert (await agent.run_until_suspend()).suspended
        outcome = await agent.resume("yes", limits=Limits(max_ticks=1))
        assert (outcome.status, outcome.limit, after.ticks) == (INVALID, "max_ticks", 0)
        assert (await agent.recover(limits=Limits(max_ticks=2))).status is SUCCESS


@pytest.mark.parametrize("name", ["requests", "tokens", "cost", "tool_calls"])
async def test_what_is_not_used_has_no_end(name: str) -> None:
    """A limit of 0 ends no run that uses none of it, and one that has used exactly all ends by itself."""

    async def use(node: DoAsync) -> None:
        await node.context.clock.sleep(0)
        setattr(node.context.run.usage, name, most)

    for most in (0, 2):
        root = Sequence("s", memory=True, children=[DoAsync("a", use), DoAsync("b", use)])
        with anyio.fail_after(WITHIN):
            assert await Agent(root, World, limits=Limits(**{name: most})).run() is SUCCESS


async def test_steps_have_limits_as_well() -> None:
    """A step beyond the limit of its run ticks nothing and raises; the next run begins anew."""
    leaf = Do("leaf", lambda _: RUNNING)
    agent = Agent(leaf, World, limits=Limits(max_ticks=2))
    with anyio.fail_after(WITHIN):
        await agent.step()
        agent.step_sync()
        with pytest.raises(LimitExceeded, match="used its 2 passes"):
            await agent.step()
        assert (agent.status, leaf.ticks) == (INVALID, 2)
        await agent.reset()
        await agent.step()
    assert leaf.ticks == 3
