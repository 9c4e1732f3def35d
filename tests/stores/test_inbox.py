"""The inbox of a store: questions of all threads, answered without loading one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine import decisions
from jianmu.engine.answers import Approval
from jianmu.engine.checkpoint import Move, Sought
from jianmu.engine.interaction import Answer, Request, escalate, fail
from jianmu.engine.outside import settle
from jianmu.errors import (
    AlreadyAnsweredError,
    AmbiguousAnswerError,
    ClaimedError,
    ExpiredError,
    InteractionError,
    InvalidAnswerError,
    StoreError,
    UnknownSuspensionError,
    WithdrawnError,
)
from jianmu.stores.base import Store
from tests.cases.people import Desk, ask, seq
from tests.stores.threads import DAY, NOON, idle, record, suspended

pytestmark = pytest.mark.anyio
LATER = NOON + timedelta(seconds=10)
MINUTE = Request("Go on?", answer=str, expires=[fail(after=60)])


async def waiting(store: Store, thread_id: str = "t", request: Request | None = None) -> str:
    """Make a thread with one open question, and return its id."""
    (asked,) = await suspended(store, thread_id, record(thread_id, request or Request("Go on?", answer=str)))
    return asked.id


async def test_the_inbox_of_a_thousand_threads_is_told_without_loading_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I20: of 1,000 threads 37 have an open question, 5 for ann, 3 older than a day; no thread is read for it."""
    for number in range(37):
        assignee = "ann" if number < 5 else None
        at = NOON - 2 * DAY if number in (4, 20, 30) else NOON - timedelta(hours=2)
        id = f"asking {number}"
        await suspended(store, id, record(id, Request("Go on?", assignee=assignee), at=at))
    async with anyio.create_task_group() as group:
        for number in range(963):
            group.start_soon(idle, store, f"thread {number}")

    async def read(*_: object, **__: object) -> None:
        raise AssertionError("a thread was loaded")

    for name in ("read", "log", "thread", "row"):
        monkeypatch.setattr(store, name, read)
    inbox = store.inbox
    assert len(await inbox.pending(now=NOON)) == await inbox.count(now=NOON) == 37
    assert len(await inbox.pending(assignee="ann", now=NOON)) == await inbox.count(assignee="ann", now=NOON) == 5
    old = DAY.total_seconds()
    assert len(await inbox.pending(older_than=old, now=NOON)) == await inbox.count(older_than=old, now=NOON) == 3
    counts = await inbox.counts(now=NOON)
    assert (counts.open, counts.by_assignee, counts.by_reason) == (37, {None: 32, "ann": 5}, {"input": 37})
    assert counts.older_than == {"hour": 37, "day": 3, "week": 0}


async def test_pages_follow_each_other_by_a_cursor(store: Store) -> None:
    """Pages of four give all ten questions once, the oldest first, also those asked at one instant."""
    asked = [await waiting(store, f"t{number}") for number in range(10)]
    found: list[str] = []
    after = None
    while page := await store.inbox.pending(after=after, limit=4):
        found += [one.id for one in page]
        after = page[-1].cursor
    assert found == sorted(asked)


async def test_questions_are_found_by_thread_and_reason(store: Store) -> None:
    """A page can be of one thread, or of one kind of question."""
    first = await waiting(store, "t1")
    second = await waiting(store, "t2", Request("Ship?", reason="approval"))
    assert [one.id for one in await store.inbox.pending(thread_id="t1")] == [first]
    assert [one.id for one in await store.inbox.pending(reason="approval")] == [second]
    assert await store.inbox.pending(thread_id="t1", reason="approval") == ()


async def test_what_is_private_is_in_no_inbox(store: Store) -> None:
    """What a question keeps for itself is neither in a page nor in what an answer or a refusal returns."""
    id = await waiting(store, "t", Request("Go on?", private={"token": "s3cret"}))
    (shown,) = await store.inbox.pending()
    assert "s3cret" not in repr(shown) + shown.model_dump_json()
    assert shown.private is None
    (told,) = await store.inbox.answer(Answer(id, "yes"))
    assert told.private is None
    with pytest.raises(AlreadyAnsweredError) as refused:
        await store.inbox.answer(Answer(id, "no"))
    assert refused.value.record.private is None
    (row,) = await store.questions(Sought((id,), status=None))
    assert "s3cret" in row.asked


