"""Nodes that follow the agent's clock: Timer, Timeout, Cooldown."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.context import NodeContext
from jianmu.engine.control import Steps
from jianmu.engine.node import Node
from jianmu.engine.sticky import holds, looks_again
from jianmu.engine.tree import ancestors
from jianmu.engine.waiting import waits
from jianmu.nodes.base import Wrapper
from jianmu.nodes.options import Amount, Number


class Alarm:
    """A moment on the agent's clock; a checkpoint has it as an instant, UTC."""

    def __init__(self, due: float) -> None:
        self._due = due

    @classmethod
    def after(cls, context: NodeContext, seconds: float) -> Alarm:
        """Return the moment in so many seconds."""
        return cls(context.clock.now() + seconds)

    @classmethod
    def at(cls, context: NodeContext, instant: str) -> Alarm:
        """Return the moment that `dump` has written."""
        return cls.after(context, (datetime.fromisoformat(instant) - context.clock.utc()).total_seconds())

    def left(self, context: NodeContext) -> float:
        """Return the seconds until then, 0 when it has come."""
        return max(0.0, self._due - context.clock.now())

    def ring(self, context: NodeContext) -> bool:
        """Return whether it has come; if not, have the node's tree ticked then."""
        left = self.left(context)
        if left:
            context.wake(after=left)
        return not left

    def dump(self, context: NodeContext) -> str:
        """Return it as an instant, in ISO 8601."""
        return (context.clock.utc() + timedelta(seconds=self._due - context.clock.now())).isoformat()


class Timer(Node):
    """Wait.

    SUCCESS when the time is over, on the agent's clock; at once when it is 0.
    RUNNING until then; the tree is ticked when it is over.
    Halting forgets the time; the next entry waits the whole time again.
    In a checkpoint it is an instant: the time goes on while nothing runs.

    Args:
        name: the node's name.
        seconds: how long, or a function of the snapshot, called when the node is entered.
    """

    def __init__(self, name: str, *, seconds: Number) -> None:
        super().__init__(name)
        self._seconds = Amount(f'Timer("{name}", seconds=...)', seconds)
        self._end: Alarm | None = None

    def initialise(self) -> None:
        """Begin to wait."""
        self._end = Alarm.after(self.context, self._seconds.of(self))

    def update(self) -> Status:
        """Look at the clock."""
        return Status.SUCCESS if self._end is None or self._end.ring(self.context) else Status.RUNNING

    def memento(self) -> str | None:
        """Return the instant at which the time is over."""
        return self._end.dump(self.context) if self._end is not None and self.status is Status.RUNNING else None

    def restore(self, value: str) -> None:
        """Take back the instant."""
        self._end = Alarm.at(self.context, value)


class Timeout(Wrapper):
    """Give the child a limited time.

    SUCCESS, FAILURE: as the child, also when its result comes together with the end of the time.
    FAILURE, and the child is halted, when the time is over; the tree is ticked then. A child that was at work
    is not begun anew by being looked at: that FAILURE is a result that holds.
    RUNNING until then. The time stands still while the child waits only for people.
    Halting halts the child; the next entry has the whole time again.
    In a checkpoint it is the time that is left: it stands still while nothing runs.

    Args:
        name: the node's name.
        child: what is limited.
        seconds: how long, or a function of the snapshot, called when the node is entered.
    """

    is_loop = True

    def __init__(self, name: str, child: Behaviour, *, seconds: Number) -> None:
        super().__init__(name, child)
        self._seconds = Amount(f'Timeout("{name}", child, seconds=...)', seconds)
        self._left = 0.0
        self._end: Alarm | None = None
        self._is_over = False

    def initialise(self) -> None:
        """Begin with the whole time."""
        self._left = self._seconds.of(self)
        self._end = None
        self._is_over = False

    def is_held(self) -> bool:
        """Whether the FAILURE at the end of the time stands: the child, which was halted, is not begun anew."""
        return self._is_over and super().is_held()

    def steps(self) -> Steps:
        """Tick the child, then look at the clock."""
        end = self._end = self._end or Alarm.after(self.context, self._left)
        yield self.decorated
        if self.update() is not Status.RUNNING:
            return self.decorated.status
        self._left = end.left(self.context)
        if not self._left:
            self.halt(self.decorated)
            self._is_over = True
            self.feedback_message = "timed out"
            return Status.FAILURE
        if waits(self.decorated):
            self._end = None
            self.context.forget_wake()
        else:
            end.ring(self.context)
        return Status.RUNNING

    def memento(self) -> float | None:
        """Return the seconds that are left, 0 when the time is over."""
        if self.status is not Status.RUNNING:
            return 0.0 if self._is_over else None
        return self._left if self._end is None else self._end.left(self.context)

    def restore(self, value: float) -> None:
        """Take back the seconds that are left."""
        self._left, self._end, self._is_over = float(value), None, not value


class Cooldown(Wrapper):
    """Let the child rest after it has finished.

    SUCCESS, FAILURE, RUNNING: as the child; a SUCCESS stands as long as a composite that looks again is on.
    FAILURE, and the child is not ticked, until `seconds` have passed since it last finished; where a
    composite looks again, the tree is ticked when they are over.
    Halting halts the child, which has not finished then.
    In a checkpoint the end is an instant: the time goes on while nothing runs.

    Args:
        name: the node's name.
        child: what is to rest.
        seconds: how long, or a function of the snapshot, called when the child has finished.
    """

    wakes_when_finished: ClassVar[bool] = True

    def __init__(self, name: str, child: Behaviour, *, seconds: Number) -> None:
        super().__init__(name, child)
        self._seconds = Amount(f'Cooldown("{name}", child, seconds=...)', seconds)
        self._end: Alarm | None = None
        self._thread = ""

    def is_held(self) -> bool:
        """Whether its SUCCESS stands: that it rests since must not turn a success into a failure."""
        return self.status is Status.SUCCESS and holds(self, getattr(self, "activation", -1))

    def steps(self) -> Steps:
        """Tick the child unless it rests."""
        if self.status is not Status.RUNNING and self._end is not None and self._rests(self._end):
            self.feedback_message = "cooling down"
            self._call_again(self._end)
            return Status.FAILURE
        yield self.decorated
        status = self.update()
        if status is not Status.RUNNING:
            self._end, self._thread = Alarm.after(self.context, self._seconds.of(self)), self.context.thread_id
        if status is Status.FAILURE and self._end is not None:
            self._call_again(self._end)
        return status

    def _rests(self, end: Alarm) -> bool:
        """Whether the time is not over; that of another thread of the agent does not count."""
        return self._thread == self.context.thread_id and end.left(self.context) > 0

    def _call_again(self, end: Alarm) -> None:
        """Have the tree ticked at the end, if somebody above looks again at what has failed."""
        if any(looks_again(above) for above in ancestors(self)):
            end.ring(self.context)

    def memento(self) -> str | None:
        """Return the instant at which the rest is over."""
        return self._end.dump(self.context) if self._end is not None and self._rests(self._end) else None

    def restore(self, value: str) -> None:
        """Take back the instant."""
        self._end, self._thread = Alarm.at(self.context, value), self.context.thread_id
