"""Branches that say by `steps()` what is ticked next, and results that stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from py_trees import decorators
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Composite, Parallel, Selector, Sequence
from py_trees.decorators import Decorator

from jianmu.engine.control import Control
from jianmu.engine.passes import Pass
from jianmu.engine.ticker import Ticker, halt, holds, tick
from jianmu.errors import InvalidStatusError, SetupError
from tests.engine.plain import INVALID, F, Leaf, Quiet, R, Raising, S, names, nested

Steps = Iterator[Behaviour]


class Logged:
    """Logs the callbacks of a branch."""

    def initialise(self) -> None:
        self.log.append(f"{self.name} initialise")

    def terminate(self, new_status: Status) -> None:
        self.log.append(f"{self.name} {self.status.name} to {new_status.name}")


class Catching(Logged, Control, Decorator):
    """FAILURE where the child raises a KeyError."""

    def __init__(self, name: str, child: Behaviour, log: list[str]) -> None:
        super().__init__(name, child)
        self.log = log

    def steps(self) -> Any:
        try:
            yield self.decorated
        except KeyError as error:
            self.log.append(f"caught {error}")
            self.halt(self.decorated)
            return F
        finally:
            self.log.append("finally")
        return self.decorated.status


class First(Logged, Control, Composite):
    """Ticks all; the first SUCCESS wins."""

    def __init__(self, name: str, children: list[Behaviour], log: list[str]) -> None:
        super().__init__(name, children)
        self.log = log

    def steps(self) -> Any:
        yield from self.children
        return S if any(child.status is S for child in self.children) else R


class Mirror(Control, Decorator):
    """Gives back what its child says, by the default steps."""

    def update(self) -> Status:
        return self.decorated.status


def by_py_trees(root: Behaviour) -> Status:
    """Tick as py_trees does."""
    for _ in root.tick():
        pass
    return root.status


TICKS: list[Callable[[Behaviour], Status]] = [tick, by_py_trees]


@pytest.mark.parametrize("ticked", TICKS)
def test_steps_are_entered_and_ended_like_any_branch(ticked: Callable[[Behaviour], Status]) -> None:
    """`initialise` on entry, `terminate` on a result, running children halted: under py_trees the same as here."""
    log: list[str] = []
    root = First("first", [Leaf("a", R, S, log=log), Sequence("s", True, [Leaf("b", R, log=log)])], log)
    assert [ticked(root), ticked(root)] == [R, S]
    assert log == [
        "first initialise",
        "a initialise",
        "b initialise",
        "a RUNNING to SUCCESS",
        "b RUNNING to INVALID",
        "first RUNNING to SUCCESS",
    ]
    assert root.children[1].status is INVALID


@pytest.mark.parametrize("ticked", TICKS)
@pytest.mark.parametrize("wrap", [lambda node: node, lambda node: Sequence("s", memory=True, children=[node])])
def test_a_childs_exception_is_raised_at_its_yield(
    ticked: Callable[[Behaviour], Status], wrap: Callable[[Behaviour], Behaviour]
) -> None:
    """`steps()` may catch what the child below raises, a leaf or a branch; what it does not catch goes on upwards."""
    log: list[str] = []
    bad = Raising("bad", update=KeyError("x"))
    root = Selector("root", memory=False, children=[Catching("c", wrap(bad), log), Leaf("other")])
    assert ticked(root) is S
    assert log == ["c initialise", "caught 'x'", "finally", "c INVALID to FAILURE"]
    bad.errors = (ValueError("y"), None)
    with pytest.raises(ValueError, match="y"):
        ticked(root)
    assert log[4:] == ["c initialise", "finally"]


def test_the_culprit_is_known_inside_and_after() -> None:
    """A caught exception's node is known at the yield; one that `steps()` raises itself is its own."""
    ticker, found = Ticker(), list[Any]()

    class Asking(Mirror):
        def steps(self) -> Any:
            try:
                yield self.decorated
            except KeyError as error:
                found.append(Pass.current().culprit)
                raise ValueError from error
            return S

    bad = Raising("bad", update=KeyError("x"))
    root = Sequence("s", memory=True, children=[Asking("asking", Sequence("t", memory=True, children=[bad]))])
    with pytest.raises(ValueError):  # noqa: PT011  # the type is what counts
        ticker.tick(root)
    assert names([*found, ticker.culprit]) == ["bad", "asking"]