async def test_an_answer_is_kept_and_makes_its_thread_due(store: Store) -> None:
    """An answer is in the store with who gave it and when; nothing is run, and the thread is to be driven."""
    id = await waiting(store)
    assert await store.due(LATER.timestamp()) == []
    (told,) = await store.inbox.answer(Answer(id, "yes", by="ann", metadata={"from": "web"}), now=LATER)
    assert (told.status, told.answer, told.ended_at, told.source) == (
        "answered",
        Answer(id, "yes", by="ann", metadata={"from": "web"}),
        LATER,
        "person",
    )
    assert await store.inbox.pending() == ()
    assert await store.due(LATER.timestamp()) == ["t"]
    assert await store.mail("t") == 1


async def test_several_answers_are_taken_all_or_none(store: Store) -> None:
    """Where the third of three does not fit, none is taken; mended, all are; also across threads."""
    asked = [await waiting(store, f"t{number}", Request("How many?", answer=int)) for number in range(3)]
    answers = [Answer(id, 7) for id in asked]
    with pytest.raises(AlreadyAnsweredError):
        await store.inbox.answer(*answers, Answer(asked[0], 8))
    with pytest.raises(InvalidAnswerError, match=asked[2]):
        await store.inbox.answer(*answers[:2], Answer(asked[2], "seven"))
    assert await store.inbox.count() == 3
    assert [told.status for told in await store.inbox.answer(*answers)] == ["answered"] * 3
    assert await store.inbox.count() == 0


async def test_more_answers_than_a_page_has_are_taken_at_once(store: Store) -> None:
    """All of 120 in one step, which is one piece of mail for their thread."""
    asked = await suspended(store, "t", *(record("t", count=number) for number in range(120)))
    told = await store.inbox.answer(*(Answer(one.id, "yes") for one in asked))
    assert [one.id for one in told] == [one.id for one in asked]
    assert (await store.inbox.count(), await store.mail("t")) == (0, 1)


async def test_counts_are_read_page_by_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are answers that are sought by their key."""
    monkeypatch.setattr("jianmu.stores.inbox.PAGE", 2)
    asked = [await waiting(store, f"t{number}") for number in range(5)]
    assert (await store.inbox.counts(now=NOON)).open == 5
    for id in asked:
        await store.inbox.answer(Answer(id, "yes", key=f"key of {id}"))
    (told,) = await store.inbox.answer(Answer(None, "no", key=f"key of {asked[4]}"))
    assert told.id == asked[4]


async def test_the_same_key_twice_is_one_answer(store: Store) -> None:
    """A repeated delivery, by id or without one, returns the first record and changes nothing."""
    id = await waiting(store)
    (first,) = await store.inbox.answer(Answer(id, "yes", key="k"), now=LATER)
    other = await waiting(store, "other")
    (second,) = await store.inbox.answer(Answer(id, "no", key="k"))
    (third,) = await store.inbox.answer(Answer(None, "no", key="k"))
    assert first.answer == second.answer == third.answer == Answer(id, "yes", key="k")
    assert (second.id, third.id, second.ended_at) == (id, id, LATER)
    assert await store.mail("t") == 1
    assert [one.id for one in await store.inbox.pending()] == [other]
    with pytest.raises(AlreadyAnsweredError) as refused:
        await store.inbox.answer(Answer(id, "no", key="another"))
    assert refused.value.record.answer.payload == "yes"


async def test_an_answer_without_an_id_is_for_the_only_open_question(store: Store) -> None:
    """With one question open no id is needed; with none or two it is refused, with the ids."""
    with pytest.raises(UnknownSuspensionError):
        await store.inbox.answer(Answer(None, "yes"))
    first = await waiting(store, "t1")
    second = await waiting(store, "t2")
    with pytest.raises(AmbiguousAnswerError) as refused:
        await store.inbox.answer(Answer(None, "yes"))
    assert set(refused.value.open_ids) == {first, second}
    await store.inbox.withdraw(first)
    (told,) = await store.inbox.answer(Answer(None, "yes"))
    assert told.id == second


async def answered(store: Store, id: str) -> None:
    await store.inbox.answer(Answer(id, "first"), now=LATER)


async def withdrawn(store: Store, id: str) -> None:
    await store.inbox.withdraw(id, "not needed", now=LATER)


async def swept(store: Store, _: str) -> None:
    await store.sweep(NOON + timedelta(seconds=61))


async def late(*_: object) -> None:
    """Nobody has moved the question, but its deadline has passed."""


@pytest.mark.parametrize(
    ("before", "error"),
    [(answered, AlreadyAnsweredError), (withdrawn, WithdrawnError), (swept, ExpiredError), (late, ExpiredError)],
)
async def test_a_question_that_is_over_takes_no_answer(
    store: Store, before: Callable[..., Any], error: type[InteractionError]
) -> None:
    """Each way out of `open` has its own refusal, for answers, withdrawals and claims; nothing is changed."""
    id = await waiting(store, "t", MINUTE)
    await before(store, id)
    (row,) = await store.questions(Sought((id,), status=None))
    now = NOON + timedelta(seconds=60)
    for call in (
        store.inbox.answer(Answer(id, "second"), now=now),
        store.inbox.answer(Answer(id, {"fits": "not"}), now=now),
        store.inbox.withdraw(id, now=now),
        store.inbox.claim(id, "ann", now=now),
    ):
        with pytest.raises(error) as refused:
            await call
        assert refused.value.id == id
    (after,) = await store.questions(Sought((id,), status=None))
    assert (after.status, after.ended, after.taken) == (row.status, row.ended, row.taken)


async def test_an_unknown_id_is_told_the_open_ones(store: Store) -> None:
    """An id that is nobody's is refused with the ids that wait, and nothing of the same call is taken."""
    id = await waiting(store)
    inbox = store.inbox
    for call in (
        inbox.answer(Answer(id, "yes"), Answer("nobody", "yes")),
        inbox.withdraw("nobody"),
        inbox.claim("nobody", "ann"),
        inbox.release("nobody", "ann"),
        inbox.approve("nobody"),
    ):
        with pytest.raises(UnknownSuspensionError, match="'nobody'") as refused:
            await call
        assert refused.value.open_ids == (id,)
    assert await inbox.count() == 1


