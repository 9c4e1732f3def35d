"""Deadlines and races: what happens by itself, and who wins."""

from __future__ import annotations

import threading
from collections import Counter

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jianmu.engine import questions
from jianmu.engine.book import Book
from jianmu.engine.interaction import Answer, InteractionController, Record, Request, default, escalate, fail
from jianmu.errors import AlreadyAnsweredError, ExpiredError, InteractionError, NotAnsweredError, WithdrawnError
from tests.engine.asking import HandClock, at, loaded, origin

pytestmark = pytest.mark.anyio


def test_the_table_of_states_has_one_way_out() -> None:
    """Only `open` has ends, and each end is final: any other move is an error."""
    desk = InteractionController(HandClock())
    record = desk.ask(origin(), Request("?"))
    assert questions.ENDS["open"] == ("answered", "expired", "withdrawn")
    for end in questions.ENDS["open"]:
        assert questions.ENDS[end] == ()
        for other in questions.ENDS:
            with pytest.raises(ValueError, match="goes from open"):
                record.ended(end).ended(other)


async def test_a_question_that_expired_takes_no_answer() -> None:
    """I13: at 60 it is expired, also across a restart at 30; the late answer is an ExpiredError."""
    clock = HandClock()
    desk = InteractionController(clock)
    id = desk.ask(origin(), Request("?", expires=[fail(after=60)])).id
    clock.seconds = 30
    desk = loaded(desk, clock)
    assert desk.next_deadline() == at(60)
    assert desk.due(at(59.999)) == []
    clock.seconds = 61
    with pytest.raises(ExpiredError, match=f"question '{id}' expired at 2030-01-01T00:01:00"):
        await desk.answer(Answer(id, "late"))
    assert desk.record(id).status == "open"
    assert [(record.status, record.ended_at) for record in desk.due(clock.utc())] == [("expired", at(60))]
    with pytest.raises(ExpiredError):
        await desk.answer(Answer(id, "late"))
    with pytest.raises(NotAnsweredError, match="expired"):
        desk.deliver(id)
    assert desk.due(at(1000)) == []
    assert desk.next_deadline() is None


async def test_the_deadline_itself_is_too_late() -> None:
    """At the very instant the answer is refused and the step is due: exactly one of both."""
    clock = HandClock()
    desk = InteractionController(clock)
    early, late = (desk.ask(origin(f"m/{n}"), Request("?", expires=[fail(60)])).id for n in "ab")
    clock.seconds = 59.999
    await desk.answer(Answer(early, "x"))
    clock.seconds = 60
    with pytest.raises(ExpiredError):
        await desk.answer(Answer(late, "x"))
    assert [record.id for record in desk.due(clock.utc())] == [late]


async def test_a_default_is_the_deadlines_answer() -> None:
    """I24: the node gets "no"; the record says that the deadline gave it, and no person."""
    clock = HandClock()
    desk = InteractionController(clock)
    id = desk.ask(origin(), Request("?", expires=[default("no", after=60)])).id
    desk.due(at(60))
    assert desk.deliver(id) == "no"
    record = desk.record(id)
    assert (record.status, record.source, record.answer.by) == ("expired", "deadline", None)
    with pytest.raises(ExpiredError):
        await desk.answer(Answer(id, "yes"))
    other = desk.ask(origin("m/b"), Request("?")).id
    await desk.answer(Answer(other, "x"))
    assert desk.record(other).source == "person"


async def test_escalation_keeps_the_question_open_under_its_id() -> None:
    """Each step counts from the one before; the assignee changes, the id stays, an answer is taken."""
    clock = HandClock()
    told: list[tuple[str, str | None]] = []
    desk = InteractionController(clock, listener=lambda deed, record: told.append((deed, record.question.assignee)))
    request = Request("?", assignee="ann", expires=[escalate("bob", 10), escalate("cy", 20), fail(30)])
    id = desk.ask(origin(), request).id
    assert (desk.next_deadline(), desk.pending[0].expires_at) == (at(10), at(60))
    desk.due(at(10))
    assert desk.next_deadline() == at(30)
    clock.seconds = 59
    desk = loaded(desk, clock)
    desk.listener = lambda deed, record: told.append((deed, record.question.assignee))
    desk.due(at(30))
    assert told == [("asked", "ann"), ("escalated", "bob"), ("escalated", "cy")]
    assert desk.next_deadline() == at(60)
    await desk.answer(Answer(id, "x"))
    assert desk.deliver(id) == "x"
    jumped = InteractionController(clock)
    jumped.ask(origin(), request)
    assert [(one.status, one.question.assignee) for one in jumped.due(at(1e6))] == [("expired", "cy")]


async def test_a_question_that_only_escalates_never_ends_by_itself() -> None:
    """It has no expires_at and stays open after its last step."""
    desk = InteractionController(HandClock())
    desk.ask(origin(), Request("?", expires=[escalate("bob", 10)]))
    desk.due(at(1e8))
    assert [(one.assignee, one.expires_at) for one in desk.pending] == [("bob", None)]
    assert desk.next_deadline() is None


