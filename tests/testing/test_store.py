"""check_store finds what is wrong with a store, and says which promise was broken."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from jianmu.engine.checkpoint import Checkpointer
from jianmu.stores import MemoryStore
from jianmu.testing import STORE_CHECKS, check_store
from jianmu.testing import store as checking
from jianmu.testing.store_scene import Factory
from tests.testing.broken import BROKEN, broken_store

pytestmark = pytest.mark.anyio
GROWTH = {"a_transaction_stays_small", "stored_bytes_are_bounded"}


def same_under_a_name(make: type[MemoryStore]) -> Factory:
    """Return a factory that gives one object for each name."""
    kept: dict[str, MemoryStore] = {}

    @asynccontextmanager
    async def factory(name: str) -> AsyncIterator[Checkpointer]:
        yield kept.setdefault(name, make())

    return factory


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_store_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault of the table breaks the promise that is named beside it, and the text says that promise."""
    finds = BROKEN[fault][1]
    promise = (inspect.getdoc(STORE_CHECKS[finds]) or "").rstrip(".")
    monkeypatch.setattr(checking, "PATIENCE", 2)
    with pytest.raises(AssertionError) as raised:
        await check_store(same_under_a_name(broken_store(fault)), only=[finds])
    assert str(raised.value).startswith(f"{promise}: ")
    assert str(raised.value).endswith(f"[{finds}]")


async def test_every_check_of_one_store_is_made() -> None:
    """Without a choice all checks are made, each on a name of its own that a file or a table can have."""
    names: list[str] = []
    inner = same_under_a_name(MemoryStore)

    def factory(name: str) -> object:
        names.append(name)
        return inner(name)

    await check_store(factory)
    checked = [name.rpartition("_")[0] for name in dict.fromkeys(names)]
    assert checked == [name for name in STORE_CHECKS if name not in GROWTH]
    assert all(name.replace("_", "").isalnum() and name.islower() and len(name) <= 60 for name in names)


async def test_a_broken_store_stops_at_the_first_promise() -> None:
    """The whole of check_store ends with the first promise that was broken."""
    with pytest.raises(AssertionError, match=r"^A lease that has run out holds nothing"):
        await check_store(same_under_a_name(broken_store("forgets_the_fence")))


async def test_stores_that_do_not_share_their_data_are_found() -> None:
    """A factory that gives other data each time is found, also where two are open at the same time."""
    for name, text in (("data_outlives_its_store", "opened again"), ("two_stores_are_one", "see each other's work")):
        with pytest.raises(AssertionError, match=text):
            await check_store(lambda _: MemoryStore(), only=[name])


async def test_a_store_that_grows_is_found() -> None:
    """With `size`, a store that keeps more than it was given is found; the text tells how much."""
    sizes = iter([1_000_000, 1_100_001])

    async def size(name: str) -> int:
        return next(sizes)

    with pytest.raises(AssertionError, match="made it grow by 100001 bytes"):
        await check_store(same_under_a_name(MemoryStore), size=size, only=["a_transaction_stays_small"])
    sizes = iter([1_302_401])
    with pytest.raises(AssertionError, match="400 kB became 1302401 bytes"):
        await check_store(same_under_a_name(MemoryStore), size=size, only=["stored_bytes_are_bounded"])


async def test_a_store_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that does not end breaks its promise too."""
    monkeypatch.setattr(checking, "PATIENCE", 0)
    with pytest.raises(AssertionError, match=r"Each transaction has the next number.*TimeoutError"):
        await check_store(same_under_a_name(broken_store("hangs")), only=["numbers_grow_by_one"])


def test_every_check_has_a_promise_and_a_fault() -> None:
    """Each check says its promise in one sentence, and there is a broken store that it finds."""
    promises = {name: inspect.getdoc(check) or "" for name, check in STORE_CHECKS.items()}
    assert {name: text for name, text in promises.items() if not text.endswith(".") or "\n" in text} == {}
    found = {finds for _, finds, _ in BROKEN.values()} | GROWTH | {"two_stores_are_one"}
    assert set(STORE_CHECKS) - found == set()