async def test_a_claim_keeps_others_out_until_it_ends(store: Store) -> None:
    """Who has claimed a question answers it; others, named or not, only when the claim has run out."""
    id = await waiting(store)
    claimed = await store.inbox.claim(id, "ann", seconds=60, now=NOON)
    assert (claimed.claimed_by, claimed.claimed_until) == ("ann", NOON + timedelta(seconds=60))
    assert (await store.inbox.pending(now=LATER))[0].claimed_by == "ann"
    for call in (
        store.inbox.answer(Answer(id, "yes", by="bob"), now=LATER),
        store.inbox.answer(Answer(id, "yes"), now=LATER),
        store.inbox.withdraw(id, by="bob", now=LATER),
        store.inbox.claim(id, "bob", now=LATER),
        store.inbox.release(id, "bob", now=LATER),
    ):
        with pytest.raises(ClaimedError, match=id) as refused:
            await call
        assert refused.value.id == id
    over = NOON + timedelta(seconds=60)
    assert (await store.inbox.pending(now=over))[0].claimed_by is None
    assert (await store.inbox.claim(id, "bob", now=over)).claimed_by == "bob"
    (told,) = await store.inbox.answer(Answer(id, "yes", by="bob"), now=over)
    assert told.status == "answered"


async def test_a_claim_is_renewed_and_released_by_its_owner(store: Store) -> None:
    """The same person's claim lasts anew; released, anybody may answer; where it is over, a release does nothing."""
    id, other = await waiting(store), await waiting(store, "other")
    await store.inbox.claim(id, "ann", seconds=60, now=NOON)
    assert (await store.inbox.claim(id, "ann", seconds=60, now=LATER)).claimed_until == LATER + timedelta(seconds=60)
    await store.inbox.release(id, "ann", now=LATER)
    await store.inbox.release(id, "bob", now=LATER)
    assert (await store.inbox.pending(now=LATER))[0].claimed_by is None
    await store.inbox.answer(Answer(id, "yes", by="bob"), now=LATER)
    await store.inbox.claim(other, "ann", seconds=60, now=LATER)
    await store.inbox.answer(Answer(other, "yes", by="ann"), now=LATER)
    for by in ("ann", "bob"):
        await store.inbox.release(other, by, now=LATER)


