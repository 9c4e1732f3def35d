"""Checks of a store: what comes from outside, the release that looks for it, and who has to be driven."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from jianmu.engine.checkpoint import Checkpointer, Row
from jianmu.errors import UnknownThreadError
from jianmu.testing.store_scene import NOON, answer, begin, demand, picture, refused, same, take


def _from_outside(store: Checkpointer) -> Iterator[Awaitable[bool]]:
    """Yield three calls that bring mail to the thread `t` with the questions `q1` and `q2`."""
    yield store.move([answer("q2")], wake_at=NOON)
    yield store.move([answer("q1", status="open", ended=None, assignee="boss", taken_after=1)], wake_at=NOON)
    yield store.enqueue("t", Row("input", "in", "[]"), wake_at=NOON)


async def mail_counts_what_came(store: Checkpointer) -> None:
    """A thread's mail grows with each answer, escalation and input from outside, and with nothing that its run does."""
    writer = await begin(store, "t", "q1", "q2")
    same(await store.mail("t"), 0, "the mail of a new thread")
    for count, call in enumerate(_from_outside(store), start=1):
        demand(await call, "what came from outside was not taken")
        same(await store.mail("t"), count, "the mail")
    demand(not await store.move([answer("q2")], wake_at=NOON), "a question was answered twice")
    await writer.end("suspended", seen=3)
    same(await store.mail("t"), 3, "the mail after what changes nothing and after a transaction of the run")
    same((await take(store, "t", create=False)).lease.mail, 3, "the mail that a lease tells")
    same(await store.mail("nobody"), -1, "the mail of a thread that is not there")


async def a_release_looks_for_mail(store: Checkpointer) -> None:
    """The transaction that gives the lease back changes nothing if there is mail that the run has not read."""
    writer = await begin(store, "t", "q1", "q2")
    for seen, call in enumerate(_from_outside(store)):
        demand(await call, "what came from outside was not taken")
        before = await picture(store, "t")
        rows = (Row("effect", "new", "[]", 9),)
        step = writer.step(status="suspended", releases=True, seen=seen, rows=rows, gone=(("input", "in"),))
        same(await store.commit(step), False, "the outcome of a release over unread mail")
        same(await picture(store, "t"), before, "the thread afterwards")
        await writer.write(seen=seen)
    await writer.end("suspended", seen=3)
    thread = await store.thread("t")
    same(thread and (thread.status, thread.is_held), ("suspended", False), "the thread after a release with all read")


async def a_release_may_ignore_mail(store: Checkpointer) -> None:
    """A run that cannot go on gives its lease back whatever has come."""
    writer = await begin(store, "t", "q")
    demand(await store.move([answer("q")], wake_at=NOON), "an answer was not taken")
    await writer.end("interrupted", seen=None)


async def an_input_is_queued_once(store: Checkpointer) -> None:
    """An input is added once per id and thread, also when the first was done with long ago; the first one stays."""
    writer = await begin(store, "t")
    other = await begin(store, "t2")
    first = Row("input", "in", "[1]")
    same(await store.enqueue("t", first, wake_at=NOON), True, "the outcome of the first input")
    same(await store.enqueue("t2", first, wake_at=NOON), True, "the outcome of an input of another thread with its id")
    stored = await store.read("t")
    same(stored and stored.rows, (first,), "what is read of the input")
    await writer.write(closed=(("input", "in"),))
    before = await picture(store, "t")
    same(await store.enqueue("t", Row("input", "in", "[2]"), wake_at=1.0), False, "the outcome of the input again")
    same(await picture(store, "t"), before, "the thread after the input came again")
    same(await store.row("t", "input", "in"), Row("input", "in", "[1]", 0, 2), "the input")
    await refused(UnknownThreadError, store.enqueue("no", first, wake_at=NOON), "an input for no thread")
    same(await store.thread("no"), None, "a thread of which only an input was sent")
    await other.write()


async def what_comes_makes_a_thread_due(store: Checkpointer) -> None:
    """An answer, a deadline or an input makes the thread due at the instant given, or before if it was so."""
    for thread_id, sooner in (("now", None), ("later", NOON + 9), ("earlier", NOON - 9)):
        for way in ("move", "enqueue"):
            name = f"{thread_id}-{way}"
            writer = await begin(store, name, name)
            await writer.end("suspended", wake_at=sooner)
            if way == "move":
                await store.move([answer(name)], wake_at=NOON)
            else:
                await store.enqueue(name, Row("input", "in", "[]"), wake_at=NOON)
            thread = await store.thread(name)
            same(thread and thread.wake_at, min(NOON, sooner or NOON), f"when the thread '{name}' is due")
            same(thread and thread.status, "suspended", "its status")
    same(await store.due(NOON - 10), [], "what is due before that")
    same(sorted(await store.due(NOON - 9)), ["earlier-enqueue", "earlier-move"], "what was due before")
    same(len(await store.due(NOON)), 6, "how many are due at that instant")


async def due_are_those_that_nobody_drives(store: Checkpointer) -> None:
    """Due are threads whose time has come and crashed ones, the longest due first; none that is held or at rest."""
    for name, wake_at in (("second", NOON + 2), ("first", NOON + 1), ("third", NOON + 3), ("tomorrow", NOON + 86_400)):
        await (await begin(store, name)).end("suspended", wake_at=wake_at)
    await (await begin(store, "at rest")).end("suspended")
    await (await begin(store, "finished")).end("finished")
    held = await begin(store, "held")
    await held.write(wake_at=NOON)
    same(await store.due(NOON + 3), ["first", "second", "third"], "what is due")
    same(await store.due(NOON + 3, limit=2), ["first", "second"], "what is due, two at most,")
    crashed = await begin(store, "crashed", seconds=0)
    await (await take(store, "woken", 0)).write(wake_at=NOON)
    same(sorted(await store.due(NOON)), ["crashed", "woken"], "what is due of two threads whose leases ran out")
    await (await take(store, "woken", 0)).write(wake_at=NOON, status="suspended")
    crashed = await take(store, "crashed", create=False)
    same(await store.due(NOON), ["woken"], "what is due when a crashed thread was taken over")
    await crashed.end("finished")
    same(await store.due(NOON), ["woken"], "what is due when it was brought to its end")


async def threads_come_in_pages(store: Checkpointer) -> None:
    """Threads are listed in the order of their ids, by code points, after an id, up to a limit, by status."""
    names = ["b", "B", "a", "ab", "a_b", "a b", "Z", "é", "e\u0301", "线", "😀", "\uffee", "10", "9", "-"]
    for name in names:
        await (await begin(store, name)).end("finished" if name in {"b", "B", "ab"} else "suspended")
    wanted = sorted(names)
    same([thread.thread_id for thread in await store.threads()], wanted, "the list of threads")
    found: list[str] = []
    while page := await store.threads(after=found[-1] if found else None, limit=4):
        demand(len(page) <= 4, f"a page of at most 4 threads has {len(page)}")
        found += [thread.thread_id for thread in page]
        demand(len(found) <= len(names), "the pages of threads do not end")
    same(found, wanted, "the list of threads in pages")
    ended = [thread.thread_id for thread in await store.threads(status="finished")]
    same(ended, ["B", "ab", "b"], "the finished threads")
    same(await store.thread("a"), (await store.threads(after="Z", limit=1))[0], "a thread in the list")
