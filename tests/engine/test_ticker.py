"""One pass: what it returns, what it calls, what it finds, and where it differs from py_trees on purpose."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from py_trees import behaviours, decorators
from py_trees.behaviour import Behaviour
from py_trees.common import OneShotPolicy, ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.timers import Timer

from jianmu.engine import ticker
from jianmu.engine.ticker import Ticker, halt, tick
from jianmu.engine.tree import descend
from jianmu.errors import InvalidStatusError
from tests.engine.plain import INVALID, F, Leaf, Quiet, R, Raising, S, logging, names, nested


def test_n06_a_node_is_terminated_once_by_what_ends_it() -> None:
    """N06: a sibling's failure stops a RUNNING leaf below a decorator once; the failing leaf stops once itself."""
    log: list[str] = []
    root = Parallel(
        "p",
        policy=ParallelPolicy.SuccessOnAll(),
        children=[decorators.Inverter("i", Leaf("inner", R, log=log)), Leaf("failing", F, log=log)],
    )
    assert tick(root) is F
    assert log == [
        "inner initialise", "failing initialise", "failing INVALID to FAILURE", "inner RUNNING to INVALID",
    ]  # fmt: skip


@pytest.mark.parametrize("cls", [Sequence, Selector])
def test_n07_composites_are_terminated_on_every_result(cls: Any) -> None:
    """N07: one `terminate` each for SUCCESS and FAILURE at once, SUCCESS after RUNNING, and a halt."""
    log: list[str] = []
    make = logging(cls, log)
    tick(make("a", memory=True, children=[Leaf("l", S)]))
    tick(make("b", memory=True, children=[Leaf("l", F)]))
    late = make("c", memory=True, children=[Leaf("l", R, S)])
    tick(late), tick(late)
    halted = make("d", memory=True, children=[Leaf("l", R)])
    tick(halted)
    halt(halted)
    assert log == ["INVALID to SUCCESS", "INVALID to FAILURE", "RUNNING to SUCCESS", "RUNNING to INVALID"]


def test_n08_a_failure_beside_the_selected_children_counts() -> None:
    """N08: SuccessOnSelected fails with any child, and waits for the selected where the others cannot fail."""
    slow, other = Leaf("slow", R, S), Leaf("other", F)
    policy = ParallelPolicy.SuccessOnSelected(children=[slow], synchronise=False)
    assert tick(Parallel("p", policy=policy, children=[slow, other])) is F
    slow, other = Leaf("slow", R, S), decorators.FailureIsSuccess("f", Leaf("other", F))
    policy = ParallelPolicy.SuccessOnSelected(children=[slow], synchronise=False)
    root = Parallel("p", policy=policy, children=[slow, other])
    assert [tick(root), tick(root)] == [R, S]


def test_n14_every_round_enters_and_ends_each_leaf() -> None:
    """N14: two rounds of Inverter(Selector) initialise and terminate each leaf twice."""
    log: list[str] = []
    root = decorators.Inverter(
        "i", Selector("s", memory=False, children=[Leaf("a", F, log=log), Leaf("b", S, log=log)])
    )
    assert [tick(root), tick(root)] == [F, F]
    for name in "ab":
        assert [line.split()[1] for line in log if line[0] == name].count("initialise") == 2
        assert len([line for line in log if line[0] == name and " to " in line and "to INVALID" not in line]) == 2


def test_deep_trees_are_ticked_and_halted() -> None:
    """5,000 nested nodes tick and halt, also in a thread with a small stack; the recursion limit is not touched."""
    limit = sys.getrecursionlimit()
    found: list[Any] = []

    def work() -> None:
        leaf = Leaf("l", R, S)
        root, ticker = nested(5_000, leaf), Ticker()
        visited: list[Behaviour] = []
        found.append((ticker.tick(root, visited.append), len(visited), leaf.status))
        halt(root)
        found.append({node.status for node in descend(root)})
        found.append((tick(root), leaf.updates))

    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert found == [(R, 5_001, R), {INVALID}, (S, 2)]
    assert sys.getrecursionlimit() == limit


def test_a_timeout_halts_a_deep_child() -> None:
    """A Timeout that fires over 5,000 nested nodes halts them all."""
    root = decorators.Timeout("t", nested(5_000, Leaf("l", R)), duration=-1.0)
    assert tick(root) is F
    assert {node.status for node in descend(root) if node is not root} == {INVALID}


