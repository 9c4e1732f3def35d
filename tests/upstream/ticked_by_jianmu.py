"""A pytest plugin: py_trees' own tests tick their trees by jianmu's ticker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import py_trees
import pytest
from py_trees.behaviour import Behaviour
from py_trees.trees import BehaviourTree

from jianmu.engine.ticker import Ticker, Tree

LEFT_OUT: dict[str, str] = {}
"""Tests that are left out, each with the reason."""

TICKED = {"trees": 0}


def tick_once(root: Behaviour) -> None:
    """Stand in for `Behaviour.tick_once`."""
    TICKED["trees"] += 1
    Ticker().tick(root)


def tick_tree(root: Behaviour, from_tick: int, to_tick: int, *, visitors: Sequence[Any] = (), **_: object) -> None:
    """Stand in for `py_trees.tests.tick_tree`, without its printing."""
    for _number in range(from_tick, to_tick + 1):
        TICKED["trees"] += 1
        for visitor in visitors or ():
            visitor.initialise()
        Ticker().tick(root, lambda node: [node.visit(visitor) for visitor in visitors or ()])


def tree_tick(tree: BehaviourTree, *handlers: Any, **named: Any) -> None:
    """Stand in for `BehaviourTree.tick`."""
    TICKED["trees"] += 1
    if not hasattr(tree, "ticker"):
        tree.ticker = Ticker()
    Tree.tick(tree, *handlers, **named)


for name in ("_visit", "_visit_all", "setup", "shutdown"):
    setattr(BehaviourTree, name, getattr(Tree, name))
BehaviourTree.tick = tree_tick
Behaviour.tick_once = tick_once
py_trees.tests.tick_tree = tick_tree


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot hold here, for the reason that stands in the list."""
    out = [item for item in items if item.nodeid.rpartition("/")[2] in LEFT_OUT]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many trees were ticked by jianmu."""
    terminalreporter.write_line(f"ticked by jianmu: {TICKED['trees']}")
