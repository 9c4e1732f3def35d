"""Trees that are suspended in one process and go on in another: `python -m tests.engine.elsewhere BACKEND < jobs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import anyio
from py_trees import behaviours, decorators, timers
from py_trees.behaviour import Behaviour
from py_trees.common import OneShotPolicy, ParallelPolicy
from py_trees.composites import Parallel
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import RealClock, VirtualClock
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request, fail
from jianmu.errors import InvalidAnswerError
from jianmu.nodes import (
    Approve,
    AskHuman,
    Catch,
    Choose,
    Cooldown,
    Finally,
    ForEach,
    Guard,
    IfThenElse,
    Invert,
    LoopUntilSuccess,
    Race,
    Repeat,
    Retry,
    Switch,
    Timeout,
    Timer,
    Utility,
    WaitFor,
)
from tests.cases.people import FAILURE, SUCCESS, AskAgain, AskInside, Desk, Note, Talk, Work, ask, par, seq


class Address(BaseModel):
    """What a person is asked for."""

    street: str
    since: date = date(2000, 1, 1)


def stock() -> Behaviour:
    """Return py_trees' own nodes that keep something, looked at again before and after a question."""
    queue = behaviours.StatusQueue("queue", queue=[SUCCESS] * 5, eventually=FAILURE)
    kept = [
        behaviours.SuccessEveryN("every", n=2),
        behaviours.Periodic("periodic", n=3),
        queue,
        decorators.Count("count", behaviours.Success("yes")),
        decorators.OneShot("shot", behaviours.Success("once"), policy=OneShotPolicy.ON_SUCCESSFUL_COMPLETION),
        decorators.Repeat("repeat", behaviours.Success("again"), num_success=1),
        decorators.Retry("retry", behaviours.Success("try"), num_failures=2),
        behaviours.TickCounter("ticks", duration=0, completion_status=SUCCESS),
        timers.Timer("timer", duration=0.0),
    ]
    looked_at = [decorators.RunningIsSuccess("r", decorators.FailureIsSuccess("f", node)) for node in kept]
    limited = decorators.Timeout(
        "limit", decorators.Inverter("not", decorators.Inverter("nor", ask("q"))), duration=900
    )
    tries = decorators.Retry("tries", seq("turn", limited, behaviours.SuccessEveryN("third", n=3)), num_failures=5)
    rounds = decorators.Repeat("rounds", seq("round", tries, ask("again")), num_success=2)
    return seq("main", *looked_at, rounds, memory=False)


def ours() -> Behaviour:
    """Return jianmu's nodes, each in the middle of something."""
    yes: Callable[[Any], bool] = lambda _: True  # noqa: E731  # a condition, given to several nodes
    return par(
        "main",
        seq("a", Note("done", []), Timeout("limit", ask("q1"), seconds=50), Timer("wait", seconds=2), Note("n1", [])),
        Repeat("b", seq("round", ask("q2"), Note("n2", [])), times=2),
        LoopUntilSuccess("c", Invert("not", AskInside("q3")), max_iterations=2),
        Retry("d", seq("try", ask("q4"), Note("n4", [], FAILURE)), attempts=2, backoff=3),
        Guard("e", Catch("catch", Finally("f", AskInside("q5"), lambda _: None), on=ValueError), condition=yes),
        Switch("g", lambda s: s.amount, {4: Note("four", []), 5: ask("q6")}),
        IfThenElse("h", lambda s: s.amount > 9, Note("no", []), ask("q7")),
        Utility("i", [ask("low"), ask("q8")], scores=lambda _: [1, 2]),
        Race("j", [seq("k", ask("q9"), Note("fails", [], FAILURE)), AskInside("q10")]),
        ForEach("l", lambda item, _: seq(item, AskInside(item), Note("n", [])), over=lambda _: ["x", "y"], limit=1),
        seq("m", Cooldown("cool", Note("warm", []), seconds=60), ask("q11"), memory=False),
        Approve("o", Work("pay", []), message="?", show=lambda s: s.amount),
        Choose("p", message="?", options=["red", 2], into="values.p"),
        WaitFor("s", seconds=900, into="values.s"),
        AskAgain("t", []),
    )


