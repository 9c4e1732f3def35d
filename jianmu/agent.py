"""Agent: a tree, its state and its threads behind one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, cast

import anyio
from anyio.lowlevel import current_token
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.trees import BehaviourTree
from py_trees.visitors import VisitorBase
from pydantic import BaseModel, ConfigDict

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer
from jianmu.engine.clock import Clock, RealClock
from jianmu.engine.context import RunContext
from jianmu.engine.events import RunEnded, RunStarted
from jianmu.engine.humans import Human
from jianmu.engine.interaction import Answer, InteractionController
from jianmu.engine.limits import Limits, Usage
from jianmu.engine.outcome import Outcome
from jianmu.engine.phases import Phase
from jianmu.engine.resources import Resources
from jianmu.engine.runner import End, Options, ReactiveRunner
from jianmu.engine.session import Session
from jianmu.engine.state import StateManager
from jianmu.engine.stepping import Stepper
from jianmu.engine.stream import Stream
from jianmu.engine.tree import path_of
from jianmu.errors import AgentBusyError, RunError, SetupError, UnfinishedRunError, UnknownThreadError, UnsetStateError
from jianmu.nodes.subagent import SubAgent

S = TypeVar("S", bound=BaseModel)
Values = Mapping[str, Any]  # Any: the schema's own types
OnNewInput = Literal["refuse", "withdraw"]


class NoState(BaseModel):
    """The state of an agent that was given none."""


class Call(BaseModel):
    """What may be given to each call."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    thread_id: str | None = None
    deps: Any = None  # Any: the user's own object
    limits: Limits | None = None
    on_new_input: OnNewInput | None = None


