"""Leaves that note what happens to them, and ways to run, cancel and watch an agent, for the cases."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Sequence as PySequence
from pydantic import BaseModel, ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import Event
from jianmu.engine.node import AsyncNode, Node

SUCCESS, FAILURE, RUNNING, INVALID = Status.SUCCESS, Status.FAILURE, Status.RUNNING, Status.INVALID


class World(BaseModel):
    """A state with a bit of everything that the cases turn."""

    model_config = ConfigDict(extra="allow")

    n: int = 0
    a: int = 0
    b: int = 0
    go: bool = False
    ready: bool = False
    passed: bool = False
    late: bool = False
    cleaned: bool = False
    text: str = ""
    log: Annotated[list[str], operator.add] = Field(default_factory=list)


class Diary:
    """What happened, to whom and when: `("start", "A")` at 0.1 s."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock
        self.lines: list[tuple[float, str, str]] = []

    def note(self, what: str, who: str) -> None:
        """Write a line."""
        self.lines.append((round(self.clock.now(), 6) if self.clock else 0.0, what, who))

    def at(self, what: str, who: str) -> list[float]:
        """Return when it happened."""
        return [time for time, *line in self.lines if line == [what, who]]

    def count(self, what: str, who: str) -> int:
        """Return how often it happened."""
        return len(self.at(what, who))

    def order(self, *whats: str) -> list[str]:
        """Return what happened, in order, as "start A"; all, or only lines of these kinds."""
        return [f"{what} {who}" for _, what, who in self.lines if not whats or what in whats]


class Sleep(AsyncNode):
    """A leaf of so many seconds; notes start, end (with its result), unwound, cleanup and clean."""

    alive = 0

    def __init__(
        self,
        name: str,
        seconds: float,
        diary: Diary | None = None,
        result: Status = SUCCESS,
        cleanup: float = 0.0,
    ) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.diary = diary or Diary()
        self.result = result
        self.cleanup_seconds = cleanup
        self.most_alive = 0

    async def update_async(self) -> Status:
        """Sleep."""
        self.diary.note("start", self.name)
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        halted = True
        try:
            await self.work()
            halted = False
        finally:
            if halted:
                self.diary.note("unwound", self.name)
            else:
                self.alive -= 1
        self.diary.note("end", self.name)
        return self.result

    async def work(self) -> None:
        """Do what takes the time."""
        await self.context.clock.sleep(self.seconds)

    async def cleanup(self) -> None:
        """Take the time that was asked for."""
        self.diary.note("cleanup", self.name)
        if self.cleanup_seconds:
            await self.context.clock.sleep(self.cleanup_seconds)
        self.alive -= 1
        self.diary.note("clean", self.name)


class Forever(Sleep):
    """A leaf that ends only by a halt."""

    def __init__(self, name: str, diary: Diary | None = None, cleanup: float = 0.0) -> None:
        super().__init__(name, 0.0, diary, cleanup=cleanup)

    async def work(self) -> None:
        """Wait for ever."""
        await anyio.sleep_forever()


class Scripted(Node):
    """A plain leaf of jianmu that returns these statuses, the last one again and again; notes its callbacks."""

    def __init__(self, name: str, *statuses: Status, diary: Diary | None = None) -> None:
        super().__init__(name)
        self.left = list(statuses)
        self.diary = diary or Diary()
        self.ticks = 0

    def initialise(self) -> None:
        """Note the entry."""
        self.diary.note("initialise", self.name)

    def update(self) -> Status:
        """Return the next status."""
        self.ticks += 1
        self.diary.note("update", self.name)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def terminate(self, new_status: Status) -> None:
        """Note the end."""
        self.diary.note(f"terminate {new_status.name}", self.name)


class Plain(Behaviour):
    """A leaf of py_trees, which knows nothing of jianmu: these statuses, the last one again and again."""

    def __init__(self, name: str, *statuses: Status) -> None:
        super().__init__(name)
        self.left = list(statuses)
        self.ticks = 0

    def update(self) -> Status:
        """Return the next status."""
        self.ticks += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


class Flag(Node):
    """A condition: SUCCESS while the field is true, else `otherwise`."""

    def __init__(self, name: str, field: str, otherwise: Status = FAILURE, diary: Diary | None = None) -> None:
        super().__init__(name)
        self.field = field
        self.otherwise = otherwise
        self.diary = diary or Diary()

    def update(self) -> Status:
        """Look at the field."""
        self.diary.note("look", self.name)
        return SUCCESS if getattr(self.read_state(), self.field) else self.otherwise


