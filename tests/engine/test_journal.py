"""The journal: an effect is called once, and what is not known about it is said."""

from __future__ import annotations

import functools
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from jianmu.engine.interaction import Answer, InteractionController, Origin, Request
from jianmu.engine.journal import ACTING, Journal
from jianmu.errors import CorruptRecordError, JournalMismatchError, OutcomeUnknownError, SetupError, StoreError
from tests.engine.asking import HandClock, origin

pytestmark = pytest.mark.anyio


class Shelf(IntEnum):
    """What the rounds of a loop over a list may be told apart by."""

    LOW = 7


class Suspended(BaseException):
    """Ends a coroutine that has asked, as the runner's does."""


@dataclass
class Entry:
    """One entry of a node: what the runner gives to `once`."""

    origin: Origin = field(default_factory=origin)
    desk: InteractionController | None = None
    halt_timeout: float = 5.0
    used: set[str] = field(default_factory=set)
    synced: list[Any] = field(default_factory=list)
    journal: Journal | None = None

    async def ask(self, request: Request, *, key: str) -> Any:
        """Return the answer if it is in, else ask and end the coroutine."""
        assert self.desk is not None
        record = self.desk.latest(self.origin, key)
        if record is not None and record.status != "open":
            return self.desk.deliver(record.id, request)
        self.desk.ask(self.origin, request, key=key)
        raise Suspended

    async def sync(self) -> None:
        """Note how the entries stand."""
        await anyio.lowlevel.checkpoint()
        if self.journal is not None:
            self.synced.append([entry.state for entry in self.journal.entries])


def restarted(journal: Journal) -> Journal:
    """Return the journal as another process would load it."""
    new = Journal()
    new.load(json.loads(json.dumps(journal.dump())))
    return new


def acting_key() -> str | None:
    """Return the idempotency key of the effect that is at work."""
    effect = ACTING.get()
    return None if effect is None else effect.sealed().idempotency_key