async def test_what_no_person_does_passes_a_claim(store: Store) -> None:
    """A deadline, and a withdrawal in nobody's name, end a question that somebody has claimed."""
    first = await waiting(store, "t1", MINUTE)
    second = await waiting(store, "t2", MINUTE)
    for id in (first, second):
        await store.inbox.claim(id, "ann", seconds=3600, now=NOON)
    assert (await store.inbox.withdraw(first, "not needed", now=LATER)).why == "not needed"
    assert [one.status for one in await store.sweep(NOON + timedelta(seconds=60))] == ["expired"]


async def test_approvals_have_short_forms(store: Store) -> None:
    """Approve and reject give the payload of an approval, or a bare bool where that is asked for."""
    first = await waiting(store, "t1", Request("Ship?", answer=Approval))
    told = await store.inbox.approve(first, edited={"n": 1}, by="ann", remember=True)
    assert told.answer is not None
    assert told.answer.payload == {"approved": True, "editedArgs": {"n": 1}, "reason": None, "remember": True}
    second = await waiting(store, "t2", Request("Ship?", answer=bool))
    for call in (store.inbox.reject(second, "why"), store.inbox.approve(second, edited=1)):
        with pytest.raises(InvalidAnswerError):
            await call
    told = await store.inbox.reject(second)
    assert told.answer is not None
    assert told.answer.payload is False
    third = await waiting(store, "t3", Request("Ship?", answer=Approval))
    told = await store.inbox.approve(third)
    assert told.answer is not None
    assert told.answer.payload == {"approved": True, "editedArgs": None, "reason": None, "remember": False}
    await waiting(store, "t4", Request("Ship?", answer=Approval))
    told = await store.inbox.reject(reason="too dear")
    assert told.answer is not None
    assert told.answer.payload == {"approved": False, "editedArgs": None, "reason": "too dear", "remember": False}


@pytest.mark.parametrize("payload", [None, False, 0, "", [], {}])
async def test_each_json_value_is_an_answer(store: Store, payload: Any) -> None:
    """Where any JSON is asked for, each value is kept as it was given."""
    id = await waiting(store, "t", Request("What?", answer=Any))
    await store.inbox.answer(Answer(id, payload))
    with pytest.raises(AlreadyAnsweredError) as refused:
        await store.inbox.answer(Answer(id, "other"))
    kept = refused.value.record.answer.payload
    assert (type(kept), kept) == (type(payload), payload)


async def test_a_question_without_an_answer_may_be_declined(store: Store) -> None:
    """Declining and cancelling need no payload that fits."""
    first = await waiting(store, "t1", Request("How many?", answer=int))
    second = await waiting(store, "t2", Request("How many?", answer=int))
    told = await store.inbox.answer(Answer(first, action="decline"), Answer(second, "no time", action="cancel"))
    assert [one.refusal for one in told] == ["declined", "cancelled: no time"]


async def test_one_of_racing_ends_wins(store: Store) -> None:
    """Of six answers, an approval and an expiry at once exactly one is taken; the others are told why not."""
    id = await waiting(store, "t", MINUTE)
    outcomes: list[object] = []
    before, after = NOON + timedelta(seconds=59), NOON + timedelta(seconds=61)

    async def attempt(call: Any) -> None:
        try:
            outcomes.append(await call)
        except InteractionError as error:
            outcomes.append(type(error))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(attempt, store.inbox.answer(Answer(id, f"{number}"), now=before))
            group.start_soon(attempt, store.sweep(after))
            group.start_soon(attempt, store.inbox.withdraw(id, now=before))
    taken = [one for one in outcomes if not isinstance(one, type) and one != ()]
    assert len(taken) == 1
    assert await store.mail("t") == 1


