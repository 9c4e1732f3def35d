"""The trees that are run and killed: loops, questions, effects, and what may stand around them.

Each effect is one line in the notes, under its idempotency key; it stands between two awaits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import sleep_forever
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from pydantic import BaseModel, Field

from jianmu import Agent
from jianmu.engine.journal import OnUnknown
from jianmu.engine.node import AsyncNode, Node
from jianmu.nodes import (
    Approve,
    ForEach,
    InteractiveNode,
    Parallel,
    Race,
    Repeat,
    Request,
    Retry,
    Sequence,
    default,
    escalate,
)

INPUT = {"start": 7, "items": ["a", "b"]}
QUEUED = ("second", "third")
"""The inputs that come later, where there are any."""
Answers = dict[str, Any]


class Order(BaseModel):
    """The state of all of them: the input, what was done, what was said, and what may come twice."""

    start: int = 0
    items: list[str] = Field(default_factory=list)
    log: Annotated[list[str], operator.add] = Field(default_factory=list)
    early: Annotated[list[str], operator.add] = Field(default_factory=list)
    inputs: Annotated[list[str], operator.add] = Field(default_factory=list)
    said: dict[str, Answers] = Field(default_factory=dict)
    text: str = ""


async def turns() -> None:
    """Let all others have some turns."""
    for _ in range(20):
        await checkpoint()


def named(node: Any) -> str:
    """Return a node's name with the rounds that it is in."""
    return ".".join([node.name, *(str(at) for _, at in node.context.origin().rounds)])


class Act(AsyncNode):
    """Do one effect through `once`, and write what came of it."""

    def __init__(self, name: str, *, on_unknown: OnUnknown = "rerun", is_sync: bool = False) -> None:
        super().__init__(name)
        self.on_unknown: OnUnknown = on_unknown
        self.act = self.act_now if is_sync else self.act_slowly

    async def update_async(self) -> Status:
        """Act once."""
        self.context.deps.write("entered", path=self.context.path, start=self.read_state().start)
        self.write_state(
            {"log": [await self.once("act", self.act, named(self), result=str, on_unknown=self.on_unknown)]}
        )
        return Status.SUCCESS

    async def act_slowly(self, receipt: str) -> str:
        """Do the effect between some awaits."""
        await turns()
        self.act_now(receipt)
        await turns()
        return receipt

    def act_now(self, receipt: str) -> str:
        """Do the effect."""
        self.context.deps.write("effect", key=self.context.idempotency_key, receipt=receipt, policy=self.on_unknown)
        return receipt


class Ask(InteractiveNode):
    """Ask, and keep what was said."""

    answers = Answers

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name)
        self.options = options

    def request(self) -> Request:
        """Ask for an answer that tells who gave it."""
        self.context.deps.write("requested", path=self.context.path, start=self.read_state().start)
        return Request(f"{named(self)}?", answer=Answers, **self.options)

    def on_answer(self, answer: Answers) -> Status:
        """Write it."""
        self.context.deps.write("took", of=named(self), answer=answer)
        self.merge_dict("said", {named(self): answer})
        return Status.SUCCESS


class Talk(Act):
    """Act, ask from inside, act again."""

    async def update_async(self) -> Status:
        """Do the three, and write what came of them in one go."""
        self.context.deps.write("entered", path=self.context.path, start=self.read_state().start)
        first = await self.once("first", self.act, f"{named(self)}-first", result=str)
        said = await self.ask(Request(f"{named(self)}?", answer=Answers), key="q")
        self.context.deps.write("took", of=named(self), answer=said)
        then = await self.once("then", self.act, f"{named(self)}-then", result=str)
        self.write_state({"log": [first, then], "said": {**self.read_state().said, named(self): said}})
        return Status.SUCCESS


class Early(AsyncNode):
    """Write, await, write again: the first write may come twice, the second may not."""

    async def update_async(self) -> Status:
        """Write twice."""
        self.context.deps.write("entered", path=self.context.path, start=self.read_state().start)
        self.write_state({"early": [named(self)]})
        await turns()
        self.write_state({"log": [named(self)]})
        return Status.SUCCESS