class Bank:
    """Effects that count their calls and keep the idempotency keys that they saw."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.keys: list[str | None] = []
        self.broken = 0

    async def pay(self, amount: int = 5) -> dict[str, int]:
        """Pay, or break as often as told."""
        self._note(amount)
        return {"paid": amount}

    def pay_slowly(self, amount: int = 5) -> int:
        """Pay in a thread."""
        self._note(amount)
        return amount

    def _note(self, amount: int) -> None:
        self.calls.append(amount)
        self.keys.append(acting_key())
        if self.broken:
            self.broken -= 1
            raise OSError("refused")


@pytest.fixture
def bank() -> Bank:
    """A bank that works."""
    return Bank()


@pytest.mark.parametrize("name", ["pay", "pay_slowly"])
async def test_an_effect_happens_once_whatever_restarts(bank: Bank, name: str) -> None:
    """I23, K17: the second entry and another process get the result without a call."""
    journal = Journal()
    first = await journal.once(Entry(), "pay", getattr(bank, name), 7)
    assert await journal.once(Entry(), "pay", getattr(bank, name), 7) == first
    assert await restarted(journal).once(Entry(), "pay", getattr(bank, name), 7) == first
    assert bank.calls == [7]
    assert acting_key() is None


async def test_a_start_is_recorded_before_the_call_and_the_result_before_it_is_used(bank: Bank) -> None:
    """sync() is awaited with the entry started, then done; without effect only when done."""
    journal = Journal()
    entry = Entry(journal=journal)
    await journal.once(entry, "pay", bank.pay)
    assert entry.synced == [["started"], ["done"]]
    entry = Entry(journal=journal, origin=origin("main/read"))
    await journal.once(entry, "read", bank.pay, effect=False)
    assert entry.synced == [["done", "done"]]


async def test_a_key_stands_for_one_call(bank: Bank) -> None:
    """K24: another function, other arguments after a restart, and a second use in one entry name the key."""
    journal = Journal()
    entry = Entry()
    await journal.once(entry, "k", bank.pay, 1)
    with pytest.raises(
        JournalMismatchError, match=r"once\('k'\) in node 'main/ask': it was used for Bank.pay, and now"
    ):
        await journal.once(entry, "k", bank.pay_slowly, 1)
    with pytest.raises(JournalMismatchError, match="it is used twice since the node was entered"):
        await journal.once(entry, "k", bank.pay, 1)
    with pytest.raises(JournalMismatchError, match="called with other arguments") as refused:
        await restarted(journal).once(Entry(), "k", bank.pay, 2)
    assert (refused.value.key, refused.value.path, refused.value.thread_id) == ("k", "main/ask", "t")
    assert isinstance(refused.value, StoreError)
    assert bank.calls == [1]


@pytest.mark.parametrize("name", ["pay", "pay_slowly"])
async def test_attempts_share_a_key_and_rounds_do_not(bank: Bank, name: str) -> None:
    """I28: a failed call is called again under the same key; other rounds have others; restarts change none."""
    journal = Journal()
    bank.broken = 1
    with pytest.raises(OSError, match="refused"):
        await journal.once(Entry(), "pay", getattr(bank, name))
    assert [(entry.state, entry.error) for entry in journal.entries] == [("failed", "OSError")]
    journal = restarted(journal)
    await journal.once(Entry(), "pay", getattr(bank, name))
    for number in (0, 1):
        journal = restarted(journal)
        await journal.once(Entry(origin("main/ask", ("main", number))), "pay", getattr(bank, name))
    assert len(bank.keys) == 4
    assert bank.keys[0] == bank.keys[1] is not None
    assert len(set(bank.keys)) == 3


async def test_siblings_and_rounds_have_keys_of_their_own(bank: Bank) -> None:
    """K33: two siblings in two rounds are four calls with four keys; after a restart none again."""
    journal = Journal()
    places = [origin(path, ("main", number)) for number in (0, 1) for path in ("main/a", "main/b")]
    for _ in range(2):
        for place in places:
            await journal.once(Entry(place), "pay", bank.pay)
        journal = restarted(journal)
    assert len(bank.keys) == len(set(bank.keys)) == 4


async def test_an_effect_of_an_activation_is_called_anew_in_the_next(bank: Bank) -> None:
    """per="activation": within one the result stands, also after a restart; the next one has a new key."""
    journal = Journal()
    for number in range(3):
        for _ in range(2):
            await journal.once(Entry(), "pay", bank.pay, per="activation")
            await journal.once(Entry(origin("main/other")), "pay", bank.pay, per="activation")
            await journal.once(Entry(), "per round", bank.pay)
            journal = restarted(journal)
        assert len(bank.calls) == number + 3
        journal.new_activation(origin())
    assert len(set(bank.keys)) == 5


@pytest.mark.parametrize("policy", ["rerun", "ask", "fail"])
async def test_a_start_without_a_result_is_an_unknown_outcome(bank: Bank, policy: Any) -> None:
    """K12, K23: after a crash in the call the declared policy decides, under the same idempotency key."""
    journal = Journal()
    crashed: dict[str, Any] = {}

    async def crash(amount: int) -> None:
        bank.keys.append(acting_key())
        crashed.update(journal.dump())

    crash.__qualname__ = Bank.pay.__qualname__
    await journal.once(Entry(), "pay", crash, 7)
    desk = InteractionController(HandClock())
    journal = Journal()
    journal.load(crashed)

    async def enter() -> Any:
        return await journal.once(Entry(desk=desk), "pay", bank.pay, 7, on_unknown=policy)

    if policy == "fail":
        for _ in range(2):
            with pytest.raises(
                OutcomeUnknownError, match=r"once\('pay'\) in node 'main/ask': Bank.pay was begun"
            ) as lost:
                await enter()
        assert (lost.value.key, lost.value.path) == ("pay", "main/ask")
        assert bank.calls == []
        return
    if policy == "ask":
        with pytest.raises(Suspended):
            await enter()
        question = desk.pending[0]
        assert question.reason == "unknown_outcome"
        assert question.data["idempotency_key"] == bank.keys[0]
        await desk.answer(Answer(None, {"happened": False}))
    assert await enter() == {"paid": 7}
    assert bank.calls == [7]
    assert bank.keys[0] == bank.keys[1]


async def test_a_person_can_say_what_an_effect_returned(bank: Bank) -> None:
    """The result given is checked at the door against the type, kept, and returned without a call."""
    journal = Journal()
    desk = InteractionController(HandClock())

    async def enter() -> Any:
        entry = Entry(desk=desk)
        return await journal.once(entry, "pay", bank.pay_slowly, result=int, on_unknown="ask")

    journal.lose(journal.begin(journal.find(origin(), "pay", "Bank.pay_slowly", await _digest_of_nothing())))
    with pytest.raises(Suspended):
        await enter()
    for wrong in ({"happened": True}, {"happened": True, "result": "x"}, {"happened": 1}, True, {}):
        with pytest.raises(Exception, match="was refused"):
            await desk.answer(Answer(None, wrong))
    await desk.answer(Answer(None, {"happened": True, "result": 3}))
    assert await enter() == 3
    assert await restarted(journal).once(Entry(), "pay", bank.pay_slowly, result=int) == 3
    assert bank.calls == []


async def _digest_of_nothing() -> str:
    """Return the digest of no arguments."""
    journal = Journal()
    await journal.once(Entry(), "x", Bank().pay_slowly)
    return journal.entries[0].arguments


async def test_a_cancelled_async_effect_is_unknown() -> None:
    """Cancelled in the middle, its outcome is unknown; the next attempt has the same key, and asks anew if lost."""
    journal = Journal()
    keys: list[str | None] = []

    async def hang() -> None:
        keys.append(acting_key())
        await anyio.sleep_forever()

    for _ in range(2):
        with anyio.move_on_after(0.01):
            await journal.once(Entry(), "k", hang)
        assert [entry.state for entry in journal.entries] == ["unknown"]
    assert keys[0] == keys[1]
    assert journal.entries[0].attempts == 2
    desk = InteractionController(HandClock())
    for count in (1, 2):
        with pytest.raises(Suspended), anyio.fail_after(5):
            await journal.once(Entry(desk=desk), "k", hang, on_unknown="ask")
        assert len(desk.dump()["records"]) == count
        await desk.answer(Answer(None, {"happened": False}))
        with anyio.move_on_after(0.01):
            await journal.once(Entry(desk=desk), "k", hang, on_unknown="ask")


async def test_a_cancelled_thread_is_waited_for_and_its_result_kept() -> None:
    """A sync function is not abandoned: call and result are shielded, then the cancellation goes on."""
    journal = Journal()
    begun, go_on = threading.Event(), threading.Event()
    returned: list[Any] = []

    def work() -> str:
        begun.set()
        go_on.wait(5)
        return "done"

    async def node() -> None:
        returned.append(await journal.once(Entry(), "k", work))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(node)
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
                assert journal.entries[0].state == "started"
                go_on.set()
    assert returned == []
    assert [(entry.state, entry.result) for entry in journal.entries] == [("done", "done")]


async def test_a_thread_that_outlives_the_halt_is_left_with_its_outcome_unknown() -> None:
    """After halt_timeout the coroutine is free; what the thread returns later is not recorded."""
    journal = Journal()
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go_on.wait(5)
        over.set()
        return "late"

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(journal.once, Entry(halt_timeout=0.01), "k", work))
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
        assert not over.is_set()
        assert journal.entries[0].state == "unknown"
        go_on.set()
        await anyio.to_thread.run_sync(over.wait)
        await anyio.sleep(0.01)
    assert journal.entries[0].state == "unknown"


async def test_a_thread_that_fails_while_it_is_halted_has_failed() -> None:
    """Its exception is recorded and raised, not lost under the cancellation."""
    journal = Journal()
    begun, go_on = threading.Event(), threading.Event()
    caught: list[BaseException] = []

    def work() -> None:
        begun.set()
        go_on.wait(5)
        raise OSError("refused")

    async def node() -> None:
        try:
            await journal.once(Entry(), "k", work)
        except OSError as error:
            caught.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(node)
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
            go_on.set()
    assert [str(error) for error in caught] == ["refused"]
    assert journal.entries[0].state == "failed"


class Receipt(BaseModel):
    number: int
    at: datetime


async def test_results_pass_through_json_the_first_time_too() -> None:
    """The first call returns what later ones will: the given type, or plain JSON without one; new each time."""
    journal = Journal()
    receipt = Receipt(number=1, at=datetime(2030, 1, 1, tzinfo=UTC))

    def get() -> Receipt:
        return receipt

    plain = {"number": 1, "at": "2030-01-01T00:00:00Z"}
    assert await journal.once(Entry(), "plain", get) == plain
    assert await journal.once(Entry(), "plain", get) == plain
    first = await journal.once(Entry(), "typed", get, result=Receipt)
    assert first == receipt
    assert first is not receipt
    assert await restarted(journal).once(Entry(), "typed", get, result=Receipt) == receipt
    assert await journal.once(Entry(), "tuple", tuple, [1, 2]) == [1, 2]
    assert await journal.once(Entry(), "tuples", tuple, [1, 2], result=tuple[int, int]) == (1, 2)


@pytest.mark.parametrize(("value", "kind"), [(object(), Any), ("x", int), (None, int), (lambda: 1, Any)])
async def test_a_result_that_cannot_be_kept_is_an_unknown_outcome(value: Any, kind: Any) -> None:
    """It is a SetupError that names key and types, without the value; the effect is not called done or failed."""
    journal = Journal()

    async def give() -> Any:
        return value

    with pytest.raises(SetupError, match=r"once\('k'\) in node 'main/ask': its result, .* cannot be kept as JSON"):
        await journal.once(Entry(), "k", give, result=kind)
    assert journal.entries[0].state == "unknown"


async def test_arguments_are_digested_alike_in_every_process() -> None:
    """Models, dates, sets, partials and keyword order count by value; what has no JSON form is a SetupError."""

    def act(*args: Any, **named: Any) -> int:
        return 1

    async def digest(fn: Any, *args: Any) -> tuple[str, str]:
        journal = Journal()
        await journal.once(Entry(), "k", fn, *args)
        return journal.entries[0].name, journal.entries[0].arguments

    at = datetime(2030, 1, 1, tzinfo=UTC)
    receipt = Receipt(number=1, at=at)
    same = await digest(act, receipt, {"a": 1, "b": {2, 3}}, at)
    assert await digest(act, Receipt(number=1, at=at), {"b": {3, 2}, "a": 1}, at) == same
    assert await digest(functools.partial(act, receipt, {"a": 1, "b": {2, 3}}), at) == same
    assert await digest(act, Receipt(number=2, at=at), {"a": 1, "b": {2, 3}}, at) != same
    assert await digest(functools.partial(act, a=1), 2) != await digest(functools.partial(act, a=2), 2)
    words = {"one", "two", "three", "four"}
    assert (await digest(act, words))[1] == "9744b43ec0b53479a73d119b4116b855"
    with pytest.raises(SetupError, match=r"no JSON form \(lock\): take clients and the like from self.context.deps"):
        await digest(act, threading.Lock())


async def test_a_coroutine_from_a_sync_function_is_refused(bank: Bank) -> None:
    """A lambda around an async function has done nothing yet: a SetupError says what to give instead."""
    journal = Journal()
    with pytest.raises(SetupError, match="give once the async function itself"):
        await journal.once(Entry(), "k", lambda: bank.pay(7))
    assert bank.calls == []
    assert journal.entries[0].state == "failed"


async def test_options_are_checked(bank: Bank) -> None:
    """A policy or span that does not exist is a SetupError before anything is called."""
    for wrong in ({"per": "run"}, {"on_unknown": "retry"}):
        with pytest.raises(SetupError, match='per is "round" or "activation"'):
            await Journal().once(Entry(), "k", bank.pay, **wrong)
    assert bank.calls == []


async def test_a_read_leaves_no_trace_until_it_is_done(bank: Bank) -> None:
    """effect=False: a failure or a cancellation records nothing; the result is kept as any other."""
    journal = Journal()
    bank.broken = 1
    with pytest.raises(OSError, match="refused"):
        await journal.once(Entry(), "k", bank.pay, effect=False)
    with anyio.move_on_after(0.01):
        await journal.once(Entry(), "h", anyio.sleep_forever, effect=False)
    assert journal.entries == ()
    await journal.once(Entry(), "k", bank.pay, effect=False, on_unknown="fail")
    await restarted(journal).once(Entry(), "k", bank.pay, effect=False)
    assert bank.calls == [5, 5]


async def test_entries_live_until_their_round_is_closed(bank: Bank) -> None:
    """Closing a round removes its entries and those of the rounds inside it, and no others; clear removes all."""
    journal = Journal()
    outer, inner = ("main", 0), ("main/in", 0)
    places = [(), (outer,), (outer, inner), (outer, ("main/in", 1)), (("main", 1), inner)]
    for rounds in places:
        await journal.once(Entry(Origin("t", 1, "main/in/pay", rounds)), "k", bank.pay)
    journal = restarted(journal)
    journal.close_round((outer, inner))
    assert [entry.origin.rounds for entry in journal.entries] == [*places[:2], *places[3:]]
    journal.close_round((outer,))
    assert [entry.origin.rounds for entry in journal.entries] == [places[0], places[4]]
    journal.clear()
    assert journal.dump() == {"entries": []}


async def test_a_renamed_node_keeps_its_entries(bank: Bank) -> None:
    """Loaded with other paths, the effect is not called again and its key is the old one."""
    journal = Journal()
    await journal.once(Entry(), "k", bank.pay)
    new = Journal()
    new.load(journal.dump(), lambda path: path.replace("ask", "confirm"))
    await new.once(Entry(origin("main/confirm")), "k", bank.pay)
    assert bank.calls == [5]
    assert new.entries[0].idempotency_key == bank.keys[0]


@pytest.mark.parametrize("data", [None, [], {}, {"entries": 1}, {"entries": [{"key": "s3cret"}]}, {"entries": ["x"]}])
async def test_a_spoiled_journal_changes_nothing(bank: Bank, data: Any) -> None:
    """K07: garbage is a CorruptRecordError without values."""
    journal = Journal()
    await journal.once(Entry(), "k", bank.pay)
    before = journal.dump()
    with pytest.raises(CorruptRecordError, match="of a checkpoint") as refused:
        journal.load(data)
    assert "s3cret" not in str(refused.value)
    assert journal.dump() == before


async def test_an_effect_is_found_in_rounds_of_any_json(bank: Bank) -> None:
    """Rounds that are lists, as those of delegates, are the same ones after a load; what looks alike is another."""
    journal = Journal()
    rounds: list[object] = [["c1", 1], ["c1", 2], 1, True, "1", Shelf.LOW]
    places = [Origin("t", 1, "main/ask", (("main", 0), ("main/in", told))) for told in rounds]
    for place in places:
        await journal.once(Entry(place), "pay", bank.pay)
    assert len(bank.calls) == 6
    for place in places:
        await journal.once(Entry(place), "pay", bank.pay)
        await restarted(journal).once(Entry(place), "pay", bank.pay)
    assert len(bank.calls) == 6


async def test_an_activation_ends_after_a_load_too_whatever_tells_its_round(bank: Bank) -> None:
    """A round told by a tuple, which JSON makes a list of, is still the one whose node starts anew."""
    journal, place = Journal(), Origin("t", 1, "main/pay", (("main", ("north", 1)),))
    await journal.once(Entry(place), "pay", bank.pay, per="activation")
    loaded = restarted(journal)
    loaded.new_activation(place)
    await loaded.once(Entry(place), "pay", bank.pay, per="activation")
    assert len(bank.calls) == 2


@pytest.mark.parametrize("length", [1, 5000])
async def test_arguments_that_cannot_change_are_kept_as_others(length: int) -> None:
    """An entry has the same digest of arguments whose text is made late, and others under its key are refused."""
    journal, other = Journal(), Journal()

    async def write(text: str) -> int:
        return len(text)

    await journal.once(Entry(), "k", write, length * "a")
    await other.once(Entry(), "k", write, length * "a", is_fixed=True)
    assert other.entries[0].arguments == journal.entries[0].arguments
    assert await restarted(other).once(Entry(), "k", write, length * "a", is_fixed=True) == length
    with pytest.raises(JournalMismatchError):
        await other.once(Entry(), "k", write, length * "b", is_fixed=True)


@pytest.mark.parametrize("length", [1, 5000])
async def test_arguments_are_kept_as_their_digest(bank: Bank, length: int) -> None:
    """Of arguments, short or long, an entry has the digest alone, and others under the key are refused."""
    journal = Journal()

    async def write(text: str) -> int:
        return len(text)

    assert await journal.once(Entry(), "k", write, length * "a") == length
    assert len(journal.entries[0].arguments) == len(journal.entries[0].idempotency_key) == 32
    for known in (journal, restarted(journal)):
        assert await known.once(Entry(), "k", write, length * "a") == length
        with pytest.raises(JournalMismatchError):
            await known.once(Entry(), "k", write, length * "b")
