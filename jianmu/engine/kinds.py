"""Which class is ticked how: looked up once for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any  # branches take their own class of nodes

from py_trees.behaviour import Behaviour
from py_trees.composites import Parallel, Selector, Sequence
from py_trees.decorators import (
    Condition,
    Count,
    Decorator,
    EternalGuard,
    FailureIsRunning,
    FailureIsSuccess,
    ForEach,
    Inverter,
    OneShot,
    PassThrough,
    Repeat,
    Retry,
    RunningIsFailure,
    RunningIsSuccess,
    StatusToBlackboard,
    SuccessIsFailure,
    SuccessIsRunning,
    Timeout,
)
from py_trees.timers import Timer

from jianmu.engine import composites, decorators
from jianmu.engine.control import control
from jianmu.engine.halting import stopping
from jianmu.engine.leaves import (
    CONSTANTS,
    PLAIN,
    POLLED,
    constant,
    opaque,
    tick_direct,
    tick_direct_polled,
    tick_leaf,
    tick_polled,
    tick_timer,
)
from jianmu.engine.passes import Kind, Pass
from jianmu.engine.sticky import LOOPS

Branch = Callable[[Pass, Any], Iterator[Behaviour]]

JUDGES: dict[object, decorators.Judge] = {
    Condition.update: decorators.update_endless,
    FailureIsRunning.update: decorators.update_endless,
    SuccessIsRunning.update: decorators.update_endless,
    ForEach.update: decorators.update_bounded,
    Retry.update: decorators.update_bounded,
    Repeat.update: decorators.update_repeat,
    Timeout.update: decorators.update_timeout,
    **dict.fromkeys(
        (
            Count.update,
            EternalGuard.update,
            FailureIsSuccess.update,
            Inverter.update,
            OneShot.update,
            PassThrough.update,
            RunningIsFailure.update,
            RunningIsSuccess.update,
            StatusToBlackboard.update,
            SuccessIsFailure.update,
        ),
        decorators.update,
    ),
}
"""How decorators are judged whose `update` is py_trees' own."""


def kind_of(cls: type[Behaviour]) -> Kind:
    """Return how nodes of a class are ticked: by the class that defines its `tick`."""
    owner = next(base for base in cls.__mro__ if "tick" in vars(base))
    if "tick_direct" in vars(owner):
        return Kind(tick_direct_polled if is_polled(cls) else tick_direct)
    if "steps" in vars(owner):
        return _branch(cls, control)
    if owner is Behaviour:
        return _leaf(cls)
    make = BRANCHES.get(owner)
    return Kind(opaque) if make is None else _branch(cls, make(cls))


def is_polled(cls: type[Behaviour]) -> bool:
    """Whether a class asks to be ticked every `poll_interval`."""
    return getattr(cls, "polled", False) is True


def _leaf(cls: type[Behaviour]) -> Kind:
    known = getattr(cls, "event_driven", False) is True and not is_polled(cls)
    if stopping(cls) != "leaf":
        return Kind(tick_leaf if known else tick_polled)
    if cls.update in CONSTANTS and not is_polled(cls):
        return Kind(constant(*CONSTANTS[cls.update]), simple=True)
    if cls.update is Timer.update and not is_polled(cls):
        return Kind(tick_timer, simple=True)
    return PLAIN if known else POLLED


def _branch(cls: type[Behaviour], branch: Branch) -> Kind:
    catches = branch is control
    if not is_polled(cls):
        walks = branch in (composites.sequence, composites.selector)
        return Kind(branch=branch, catches=catches, below=composites.below if walks else None)

    def ticked(run: Pass, node: Any) -> Iterator[Behaviour]:
        run.polled = True
        return branch(run, node)

    return Kind(branch=ticked, catches=catches)


def _decorator(cls: type[Behaviour]) -> Branch:
    event_driven = getattr(cls, "event_driven", False) is True
    judge = JUDGES.get(cls.update, decorators.update if event_driven else decorators.update_polled)
    branch = decorators.decorator(judge)
    return decorators.held(branch) if issubclass(cls, LOOPS) else branch


BRANCHES: dict[type[Behaviour], Callable[[type[Behaviour]], Branch]] = {
    Sequence: lambda _: composites.sequence,
    Selector: lambda _: composites.selector,
    Parallel: lambda _: composites.parallel,
    Decorator: _decorator,
    OneShot: lambda cls: decorators.oneshot(_decorator(cls)),
    EternalGuard: lambda cls: decorators.eternal_guard(_decorator(cls)),
}
"""How to make what ticks branches, by the class of py_trees that defines their `tick`."""