@pytest.mark.parametrize("returned", [None, INVALID, True, "SUCCESS"])
@pytest.mark.parametrize("wrap", [lambda leaf: leaf, lambda leaf: Sequence("s", memory=True, children=[leaf])])
def test_what_is_no_status_is_an_error_with_the_path(returned: Any, wrap: Callable[[Behaviour], Behaviour]) -> None:
    """A node that returns anything but SUCCESS, FAILURE or RUNNING is named by its path."""
    leaf = Quiet("bad", lambda: returned)
    root = wrap(leaf)
    with pytest.raises(InvalidStatusError, match=r"bad' returned .*: return Status\.SUCCESS") as caught:
        tick(root)
    assert caught.value.path == ("bad" if root is leaf else "s/bad")


def test_a_decorator_that_returns_no_status_is_an_error_with_the_path() -> None:
    """What holds for a leaf's `update` holds for a decorator's."""

    class Odd(decorators.Decorator):
        def update(self) -> Any:
            return None

    with pytest.raises(InvalidStatusError, match="'s/odd' returned None"):
        tick(Sequence("s", memory=True, children=[Odd("odd", Leaf("l"))]))


@pytest.mark.parametrize("cls", [Sequence, Selector])
def test_r05_a_replaced_current_child_is_gone_on_with(cls: Any) -> None:
    """R05: a composite with memory goes on at the child that took the current one's place; done ones stay done."""
    passed = S if cls is Sequence else F
    first, old, new = Leaf("first", passed), Leaf("old", R), Leaf("new", R)
    root = cls("c", memory=True, children=[first, old, Leaf("last", passed)])
    assert tick(root) is R
    root.replace_child(old, new)
    assert [tick(root), first.updates, new.updates, old.updates, old.status] == [R, 1, 1, 1, INVALID]


@pytest.mark.parametrize("cls", [Sequence, Selector])
def test_after_the_current_child_was_removed_the_next_one_has_its_place(cls: Any) -> None:
    """A removed current child is followed by the sibling after it, also when others were put in before."""
    passed = S if cls is Sequence else F
    first, old, following = Leaf("first", passed), Leaf("old", R), Leaf("following", R)
    root = cls("c", memory=True, children=[first, old, following])
    tick(root)
    root.insert_child(Leaf("earlier", passed), 0)
    root.remove_child(old)
    assert [tick(root), first.updates, following.updates, root.children[0].updates] == [R, 1, 1, 0]


@pytest.mark.parametrize("cls", [Sequence, Selector])
def test_where_nothing_took_the_place_it_starts_over(cls: Any) -> None:
    """Without the current child and the one before it, or without one after it, the first child is next."""
    passed = S if cls is Sequence else F
    first, old = Leaf("first", passed), Leaf("old", R)
    root = cls("c", memory=True, children=[first, old])
    tick(root)
    root.remove_child(old)
    assert [tick(root), first.updates] == [passed, 2]


@pytest.mark.parametrize("callback", ["initialise", "update", "terminate", "tick"])
@pytest.mark.parametrize("beside", [[], [1]], ids=["alone", "with a branch"])
def test_callbacks_assigned_to_a_node_are_called(callback: str, beside: list[int]) -> None:
    """`node.update = ...` and the like count, whatever the class has."""
    called: list[str] = []
    leaf = Quiet("l")
    original = getattr(leaf, callback)
    setattr(leaf, callback, lambda *args: called.append(callback) or original(*args))
    branches = [Sequence("b", memory=True, children=[Leaf("x")]) for _ in beside]
    assert tick(Sequence("s", memory=False, children=[leaf, *branches])) is S
    assert set(called) == {callback}


@pytest.mark.parametrize("cls", [Sequence, Selector])
def test_a_tick_that_is_assigned_to_a_running_composite_is_called(cls: Any) -> None:
    """Also one with memory, which goes on where it is parked."""
    called: list[str] = []
    node = cls("c", memory=True, children=[Leaf("l", R, R)])
    root, original = Sequence("root", memory=True, children=[node]), node.tick
    tick(root)
    node.tick = lambda: called.append("tick") or original()
    assert (tick(root), called) == (R, ["tick"])


@pytest.mark.parametrize("cls", [behaviours.Success, behaviours.Failure, behaviours.Running, behaviours.Dummy])
def test_constants_do_what_py_trees_does(cls: Any) -> None:
    """py_trees' constants give their status and feedback, and callbacks assigned to one are called."""
    ours, theirs = cls("n"), cls("n")
    theirs.tick_once()
    assert tick(Sequence("s", memory=True, children=[ours])) is theirs.status
    assert ours.feedback_message == theirs.feedback_message
    other = cls("n")
    other.update = lambda: F
    ticker = Ticker()
    assert ticker.tick(other) is F
    assert ticker.polled


