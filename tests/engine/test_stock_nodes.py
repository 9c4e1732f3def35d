"""Every stock node of py_trees gives under run() what it gives under py_trees' own tick_tock."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import py_trees
import pytest
from py_trees import behaviours, blackboard, composites, decorators, timers
from py_trees.behaviour import Behaviour
from py_trees.common import Access, ComparisonExpression, OneShotPolicy, ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.agent import Agent
from jianmu.errors import StalledError
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, nothing_left

pytestmark = pytest.mark.anyio

MOST = 12
"""Ticks after which a tree that never ends is halted."""


class InTurn(Behaviour):
    """A leaf with these statuses, the last one again and again; notes its callbacks."""

    def __init__(self, name: str, *statuses: Status) -> None:
        super().__init__(name)
        self.left = list(statuses)
        self.calls: list[str] = []

    def initialise(self) -> None:
        """Note it."""
        self.calls.append("initialise")

    def update(self) -> Status:
        """Return the next status."""
        self.calls.append("update")
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def terminate(self, new_status: Status) -> None:
        """Note it."""
        self.calls.append(f"terminate {new_status.name}")


def leaf(*statuses: Status) -> InTurn:
    return InTurn("leaf", *statuses)


def late(result: Status) -> InTurn:
    return leaf(RUNNING, RUNNING, result)


def _comparison(value: int, name: str = "number") -> ComparisonExpression:
    return ComparisonExpression(name, value, operator.eq)


LEAVES: dict[str, Callable[[], Behaviour]] = {
    "Success": lambda: behaviours.Success("x"),
    "Failure": lambda: behaviours.Failure("x"),
    "Running": lambda: behaviours.Running("x"),
    "Dummy": lambda: behaviours.Dummy("x"),
    "Periodic": lambda: behaviours.Periodic("x", 2),
    "StatusQueue": lambda: behaviours.StatusQueue("x", [RUNNING, RUNNING, FAILURE], SUCCESS),
    "StatusQueue for ever": lambda: behaviours.StatusQueue("x", [RUNNING, SUCCESS], None),
    "SuccessEveryN": lambda: behaviours.SuccessEveryN("x", 3),
    "TickCounter": lambda: behaviours.TickCounter("x", 3, FAILURE),
    "BlackboardToStatus": lambda: behaviours.BlackboardToStatus("x", "status"),
    "CheckBlackboardVariableExists": lambda: behaviours.CheckBlackboardVariableExists("x", "number"),
    "CheckBlackboardVariableExists not": lambda: behaviours.CheckBlackboardVariableExists("x", "nothing"),
    "WaitForBlackboardVariable": lambda: behaviours.WaitForBlackboardVariable("x", "number"),
    "WaitForBlackboardVariable for ever": lambda: behaviours.WaitForBlackboardVariable("x", "nothing"),
    "UnsetBlackboardVariable": lambda: behaviours.UnsetBlackboardVariable("x", "number"),
    "SetBlackboardVariable": lambda: behaviours.SetBlackboardVariable("x", "set", lambda: 5, overwrite=True),
    "CheckBlackboardVariableValue": lambda: behaviours.CheckBlackboardVariableValue("x", _comparison(7)),
    "CheckBlackboardVariableValue not": lambda: behaviours.CheckBlackboardVariableValue("x", _comparison(8)),
    "CompareBlackboardVariables": lambda: behaviours.CompareBlackboardVariables("x", "number", "same", operator.eq),
    "WaitForBlackboardVariableValue": lambda: behaviours.WaitForBlackboardVariableValue("x", _comparison(7)),
    "WaitForBlackboardVariableValue for ever": lambda: behaviours.WaitForBlackboardVariableValue("x", _comparison(8)),
    "CheckBlackboardVariableValues": lambda: behaviours.CheckBlackboardVariableValues(
        "x", [_comparison(7), _comparison(7, "same")], operator.and_
    ),
    "ProbabilisticBehaviour": lambda: behaviours.ProbabilisticBehaviour("x", [0.0, 0.0, 1.0]),
    "Timer": lambda: timers.Timer("x", 0.005),
    "a leaf of a user's": lambda: late(FAILURE),
}

BRANCHES: dict[str, Callable[[], Behaviour]] = {
    "Sequence": lambda: Sequence("x", True, [late(SUCCESS), late(FAILURE)]),
    "Sequence memoryless": lambda: Sequence("x", False, [behaviours.Periodic("p", 2), late(SUCCESS)]),
    "Selector": lambda: Selector("x", True, [late(FAILURE), late(SUCCESS)]),
    "Selector memoryless": lambda: Selector("x", False, [behaviours.SuccessEveryN("p", 4), late(FAILURE)]),
    "Parallel on all": lambda: Parallel("x", ParallelPolicy.SuccessOnAll(), [late(SUCCESS), leaf(SUCCESS)]),
    "Parallel on one": lambda: Parallel("x", ParallelPolicy.SuccessOnOne(), [late(SUCCESS), behaviours.Running("r")]),
    "Parallel synchronised": lambda: Parallel("x", ParallelPolicy.SuccessOnAll(synchronise=True), [late(SUCCESS)]),
    "Repeat": lambda: decorators.Repeat("x", late(SUCCESS), 2),
    "Repeat for ever": lambda: decorators.Repeat("x", leaf(SUCCESS, SUCCESS, SUCCESS, SUCCESS, FAILURE), -1),
    "Retry": lambda: decorators.Retry("x", leaf(FAILURE, RUNNING, FAILURE, SUCCESS), 3),
    "Retry in vain": lambda: decorators.Retry("x", leaf(FAILURE), 3),
    "StatusToBlackboard": lambda: decorators.StatusToBlackboard("x", late(SUCCESS), "reported"),
    "EternalGuard": lambda: decorators.EternalGuard("x", late(SUCCESS), condition=lambda: True),
    "EternalGuard shut": lambda: decorators.EternalGuard("x", late(SUCCESS), condition=_counted([True, True, False])),
    "Timeout": lambda: decorators.Timeout("x", behaviours.Running("r"), 0.005),
    "Timeout in time": lambda: decorators.Timeout("x", late(SUCCESS), 10),
    "Count": lambda: decorators.Count("x", late(SUCCESS)),
    "OneShot": lambda: decorators.OneShot("x", late(SUCCESS), OneShotPolicy.ON_COMPLETION),
    "Inverter": lambda: decorators.Inverter("x", late(SUCCESS)),
    "RunningIsFailure": lambda: decorators.RunningIsFailure("x", late(SUCCESS)),
    "RunningIsSuccess": lambda: decorators.RunningIsSuccess("x", late(FAILURE)),
    "FailureIsSuccess": lambda: decorators.FailureIsSuccess("x", late(FAILURE)),
    "FailureIsRunning": lambda: decorators.FailureIsRunning("x", leaf(FAILURE, FAILURE, SUCCESS)),
    "FailureIsRunning over a condition": lambda: decorators.FailureIsRunning("x", behaviours.SuccessEveryN("p", 3)),
    "SuccessIsFailure": lambda: decorators.SuccessIsFailure("x", late(SUCCESS)),
    "SuccessIsRunning": lambda: decorators.SuccessIsRunning("x", leaf(SUCCESS, SUCCESS, FAILURE)),
    "Condition": lambda: decorators.Condition("x", leaf(FAILURE, RUNNING, SUCCESS), SUCCESS),
    "PassThrough": lambda: decorators.PassThrough("x", late(FAILURE)),
    "ForEach": lambda: decorators.ForEach("x", late(SUCCESS), "items", "item"),
}


def _counted(values: list[bool]) -> Callable[[], bool]:
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture(autouse=True)
def _blackboard() -> Iterator[None]:
    """Give each test a board of its own."""
    _renew()
    yield
    blackboard.Blackboard.clear()


def _renew() -> None:
    blackboard.Blackboard.clear()
    board = blackboard.Client(name="test")
    for key, value in {"number": 7, "same": 7, "status": SUCCESS, "items": [1, 2, 3]}.items():
        board.register_key(key, Access.WRITE)
        board.set(key, value)


def under_py_trees(root: Behaviour) -> list[Any]:
    """Return what tick_tock makes of a tree."""
    tree = py_trees.trees.BehaviourTree(root)
    tree.tick_tock(2, MOST, stop_on_terminal_state=True)
    return outcome(root)


async def under_run(root: Behaviour) -> list[Any]:
    """Return what run() makes of a tree."""
    agent: Agent[Any] = Agent(root, poll_interval=0.002, on_stall="raise")
    found: list[Any] = []

    def count(tree: py_trees.trees.BehaviourTree) -> None:
        found[:] = [outcome(root)]
        if tree.count + 1 == MOST:
            agent.halt()

    agent.tree.post_tick_handlers.append(count)
    with anyio.fail_after(5), nothing_left(agent), suppress(StalledError):  # constants are not polled: they stall
        await agent.run()
    return found[0]


def outcome(root: Behaviour) -> list[Any]:
    """Return the result of a tree with the statuses of all nodes, what leaves noted, and what is on the board."""
    nodes = list(root.iterate())
    board = {key: value for key, value in blackboard.Blackboard.storage.items() if not callable(value)}
    statuses = [(node.name, node.status) for node in nodes]
    return [statuses, [node.calls for node in nodes if isinstance(node, InTurn)], board]


@pytest.mark.parametrize("name", [*LEAVES, *BRANCHES])
@pytest.mark.parametrize("wrapped", [False, True])
async def test_run_gives_what_tick_tock_gives(name: str, wrapped: bool) -> None:
    """The same statuses, callbacks, blackboard and number of ticks, alone and inside of composites."""
    make = (LEAVES | BRANCHES)[name]

    def tree() -> Behaviour:
        if not wrapped:
            return make()
        inner = Sequence("inner", memory=False, children=[behaviours.Success("before"), make()])
        return Selector("outer", memory=True, children=[inner, behaviours.Failure("other")])

    expected = under_py_trees(tree())
    _renew()
    assert await under_run(tree()) == expected


@pytest.mark.parametrize("wrapped", [False, True])
async def test_success_on_selected_too(wrapped: bool) -> None:
    """Its policy names children, so each tree is built with its own."""

    def tree() -> Behaviour:
        chosen = late(SUCCESS)
        policy = ParallelPolicy.SuccessOnSelected(children=[chosen], synchronise=wrapped)
        return Parallel("x", policy, [chosen, behaviours.Running("r")])

    assert await under_run(tree()) == under_py_trees(tree())


def test_no_stock_node_is_left_out() -> None:
    """What py_trees adds in a new version has to be added here."""
    stock = {
        name
        for module in (behaviours, composites, decorators, timers)
        for name, cls in vars(module).items()
        if inspect.isclass(cls) and issubclass(cls, Behaviour) and cls.__module__ == module.__name__
    }
    covered = {name.split()[0] for name in (*LEAVES, *BRANCHES)}
    assert stock - covered == {"Composite", "Decorator"}
