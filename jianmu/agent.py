"""Agent: a tree, its state and its threads behind one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, cast  # Any: see Call; JSON; the user's own

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.trees import BehaviourTree
from py_trees.visitors import VisitorBase
from pydantic import BaseModel

from jianmu.engine.answers import JsonObject
from jianmu.engine.arguments import OPTIONS, check, check_root
from jianmu.engine.calls import Calls, in_new_loop
from jianmu.engine.checkpoint import Checkpointer
from jianmu.engine.clock import Clock, RealClock
from jianmu.engine.context import RunContext
from jianmu.engine.controller import InteractionController
from jianmu.engine.ends import Options
from jianmu.engine.entries import Call, OnNewInput, Values
from jianmu.engine.holding import Level
from jianmu.engine.humans import Human
from jianmu.engine.limits import Limits
from jianmu.engine.outcome import Outcome
from jianmu.engine.questions import Answer
from jianmu.engine.resources import Resources
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.session import Keeping, Session
from jianmu.engine.state import StateManager
from jianmu.engine.stream import Stream
from jianmu.engine.thread import Build
from jianmu.errors import SetupError, UnknownThreadError
from jianmu.nodes.delegates import Delegate, Delegated
from jianmu.nodes.subagent import Inputs, Outputs, SubAgent

S = TypeVar("S", bound=BaseModel)


class NoState(BaseModel, defer_build=True):
    """The state of an agent that was given none."""


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
        build: makes the tree for a state, where a tree that is edited at run time does not fit a thread.
        poll_answers: seconds between two looks for answers from other processes.
        max_block: seconds that the event loop may stand still before the thread's lease is let go.
        durability: passes are saved before their nodes start ("sync"), behind the run ("async"), or with effects,
            questions, answers and the end only ("exit").
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
        deps: Any = None,
        store: Checkpointer | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        setup: Values | None = None,
        visitors: Iterable[VisitorBase] = (),
        human: Human | None = None,
        aliases: Mapping[str, str] | None = None,
        version: int | None = None,
        build: Build | None = None,
        poll_answers: float = 0.5,
        max_block: float = 60.0,
        durability: Level = "async",
        on_new_input: OnNewInput = "refuse",
        on_stall: Literal["wait", "raise"] = "wait",
        poll_interval: float = 0.05,
        min_interval: float = 0.0,
        halt_timeout: float = 5.0,
    ) -> None:
        given = root if isinstance(root, BehaviourTree) else None
        top = root.root if isinstance(root, BehaviourTree) else root
        check_root(top)
        check(OPTIONS, {name: value for name, value in locals().items() if name in OPTIONS})
        if state is not None and state_schema is not None:
            raise SetupError("Agent() takes state_schema= or state=, not both")
        schema = cast("type[S]", state_schema or NoState)
        self.state_manager: StateManager[S] = state if state is not None else StateManager(schema)
        self._context = RunContext(clock or RealClock(), self.state_manager, deps)
        use_clock: Callable[[Clock], None] | None = getattr(human, "use_clock", None)
        if use_clock is not None:
            use_clock(self._context.clock)
        options = Options(poll_interval, min_interval, halt_timeout, on_stall, human)
        self.runner: ReactiveRunner[S] = ReactiveRunner(top, self.state_manager, self._context, options)
        self.tree = self.runner.tree
        _take_over(given, self.tree, visitors)
        keeping = Keeping(store, version, aliases, durability, poll_answers, max_block, build)
        self._session: Session[S] = Session(self.runner, keeping)
        self._resources = Resources(top, setup or {})
        defaults = Call(deps=deps, limits=limits, on_new_input=on_new_input)
        self._calls: Calls[S] = Calls(self.runner, self._session, self._resources, defaults)
        self.runner.binder.bind(top)

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
    def output(self) -> dict[str, Any]:
        """The fields of the state that are not hidden; empty until the required ones have values."""
        return self._calls.output()

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
    def store(self) -> Checkpointer | None:
        """Where threads are kept."""
        return None if self._session.holding is None else self._session.holding.store

    def attach(self, store: Checkpointer) -> None:
        """Keep threads in a store from now on; before the first call, where `Agent(store=...)` was not given one."""
        if self.store is not None or self.thread_id is not None:
            raise SetupError("attach() comes once, before the first call: build an agent for each store")
        self._session.attach(store)

    @property
    def interaction(self) -> InteractionController:
        """The questions of the current thread, and the way to answer them."""
        return self._context.interaction

    @property
    def clock(self) -> Clock:
        """The agent's clock."""
        return self._context.clock

    # Runs

    async def run(self, input: Values | None = None, **call: Any) -> Status:
        """Run the tree until it succeeds or fails; questions are waited for.

        Args:
            input: fields to write first, after the run fields were reset.
            call: `thread_id`, `deps`, `limits`, `input_id`, `on_new_input` for this call.

        Returns:
            SUCCESS or FAILURE; INVALID if it was halted.

        Raises:
            LimitExceeded: a limit was used up.
            AgentBusyError: the agent is in another call.
            Exception: what a node raised, with a note that names its path.
        """
        end = await self._calls.fresh(input, Call.of(call), until_suspend=False)
        if end.limit is not None:
            raise end.limit
        return end.status

    async def run_until_suspend(self, input: Values | None = None, **call: Any) -> Outcome:
        """Run the tree as far as it goes without a person; arguments and errors as in `run`."""
        return self._calls.outcome(await self._calls.fresh(input, Call.of(call), until_suspend=True))

    async def resume(
        self,
        answer: Any = None,
        *,
        suspension_id: str | None = None,
        by: str | None = None,
        **call: Any,
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
        given = Call.of(call)
        with self._calls.claimed("resume()"):
            said = answer if isinstance(answer, Answer) else Answer(suspension_id, answer, by=by)
            async with self._session.taken(given.thread_id, create=False, answer=said) as is_said:
                if not is_said:
                    await self.interaction.answer(said)
                return self._calls.outcome(await self._calls.go_on(given))

    async def recover(
        self, thread_id: str | None = None, *, until_suspend: bool = True, wait: bool = False, **call: Any
    ) -> Outcome:
        """Go on with an unfinished thread as it is; of a finished one return how it stands and run nothing.

        Args:
            thread_id: the thread; None: the current one.
            until_suspend: whether to return at a question; else it is waited for, as in `run`.
            wait: whether another holder of the thread is waited for.
            call: `deps`, `limits` for this call.

        Raises:
            UnknownThreadError: there is no such thread.
        """
        given = Call.of({"thread_id": thread_id, **call})
        with self._calls.claimed("recover()"):
            async with self._session.taken(thread_id, create=False, waits=wait):
                if self._session.standing == "new":
                    raise UnknownThreadError("there is no thread to go on with: run(input) begins one")
                return self._calls.outcome(await self._calls.go_on(given, until_suspend=until_suspend))

    def halt(self, reason: str | None = None) -> None:
        """End the run that is on; it returns INVALID. Safe from any task and thread."""
        if self._context.in_use is not None:
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
        return await self._calls.step(input, Call.of(call), settle=settle)

    def step_sync(self, input: Values | None = None) -> dict[str, Any]:
        """Tick a tree without asynchronous nodes once, in the caller's thread; returns the step fields."""
        if self.runner.binder.has_async or self.store is not None:
            what = (
                "a tree without async nodes"
                if self.store is None
                else "an agent without a store, since it saves nothing"
            )
            raise SetupError(f"step_sync() needs {what}: write `await agent.step(settle=True)`")
        return self._calls.step_now(input)

    # Streams

    def stream(
        self, input: Values | None = None, *, until_suspend: bool = False, path: str | None = None, **call: Any
    ) -> Stream:
        """Run and hand out the events: `async with agent.stream(...) as events: async for event in events: ...`.

        Leaving the block halts the run. `path` gives the events of one node and those below it only.
        """
        run = self.run_until_suspend if until_suspend else self.run
        return Stream(self._context.events, partial(run, input, **call), self.halt, path)

    def stream_resume(self, answer: Any = None, *, path: str | None = None, **call: Any) -> Stream:
        """Answer, go on, and hand out the events; arguments as in `resume`."""
        return Stream(self._context.events, partial(self.resume, answer, **call), self.halt, path)

    # Synchronous callers

    def run_sync(self, input: Values | None = None, **call: Any) -> Status:
        """Call `run` from a program without an event loop."""
        return in_new_loop(partial(self.run, input, **call), "run")

    def run_until_suspend_sync(self, input: Values | None = None, **call: Any) -> Outcome:
        """Call `run_until_suspend` from a program without an event loop."""
        return in_new_loop(partial(self.run_until_suspend, input, **call), "run_until_suspend")

    def resume_sync(self, answer: Any = None, **call: Any) -> Outcome:
        """Call `resume` from a program without an event loop."""
        return in_new_loop(partial(self.resume, answer, **call), "resume")

    def recover_sync(self, thread_id: str | None = None, **call: Any) -> Outcome:
        """Call `recover` from a program without an event loop."""
        return in_new_loop(partial(self.recover, thread_id, **call), "recover")

    # Threads at rest

    async def load(self, thread_id: str) -> None:
        """Make a stored thread the current one, to read it or edit its state.

        Raises:
            UnknownThreadError: the store does not have it.
        """
        with self._calls.claimed("load()"):
            await self._session.load(thread_id)

    async def save(self) -> None:
        """Keep the current thread in the store."""
        with self._calls.claimed("save()"):
            await self._session.save()

    def dump_checkpoint(self) -> JsonObject:
        """Return the whole run as JSON: state, position, questions, journal."""
        return self._session.dump()

    def load_checkpoint(self, data: JsonObject) -> None:
        """Take over a run that `dump_checkpoint` has returned, here or in another process.

        Raises:
            CorruptRecordError, SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
        """
        with self._calls.claimed("load_checkpoint()"):
            self._resources.setup()
            self._session.restore_now(data)

    async def reset(self, *, state: bool = False) -> None:
        """Halt the tree and withdraw its questions; with `state`, set the state back to its defaults too."""
        await self._calls.reset(with_state=state)

    def as_node(
        self, name: str, *, inputs: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None
    ) -> SubAgent:
        """Return a node that runs this agent's tree on its own state inside of another agent.

        Args:
            name: the node's name.
            inputs: fields of this agent and the fields of the other that they are taken from.
            outputs: fields of the other agent and the fields of this one that they are taken from.
        """
        self._session.refuse_inside(name)
        return SubAgent(name, self.root, self.state_manager, inputs=inputs or {}, outputs=outputs or {})

    def as_tool(self, name: str, *, inputs: Inputs = None, outputs: Outputs = None, **options: Any) -> Delegate:
        """Return a tool that runs this agent in another one, its state kept; see `as_node`, and `Delegate` for more."""
        self._session.refuse_inside(name)
        manager = self.state_manager
        node = Delegated(name, self.root, manager, is_fresh=False, inputs=inputs, outputs=outputs)
        return Delegate(name, [node], **options)

    # The place where coroutines go on between calls

    async def __aenter__(self) -> Self:
        """Set the nodes up, open them, and let coroutines live until the block is left."""
        await self._calls.enter_block()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Halt the coroutines, close the nodes; what a coroutine raised since the last step is raised here."""
        await self._calls.leave_block(has_failed=error is not None)


def _take_over(given: BehaviourTree | None, tree: BehaviourTree, visitors: Iterable[VisitorBase]) -> None:
    """Give the agent's tree the handlers and visitors of the tree it was built from."""
    if given is not None:
        tree.visitors.extend(given.visitors)
        tree.pre_tick_handlers.extend(given.pre_tick_handlers)
        tree.post_tick_handlers.extend(given.post_tick_handlers)
    tree.visitors.extend(visitors)