class Say(Node):
    """Write within a pass."""

    def update(self) -> Status:
        """Write."""
        self.write_state({"log": [named(self)]})
        return Status.SUCCESS


def seq(name: str, *children: Behaviour) -> Sequence:
    """Return a Sequence with memory."""
    return Sequence(name, memory=True, children=list(children))


def par(name: str, *children: Behaviour) -> Parallel:
    """Return a Parallel that wants all to succeed, each once."""
    return Parallel(name, policy=ParallelPolicy.SuccessOnAll(synchronise=True), children=list(children))


def order() -> Behaviour:
    """Return the tree that the crash tests are about."""
    return Repeat("rounds", par("work", Act("charge"), Ask("ask"), Act("ship")), times=2)


def policies() -> Behaviour:
    """Return one with all that can be done about an unknown outcome, and writes around an await."""
    acts = par("acts", Act("rerun"), Act("asks", on_unknown="ask"), Act("fails", on_unknown="fail"))
    return seq("main", Say("begin"), acts, Act("sync", is_sync=True), Early("early"), Say("end"))


def talk() -> Behaviour:
    """Return one that asks from inside of a coroutine, and for an approval."""
    approved = Approve("approve", Act("approved"), message="approve?", show=lambda state: state.start)
    return seq("main", Repeat("rounds", seq("round", Talk("talk"), Early("early")), times=2), approved)


def queued() -> Behaviour:
    """Return one that is given other inputs while it waits."""
    return seq("main", Ask("ask"), Act("charge"))


def deadline() -> Behaviour:
    """Return one whose question is answered by the clock."""
    steps = [escalate("boss", after=60), default({"by": "clock"}, after=60)]
    return seq("main", Ask("ask", expires=steps), Act("charge"))


def each() -> Behaviour:
    """Return one with a branch for each item."""
    return ForEach("each", lambda item, _: seq("item", Act(f"charge-{item}"), Ask(f"ask-{item}")), over="items")


def inner() -> Behaviour:
    """Return one with an agent inside, on a state of its own."""
    agent = Agent(seq("inner", Act("charge"), Ask("ask"), Early("early")), Order)
    node = agent.as_node("agent", inputs={"start": "start"}, outputs={"log": "log", "said": "said"})
    return seq("main", Say("begin"), node, Say("end"))


def halted() -> Behaviour:
    """Return one in which a node that asks is halted, again and again."""
    return Repeat("rounds", Race("race", [seq("slow", Ask("ask"), Act("never")), Act("quick")]), times=2)


class Fail(AsyncNode):
    """Fail, after some time."""

    async def update_async(self) -> Status:
        """Fail."""
        await checkpoint()
        self.context.deps.write("tried")
        return Status.FAILURE


class Big(AsyncNode):
    """Write a large text."""

    async def update_async(self) -> Status:
        """Write it."""
        self.context.deps.write("entered", path=self.context.path, start=self.read_state().start)
        await checkpoint()
        self.write_state({"text": named(self)[-1] * 300_000, "log": [named(self)]})
        return Status.SUCCESS


class Hang(AsyncNode):
    """Be at work until the run is halted, and clean up then; entered again it has nothing left to do."""

    async def update_async(self) -> Status:
        """Wait."""
        self.context.deps.write("entered", path=self.context.path, start=self.read_state().start)
        if not self.context.deps.all("hung"):
            self.context.deps.write("hung")
            self.hang()
            await sleep_forever()
        self.write_state({"log": [named(self)]})
        return Status.SUCCESS

    def hang(self) -> None:
        """Do nothing; what halts the run is hooked in here."""

    async def cleanup(self) -> None:
        """Write that it was here."""
        await checkpoint()
        self.write_state({"text": "cleaned"})
        await checkpoint()


def three() -> Behaviour:
    """Return three questions side by side."""
    return par("all", Ask("a"), Ask("b"), Ask("c"))


