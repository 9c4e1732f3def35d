"""Ctrl-C under trio: it is raised in any line, also in those of the tasks that a run has for itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.activity import Tasks
from jianmu.engine.holding import Holding
from jianmu.nodes import Finally, ForceSuccess, Sequence, Timeout
from jianmu.stores import MemoryStore
from tests.cases.leaves import INVALID, Forever, World, nothing_left

pytestmark = pytest.mark.anyio
WITHIN = 5


class Slow(Forever):
    """A leaf whose cleanup never ends by itself."""

    async def cleanup(self) -> None:
        """Wait for ever."""
        await anyio.sleep_forever()


def finally_waits() -> Behaviour:
    """Return a node without a coroutine, whose cleanup is awaited."""

    async def clean(_: Any) -> None:
        await anyio.sleep(0.01)

    return Finally("cleans", Forever("waits"), clean)


def once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: int = 0) -> list[str]:
    """Have one call of a method be broken off by Ctrl-C, before it has done anything; the list tells of it."""
    whole: Callable[..., Any] = getattr(owner, name)
    seen: list[str] = []

    def broken(self: Any, *args: Any, **more: Any) -> Any:
        seen.append(name)
        if len(seen) == after + 1:
            raise KeyboardInterrupt
        return whole(self, *args, **more)

    monkeypatch.setattr(owner, name, broken)
    return seen


@pytest.mark.parametrize(
    ("build", "name", "after"),
    [
        (lambda: Slow("waits"), "start_ready", None),
        (finally_waits, "_clean_up", 0),
        (finally_waits, "_clean_up", 1),
        (finally_waits, "_end", 0),
        (finally_waits, "_end", 1),
    ],
    ids=[
        "a late cleanup",
        "a cleanup",
        "a cleanup without a coroutine",
        "the end of a coroutine",
        "the end of a cleanup",
    ],
)
async def test_ctrl_c_in_a_task_of_the_run_ends_the_run_as_everywhere(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Behaviour], name: str, after: int | None
) -> None:
    """It comes out as itself, when all that was alive is cleaned up: no group of exceptions, and nobody waits on."""
    node = ForceSuccess("on", Timeout("t", build(), seconds=0.01))
    agent = Agent(Sequence("main", memory=True, children=[node, Forever("then")]), World, halt_timeout=0.05)
    if after is None:
        monkeypatch.setattr(agent.runner.tasks, "_late", lambda _: once(monkeypatch, Tasks, name))
    else:
        once(monkeypatch, Tasks, name, after)
    with anyio.fail_after(WITHIN), nothing_left(agent), pytest.raises(KeyboardInterrupt):
        await agent.run()
    assert agent.status is INVALID


class Writes(Forever):
    """Writes again and again; that is saved behind the run."""

    async def update_async(self) -> Status:
        """Write, for ever."""
        for number in itertools.count():
            self.write_state({"n": number})
            await anyio.sleep(0.01)
        raise AssertionError


@pytest.mark.parametrize(("name", "after"), [("_look_for_mail", 0), ("flush", 3)])
async def test_ctrl_c_in_a_task_of_the_thread_ends_the_run_as_everywhere(
    monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    """The thread is kept and given back: it can be gone on with."""
    store = MemoryStore()
    seen = once(monkeypatch, Holding, name, after)
    agent = Agent(Writes("waits"), World, store=store, poll_answers=0.01)
    with anyio.fail_after(WITHIN), nothing_left(agent), pytest.raises(KeyboardInterrupt):
        await agent.run(thread_id="t")
    assert len(seen) > after
    stands = await store.thread("t")
    assert stands is not None
    assert (stands.status, stands.holder) == ("interrupted", None)
