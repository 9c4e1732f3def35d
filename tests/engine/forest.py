"""Random trees, described as data and grown as often as wanted: one to be ticked by py_trees, one by jianmu."""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from py_trees import behaviours, blackboard, decorators, timers
from py_trees.behaviour import Behaviour
from py_trees.common import OneShotPolicy, ParallelPolicy, Status
from py_trees.composites import Composite, Parallel, Selector, Sequence
from py_trees.decorators import Decorator

import jianmu.engine.decorators
import jianmu.engine.mementos

S, F, R, INVALID = Status.SUCCESS, Status.FAILURE, Status.RUNNING, Status.INVALID
RESULTS = {"S": S, "F": F, "R": R}

TIMED = (decorators, timers, jianmu.engine.decorators, jianmu.engine.mementos)

Spec = tuple[Any, ...]
"""(kind, options, children): what `World.grow` makes a node from."""


class BoomError(Exception):
    """What a leaf raises."""


@dataclass
class World:
    """Where one copy of a tree lives: its log, its clock and its namespace on the blackboard."""

    name: str
    log: list[tuple[Any, ...]] = field(default_factory=list)
    now: float = 0.0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def clock(self) -> Iterator[None]:
        """Have py_trees' timers follow this world's clock."""
        fake = types.SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        with contextlib.ExitStack() as stack:
            for module in TIMED:
                stack.enter_context(mock.patch.object(module, "time", fake))
            yield

    def grow(self, spec: Spec) -> Behaviour:
        """Make a tree from its description."""
        kind, options, below = spec
        children = [self.grow(each) for each in below]
        node = GROWERS[kind](self, f"{kind}{next(self.numbers)}", options, children)
        node.world = self
        return node

    def wear(self, cls: type[Behaviour], logged: bool) -> type[Behaviour]:
        """Return a class, or the same class with a log of its callbacks."""
        return _logged(cls) if logged else cls


class Logged:
    """Logs `initialise` and `terminate`, with the status at that time."""

    def initialise(self) -> None:
        self.world.log.append(("initialise", self.name, self.status))
        super().initialise()

    def terminate(self, new_status: Status) -> None:
        self.world.log.append(("terminate", self.name, self.status, new_status))
        super().terminate(new_status)


@functools.cache
def _logged(cls: type[Behaviour]) -> type[Behaviour]:
    return type(f"Logged{cls.__name__}", (Logged, cls), {})


class Script(Behaviour):
    """Returns what its script says, over and over; `!` raises."""

    def __init__(self, name: str, script: str) -> None:
        super().__init__(name)
        self.script = script
        self.at = 0

    def update(self) -> Status:
        self.world.log.append(("update", self.name, self.status))
        letter = self.script[self.at % len(self.script)]
        self.at += 1
        self.feedback_message = f"{letter} at {self.at}"
        if letter == "!":
            raise BoomError(self.name)
        return RESULTS[letter]

    def memento(self) -> int:
        return self.at

    def restore(self, value: int) -> None:
        self.at = value


class Stopper(Script):
    """A leaf with a `stop` of its own."""

    def stop(self, new_status: Status) -> None:
        self.world.log.append(("stop", self.name, self.status, new_status))
        super().stop(new_status)


class Grower(Script):
    """A leaf that gives its parent a child more, in the course of its second tick."""

    def update(self) -> Status:
        status = super().update()
        if self.at == 2 and isinstance(self.parent, Composite):
            child = self.world.grow(("script", ("RS", True), ()))
            self.parent.insert_child(child, len(self.parent.children))
        return status


class OwnTick(Script):
    """A leaf whose `tick` is its own."""

    def tick(self) -> Iterator[Behaviour]:
        self.world.log.append(("tick", self.name, self.status))
        if self.status != R:
            self.initialise()
        status = self.update()
        if status != R:
            self.stop(status)
        self.status = status
        yield self


class Shy(OwnTick):
    """A leaf whose `tick` yields nothing, every second time that it may."""

    def tick(self) -> Iterator[Behaviour]:
        if self.status == INVALID or self.at % 2 == 0:
            yield from super().tick()
        else:
            self.at += 1


class Twice(Decorator):
    """A decorator whose `tick` is its own: ticks its child a second time if the first was a SUCCESS."""

    def tick(self) -> Iterator[Behaviour]:
        if self.status != R:
            self.initialise()
        yield from self.decorated.tick()
        if self.decorated.status == S:
            yield from self.decorated.tick()
        status = self.update()
        if status != R:
            self.stop(status)
        self.status = status
        yield self

    def update(self) -> Status:
        return self.decorated.status


class Rotate(Composite):
    """A composite whose `tick` is its own: ticks one child after the other, one each tick."""

    def __init__(self, name: str, children: list[Behaviour]) -> None:
        super().__init__(name, children)
        self.turn = 0

    def tick(self) -> Iterator[Behaviour]:
        if self.status != R:
            self.initialise()
        status = S
        for child in self.children[self.turn % (len(self.children) or 1) :][:1]:
            self.current_child = child
            self.turn += 1
            yield from child.tick()
            status = child.status
        if status != R:
            self.stop(status)
        self.status = status
        yield self


