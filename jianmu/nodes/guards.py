"""Decorators that stand between the child and what may go wrong: Guard, Catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: a snapshot's type is the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.nodes.base import Wrapper
from jianmu.nodes.options import exceptions, plain, verdict


class Guard(Wrapper):
    """Let the child run only while a condition holds.

    The condition is asked in every tick, before the child is ticked.
    SUCCESS, FAILURE, RUNNING: as the child, while it holds.
    FAILURE, and the child is halted, when it does not hold.
    Halting halts the child.

    Args:
        name: the node's name.
        child: what is guarded.
        condition: a function of the snapshot that returns a bool.
    """

    def __init__(self, name: str, child: Behaviour, *, condition: Callable[[Any], bool]) -> None:
        super().__init__(name, child)
        self._call = f'Guard("{name}", child, condition=...)'
        plain(self._call, condition)
        self._condition = condition

    def steps(self) -> Steps:
        """Ask the condition, then tick the child."""
        if not verdict(self, self._call, self._condition(self.read_state())):
            self.feedback_message = "the condition does not hold"
            return Status.FAILURE
        yield self.decorated
        return self.update()


class Catch(Wrapper):
    """Turn exceptions of the subtree below into FAILURE.

    SUCCESS, FAILURE, RUNNING: as the child.
    FAILURE, and the child is halted, when it has raised one of `on`; the feedback has its text.
    All other exceptions end the run, as without it.
    Halting halts the child; an exception of `on` that came too late to be told ends no run either.

    Args:
        name: the node's name.
        child: what may raise.
        on: a class of exceptions, or a tuple of them.
    """

    is_loop = True

    def __init__(self, name: str, child: Behaviour, *, on: type[Exception] | tuple[type[Exception], ...]) -> None:
        super().__init__(name, child)
        self._on = exceptions(f'Catch("{name}", child, on=...)', on)
        self._has_caught = False

    def catches(self, error: BaseException) -> bool:
        """Whether an exception is turned into FAILURE here."""
        return isinstance(error, self._on)

    def is_held(self) -> bool:
        """Whether a FAILURE that was an exception stands: the child, which was halted, is not begun anew."""
        return self._has_caught and super().is_held()

    def steps(self) -> Steps:
        """Tick the child and look at what it raises."""
        self._has_caught = False
        try:
            yield self.decorated
        except self._on as error:
            self.halt(self.decorated)
            self._has_caught = True
            self.feedback_message = f"{type(error).__name__}: {error}"
            return Status.FAILURE
        return self.update()

    def memento(self) -> bool | None:
        """Return whether a FAILURE was an exception."""
        return self._has_caught or None

    def restore(self, value: bool) -> None:
        """Take back whether a FAILURE was an exception."""
        self._has_caught = value
