"""Questions and answers on the controller alone: identity, answers, refusals, what is told and shown."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from datetime import datetime

import pytest

from jianmu import errors
from jianmu.engine.decisions import Decision
from jianmu.engine.interaction import Answer, Approval, InteractionController, Record, Request, Suspension, fail
from jianmu.engine.questionrows import ended_of, text_of
from tests.engine.asking import HandClock, Shown, at, loaded, origin

pytestmark = pytest.mark.anyio
VALUES = [None, False, 0, "", [], {}, True, 1.5, {"a": [None]}]


@pytest.fixture
def clock() -> HandClock:
    """The clock of the controller."""
    return HandClock()


@pytest.fixture
def desk(clock: HandClock) -> InteractionController:
    """A controller with nothing asked."""
    return InteractionController(clock)


async def test_asking_again_while_the_question_is_open_is_the_same_question(desk: InteractionController) -> None:
    """I07: an open question is not asked anew, whatever its message would be now."""
    calls: list[object] = []
    request = Request(lambda state: calls.append(state) or f"n is {state}")
    first = desk.ask(origin(), request, 1)
    again = desk.ask(origin(), request, 2)
    assert again == first
    assert calls == [1]
    assert [one.message for one in desk.pending] == ["n is 1"]


async def test_each_new_request_of_one_node_is_a_question_of_its_own(desk: InteractionController) -> None:
    """I02: four requests under one identity are four questions with four ids, each with its own answer."""
    ids: list[str] = []
    for payload in ("a", "b", "c", 7):
        ids.append(desk.ask(origin(), Request("again", answer=str | int)).id)
        await desk.answer(Answer(None, payload))
        assert desk.deliver(ids[-1]) == payload
    assert len(set(ids)) == 4
    assert [desk.record(id).answer.payload for id in ids] == ["a", "b", "c", 7]


async def test_rounds_paths_runs_threads_and_keys_tell_questions_apart(desk: InteractionController) -> None:
    """I19, I22: whatever belongs to the identity gives another id of the same, URL-safe form; nothing else does."""
    places = [
        origin(),
        origin("main/ask[2]"),
        origin("main/ask", ("main", 0)),
        origin("main/ask", ("main", 1)),
        origin("main/ask", ("main", 1), ("main/in", 0)),
        origin("main/ask", ("main", "1")),
        origin(run=2),
        origin(thread_id="u"),
    ]
    ids = [desk.ask(place, Request("?", key=key)).id for place in places for key in ("a", "b")]
    assert len(set(ids)) == 16
    assert all(len(id) == 32 and id.isalnum() and id.isascii() for id in ids)
    other = InteractionController(HandClock())
    assert other.ask(places[0], Request("other words", key="a", answer=int)).id == ids[0]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_every_json_value_is_an_answer(desk: InteractionController, clock: HandClock, value: object) -> None:
    """I06: each JSON value is taken and arrives exactly as given, also in another process."""
    id = desk.ask(origin(), Request("any", answer=object)).id
    await desk.answer(Answer(id, value))
    for one in (desk, loaded(desk, clock)):
        got = one.deliver(id)
        assert (got, type(got)) == (value, type(value))


async def test_what_was_delivered_is_new_each_time(desk: InteractionController) -> None:
    """A node that changes its answer changes nothing of the record."""
    id = desk.ask(origin(), Request("list", answer=list[int])).id
    given = [1]
    await desk.answer(Answer(id, given))
    given.append(2)
    desk.deliver(id).append(3)
    assert desk.deliver(id) == [1]
    assert desk.record(id).consumed_at is not None


async def test_a_repeated_key_is_one_answer(desk: InteractionController) -> None:
    """I05: the same key again does nothing; another key, and an id that never was, are refused and change nothing."""
    first = desk.ask(origin("main/one"), Request("?")).id
    await desk.answer(Answer(first, "yes", key="k1"))
    assert desk.deliver(first) == "yes"
    second = desk.ask(origin("main/two"), Request("?")).id
    before = desk.dump()
    await desk.answer(Answer(first, "yes", key="k1"))
    await desk.answer(Answer(None, "yes", key="k1"))
    with pytest.raises(errors.AlreadyAnsweredError, match=f"question '{first}' was answered before") as refused:
        await desk.answer(Answer(first, "yes", key="k2"))
    assert isinstance(refused.value.record, Record)
    assert refused.value.record.answer == Answer(first, "yes", key="k1")
    with pytest.raises(errors.UnknownSuspensionError, match=f"no question has the id 'never': open are {second}"):
        await desk.answer(Answer("never", "yes"))
    assert desk.dump() == before
    assert desk.suspension is not None
    assert desk.suspension.id == second


async def test_an_answer_without_id_needs_one_open_question(desk: InteractionController) -> None:
    """None open and several open are told apart, with the ids to choose from."""
    with pytest.raises(errors.UnknownSuspensionError, match="there is no question to answer: none is open"):
        await desk.answer(Answer(None, "x"))
    ids = [desk.ask(origin(f"main/{name}"), Request("?")).id for name in "ab"]
    with pytest.raises(errors.AmbiguousAnswerError, match=f"open are {ids[0]}, {ids[1]}") as refused:
        await desk.answer(Answer(None, "x"))
    assert refused.value.open_ids == tuple(ids)
    assert len(desk.pending) == 2


async def test_an_answer_that_does_not_fit_leaves_the_question_open(desk: InteractionController) -> None:
    """I12: "abc" for an int is refused at the door and 7 is taken afterwards."""
    id = desk.ask(origin(), Request("how many?", answer=int)).id
    with pytest.raises(errors.InvalidAnswerError, match=r'valid integer; it has to fit \{"type": "integer"\}'):
        await desk.answer(Answer(id, "abc"))
    assert desk.record(id).status == "open"
    await desk.answer(Answer(id, 7))
    assert desk.deliver(id) == 7


async def test_several_answers_are_taken_all_or_none(desk: InteractionController, clock: HandClock) -> None:
    """I29: one misfit among three leaves all open; mended, all three are answered, also after a restart."""
    ids = [desk.ask(origin(f"main/{name}"), Request("?", answer=int)).id for name in "abc"]
    before = desk.dump()
    with pytest.raises(errors.InvalidAnswerError) as refused:
        await desk.answer(*[Answer(id, value) for id, value in zip(ids, (1, 2, "3"), strict=True)])
    assert refused.value.id == ids[2]
    assert desk.dump() == before
    with pytest.raises(errors.AlreadyAnsweredError):
        await desk.answer(Answer(ids[0], 1), Answer(ids[1], 2), Answer(ids[0], 3))
    assert desk.dump() == before
    await desk.answer(*[Answer(id, value) for id, value in zip(ids, (1, 2, 3), strict=True)])
    assert [loaded(desk, clock).deliver(id) for id in ids] == [1, 2, 3]


async def test_a_withdrawn_question_takes_no_answer(desk: InteractionController) -> None:
    """I26: the answer is a WithdrawnError; the node is told the reason; the other question is untouched."""
    one, other = (desk.ask(origin(f"main/{name}"), Request("?")).id for name in "ab")
    await desk.withdraw(one, "not needed")
    with pytest.raises(errors.WithdrawnError, match=f"question '{one}' was withdrawn \\(not needed\\)"):
        await desk.answer(Answer(one, "x"))
    with pytest.raises(errors.WithdrawnError):
        await desk.withdraw(one)
    with pytest.raises(errors.NotAnsweredError, match="not needed") as refused:
        desk.deliver(one)
    assert refused.value.reason == "not needed"
    await desk.answer(Answer(other, "y"))
    assert desk.deliver(other) == "y"


@pytest.mark.parametrize(
    ("action", "payload", "reason"),
    [("decline", None, "declined"), ("cancel", {"a": 1}, "cancelled"), ("decline", "too risky", "declined: too risky")],
)
async def test_declined_and_cancelled_are_no_answer(
    desk: InteractionController, action: str, payload: object, reason: str
) -> None:
    """What is not accepted is not checked against the schema, and its node gets the reason, at each entry."""
    id = desk.ask(origin(), Request("?", answer=int)).id
    await desk.answer(Answer(id, payload, action=action, by="ann"))
    for _ in range(2):
        with pytest.raises(errors.NotAnsweredError) as refused:
            desk.deliver(id)
        assert refused.value.reason == reason
    assert desk.record(id).status == "answered"
    assert desk.record(id).answer.by == "ann"


async def test_delivery_is_marked_once(clock: HandClock) -> None:
    """consumed_at is the instant of the first delivery, and it is told once."""
    deeds: list[str] = []
    desk = InteractionController(clock, listener=lambda deed, _: deeds.append(deed))
    id = desk.ask(origin(), Request("?")).id
    await desk.answer(Answer(id, "x"))
    for clock.seconds in (5, 6):
        assert desk.deliver(id) == "x"
    assert desk.record(id).consumed_at == at(5)
    assert deeds == ["asked", "answered", "consumed"]


async def test_a_question_that_is_open_is_not_delivered(desk: InteractionController) -> None:
    """Delivery of an open question fails and consumes nothing."""
    id = desk.ask(origin(), Request("?")).id
    with pytest.raises(errors.NotAnsweredError, match="it is still open"):
        desk.deliver(id)
    assert desk.record(id).consumed_at is None


async def test_a_halt_withdraws_and_leaves_early_answers_unused(clock: HandClock) -> None:
    """The tree's halt withdraws open questions; an answer that came first stays, is told as unused, never used."""
    deeds: list[tuple[str, str]] = []
    desk = InteractionController(clock, listener=lambda deed, record: deeds.append((deed, record.id)))
    early, open_ = (desk.ask(origin(f"main/box/{name}"), Request("?")).id for name in "ab")
    beside = desk.ask(origin("main/boxes"), Request("?")).id
    await desk.answer(Answer(early, "x", by="ann"))
    moved = desk.withdraw_open("main/box", "halted")
    assert [record.id for record in moved] == [early, open_]
    assert deeds[-2:] == [("unused", early), ("withdrawn", open_)]
    assert desk.record(early).status == "answered"
    assert desk.record(early).answer.payload == "x"
    assert desk.record(open_).source == "tree"
    assert [one.id for one in desk.pending] == [beside]
    with pytest.raises(errors.AlreadyAnsweredError):
        await desk.answer(Answer(early, "y"))
    with pytest.raises(errors.WithdrawnError, match="halted"):
        await desk.answer(Answer(open_, "y"))
    assert desk.latest(origin("main/box/a"), "a") is None
    anew = desk.ask(origin("main/box/a"), Request("?"))
    assert anew.id != early
    assert anew.status == "open"


