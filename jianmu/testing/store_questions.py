"""Checks of a store: questions, their one way out of `open`, claims, and how they are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any  # Any: fields of a question that are sought

from jianmu.engine.checkpoint import Checkpointer, Delivery, Move, QuestionRow, Sought
from jianmu.testing.store_scene import NOON, answer, begin, demand, expiry, picture, question, same, take


async def _find(store: Checkpointer, id: str) -> QuestionRow:
    found = await store.questions(Sought(ids=(id,), status=None))
    same([asked.id for asked in found], [id], "what is found by the id of a question")
    return found[0]


async def _move(store: Checkpointer, wanted: bool, what: str, *moves: Move) -> None:
    """Fail unless moves are carried out, or are not and change nothing."""
    threads = ("t", "t2")
    before = [await picture(store, thread_id) for thread_id in threads]
    same(await store.move(moves, wake_at=NOON), wanted, f"the outcome of {what}")
    after = [await picture(store, thread_id) for thread_id in threads]
    demand(wanted or before == after, f"{what} was refused and changed something")


async def a_question_is_kept_as_asked(store: Checkpointer) -> None:
    """Every field of a question comes back as it was committed."""
    asked = question(
        "q",
        "t",
        came=1,
        asked='{"message": "sure?"}',
        reason="approval",
        assignee="ann",
        asked_at=NOON + 0.1,
        next_at=NOON + 1 / 3,
        expires_at=NOON + 1e6 / 7,
        taken=2,
    )
    await (await take(store, "t")).write(questions=(asked, plain := question("q2", "t", came=1)))
    same(await _find(store, "q"), asked, "a question with all fields")
    same(await _find(store, "q2"), plain, "a question without what may be left out")


async def a_question_ends_once(store: Checkpointer) -> None:
    """The first answer, expiry or withdrawal stands; what comes after it is refused and changes nothing."""
    await begin(store, "t", "q1", "q2")
    await begin(store, "t2", "q3")
    await _move(store, True, "an answer", answer("q1", ended='{"payload":null}'))
    found = await _find(store, "q1")
    asked = question("q1", "t", came=1, status="answered", ended='{"payload":null}')
    same(found, asked, "the answered question")
    late = answer("q1", status="withdrawn", ended='{"why":"no"}')
    for what, move in (("a second answer", answer("q1")), ("a late expiry", expiry("q1")), ("a withdrawal", late)):
        await _move(store, False, what, move)
    await _move(store, True, "an expiry", expiry("q2"))
    await _move(store, False, "an answer to an expired question", answer("q2", taken=1, taken_after=1))
    await _move(store, False, "an answer to no question", answer("nobody"))
    same((await _find(store, "q2")).status, "expired", "the status of the expired question")


async def several_moves_are_all_or_none(store: Checkpointer) -> None:
    """Several questions are answered together, those of several threads too, or none of them is."""
    await begin(store, "t", "q1", "q2")
    await begin(store, "t2", "q3")
    await _move(store, False, "two answers, one of them to no question", answer("q1"), answer("nobody"))
    await _move(store, True, "one answer", answer("q2"))
    await _move(store, False, "three answers, one of them late", answer("q1"), answer("q3"), answer("q2"))
    await _move(store, True, "two answers in two threads", answer("q3"), answer("q1"))
    demand(await store.mail("t") > 0 and await store.mail("t2") > 0, "a thread has no mail of its answer")


async def an_answer_can_be_too_late(store: Checkpointer) -> None:
    """An answer is refused from the deadline on; the deadline itself, and an answer before it, are not."""
    await begin(store, "t2")
    await (await begin(store, "t")).ask("q1", "q2", "q3", expires_at=NOON, next_at=NOON)
    await _move(store, False, "an answer at the deadline", answer("q1", now=NOON))
    await _move(store, False, "an answer after the deadline", answer("q1", now=NOON + 0.001))
    await _move(store, True, "an answer before the deadline", answer("q1", now=NOON - 0.001))
    await _move(store, True, "the expiry", expiry("q2"))
    await _move(store, False, "two answers, both late", answer("q3"), answer("q2"))


async def a_step_is_taken_once(store: Checkpointer) -> None:
    """An escalation keeps the question open under its id, and a step that was taken is not taken again."""
    await begin(store, "t2")
    await (await begin(store, "t")).ask("q", next_at=NOON, expires_at=NOON + 60)
    step = answer("q", status="open", ended=None, now=None, assignee="boss", next_at=NOON + 60, taken_after=1)
    await _move(store, True, "an escalation", step)
    await _move(store, False, "the same escalation again", step)
    await _move(store, False, "an expiry that knows nothing of the escalation", expiry("q"))
    fields = {"assignee": "boss", "next_at": NOON + 60, "expires_at": NOON + 60, "taken": 1}
    same(await _find(store, "q"), question("q", "t", came=2, **fields), "the question afterwards")
    await _move(store, True, "an answer after it", answer("q", taken=1, taken_after=2))
    ended = {"came": 2, "expires_at": NOON + 60, "taken": 2, "status": "answered", "ended": answer("q").ended}
    same(await _find(store, "q"), question("q", "t", **ended), "the answered question")


async def a_claim_keeps_others_off(store: Checkpointer) -> None:
    """While somebody's claim lasts nobody else claims, gives up or answers; it lapses by itself."""
    await begin(store, "t2")
    await begin(store, "t", "q", "q2")
    until = NOON + 60
    demand(await store.claim("q", "ann", until, now=NOON), "an open question was not claimed")
    found = await _find(store, "q")
    same((found.claimed_by, found.claimed_until, found.status), ("ann", until, "open"), "the claimed question")
    for what, end in (("claimed", until), ("given up", None)):
        demand(not await store.claim("q", "bob", end, now=NOON), f"somebody's claim was {what} by somebody else")
    same(await _find(store, "q"), found, "the question afterwards")
    await _move(store, False, "an answer by somebody else", answer("q", by="bob"))
    demand(await store.claim("q", "ann", until + 1, now=NOON), "a claim was not made longer by who has it")
    demand(await store.claim("q", "bob", until, now=until + 1), "a question was not claimed after a claim had ended")
    demand(await store.claim("q", "bob", None, now=NOON), "a claim was not given up")
    same(await _find(store, "q"), question("q", "t", came=1), "the question after its claim was given up")
    demand(await store.claim("q", "ann", until, now=NOON), "a question whose claim was given up was not claimed")
    await _move(store, True, "an answer by who has the claim", answer("q", by="ann"))
    demand(not await store.claim("q", "ann", until, now=NOON), "an answered question was claimed")
    demand(not await store.claim("nobody", "ann", until, now=NOON), "no question was claimed")
    same(await store.mail("t"), 1, "the mail after claims and one answer")


