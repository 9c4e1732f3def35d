"""A process that holds threads of a store and does what it is told, line by line; for races between processes.

It reads commands as JSON lines and answers each with one; what a leaf does in between it tells by lines of its own.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from py_trees.behaviour import Behaviour

import jianmu.engine.holding
import jianmu.engine.lease
from jianmu.agent import Agent
from jianmu.engine.questions import Answer
from jianmu.errors import JianmuError
from tests.anystore import opened
from tests.cases.people import AskInside, Desk, Note, Talk, ask, par, seq


def tell(**what: Any) -> None:
    """Tell something to whoever started this process."""
    print(json.dumps(what), flush=True)  # noqa: T201  # its voice


async def told() -> dict[str, Any]:
    """Return the next command."""
    line = await anyio.to_thread.run_sync(sys.stdin.readline)
    if not line:
        raise SystemExit
    return json.loads(line)


def pays(effects: str) -> Talk:
    """Return a leaf with an effect in a file, which waits for a word in the middle."""

    async def pay() -> str:
        with Path(effects).open("a") as file:  # noqa: ASYNC230  # one line
            file.write("paid\n")
        tell(event="paying")
        await told()
        return "paid"

    async def talk(node: Any) -> None:
        node.write_state({"note": await node.once("pay", pay)})

    return Talk("pay", talk)


async def hold(node: Any) -> None:
    """Hold the thread until there is a word, then write."""
    node.write_state({"log": ["before"]})
    tell(event="holding")
    await told()
    node.write_state({"log": ["after"]})


TREES = {
    "pay": lambda effects: seq("main", ask("q"), pays(effects), Note("end", [])),
    "hold": lambda _: seq("main", Talk("hold", hold), Note("end", [])),
    "three": lambda _: par("main", ask("a", str), AskInside("b", str), ask("c", int)),
}


class Worker:
    """One agent, and stores for what needs no agent."""

    def __init__(self, tree: str, effects: str, place: list[str]) -> None:
        self.place = place
        root: Behaviour = TREES[tree](effects)
        self.agent = Agent(root, Desk, store=opened(*place), poll_answers=0.05)

    async def call(self, do: str, **given: Any) -> Any:
        """Do one thing, and return what came of it."""
        return await getattr(self, f"do_{do}")(**given)

    async def do_run(self, thread: str, **call: Any) -> Any:
        """Run until the first question."""
        outcome = await self.agent.run_until_suspend(thread_id=thread, **call)
        return [outcome.status.name, [one.id for one in outcome.suspensions]]

    async def do_resume(self, thread: str, answer: Any) -> Any:
        """Answer the only question and go on."""
        return (await self.agent.resume(answer, thread_id=thread)).status.name

    async def do_recover(self, thread: str) -> Any:
        """Go on."""
        return (await self.agent.recover(thread)).status.name

    async def do_answer(self, thread: str, payloads: dict[str, Any]) -> Any:
        """Answer several questions at once."""
        await self.agent.load(thread)
        await self.agent.interaction.answer(*(Answer(id, payload) for id, payload in payloads.items()))
        return "answered"

    async def do_race(self, id: str, count: int, now: str, name: str) -> Any:
        """Answer one question several times at once, each by a store of its own."""
        found: list[str] = []

        async def answer(number: int) -> None:
            async with opened(*self.place) as store:
                try:
                    await store.inbox.answer(Answer(id, f"{name} {number}"), now=datetime.fromisoformat(now))
                    found.append("accepted")
                except JianmuError as error:
                    found.append(type(error).__name__)

        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(answer, number)
        return found

    async def do_sweep(self, now: str) -> Any:
        """Carry out what is due."""
        async with opened(*self.place) as store:
            return ["expired" for _ in await store.sweep(datetime.fromisoformat(now))]


async def main(tree: str, effects: str, seconds: str, every: str, place: list[str]) -> None:
    """Do what is told until there is no more."""
    jianmu.engine.lease.SECONDS = jianmu.engine.holding.SECONDS = float(seconds)
    jianmu.engine.lease.EVERY = float(every)
    worker = Worker(tree, effects, place)
    tell(event="ready")
    while True:
        command = await told()
        if "do" not in command:  # a word for a leaf that has gone meanwhile
            continue
        try:
            tell(result=await worker.call(**command))
        except JianmuError as error:
            tell(error=type(error).__name__)


def run() -> None:
    """Be a worker, as the arguments say."""
    backend, *rest = sys.argv[1:]
    anyio.run(main, *rest[:4], rest[4:], backend=backend)
