"""Checks of a store: ids and texts of every kind, deletion, and what is refused at the door."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from dataclasses import replace

from jianmu.engine.checkpoint import Checkpointer, Kind, Row, Sought
from jianmu.errors import StoreError, ThreadBusyError
from jianmu.testing.store_scene import (
    FAR_TOO_MANY,
    LONG,
    NOON,
    answer,
    begin,
    demand,
    holder,
    key,
    outcome,
    picture,
    question,
    refused,
    same,
    story,
    take,
)

IDS = (
    *(
        "a",
        "ab",
        "a_b",
        "a%b",
        "A_B",
        "a*b",
        "a b",
        "a ",
        " a",
        "../x",
        "user/1",
        "C:\\x",
        "it's",
        'say "x"',
        "a;--",
        "$1",
    ),
    *("%s", ":id", "{}", "null", "0", "00", "é", "e\u0301", "建木", "\u202ea", "\ufeffa", "\n", "\x7f", "🌳", "a🌳"),
    *("x" * 512, "x" * 511 + "y", "木" * 512, "🌳" * 512),
)
BAD_IDS = ("", "x" * 513, "🌳" * 513, "\0", "a\0b", "\ud800", "a\udfffb")
TEXTS = (
    r'"\u0000 \ud83c\udf33 \ud800 \\ \/ \" \n"',
    '"🌳 é e\u0301 \u2028\u2029 \x7f \ufeff \uffff 建木"',
    '{"b":1,"a":2,"b":3}',
    "[1e400,-0.0,1.0,1.10,0.1e-999]",
    f"[{'9' * 400},-{'1' * 30},{2**63},{2**64}]",
    ' {"a" :  [ ] }\r\n\t',
    '"it\'s %s %(a)s %% $1 ?1 :a {} {0} \\\\x41 --;"',
    "null",
    "[" * 200 + "]" * 200,
)
KINDS: tuple[Kind, ...] = ("tree", "cache", "effect", "input")
LARGE = f'"{"建🌳%" * 120_000}"'


async def each_id_is_a_thread_of_its_own(store: Checkpointer) -> None:
    """Ids with quotes, wildcards, paths, of 512 characters or nearly alike are different threads and come back."""
    for thread_id in IDS:
        await story(store, thread_id)
    same([thread.thread_id for thread in await store.threads(limit=FAR_TOO_MANY)], sorted(IDS), "the list of threads")
    for thread_id in IDS:
        thread, stored = await store.thread(thread_id), await store.read(thread_id, at=6)
        same(thread and (thread.thread_id, thread.number), (thread_id, 6), "a thread")
        same(stored and len(stored.rows), 2, f"how many rows {thread_id[:20]!r} has")
        found = await store.questions(Sought(thread_id=thread_id, status=None))
        same([asked.thread_id for asked in found], [thread_id] * 2, "whose the questions of a thread are")


async def delete_touches_no_neighbour(store: Checkpointer) -> None:
    """Deleting a thread leaves all others as they were, also those whose ids are nearly alike or look like patterns."""
    left = list(IDS)
    for thread_id in IDS:
        await (await story(store, thread_id)).end("suspended")
    pictures = {thread_id: await picture(store, thread_id) for thread_id in IDS}
    for thread_id in IDS[:12]:
        left.remove(thread_id)
        same(await store.delete(thread_id), True, f"the outcome of deleting {thread_id!r}")
        same([row.thread_id for row in await store.threads(limit=FAR_TOO_MANY)], sorted(left), "the list of threads")
    for thread_id in left:
        same(await picture(store, thread_id), pictures[thread_id], f"the neighbour {thread_id[:20]!r}")


async def delete_leaves_nothing(store: Checkpointer) -> None:
    """A deleted thread is nowhere any more, and one that is made under its id has nothing of it."""
    writer = await story(store, "t")
    await store.trim("t", Row("base", "b", "[0]", 3))
    await refused(ThreadBusyError, store.delete("t"), "deleting a thread that is held")
    await writer.end(wake_at=NOON)
    same(await store.delete("t"), True, "the outcome of a deletion")
    same(await picture(store, "t"), await picture(store, "never"), "what is left of a thread")
    same(await store.due(NOON), [], "what is due")
    same(await store.questions(Sought(ids=(key("t", "open"),), status=None)), [], "what is left of its question")
    same(await store.move([answer(key("t", "open"))], wake_at=NOON), False, "the outcome of an answer to it")
    same(await store.delete("t"), False, "the outcome of a deletion again")
    same((again := await take(store, "t")).lease.mail, 0, "the mail of the thread that was made anew")
    await again.write(body=None)
    stored = await store.read("t")
    same(stored and (stored.snapshot, stored.log, stored.rows, stored.questions), (None, (), (), ()), "what it has")
    same(await store.log("t"), [], "its log")
    rows: list[tuple[Kind, str]] = [("base", "b"), ("cache", "c"), ("tree", "t"), ("input", "in"), ("effect", "kept")]
    for kind, id in rows:
        same(await store.row("t", kind, id), None, f"its {kind}")
    same(await store.enqueue("t", Row("input", "in", "[]"), wake_at=NOON), True, "the outcome of an old input's id")


async def texts_come_back_byte_for_byte(store: Checkpointer) -> None:
    """A JSON text is kept as it is written: escapes, spaces, repeated keys, numbers of any size, 1 MB."""
    for n, text in enumerate((*TEXTS, LARGE)):
        writer = await take(store, f"t{n}")
        rows = tuple(Row(kind, "r", text, 1) for kind in KINDS)
        asked = question(f"q{n}", f"t{n}", came=1, asked=text)
        await writer.write(body=text, record=text, rows=rows, questions=(asked,))
        demand(await store.move([answer(f"q{n}", ended=text)], wake_at=NOON), "an answer was not taken")
        demand(await store.enqueue(f"t{n}", Row("input", text[:50], text), wake_at=NOON), "an input was not taken")
        same(await store.log(f"t{n}"), [(1, text)], "the body of a transaction")
        for row in rows:
            same(await store.row(f"t{n}", row.kind, "r"), row, "a row")
        same(await store.row(f"t{n}", "input", text[:50]), Row("input", text[:50], text), "an input and its id")
        thread, (found,) = await store.thread(f"t{n}"), await store.questions(Sought(ids=(f"q{n}",), status=None))
        same((found.asked, found.ended), (text, text), "a question and its end")
        same(thread and thread.record, text, "a record")


async def instants_come_back_exactly(store: Checkpointer) -> None:
    """Instants are kept as the floats that they are, so that pages and deadlines never miss by a rounding."""
    for n, instant in enumerate((0.1, 1 / 3, 1_700_000_000.1234567, 2.0**33 + 2.0**-19, 253_402_300_799.999)):
        writer = await take(store, f"t{n}")
        asked = question(f"q{n}", f"t{n}", came=1, asked_at=instant, next_at=instant, expires_at=instant)
        await writer.write(questions=(asked,), wake_at=instant)
        demand(await store.claim(f"q{n}", "ann", instant, now=0), "a question was not claimed")
        found = await store.questions(Sought(ids=(f"q{n}",), due=instant))
        same(found, [replace(asked, claimed_by="ann", claimed_until=instant)], "a question that is due")
        thread = await store.thread(f"t{n}")
        same(thread and thread.wake_at, instant, "when a thread is due")


async def bad_thread_ids_are_refused(store: Checkpointer) -> None:
    """An id that is empty, above 512 characters, or has a NUL or a lone surrogate is refused by every method."""
    good = await begin(store, "t")
    for bad in BAD_IDS:
        for name, call in _calls(store, bad):
            await refused(StoreError, call, f"{name} with the id {ascii(bad)[:20]}")
    same([thread.thread_id for thread in await store.threads()], ["t"], "the list of threads afterwards")
    await good.write()


def _calls(store: Checkpointer, thread_id: str) -> Iterator[tuple[str, Awaitable[object]]]:
    """Yield a call of each method that takes a thread's id."""
    yield "acquire", store.acquire(thread_id, holder(), LONG, create=True)
    yield "acquire without create", store.acquire(thread_id, holder(), LONG)
    yield "read", store.read(thread_id)
    yield "mail", store.mail(thread_id)
    yield "enqueue", store.enqueue(thread_id, Row("input", "in", "[]"), wake_at=NOON)
    yield "row", store.row(thread_id, "input", "in")
    yield "rows", store.rows(thread_id, "input")
    yield "thread", store.thread(thread_id)
    yield "log", store.log(thread_id)
    yield "trim", store.trim(thread_id, Row("base", "b", "[]", 1))
    yield "delete", store.delete(thread_id)