def nested() -> Behaviour:
    """Return an agent in an agent in an agent."""

    def inner() -> Agent[Any]:
        return Agent(seq("deep", Note("n", []), Repeat("twice", AskInside("q"), times=2)), Desk)

    middle = Agent(seq("mid", inner().as_node("first", outputs={"values.in": "values"}), ask("z")), Desk)
    return seq("main", middle.as_node("agent", inputs={"note": "note"}, outputs={"values": "values", "note": "note"}))


def typed() -> Behaviour:
    """Return questions whose answers are more than JSON."""

    async def talk(node: Any) -> None:
        when: date = await node.ask(Request("when?", answer=date), key="when")
        where: Address = await node.ask(Request("where?", answer=Address), key="where")
        node.merge_dict("values", {"talk": [type(when).__name__, when.year, type(where).__name__, where.since.year]})

    return par("main", ask("date", date), ask("list", list[Address]), Talk("talk", talk))


def effects() -> Behaviour:
    """Return effects between questions; the real one is in the deps."""

    async def talk(node: Any) -> None:
        async def pay(amount: int) -> int:
            node.context.deps.append(amount)
            return amount

        first = await node.once("pay", pay, 5)
        a = await node.ask(Request("a?"), key="a")
        second = await node.once("log", pay, 7)
        b = await node.ask(Request("b?"), key="b")
        node.merge_dict("values", {"talk": [first, a, second, b]})

    return seq("main", Retry("retry", Talk("talk", talk), attempts=2), ask("last", expires=[fail(after=900)]))


def looks() -> Behaviour:
    """Return a choice that is made anew whenever it is looked at, over nodes that stand by their results."""
    odd, even = (AskHuman(name, message="?", answer=int, into="amount") for name in ("odd", "even"))
    choice = IfThenElse("choice", lambda s: s.amount % 2 == 1, odd, even)
    return Parallel("main", ParallelPolicy.SuccessOnAll(synchronise=False), children=[choice, ask("last")])


TREES: dict[str, Callable[[], Behaviour]] = {
    "stock": stock,
    "ours": ours,
    "nested": nested,
    "typed": typed,
    "effects": effects,
    "looks": looks,
}


def build(tree: str, **options: Any) -> Agent[Any]:
    """Return an agent with a tree of its own."""
    clock = RealClock() if tree == "stock" else VirtualClock(autojump=True)
    return Agent(TREES[tree](), Desk, clock=clock, deps=[], **options)


async def go_on(agent: Agent[Any], answers: list[list[Any]], wrong: list[list[Any]]) -> dict[str, Any]:
    """Try the wrong answers, then give the others, by path in turn; return all that there is to see."""
    told: dict[str, Any] = {"asked": sorted([one.path, one.id] for one in agent.interaction.pending), "refused": 0}
    for path, payload in wrong:
        try:
            await agent.resume(payload, suspension_id=_id(agent, path))
        except InvalidAnswerError:
            told["refused"] += 1
    for path, payload in answers:
        await agent.interaction.answer(Answer(_id(agent, path), payload, by="ann"))
        outcome = await agent.recover()
    data = agent.dump_checkpoint()
    names = data["position"]["paths"]
    return {
        **told,
        "status": outcome.status.name,
        "state": data["state"]["fields"],
        "inner": {path: state["fields"] for path, state in data["inner"].items()},
        "open": sorted([one.path, one.id] for one in outcome.suspensions),
        "position": {names[int(at)]: one.get("status") for at, one in data["position"]["nodes"].items()},
        "journal": data["journal"],
        "answers": sorted(
            [one["question"]["id"], one["answer"]] for one in data["questions"]["records"] if one["answer"]
        ),
        "deps": agent.runner.context.deps,
    }


def _id(agent: Agent[Any], path: str) -> str:
    """Return the id of the open question of a node, or of a node and a key."""
    path, _, key = path.partition("#")
    return next(one.id for one in agent.interaction.pending if one.path == path and (not key or one.key == key))


async def work_off(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Do what another process has left."""
    found: list[dict[str, Any]] = []
    for job in jobs:
        agent = build(job["tree"])
        agent.load_checkpoint(job["checkpoint"])
        found.append(await go_on(agent, job["answers"], job["wrong"]))
    return found


def main() -> None:
    """Do it as a program."""
    result = anyio.run(work_off, json.load(sys.stdin), backend=sys.argv[1])
    json.dump(result, sys.stdout)
