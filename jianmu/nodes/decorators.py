"""Decorators: what judges the child, what stands between it and what may go wrong, and loops over it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Generator
from typing import Any, ClassVar, TypeAlias, cast  # Any: snapshots, JSON, and what a cleanup returns

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.decorators import FailureIsSuccess, Inverter, SuccessIsFailure

from jianmu.engine.activity import Activity
from jianmu.engine.context import NodeContext
from jianmu.engine.control import Steps
from jianmu.engine.failures import is_caught
from jianmu.engine.passes import FAILURE, INVALID, RUNNING, SUCCESS, Pass
from jianmu.engine.tree import ancestors, rounds_of
from jianmu.errors import LimitExceeded, RunError, SetupError
from jianmu.nodes.base import SECONDS, TRUTH, Branch, Number, Option, Wrapper, call_of, is_async, whole

Caught: TypeAlias = type[Exception] | tuple[type[Exception], ...]


class Invert(Inverter):
    """Turn the child's result round: SUCCESS when it has failed, FAILURE when it has succeeded.

    RUNNING while the child is. Halting halts the child.
    """


class ForceSuccess(FailureIsSuccess):
    """Let the child succeed in any case: SUCCESS when it has finished, whether it succeeded or failed.

    RUNNING while the child is. Halting halts the child.
    """


class ForceFailure(SuccessIsFailure):
    """Let the child fail in any case: FAILURE when it has finished, whether it succeeded or failed.

    RUNNING while the child is. Halting halts the child.
    """


class Guard(Wrapper):
    """Let the child run only while `condition(snapshot)` holds, which is asked in every tick before the child's.

    SUCCESS, FAILURE, RUNNING: as the child, while it holds.
    FAILURE, and the child is halted, when it does not hold.
    Halting halts the child.
    """

    def __init__(self, name: str, child: Behaviour, *, condition: Callable[[Any], bool]) -> None:
        super().__init__(name, child)
        self._condition = Option(self, "condition", condition, TRUTH, is_function=True)

    def steps(self) -> Steps:
        """Ask the condition, then tick the child."""
        if not self._condition():
            self.feedback_message = "the condition does not hold"
            return FAILURE
        yield self.decorated
        return self.update()


class Catching(Wrapper):
    """What Catch and Retry share: exceptions of the subtree below that are listed in `on` are taken here."""

    is_loop = True

    def __init__(self, name: str, child: Behaviour, *, on: Caught) -> None:
        super().__init__(name, child)
        kinds = tuple(cast("list[Any]", on)) if isinstance(on, tuple | list) else (cast("Any", on),)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            call = call_of(self, "on")
            raise SetupError(f"{call} takes classes of exceptions, on=(ValueError, OSError), not {on!r}")
        self._on: tuple[type[Exception], ...] = kinds

    def catches(self, error: BaseException) -> bool:
        """Whether an exception is taken here; the end of what a run may use is not."""
        return isinstance(error, self._on) and not isinstance(error, LimitExceeded)

    def _caught(self) -> Generator[Behaviour, None, Exception | None]:
        """Tick the child; return what it raises, if that is taken; the child is halted then."""
        try:
            yield self.decorated
        except self._on as error:
            if not self.catches(error):
                raise
            self.halt(self.decorated)
            return error
        return None


class Catch(Catching):
    """Turn exceptions of the subtree below that are listed in `on` into FAILURE.

    SUCCESS, FAILURE, RUNNING: as the child.
    FAILURE, and the child is halted, when it has raised one of `on`; the feedback has its text.
    All other exceptions end the run, as without it.
    Halting halts the child; an exception of `on` that came too late to be told ends no run either.
    """

    _has_caught = False

    def is_held(self) -> bool:
        """Whether a FAILURE that was an exception stands: the child, which was halted, is not begun anew."""
        return self._has_caught and super().is_held()

    def steps(self) -> Steps:
        """Tick the child and look at what it raises."""
        self._has_caught = False
        error = yield from self._caught()
        if error is None:
            return self.update()
        self._has_caught = True
        self.feedback_message = f"{type(error).__name__}: {error}"
        return FAILURE

    def on_load(self) -> None:
        """Nothing was caught."""
        super().on_load()
        self._has_caught = False

    def memento(self) -> bool | None:
        """Return whether a FAILURE was an exception."""
        return self._has_caught or None

    def restore(self, value: bool) -> None:
        """Take back whether a FAILURE was an exception."""
        self._has_caught = value


class Finally(Branch):
    """Run `cleanup(context)`, sync or async, after the child, however that ends; once for each entry of the node.

    SUCCESS, FAILURE: the child's own, when the cleanup is done.
    RUNNING while the child is, and while the cleanup is awaited.
    What the child raises is raised; a cleanup that is awaited goes on beside it, as after a halt.
    Halting, also by the end of the run, halts the child; then the cleanup is run, when all coroutines
    below have ended. It is shielded, cancelled after `halt_timeout`, and awaited by what comes next.
    A cleanup that raises in the course of a tick ends the run with its exception; in a halt it is reported once.
    """

    is_loop = True
    keeps = ("_outcome",)
    _outcome = ""
    _is_due = True
    _has_begun = False

    def __init__(self, name: str, child: Behaviour, cleanup: Callable[[NodeContext], Awaitable[Any] | Any]) -> None:
        super().__init__(name, [child])
        if not callable(cleanup):
            raise SetupError(f'Finally("{name}", child, cleanup) takes a function of the context, not {cleanup!r}')
        self.is_asynchronous = is_async(cleanup)
        self._cleanup = cleanup

    @property
    def decorated(self) -> Behaviour:
        """The child."""
        return self.children[0]

    def initialise(self) -> None:
        """Begin: from now on there is something to clean up."""
        self.restore({"_outcome": ""})

    def restore(self, value: Any) -> None:
        """Take back the child's result, if it was in; the cleanup is due."""
        super().restore(value)
        self._is_due, self._has_begun = True, False

    def steps(self) -> Steps:
        """Tick the child until it has finished, then clean up."""
        if not self._outcome:
            try:
                yield self.decorated
            except Exception as error:
                if is_caught(self, error):  # else the end of the run halts what is below: its position is kept first
                    self.halt(self.decorated)
                    self._begin(is_halted=True)
                raise
            if self.decorated.status is RUNNING:
                return RUNNING
            self._outcome = self.decorated.status.name
            self.feedback_message = self.decorated.feedback_message
        if not self._has_begun:
            self._begin()
        is_clean = not self._has_begun or self._activity.poll() is not RUNNING
        return Status[self._outcome] if is_clean else RUNNING

    def terminate(self, new_status: Status) -> None:
        """Clean up after a halt."""
        if new_status is INVALID and self.status is RUNNING:
            if self._has_begun:
                self._activity.halt()
            self._begin(is_halted=True)

    async def update_async(self) -> Status:
        """Run the cleanup after the child has finished; a halt does not cancel it at once."""
        self._is_due = False
        with anyio.CancelScope(shield=True) as scope:
            if self._activity.live is not None:
                self._activity.live.cleanup = scope
            await self._clean_up()
        return SUCCESS

    @property
    def _activity(self) -> Activity:
        return cast("Activity", self.context.activity)

    def _begin(self, *, is_halted: bool = False) -> None:
        """Clean up, if that is due: at once, or, where it takes time or coroutines below have to end, later."""
        activity = self._activity
        lines = ((*ancestors(live.activity.node), *live.line) for live in activity.tasks.lives)
        is_awaited = self.is_asynchronous or any(self in line for line in lines)
        self._has_begun = self._is_due and is_awaited and not is_halted
        if self._has_begun:
            activity.begin()
            vars(self)["async_started"] = Pass.current().number
        elif self._is_due:
            self._is_due = False
            if is_awaited:
                activity.tasks.clean_up(activity, self._clean_up)
            else:
                self._clean_up_now()

    def _clean_up_now(self) -> None:
        found = self._cleanup(self.context)
        if inspect.isawaitable(found):
            cast("Any", found).close()  # Any: a coroutine that nobody will await
            path = self.context.path
            raise RunError(f"node '{path}': its cleanup returned something to await: write `async def`", path=path)

    async def _clean_up(self) -> None:
        found = self._cleanup(self.context)
        if inspect.isawaitable(found):
            await found


