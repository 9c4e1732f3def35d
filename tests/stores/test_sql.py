"""The statements that the stores in tables share, where `check_store` does not look: mail, ranges, texts of errors."""

from __future__ import annotations

import re

import anyio
import pytest

from jianmu.engine.checkpoint import Row, Sought
from jianmu.errors import LeaseLostError, StoreError, ThreadBusyError, UnknownThreadError
from jianmu.stores import MemoryStore
from jianmu.testing.store_scene import LONG, NOON, answer, begin, question, story, take

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    """A store that shares all statements with the one in a file."""
    return MemoryStore()


async def wake_at(store: MemoryStore) -> float | None:
    """Return when the thread is due."""
    thread = await store.thread("t")
    assert thread is not None
    return thread.wake_at


@pytest.mark.parametrize("seen", [None, 0])
async def test_unread_mail_keeps_a_thread_due(store: MemoryStore, seen: int | None) -> None:
    """A commit of a run that has not read its mail does not put off when the thread is due: the run may die now."""
    writer = await begin(store, "t", "q")
    await store.move([answer("q")], wake_at=NOON)
    for later in (None, NOON + 5):
        await writer.write(status="suspended", wake_at=later, seen=seen)
        assert await wake_at(store) == NOON
    await writer.write(wake_at=NOON - 5, seen=seen)
    assert await wake_at(store) == NOON - 5


async def test_mail_that_was_read_keeps_nothing_due(store: MemoryStore) -> None:
    """Once a run has said what it has read, its commits alone tell when the thread is due, until there is more."""
    writer = await begin(store, "t", "q", "r")
    await store.move([answer("q")], wake_at=NOON)
    await writer.write(wake_at=NOON + 5, seen=1)
    assert await wake_at(store) == NOON + 5
    await writer.write(wake_at=None)
    assert await wake_at(store) is None
    await store.move([answer("r")], wake_at=NOON)
    await writer.write(wake_at=None)
    assert await wake_at(store) == NOON
    await writer.end("interrupted", wake_at=None)
    assert await wake_at(store) is None


async def test_a_question_that_is_asked_again_keeps_its_end(store: MemoryStore) -> None:
    """After a migration a question's texts are replaced; what came of it, and when it was asked, stays."""
    writer = await begin(store, "t", "q")
    await store.move([answer("q", now=None)], wake_at=NOON)
    before = (await store.questions(Sought(status=None)))[0]
    again = question("q", "t", asked="[2]", reason="approval", assignee="ann", asked_at=NOON + 9, came=7)
    await writer.write(questions=(again,))
    after = (await store.questions(Sought(status=None)))[0]
    assert (after.asked, after.reason, after.assignee) == ("[2]", "approval", "ann")
    assert (after.status, after.ended, after.asked_at, after.came) == ("answered", before.ended, NOON, 1)


async def test_a_trim_is_refused_outside_of_the_log(store: MemoryStore) -> None:
    """A snapshot after the log's end, or before the log's first, would leave a hole: nothing is changed."""
    await story(store, "t")
    await store.trim("t", Row("base", "b", "[]", 4))
    before = await store.read("t")
    for came in (3, 7):
        with pytest.raises(StoreError, match=rf"trimmed at {came}: its log has the numbers 4 to 6"):
            await store.trim("t", Row("base", "c", "[]", came))
    assert await store.read("t") == before
    with pytest.raises(UnknownThreadError):
        await store.trim("nobody", Row("base", "b", "[]", 0))


async def test_a_number_that_is_not_there_is_told_with_those_that_are(store: MemoryStore) -> None:
    """Reading before the beginning or after the end names both."""
    await story(store, "t")
    await store.trim("t", Row("base", "b", "[]", 4))
    for at in (2, 7):
        with pytest.raises(StoreError, match=rf"'t' has the numbers 4 to 6, not {at}"):
            await store.read("t", at=at)


async def test_errors_say_what_to_do(store: MemoryStore) -> None:
    """Each refusal names the thread, in its text and beside it, and what to do; of a long id as much as is needed."""
    name = "t" * 500
    with pytest.raises(UnknownThreadError, match="run\\(input, thread_id=…\\) makes one") as refused:
        await store.acquire(name, "{}", LONG)
    assert (refused.value.thread_id, len(str(refused.value)) < 250) == (name, True)
    writer = await begin(store, name)
    with pytest.raises(
        ThreadBusyError, match=r"answer\(…\), which needs no lease.*recover\(thread_id, wait=True\)"
    ) as busy:
        await store.acquire(name, "{}", LONG)
    assert (busy.value.thread_id, len(str(busy.value)) < 300) == (name, True)
    with pytest.raises(StoreError, match="is at number 1, not 5: two write under one lease"):
        await store.commit(writer.step(expected=5))
    await store.release(writer.lease)
    with pytest.raises(LeaseLostError, match="deleted; recover") as lost:
        await writer.write()
    assert lost.value.thread_id == name


@pytest.mark.parametrize(
    "holder", ["", "[]", "{", '{"pid": 1}', '"x"', "[" * 100_000, '{"pid": null, "host": 3}'], ids=len
)
async def test_any_text_may_name_a_holder(store: MemoryStore, holder: str) -> None:
    """A holder's text that tells no process is held like any other, and breaks no error's text."""
    with anyio.fail_after(10):
        lease = await store.acquire("t", holder, LONG, create=True)
        with pytest.raises(ThreadBusyError, match=re.escape("'t' is held")):
            await store.acquire("t", "another", LONG, create=True)
        await store.release(lease)


async def test_due_looks_past_threads_that_are_held(store: MemoryStore) -> None:
    """However many due threads others hold, those that nobody drives are found, up to the limit."""
    for number in range(25):
        writer = await take(store, f"held{number:02}")
        await writer.write(wake_at=NOON)
    for number in range(7):
        await (await take(store, f"free{number}")).end("suspended", wake_at=NOON + 1)
    free = [f"free{number}" for number in range(7)]
    assert [await store.due(NOON + 1, limit=limit) for limit in (3, 7, 50)] == [free[:3], free, free]