def failing() -> Behaviour:
    """Return one that fails three times."""
    return Retry("retry", Fail("fail"), attempts=3)


def big() -> Behaviour:
    """Return one whose state is large, and whose log soon gets a snapshot."""
    return seq(
        "main",
        *(Big(f"big{number}") for number in range(3)),
        Ask("ask"),
        *(Big(f"big{number}") for number in range(3, 6)),
    )


def cancelled() -> Behaviour:
    """Return one that is halted while it is at work."""
    return par("all", Act("charge"), Ask("ask"), Hang("hang"))


@dataclass(frozen=True)
class Shape:
    """A tree and what a run of it is expected to come to.

    Attributes:
        build: makes the tree.
        receipts: the effects, each of which has to happen.
        logged: what the state's log holds at the end, sorted.
        asked: the nodes that ask, with their rounds, sorted.
        said: whose answers the state holds at the end.
        ending: how it is driven on: by answers alone; by the clock; or by answers after other inputs (`queue`), a
            refused attempt (`mend`), or a pruning and a fork (`tidy`).
        is_halted: whether those that ask are halted before anybody can answer, or before they can ask.
    """

    build: Callable[[], Behaviour]
    receipts: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    ending: str = "answer"
    is_halted: bool = False


SWEPT = ("order", "policies", "talk", "queued", "deadline", "each", "inner", "halted", "three", "big", "tidied")
"""The shapes that are killed everywhere; the others are for deaths at one place."""

SHAPES = {
    "order": Shape(
        order,
        receipts=("charge.0", "charge.1", "ship.0", "ship.1"),
        logged=("charge.0", "charge.1", "ship.0", "ship.1"),
        asked=("ask.0", "ask.1"),
        said=("ask.0", "ask.1"),
    ),
    "policies": Shape(
        policies,
        receipts=("asks", "fails", "rerun", "sync"),
        logged=("asks", "begin", "early", "end", "fails", "rerun", "sync"),
    ),
    "talk": Shape(
        talk,
        receipts=("approved", "talk.0-first", "talk.0-then", "talk.1-first", "talk.1-then"),
        logged=("approved", "early.0", "early.1", "talk.0-first", "talk.0-then", "talk.1-first", "talk.1-then"),
        asked=("approve", "talk.0", "talk.1"),
        said=("talk.0", "talk.1"),
    ),
    "queued": Shape(
        queued,
        receipts=("charge",),
        logged=("charge",),
        asked=("ask",),
        said=("ask",),
        ending="queue",
    ),
    "deadline": Shape(
        deadline, receipts=("charge",), logged=("charge",), asked=("ask",), said=("ask",), ending="clock"
    ),
    "each": Shape(
        each,
        receipts=("charge-a.0", "charge-b.1"),
        logged=("charge-a.0", "charge-b.1"),
        asked=("ask-a.0", "ask-b.1"),
        said=("ask-a.0", "ask-b.1"),
    ),
    "inner": Shape(
        inner,
        receipts=("charge",),
        logged=("begin", "charge", "early", "end"),
        asked=("ask",),
        said=("ask",),
    ),
    "halted": Shape(
        halted,
        receipts=("quick.0", "quick.1"),
        logged=("quick.0", "quick.1"),
        asked=("ask.0", "ask.1"),
        is_halted=True,
    ),
    "three": Shape(three, asked=("a", "b", "c"), said=("a", "b", "c"), ending="mend"),
    "failing": Shape(failing),
    "big": Shape(big, logged=tuple(f"big{number}" for number in range(6)), asked=("ask",), said=("ask",)),
    "cancelled": Shape(cancelled, receipts=("charge",), logged=("charge", "hang"), asked=("ask",), said=("ask",)),
    "tidied": Shape(
        order,
        receipts=("charge.0", "charge.1", "ship.0", "ship.1"),
        logged=("charge.0", "charge.1", "ship.0", "ship.1"),
        asked=("ask.0", "ask.1"),
        said=("ask.0", "ask.1"),
        ending="tidy",
    ),
}