async def test_a_halt_of_one_round_leaves_the_others(desk: InteractionController) -> None:
    """An origin means exactly that node in that round; what was used stays what the round's entries get."""
    one, other = (desk.ask(origin("main/ask", ("main", number)), Request("?")).id for number in (0, 1))
    await desk.answer(Answer(other, "x"))
    desk.deliver(other)
    assert [record.id for record in desk.withdraw_open(origin("main/ask", ("main", 0)))] == [one]
    desk.withdraw_open("main/ask")
    latest = desk.latest(origin("main/ask", ("main", 1)), "ask")
    assert latest is not None
    assert desk.deliver(latest.id) == "x"


async def test_approvals_in_full_and_in_short(desk: InteractionController) -> None:
    """approve, reject, true, false and the whole object arrive as an Approval that is true where it was given."""
    cases = [
        (lambda: desk.approve(by="ann", edited={"amount": 5}, remember=True), True, {"amount": 5}, None),
        (lambda: desk.reject(reason="too much", by="bob"), False, None, "too much"),
        (lambda: desk.answer(Answer(None, True)), True, None, None),
        (lambda: desk.answer(Answer(None, False)), False, None, None),
        (lambda: desk.answer(Answer(None, {"approved": False, "reason": "no"})), False, None, "no"),
    ]
    for act, approved, edited, reason in cases:
        id = desk.ask(origin(), Request("pay?", answer=Approval, reason="approval")).id
        await act()
        got = desk.deliver(id)
        assert (bool(got), got.approved, got.edited_args, got.reason) == (approved, approved, edited, reason)
    for wrong in ("yes", 1, {"approved": 1}, {"approved": True, "also": 2}, {}):
        desk.ask(origin(), Request("pay?", answer=Approval))
        with pytest.raises(errors.InvalidAnswerError):
            await desk.answer(Answer(None, wrong))