class Retry(Catching):
    """Run the child again when it fails; all attempts belong to one round: same questions, same idempotency keys.

    SUCCESS when the child has succeeded.
    FAILURE when `attempts` attempts, the first one included, have failed; an exception listed in `on` counts as a
    failure, all others are raised.
    RUNNING in an attempt, and between two: the next begins in the next pass, which is made at once, or after a
    wait of `backoff` seconds, doubled with each further failure, and up to `jitter` seconds at random.
    Halting halts the child; the next entry has all attempts again.
    """

    keeps = ("_failed",)
    times = ("_pause",)
    _failed = 0
    _pause: float | None = None

    def __init__(
        self, name: str, child: Behaviour, *, attempts: Number, backoff: Number = 0, jitter: Number = 0, on: Caught = ()
    ) -> None:
        super().__init__(name, child, on=on)
        self._attempts = Option(self, "attempts", attempts, whole(1))
        self._backoff = Option(self, "backoff", backoff, SECONDS)
        self._jitter = Option(self, "jitter", jitter, SECONDS)

    def steps(self) -> Steps:
        """Make the attempt that is on, or wait for the next."""
        if self._pause is not None and not self._rings(self._pause):
            return RUNNING
        self._pause = None
        error = yield from self._caught()
        if error is None and self.update() is not FAILURE:
            return self.decorated.status
        self._failed += 1
        reason = "failed" if error is None else f"raised {type(error).__name__}: {error}"
        self.feedback_message = f"attempt {self._failed} {reason}"
        if self._failed >= self._attempts():
            return FAILURE
        seconds = self._backoff() * 2.0 ** (self._failed - 1)
        seconds += random.uniform(0, self._jitter())  # noqa: S311  # it spreads load, it hides nothing
        if seconds > 0:
            self._pause = self._after(seconds)
            self._rings(self._pause)
        else:
            Pass.current().again = True
        return RUNNING


