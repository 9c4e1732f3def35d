"""Nodes that follow the agent's clock: Timer, Timeout, Cooldown."""

from __future__ import annotations

from typing import ClassVar

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.engine.passes import holds, looks_again
from jianmu.engine.tree import ancestors
from jianmu.engine.waiting import waits
from jianmu.nodes.base import SECONDS, Keeping, Number, Option, Wrapper, dump_moment, load_moment


class Timer(Keeping):
    """Wait for `seconds`, which are asked for when the node is entered.

    SUCCESS when the time is over, on the agent's clock; at once when it is 0.
    RUNNING until then; the tree is ticked when it is over.
    Halting forgets the time; the next entry waits the whole time again.
    In a checkpoint the end is an instant: the time goes on while nothing runs.
    """

    times = ("_end",)
    _end: float | None = None

    def __init__(self, name: str, *, seconds: Number) -> None:
        super().__init__(name)
        self._seconds = Option(self, "seconds", seconds, SECONDS)

    def initialise(self) -> None:
        """Begin to wait."""
        self._end = self._after(self._seconds())

    def update(self) -> Status:
        """Look at the clock."""
        return Status.SUCCESS if self._end is None or self._rings(self._end) else Status.RUNNING


class Timed(Wrapper):
    """What Timeout and Cooldown share: an option `seconds`."""

    def __init__(self, name: str, child: Behaviour, *, seconds: Number) -> None:
        super().__init__(name, child)
        self._seconds = Option(self, "seconds", seconds, SECONDS)


class Timeout(Timed):
    """Give the child a limited time, `seconds`, which are asked for when the node is entered.

    SUCCESS, FAILURE: as the child, also when its result comes together with the end of the time.
    FAILURE, and the child is halted, when the time is over; the tree is ticked then. A child that was at work
    is not begun anew by being looked at: that FAILURE is a result that holds.
    RUNNING until then. The time stands still while the child waits only for people.
    Halting halts the child; the next entry has the whole time again.
    In a checkpoint it is the time that is left: it stands still while nothing runs.
    """

    is_loop = True
    is_timed: ClassVar[bool] = True  # its memento runs down, which is no reason to write it
    _left = 0.0
    _end: float | None = None
    _is_over = False

    def initialise(self) -> None:
        """Begin with the whole time."""
        self._left, self._end, self._is_over = self._seconds(), None, False

    def is_held(self) -> bool:
        """Whether the FAILURE at the end of the time stands: the child, which was halted, is not begun anew."""
        return self._is_over and super().is_held()

    def steps(self) -> Steps:
        """Tick the child, then look at the clock."""
        end = self._end = self._after(self._left) if self._end is None else self._end
        yield self.decorated
        if self.update() is not Status.RUNNING:
            return self.decorated.status
        self._left = max(0.0, end - self.context.clock.now())
        if not self._left:
            self.halt(self.decorated)
            self._is_over = True
            self.feedback_message = "timed out"
            return Status.FAILURE
        if waits(self.decorated):
            self._end = None
            self.context.forget_wake()
        else:
            self.context.wake(after=self._left)
        return Status.RUNNING

    def on_load(self) -> None:
        """The time is not over."""
        super().on_load()
        self._is_over = False

    def memento(self) -> float | None:
        """Return the seconds that are left, 0 when the time is over."""
        if self.status is not Status.RUNNING:
            return 0.0 if self._is_over else None
        return self._left if self._end is None else max(0.0, self._end - self.context.clock.now())

    def restore(self, value: float) -> None:
        """Take back the seconds that are left."""
        self._left, self._end, self._is_over = float(value), None, not value


class Cooldown(Timed):
    """Let the child rest for `seconds`, which are asked for when it has finished.

    SUCCESS, FAILURE, RUNNING: as the child; a SUCCESS stands as long as a composite that looks again is on.
    FAILURE, and the child is not ticked, until `seconds` have passed since it last finished; where a
    composite looks again, the tree is ticked when they are over.
    Halting halts the child, which has not finished then.
    In a checkpoint the end is an instant: the time goes on while nothing runs.
    """

    wakes_when_finished: ClassVar[bool] = True
    _rest: tuple[float, str] = (0.0, "")
    """When it is over, and the thread of the agent for which it counts."""

    def is_held(self) -> bool:
        """Whether its SUCCESS stands: that it rests since must not turn a success into a failure."""
        return self.status is Status.SUCCESS and holds(self, getattr(self, "activation", -1))

    def steps(self) -> Steps:
        """Tick the child unless it rests."""
        if self.status is not Status.RUNNING and self._is_resting():
            self.feedback_message = "cooling down"
            return self._failed()
        yield self.decorated
        status = self.update()
        if status is not Status.RUNNING:
            self._rest = self._after(self._seconds()), self.context.thread_id
        return self._failed() if status is Status.FAILURE else status

    def _is_resting(self) -> bool:
        end, thread_id = self._rest
        return bool(end) and thread_id == self.context.thread_id and end > self.context.clock.now()

    def _failed(self) -> Status:
        """Return FAILURE, and have the tree ticked at the end if somebody above looks again."""
        if any(looks_again(above) for above in ancestors(self)):
            self._rings(self._rest[0])
        return Status.FAILURE

    def memento(self) -> str | None:
        """Return the instant at which the rest is over."""
        return dump_moment(self.context.clock, self._rest[0]) if self._is_resting() else None

    def restore(self, value: str) -> None:
        """Take back the instant."""
        self._rest = load_moment(self.context.clock, value), self.context.thread_id