async def claims_bind_only_people(store: Checkpointer) -> None:
    """A claim that has ended, and a move that is nobody's, such as a deadline's, are not held off by a claim."""
    await begin(store, "t2")
    await begin(store, "t", "q1", "q2")
    for id in ("q1", "q2"):
        demand(await store.claim(id, "ann", NOON + 60, now=NOON), "an open question was not claimed")
    await _move(store, True, "an answer by somebody else after a claim", answer("q1", by="bob", now=NOON + 60))
    await _move(store, True, "an expiry of a claimed question", expiry("q2"))


async def a_delivery_is_written_once(store: Checkpointer) -> None:
    """The run notes what it did with a question under its number: first delivered, then done with."""
    writer = await begin(store, "t", "q1", "q2")
    same(await store.move([answer("q1")], wake_at=NOON), True, "the outcome of an answer")
    await writer.write(delivered=(Delivery("q1", consumed=True),))
    await writer.write(delivered=(Delivery("q1", consumed=True, unused=True, is_gone=True),))
    await writer.write(delivered=(Delivery("q1"),))
    ended = {"came": 1, "status": "answered", "ended": answer("q1").ended}
    wanted = question("q1", "t", **ended, consumed=2, went=3, unused=True)
    same(await _find(store, "q1"), wanted, "the question that was delivered")
    same(await _find(store, "q2"), question("q2", "t", came=1), "the other question")


async def an_end_that_came_first_stays(store: Checkpointer) -> None:
    """A question that its run gives up is withdrawn, unless an end came first, which stays."""
    writer = await begin(store, "t", "q1", "q2", "q3")
    same(await store.move([answer("q1")], wake_at=NOON), True, "the outcome of an answer")
    up = [Delivery(id, ended='{"why":"halted"}', consumed=True, unused=True, is_gone=True) for id in ("q1", "q2")]
    await writer.write(delivered=tuple(up))
    fields: dict[str, Any] = {"came": 1, "consumed": 2, "went": 2, "unused": True}
    wanted = question("q1", "t", status="answered", ended=answer("q1").ended, **fields)
    same(await _find(store, "q1"), wanted, "a question that was answered and then given up")
    wanted = question("q2", "t", status="withdrawn", ended='{"why":"halted"}', **fields)
    same(await _find(store, "q2"), wanted, "a question that was given up")
    same((await _find(store, "q3")).status, "open", "the status of the other question")
    same(await store.move([answer("q2")], wake_at=NOON), False, "the outcome of an answer to a withdrawn question")