async def odd_texts_from_outside_do_no_harm(store: Checkpointer) -> None:
    """What a store cannot keep or look for is refused with a StoreError or found nowhere, and changes nothing."""
    writer = await begin(store, "t", "q")
    before = await picture(store, "t")
    for odd in ("", "\0", "\ud800", "q\0", "q\udfff", "x" * 100_000):
        what = ascii(odd)[:20]
        for call in _searches(store, odd):
            found = await outcome(call)
            demand(not found or isinstance(found, StoreError), f"something was found or done for {what}")
        same(await picture(store, "t"), before, f"the thread after calls with {what}")
    for surrogate in ("\ud800", '"\udfff"'):
        for row in (Row("input", "in", surrogate), Row("input", surrogate, "[]")):
            await refused(StoreError, store.enqueue("t", row, wake_at=NOON), "an input with a lone surrogate")
        step = writer.step(body=surrogate, questions=(question("new", "t", came=2),))
        await refused(StoreError, store.commit(step), "a transaction with a lone surrogate in its body")
        late = writer.step(rows=(Row("effect", "e", surrogate, 2),), questions=(question("new", "t", came=2),))
        await refused(StoreError, store.commit(late), "a transaction with a lone surrogate in a row")
        ended = answer("q", ended=surrogate)
        await refused(StoreError, store.move([ended], wake_at=NOON), "an answer with a lone surrogate")
    same(await picture(store, "t"), before, "the thread after texts with lone surrogates")
    await writer.write()


def _searches(store: Checkpointer, odd: str) -> Iterator[Awaitable[object]]:
    """Yield calls that look for something by a text from outside."""
    yield store.move([answer(odd)], wake_at=NOON)
    yield store.move([answer("q"), answer(odd)], wake_at=NOON)
    yield store.claim(odd, "ann", NOON, now=0)
    yield store.questions(Sought(ids=(odd,), status=None))
    yield store.questions(Sought(assignee=odd))
    yield store.row("t", "input", odd)