class Do(Node):
    """A leaf that calls a function with itself; what it returns, else SUCCESS, is its status."""

    def __init__(self, name: str, function: Callable[[Do], Status | None]) -> None:
        super().__init__(name)
        self.function = function
        self.ticks = 0

    def update(self) -> Status:
        """Call the function."""
        self.ticks += 1
        return self.function(self) or SUCCESS


class DoAsync(AsyncNode):
    """A leaf that awaits a function of itself; what it returns, else SUCCESS, is its status."""

    def __init__(
        self,
        name: str,
        function: Callable[[DoAsync], Awaitable[Status | None]],
        cleanup: Callable[[DoAsync], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(name)
        self.function = function
        self.cleaner = cleanup
        self.starts = 0
        self.cleanups = 0

    async def update_async(self) -> Status:
        """Await the function."""
        self.starts += 1
        return await self.function(self) or SUCCESS

    async def cleanup(self) -> None:
        """Await the other function."""
        self.cleanups += 1
        if self.cleaner is not None:
            await self.cleaner(self)


def guarded(field: str, child: Behaviour, diary: Diary | None = None) -> PySequence:
    """Return a child that runs while a field is true: a reactive Sequence with a condition before it."""
    name = child.name
    return PySequence(f"guarded {name}", memory=False, children=[Flag(f"guard {name}", field, diary=diary), child])


# Running and watching


async def run(agent: Agent[Any], *args: Any, within: float = 5.0, **call: Any) -> Status:
    """Run an agent, for at most so many real seconds."""
    with anyio.fail_after(within):
        return await agent.run(*args, **call)


async def run_with(agent: Agent[Any], *others: Callable[[], Awaitable[Any]], within: float = 5.0) -> Status:
    """Run an agent beside some coroutine functions, which end with it; return its status or raise what it raised."""
    found: list[Any] = []
    with anyio.fail_after(within):
        async with anyio.create_task_group() as group:
            for other in others:
                group.start_soon(other)
            try:
                found.append(await agent.run())
            except Exception as error:
                found.append(error)
            group.cancel_scope.cancel()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


async def cancelled(agent: Agent[Any], clock: VirtualClock, seconds: float, within: float = 5.0) -> None:
    """Run an agent and cancel the run `seconds` later on the virtual clock; return when it has ended."""
    with anyio.fail_after(within):
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await clock.sleep(seconds)
                scope.cancel()

            with anyio.CancelScope() as scope:
                group.start_soon(stop)
                await agent.run()
                raise AssertionError("the run ended before it was cancelled")


def passes_of(agent: Agent[Any], clock: VirtualClock | None = None) -> list[float]:
    """Return a list to which the time of each pass of an agent is added."""
    times: list[float] = []
    agent.tree.pre_tick_handlers.append(lambda _tree: times.append(round(clock.now(), 6) if clock else 0.0))
    return times


def events_of(agent: Agent[Any]) -> list[Event]:
    """Return a list to which each event of an agent is added."""
    events: list[Event] = []
    agent.runner.context.events.add(events.append)
    return events


def of_kind(events: Sequence[Event], kind: type[Event]) -> list[Any]:
    """Return the events of one class."""
    return [event for event in events if isinstance(event, kind)]


def tasks_alive() -> set[int]:
    """Return the ids of the tasks of this loop."""
    return {task.id for task in anyio.get_running_tasks()}


@contextmanager
def nothing_left(agent: Agent[Any]) -> Iterator[None]:
    """Check that no task was left behind by what is done in the block."""
    before = tasks_alive()
    try:
        yield
    finally:
        left = tasks_alive() - before
        assert not left, f"tasks are alive: {[task.name for task in anyio.get_running_tasks() if task.id in left]}"
        assert_quiet(agent)


def assert_quiet(agent: Agent[Any]) -> None:
    """Check that the agent itself knows of no coroutine."""
    tasks = agent.runner.tasks
    assert not tasks.lives
    assert not tasks.wanted
    assert not tasks.halting
    assert not tasks.cleaning
    assert not agent.runner.host.is_open
    assert not agent.runner.context.deadlines