class Reflect(Decorator):
    """A decorator with a `stop` of its own."""

    def update(self) -> Status:
        return self.decorated.status

    def stop(self, new_status: Status) -> None:
        self.world.log.append(("stop", self.name, self.status, new_status))
        super().stop(new_status)


def _patched(world: World, name: str, options: Any, _: list[Behaviour]) -> Behaviour:
    node = behaviours.Success(name)
    real = Script(name, options[0])
    real.world = world
    node.update = real.update
    node.initialise = lambda: world.log.append(("initialise", name, node.status))
    node.terminate = lambda new: world.log.append(("terminate", name, node.status, new))
    return node


def _parallel(world: World, name: str, options: Any, children: list[Behaviour]) -> Behaviour:
    policy, synchronise, chosen, logged = options
    policies: dict[str, Callable[[], ParallelPolicy.Base]] = {
        "all": lambda: ParallelPolicy.SuccessOnAll(synchronise=synchronise),
        "one": ParallelPolicy.SuccessOnOne,
        "some": lambda: ParallelPolicy.SuccessOnSelected(
            children=[children[index % len(children)] for index in sorted(chosen)], synchronise=synchronise
        ),
    }
    return world.wear(Parallel, logged)(name, policy=policies[policy if children else "all"](), children=children)


def _guard(world: World, name: str, options: Any, children: list[Behaviour]) -> Behaviour:
    script, logged = options
    turns = itertools.count()

    def condition() -> bool | Status:
        letter = script[next(turns) % len(script)]
        world.log.append(("condition", name, letter))
        return {"T": True, "F": False, "S": S, "X": F}[letter]

    return world.wear(decorators.EternalGuard, logged)(name=name, child=children[0], condition=condition)


def _for_each(world: World, name: str, options: Any, children: list[Behaviour]) -> Behaviour:
    items, logged = options
    blackboard.Blackboard.set(f"/{world.name}_{name}_items", list(items))
    return world.wear(decorators.ForEach, logged)(
        name=name, child=children[0], source_key=f"{world.name}_{name}_items", target_key=f"{world.name}_{name}_item"
    )


def _leaf(cls: type[Behaviour]) -> Callable[..., Behaviour]:
    return lambda world, name, options, _: world.wear(cls, options[-1])(name, *options[:-1])


def _composite(cls: type[Composite]) -> Callable[..., Behaviour]:
    return lambda world, name, options, children: world.wear(cls, options[-1])(name, *options[:-1], children=children)


def _decorator(cls: type[Decorator]) -> Callable[..., Behaviour]:
    return lambda world, name, options, children: world.wear(cls, options[-1])(name, children[0], *options[:-1])


PLAIN_DECORATORS: dict[str, type[Decorator]] = {
    "count": decorators.Count,
    "failure_is_running": decorators.FailureIsRunning,
    "failure_is_success": decorators.FailureIsSuccess,
    "inverter": decorators.Inverter,
    "pass_through": decorators.PassThrough,
    "running_is_failure": decorators.RunningIsFailure,
    "running_is_success": decorators.RunningIsSuccess,
    "success_is_failure": decorators.SuccessIsFailure,
    "success_is_running": decorators.SuccessIsRunning,
}
OWN_DECORATORS: dict[str, type[Decorator]] = {"twice": Twice, "reflect": Reflect}

GROWERS: dict[str, Callable[[World, str, Any, list[Behaviour]], Behaviour]] = {
    "script": _leaf(Script),
    "own_stop": _leaf(Stopper),
    "own_tick": _leaf(OwnTick),
    "shy": _leaf(Shy),
    "grower": _leaf(Grower),
    "patched": _patched,
    "success": _leaf(behaviours.Success),
    "failure": _leaf(behaviours.Failure),
    "running": _leaf(behaviours.Running),
    "periodic": _leaf(behaviours.Periodic),
    "queue": lambda world, name, options, _: world.wear(behaviours.StatusQueue, options[-1])(
        name, [RESULTS[letter] for letter in options[0]], options[1] and RESULTS[options[1]]
    ),
    "every": _leaf(behaviours.SuccessEveryN),
    "counter": lambda world, name, options, _: world.wear(behaviours.TickCounter, options[-1])(
        name, options[0], RESULTS[options[1]]
    ),
    "timer": _leaf(timers.Timer),
    "sequence": _composite(Sequence),
    "selector": _composite(Selector),
    "parallel": _parallel,
    "rotate": lambda world, name, options, children: world.wear(Rotate, options[0])(name, children),
    "repeat": _decorator(decorators.Repeat),
    "retry": _decorator(decorators.Retry),
    "timeout": _decorator(decorators.Timeout),
    "condition": lambda world, name, options, children: world.wear(decorators.Condition, options[-1])(
        name, children[0], RESULTS[options[0]]
    ),
    "oneshot": lambda world, name, options, children: world.wear(decorators.OneShot, options[-1])(
        name, children[0], OneShotPolicy[options[0]]
    ),
    "guard": _guard,
    "for_each": _for_each,
    **{name: _decorator(cls) for name, cls in (PLAIN_DECORATORS | OWN_DECORATORS).items()},
}


