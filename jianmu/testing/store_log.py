"""Checks of a store: the log, the rows beside it, what is read at a number, trimming, forks, growth."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from jianmu.engine.checkpoint import Checkpointer, Delivery, Kind, Row, Sought, Stored
from jianmu.errors import StoreError
from jianmu.testing.store_scene import (
    NOON,
    Trial,
    answer,
    begin,
    demand,
    key,
    outcome,
    picture,
    question,
    refused,
    same,
    story,
    take,
)


async def data_outlives_its_store(trial: Trial) -> None:
    """What was committed is there when the store is opened again, and what was opened again goes on."""
    async with trial.open() as store:
        await (await story(store, "t")).end()
        before = await picture(store, "t")
    async with trial.open() as store:
        same(await picture(store, "t"), before, "the thread")
        writer = await take(store, "t", create=False)
        same(writer.number, 7, "the number with which the lease came")
        await writer.write()
        await store.close()
        same(await store.log("t", after=6), [(7, "[7]"), (8, "[8]")], "the end of the log, after a close,")


async def numbers_grow_by_one(store: Checkpointer) -> None:
    """Each transaction has the next number, also one that adds nothing to the log."""
    writer = await take(store, "t")
    same(writer.number, 0, "the number of a new thread")
    await writer.write(body='["a"]')
    await writer.write(body=None)
    await writer.write(body='["c"]')
    thread = await store.thread("t")
    same(thread and thread.number, 3, "the thread's number")
    same(await store.log("t"), [(1, '["a"]'), (3, '["c"]')], "the log")


async def another_number_changes_nothing(store: Checkpointer) -> None:
    """A transaction that expects another number than the log has is refused and changes nothing."""
    writer = await story(store, "t")
    before = await picture(store, "t")
    rows, asked = (Row("effect", "new", "[]", 9),), (question("new", "t", came=9),)
    for expected, releases in product((0, 5, 7), (False, True)):
        fields = {"expected": expected, "releases": releases, "rows": rows, "questions": asked}
        step = writer.step(**fields, gone=(("effect", "kept"),))
        await refused(StoreError, store.commit(step), f"a transaction for number {expected} + 1 after number 6")
        same(await picture(store, "t"), before, "the thread afterwards")
    same(await store.row("t", "effect", "new"), None, "a row of the refused transaction")
    await writer.write()


async def a_transaction_is_all_or_nothing(store: Checkpointer) -> None:
    """A transaction of which one part cannot be carried out leaves nothing of the others."""
    await begin(store, "other", "taken")
    writer = await story(store, "t")
    before, neighbour = await picture(store, "t"), await picture(store, "other")
    step = writer.step(
        questions=(question("new", "t", came=7), question("taken", "t", came=7)),
        delivered=(Delivery(key("t", "open"), ended='{"why":"halted"}', consumed=True, is_gone=True),),
        rows=(Row("effect", "new", "[]", 7), Row("effect", "kept", "[]", 2, 7)),
        gone=(("input", "in"),),
        status="suspended",
    )
    await refused(StoreError, store.commit(step), "a transaction with a question whose id another thread has")
    same(await picture(store, "t"), before, "the thread afterwards")
    same(await picture(store, "other"), neighbour, "the other thread afterwards")
    await writer.write()


async def a_transaction_keeps_to_its_thread(store: Checkpointer) -> None:
    """What a transaction names it finds in its own thread alone; a neighbour's rows and questions stay as they were."""
    await story(store, "other")
    before = await picture(store, "other")
    writer = await story(store, "t")
    told = Delivery(key("other", "open"), ended='{"why":"halted"}', consumed=True, unused=True, is_gone=True)
    await outcome(store.commit(writer.step(delivered=(told,))))
    same(await picture(store, "other"), before, "the neighbour after a delivery of its question")
    thread = await store.thread("t")
    writer.number = thread.number if thread else 0
    rows = (Row("cache", "c", "[7]", 7), Row("effect", "past", "[8]", 7))
    await writer.write(gone=(("tree", "t"),), closed=(("effect", "kept"),), rows=rows)
    same(await picture(store, "other"), before, "the neighbour after a transaction with ids that it has too")


async def a_row_takes_the_place_of_its_like(store: Checkpointer) -> None:
    """A row stands in the place of the one with its kind and id, and a row that is gone is gone."""
    writer = await take(store, "t")
    first = (Row("effect", "x", "[1]", 1), Row("cache", "x", "[2]", 1), Row("base", "x", "[3]", 1))
    await writer.write(rows=(*first, Row("base", "y", "[0]", 1)))
    await writer.write(rows=(Row("effect", "x", "[4]", 1, 2),))
    same(await store.row("t", "effect", "x"), Row("effect", "x", "[4]", 1, 2), "the row that was written again")
    same(await store.row("t", "base", "x"), first[2], "the row of another kind with its id")
    gone = (("base", "x"), ("effect", "never"), ("input", "x"))
    await writer.write(gone=gone, rows=(Row("cache", "x", "[5]", 3),))
    same(await store.row("t", "base", "y"), Row("base", "y", "[0]", 1), "the row with another id")
    same(await store.row("t", "base", "x"), None, "the row that went")
    same(await store.row("t", "effect", "x"), Row("effect", "x", "[4]", 1, 2), "the row of another kind")
    stored = await store.read("t")
    same(stored and stored.snapshot, Row("cache", "x", "[5]", 3), "the snapshot")
    same(await store.row("other", "cache", "x"), None, "a row of a thread that is not there")