async def a_question_can_be_written_anew(store: Checkpointer) -> None:
    """A question that its run writes again, as after a migration, has another text, reason and assignee; no more."""
    writer = await begin(store, "t", "q1", "q2")
    same(await store.move([answer("q1")], wake_at=NOON), True, "the outcome of an answer")
    demand(await store.claim("q2", "ann", NOON, now=0), "an open question was not claimed")
    anew = {"asked": '{"ask":"anew"}', "reason": "approval", "assignee": "bob"}
    await writer.ask("q1", "q2", **anew, asked_at=NOON + 9, expires_at=NOON + 9, next_at=NOON + 9, taken=9)
    wanted = question("q1", "t", came=1, status="answered", ended=answer("q1").ended, **anew)
    same(await _find(store, "q1"), wanted, "the answered question")
    wanted = question("q2", "t", came=1, claimed_by="ann", claimed_until=NOON, **anew)
    same(await _find(store, "q2"), wanted, "the open question")


async def _fill(store: Checkpointer) -> list[QuestionRow]:
    """Ask eight questions in two threads and return them in the order in which they are found."""
    rows = [
        question(f"q{n}", f"t{n % 2}", came=1, asked_at=NOON + n // 3, assignee=("ann", None, "bob")[n % 3])
        for n in range(8)
    ]
    rows = [replace(row, reason="approval", next_at=NOON + n) if n % 4 == 3 else row for n, row in enumerate(rows)]
    for thread_id in ("t1", "t0"):
        asked = tuple(row for row in reversed(rows) if row.thread_id == thread_id)
        await (await take(store, thread_id)).write(questions=asked)
    return rows


async def questions_are_found_by_their_fields(store: Checkpointer) -> None:
    """Questions are found and counted by id, thread, assignee, reason, age, next step, status, and by all at once."""
    await _fill(store)
    same(await store.move([answer("q5", assignee="bob")], wake_at=NOON), True, "the outcome of an answer")
    wanted: list[tuple[dict[str, Any], str]] = [
        ({}, "0123467"),
        ({"status": None}, "01234567"),
        ({"status": "answered"}, "5"),
        ({"thread_id": "t1"}, "137"),
        ({"thread_id": "t"}, ""),
        ({"assignee": "ann"}, "036"),
        ({"reason": "approval"}, "37"),
        ({"asked_before": NOON + 1}, "012"),
        ({"due": NOON + 3}, "3"),
        ({"due": NOON + 7}, "37"),
        ({"ids": ("q6", "q1", "q5", "no")}, "16"),
        ({"ids": ()}, ""),
        ({"ids": (*(f"n{n}" for n in range(2_000)), "q2")}, "2"),
        ({"assignee": "ann", "thread_id": "t1", "reason": "approval", "asked_before": NOON + 2, "due": NOON + 3}, "3"),
    ]
    for fields, ids in wanted:
        what = ", ".join(fields) or "nothing"
        found = await store.questions(Sought(**fields))
        same([row.id for row in found], [f"q{n}" for n in ids], f"what is found by {what}")
        same(await store.count(Sought(**fields, limit=1)), len(ids), f"what is counted by {what}")


async def questions_come_in_pages(store: Checkpointer) -> None:
    """Pages of questions, the oldest first and by id within an instant, give each question once."""
    rows = await _fill(store)
    found: list[QuestionRow] = []
    after = None
    while page := await store.questions(Sought(after=after, limit=2)):
        demand(len(page) <= 2, f"a page of at most 2 questions has {len(page)}")
        found += page
        demand(len(found) <= len(rows), "the pages of questions do not end")
        after = (page[-1].asked_at, page[-1].id)
    same([row.id for row in found], [row.id for row in rows], "the pages of questions")
    same(found, rows, "the questions")
    first = await store.questions(Sought(assignee="ann", limit=2))
    last = await store.questions(Sought(assignee="ann", limit=2, after=(first[-1].asked_at, first[-1].id)))
    same([row.id for row in (*first, *last)], ["q0", "q3", "q6"], "the pages of one person's questions")