async def test_approve_answers_a_plain_bool_too(desk: InteractionController, clock: HandClock) -> None:
    """A yes-or-no question takes approve and reject; a text does not."""
    one, other, text = (
        desk.ask(origin(f"m/{n}"), Request("?", answer=kind)).id
        for n, kind in zip("abc", (bool, bool, str), strict=True)
    )
    await desk.approve(one)
    await desk.reject(other)
    assert (desk.deliver(one), desk.deliver(other)) == (True, False)
    with pytest.raises(errors.InvalidAnswerError):
        await desk.approve(text)


async def test_an_approval_is_known_again_after_a_restart(desk: InteractionController, clock: HandClock) -> None:
    """The door and the type of an approval need nothing but the stored record."""
    id = desk.ask(origin(), Request("pay?", answer=Approval)).id
    new = loaded(desk, clock)
    await new.approve(id, by="ann")
    assert new.deliver(id) == Approval(approved=True)


async def test_what_was_shown_has_a_digest(desk: InteractionController) -> None:
    """I17: other data is another digest; the same message and data are the same one, in another question too."""
    shown = [desk.ask(origin(f"m/{n}"), Request("pay", data={"to": "a", "amount": n})).question.digest for n in (5, 50)]
    again = desk.ask(origin("m/9", run=2), Request("pay", data=lambda _: {"amount": 5, "to": "a"})).question.digest
    assert shown[0] == again != shown[1]


