"""Checks of a store: who writes a thread, fences, what a lost lease can still do, threads that are not there yet."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import anyio
from anyio import to_thread

from jianmu.engine.checkpoint import Checkpointer, Known, Row, Sought
from jianmu.engine.holders import is_gone, this_process
from jianmu.errors import LeaseLostError, ThreadBusyError, UnknownThreadError
from jianmu.testing.store_scene import (
    LONG,
    NOON,
    Trial,
    Writer,
    answer,
    at_once,
    begin,
    demand,
    holder,
    key,
    picture,
    question,
    refused,
    same,
    story,
    take,
)


async def one_holder_at_a_time(store: Checkpointer) -> None:
    """A thread that somebody holds is refused to others, and that changes nothing."""
    writer = await story(store, "t")
    before = await picture(store, "t")
    for create in (False, True):
        await refused(ThreadBusyError, take(store, "t", create=create), "the lease of a thread that is held")
    same(await picture(store, "t"), before, "the thread afterwards")
    await writer.write()


async def a_thread_is_made_only_if_asked_for(store: Checkpointer) -> None:
    """The lease of a thread that is not there is refused unless it is to be made."""
    await refused(UnknownThreadError, take(store, "t", create=False), "the lease of a thread that is not there")
    same(await store.thread("t"), None, "the thread afterwards")


async def unseen_before_its_first_transaction(store: Checkpointer) -> None:
    """A thread that was only just made is seen by nobody, and gone if its lease is given back."""
    writer = await take(store, "t")
    await _see_nothing(store)
    await refused(ThreadBusyError, take(store, "t"), "making a thread that somebody else makes")
    await store.release(writer.lease)
    await _see_nothing(store)
    await refused(
        UnknownThreadError, take(store, "t", create=False), "the lease of a thread that was given back unborn"
    )
    await refused(LeaseLostError, writer.write(), "the first transaction under a lease that was given back")
    await (again := await take(store, "t")).write()
    same((again.lease.number, again.number), (0, 1), "the number of the thread before and after its first transaction")


async def _see_nothing(store: Checkpointer) -> None:
    same(await store.thread("t"), None, "how the thread stands before its first transaction")
    same(await store.read("t"), None, "what is read before its first transaction")
    same(await store.threads(), [], "the list of threads before the first transaction of one")
    same(await store.mail("t"), -1, "the thread's mail before its first transaction")
    same(await store.due(NOON * 2), [], "what is due before the first transaction of a thread")
    call = store.enqueue("t", Row("input", "in", "[]"), wake_at=NOON)
    await refused(UnknownThreadError, call, "an input for a thread before its first transaction")


async def a_lease_runs_out(store: Checkpointer) -> None:
    """A lease that has run out holds nothing: another gets it, and its old holder writes nothing more."""
    old = await begin(store, "t", seconds=0)
    thread = await store.thread("t")
    demand(thread is not None and not thread.is_held, "a lease of 0 seconds counts as held")
    new = await take(store, "t", create=False)
    same(new.number, 1, "the number with which the lease came")
    demand(new.lease.fence > old.lease.fence, "the next lease has no larger fence")
    await _cannot_write(store, old, new)


async def _cannot_write(store: Checkpointer, old: Writer, new: Writer) -> None:
    """Fail unless an old holder is refused, whatever number it names, and the new one goes on."""
    before = await picture(store, "t")
    rows, asked = (Row("effect", "stale", "[]", 1),), (question("stale", "t", came=1),)
    for expected in {old.number, new.number}:
        step = old.step(expected=expected, rows=rows, questions=asked, body='["stale"]')
        await refused(LeaseLostError, store.commit(step), "a transaction under a lease that was lost")
        last = replace(step, releases=True, seen=99, status="finished")
        await refused(LeaseLostError, store.commit(last), "a last transaction under a lease that was lost")
    demand(not await to_thread.run_sync(store.renew, old.lease, LONG), "a lease that was lost was renewed")
    await store.release(old.lease)
    same(await picture(store, "t"), before, "the thread afterwards")
    same(await store.row("t", "effect", "stale"), None, "a row of the old holder")
    await new.write()


async def an_unborn_thread_can_be_taken_over(store: Checkpointer) -> None:
    """Who makes a thread and lets its lease run out before the first transaction writes nothing into the next one's."""
    old = await take(store, "t", 0)
    new = await take(store, "t")
    await store.release(old.lease)
    await new.write()
    await _cannot_write(store, old, new)