class Agent(Generic[S]):
    """A tree of nodes that runs on one typed state.

    Args:
        root: the tree: a py_trees behaviour or BehaviourTree.
        state_schema: the Pydantic model of the state; without it the state is empty.
        state: a StateManager to use in place of a schema.
        deps: whatever the nodes need, as `self.context.deps`.
        store: where threads are kept.
        clock: by default the real one.
        limits: what a run may use.
        setup: arguments for each node's `setup`.
        visitors: py_trees visitors for the agent's tree.
        human: asked under `run()`: an async function of the question that returns the payload.
        aliases: old paths of nodes and what they are called now, for threads saved before.
        version: the version of the schema, stored with each thread.
        on_new_input: what new input does to a thread whose run is unfinished.
        on_stall: whether a run that nothing can wake waits for a write from outside, or raises.
        poll_interval: seconds between passes while nodes have to be polled.
        min_interval: least seconds between two passes.
        halt_timeout: seconds that a halted node may take to clean up before it is reported.

    Raises:
        SetupError: the tree, the schema or an option cannot be used.
    """

    def __init__(
        self,
        root: Behaviour | BehaviourTree,
        state_schema: type[S] | None = None,
        *,
        state: StateManager[S] | None = None,
        deps: Any = None,  # Any: the user's own object
        store: Checkpointer | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        setup: Values | None = None,
        visitors: Iterable[VisitorBase] = (),
        human: Human | None = None,
        aliases: Mapping[str, str] | None = None,
        version: int | None = None,
        on_new_input: OnNewInput = "refuse",
        on_stall: Literal["wait", "raise"] = "wait",
        poll_interval: float = 0.05,
        min_interval: float = 0.0,
        halt_timeout: float = 5.0,
    ) -> None:
        given = root if isinstance(root, BehaviourTree) else None
        top = root.root if isinstance(root, BehaviourTree) else root
        _check_root(top)
        if state is not None and state_schema is not None:
            raise SetupError("Agent() takes state_schema= or state=, not both")
        schema = cast("type[S]", state_schema or NoState)
        self.state_manager: StateManager[S] = state if state is not None else StateManager(schema)
        self._context = RunContext(clock or RealClock(), self.state_manager, deps)
        if hasattr(human, "use_clock"):
            human.use_clock(self._context.clock)
        options = Options(poll_interval, min_interval, halt_timeout, on_stall, human)
        self.runner: ReactiveRunner[S] = ReactiveRunner(top, self.state_manager, self._context, options)
        self.tree = self.runner.tree
        _take_over(given, self.tree, visitors)
        self._deps, self._limits = deps, limits or Limits()
        self._on_new_input: OnNewInput = on_new_input
        self._session: Session[S] = Session(self.runner, store, version, aliases or {})
        self._context.interaction.persist = self._session.save
        self._stepper = Stepper(self.runner)
        self._resources = Resources(top, setup or {})
        self._stack: AsyncExitStack | None = None
        self._owner: int | None = None
        self._in_use: str | None = None
        self._has_store = store is not None
        self.runner.binder.bind(top)
        self._context.ticker.adopt = self._adopt

    # What can be looked at

    @property
    def root(self) -> Behaviour:
        """The tree's root."""
        return self.runner.root

    @property
    def state(self) -> S:
        """The current snapshot of the state."""
        return self.state_manager.get()

    @property
    def output(self) -> dict[str, Any]:  # Any: the schema's own types
        """The fields of the state that are not hidden; empty until the required ones have values."""
        try:
            return self.state_manager.output()
        except UnsetStateError:
            return {}

    @property
    def status(self) -> Status:
        """The root's status."""
        return self.root.status

    @property
    def errors(self) -> list[tuple[str, BaseException]]:
        """(path, exception) of the nodes that ended the last run, the one that was raised first."""
        return self.runner.failures.errors

    @property
    def thread_id(self) -> str | None:
        """The current thread, or None before the first call."""
        return self._session.thread_id

    @property
    def interaction(self) -> InteractionController:
        """The questions of the current thread, and the way to answer them."""
        return self._context.interaction

    @property
    def clock(self) -> Clock:
        """The agent's clock."""
        return self._context.clock

    # Runs

    async def run(self, input: Values | None = None, **call: Any) -> Status:  # Any: see Call
        """Run the tree until it succeeds or fails; questions are waited for.

        Args:
            input: fields to write first, after the run fields were reset.
            call: `thread_id`, `deps`, `limits`, `on_new_input` for this call.

        Returns:
            SUCCESS or FAILURE; INVALID if it was halted.

        Raises:
            LimitExceeded: a limit was used up.
            AgentBusyError: the agent is in another call.
            Exception: what a node raised, with a note that names its path.
        """
        end = await self._fresh(input, Call(**call), until_suspend=False)
        if end.limit is not None:
            raise end.limit
        return end.status

    async def run_until_suspend(self, input: Values | None = None, **call: Any) -> Outcome:  # Any: see Call
        """Run the tree as far as it goes without a person; arguments and errors as in `run`."""
        return self._outcome(await self._fresh(input, Call(**call), until_suspend=True))

    async def resume(
        self,
        answer: Any = None,  # Any: JSON, of the type that was asked for
        *,
        suspension_id: str | None = None,
        by: str | None = None,
        **call: Any,  # Any: see Call
    ) -> Outcome:
        """Answer an open question and go on until the next one, or the end.

        Args:
            answer: the payload, or an `Answer`.
            suspension_id: the question, where several are open.
            by: who answers.
            call: `thread_id`, `deps`, `limits` for this call.

        Raises:
            InteractionError: the answer was refused; nothing was changed.
        """
        given = Call(**call)
        with self._claimed("resume()"):
            await self._session.take(given.thread_id)
            said = answer if isinstance(answer, Answer) else Answer(suspension_id, answer, by=by)
            await self.interaction.answer(said)
            return self._outcome(await self._go_on(given, until_suspend=True))

    async def recover(self, thread_id: str | None = None, **call: Any) -> Outcome:  # Any: see Call
        """Go on with an unfinished thread as it is; of a finished one return how it stands and run nothing.

        Raises:
            UnknownThreadError: there is no such thread.
        """
        given = Call(thread_id=thread_id, **call)
        with self._claimed("recover()"):
            if thread_id is not None:
                await self._session.load(thread_id)
            if self._session.standing == "new":
                raise UnknownThreadError(f"there is no thread '{thread_id}' to go on with", thread_id=thread_id)
            if self._session.standing not in ("suspended", "interrupted"):
                return self._outcome(End(self.status))
            return self._outcome(await self._go_on(given, until_suspend=True))

    def halt(self, reason: str | None = None) -> None:
        """End the run that is on; it returns INVALID. Safe from any task and thread."""
        if self._in_use is not None:
            self._context.log_at(None).info("halt was asked for", reason=reason)
            self.runner.halt()

    # Steps

    async def step(self, input: Values | None = None, *, settle: bool = False, **call: Any) -> dict[str, Any]:
        """Tick the tree once; one scheduling point of the event loop.

        Args:
            input: fields to write first, after the step fields were reset.
            settle: wait until the coroutines that were started have finished or wait for answers.
            call: `thread_id`, `deps`, `limits` for this call.

        Returns:
            The step fields.
        """
        given = Call(**call)
        with self._claimed("step()"):
            self._stepper.check(settle)
            await self._session.take(given.thread_id)
            enter = self._step_entry(input, given)
            if self.runner.host.is_open or not settle:
                await self._stepper.step(enter, settle)
            else:
                await self._settled_step(enter)
            return self._step_result()

    def step_sync(self, input: Values | None = None) -> dict[str, Any]:  # Any: the schema's own types
        """Tick a tree without asynchronous nodes once, in the caller's thread; returns the step fields."""
        if self.runner.binder.has_async:
            raise SetupError("step_sync() needs a tree without async nodes: write `await agent.step(settle=True)`")
        with self._claimed("step_sync()"):
            self._session.take_now()
            self._stepper.step_now(self._step_entry(input, Call()))
            return self._step_result()

    # Streams

    def stream(
        self, input: Values | None = None, *, until_suspend: bool = False, path: str | None = None, **call: Any
    ) -> Stream:
        """Run and hand out the events: `async with agent.stream(...) as events: async for event in events: ...`.

        Leaving the block halts the run. `path` gives the events of one node and those below it only.
        """
        run = self.run_until_suspend if until_suspend else self.run
        return Stream(self._context.events, partial(run, input, **call), self.halt, path)

    def stream_resume(self, answer: Any = None, *, path: str | None = None, **call: Any) -> Stream:  # Any: as resume
        """Answer, go on, and hand out the events; arguments as in `resume`."""
        return Stream(self._context.events, partial(self.resume, answer, **call), self.halt, path)

    # Synchronous callers

    def run_sync(self, input: Values | None = None, **call: Any) -> Status:  # Any: see Call
        """Call `run` from a program without an event loop."""
        return _in_new_loop(partial(self.run, input, **call), "run")

    def run_until_suspend_sync(self, input: Values | None = None, **call: Any) -> Outcome:  # Any: see Call
        """Call `run_until_suspend` from a program without an event loop."""
        return _in_new_loop(partial(self.run_until_suspend, input, **call), "run_until_suspend")

    def resume_sync(self, answer: Any = None, **call: Any) -> Outcome:  # Any: as resume
        """Call `resume` from a program without an event loop."""
        return _in_new_loop(partial(self.resume, answer, **call), "resume")

    # Threads at rest

    async def load(self, thread_id: str) -> None:
        """Make a stored thread the current one, to read it or edit its state.

        Raises:
            UnknownThreadError: the store does not have it.
        """
        with self._claimed("load()"):
            await self._session.load(thread_id)

    async def save(self) -> None:
        """Keep the current thread in the store."""
        with self._claimed("save()"):
            await self._session.save()

    def dump_checkpoint(self) -> JsonObject:
        """Return the whole run as JSON: state, position, questions, journal."""
        return self._session.dump()

    def load_checkpoint(self, data: JsonObject) -> None:
        """Take over a run that `dump_checkpoint` has returned, here or in another process.

        Raises:
            CorruptRecordError, SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
        """
        with self._claimed("load_checkpoint()"):
            self._resources.setup()
            self._session.restore_now(data)

    async def reset(self, *, state: bool = False) -> None:
        """Halt the tree and withdraw its questions; with `state`, set the state back to its defaults too."""
        with self._claimed("reset()"):
            await self.runner.abandon()
            self.interaction.withdraw_open(path_of(self.root), "reset")
            if state:
                self.state_manager.initialize()
            self._session.settle("finished")
            await self._session.save()

    def as_node(
        self, name: str, *, inputs: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None
    ) -> SubAgent:
        """Return a node that runs this agent's tree on its own state inside of another agent.

        Args:
            name: the node's name.
            inputs: fields of this agent and the fields of the other that they are taken from.
            outputs: fields of the other agent and the fields of this one that they are taken from.
        """
        if self._has_store:
            raise SetupError(f"'{name}': an agent inside of another is kept in that one's store: give it no store")
        return SubAgent(name, self.root, self.state_manager, inputs=inputs or {}, outputs=outputs or {})

    # The place where coroutines go on between calls

    async def __aenter__(self) -> Self:
        """Set the nodes up, open them, and let coroutines live until the block is left."""
        with self._claimed("async with"):
            self._resources.setup()
            await self._resources.open()
            self._stack = AsyncExitStack()
            await self._stack.enter_async_context(self.runner.host.opened())
            self._owner = anyio.get_current_task().id
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Halt the coroutines, close the nodes; what a coroutine raised since the last step is raised here."""
        if self._owner != anyio.get_current_task().id:
            raise SetupError("`async with agent:` was entered by another task: leave it in the task that entered it")
        stack, self._stack, self._owner = self._stack, None, None
        failed = next(iter(self.runner.tasks.failed), None)
        if self.runner.tasks.is_busy or failed is not None:
            await self.runner.park(End(Status.INVALID))
            self._session.settle("interrupted")
        if stack is not None:
            await stack.aclose()
        await self._resources.close()
        self._resources.shutdown()
        if failed is not None and failed.error is not None and error is None:
            raise self.runner.failures.of(failed.node, failed.error)

    # How calls are made

    @contextmanager
    def _claimed(self, what: str) -> Iterator[None]:
        """Keep the agent for one call."""
        if self._in_use is not None:
            raise AgentBusyError(
                f"{what} was called while {self._in_use} is on: await that first, or build an agent for each thread"
            )
        if self.root.parent is not None:
            raise SetupError(f"this agent is the node '{path_of(self.root)}' of another one: call that one")
        self._in_use = what
        self.runner.forget_halt()
        try:
            yield
        finally:
            self._in_use = None

    async def _fresh(self, input: Values | None, call: Call, *, until_suspend: bool) -> End:
        """Start a new run."""
        with self._claimed("run_until_suspend()" if until_suspend else "run()"):
            await self._session.take(call.thread_id)
            if self._session.is_unfinished:
                self._refuse_unfinished(call.on_new_input or self._on_new_input)
            self.state_manager.check_input(input or {})
            await self.runner.abandon()

            async def begin() -> None:
                self._begin_run(call)
                self.state_manager.reset_run_fields()
                self._apply(input)

            return await self._drive(begin, until_suspend)

    async def _go_on(self, call: Call, *, until_suspend: bool) -> End:
        """Go on with the run of the current thread."""

        async def begin() -> None:
            self._set(call)
            self._context.events.emit(RunStarted(resumed=True))
            self._session.revive()

        return await self._drive(begin, until_suspend)

    async def _drive(self, begin: Callable[[], Any], until_suspend: bool) -> End:  # Any: awaited only
        """Drive the tree with its nodes set up and open; keep and tell how it ended."""
        self._resources.setup()
        outside = self._stack is None
        end = End(Status.INVALID)
        if outside:
            await self._resources.open()
        try:
            async with self.runner.host.opened():
                end = await self.runner.drive(begin, until_suspend=until_suspend)
        finally:
            with anyio.CancelScope(shield=True):
                await self._conclude(end, outside)
        if end.error is not None:
            raise end.error
        return end

    async def _conclude(self, end: End, outside: bool) -> None:
        """Close what was opened for this call, save the thread, tell the end."""
        if outside:
            await self._resources.close()
            if not end.is_suspended:
                self._resources.shutdown()
        self._session.settle(_standing(end), end.error or end.limit)
        await self._session.save()
        self._context.events.emit(RunEnded(outcome=self._outcome(end)))

    def _begin_run(self, call: Call) -> None:
        """Number the run and forget what belonged to the one before."""
        context = self._context
        self._set(call)
        context.run += 1
        context.events.run = context.run
        context.journal.clear()
        context.usage = Usage()
        context.events.emit(RunStarted())

    def _adopt(self, node: Behaviour) -> None:
        """Bind and set up a subtree that was put into the tree after its start."""
        self.runner.binder.bind(node)
        self._resources.setup_subtree(node)

    def _set(self, call: Call) -> None:
        """Use what this call was given."""
        self._context.deps = self._deps if call.deps is None else call.deps
        self._context.limits = call.limits or self._limits

    def _apply(self, input: Values | None) -> None:
        if input:
            self.state_manager.update(input, _writer="input")

    def _refuse_unfinished(self, policy: OnNewInput) -> None:
        """Refuse new input while the thread's run is unfinished, unless it is to be given up."""
        if policy == "withdraw":
            self.interaction.withdraw_open(path_of(self.root), "new input")
            return
        thread = self._session.thread_id
        question = self.interaction.suspension
        if question is not None:
            text = (
                f"thread '{thread}' waits for an answer to question {question.id} of '{question.path}' "
                f'({question.message}): answer it with agent.resume(...), or give on_new_input="withdraw"'
            )
            raise UnfinishedRunError(text, path=question.path)
        raise UnfinishedRunError(
            f"thread '{thread}' has an unfinished run: go on with agent.recover('{thread}'), "
            'or give on_new_input="withdraw"'
        )

    def _step_entry(self, input: Values | None, call: Call) -> Callable[[], None]:
        """Return what a step does before its tick."""
        self.state_manager.check_input(input or {})
        self._resources.setup()

        def enter() -> None:
            if self.root.status is not Status.RUNNING:
                self._begin_run(call)
            else:
                self._set(call)
                self._session.revive()
            self.state_manager.enter_step()
            self._apply(input)

        return enter

    async def _settled_step(self, enter: Callable[[], None]) -> None:
        """Step with a place for coroutines that lasts as long as the step."""
        raised: BaseException | None = None
        await self._resources.open()
        try:
            async with self.runner.host.opened():
                try:
                    await self._stepper.step(enter, settle=True)
                except Exception as error:  # noqa: BLE001  # raised outside of the group, which would wrap it
                    raised = error
        finally:
            await self._resources.close()
        if raised is not None:
            raise raised

    def _step_result(self) -> dict[str, Any]:  # Any: the schema's own types
        """Return the step fields; from now on they are spent."""
        self._session.settle("suspended" if self.runner.phase is Phase.SUSPENDED else "idle")
        return self.state_manager.take_step_fields()

    def _outcome(self, end: End) -> Outcome:
        """Return how a call ended, for the caller."""
        pending = self.interaction.pending if end.is_suspended else ()
        wake_at: datetime | None = self.interaction.next_deadline() if end.is_suspended else None
        return Outcome(
            status=end.status,
            output=self.output,
            thread_id=self._session.thread_id or "",
            suspended=end.is_suspended,
            suspensions=pending,
            limit=end.limit.limit if end.limit is not None else None,
            stalled=end.is_stalled,
            wake_at=wake_at,
        )