def _ids(stored: Stored | None) -> tuple[object, ...]:
    """Return what was read, by its ids."""
    if stored is None:
        raise AssertionError("the thread was not found")
    snapshot = stored.snapshot and (stored.snapshot.id, stored.snapshot.came)
    log = tuple(number for number, _ in stored.log)
    rows = " ".join(sorted(row.id for row in stored.rows))
    return snapshot, log, rows, " ".join(asked.id.partition("-")[0] for asked in stored.questions)


async def reads_what_was_needed_at_a_number(store: Checkpointer) -> None:
    """What is read at a number is the newest snapshot until then, the log from it, and what was not done with then."""
    await story(store, "t")
    wanted = {
        1: (None, (1,), "in t", ""),
        2: (None, (1, 2), "in kept past t", "open done"),
        3: (None, (1, 2, 3), "in kept t", "open done"),
        4: (("c", 4), (), "in kept t", "open"),
        5: (("c", 4), (), "in kept t", "open"),
        6: (("c", 4), (6,), "kept t", "open"),
    }
    for number, view in wanted.items():
        same(_ids(await store.read("t", at=number)), view, f"what is read at {number}")
    same(await store.read("t"), await store.read("t", at=6), "what is read without a number")
    for number in (-1, 7, 2**40):
        await refused(StoreError, store.read("t", at=number), f"reading at {number} of 6")
    same(await store.read("nobody"), None, "what is read of a thread that is not there")


async def the_newest_snapshot_counts(store: Checkpointer) -> None:
    """Of several snapshots the newest one until a number is read, whatever its kind and id."""
    writer = await take(store, "t")
    kept = {1: Row("base", "m", "[1]", 1), 3: Row("cache", "z", "[3]", 3), 5: Row("cache", "a", "[5]", 5)}
    for number in range(1, 7):
        await writer.write(rows=(kept[number],) if number in kept else ())
    for number, wanted in ((1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5)):
        stored = await store.read("t", at=number)
        same(stored and stored.snapshot, kept[wanted], f"the snapshot that is read at {number}")


async def a_closed_row_can_be_looked_up(store: Checkpointer) -> None:
    """A row that is closed is done with from that number on; its text stays for who looks back."""
    writer = await story(store, "t")
    same(await store.row("t", "input", "in"), Row("input", "in", "[2]", 1, 6), "the closed row")
    same(await store.row("t", "effect", "never"), None, "a row that was closed and never there")
    await writer.write(closed=(("input", "kept"), ("tree", "kept")))
    same(
        await store.row("t", "effect", "kept"), Row("effect", "kept", "[3]", 2), "a row of another kind than was closed"
    )


async def rows_of_a_kind_that_are_needed(store: Checkpointer) -> None:
    """The rows of one kind that are not done with are returned in the order in which they came first."""
    writer = await story(store, "t")
    await writer.write(rows=(Row("input", "z", "[1]", 7), Row("input", "a", "[2]", 7), Row("input", "m", "[3]", 7)))
    demand(await store.enqueue("t", Row("input", "b", "[4]"), wake_at=NOON), "an input was not taken")
    await writer.write(rows=(Row("input", "a", "[5]", 7),), closed=(("input", "z"),))
    wanted = [Row("input", "a", "[5]", 7), Row("input", "m", "[3]", 7), Row("input", "b", "[4]")]
    same(await store.rows("t", "input"), wanted, "the inputs")
    same(await store.rows("t", "effect"), [Row("effect", "kept", "[3]", 2)], "the entries of the journal")
    same(await store.rows("nobody", "input"), [], "the inputs of a thread that is not there")


async def log_comes_in_pages(store: Checkpointer) -> None:
    """The log is returned from the oldest on, after a number, up to a limit."""
    writer = await take(store, "t")
    for _ in range(12):
        await writer.write()
    whole = [(number, f"[{number}]") for number in range(1, 13)]
    same(await store.log("t"), whole, "the log")
    same(await store.log("t", after=9), whole[9:], "the log after 9")
    same(await store.log("t", after=3, limit=4), whole[3:7], "four of the log after 3")
    same(await store.log("t", after=12), [], "the log after its end")
    same(await store.log("nobody"), [], "the log of a thread that is not there")