def test_an_exception_passes_a_deep_tree() -> None:
    """5,000 nodes between the one that raises and the one that catches."""
    log: list[str] = []
    root = Catching("c", nested(5_000, Raising("bad", update=KeyError("x"))), log)
    assert tick(root) is F
    assert log[1] == "caught 'x'"


def test_a_step_may_be_repeated_and_go_on_after_an_exception() -> None:
    """`steps()` may yield a child as often as it likes, also after it raised."""

    class Again(Mirror):
        def steps(self) -> Any:
            for _ in range(5):
                try:
                    yield self.decorated
                except KeyError:
                    bad.errors = (None, None)
                    continue
                return self.decorated.status
            return F

    bad = Raising("bad", update=KeyError("x"))
    visited: list[Behaviour] = []
    root = Again("again", Sequence("s", memory=True, children=[bad]))
    assert tick(root, visited.append) is R
    assert names(visited) == ["bad", "s", "again"]


def test_what_steps_return_must_be_a_status() -> None:
    """A `steps()` that ends without a status is an error with the path; one that is missing says what to write."""

    class Forgot(Mirror):
        def steps(self) -> Any:
            yield self.decorated

    with pytest.raises(InvalidStatusError, match="'s/forgot' returned None"):
        tick(Sequence("s", memory=True, children=[Forgot("forgot", Leaf("l"))]))

    class Nothing(Control, Composite):
        pass

    with pytest.raises(SetupError, match=r"Nothing has no steps\(\)"):
        tick(Nothing("n"))


def test_a_control_is_known_where_it_declares_so() -> None:
    """The default steps of a decorator ask its `update`; a control is not opaque, `polled = True` makes it so."""
    ticker = Ticker()
    assert ticker.tick(Mirror("m", Sequence("s", memory=True, children=[Quiet("q")]))) is S
    assert not ticker.polled

    class Polled(Mirror):
        polled = True

    ticker.tick(Polled("p", Quiet("q")))
    assert ticker.polled


def test_a_control_under_a_tick_of_its_own_is_in_the_pass() -> None:
    """Below an unknown `tick` a control halts by the pass's rules, has its number, and is told of once."""
    reported, events = list[str](), list[str]()
    ticker = Ticker()
    ticker.trace = lambda what, node: events.append(f"{what} {node.name}")
    ticker.report = lambda node, _error: reported.append(node.name)

    class Own(decorators.PassThrough):
        def tick(self) -> Any:
            yield from super().tick()

    lost = Raising("lost", terminate=KeyError("late"))
    control = First("f", [lost, Leaf("won", R, S)], [])
    root = Own("own", control)
    assert ticker.tick(root) is R
    assert control.activation == ticker.number
    assert ticker.tick(root) is S
    assert (reported, lost.terminated) == (["lost"], 1)
    assert [each for each in sorted(events) if each.split()[1] in ("lost", "f", "own")] == [
        "finished f",
        "finished own",
        "halted lost",
        "started f",
        "started lost",
        "started own",
    ]


