"""Halting: every node that is not INVALID has its turn, in py_trees' order."""

from __future__ import annotations

from typing import Any

import pytest
from py_trees import decorators
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence

from jianmu.engine.ticker import Ticker, halt, tick
from jianmu.engine.tree import descend
from tests.engine.plain import INVALID, F, Leaf, R, Raising, S, names


class Detached(decorators.PassThrough):
    """A decorator whose `stop` looks after nobody but itself."""

    def stop(self, new_status: Status) -> None:
        self.status = new_status


class Deaf(decorators.PassThrough):
    """A decorator whose `terminate` does not call the base."""

    def terminate(self, new_status: Status) -> None:
        self.terminated = new_status


def parallel(*children: Behaviour) -> Parallel:
    return Parallel("p", policy=ParallelPolicy.SuccessOnAll(synchronise=False), children=list(children))


def statuses(root: Behaviour) -> set[Status]:
    return {node.status for node in descend(root)}


def test_all_nodes_below_are_stopped() -> None:
    """After a halt every node of the subtree is INVALID, and each that was not was terminated once."""
    log: list[str] = []
    root = parallel(
        Leaf("a", log=log), Sequence("s", memory=True, children=[Leaf("b", R, log=log), Leaf("c", log=log)])
    )
    tick(root)
    log.clear()
    halt(root)
    assert statuses(root) == {INVALID}
    assert log == ["b RUNNING to INVALID", "a SUCCESS to INVALID"]
    halt(root)
    assert len(log) == 2


def test_r20_a_terminate_that_does_not_call_its_base_changes_nothing() -> None:
    """R20: below a decorator with a `terminate` of its own the child is stopped all the same."""
    leaf = Leaf("l", R)
    root = Deaf("d", leaf)
    tick(root)
    halt(root)
    assert (root.terminated, leaf.status, leaf.log[-1]) == (INVALID, INVALID, "l RUNNING to INVALID")


@pytest.mark.parametrize("how", ["switch", "end"])
def test_r40_nobody_is_left_below_an_invalid_ancestor(how: str) -> None:
    """R40: a `stop` that looks after itself alone, and a `terminate` that raises, keep no leaf from theirs."""
    first, second = Raising("first", terminate=KeyError("late")), Leaf("second", R)
    guard = Leaf("guard", F, S)
    below = Detached("d", parallel(first, second))
    root = Selector("root", memory=False, children=[guard, below])
    ticker, reported = Ticker(), list[tuple[str, str]]()
    ticker.report = lambda node, error: reported.append((node.name, str(error)))
    assert ticker.tick(root) is R
    if how == "switch":
        assert ticker.tick(root) is S
    else:
        halt(root, ticker.report)
    assert statuses(below) == {INVALID}
    assert (first.terminated, second.log[-1]) == (1, "second RUNNING to INVALID")
    assert reported == [("first", "'late'")]


def test_a_node_below_an_ancestor_that_is_invalid_already_is_found() -> None:
    """What somebody's own code left RUNNING below INVALID nodes is stopped by the next halt above."""
    leaf = Leaf("l", R)
    root = Sequence("root", memory=True, children=[Detached("d", decorators.Inverter("i", leaf))])
    tick(root)
    root.stop(INVALID)
    assert leaf.status is R
    halt(root)
    assert (leaf.status, leaf.log[-1]) == (INVALID, "l RUNNING to INVALID")


def test_a_stop_that_does_nothing_leaves_nobody_alive() -> None:
    """A class whose `stop` refuses is INVALID after a halt, and so is all below."""

    class Stubborn(decorators.PassThrough):
        def stop(self, new_status: Status) -> None:
            """Refuse."""

    root = Stubborn("s", Leaf("l", R))
    tick(root)
    halt(root)
    assert statuses(root) == {INVALID}


def test_what_terminate_raises_comes_after_all_had_their_turn() -> None:
    """Without a report the first exception is raised at the end, the others are its notes with the paths."""
    leaves = [Raising(name, terminate=ValueError(name)) for name in "abc"]
    root = parallel(*leaves)
    tick(root)
    with pytest.raises(ValueError, match=r"^a\n") as caught:
        halt(root)
    assert [leaf.terminated for leaf in leaves] == [1, 1, 1]
    assert statuses(root) == {INVALID}
    assert caught.value.__notes__ == [
        "terminate() of node 'p/b' raised as well: ValueError: b",
        "terminate() of node 'p/c' raised as well: ValueError: c",
    ]


@pytest.mark.parametrize("reports", [True, False])
def test_a_raising_terminate_in_a_pass_is_reported_or_raised(reports: bool) -> None:
    """A sequence that resets its children gives all their turn; what was raised is reported, else it ends the pass."""
    leaves = [Raising(name, terminate=ValueError(name)) for name in "ab"]
    for leaf in leaves:
        leaf.update = lambda: S
    ticker, reported = Ticker(), list[str]()
    ticker.report = (lambda node, _error: reported.append(node.name)) if reports else None
    root = Sequence("s", memory=True, children=[Leaf("first"), *leaves, Leaf("last")])
    outcome: Any = ticker.tick(root)
    try:
        outcome = ticker.tick(root)
    except ValueError as error:
        outcome = (str(error), names([ticker.culprit] if ticker.culprit else []))
    assert [leaf.terminated for leaf in leaves] == [1, 1]
    assert root.children[-1].log[-1] == ("last INVALID to SUCCESS" if reports else "last SUCCESS to INVALID")
    assert (outcome, reported) == ((S, ["a", "b"]) if reports else (("a", ["a"]), []))


def test_what_is_no_exception_is_raised_although_it_could_be_reported() -> None:
    """A KeyboardInterrupt in `terminate` is never taken for a node's fault: it comes out when all had their turn."""
    leaf, other = Leaf("a", R), Leaf("b", R)

    def interrupt(_new: Status) -> None:
        raise KeyboardInterrupt

    leaf.terminate = interrupt
    root, reported = parallel(leaf, other), list[Behaviour]()
    tick(root)
    with pytest.raises(KeyboardInterrupt):
        halt(root, lambda node, _error: reported.append(node))
    assert (statuses(root), reported) == ({INVALID}, [])


def test_a_halt_is_told_to_the_trace() -> None:
    """The trace is told of each node that was not INVALID, of those below a `stop` of its own as well."""
    halted: list[Behaviour] = []
    root = parallel(
        Leaf("a"), Detached("d", Leaf("b", R)), Sequence("s", memory=True, children=[Leaf("c", F), Leaf("x")])
    )
    tick(root)
    halt(root, trace=lambda what, node: halted.append(node) if what == "halted" else None)
    assert sorted(names(halted)) == ["a", "c", "p", "s"]
    halted.clear()
    root = Detached("d", parallel(Leaf("a", R)))
    tick(root)
    halt(root, trace=lambda _, node: halted.append(node))
    assert names(halted) == ["d", "a", "p"]


def test_a_decorator_stops_its_child_again() -> None:
    """As in py_trees, a decorator that is stopped with INVALID stops a child that is INVALID already."""
    leaf = Leaf("l", R)
    root = decorators.RunningIsFailure("r", leaf)
    tick(root)
    assert leaf.log == ["l initialise", "l RUNNING to INVALID"]
    halt(root)
    assert leaf.log[2:] == ["l INVALID to INVALID"]