async def trim_removes_what_is_done_with(store: Checkpointer) -> None:
    """A trim removes the log up to its number, older snapshots, and what was done with by then, but for inputs."""
    writer = await story(store, "t")
    await store.trim("t", Row("base", "b", "[0]", 3))
    same(await store.log("t"), [(4, "[4]"), (6, "[6]")], "the log after a trim at 3")
    same(_ids(await store.read("t", at=3)), (("b", 3), (), "in kept t", "open done"), "what is read at 3")
    same(_ids(await store.read("t")), (("c", 4), (6,), "kept t", "open"), "what is read at the end")
    same(await store.row("t", "effect", "past"), None, "an entry that was done with at 3")
    for number in (1, 2):
        await refused(StoreError, store.read("t", at=number), f"reading at {number} after a trim at 3")
    await store.trim("t", Row("base", "b2", "[4]", 4))
    same(_ids(await store.read("t")), (("b2", 4), (6,), "kept t", "open"), "what is read after a trim at 4")
    left = [asked.id for asked in await store.questions(Sought(thread_id="t", status=None))]
    same(left, [key("t", "open")], "the questions after a trim at the number with which another was done with")
    same(await store.row("t", "cache", "c"), None, "a snapshot taken at 4 after a trim at 4")
    await store.trim("t", Row("base", "b2", "[6]", 6))
    same(_ids(await store.read("t")), (("b2", 6), (), "kept t", "open"), "what is read after a trim at 6")
    same(await store.row("t", "input", "in"), Row("input", "in", "[2]", 1, 6), "an input that was done with at 6")
    same(await store.log("t"), [], "the log after a trim at 6")
    done: list[tuple[Kind, str]] = [("base", "b")]
    for kind, id in done:
        same(await store.row("t", kind, id), None, f"the {kind} '{id}' after a trim at 6")
    await writer.write()
    same(await store.log("t"), [(7, "[7]")], "the log of a run that goes on after it was trimmed")


async def trim_keeps_open_questions(store: Checkpointer) -> None:
    """An open question, and one whose end was not delivered, outlive every trim and can be answered."""
    writer = await begin(store, "t", "q1", "q2", "q3")
    other = await story(store, "t2")
    neighbour = await picture(store, "t2")
    for turn in range(3):
        await writer.write()
        await store.trim("t", Row("base", "b", f"[{turn}]", writer.number))
    demand(await store.move([answer("q1")], wake_at=NOON), "a question was not answered after a trim")
    await store.trim("t", Row("base", "b", "[9]", writer.number))
    stored = await store.read("t")
    found = [(asked.id, asked.status, asked.ended) for asked in (stored.questions if stored else ())]
    ended = answer("q1").ended
    same(found, [("q1", "answered", ended), ("q2", "open", None), ("q3", "open", None)], "what the run needs")
    demand(await store.move([answer("q2"), answer("q3")], wake_at=NOON), "two questions were not answered after a trim")
    same(await picture(store, "t2"), neighbour, "another thread, after the trims,")
    await other.write()


async def a_fork_leaves_its_source(store: Checkpointer) -> None:
    """A thread made of one snapshot with rows and questions is whole, and its source stays as it was."""
    source = await story(store, "source")
    before = await picture(store, "source")
    fork = await take(store, "fork")
    base, entry = Row("base", "b", "[6]", 1), Row("effect", "kept", "[3]", 1)
    asked = question("forked", "fork", came=1)
    await fork.end("suspended", body=None, rows=(base, entry), questions=(asked,))
    stored = await store.read("fork")
    found = stored and (stored.thread.number, stored.snapshot, stored.log, stored.rows, stored.questions)
    same(found, (1, base, (), (entry,), (asked,)), "the fork")
    demand(await store.move([answer("forked")], wake_at=NOON), "the fork's question was not answered")
    demand(await store.delete("fork"), "the fork was not deleted")
    same(await picture(store, "source"), before, "the source")
    await source.write()


async def a_fork_needs_nothing_of_its_source(store: Checkpointer) -> None:
    """When a source is deleted, its fork is whole and goes on."""
    source = await story(store, "source")
    fork = await take(store, "fork")
    await fork.write(rows=(Row("base", "b", "[6]", 1),), questions=(question("forked", "fork", came=1),))
    await source.end()
    before = await picture(store, "fork")
    demand(await store.delete("source"), "the source was not deleted")
    same(await picture(store, "fork"), before, "the fork")
    await fork.write()


async def a_transaction_stays_small(trial: Trial) -> None:
    """Beside a snapshot of 1 MB, each of 100 transactions of 200 bytes makes the stored data grow by at most 1 kB."""
    if trial.size is None:
        return
    async with trial.open() as store:
        writer = await take(store, "t")
        await writer.write(rows=(Row("base", "b", f'"{"x" * 1_000_000}"', 1),))
    before = await trial.size(trial.name)
    async with trial.open() as store:
        writer = replace(writer, store=store)
        writer.number = 1
        for _ in range(100):
            await writer.write(body=f'"{"y" * 200}"')
    grown = await trial.size(trial.name) - before
    demand(grown <= 100_000, f"100 transactions made it grow by {grown} bytes")


async def stored_bytes_are_bounded(trial: Trial) -> None:
    """What is stored is at most three times what was written and 100 kB, in a log of 400 transactions of 1 kB."""
    if trial.size is None:
        return
    async with trial.open() as store:
        writer = await take(store, "t")
        for _ in range(400):
            await writer.write(body=f'"{"z" * 1_000}"')
    stored = await trial.size(trial.name)
    demand(stored <= 3 * 400 * 1_002 + 100_000, f"400 kB became {stored} bytes")