def test_direct_leaves_are_ticked_in_place() -> None:
    """A leaf with `tick_direct` does its tick itself, and is shown and blamed like any other."""
    log: list[str] = []

    class Direct(Leaf):
        def tick_direct(self, run: Pass) -> Status:
            log.append("direct")
            if self.status is not R:
                run.enter(self)
            return run.finish(self, self.update())

        def tick(self) -> Any:
            self.tick_direct(Pass.current())
            yield self

    ticker, events = Ticker(), list[str]()
    ticker.trace = lambda what, node: events.append(f"{what} {node.name}")
    visited: list[Behaviour] = []
    leaf = Direct("d", R, S)
    root = Sequence("s", memory=True, children=[leaf, Leaf("l", R)])
    ticker.tick(root, visited.append)
    ticker.tick(root, visited.append)
    assert (names(visited), log) == (["d", "s", "d", "l", "s"], ["direct"] * 2)
    assert events == ["started s", "started d", "finished d", "started l"]
    by_py_trees(Direct("d"))
    assert log == ["direct"] * 3


def memoryless(cls: Any, child: Behaviour) -> Composite:
    """Return a composite that looks at its finished child again, while another one is RUNNING."""
    if cls is not Parallel:
        return cls("c", memory=False, children=[child, Leaf("last", R)])
    return Parallel("c", policy=ParallelPolicy.SuccessOnAll(synchronise=False), children=[child, Leaf("last", R)])


@pytest.mark.parametrize("cls", [Sequence, Selector, Parallel])
def test_a_result_stands_while_a_composite_looks_again(cls: Any) -> None:
    """`holds` is true for what finished in the activation of the nearest RUNNING ancestor, if that looks again."""
    leaf = Leaf("l", F if cls is Selector else S)
    between = decorators.Inverter("i", decorators.Inverter("j", leaf))
    root, ticker = memoryless(cls, between), Ticker()
    assert ticker.tick(root) is R
    assert holds(leaf, ticker.number)
    assert not holds(leaf, ticker.number - 1)
    ticker.tick(root)
    assert holds(leaf, ticker.number)
    halt(root)
    assert not holds(leaf, ticker.number)


def test_nothing_stands_below_a_composite_that_remembers() -> None:
    """A composite with memory, a synchronised Parallel and a decorator that is RUNNING look at nobody again."""
    for make in (
        lambda leaf: Sequence("c", memory=True, children=[leaf, Leaf("last", R)]),
        lambda leaf: Parallel("c", ParallelPolicy.SuccessOnAll(synchronise=True), [leaf, Leaf("last", R)]),
        lambda leaf: decorators.SuccessIsRunning("c", leaf),
    ):
        leaf, ticker = Leaf("l"), Ticker()
        assert ticker.tick(make(leaf)) is R
        assert not holds(leaf, ticker.number)


class Rounds(Control, Decorator):
    """A loop of two rounds."""

    is_loop = True

    def initialise(self) -> None:
        self.left = 2

    def steps(self) -> Any:
        yield self.decorated
        self.left -= self.decorated.status is S
        return R if self.left else S


class Started(Leaf):
    """A leaf that notes on the loop above it that something asynchronous was started."""

    def initialise(self) -> None:
        super().initialise()
        self.parent.async_started = Pass.current().number


@pytest.mark.parametrize("make", [lambda leaf: decorators.Repeat("r", leaf, 2), lambda leaf: Rounds("r", leaf)])
@pytest.mark.parametrize("cls", [Sequence, Parallel])
@pytest.mark.parametrize("leaf", [Started, Leaf])
def test_a_finished_loop_holds_its_result_if_something_was_started_below(make: Any, cls: Any, leaf: Any) -> None:
    """Ticked again, such a loop is shown with its result and its child is left alone; other loops start anew."""
    child = leaf("l")
    root, ticker = memoryless(cls, make(child)), Ticker()
    loop, visited, events = root.children[0], list[Behaviour](), list[str]()
    ticker.tick(root)
    ticker.tick(root)
    assert (loop.status, child.updates) == (S, 2)
    ticker.trace = lambda what, node: events.append(f"{what} {node.name}")
    ticker.tick(root, visited.append)
    if leaf is Started:
        assert (loop.status, child.updates, events, names(visited)[0]) == (S, 2, [], "r")
        halt(root)
        ticker.tick(root)
    else:
        assert (loop.status, events[0]) == (R, "started r")
    assert child.updates == 3