def branch(*children: Behaviour) -> Behaviour:
    return Sequence("b", memory=True, children=list(children))


class Custom(Quiet):
    def tick(self) -> Any:
        yield from Behaviour.tick(self)


class Polled(Quiet):
    polled = True


class PolledSequence(Sequence):
    polled = True


class Reflecting(decorators.Decorator):
    def update(self) -> Status:
        return self.decorated.status


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Quiet("q"), False),
        (lambda: branch(Quiet("q"), behaviours.Running("r")), False),
        (lambda: branch(Timer("t", 5.0)), False),
        (lambda: decorators.Timeout("t", Quiet("q", lambda: R), 5.0), False),
        (lambda: Leaf("l"), True),
        (lambda: branch(Quiet("q"), Leaf("l", R)), True),
        (lambda: branch(Quiet("q", lambda: F), Leaf("l", R)), False),
        (lambda: behaviours.TickCounter("t", 1, S), True),
        (lambda: decorators.EternalGuard("g", Quiet("q"), lambda: True), True),
        (lambda: decorators.EternalGuard("g", Quiet("q"), lambda: False), True),
        (lambda: branch(Custom("c")), True),
        (lambda: Polled("p"), True),
        (lambda: branch(Polled("p")), True),
        (lambda: PolledSequence("p", memory=True, children=[Quiet("q")]), True),
        (lambda: Reflecting("r", Quiet("q")), True),
        (lambda: decorators.FailureIsRunning("d", Quiet("q", lambda: F)), True),
        (lambda: decorators.FailureIsRunning("d", Quiet("q", lambda: R)), False),
        (lambda: decorators.SuccessIsRunning("d", Quiet("q")), True),
        (lambda: decorators.SuccessIsRunning("d", Quiet("q", lambda: F)), False),
        (lambda: decorators.Condition("d", Quiet("q"), F), True),
        (lambda: decorators.Condition("d", Quiet("q"), S), False),
        (lambda: decorators.Condition("d", Quiet("q", lambda: R), S), False),
        (lambda: decorators.Repeat("d", Quiet("q"), -1), True),
        (lambda: decorators.Repeat("d", Quiet("q", lambda: R), -1), False),
        (lambda: decorators.Repeat("d", Quiet("q"), 3), False),
        (lambda: decorators.OneShot("d", Quiet("q"), OneShotPolicy.ON_COMPLETION), False),
    ],
)
def test_a_pass_knows_whether_somebody_is_to_be_polled(make: Callable[[], Behaviour], expected: bool) -> None:
    """`polled` is set by nodes of which nobody can tell when they change, if they were ticked."""
    ticker = Ticker()
    ticker.tick(make())
    assert ticker.polled is expected


def test_bounded_loops_ask_for_the_next_pass() -> None:
    """`again` is set when a round has ended and another one is due, and by nothing else."""
    ticker = Ticker()
    repeat = decorators.Repeat("r", Quiet("q"), 3)
    assert [(ticker.tick(repeat), ticker.again) for _ in range(3)] == [(R, True), (R, True), (S, False)]
    retry = decorators.Retry("r", Quiet("q", lambda: F), 2)
    assert [(ticker.tick(retry), ticker.again) for _ in range(2)] == [(R, True), (F, False)]
    assert (ticker.tick(decorators.Repeat("r", Quiet("q", lambda: R), 3)), ticker.again) == (R, False)


def test_timers_that_run_are_noted() -> None:
    """`timed` has the Timer and Timeout nodes that were left RUNNING, of the last pass only."""
    ticker = Ticker()
    timer, over = Timer("timer", 60.0), Timer("over", -1.0)
    timeout = decorators.Timeout("timeout", branch(over, timer), 60.0)
    ticker.tick(timeout)
    assert names(ticker.timed) == ["timer", "timeout"]
    opaque = Custom("c")
    ticker.tick(opaque)
    assert ticker.timed == []


def test_passes_are_numbered_and_entries_remember_theirs() -> None:
    """Numbers grow in the whole process; a branch that is entered keeps the pass's number as its activation."""
    root = branch(Leaf("a", R, S))
    one, other = Ticker(), Ticker()
    one.tick(root)
    entered = one.number
    other.tick(branch(Leaf("b")))
    one.tick(root)
    assert entered < other.number < one.number
    assert root.activation == entered
    one.tick(root)
    assert root.activation == one.number


