"""Leaves for the ticker's tests: they write down what is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite, Sequence
from py_trees.decorators import Inverter

S, F, R, INVALID = Status.SUCCESS, Status.FAILURE, Status.RUNNING, Status.INVALID


class Leaf(Behaviour):
    """Returns the statuses of a script, the last one for ever; logs `initialise` and `terminate`."""

    def __init__(self, name: str, *script: Status, log: list[str] | None = None) -> None:
        super().__init__(name)
        self.script = list(script or (S,))
        self.log = [] if log is None else log
        self.updates = 0

    def initialise(self) -> None:
        self.log.append(f"{self.name} initialise")

    def update(self) -> Status:
        self.updates += 1
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def terminate(self, new_status: Status) -> None:
        self.log.append(f"{self.name} {self.status.name} to {new_status.name}")


class Quiet(Behaviour):
    """A leaf that overrides `update` alone and is driven by events."""

    event_driven = True

    def __init__(self, name: str, update: Callable[[], Status] = lambda: S) -> None:
        super().__init__(name)
        self.call = update

    def update(self) -> Status:
        return self.call()


class Raising(Behaviour):
    """A leaf that raises in `update`, or when it is halted."""

    event_driven = True

    def __init__(self, name: str, *, update: Exception | None = None, terminate: Exception | None = None) -> None:
        super().__init__(name)
        self.errors = (update, terminate)
        self.terminated = 0

    def update(self) -> Status:
        if self.errors[0] is not None:
            raise self.errors[0]
        return R

    def terminate(self, new_status: Status) -> None:
        self.terminated += new_status is INVALID
        if self.errors[1] is not None and new_status is INVALID:
            raise self.errors[1]


def names(nodes: Iterable[Behaviour]) -> list[str]:
    """Return the names of some nodes."""
    return [node.name for node in nodes]


def nested(depth: int, leaf: Behaviour) -> Behaviour:
    """Return a leaf under so many composites and decorators, in turns."""
    node = leaf
    for number in range(depth):
        node = Sequence(f"s{number}", memory=True, children=[node]) if number % 2 else Inverter(f"i{number}", node)
    return node


def logging(cls: type[Composite], log: list[str]) -> type[Composite]:
    """Return a class of composites that logs `terminate`."""

    def terminate(self: Composite, new_status: Status) -> None:
        log.append(f"{self.status.name} to {new_status.name}")

    return type(f"Logging{cls.__name__}", (cls,), {"terminate": terminate})