async def test_what_is_private_is_never_shown(clock: HandClock) -> None:
    """A private value is in the record, also after a restart, and in no dump, text, event or view of the question."""
    told: list[str] = []
    shown = Shown()
    desk = InteractionController(
        clock, shown, listener=lambda _, record: told.append(repr(record) + str(record.question))
    )
    request = Request("?", private={"token": "s3cret"})
    id = desk.ask(origin(), request).id
    new = loaded(desk, clock)
    for one in (desk, new):
        assert one.record(id).private == {"token": "s3cret"}
        assert one.pending[0].private == {"token": "s3cret"}
        assert "s3cret" not in repr(one.pending) + one.pending[0].model_dump_json() + str(one.pending[0].model_dump())
    assert "s3cret" not in json.dumps(shown.keys) + "".join(told) + repr(request)


async def test_the_state_shows_what_is_live(clock: HandClock) -> None:
    """The namespace has the open questions, the answers on their way, and how each stands; nothing of the past."""
    shown = Shown()
    desk = InteractionController(clock, shown)
    one, other = (desk.ask(origin(f"main/{name}"), Request("?")).id for name in "ab")
    await desk.answer(Answer(one, "x", by="ann"))
    assert [row["id"] for row in shown.keys["suspensions"]] == [other]
    assert shown.keys["resume_payloads"] == {one: "x"}
    assert shown.keys["runtime_metadata"][one]["by"] == "ann"
    desk.deliver(one)
    assert shown.keys["resume_payloads"] == {}
    assert list(shown.keys["runtime_metadata"]) == [other]
    assert json.loads(json.dumps(shown.keys)) == shown.keys


