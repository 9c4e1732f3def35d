"""MemoryStore: threads go from one agent to another by their JSON alone."""

from __future__ import annotations

from typing import Any

import pytest

from jianmu.engine.runrecord import RunRecord, load
from jianmu.engine.interaction import Answer, InteractionController, Request
from jianmu.errors import AlreadyAnsweredError, StoreError, UnknownSuspensionError
from jianmu.stores import MemoryStore
from tests.engine.asking import HandClock, origin

pytestmark = pytest.mark.anyio
IDS = ["a", "ab", "../x", "user/1", "it's", "a_b", "a%b", "A_B", "线程", "x" * 500]


async def save(store: Checkpointer, thread_id: str, desk: InteractionController) -> None:
    """Save a thread that has nothing but questions."""
    record = RunRecord(fingerprint="f", thread_id=thread_id, run=1, status="suspended", questions=desk.dump())
    await store.save(thread_id, record.dump())


async def load_desk(store: Checkpointer, thread_id: str) -> InteractionController:
    """Return the thread's questions as another agent loads them."""
    desk = InteractionController(HandClock())
    data = await store.load(thread_id)
    assert data is not None
    desk.load(load(data).questions)
    return desk


async def test_agents_that_share_a_store_see_each_others_answers() -> None:
    """An answer saved by one is refused a second time by the other; unknown ids are refused there too."""
    store = MemoryStore()
    first = InteractionController(HandClock())
    id = first.ask(origin(thread_id="t1"), Request("?")).id
    await save(store, "t1", first)
    second = await load_desk(store, "t1")
    await second.answer(Answer(id, "x", by="ann"))
    await save(store, "t1", second)
    third = await load_desk(store, "t1")
    with pytest.raises(AlreadyAnsweredError) as refused:
        await third.answer(Answer(id, "y"))
    assert refused.value.record.answer.by == "ann"
    with pytest.raises(UnknownSuspensionError):
        await third.answer(Answer("never", "y"))
    assert third.deliver(id) == "x"


async def test_nothing_is_shared_with_what_was_saved() -> None:
    """Later changes of a record, saved or loaded, do not reach the store."""
    store = MemoryStore()
    record: dict[str, Any] = {"n": [1]}
    await store.save("t", record)
    record["n"].append(2)
    got = await store.load("t")
    assert got == {"n": [1]}
    got["n"].append(3)
    assert await store.load("t") == {"n": [1]}


async def test_all_thread_ids_are_different_threads() -> None:
    """K19, K32: ids that look alike or like paths are kept apart; an unknown one is None."""
    store = MemoryStore()
    for number, id in enumerate(IDS):
        await store.save(id, {"n": number})
    assert [await store.load(id) for id in IDS] == [{"n": number} for number in range(len(IDS))]
    assert await store.load("other") is None


@pytest.mark.parametrize("id", ["", "a\0", "\ud800", "x" * 513], ids=repr)
async def test_what_is_no_thread_id_is_refused(id: str) -> None:
    """The same rule as everywhere, for saving and loading."""
    store = MemoryStore()
    for act in (store.save(id, {}), store.load(id)):
        with pytest.raises(StoreError, match="1 to 512 characters"):
            await act


@pytest.mark.parametrize("record", [{"a": {1}}, {"a": float("nan")}, {1: 2}, {"a": "\ud800"}], ids=repr)
async def test_only_json_is_kept(record: Any) -> None:
    """A record that is not JSON is a StoreError with the thread, and the one before stays."""
    store = MemoryStore()
    await store.save("t", {"ok": True})
    with pytest.raises(StoreError, match="has to be JSON") as refused:
        await store.save("t", record)
    assert refused.value.thread_id == "t"
    assert await store.load("t") == {"ok": True}