class Rounds(Wrapper):
    """What LoopUntilSuccess and Repeat share: after one result of the child they go on, with what is the next round."""

    is_loop = True
    goes_on_after: ClassVar[Status]
    keeps = ("_round",)
    _round = 0
    _most: Option | None = None
    asked_before = 0
    """The most questions that one identity had in rounds closed before this entry: ids go on from there."""

    def round_of(self, child: Behaviour) -> int:  # all that is below is in the same round
        """Return the number of the round that is on, from 0."""
        return self._round

    def initialise(self) -> None:
        """Begin with the first round."""
        super().initialise()
        self.asked_before = 0 if self._context is None else self._context.run.asked.get(self._context.path, 0)

    def memento(self) -> Any:  # Any: JSON
        """Return the round, and where ids of questions go on."""
        kept: dict[str, Any] | None = super().memento()
        return kept | {"before": self.asked_before} if kept and self.asked_before else kept

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take it back."""
        super().restore(value)
        self.asked_before = value.get("before", 0)

    def steps(self) -> Steps:
        """Run the round that is on."""
        if self._is_over():
            return self.goes_on_after
        took_time = self.decorated.status is RUNNING
        yield self.decorated
        status = self.update()
        if status is not self.goes_on_after:
            return status
        if self._context is not None:
            self._context.run.close_round((*rounds_of(self), (self._context.path, self._round)))
        self._round += 1
        self.feedback_message = f"round {self._round} {'failed' if status is FAILURE else 'succeeded'}"
        if self._is_over():
            return status
        if self._most is None and status is SUCCESS and not took_time:
            Pass.current().polled = True
        else:
            Pass.current().again = True
        return RUNNING

    def _is_over(self) -> bool:
        return self._most is not None and self._round >= self._most()


class LoopUntilSuccess(Rounds):
    """Run the child again and again until it succeeds; each run is a round.

    SUCCESS when the child has succeeded.
    FAILURE when `max_iterations` rounds have failed; without it, never.
    RUNNING in a round, and after one that failed; the next begins in the next pass, which is made at once.
    Halting halts the child; the next entry begins with the first round.
    """

    goes_on_after = FAILURE

    def __init__(self, name: str, child: Behaviour, *, max_iterations: Number | None = None) -> None:
        super().__init__(name, child)
        self._most = None if max_iterations is None else Option(self, "max_iterations", max_iterations, whole(1))


class Repeat(Rounds):
    """Run the child until it has succeeded `times` times; each run is a round.

    SUCCESS when all rounds have succeeded; at once when `times` is 0. Without `times`, never.
    FAILURE when the child has failed.
    RUNNING in a round, and after one that succeeded; the next begins in the next pass, which is made at
    once (after `poll_interval` if there is no end and the round took no time).
    Halting halts the child; the next entry begins with the first round.
    """

    goes_on_after = SUCCESS

    def __init__(self, name: str, child: Behaviour, *, times: Number | None = None) -> None:
        super().__init__(name, child)
        self._most = None if times is None else Option(self, "times", times, whole(0))