async def test_a_listener_may_answer(clock: HandClock) -> None:
    """Nothing is told under a lock: a listener that answers, and a view that answers, end in the right view."""
    shown = Shown()
    desk = InteractionController(clock, shown)
    desk.listener = lambda deed, record: (
        desk.answer_nowait(Answer(record.id, "x")) and None if deed == "asked" else None
    )
    id = desk.ask(origin(), Request("?")).id
    assert desk.record(id).status == "answered"
    assert shown.keys["resume_payloads"] == {id: "x"}

    class Eager(Shown):
        def runtime_show(self, namespace, names, show, /):
            super().runtime_show(namespace, names, show)
            if show()["suspensions"]:
                other.answer_nowait(Answer(None, "y"))

    eager = Eager()
    other = InteractionController(clock, eager)
    id = other.ask(origin(), Request("?")).id
    assert eager.keys["resume_payloads"] == {id: "y"}


class Kept:
    """A desk that keeps what it is given until it is full; it knows the questions of one controller."""

    def __init__(self, controller: InteractionController, order: list[str]) -> None:
        self.controller = controller
        self.order = order
        self.is_full = False

    async def settle(self, decided: Sequence[tuple[str, Decision]], _now: datetime) -> list[Record]:
        """Keep the ends, then have memory take them over."""
        if self.is_full:
            raise errors.StoreError("full")
        ended = [decide(self.controller.record(id)) for id, decide in decided]
        self.order.append("kept")
        self.controller.take_over(ended)
        return ended

    def wake(self) -> None:
        """Note that something was said."""
        self.order.append("woken")

    def note(self, deed: str, record: Record) -> None:
        """Note what the run has done."""
        self.order.append(f"note {deed} {record.question.key}")


async def test_an_end_is_stored_as_its_model_has_it(desk: InteractionController) -> None:
    """How a question ended is kept as the part of its record that differs from the defaults, in the same order."""
    answers = [Answer(None, value) for value in [*VALUES, "accept"]]
    answers += [Answer(None, "no", action="decline", by="ann", key="k", metadata={"a": [1]}), Answer("it", {}, by="bo")]
    for answer in answers:
        record = desk.ask(origin(), Request("?", answer={}))
        ended = record.ended("answered", answer=answer, ended_at=at(1.25), source="person")
        withdrawn = record.ended("withdrawn", ended_at=at(2), source="tree", why="halted")
        for each in (ended, withdrawn):
            kept = each.model_dump(mode="json", exclude_defaults=True, include={"answer", "ended_at", "source", "why"})
            assert ended_of(each) == text_of(kept)
    assert ended_of(record) is None


async def test_the_state_shows_no_question_that_is_not_saved(clock: HandClock) -> None:
    """What waits for its save is not shown, also while another question is: it might be asked anew after a crash."""
    shown = Shown()
    controller = InteractionController(clock, shown)
    controller.desk = Kept(controller, [])
    saved = controller.ask(origin("m/a"), Request("?")).id
    controller.show([saved])
    new = controller.ask(origin("m/b"), Request("?")).id
    assert [row["id"] for row in shown.keys["suspensions"]] == [*shown.keys["runtime_metadata"]] == [saved]
    controller.show([new])
    assert [row["id"] for row in shown.keys["suspensions"]] == [saved, new]


async def test_an_answer_is_kept_before_anybody_is_told(clock: HandClock) -> None:
    """answer() awaits the desk, then tells; what the desk cannot keep is raised, and the question stays open."""
    order: list[str] = []
    controller = InteractionController(clock, listener=lambda deed, _: order.append(deed))
    controller.desk = desk = Kept(controller, order)
    one = controller.ask(origin("m/a"), Request("?")).id
    assert controller.pending == ()  # it may be shown when it was saved
    controller.show([one])
    await controller.answer(Answer(one, "x"))
    assert order == ["note asked a", "asked", "kept", "answered"]
    other = controller.ask(origin("m/b"), Request("?")).id
    controller.show([other])
    desk.is_full = True
    with pytest.raises(errors.StoreError, match="full"):
        await controller.answer(Answer(other, "y"))
    with pytest.raises(errors.StoreError, match="full"):
        await controller.withdraw(other)
    assert order[4:] == ["note asked b", "asked"]
    assert [question.id for question in controller.pending] == [other]


