"""How a call of an agent is entered: claimed, with its arguments checked, its run begun, its input applied.

1. One call at a time; what a caller got wrong is refused before anything happened.
2. At an entry: restore, reset, input, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.engine.arguments import CALL, check
from jianmu.engine.ends import End
from jianmu.engine.events import RunStarted
from jianmu.engine.limits import Limits, Usage
from jianmu.engine.outcome import Outcome
from jianmu.engine.resources import Resources
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.session import Session
from jianmu.engine.state.freeze import instance
from jianmu.engine.stepping import Stepper
from jianmu.engine.tree import path_of
from jianmu.engine.wake import Wake
from jianmu.errors import AgentBusyError, SetupError, UnsetStateError

S = TypeVar("S", bound=BaseModel)
Values = Mapping[str, Any]  # Any: the schema's own types
OnNewInput = Literal["refuse", "queue", "withdraw"]


@dataclass(frozen=True)
class Call:
    """What may be given to each call."""

    thread_id: str | None = None
    deps: Any = None  # Any: the user's own object
    limits: Limits | None = None
    on_new_input: OnNewInput | None = None
    input_id: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Call:  # Any: whatever the caller gave
        """Return what a caller gave.

        Raises:
            SetupError: an argument is unknown or of the wrong kind.
        """
        check(CALL, given)
        return cls(**given)


class Entries(Generic[S]):
    """What the calls of one agent have in common.

    Args:
        runner: the tree and its driver.
        session: the thread.
        resources: what nodes open.
        defaults: what counts where a call says nothing.
    """

    def __init__(self, runner: ReactiveRunner[S], session: Session[S], resources: Resources, defaults: Call) -> None:
        self._runner = runner
        self._session = session
        self._resources = resources
        self._defaults = defaults
        self._limits = defaults.limits or Limits()
        self._stepper = Stepper(runner)
        self._context = runner.context
        self._stack: AsyncExitStack | None = None
        self._owner: int | None = None
        self._free = Wake()
        self._is_refused = False
        self._before: tuple[int, Usage, dict[str, int]] | None = None
        self._context.ticker.adopt = self._adopt
        session.rebuilt = resources.replace

    @contextmanager
    def claimed(self, what: str) -> Generator[None]:
        """Keep the agent for one call.

        Raises:
            AgentBusyError: another call is on.
        """
        root = self._runner.root
        holder = vars(root)["bound_to"]
        used = self._context.in_use or holder.in_use
        if used is not None:
            raise AgentBusyError(
                f"{what} was called while {used} is on: await that first, or build an agent for each thread"
            )
        if root.parent is not None:
            raise SetupError(f"this agent is the node '{path_of(root)}' of another one: call that one")
        if holder is not self._context:
            self._runner.binder.bind(root)  # another agent was built for this tree meanwhile
            if self._session.holding is not None:
                self._session.holding.forget()  # it may have moved the tree
        self._context.in_use = what
        self._is_refused = self._session.keeps_lease = False
        self._before = None
        self._runner.forget_halt()
        try:
            yield
        finally:
            self._context.in_use = None
            self._free.set()

    # Entries

    def _attend(self, *, at_once: bool = False) -> None:
        """Have somebody write behind and look for mail, where coroutines can live: from a pass without a result on."""
        holding, tasks = self._session.holding, self._runner.tasks
        if holding is not None and tasks.group is not None:
            holding.attendance.be_in(tasks.group, tasks.guard)
            if at_once:
                holding.attendance.begin()

    def _check_input(self, input: Values | None) -> None:
        if input is not None:
            self._runner.manager.check_input(input)

    def _begin_run(self, call: Call) -> None:
        """Number the run and forget what belonged to the one before."""
        context = self._context
        self._set(call)
        self._runner.failures.errors = []
        self._before = (context.run, context.usage, context.asked)
        context.run += 1
        context.events.run = context.run
        context.journal.clear()
        context.usage, context.asked = Usage(), {}
        context.events.emit(RunStarted())

    def _set(self, call: Call) -> None:
        """Use what this call was given."""
        self._context.deps = self._defaults.deps if call.deps is None else call.deps
        self._context.limits = call.limits or self._limits

    def _enter(self, reset: Callable[[], None], input: Values | None) -> None:
        """Reset and apply the input; when it is refused the state is put back, and nothing has happened."""
        if not input:
            reset()
            return
        go_back, holding = self._runner.manager.bookmark(), self._session.holding
        forget = holding.recording.mark() if holding is not None else None
        self._is_refused = True
        try:
            reset()
            self._runner.manager.update(input, _writer="input")
        except BaseException:
            go_back()
            self._unnumber()
            if forget is not None:
                forget()
            raise
        self._is_refused = False

    def _unnumber(self) -> None:
        """Have the run that was about to begin not be one."""
        if self._before is not None:
            self._context.run, self._context.usage, self._context.asked = self._before
            self._context.events.run = self._context.run

    def _adopt(self, node: Behaviour) -> None:
        """Bind and set up a subtree that was put into the tree after its start."""
        for top in self._runner.binder.bind(node):
            self._resources.add(top)

    def outcome(self, end: End) -> Outcome:
        """Return how a call ended, for the caller."""
        if end.outcome is not None:
            return end.outcome
        interaction = self._context.interaction
        told: dict[str, Any] = {  # Any: what each is is known, and needs no validation
            "status": end.status,
            "output": self.output(),
            "thread_id": self._session.thread_id or "",
            "suspended": end.is_suspended,
            "suspensions": interaction.pending if end.is_suspended else (),
            "limit": end.limit.limit if end.limit is not None else None,
            "stalled": end.is_stalled,
            "wake_at": interaction.next_deadline() if end.is_suspended else None,
        }
        return cast("Outcome", instance(Outcome, told, told, None, None))

    def output(self) -> dict[str, Any]:  # Any: the schema's own types
        """Return the fields that are not hidden; nothing until the required ones have values."""
        try:
            return self._runner.manager.output()
        except UnsetStateError:
            return {}


def standing_of(end: End) -> str:
    """Return how a thread stands after a run has ended so."""
    return {Status.SUCCESS: "finished", Status.FAILURE: "failed"}.get(end.status, "interrupted")
