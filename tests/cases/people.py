"""A run that goes on elsewhere, and leaves that ask and act, for the cases of questions and effects."""

from __future__ import annotations

import json
import operator
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector, Sequence
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.outcome import Outcome
from jianmu.engine.request import Request
from jianmu.nodes import AskHuman
from jianmu.stores.sql import SQLStore
from tests.anystore import Stores

SUCCESS, FAILURE, RUNNING, INVALID = Status.SUCCESS, Status.FAILURE, Status.RUNNING, Status.INVALID


class Way(str):
    """How a run is handed on: `here` (not at all), `json`, or `store`, and then by the stores of one kind."""

    __slots__ = ("stores",)
    stores: Stores


@pytest.fixture(
    params=["here", "json", "sqlite", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("memory", "postgres"))]
)
async def way(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> AsyncIterator[Way]:
    """One way of going on elsewhere after the other."""
    stores = Stores(request.param, tmp_path, lambda: request.getfixturevalue("postgres"))
    found = Way(request.param if request.param in {"here", "json"} else "store")
    found.stores = stores
    stores.place()  # the server starts before any time is taken
    yield found
    await stores.close()


class Desk(BaseModel):
    """A state for questions: what was answered, what was done, and a thing to pay for."""

    values: dict[str, Any] = Field(default_factory=dict)
    log: Annotated[list[Any], operator.add] = Field(default_factory=list)
    amount: int = 5
    note: str = ""


class Relay:
    """A run that is handed from agent to agent: not at all, as JSON text, or by stores on the same threads.

    Args:
        way: how.
        build: makes the tree, anew for each agent.
        schema: the state's schema.
        options: the agents' own.
    """

    def __init__(self, way: Way, build: Callable[[], Behaviour], schema: Any = Desk, **options: Any) -> None:
        self.way = way
        self._name = way.stores.apart()
        self._build = build
        self._schema = schema
        self.clock = options.setdefault("clock", VirtualClock(autojump=True))
        self._options = options
        self.agent = self._new()

    def _new(self) -> Agent[Any]:
        store = {"store": self.store()} if self.way == "store" else {}
        return Agent(self._build(), self._schema, **self._options, **store)

    def store(self) -> SQLStore:
        """Return one more store on the run's thread."""
        return self.way.stores(self._name)

    async def begin(self, *args: Any, **call: Any) -> Outcome:
        """Run until the first question."""
        return await self.agent.run_until_suspend(*args, thread_id="t1", **call)

    async def move(self, **changes: Any) -> Agent[Any]:
        """Go on in an agent that knows nothing of the one before but what was kept."""
        self._options.update(changes)
        if self.way == "json":
            text = json.dumps(self.agent.dump_checkpoint())
            self.agent = self._new()
            self.agent.load_checkpoint(json.loads(text))
        elif self.way == "store":
            self.agent = self._new()
            await self.agent.load("t1")
        return self.agent

    async def resume(self, answer: Any, path: str | None = None, **call: Any) -> Outcome:
        """Move, answer the question of a node, and go on."""
        await self.move()
        id = None if path is None else self.id_of(path)
        return await self.agent.resume(answer, suspension_id=id, **call)

    def id_of(self, path: str) -> str:
        """Return the id of the open question of a node."""
        return next(question.id for question in self.agent.interaction.pending if question.path == path)

    @property
    def values(self) -> dict[str, Any]:
        """What the answers and results were written to."""
        return dict(self.agent.state.values)

    @property
    def pending(self) -> dict[str, str]:
        """The ids of the open questions, by path."""
        return {question.path: question.id for question in self.agent.interaction.pending}


def ask(name: str, answer: Any = Any, **options: Any) -> AskHuman:
    """Return a leaf that asks and keeps the answer under its name."""
    return AskHuman(name, message=f"{name}?", answer=answer, into=f"values.{name}", **options)


def seq(name: str, *children: Behaviour, memory: bool = True) -> Sequence:
    """Return a Sequence."""
    return Sequence(name, memory=memory, children=list(children))


def sel(name: str, *children: Behaviour, memory: bool = True) -> Selector:
    """Return a Selector."""
    return Selector(name, memory=memory, children=list(children))


def par(name: str, *children: Behaviour) -> Parallel:
    """Return a Parallel that wants all to succeed, each once."""
    return Parallel(name, policy=ParallelPolicy.SuccessOnAll(synchronise=True), children=list(children))


class Note(Node):
    """A plain leaf that adds its name to a list, and the way it was entered to the state."""

    def __init__(self, name: str, done: list[str], result: Status = SUCCESS) -> None:
        super().__init__(name)
        self.done = done
        self.result = result

    def update(self) -> Status:
        """Note it."""
        self.done.append(self.name)
        self.write_state({"log": [self.name]})
        return self.result


class Work(AsyncNode):
    """A coroutine that takes so many seconds, then adds its name to a list and to the state."""

    def __init__(self, name: str, done: list[str], seconds: float = 0.1, result: Status = SUCCESS) -> None:
        super().__init__(name)
        self.done = done
        self.seconds = seconds
        self.result = result

    async def update_async(self) -> Status:
        """Take the time."""
        await self.context.clock.sleep(self.seconds)
        self.done.append(self.name)
        self.write_state({"log": [self.name]})
        return self.result


class Talk(AsyncNode):
    """A coroutine given as a function of the node; no result is SUCCESS."""

    def __init__(self, name: str, function: Callable[[Any], Awaitable[Status | None]]) -> None:
        super().__init__(name)
        self.function = function
        self.entries = 0

    async def update_async(self) -> Status:
        """Await the function."""
        self.entries += 1
        return await self.function(self) or SUCCESS


class AskInside(AsyncNode):
    """A coroutine that asks one question and keeps the answer under its name."""

    def __init__(self, name: str, answer: Any = Any, **options: Any) -> None:
        super().__init__(name)
        self.request = Request(f"{name}?", answer=answer, **options)

    async def update_async(self) -> Status:
        """Ask."""
        said = await self.ask(self.request)
        self.merge_dict("values", {self.name: said})
        return SUCCESS


class AskAgain(InteractiveNode):
    """Asks until it is told a whole number; notes what it is told, and how often it was entered and asked."""

    def __init__(self, name: str, told: list[Any]) -> None:
        super().__init__(name)
        self.told = told

    def request(self) -> Request:
        """Ask for anything."""
        self.told.append("request")
        return Request("a number?", answer=Any)

    def on_answer(self, answer: Any) -> Status | Request:
        """Take a number; ask again for all else."""
        self.told.append(answer)
        if not isinstance(answer, int):
            return Request(f"{answer!r} is no number; a number?", answer=Any)
        self.merge_dict("values", {self.name: answer})
        return SUCCESS