async def test_approve_and_reject_at_once() -> None:
    """I15: one is accepted, the other an AlreadyAnsweredError; the same key twice is one answer for both callers."""
    refused: list[AlreadyAnsweredError] = []

    desk = InteractionController(HandClock())
    one = desk.ask(origin("m/a"), Request("?", answer=bool)).id
    other = desk.ask(origin("m/b"), Request("?")).id

    async def vote(call) -> None:
        try:
            await call(one)
        except AlreadyAnsweredError as error:
            refused.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(vote, desk.approve)
            group.start_soon(vote, desk.reject)
            group.start_soon(desk.answer, Answer(other, "x", key="k"))
            group.start_soon(desk.answer, Answer(other, "x", key="k"))
    assert len(refused) == 1
    assert desk.deliver(one) == refused[0].record.answer.payload
    assert desk.deliver(other) == "x"


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(["answer", "keyed", "withdraw", "halt", "due", "batch"]), min_size=2, max_size=6),
    st.booleans(),
)
def test_exactly_one_of_racing_ends_wins(deeds: list[str], is_over: bool) -> None:
    """Answers, withdrawals, halts and deadlines from real threads: one end, the others typed refusals; told once."""
    clock = HandClock()
    told: Counter[str] = Counter()
    desk = InteractionController(clock, listener=lambda deed, _: told.update([deed]))
    id = desk.ask(origin(), Request("?", expires=[fail(60)])).id
    beside = desk.ask(origin("main/beside"), Request("?")).id
    clock.seconds = 61 if is_over else 1
    start = threading.Barrier(len(deeds))
    accepted: list[str] = []
    wrong: list[BaseException] = []

    def act(number: int, deed: str) -> None:
        start.wait(10)
        try:
            if deed == "answer":
                desk.answer_nowait(Answer(id, str(number)))
            elif deed == "keyed":
                desk.answer_nowait(Answer(id, str(number), key="k"))
            elif deed == "batch":
                desk.answer_nowait(Answer(id, str(number)), Answer(beside, "y", key="b"))
            elif deed == "withdraw":
                anyio.run(desk.withdraw, id)
            elif deed == "halt":
                desk.withdraw_open("main/ask")
                return
            else:
                desk.due(clock.utc())
                return
            accepted.append(deed)
        except InteractionError:
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=act, args=item) for item in enumerate(deeds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    record = desk.record(id)
    assert wrong == []
    ends = told["withdrawn"] + told["expired"] + (told["answered"] - (desk.record(beside).status == "answered"))
    assert ends == (record.status != "open")
    assert (record.status == "answered") == any(deed in accepted for deed in ("answer", "keyed", "batch"))
    assert len([deed for deed in accepted if deed != "keyed"]) + ("keyed" in accepted) <= 1
    assert (desk.record(beside).status == "answered") == ("batch" in accepted)
    if is_over:
        assert record.status in ("open", "expired", "withdrawn")
        assert accepted == []


def test_decisions_about_questions_wait_for_each_other() -> None:
    """While one is made, no other thread's can be: the second sees what the first has decided."""
    desk = InteractionController(HandClock())
    record = desk.ask(origin(), Request("?"))
    book = Book([record])
    inside, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def slow(record: Record) -> Record:
        inside.set()
        go_on.wait(0.05)
        return record.ended("withdrawn")

    def quick(record: Record) -> None:
        seen.append(record.status)
        go_on.set()

    threads = [threading.Thread(target=book.settle, args=([(record.id, slow)],))]
    threads[0].start()
    inside.wait(5)
    threads.append(threading.Thread(target=book.settle, args=([(record.id, quick)],)))
    threads[1].start()
    for thread in threads:
        thread.join(5)
    assert seen == ["withdrawn"]


async def test_withdrawn_after_the_deadline_is_refused() -> None:
    """A person cannot withdraw what has expired, though nobody has moved it yet; nor what was answered."""
    clock = HandClock()
    desk = InteractionController(clock)
    over, done = (desk.ask(origin(f"m/{n}"), Request("?", expires=[fail(60)])).id for n in "ab")
    await desk.answer(Answer(done, "x"))
    clock.seconds = 60
    with pytest.raises(ExpiredError):
        await desk.withdraw(over)
    with pytest.raises(AlreadyAnsweredError):
        await desk.withdraw(done)


async def test_input_that_withdraws_ends_all_open_questions() -> None:
    """I14, I25: what halts the whole tree withdraws both questions, and late answers are WithdrawnErrors."""
    desk = InteractionController(HandClock())
    ids = [desk.ask(origin(f"main/{name}"), Request("?")).id for name in "ab"]
    desk.withdraw_open("main", "new input")
    assert desk.pending == ()
    for id in ids:
        with pytest.raises(WithdrawnError, match="new input"):
            await desk.answer(Answer(id, "late"))
