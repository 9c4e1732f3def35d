"""How an agent's calls are made: claimed, entered, driven, concluded.

1. One call at a time; what a caller got wrong is refused before anything happened.
2. At an entry: restore, reset, input, in this order.
3. What a call opens it closes, also after errors; then the thread is saved, then the end is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, ConfigDict

from jianmu.engine.arguments import CALL, check
from jianmu.engine.events import RunEnded, RunStarted
from jianmu.engine.holding import Holding
from jianmu.engine.limits import Limits, Usage
from jianmu.engine.outcome import Outcome, waiting_outcome
from jianmu.engine.phases import Phase
from jianmu.engine.resources import Resources
from jianmu.engine.runner import End, ReactiveRunner
from jianmu.engine.session import Session
from jianmu.engine.stepping import Stepper
from jianmu.engine.thread import UNFINISHED
from jianmu.engine.tree import path_of
from jianmu.engine.wake import Wake
from jianmu.errors import AgentBusyError, SetupError, ThreadBusyError, UnfinishedRunError, UnsetStateError

S = TypeVar("S", bound=BaseModel)
Values = Mapping[str, Any]  # Any: the schema's own types
OnNewInput = Literal["refuse", "queue", "withdraw"]


class Call(BaseModel):
    """What may be given to each call."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

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


