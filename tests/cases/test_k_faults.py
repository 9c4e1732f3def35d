"""A store that fails, loses a reply or is cut off, once, at each of its calls: the run says so, and is gone on with.

The caller is a careful one: it gives its input an id and its answer a key, and tries again until it has an outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.outcome import Outcome
from jianmu.engine.questions import Answer
from jianmu.errors import StoreError, ThreadBusyError
from jianmu.nodes import Repeat
from jianmu.stores.sql import SQLStore
from jianmu.stores.tables import Say
from tests.anystore import Stores
from tests.cases.people import SUCCESS, AskInside, Desk, Note, Talk, Work, seq

pytestmark = pytest.mark.anyio
BEGUN = 3
"""The number of the call that carries the first transaction."""

CALLS = ("acquire", "take", "read", "commit", "release", "mail", "questions", "rows", "row", "move")


class Faulty:
    """Has one call of a store go wrong.

    Args:
        store: the store.
        at: the number of the call.
        mode: `refused` (nothing is done), `lost` (it is done, and an error comes back), or `cancelled` (in the middle).
    """

    def __init__(self, store: SQLStore, at: int, mode: str) -> None:
        self.store = store
        self.at = at
        self.mode = mode
        self.count = 0
        self.scope = anyio.CancelScope()
        for name in CALLS:
            setattr(store, name, self._watched(getattr(store, name)))

    def _watched(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(*args: Any, **options: Any) -> Any:
            self.count += 1
            is_now = self.count == self.at
            if is_now and self.mode == "refused":
                raise StoreError("the disk is full")
            if is_now and self.mode == "cancelled":
                self.scope.cancel()
            result = await call(*args, **options)
            if is_now and self.mode == "lost":
                raise StoreError("the reply was lost")
            return result

        return watched


def run_out(say: Say) -> None:
    """Have the thread's lease run out."""
    say("UPDATE threads SET lease_until = 0 WHERE thread_id = 't1'")


class World:
    """What was done outside, across all agents."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.entered: list[str] = []

    def build(self) -> Behaviour:
        """Return two rounds of an effect, a question and a write each, between plain leaves."""

        async def pay(node: Any) -> None:
            async def effect() -> str:
                self.paid.append(node.context.idempotency_key)
                return "paid"

            node.write_state({"note": await node.once("pay", effect)})

        body = seq("round", Talk("pay", pay), AskInside("q"), Note("noted", self.entered))
        return seq("main", Note("first", self.entered), Repeat("loop", body, times=2), Work("last", [], 0))


async def drive(fresh: Callable[[], Agent[Any]], faulty: Faulty, *, keeps: bool) -> Outcome:
    """Drive the run to its end, as a careful caller does."""
    agent = fresh()
    for _ in range(12):
        try:
            with faulty.scope:
                outcome = await agent.run_until_suspend({"amount": 9}, thread_id="t1", input_id="i1")
                while outcome.suspended:
                    question = outcome.suspensions[0]
                    answer = Answer(question.id, "answer", key=f"key of {question.id}")
                    outcome = await agent.resume(answer)
                return outcome
        except ThreadBusyError:  # the reply that gave the lease was lost: it runs out by itself
            faulty.store.work("write", run_out)
        except StoreError:
            pass
        faulty.scope = anyio.CancelScope()
        if not keeps:
            agent = fresh()
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize(
    "any_store", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.full)], indirect=True
)
@pytest.mark.parametrize("level", ["sync", "async", "exit"])
@pytest.mark.parametrize("mode", ["refused", "lost", "cancelled"])
@pytest.mark.parametrize("keeps", [True, False])
async def test_a_store_that_goes_wrong_at_any_call_loses_and_doubles_nothing(
    any_store: Stores, level: Any, mode: str, keeps: bool, full: bool
) -> None:
    """The end is that of a run without a fault; each effect once, or twice under one key where its result was lost."""
    stride = 1 if full else 2 if any_store.kind == "memory" else 5
    first = BEGUN + 1 + (keeps and not full)  # in the short run half of the calls go wrong for each caller
    for at in count(first, stride):
        if await goes_wrong(any_store, at, level, mode, keeps=keeps):
            return


async def goes_wrong(any_store: Stores, at: int, level: Any, mode: str, *, keeps: bool) -> bool:
    """Check a run in which one call goes wrong; return whether it had fewer calls."""
    world, faulty = World(), Faulty(any_store(any_store.apart()), at, mode)
    with anyio.fail_after(20):
        outcome = await drive(
            lambda: Agent(world.build(), Desk, store=faulty.store, durability=level), faulty, keeps=keeps
        )
        is_over, faulty.at = faulty.count < at, -1
        view = await faulty.store.show("t1")
    assert (outcome.status, view.status, view.run, view.questions) == (SUCCESS, "finished", 1, 0), at
    assert view.fields["log"] == ["first", "noted", "noted", "last"], at
    assert (view.fields["values"], view.fields["amount"]) == ({"q": "answer"}, 9), at
    assert (len(set(world.paid)), len(world.paid) <= 3) == (2, True), at
    assert outcome.output["note"] == "paid"
    return is_over


@pytest.mark.parametrize("any_store", ["memory"], indirect=True)
@pytest.mark.parametrize("at", range(1, BEGUN + 1))
@pytest.mark.parametrize(
    ("mode", "keeps"),
    [
        ("lost", True),
        ("lost", False),
        ("refused", False),
        ("refused", True),
        ("cancelled", True),
        ("cancelled", False),
    ],
)
async def test_what_goes_wrong_before_the_first_transaction_was_never_begun(
    any_store: Stores, at: int, mode: str, keeps: bool
) -> None:
    """The lease, the look for the input's id, the input: the same input again is the first."""
    await goes_wrong(any_store, at, "async", mode, keeps=keeps)