def _script(rng: Random, letters: str = "SFR") -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, 5)))


def _yes(rng: Random) -> bool:
    return rng.random() < 0.5


LEAVES: dict[str, Callable[[Random], tuple[Any, ...]]] = {
    "script": lambda rng: (_script(rng),),
    "success": lambda rng: (),
    "failure": lambda rng: (),
    "running": lambda rng: (),
    "periodic": lambda rng: (rng.randint(1, 3),),
    "queue": lambda rng: (_script(rng), rng.choice((None, "S", "F", "R"))),
    "every": lambda rng: (rng.randint(1, 3),),
    "counter": lambda rng: (rng.randint(0, 3), rng.choice("SF")),
    "timer": lambda rng: (rng.randint(0, 3),),
}
OWN_LEAVES = ("own_stop", "own_tick", "shy", "grower", "patched")

BRANCHES: dict[str, Callable[[Random], tuple[Any, ...]]] = {
    "repeat": lambda rng: (rng.choice((1, 2, 3, -1)),),
    "retry": lambda rng: (rng.randint(1, 3),),
    "timeout": lambda rng: (rng.randint(0, 4),),
    "condition": lambda rng: (rng.choice("SFR"),),
    "oneshot": lambda rng: (rng.choice([policy.name for policy in OneShotPolicy]),),
    "for_each": lambda rng: (tuple(rng.randint(1, 9) for _ in range(rng.randint(0, 3))),),
    **dict.fromkeys(PLAIN_DECORATORS, lambda rng: ()),
}
OWN_BRANCHES: dict[str, Callable[[Random], tuple[Any, ...]]] = {
    "guard": lambda rng: (_script(rng, "TTFSX"),),
    **dict.fromkeys(OWN_DECORATORS, lambda rng: ()),
}
COMPOSITES: dict[str, Callable[[Random], tuple[Any, ...]]] = {
    "sequence": lambda rng: (_yes(rng),),
    "selector": lambda rng: (_yes(rng),),
    "parallel": lambda rng: (
        rng.choice(("all", "one", "some")),
        _yes(rng),
        tuple({rng.randint(0, 3) for _ in range(rng.randint(1, 3))}),
    ),
}


def _random_leaf(rng: Random, own: bool, raising: bool) -> Spec:
    if raising and rng.random() < 0.3:
        return "script", (_script(rng, "SFRSFR!"), True), ()
    if own and rng.random() < 0.3:
        return rng.choice(OWN_LEAVES), (_script(rng), _yes(rng)), ()
    kind = rng.choice(("script", "script", "script", *LEAVES))
    return kind, (*LEAVES[kind](rng), _yes(rng)), ()


def _random_tree(rng: Random, own: bool, raising: bool, depth: int, ends: float = 0) -> Spec:
    if depth == 0 or rng.random() < ends:
        return _random_leaf(rng, own, raising)
    below = [_random_tree(rng, own, raising, depth - 1, 0.25)]
    if rng.random() < 0.35:
        known = BRANCHES | (OWN_BRANCHES if own else {})
        kind = rng.choice(list(known))
        return kind, (*known[kind](rng), _yes(rng)), tuple(below)
    below += [_random_tree(rng, own, raising, depth - 1, 0.25) for _ in range(rng.randint(0, 3))]
    if own and rng.random() < 0.1:
        return "rotate", (_yes(rng),), tuple(below)
    kind = rng.choice(list(COMPOSITES))
    return kind, (*COMPOSITES[kind](rng), _yes(rng)), tuple(below if rng.random() < 0.95 else ())


def trees(*, own: bool = True, raising: bool = False, depth: int = 4) -> st.SearchStrategy[Spec]:
    """Return descriptions of trees; with `own` with nodes of unknown classes, with `raising` some leaves raise.

    Small ones come from hypothesis' own choices and shrink, large ones from a seed.
    """
    small = st.randoms(use_true_random=False)
    large = st.lists(st.integers(0, 2**32), min_size=6, max_size=6).map(lambda seeds: Random(str(seeds)))
    return st.one_of(large, large, large, small).map(lambda rng: _random_tree(rng, own, raising, depth))


def picture(node: Behaviour) -> tuple[Any, ...]:
    """Return what is compared of a node."""
    current = getattr(node, "current_child", None)
    message = node.feedback_message
    return node.name, node.status, current and current.name, message
