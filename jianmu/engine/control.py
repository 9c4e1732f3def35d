"""Control: what composites and decorators of jianmu have in common, and how they are ticked."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, ClassVar, cast  # Any: a branch that is ticked by its steps

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator

from jianmu.engine.passes import CURRENT, RUNNING, Pass, is_held
from jianmu.errors import SetupError

Steps = Generator[Behaviour, None, Status]


class Control:
    """A branch that says by `steps()` which child is ticked next: `class Race(Control, NodeMixin, Composite)`.

    When it is entered, `initialise()` is called. In every tick `steps()` is run anew from its top. A child
    that it yields is ticked; what the child raises is raised at that `yield`. What it returns is the
    node's status; with SUCCESS or FAILURE, children that are still RUNNING are halted. py_trees can tick
    it as well, with the same callbacks in the same order.
    """

    is_loop: ClassVar[bool] = False
    """Whether it starts its child anew, round by round: a loop that has finished may hold its result."""

    def is_held(self) -> bool:
        """Whether it has finished and stands by its result: it is not entered again, only reported."""
        return self.is_loop and is_held(cast("Behaviour", self))

    def steps(self) -> Steps:
        """Yield children that are to be ticked; return the status.

        By default a decorator ticks its child and returns what its `update()` says.
        """
        if not isinstance(self, Decorator):
            raise SetupError(f"{type(self).__name__} has no steps(): override it, yield children, return a Status")
        yield self.decorated
        return self.update()

    def update(self) -> Status:
        """Return the child's status; composites decide by their `steps()` and have no use for this."""
        return self.decorated.status if isinstance(self, Decorator) else Status.INVALID

    def halt(self, child: Behaviour) -> None:
        """Halt a child and all below it, if they are not INVALID; for use in `steps()`."""
        (CURRENT.get() or Pass()).halt(child)

    def tick(self) -> Iterator[Behaviour]:
        """Tick the node where py_trees does the ticking."""
        assert isinstance(self, Behaviour)
        if not self.is_held():
            run = Pass.current()
            steps = _begin(run, self)
            child = go_on(run, self, steps)
            while child is not None:
                error = None
                try:
                    yield from child.tick()
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as raised:  # noqa: BLE001  # steps() decides what becomes of it
                    error = raised
                child = go_on(run, self, steps, error)
        yield self


def control(run: Pass, node: Any, done: Behaviour | None) -> Behaviour | None:
    """Go on with the tick of a branch by its `steps()`."""
    if done is None:
        if node.status is not RUNNING and node.is_held():
            return None
        run.places[-1] = _begin(run, node)
    return go_on(run, node, run.places[-1])


def _begin(run: Pass, node: Any) -> Steps:
    if node.status is not RUNNING:
        run.enter(node)
    return node.steps()


def go_on(run: Pass, node: Behaviour, steps: Steps, error: BaseException | None = None) -> Behaviour | None:
    """Return the child that a branch wants ticked next, or None when it has ended; an error of a child is thrown in."""
    try:
        return next(steps) if error is None else steps.throw(error)
    except StopIteration as end:
        status = end.value
    if status is not RUNNING and isinstance(node, Composite):
        run.halt_running(node.children)
    run.finish(node, status)
    return None