async def test_a_lost_race_is_looked_at_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that meets an escalation between its look and its step is taken all the same, with the new assignee."""
    request = Request("Go on?", answer=str, assignee="ann", expires=[escalate("boss", after=5), fail(after=60)])
    id = await waiting(store, "t", request)
    move = store.move
    sent: list[Move] = []

    async def raced(moves: list[Move], **options: Any) -> bool:
        if not sent:
            sent.extend(moves)
            assert [one.assignee for one in await store.sweep(LATER)] == ["boss"]
        return await move(moves, **options)

    monkeypatch.setattr(store, "move", raced)
    (told,) = await store.inbox.answer(Answer(id, "yes"), now=LATER)
    assert (told.question.assignee, told.taken, told.status) == ("boss", 1, "answered")
    assert (sent[0].now, sent[0].by) == (LATER.timestamp(), "")


async def test_a_store_that_refuses_for_no_reason_is_told_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that a store refuses again and again, though nothing forbids it, ends with an error and not never."""
    id = await waiting(store)

    async def never(*_: Any, **__: Any) -> bool:
        return False

    monkeypatch.setattr(store, "move", never)
    with anyio.fail_after(30), pytest.raises(StoreError, match="is the store itself sound"):
        await store.inbox.answer(Answer(id, "yes"))


async def test_bad_input_is_refused_before_anything(store: Store) -> None:
    """Cursors, limits, ages, names, instants and answers that are none are typed errors."""
    id = await waiting(store)
    inbox = store.inbox
    naive = NOON.replace(tzinfo=None)
    bad: list[Any] = [
        inbox.pending(after="no cursor"),
        inbox.pending(limit=0),
        inbox.pending(older_than=-1),
        inbox.pending(now=naive),
        inbox.count(older_than=float("nan")),
        inbox.claim(id, ""),
        inbox.claim(id, "a\0b"),
        inbox.claim(id, "ann", seconds=-1),
        inbox.claim(id, "ann", seconds=float("inf")),
        inbox.release(id, "\ud800"),
    ]
    for call in bad:
        with pytest.raises(StoreError):
            await call
    number: Any = 5
    for call in (inbox.claim(number, "ann"), inbox.release(number, "ann"), inbox.withdraw(number)):
        with pytest.raises(InvalidAnswerError, match="id is a text"):
            await call
    not_answers: Any = {"id": id, "payload": "yes"}
    with pytest.raises(InvalidAnswerError, match=r"Answer\(id, payload\)"):
        await inbox.answer(not_answers)
    assert await inbox.answer() == ()
    (row,) = await store.questions(Sought((id,)))
    assert row.claimed_by is None


async def test_only_the_questions_of_one_thread_count_where_one_is_named(store: Store) -> None:
    """For a run's own questions those of others are unknown, and are not listed."""
    first, second = await waiting(store, "t1"), await waiting(store, "t2")
    decided = [(second, decisions.withdraw(LATER, "over"))]
    with pytest.raises(UnknownSuspensionError) as refused:
        await settle(store, decided, now=LATER, wake_at=0, thread_id="t1")
    assert refused.value.open_ids == (first,)
    (change,) = await settle(store, decided, now=LATER, wake_at=0, thread_id="t2")
    assert (change.deed, change.record.why) == ("withdrawn", "over")


async def test_a_live_run_is_answered_from_the_inbox(store: Store) -> None:
    """A run that waits finds the answer that came to the store, and goes on; the thread was held all the time."""
    with anyio.fail_after(60):
        agent = Agent(seq("main", ask("sure", bool)), Desk, store=store, poll_answers=0.01)
        ends: list[Status] = []

        async def run() -> None:
            ends.append(await agent.run(thread_id="t"))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            while not (found := await store.inbox.pending()):
                await checkpoint()
            await store.inbox.answer(Answer(found[0].id, True, by="ann"))
        assert (ends, agent.state.values) == ([Status.SUCCESS], {"sure": True})


async def test_a_claim_in_the_inbox_holds_for_a_live_agent(store: Store) -> None:
    """Who has the agent at hand cannot answer what somebody has claimed; the one who has claimed it can."""
    with anyio.fail_after(60):
        agent = Agent(seq("main", ask("sure", bool)), Desk, store=store)
        await agent.run_until_suspend(thread_id="t")
        (found,) = await store.inbox.pending()
        await store.inbox.claim(found.id, "ann")
        for by in ("bob", None):
            with pytest.raises(ClaimedError):
                await agent.resume(True, by=by)
        assert (await agent.resume(True, by="ann")).status is Status.SUCCESS
