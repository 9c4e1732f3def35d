"""Agents that the tests of the command line run; `here` tells that one is at work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import anyio
from py_trees.behaviour import Behaviour
from py_trees.behaviours import Success
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Selector, Sequence
from pydantic import BaseModel

from jianmu import Agent, AsyncNode, Ephemeral, In, Limits, Node, Status, action, async_action, condition
from jianmu.errors import ModelRefusedError
from jianmu.model import ScriptedModel
from jianmu.nodes import Approve, AskHuman, Choose, Race, Repeat, Timer, default, escalate
from jianmu.prebuilt import ReActState, react, react_agent
from jianmu.stores import SQLiteStore
from jianmu.thread import ThreadState, TitleState, task
from jianmu.tool import ToolCall


class Refund(BaseModel):
    amount: float = 0
    receipt: Annotated[str | None, Ephemeral("run")] = None
    name: str = ""
    colour: str = ""
    is_sure: bool = False


@condition
def is_small(state: Refund) -> bool:
    return state.amount < 100


@async_action
async def pay(context, amount: In[float]) -> dict[str, str]:
    print("paying")  # noqa: T201  # what a node prints must not get into the output
    await anyio.lowlevel.checkpoint()
    return {"receipt": f"{amount:.2f} paid"}


@action
def boom(context) -> None:
    raise ValueError("no\nmoney")


@action
def refuse(context) -> bool:
    return False


class Sleepy(AsyncNode):
    """Sleeps until it is halted, and tells in files that it began and that it was cleaned up."""

    async def update_async(self) -> Status:
        self.here("began")
        await anyio.sleep_forever()
        return Status.SUCCESS

    async def cleanup(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.here("cleaned")

    def here(self, name: str) -> None:
        Path(os.environ["SHOP"], name).touch()


def _sequence(*children: Behaviour) -> Sequence:
    return Sequence("main", memory=True, children=list(children))


def desk() -> Agent[Refund]:
    by_rule = Sequence("by rule", memory=True, children=[is_small("small"), pay("pay", amount="amount")])
    by_hand = Approve("by hand", pay("pay", amount="amount"), message=lambda state: f"Pay {state.amount:.2f}?")
    return Agent(Selector("desk", memory=True, children=[by_rule, by_hand]), state_schema=Refund)


def questions() -> Agent[Refund]:
    children: list[Behaviour] = [
        AskHuman("who", message="What is your name?", into="name"),
        Choose("colour", message="Which colour?", options=["red", "green"], into="colour"),
        AskHuman("sure", message="Are you sure?", answer=bool, into="is_sure"),
        AskHuman("much", message="How much?", answer=float, into="amount", data={"least": 3}),
    ]
    return Agent(Parallel("all", ParallelPolicy.SuccessOnAll(), children=children), state_schema=Refund)


def hurry() -> Agent[Refund]:
    race = Race("race", [AskHuman("who", message="Quick, your name?", into="name"), Timer("over", seconds=0.3)])
    return Agent(_sequence(race, AskHuman("sure", message="Sure?", answer=bool, into="is_sure")), state_schema=Refund)


def broken() -> Agent[Refund]:
    return Agent(_sequence(boom("boom")), state_schema=Refund)


def failing() -> Agent[Refund]:
    return Agent(_sequence(refuse("refuse")), state_schema=Refund)


def refused() -> Agent[ReActState]:
    return react_agent(ScriptedModel([ModelRefusedError("the policy", model="m")]))


def sleepy() -> Agent[Refund]:
    return Agent(_sequence(Sleepy("sleep")), state_schema=Refund)


class Motor(Node):
    """Runs until it is halted, and tells that in a file."""

    def update(self) -> Status:
        return Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        Path(os.environ["SHOP"], "stopped").touch()

    def memento(self) -> int:
        return 1

    def restore(self, value: int) -> None:
        assert value == 1


def motor() -> Agent[Refund]:
    return Agent(Parallel("all", ParallelPolicy.SuccessOnAll(), children=[Motor("motor"), Sleepy("sleep")]))


def asks_then_sleeps() -> Agent[Refund]:
    return Agent(_sequence(AskHuman("who", message="Who?", into="name"), Sleepy("sleep")), state_schema=Refund)


def asks_then_breaks() -> Agent[Refund]:
    return Agent(_sequence(AskHuman("who", message="Who?", into="name"), boom("boom")), state_schema=Refund)


def other_desk() -> Agent[Refund]:
    return Agent(Selector("desk", memory=True, children=[AskHuman("by nobody", message="?")]), state_schema=Refund)


class Charge(AsyncNode):
    """Charges once; with a file `lost` the process is gone before the outcome is known."""

    async def update_async(self) -> Status:
        self.write_state({"receipt": await self.once("charge", self.charge, 3, on_unknown="fail")})
        return Status.SUCCESS

    async def charge(self, amount: int) -> str:
        folder = Path(os.environ["SHOP"])
        with (folder / "charges").open("a") as charges:
            charges.write(f"{amount}\n")
        if (folder / "lost").exists():
            os._exit(9)
        return f"{amount} charged"


def charging() -> Agent[Refund]:
    return Agent(_sequence(Charge("charge")), state_schema=Refund)


def patient() -> Agent[Refund]:
    steps = [escalate("bob", after=2), default("nobody", after=0.1)]
    return Agent(AskHuman("who", message="Who?", into="name", assignee="ada", expires=steps), state_schema=Refund)


def with_store() -> Agent[Refund]:
    store = SQLiteStore(Path(os.environ["SHOP"], "own.db"))
    return Agent(AskHuman("who", message="Who?", into="name"), state_schema=Refund, store=store)


def titled() -> Agent[TitleState]:
    return Agent(Success("done"), TitleState)


def threaded() -> Agent[ThreadState]:
    return Agent(Success("done"), ThreadState)


def helped() -> Agent[ThreadState]:
    asks = task("asks", lambda: AskHuman("who", message="Who?", into="final_answer"), copies=2)
    looks = task("looks", lambda: react("looker", model=ScriptedModel(["It is blue."])), copies=1)
    calls = [[ToolCall(id=name, name=name, arguments={"task": "look"})] for name in ("looks", "asks")]
    return Agent(react(model=ScriptedModel(calls), tools=[asks, looks]), ThreadState)


def limited() -> Agent[Refund]:
    return Agent(Repeat("again", refuse_never("go")), state_schema=Refund, limits=Limits(max_ticks=3))


@action
def refuse_never(context) -> None:
    return None


class Waits(Node):
    def update(self) -> Status:
        return Status.RUNNING


def stalled() -> Agent[Refund]:
    return Agent(_sequence(Waits("wait")))


async def _says_seven(question: object) -> float:
    return 7.0


def with_human() -> Agent[Refund]:
    return Agent(AskHuman("ask", message="?", answer=float, into="amount"), state_schema=Refund, human=_says_seven)


agent = desk()
stock = Sequence("stock", memory=True, children=[Success("fine")])
number = 3
