"""What all branches have in common: a halt reaches everything below, and the next entry begins anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py_trees.behaviour import Behaviour
from py_trees.composites import Selector

from jianmu.engine.state import StateManager
from jianmu.nodes import (
    Catch,
    Cooldown,
    Finally,
    ForceFailure,
    ForceSuccess,
    ForEach,
    Guard,
    IfThenElse,
    Invert,
    LoopUntilSuccess,
    Race,
    Repeat,
    Retry,
    SubAgent,
    Switch,
    Timeout,
    Utility,
)
from tests.cases.leaves import INVALID, RUNNING, Scripted, Sleep
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio

KINDS: dict[type, Callable[[Behaviour], Behaviour]] = {
    Race: lambda child: Race("x", [child]),
    Switch: lambda child: Switch("x", lambda s: 1, {1: child}),
    IfThenElse: lambda child: IfThenElse("x", lambda s: True, child),
    Utility: lambda child: Utility("x", [child], scores=lambda s: [1]),
    ForEach: lambda child: ForEach("x", lambda item, index: child, over=[1]),
    LoopUntilSuccess: lambda child: LoopUntilSuccess("x", child),
    Repeat: lambda child: Repeat("x", child),
    Retry: lambda child: Retry("x", child, attempts=3),
    Timeout: lambda child: Timeout("x", child, seconds=9),
    Cooldown: lambda child: Cooldown("x", child, seconds=9),
    Guard: lambda child: Guard("x", child, condition=lambda s: True),
    Catch: lambda child: Catch("x", child, on=ValueError),
    Finally: lambda child: Finally("x", child, lambda context: None),
    Invert: lambda child: Invert("x", child),
    ForceSuccess: lambda child: ForceSuccess("x", child),
    ForceFailure: lambda child: ForceFailure("x", child),
    SubAgent: lambda child: SubAgent("x", child, StateManager(Desk)),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_a_halt_reaches_the_child_and_the_next_entry_begins_anew(kind: type) -> None:
    """Halted by a sibling: every node is INVALID, the coroutine below is cleaned up, and it starts again later."""
    statuses: list[object] = []
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Scripted("other", RUNNING), condition=lambda s: s.n == 1),
                KINDS[kind](Sleep("a", 2, diary)),
            ],
        )
    )

    async def turn() -> None:
        await table.write(1, n=1)
        await table.clock.sleep(0.5)
        branch = table.root.children[1]
        statuses.extend([branch.status, *(child.status for child in branch.children)])
        await table.write(0, n=2)
        await table.clock.sleep(1)
        table.agent.halt()

    await table.run_with(turn)
    assert statuses == [INVALID, INVALID]
    assert table.diary.order("start", "cleanup", "end") == ["start a", "cleanup a", "start a", "cleanup a"]
    assert table.diary.at("start", "a") == [0.0, 1.5]