async def test_an_answer_given_in_a_thread_is_kept_later(clock: HandClock) -> None:
    """`answer_nowait` counts for those who say more, and for the run when the desk has it; at rest it is refused."""
    controller = InteractionController(clock)
    controller.desk = desk = Kept(controller, [])
    id = controller.ask(origin("m/a"), Request("?")).id
    controller.show([id])
    assert controller.answer_nowait(Answer(id, "x"))[0].status == "answered"
    assert (controller.record(id).status, controller.pending, desk.order[-1]) == ("open", (), "woken")
    with pytest.raises(errors.AlreadyAnsweredError):
        controller.answer_nowait(Answer(id, "y"))
    desk.is_full = True
    with pytest.raises(errors.StoreError, match="full"):
        await controller.keep_said()
    desk.is_full = False
    await controller.stop_hearing()
    assert (controller.record(id).status, controller.has_said) == ("answered", False)
    other = controller.ask(origin("m/b"), Request("?")).id
    with pytest.raises(errors.RunError, match=r"write `await answer\(...\)`"):
        controller.answer_nowait(Answer(other, "x"))


async def test_pending_is_oldest_first_and_survives_a_restart(desk: InteractionController, clock: HandClock) -> None:
    """The order of asking is kept; a dump is JSON and loads into its equal."""
    for name in "cab":
        clock.seconds += 1
        desk.ask(origin(f"main/{name}"), Request("?", expires=[fail(60)]))
    new = loaded(desk, clock)
    for one in (desk, new):
        assert [found.key for found in one.pending] == ["c", "a", "b"]
        assert one.suspension == one.pending[0]
    assert json.loads(json.dumps(desk.dump())) == desk.dump() == new.dump()
    assert desk.pending[0].expires_at == at(61)


async def test_a_renamed_node_keeps_its_question(desk: InteractionController, clock: HandClock) -> None:
    """Loading with other paths keeps the ids, and the node at the new path finds its question."""
    id = desk.ask(origin("root/ask", ("root", 1)), Request("?", key="k")).id
    new = InteractionController(clock)
    names = {"root": "top", "root/ask": "top/confirm"}
    new.load([record.renamed(names.__getitem__) for record in desk.current()])
    assert new.latest(origin("top/confirm", ("top", 1)), "k") == new.record(id)
    assert new.pending[0].path == "top/confirm"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: None,
        lambda data: {},
        lambda data: {"records": "x"},
        lambda data: {"records": [1]},
        lambda data: {"records": [{**data["records"][0], "asked_at": "s3cret"}]},
        lambda data: {"records": [{**data["records"][0], "call": "os.system"}]},
        lambda data: {"records": [{**data["records"][0], "answer": {"id": "x", "action": "s3cret"}}]},
        lambda data: {"records": [b"\x80\x04."]},
    ],
)
async def test_a_spoiled_dump_changes_nothing(desk: InteractionController, spoil) -> None:
    """K07: garbage is a CorruptRecordError without values, and the questions stay as they were."""
    desk.ask(origin(), Request("?"))
    before = desk.dump()
    with pytest.raises(errors.CorruptRecordError, match="of a checkpoint") as refused:
        desk.load(spoil(desk.dump()))
    assert "s3cret" not in str(refused.value)
    assert desk.dump() == before


async def test_the_names_are_those_of_the_contract() -> None:
    """A suspension has the contract's fields, a request and an answer its parameters."""
    assert set(Suspension.model_fields) == {
        *("id", "thread_id", "path", "key", "reason", "message", "tool_call_id", "response_schema", "expires_at"),
        *("metadata", "data", "assignee", "group", "url", "digest", "status", "private"),
    }
    assert list(inspect.signature(Answer).parameters) == ["id", "payload", "action", "by", "key", "metadata"]
    assert list(inspect.signature(Request).parameters) == [
        *("message", "answer", "reason", "key", "data", "expires", "assignee", "metadata", "private"),
        *("tool_call_id", "url"),
    ]
