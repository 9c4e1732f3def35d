"""Cases K01, K02: what is stored grows with what is written, and with nothing else."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.rows import Transaction
from jianmu.nodes import Repeat
from jianmu.stores.sql import SQLStore
from tests.anystore import Stores, each_store
from tests.cases.leaves import Do
from tests.cases.people import SUCCESS, AskInside, seq

pytestmark = pytest.mark.anyio
COUNTS = [50, 100, 200, *(pytest.param(count, marks=pytest.mark.full) for count in (400, 800, 3200))]


class Pages(BaseModel):
    """A list that grows, a long text that does not, and a counter."""

    pages: Annotated[list[str], operator.add] = Field(default_factory=list)
    text: str = ""
    n: int = 0
    values: dict[str, str] = Field(default_factory=dict)


def append(node: Any) -> None:
    """Append 1 kB."""
    n = node.read_state().n
    node.write_state({"pages": [f"{n:04}" * 256], "n": n + 1})


def spied(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> list[Transaction]:
    """Return the transactions that a store is given from now on."""
    seen: list[Transaction] = []
    commit = store.commit

    async def seeing(transaction: Transaction) -> bool:
        seen.append(transaction)
        return await commit(transaction)

    monkeypatch.setattr(store, "commit", seeing)
    return seen


def size(found: Any) -> int:
    """Return how many bytes some rows take."""
    return sum(len(str(value).encode()) for rows in found.values() for row in rows for value in row)


def bytes_of(folder: Path) -> int:
    """Return how many bytes the files of a folder take."""
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("any_store", ["sqlite", "memory"], indirect=True)
@pytest.mark.parametrize("asks", [False, True])
async def test_k01_what_is_stored_is_at_most_three_times_what_was_written(
    any_store: Stores, count: int, asks: bool, tmp_path: Path
) -> None:
    """1 kB is appended in each pass, with a question in each round or without: the bound holds at every length."""
    count = count // 4 if asks else count
    body = seq("round", Do("append", append), *([AskInside("q")] if asks else []))
    store = any_store()
    agent = Agent(Repeat("main", body, times=count), Pages, store=store, durability="sync")
    with anyio.fail_after(100):
        outcome = await agent.run_until_suspend(thread_id="t1")
        while outcome.suspended:
            outcome = await agent.resume("x")
        assert (outcome.status, len(agent.state.pages)) == (SUCCESS, count)
        log = await store.log("t1", limit=10_000)
        await store.close()
    assert len(log) >= count
    written = sum(max(256, len(text.encode())) for _, text in log)
    assert written >= 1024 * count
    assert size(any_store.rows("t1")) <= 3 * written + 100_000
    await any_store.close()
    assert bytes_of(tmp_path) <= 3 * written + 100_000


@each_store
@pytest.mark.parametrize("level", ["sync", "async"])
async def test_k02_what_is_not_written_again_is_not_stored_again(
    any_store: Stores, level: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of 1 MB is written once, a counter in 100 passes: below 1 kB each, and at most one snapshot."""
    store = any_store()
    seen = spied(store, monkeypatch)
    leaf = Do("count", lambda node: node.write_state({"n": node.read_state().n + 1}))
    agent = Agent(Repeat("main", leaf, times=100), Pages, store=store, durability=level)
    with anyio.fail_after(60):
        assert await agent.run({"text": "x" * 1_000_000}, thread_id="t1") is SUCCESS
        snapshots = [row for step in seen for row in step.rows if row.kind == "cache"]
        sizes = [len(step.body or "") + len(step.record) for step in seen]
        fresh = Agent(Repeat("main", Do("count", print), times=100), Pages, store=any_store())
        await fresh.load("t1")
    assert (fresh.state, fresh.state.n) == (agent.state, 100)
    assert len(snapshots) <= 1
    assert sizes[0] > 1_000_000
    if level == "sync":
        assert (len(sizes) > 100, max(sizes[1:]) < 1000) == (True, True)
    else:  # several passes in one
        assert sum(sizes[1:]) < 100_000