class Calls(Generic[S]):
    """The calls of one agent.

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
        self._stepper = Stepper(runner)
        self._context = runner.context
        self._stack: AsyncExitStack | None = None
        self._owner: int | None = None
        self._free = Wake()
        self._is_refused = False
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
        self._context.in_use = what
        self._is_refused = False
        self._runner.forget_halt()
        try:
            yield
        finally:
            self._context.in_use = None
            self._free.set()

    # Runs

    async def fresh(self, input: Values | None, call: Call, *, until_suspend: bool) -> End:
        """Start a new run, or do with the input what the thread's policy says."""
        with self.claimed("run_until_suspend()" if until_suspend else "run()"):
            self._check_input(input)
            policy = call.on_new_input or self._defaults.on_new_input
            try:
                async with self._session.taken(call.thread_id):
                    return await self._fresh(input, call, policy, until_suspend)
            except ThreadBusyError as busy:
                if policy != "queue" or self._session.holding is None or busy.thread_id is None:
                    raise
                await self._session.holding.enqueue(busy.thread_id, input or {}, call.input_id)
                return End(Status.RUNNING, outcome=waiting_outcome(busy.thread_id))

    async def _fresh(self, input: Values | None, call: Call, policy: OnNewInput | None, until_suspend: bool) -> End:
        """Start a new run of the thread that was taken."""
        known = await self._known(call)
        if known is not None:
            return known
        if self._session.is_unfinished:
            if policy == "queue" and self._session.holding is not None:
                return await self._queue(self._session.holding, input, call)
            self._refuse_unfinished(policy)
            self._session.settle("new")
        self._context.interaction.withdraw_open(path_of(self._runner.root), "new input")
        await self._runner.abandon()
        return await self._drive(partial(self._begin_new, input, call), until_suspend)

    async def _begin_new(self, input: Values | None, call: Call) -> None:
        """Number the run and apply its input: the first transaction, before the first pass."""
        self._begin_run(call)
        self._enter(self._runner.manager.reset_run_fields, input)
        holding = self._session.holding
        if holding is not None:
            holding.inputs.begin(call.input_id, self._context.run)
            await holding.flush("input", has_to_last=True)

    async def _known(self, call: Call) -> End | None:
        """Return what became of an input that was delivered before: its outcome, or what comes of going on."""
        holding = self._session.holding
        if holding is None or call.input_id is None:
            return None
        row = await holding.input(call.input_id)
        if row is None:
            return None
        told = row.get("outcome")
        if told is None and row.get("run") == self._context.run and self._session.is_unfinished:
            return await self.go_on(call)
        if not isinstance(told, dict):
            return End(Status.RUNNING, is_suspended=self._session.standing == "suspended")
        outcome = Outcome.of_json(told)
        return End(outcome.status, outcome=outcome)

    async def _queue(self, holding: Holding, input: Values | None, call: Call) -> End:
        """Keep an input for when the open questions are answered; how the thread stands is the outcome."""
        await holding.enqueue(self._session.thread_id or "", input or {}, call.input_id)
        await holding.read_mail()
        return End(Status.RUNNING, is_suspended=self._session.standing == "suspended")

    async def go_on(self, call: Call, *, until_suspend: bool = True) -> End:
        """Go on with the run of the current thread, until it ends or, if wanted, suspends; the agent is claimed.

        Of a run that has ended it returns how it ended, and runs nothing, unless an input waits for its turn.
        """
        if self._session.standing in UNFINISHED:
            return await self._drive(partial(self._begin_again, call), until_suspend)
        if self._has_queued():
            return await self._drive(partial(self._begin_queued, call), until_suspend)
        return End(self._session.result)

    async def _begin_again(self, call: Call) -> None:
        self._set(call)
        self._context.events.emit(RunStarted(resumed=True))
        self._session.revive()

    async def _begin_queued(self, call: Call) -> None:
        """Start a new run with an input that waited for its turn."""
        assert self._session.holding is not None
        self._begin_run(call)
        self._runner.manager.reset_run_fields()
        self._session.holding.inputs.begin(None, self._context.run)
        self._session.holding.inputs.apply(self._runner.manager, self._context.run)

    async def _begin_after_mail(self) -> None:
        """Go on where a run stood when something came."""

    def _has_queued(self) -> bool:
        holding = self._session.holding
        return holding is not None and bool(holding.inputs.queued)

    async def _drive(self, begin: Callable[[], Awaitable[None]], until_suspend: bool) -> End:
        """Drive the tree until nothing goes on: at the end of a run, look what has come meanwhile."""
        while True:
            end, is_over = await self._drive_once(begin, until_suspend)
            if is_over:
                return end
            is_new = not end.is_suspended and self._has_queued()
            begin = partial(self._begin_queued, Call()) if is_new else self._begin_after_mail

    async def _drive_once(self, begin: Callable[[], Awaitable[None]], until_suspend: bool) -> tuple[End, bool]:
        """Drive the tree with its nodes set up and open; keep and tell how it ended, and whether that is the end."""
        self._resources.setup()
        is_outside = self._stack is None
        if is_outside:
            await self._resources.open()
        end, is_over = End(Status.INVALID), True
        self._session.is_at_work = True
        try:
            async with self._runner.host.opened():
                if self._session.holding is not None and self._runner.tasks.group is not None:
                    self._session.holding.start(self._runner.tasks.group)
                end = await self._runner.drive(begin, until_suspend=until_suspend)
                if self._session.holding is not None and is_outside:
                    self._session.holding.rest()
            if end.error is not None:
                raise end.error
        finally:
            with anyio.CancelScope(shield=True):
                is_over = await self._conclude(end, is_outside)
        return end, is_over

    async def _conclude(self, end: End, is_outside: bool) -> bool:
        """Close what was opened for this call, save the thread, tell the end; whether it is the end."""
        is_suspended = self._runner.phase is Phase.SUSPENDED
        standing = "suspended" if is_suspended else _standing(end)
        saved: list[bool] = []

        async def save() -> None:
            if not self._is_refused:
                self._session.settle(standing, end.error or end.limit)
                saved.append(await self._save_end(end))

        async with AsyncExitStack() as stack:  # the last one is called first, and none keeps the others from their turn
            stack.callback(lambda: self._tell_end(end) if saved != [False] else None)
            stack.push_async_callback(save)
            if is_outside and not is_suspended:
                stack.callback(self._resources.shutdown)
            if is_outside:
                stack.push_async_callback(self._resources.close)
        return saved != [False]

    async def _save_end(self, end: End) -> bool:
        """Save how a call has left the thread; False: something has come, and the run goes on."""
        holding = self._session.holding
        if holding is None:
            return True
        is_ended = end.status in (Status.SUCCESS, Status.FAILURE)
        if is_ended:
            holding.inputs.end(lambda: self.outcome(end).as_json(self._runner.manager.output_json()))
        if await self._session.close("end", heeds_mail=is_ended or end.is_suspended):
            return True
        await holding.read_mail()
        if end.is_suspended or holding.inputs.queued:
            return False
        return await self._session.close("end")

    def _tell_end(self, end: End) -> None:
        self._context.events.emit(RunEnded(outcome=self.outcome(end)))

    def outcome(self, end: End) -> Outcome:
        """Return how a call ended, for the caller."""
        if end.outcome is not None:
            return end.outcome
        interaction = self._context.interaction
        return Outcome(
            status=end.status,
            output=self.output(),
            thread_id=self._session.thread_id or "",
            suspended=end.is_suspended,
            suspensions=interaction.pending if end.is_suspended else (),
            limit=end.limit.limit if end.limit is not None else None,
            stalled=end.is_stalled,
            wake_at=interaction.next_deadline() if end.is_suspended else None,
        )

    def output(self) -> dict[str, Any]:  # Any: the schema's own types
        """Return the fields that are not hidden; nothing until the required ones have values."""
        try:
            return self._runner.manager.output()
        except UnsetStateError:
            return {}

    # Steps

    async def step(self, input: Values | None, call: Call, *, settle: bool) -> dict[str, Any]:  # Any: as the schema
        """Tick once and return the step fields."""
        with self.claimed("step()"):
            self._stepper.check(settle)
            self._check_input(input)
            self._session.keeps_lease = self._stack is not None
            async with self._session.taken(call.thread_id):
                return await self._step(input, call, settle=settle)

    async def _step(self, input: Values | None, call: Call, *, settle: bool) -> dict[str, Any]:  # Any: as the schema
        """Tick the thread that was taken."""
        enter = self._step_entry(input, call)
        try:
            if self._runner.host.is_open or not settle:
                await self._stepper.step(enter, settle)
            else:
                await self._settled_step(enter)
        except BaseException as error:
            if not self._is_refused:
                self._session.settle("interrupted", error)
                with anyio.CancelScope(shield=True):
                    await self._session.close("step")
            raise
        result = self._step_result()
        await self._session.close("step")
        return result

    def step_now(self, input: Values | None) -> dict[str, Any]:  # Any: as the schema
        """Tick a tree without coroutines once, in the caller's thread, and return the step fields."""
        with self.claimed("step_sync()"):
            self._check_input(input)
            self._session.take_now()
            self._stepper.step_now(self._step_entry(input, Call()))
            return self._step_result()

    def _step_entry(self, input: Values | None, call: Call) -> Callable[[], None]:
        """Return what a step does before its tick."""
        self._resources.setup()

        def enter() -> None:
            self._session.revive()
            if self._runner.root.status is Status.RUNNING:
                self._set(call)
            else:
                self._begin_run(call)
            self._enter(self._runner.manager.enter_step, input)

        return enter

    async def _settled_step(self, enter: Callable[[], None]) -> None:
        """Step with a place for coroutines that lasts as long as the step."""
        await self._resources.open()
        try:
            async with self._runner.host.opened():
                await self._stepper.step(enter, settle=True)
        finally:
            await self._resources.close()

    def _step_result(self) -> dict[str, Any]:  # Any: as the schema
        """Return the step fields; from now on they are spent."""
        status = self._runner.root.status
        at_rest = "idle" if status is Status.RUNNING else _standing(End(status))
        self._session.settle("suspended" if self._runner.phase is Phase.SUSPENDED else at_rest)
        return self._runner.manager.take_step_fields()

    # The block in which coroutines go on between calls

    async def enter_block(self) -> None:
        """Set the nodes up, open them, and let coroutines live until the block is left."""
        with self.claimed("async with"):
            if self._stack is not None:
                raise AgentBusyError("`async with agent:` is entered already: leave that block first")
            self._resources.setup()
            async with AsyncExitStack() as stack:
                stack.callback(self._resources.shutdown)
                await self._resources.open()
                stack.push_async_callback(self._resources.close)
                await stack.enter_async_context(self._runner.host.opened())
                self._owner = anyio.get_current_task().id
                self._stack = stack.pop_all()

    async def leave_block(self, has_failed: bool) -> None:
        """Halt the coroutines and close the nodes; raise what a coroutine has raised since the last step."""
        if self._owner != anyio.get_current_task().id:
            raise SetupError("`async with agent:` was entered by another task: leave it in the task that entered it")
        await self._end_calls()
        runner = self._runner
        failed = next(iter(runner.tasks.failed), None)
        error = failed.error if failed is not None else None
        stack, self._stack, self._owner = self._stack, None, None
        async with stack or AsyncExitStack():
            if runner.tasks.is_busy or failed is not None:
                await runner.park(End(Status.INVALID))
                self._session.settle("interrupted", error)
            await self._session.give_back()
        if failed is not None and error is not None and not has_failed:
            raise runner.failures.of(failed.node, error)

    async def _end_calls(self) -> None:
        """Halt a call that another task has not ended yet, and wait for its end."""
        self._free.attach()
        with anyio.CancelScope(shield=True):
            while self._context.in_use is not None:
                self._runner.halt()
                await self._free.armed().wait()
                self._free.take()

    # Entries

    def _check_input(self, input: Values | None) -> None:
        if input is not None:
            self._runner.manager.check_input(input)

    def _begin_run(self, call: Call) -> None:
        """Number the run and forget what belonged to the one before."""
        context = self._context
        self._set(call)
        self._runner.failures.errors = []
        context.run += 1
        context.events.run = context.run
        context.journal.clear()
        context.usage = Usage()
        context.events.emit(RunStarted())

    def _set(self, call: Call) -> None:
        """Use what this call was given."""
        self._context.deps = self._defaults.deps if call.deps is None else call.deps
        self._context.limits = call.limits or self._defaults.limits or Limits()

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
            if forget is not None:
                forget()
            raise
        self._is_refused = False

    def _adopt(self, node: Behaviour) -> None:
        """Bind and set up a subtree that was put into the tree after its start."""
        for top in self._runner.binder.bind(node):
            self._resources.add(top)

    def _refuse_unfinished(self, policy: OnNewInput | None) -> None:
        """Refuse new input while the thread's run is unfinished, unless it is to be given up."""
        if policy == "withdraw":
            return
        thread = self._session.thread_id
        question = self._context.interaction.suspension
        give_up = 'or give it up with on_new_input="withdraw"'
        if question is None:
            raise UnfinishedRunError(
                f"thread '{thread}' has an unfinished run: go on with agent.recover('{thread}'), {give_up}"
            )
        raise UnfinishedRunError(
            f"thread '{thread}' waits for an answer to question {question.id} of '{question.path}' "
            f"({question.message}): answer it with agent.resume(...), {give_up}",
            path=question.path,
        )


def _standing(end: End) -> str:
    """Return how a thread stands after a run has ended so."""
    return {Status.SUCCESS: "finished", Status.FAILURE: "failed"}.get(end.status, "interrupted")