async def a_stale_holder_cannot_write_into_a_new_thread(store: Checkpointer) -> None:
    """When a thread was deleted and made anew under its id, the holder of the first cannot touch the second."""
    old = await begin(store, "t", seconds=0)
    demand(await store.delete("t"), "a thread whose lease has run out was not deleted")
    await refused(LeaseLostError, store.commit(old.step()), "a transaction for a thread that was deleted")
    same(await store.thread("t"), None, "the deleted thread afterwards")
    await _cannot_write(store, old, await begin(store, "t"))


async def fences_never_repeat(trial: Trial) -> None:
    """Each fence is larger than all before it in the store: over threads, deletions, store objects and re-opening."""
    found: list[int] = []
    for _ in range(2):
        async with trial.open() as one, trial.open() as two:
            for store in (one, two, one):
                found += await _fences(store)
    demand(found == sorted(set(found)), f"the fences were {found}")


async def _fences(store: Checkpointer) -> list[int]:
    """Return the fences of leases of threads that are there, that are deleted, and that are never born."""
    writers = [await take(store, "c")]
    await store.release(writers[0].lease)
    for thread_id in ("a", "b", "a"):
        writers.append(await take(store, thread_id))
        await writers[-1].end()
    demand(await store.delete("a"), "a thread that nobody holds was not deleted")
    return [writer.lease.fence for writer in writers]


async def a_thread_is_taken_with_what_is_needed(store: Checkpointer) -> None:
    """Who takes a thread gets in the same step what is needed to go on, unless memory stands where the log does."""
    known = await _at_rest(store, "t")
    for elsewhere in (None, replace(known, number=1), replace(known, made_at=1.0)):
        taken = await store.take("t", holder(), LONG, known=elsewhere)
        same(taken.stored, await store.read("t"), f"what came with the lease where memory stands at {elsewhere}")
        same((taken.is_known, taken.has_moved), (False, False), "whether it was known, and something was moved")
        await store.release(taken.lease)
    taken = await store.take("t", holder(), LONG, known=known)
    same((taken.is_known, taken.stored), (True, None), "whether it was known, and what came with the lease")
    await refused(ThreadBusyError, store.take("t", holder(), LONG), "a thread that was taken")
    writer = Writer(store, taken.lease)
    await writer.write()
    await refused(UnknownThreadError, store.take("new", holder(), LONG), "a thread that is not there")
    made = await store.take("new", holder(), LONG, create=True)
    same((made.is_known, made.stored, made.lease.number), (False, None, 0), "what came with the lease of a new thread")


async def an_answer_comes_with_the_lease(store: Checkpointer) -> None:
    """Who takes a thread can answer in the same step; what came from elsewhere, or is refused, leaves the lease."""
    first, second = key("t", "first"), key("t", "second")
    known = await _at_rest(store, "t", first, second)
    taken = await store.take("t", holder(), LONG, known=known, moves=[answer(first)], wake_at=NOON)
    same(taken.has_moved, True, "whether an answer came with the lease")
    thread = await store.thread("t")
    same(thread and (thread.mail, thread.wake_at), (known.mail + 1, NOON), "mail and due time after the answer")
    late = [answer(second)]
    call = store.take("t", holder(), LONG, known=known, moves=late, wake_at=NOON)
    await refused(ThreadBusyError, call, "a thread that was taken")
    await store.release(taken.lease)
    taken = await store.take("t", holder(), LONG, known=known, moves=late, wake_at=NOON)
    same((taken.is_known, taken.has_moved), (True, False), "whether it was known and moved after an answer of another")
    await store.release(taken.lease)
    known, both = replace(known, mail=known.mail + 1), [*late, answer(first)]
    taken = await store.take("t", holder(), LONG, known=known, moves=both, wake_at=NOON)
    same(taken.has_moved, False, "whether answers were taken of which one came too late")
    found = await store.questions(Sought(thread_id="t", status=None))
    same({row.id: row.status for row in found}, {first: "answered", second: "open"}, "how the questions stand")
    await Writer(store, taken.lease).write()


async def _at_rest(store: Checkpointer, thread_id: str, *asked: str) -> Known:
    """Make a thread that nobody holds; return where a memory of it stands."""
    writer = await begin(store, thread_id, *asked)
    await writer.end("suspended")
    lease = await store.acquire(thread_id, holder(), LONG)
    await store.release(lease)
    return Known(lease.number, lease.mail, lease.made_at)


