"""Loops over one child: LoopUntilSuccess, Repeat, Retry. Each round or attempt takes a pass of its own."""

from __future__ import annotations

import random
from typing import Any  # Any: JSON

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.engine.passes import Pass
from jianmu.nodes.base import Wrapper
from jianmu.nodes.options import Amount, Number, exceptions
from jianmu.nodes.timing import Alarm


class Rounds(Wrapper):
    """What LoopUntilSuccess and Repeat share: they count rounds, and what is asked in one is new in the next."""

    is_loop = True
    keeps = ("_round",)

    def __init__(self, name: str, child: Behaviour) -> None:
        super().__init__(name, child)
        self._round: int = 0

    def initialise(self) -> None:
        """Begin with the first round."""
        self._round = 0

    def round_of(self, child: Behaviour) -> int:  # all that is below is in the same round
        """Return the number of the round that is on, from 0."""
        return self._round


class LoopUntilSuccess(Rounds):
    """Run the child again and again until it succeeds; each run is a round.

    SUCCESS when the child has succeeded.
    FAILURE when `max_iterations` rounds have failed; without it, never.
    RUNNING in a round, and after one that failed; the next begins in the next pass, which is made at once.
    Halting halts the child; the next entry begins with the first round.

    Args:
        name: the node's name.
        child: what is run.
        max_iterations: how many rounds there are at most, or a function of the snapshot.
    """

    def __init__(self, name: str, child: Behaviour, *, max_iterations: Number | None = None) -> None:
        super().__init__(name, child)
        call = f'LoopUntilSuccess("{name}", child, max_iterations=...)'
        self._limit = None if max_iterations is None else Amount(call, max_iterations, least=1, is_count=True)

    def steps(self) -> Steps:
        """Run the round that is on."""
        yield self.decorated
        status = self.update()
        if status is not Status.FAILURE:
            return status
        self._round += 1
        self.feedback_message = f"round {self._round} failed"
        if self._limit is not None and self._round >= self._limit.count(self):
            return Status.FAILURE
        Pass.current().again = True
        return Status.RUNNING


class Repeat(Rounds):
    """Run the child until it has succeeded `times` times; each run is a round.

    SUCCESS when all rounds have succeeded; at once when `times` is 0. Without `times`, never.
    FAILURE when the child has failed.
    RUNNING in a round, and after one that succeeded; the next begins in the next pass, which is made at
    once (after `poll_interval` if there is no end and the round took no time).
    Halting halts the child; the next entry begins with the first round.

    Args:
        name: the node's name.
        child: what is run.
        times: how many rounds there are, or a function of the snapshot.
    """

    def __init__(self, name: str, child: Behaviour, *, times: Number | None = None) -> None:
        super().__init__(name, child)
        self._times = None if times is None else Amount(f'Repeat("{name}", child, times=...)', times, is_count=True)

    def steps(self) -> Steps:
        """Run the round that is on."""
        if self._is_done():
            return Status.SUCCESS
        took_time = self.decorated.status is Status.RUNNING
        yield self.decorated
        status = self.update()
        if status is not Status.SUCCESS:
            return status
        self._round += 1
        self.feedback_message = f"round {self._round} succeeded"
        if self._is_done():
            return Status.SUCCESS
        if self._times is None and not took_time:
            Pass.current().polled = True
        else:
            Pass.current().again = True
        return Status.RUNNING

    def _is_done(self) -> bool:
        return self._times is not None and self._round >= self._times.count(self)


class Retry(Wrapper):
    """Run the child again when it fails; all attempts belong to one round: same questions, same idempotency keys.

    SUCCESS when the child has succeeded.
    FAILURE when `attempts` attempts have failed; an exception listed in `on` counts as a failure.
    RUNNING in an attempt, and between two: the next begins in the next pass, which is made at once, or
    after the wait.
    Halting halts the child; the next entry has all attempts again.

    Args:
        name: the node's name.
        child: what is tried.
        attempts: how often at most, the first time included, or a function of the snapshot.
        backoff: seconds to wait after the first failure; doubled with each further one. Or a function of
            the snapshot.
        jitter: up to so many seconds, at random, are added to each wait. Or a function of the snapshot.
        on: exceptions of the child that count as failures; all others are raised.
    """

    is_loop = True

    def __init__(
        self,
        name: str,
        child: Behaviour,
        *,
        attempts: Number,
        backoff: Number = 0,
        jitter: Number = 0,
        on: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        super().__init__(name, child)
        call = f'Retry("{name}", child, attempts=...)'
        self._attempts = Amount(call, attempts, least=1, is_count=True)
        self._backoff = Amount(call.replace("attempts", "backoff"), backoff)
        self._jitter = Amount(call.replace("attempts", "jitter"), jitter)
        self._on = exceptions(call.replace("attempts=...", "on=..."), on)
        self._failed = 0
        self._pause: Alarm | None = None

    def catches(self, error: BaseException) -> bool:
        """Whether an exception of the child counts as a failure."""
        return isinstance(error, self._on)

    def initialise(self) -> None:
        """Begin with the first attempt."""
        self._failed = 0
        self._pause = None

    def steps(self) -> Steps:
        """Make the attempt that is on, or wait for the next."""
        if self._pause is not None and not self._pause.ring(self.context):
            return Status.RUNNING
        self._pause = None
        try:
            yield self.decorated
            reason = "failed"
        except self._on as error:
            self.halt(self.decorated)
            reason = f"raised {type(error).__name__}: {error}"
        else:
            if self.update() is not Status.FAILURE:
                return self.decorated.status
        self._failed += 1
        self.feedback_message = f"attempt {self._failed} {reason}"
        if self._failed >= self._attempts.count(self):
            return Status.FAILURE
        self._rest()
        return Status.RUNNING

    def _rest(self) -> None:
        """Wait before the next attempt, if there is a wait."""
        seconds = self._backoff.of(self) * 2.0 ** (self._failed - 1)
        seconds += random.uniform(0, self._jitter.of(self))  # noqa: S311  # it spreads load, it hides nothing
        if seconds > 0:
            self._pause = Alarm.after(self.context, seconds)
            self._pause.ring(self.context)
        else:
            Pass.current().again = True

    def memento(self) -> Any:  # Any: JSON
        """Return how many attempts have failed, and until when to wait."""
        until = self._pause and self._pause.dump(self.context)
        return [self._failed, until] if self.status is Status.RUNNING else None

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take back the count and the wait."""
        self._failed, until = value
        self._pause = Alarm.at(self.context, until) if until else None