def test_an_exception_names_its_node() -> None:
    """The ticker knows who raised: a leaf, a decorator, a condition, or a node below an unknown one."""
    ticker = Ticker()
    error = KeyError("x")

    def guard() -> bool:
        raise error

    class Opaque(decorators.PassThrough):
        def tick(self) -> Any:
            yield from self.decorated.tick()

    trees = [
        branch(Leaf("a"), Raising("bad", update=error)),
        branch(branch(Leaf("a")), decorators.Inverter("i", Raising("bad", update=error))),
        branch(decorators.EternalGuard("bad", Leaf("a"), guard)),
        branch(Opaque("o", branch(Leaf("a"), Raising("bad", update=error)))),
        Raising("bad", update=error),
    ]
    for root in trees:
        with pytest.raises(KeyError) as caught:
            ticker.tick(root)
        assert caught.value is error
        assert ticker.culprit is not None
        assert ticker.culprit.name == "bad"
    ticker.tick(Leaf("a"))
    assert ticker.culprit is None


def test_a_trace_tells_started_finished_and_halted() -> None:
    """A node that was not RUNNING is started, a result is finished, a node made INVALID is halted."""
    ticker, events = Ticker(), list[str]()
    ticker.trace = lambda what, node: events.append(f"{what} {node.name}")
    high = Leaf("high", F, S)
    root = Selector("root", memory=False, children=[high, branch(Quiet("a"), Leaf("b", R))])
    ticker.tick(root)
    assert events == [
        "started root",
        "started high",
        "finished high",
        "started b",
        "started a",
        "finished a",
        "started b",
    ]
    events.clear()
    ticker.tick(root)
    assert events == ["started high", "finished high", "halted a", "halted b", "halted b", "finished root"]


def test_v10_a_branch_that_is_never_reached_tells_nothing() -> None:
    """V10: no event is told of a node that was not ticked, over three passes."""
    ticker, events = Ticker(), list[str]()
    ticker.trace = lambda what, node: events.append(node.name)
    root = Parallel(
        "p",
        policy=ParallelPolicy.SuccessOnAll(synchronise=False),
        children=[Selector("s", memory=False, children=[Leaf("reached"), Leaf("never")]), Leaf("running", R)],
    )
    for _ in range(3):
        ticker.tick(root)
    assert "reached" in events
    assert "never" not in events


@pytest.mark.parametrize("is_visited", [False, True])
@pytest.mark.parametrize("cls", [Sequence, Selector])
def test_a_leaf_may_halt_the_branches_above_it(cls: Any, is_visited: bool) -> None:
    """What is below goes on with its tick, as under py_trees: they are RUNNING with it, whoever looks on."""

    class Halting(Leaf):
        def update(self) -> Status:
            status = super().update()
            if self.updates == 2:
                root.stop(INVALID)
            return status

    root: Any = Halting("leaf", R)
    for name in ("low", "middle", "root"):
        root = cls(name, memory=True, children=[root])
    for _ in range(2):
        tick(root, (lambda _: None) if is_visited else None)
    assert [node.status for node in descend(root)] == [R, R, R, R]


def test_a_visitor_sees_what_py_trees_yields() -> None:
    """`visit` gets the ticked nodes, children before parents, and no others."""
    visited: list[Behaviour] = []
    root = branch(Leaf("a"), decorators.Inverter("i", branch(Leaf("b"))), Leaf("never"))
    tick(root, visited.append)
    assert names(visited) == ["a", "b", "b", "i", "b"]
    assert visited[-1] is root


def test_ctrl_c_comes_out_of_every_line_of_a_tick() -> None:
    """Whichever line of the ticker it meets: the KeyboardInterrupt is what is raised, and the next tick is whole."""
    left = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line" and frame.f_code.co_name in {"_down", "_up", "_leave"}:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace if frame.f_code.co_filename == ticker.__file__ else None

    def interrupted(at: int) -> bool:
        nonlocal left
        inner = Sequence("inner", memory=True, children=[Leaf("a", S), decorators.Inverter("b", Leaf("c", R))])
        root, before, left = Sequence("s", memory=True, children=[inner]), sys.gettrace(), at
        sys.settrace(trace)
        try:
            tick(root)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            left = 0
            assert tick(root) is R
        return False

    assert next(at for at in range(1, 1000) if not interrupted(at)) > 20