async def a_lease_is_renewed_from_a_thread(store: Checkpointer) -> None:
    """A plain thread renews a lease, also while transactions are written; it lasts from then on."""
    writer = await begin(store, "t")
    await _renew(store, writer, 2 * LONG)
    longer = await store.thread("t")
    same(longer and longer.number, 6, "the thread's number after five more transactions")
    await _renew(store, writer, LONG)
    shorter = await store.thread("t")
    ends = [thread.lease_until if thread and thread.lease_until else 0 for thread in (longer, shorter)]
    demand(ends[0] - ends[1] > LONG / 2, f"leases renewed for 1,200 and then 600 s end at {ends[0]} and {ends[1]}")
    await _renew(store, writer, 0)
    await (await take(store, "t", create=False)).write()


async def _renew(store: Checkpointer, writer: Writer, seconds: float) -> None:
    async def renew() -> None:
        held = await to_thread.run_sync(store.renew, writer.lease, seconds)
        demand(held, "a lease that is held was not renewed")

    async def write() -> None:
        for _ in range(5):
            await writer.write()

    await at_once(renew(), write())


async def a_lease_is_given_back(store: Checkpointer) -> None:
    """A lease that was given back is free at once, and its holder writes nothing more."""
    writer = await begin(store, "t")
    await store.release(writer.lease)
    thread = await store.thread("t")
    same(thread and (thread.is_held, thread.holder, thread.number), (False, None, 1), "the thread afterwards")
    await refused(LeaseLostError, store.commit(writer.step()), "a transaction under a lease that was given back")
    last = writer.step(releases=True)
    await refused(LeaseLostError, store.commit(last), "a last transaction under a lease that was given back")
    writer = await take(store, "t", create=False)
    await writer.end("suspended")
    thread = await store.thread("t")
    same(thread and (thread.is_held, thread.holder, thread.number), (False, None, 2), "the thread after its last one")
    for releases in (False, True):
        late = writer.step(releases=releases)
        await refused(LeaseLostError, store.commit(late), "a transaction after the last one of a lease")
    demand(not store.renew(writer.lease, LONG), "a lease that was given back was renewed")
    await _cannot_write(store, writer, await take(store, "t", create=False))


async def a_process_that_is_gone_holds_nothing(store: Checkpointer) -> None:
    """A lease whose holder is a process of this host that has ended is free, whatever time it has left."""
    process = await anyio.open_process([sys.executable, "-c", ""])
    await process.wait()
    gone = json.dumps({**json.loads(this_process("x")), "pid": process.pid})
    if not is_gone(gone):  # not every system tells
        return
    old = Writer(store, await store.acquire("t", gone, LONG, create=True))
    await old.write()
    same(await store.due(NOON), ["t"], "what is due of a running thread whose process is gone")
    thread = await store.thread("t")
    same(thread and thread.is_held, False, "whether the thread is held")
    await _cannot_write(store, old, await take(store, "t", create=False))


async def tells_how_a_thread_stands(store: Checkpointer) -> None:
    """Status, record, due time and holder of a thread are those of its last transaction and its lease."""
    name = holder()
    writer = Writer(store, await store.acquire("t", name, LONG, create=True))
    await writer.write(status="running", record='{"a": 1}', wake_at=NOON)
    thread = await store.thread("t")
    found = thread and (thread.status, thread.record, thread.wake_at, thread.holder, thread.fence, thread.is_held)
    same(found, ("running", '{"a": 1}', NOON, name, writer.lease.fence, True), "the thread")
    demand(thread is not None and 0 < thread.created_at <= thread.updated_at, "a thread was made after it was written")
    for wake_at in (NOON + 1, NOON - 1, None, NOON):
        await writer.write(wake_at=wake_at)
        again = await store.thread("t")
        same(again and again.wake_at, wake_at, "when the thread is due after its next transaction")
    await writer.end("interrupted", record='{"b": 2}')
    after = await store.thread("t")
    found = after and (after.status, after.record, after.wake_at, after.fence, after.is_held)
    same(found, ("interrupted", '{"b": 2}', None, writer.lease.fence, False), "the thread after its last transaction")
    same(after and after.created_at, thread and thread.created_at, "when it was made")


async def two_stores_are_one(trial: Trial) -> None:
    """Two stores over the same data see each other's work at once, and hold each other's leases off."""
    async with trial.open() as one, trial.open() as two:
        writer = await story(one, "t")
        same(await picture(two, "t"), await picture(one, "t"), "what the second store shows")
        await refused(ThreadBusyError, take(two, "t"), "a lease that is held through another store")
        demand(await two.move([answer("nobody")], wake_at=NOON) is False, "a question that is not there was answered")
        await writer.end()
        other = await take(two, "t", create=False)
        same(other.number, 7, "the number with which the lease came through the second store")
        await other.write()
        await _cannot_write(one, writer, other)
        same(await one.log("t"), await two.log("t"), "the log that the first store shows")
