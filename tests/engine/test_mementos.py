"""Where a tree stands, written as JSON and read into fresh nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees import behaviours, blackboard, decorators
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.common import ParallelPolicy
from py_trees.timers import Timer

from jianmu.engine.mementos import dump, dump_position, load_position, restore
from jianmu.engine.ticker import Ticker, halt
from jianmu.engine.tree import descend
from jianmu.errors import CorruptRecordError, TreeMismatchError
from tests.conftest import FULL
from tests.engine.forest import Script, World, trees

S, F, R, INVALID = Status.SUCCESS, Status.FAILURE, Status.RUNNING, Status.INVALID


def shift(world: World, root: Behaviour, ticks: int) -> list[Any]:
    """Tick some times, a second each; return all statuses after each tick."""
    found = []
    for _ in range(ticks):
        world.now += 1
        with world.clock():
            Ticker().tick(root)
        found.append([(node.name, node.status) for node in descend(root)])
    return found


def moved(world: World, root: Behaviour, spec: Any) -> tuple[World, Behaviour]:
    """Return a fresh tree that was put where another one stands, its clock in another time."""
    with world.clock():
        position = json.loads(json.dumps(dump_position(root)))
    other = World(f"{world.name}_again", now=1000 + world.now)
    fresh = other.grow(spec)
    with other.clock():
        load_position(fresh, position, keeps=lambda _: True)
    return other, fresh


@given(trees(own=False), st.integers(0, 8), st.none() | st.integers(0, 20))
@settings(max_examples=12_000 if FULL else 750)
def test_a_loaded_tree_goes_on_as_the_original(spec: Any, ticks: int, halted: int | None) -> None:
    """A position dumped at any tick and loaded into fresh nodes goes on exactly as the original does."""
    world = World("live")
    root = world.grow(spec)
    shift(world, root, ticks)
    nodes = list(descend(root))
    if halted is not None:
        halt(nodes[halted % len(nodes)])
    other, fresh = moved(world, root, spec)
    assert [node.status for node in descend(fresh)] == [node.status for node in nodes]
    world.log.clear()
    assert shift(other, fresh, 8) == shift(world, root, 8)
    assert other.log == world.log
