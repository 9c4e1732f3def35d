"""Tools for tests: time by hand, people and models by script, one node alone, what was ticked; checks of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar  # Any: JSON, and the user's own types

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.visitors import VisitorBase
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import Clock, RealClock, VirtualClock
from jianmu.engine.questions import Suspension
from jianmu.engine.state import StateChange, StateManager
from jianmu.engine.tree import path_of, walk
from jianmu.model import ScriptedModel, Turn
from jianmu.testing.store import STORE_CHECKS, check_store

__all__ = [
    "STORE_CHECKS",
    "After",
    "InTurn",
    "NodeBench",
    "ScriptedHuman",
    "ScriptedModel",
    "TickRecorder",
    "Turn",
    "VirtualClock",
    "check_store",
    "node_context",
    "run_to_quiescence",
]

S = TypeVar("S", bound=BaseModel)
CALLBACKS = ("initialise", "update", "terminate")


@dataclass(frozen=True)
class After:
    """An answer that is given `seconds` after the question, on the agent's clock."""

    seconds: float
    value: Any = None  # Any: JSON


@dataclass(frozen=True)
class InTurn:
    """Answers to the questions that one node asks one after the other."""

    values: Sequence[Any]  # Any: JSON, or After


class ScriptedHuman:
    """Answers by script: `Agent(human=ScriptedHuman({"main/ask": True}))`.

    Use it as a block, `with ScriptedHuman({...}) as human:`, and an answer that was not asked for fails
    the test when the block is left; a question without an answer fails the run in any case.

    Args:
        answers: what to say, by the asking node's path, or by (path, key) where it asks several things.
    """

    def __init__(self, answers: Mapping[str | tuple[str, str], Any]) -> None:  # Any: JSON, After or InTurn
        self._left: dict[str | tuple[str, str], list[Any]] = {
            place: list(said.values) if isinstance(said, InTurn) else [said] for place, said in answers.items()
        }
        self._clock: Clock = RealClock()

    def use_clock(self, clock: Clock) -> None:
        """Measure `After` on this clock; the agent calls it."""
        self._clock = clock

    async def __call__(self, question: Suspension) -> Any:  # Any: JSON
        """Return the answer to a question, when its time has come."""
        for place in ((question.path, question.key), question.path):
            if self._left.get(place):
                said = self._left[place].pop(0)
                if not isinstance(said, After):
                    return said
                await self._clock.sleep(said.seconds)
                return said.value
        raise AssertionError(f"no answer is left for '{question.path}' (key '{question.key}'): {question.message}")

    def check(self) -> None:
        """Fail if an answer was not asked for."""
        unused = [place for place, values in self._left.items() if values]
        assert not unused, f"these answers were not asked for: {unused}"

    def __enter__(self) -> Self:
        """Begin a block at whose end all answers must have been asked for."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Check that all answers were asked for, unless the test has failed anyway."""
        if error is None:
            self.check()


@dataclass
class TickRecorder:
    """Records what an agent's tree does.

    Attributes:
        passes: for each pass, the nodes visited and their statuses, by path, in the order of the visits.
        callbacks: ("initialise" | "update" | "terminate", path), in order.
        writes: (writer's path, names of the fields), in order.
    """

    agent: Agent[Any]  # Any: any schema
    passes: list[dict[str, Status]] = field(default_factory=list)
    callbacks: list[tuple[str, str]] = field(default_factory=list)
    writes: list[tuple[str | None, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin to record."""
        self._visitor = _Visitor(self)
        self.agent.tree.visitors.append(self._visitor)
        self._unsubscribe = self.agent.state_manager.subscribe(self._note_write)
        for node in walk(self.agent.root):
            for name in CALLBACKS:
                self._listen(node, name)

    def stop(self) -> None:
        """End the record and leave the tree as it was."""
        self.agent.tree.visitors.remove(self._visitor)
        self._unsubscribe()
        for node in walk(self.agent.root):
            for name in CALLBACKS:
                if name in vars(node):
                    delattr(node, name)

    def count(self, callback: str, path: str) -> int:
        """Return how often a callback of a node was called."""
        return self.callbacks.count((callback, path))

    def _note_write(self, change: StateChange) -> None:
        if not change.is_runtime:
            self.writes.append((change.writer, tuple(change.fields)))

    def _listen(self, node: Behaviour, name: str) -> None:
        """Put a callback that records in front of a node's own."""
        inner = getattr(node, name)
        path = path_of(node)

        def recorded(*args: Any) -> Any:  # Any: stands before any callback
            self.callbacks.append((name, path))
            return inner(*args)

        setattr(node, name, recorded)


class _Visitor(VisitorBase):
    """Notes the nodes that a pass visits."""

    def __init__(self, recorder: TickRecorder) -> None:
        super().__init__(full=False)
        self._recorder = recorder

    def initialise(self) -> None:
        """Begin the record of a pass."""
        self._recorder.passes.append({})

    def run(self, behaviour: Behaviour) -> None:
        """Note one node."""
        self._recorder.passes[-1][path_of(behaviour)] = behaviour.status


async def run_to_quiescence(agent: Agent[Any], most: int = 1000) -> Status:  # Any: any schema
    """Step an agent until its tree has a result, or until a step changes nothing any more.

    Args:
        agent: the agent; its coroutines are waited for after each step.
        most: steps after which the tree counts as one that never comes to rest.

    Returns:
        The root's status.
    """
    for _ in range(most):
        before = _picture(agent)
        await agent.step(settle=True)
        if agent.status is not Status.RUNNING or _picture(agent) == before:
            return agent.status
    raise AssertionError(f"the tree did not come to rest in {most} steps")


def _picture(agent: Agent[Any]) -> tuple[object, ...]:  # Any: any schema
    """Return what must stay the same for a tree to be at rest."""
    statuses = tuple(node.status for node in walk(agent.root))
    results = tuple(activity.finished for activity in agent.runner.tasks.waiting)
    return agent.state_manager.version, statuses, results


class NodeBench(Generic[S]):
    """A state on which single nodes are tried; see `node_context`."""

    def __init__(self, state: StateManager[S], deps: Any, clock: Clock | None) -> None:  # Any: the user's own
        self.manager = state
        self._deps = deps
        self._clock = clock

    @property
    def state(self) -> S:
        """The current snapshot."""
        return self.manager.get()

    def agent(self, node: Behaviour, **options: Any) -> Agent[S]:  # Any: the agent's own
        """Return an agent whose tree is this node alone."""
        return Agent(node, state=self.manager, deps=self._deps, clock=self._clock, **options)

    def tick(self, node: Behaviour) -> Status:
        """Tick a node that is no coroutine once and return its status."""
        agent = self.agent(node)
        agent.step_sync()
        return agent.status

    async def run(self, node: Behaviour) -> Status:
        """Run a node to its end and return its status."""
        return await self.agent(node).run()


def node_context(
    schema: type[S],
    values: Mapping[str, Any] | None = None,
    *,
    deps: Any = None,  # Any: the user's own object
    clock: Clock | None = None,
) -> NodeBench[S]:
    """Return a state on which one node can be tried without a tree.

    Args:
        schema: the state's schema.
        values: the fields to start with.
        deps: what the node finds as `self.context.deps`.
        clock: by default the real one.
    """
    manager: StateManager[S] = StateManager(schema)
    manager.initialize(values or {})
    return NodeBench(manager, deps, clock)
