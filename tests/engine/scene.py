"""A tree with a bit of everything that can be left behind, for tests of how runs end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel

from jianmu.agent import Agent
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.request import Request
from tests.cases.leaves import RUNNING, SUCCESS, World, assert_quiet, tasks_alive


class Scene:
    """Two busy leaves, one with something to close, and a trigger that ends the run while `is_armed`.

    Args:
        trigger: makes the leaf that ends the run.
        options: for the agent.
    """

    def __init__(self, trigger: Callable[[Scene], Behaviour], **options: Any) -> None:
        self.is_armed = True
        self.error: BaseException = ValueError("armed")
        self.begun = 0
        self.live: set[str] = set()
        self.opened: list[str] = []
        leaves = [Busy(self), Shielded(self), trigger(self), Opens(self)]
        root = Parallel("all", ParallelPolicy.SuccessOnAll(), children=leaves)
        self.agent: Agent[World] = Agent(root, World, human=self.answer, **options)
        self.before: set[int] = set()

    def fire(self) -> None:
        """Raise the error, while armed."""
        if self.is_armed:
            raise self.error

    async def answer(self, _question: object) -> bool:
        """Answer as the human does, after a few turns of the loop."""
        await hops(2)
        return True

    def begin(self) -> None:
        """Note which tasks there were before."""
        self.before = tasks_alive()

    def check(self) -> None:
        """Check that no task is alive, every cleanup has run, and what was opened is closed."""
        left = tasks_alive() - self.before
        assert not left, [task.name for task in anyio.get_running_tasks() if task.id in left]
        assert_quiet(self.agent)
        assert self.live == set()
        assert self.opened == []

    async def check_again(self) -> None:
        """Check, then run once more without anything that ends the run early."""
        self.check()
        self.is_armed = False
        with anyio.fail_after(5):
            assert await self.agent.run(on_new_input="withdraw") is SUCCESS
        self.check()


async def hops(count: int) -> None:
    """Wait for so many turns of the loop, without any time."""
    for _ in range(count):
        await checkpoint()


class Busy(AsyncNode):
    """Waits for ever while armed; its cleanup takes a few turns."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("busy")
        self.scene = scene

    async def update_async(self) -> Status:
        """Wait."""
        self.scene.live.add(self.name)
        self.scene.begun += 1
        await self.work()
        self.scene.live.discard(self.name)
        return SUCCESS

    async def work(self) -> None:
        """Wait for ever, or for a few turns."""
        await (anyio.sleep_forever() if self.scene.is_armed else hops(3))

    async def cleanup(self) -> None:
        """Take a few turns."""
        await hops(3)
        self.scene.live.discard(self.name)


class Shielded(Busy):
    """The same with its cleanup in a `finally` under a shield of its own."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.name = "shielded"

    async def work(self) -> None:
        """Wait, and clean up."""
        try:
            await super().work()
        finally:
            with anyio.CancelScope(shield=True):
                await hops(3)
            self.scene.live.discard(self.name)

    async def cleanup(self) -> None:
        """Have nothing left to do."""
        assert self.name not in self.scene.live


class Opens(Node):
    """Opens something that must be closed; RUNNING while armed."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("opens")
        self.scene = scene

    async def open(self) -> None:
        """Open."""
        await hops(1)
        self.scene.opened.append(self.name)

    async def close(self) -> None:
        """Close."""
        await hops(1)
        self.scene.opened.remove(self.name)

    def update(self) -> Status:
        """Wait while armed."""
        return RUNNING if self.scene.is_armed else SUCCESS


class Trigger(Node):
    """Does nothing but wait, while armed; subclasses raise in one hook."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("trigger")
        self.scene = scene

    def update(self) -> Status:
        """Wait while armed."""
        return RUNNING if self.scene.is_armed else SUCCESS


class AsyncTrigger(AsyncNode):
    """Returns after a few turns; subclasses raise in one hook."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("trigger")
        self.scene = scene

    async def update_async(self) -> Status:
        """Take a few turns."""
        await hops(3)
        return SUCCESS


class AskTrigger(InteractiveNode):
    """Asks and succeeds; subclasses raise in one hook."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("trigger")
        self.scene = scene

    def request(self) -> Request:
        """Ask."""
        return Request("go on?", answer=bool)

    def on_answer(self, answer: object) -> Status:
        """Go on."""
        return SUCCESS