def _standing(end: End) -> str:
    """Return how a thread stands after a run has ended so."""
    if end.is_suspended or end.is_stalled:
        return "suspended"
    return {Status.SUCCESS: "finished", Status.FAILURE: "failed"}.get(end.status, "interrupted")


def _check_root(root: object) -> None:
    if not isinstance(root, Behaviour):
        raise SetupError(f"Agent(root) takes a py_trees behaviour or BehaviourTree, not {type(root).__name__}")
    if root.parent is not None:
        raise SetupError(f"'{path_of(root)}' is a node inside of another tree: give Agent the root")


def _take_over(given: BehaviourTree | None, tree: BehaviourTree, visitors: Iterable[VisitorBase]) -> None:
    """Give the agent's tree the handlers and visitors of the tree it was built from."""
    if given is not None:
        tree.visitors.extend(given.visitors)
        tree.pre_tick_handlers.extend(given.pre_tick_handlers)
        tree.post_tick_handlers.extend(given.post_tick_handlers)
    tree.visitors.extend(visitors)


def _in_new_loop(function: Callable[[], Any], name: str) -> Any:  # Any: what the function returns
    """Run an async call in a loop of its own, where none is running."""
    try:
        current_token()
    except anyio.NoEventLoopError:
        return anyio.run(function)
    raise RunError(f"{name}_sync() was called inside of a running event loop: write `await agent.{name}(...)`")
