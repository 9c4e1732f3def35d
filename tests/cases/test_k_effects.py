"""Cases K18, K23, K24, K33: effects inside of trees, under loops, restarts and halts in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from py_trees import decorators
from py_trees.behaviour import Behaviour
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.request import Request
from jianmu.errors import JournalMismatchError, OutcomeUnknownError, SetupError
from jianmu.nodes import Catch, ForEach, LoopUntilSuccess, Repeat, Retry, Timeout
from tests.cases.people import FAILURE, SUCCESS, AskInside, Desk, Note, Relay, Talk, Way, ask, par, seq

pytestmark = pytest.mark.anyio


class Bank:
    """Effects outside of the run; each notes its call and the idempotency key that it saw."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def pay(self, node: Any, name: str = "pay") -> Callable[..., Any]:
        """Return an effect of a node."""

        async def f(*args: Any) -> int:
            self.calls.append((name, node.context.idempotency_key))
            return len(self.calls)

        return f

    @property
    def keys(self) -> list[str]:
        """The idempotency keys in the order of the calls."""
        return [key for _, key in self.calls]


class Act(Talk):
    """A leaf that pays once, keeps what it got and returns what it is told."""

    def __init__(self, name: str, bank: Bank, result: Any = SUCCESS, **options: Any) -> None:
        async def act(node: Any) -> Any:
            got = await node.once("pay", bank.pay(node, name), **options)
            node.write_state({"values": {**node.read_state().values, name: got}})
            return result

        super().__init__(name, act)


LOOPS: dict[str, tuple[Callable[[Behaviour], Behaviour], Any, int]] = {
    "retry": (lambda child: Retry("loop", child, attempts=3), FAILURE, 1),
    "stock retry": (lambda child: decorators.Retry("loop", child=child, num_failures=3), FAILURE, 1),
    "repeat": (lambda child: Repeat("loop", child, times=3), SUCCESS, 3),
    "stock repeat": (lambda child: decorators.Repeat("loop", child=child, num_success=3), SUCCESS, 3),
    "until": (lambda child: LoopUntilSuccess("loop", child, max_iterations=3), FAILURE, 3),
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_k18_attempts_share_an_effect_and_rounds_have_their_own(way: Way, loop: str) -> None:
    """Three entries, with a restart before each: an attempt finds what the one before did, a round acts anew."""
    bank = Bank()
    make, result, calls = LOOPS[loop]
    relay = Relay(way, lambda: make(seq("body", Act("act", bank), AskInside("q"), Note("end", [], result))))
    with anyio.fail_after(5):
        outcome = await relay.begin()
        turns = 0
        while outcome.suspended:
            outcome = await relay.resume(f"answer {turns}")
            turns += 1
    assert outcome.status is result
    assert len(bank.calls) == len(set(bank.keys)) == calls
    assert turns == (1 if calls == 1 else 3)  # in one round the answer stays, as the effect does


async def test_each_item_has_its_own_effect(way: Way) -> None:
    """Under ForEach the item's key tells effects apart, however the list is ordered and restarted."""
    bank = Bank()

    def build() -> Behaviour:
        return ForEach("each", lambda item, _: seq(item, Act("act", bank), ask(f"q{item}")), over=lambda _: ["x", "y"])

    relay = Relay(way, build)
    with anyio.fail_after(5):
        outcome = await relay.begin()
        while outcome.suspended:
            outcome = await relay.resume("a", outcome.suspensions[-1].path)
    assert outcome.status is SUCCESS
    assert len(bank.calls) == len(set(bank.keys)) == 2


async def test_k33_siblings_and_rounds_each_have_an_effect_of_their_own(way: Way) -> None:
    """Two siblings with one key, in two rounds: four calls with four idempotency keys, whatever restarts."""
    bank = Bank()
    relay = Relay(
        way, lambda: Repeat("loop", seq("round", par("both", Act("a", bank), Act("b", bank)), ask("q")), times=2)
    )
    with anyio.fail_after(5):
        await relay.begin()
        await relay.resume("x")
        assert (await relay.resume("y")).status is SUCCESS
    assert len(bank.calls) == len(set(bank.keys)) == 4


async def test_an_effect_per_activation_is_done_again_in_the_next_one_only(way: Way) -> None:
    """Under Retry each attempt acts under a key of its own; going on after an answer is no new activation."""
    bank = Bank()

    async def act(node: Any) -> Any:
        await node.once("pay", bank.pay(node), per="activation")
        said = await node.ask(Request("?"), key=f"q{len(bank.calls)}")
        return SUCCESS if said == "good" else FAILURE

    relay = Relay(way, lambda: Retry("loop", Talk("act", act), attempts=3))
    with anyio.fail_after(5):
        await relay.begin()
        assert len(bank.calls) == 1
        await relay.resume("bad")
        assert len(bank.calls) == 2
        assert (await relay.resume("good")).status is SUCCESS
    assert len(bank.calls) == len(set(bank.keys)) == 2


# Outcomes that nobody knows


def slow(bank: Bank, policy: str, kind: Any = int) -> Talk:
    """Return a leaf whose effect takes 5 seconds the first time and no time later."""

    async def act(node: Any) -> None:
        async def pay() -> int:
            bank.calls.append(("pay", node.context.idempotency_key))
            if len(bank.calls) == 1:
                await node.context.clock.sleep(5)
            return len(bank.calls)

        got = await node.once("pay", pay, on_unknown=policy, result=kind)
        node.merge_dict("values", {"pay": got})

    return Talk("act", act)


async def _cut(relay: Relay, how: str) -> None:
    """Cut the run in the middle of its effect."""
    agent, clock = relay.agent, relay.clock

    async def stop() -> None:
        await clock.sleep(2)
        if how == "halt":
            agent.halt()
        else:
            scope.cancel()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            await agent.run(thread_id="t1")


@pytest.mark.parametrize("how", ["halt", "cancel"])
@pytest.mark.parametrize("policy", ["rerun", "ask", "fail"])
async def test_k23_an_effect_that_was_cut_off_has_an_unknown_outcome(way: Way, how: str, policy: str) -> None:
    """Rerun under the same key; ask a person; or fail: as declared, in the same agent and in another."""
    bank = Bank()
    relay = Relay(way, lambda: seq("main", slow(bank, policy)))
    with anyio.fail_after(5):
        await _cut(relay, how)
        assert len(bank.calls) == 1
        await relay.move()
        if policy == "fail":
            with pytest.raises(OutcomeUnknownError):
                await relay.agent.recover("t1")
            assert len(bank.calls) == 1
            return
        outcome = await relay.agent.recover("t1")
        if policy == "ask":
            assert [one.reason for one in outcome.suspensions] == ["unknown_outcome"]
            assert len(bank.calls) == 1
            outcome = await relay.resume({"happened": True, "result": 77})
    assert outcome.status is SUCCESS
    assert relay.values == {"pay": 77 if policy == "ask" else 2}
    assert len(set(bank.keys)) == 1


async def test_k23_a_person_may_say_that_it_did_not_happen(way: Way) -> None:
    """Then it is called, under the same key; an answer that gives no result where one is needed is refused."""
    bank = Bank()
    relay = Relay(way, lambda: seq("main", slow(bank, "ask")))
    with anyio.fail_after(5):
        await _cut(relay, "halt")
        await relay.move()
        await relay.agent.recover("t1")
        for wrong in (True, {}, {"happened": True}, {"happened": True, "result": "seven"}, {"happened": "no"}):
            with pytest.raises(Exception, match="refused"):
                await relay.resume(wrong)
        assert (await relay.resume({"happened": False})).status is SUCCESS
    assert (len(bank.calls), len(set(bank.keys)), relay.values) == (2, 1, {"pay": 2})


@pytest.mark.parametrize("policy", ["rerun", "ask", "fail"])
async def test_k23_halted_by_the_tree_and_entered_again_the_outcome_is_unknown_too(policy: str) -> None:
    """A Timeout cuts the effect off, a Retry enters the node again, in the same round: the declared policy decides."""
    bank = Bank()
    clock = VirtualClock(autojump=True)
    tree = Retry("r", Timeout("t", slow(bank, policy), seconds=2), attempts=2)
    agent = Agent(Catch("c", tree, on=OutcomeUnknownError), Desk, clock=clock)
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend()
        if policy == "ask":
            outcome = await agent.resume({"happened": True, "result": 9})
    assert outcome.status is (FAILURE if policy == "fail" else SUCCESS)
    assert len(bank.calls) == (2 if policy == "rerun" else 1)
    assert len(set(bank.keys)) == 1
    assert agent.state.values == {"rerun": {"pay": 2}, "ask": {"pay": 9}, "fail": {}}[policy]


async def test_rounds_after_one_that_was_cut_off_have_keys_of_their_own() -> None:
    """In the first of two rounds the effect is cut off and done again: one key there, another in the second."""
    bank = Bank()
    tree = Repeat("loop", Retry("r", Timeout("t", slow(bank, "rerun"), seconds=2), attempts=2), times=2)
    agent = Agent(tree, Desk, clock=VirtualClock(autojump=True))
    with anyio.fail_after(5):
        assert await agent.run() is SUCCESS
    first, again, second = bank.keys
    assert first == again != second


async def test_a_sync_effect_that_is_halted_is_finished_and_known() -> None:
    """A function in a thread is not abandoned: its result is recorded, and the next entry finds it."""
    calls: list[int] = []
    started, go = anyio.Event(), anyio.Event()

    def pay() -> int:
        calls.append(1)
        anyio.from_thread.run_sync(started.set)
        anyio.from_thread.run(go.wait)
        return 5

    async def act(node: Any) -> None:
        node.merge_dict("values", {"pay": await node.once("pay", pay)})

    agent = Agent(seq("main", Talk("act", act)), Desk)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await started.wait()
                agent.halt()
                await anyio.lowlevel.checkpoint()
                go.set()

            group.start_soon(stop)
            await agent.run(thread_id="t1")
        assert (await agent.recover()).status is SUCCESS
    assert (calls, agent.state.values) == ([1], {"pay": 5})


# One key, one call


async def _same_key_twice(node: Any, bank: Bank) -> None:
    await node.once("k", bank.pay(node))
    await node.once("k", bank.pay(node))


async def _another_function(node: Any, bank: Bank) -> None:
    await node.once("k", bank.pay(node))

    async def g() -> None:
        bank.calls.append(("g", ""))

    await node.once("k", g)


@pytest.mark.parametrize("wrong", [_same_key_twice, _another_function])
async def test_k24_a_key_stands_for_one_effect_in_an_entry(wrong: Callable[..., Any]) -> None:
    """Used twice in one entry, with the same function or another: an error that names the key; nothing is called."""
    bank = Bank()
    agent = Agent(seq("main", Talk("act", lambda node: wrong(node, bank))), Desk)
    with anyio.fail_after(5), pytest.raises(JournalMismatchError, match="'k'"):
        await agent.run()
    assert len(bank.calls) == 1


@pytest.mark.parametrize("changed", ["arguments", "function"])
async def test_k24_after_a_restart_a_key_stands_for_the_same_call(way: Way, changed: str) -> None:
    """Other arguments or another function under a key that was used: an error, and no result of the other call."""
    bank = Bank()

    async def act(node: Any) -> None:
        async def other(amount: int) -> None:
            bank.calls.append(("other", str(amount)))

        entries.append(1)
        is_second = len(entries) > 1
        fn = other if is_second and changed == "function" else bank.pay(node)
        await node.once("k", fn, 6 if is_second and changed == "arguments" else 5)
        await node.ask(Request("?"))

    entries: list[int] = []
    relay = Relay(way, lambda: seq("main", Talk("act", act)))
    with anyio.fail_after(5):
        await relay.begin()
        with pytest.raises(JournalMismatchError, match="'k'"):
            await relay.resume("x")
    assert len(bank.calls) == 1


async def test_a_refused_use_of_a_key_can_be_mended_and_gone_on_with(way: Way) -> None:
    """After the error `recover` enters the node again, and the right call finds its result."""
    bank = Bank()
    amounts = [5, 6, 5]

    async def act(node: Any) -> None:
        got = await node.once("k", bank.pay(node), amounts.pop(0))
        node.merge_dict("values", {"got": got, "said": await node.ask(Request("?"), key="q")})

    relay = Relay(way, lambda: seq("main", Talk("act", act)))
    with anyio.fail_after(5):
        await relay.begin()
        with pytest.raises(JournalMismatchError):
            await relay.resume("x")
        await relay.move()
        assert (await relay.agent.recover("t1")).status is SUCCESS
    assert relay.values == {"got": 1, "said": "x"}
    assert len(bank.calls) == 1


async def test_a_new_run_acts_anew() -> None:
    """Entries end with their run: the next run of the thread calls the function, under another key."""
    bank = Bank()
    agent = Agent(seq("main", Act("act", bank)), Desk)
    with anyio.fail_after(5):
        for _ in range(2):
            assert await agent.run() is SUCCESS
    assert len(bank.calls) == len(set(bank.keys)) == 2


class Receipt(BaseModel):
    """What an effect returns."""

    number: int


async def test_a_result_has_its_type_the_first_time_and_after_a_restart(way: Way) -> None:
    """It passes through JSON in any case, so that no entry can tell the difference."""
    seen: list[Any] = []

    async def act(node: Any) -> None:
        async def pay() -> Receipt:
            return Receipt(number=7)

        seen.append(await node.once("pay", pay, result=Receipt))
        await node.ask(Request("?"))

    relay = Relay(way, lambda: seq("main", Talk("act", act)))
    with anyio.fail_after(5):
        await relay.begin()
        await relay.resume("x")
    assert seen == [Receipt(number=7), Receipt(number=7)]


async def test_writes_with_a_reducer_before_a_question_belong_into_once(way: Way) -> None:
    """Outside it is an error that shows the line to write; inside the write is done once, also after the answer."""

    async def wrong(node: Any) -> None:
        node.write_state({"log": ["x"]})
        await node.ask(Request("?"))

    async def right(node: Any) -> None:
        await node.once("log", node.write_state, {"log": ["x"]}, effect=False)
        await node.ask(Request("?"))

    with anyio.fail_after(5):
        with pytest.raises(Exception, match=r'self\.once\("log"'):
            await Agent(seq("main", Talk("t", wrong)), Desk).run_until_suspend()
        relay = Relay(way, lambda: seq("main", Talk("t", right)))
        await relay.begin()
        assert (await relay.resume("x")).status is SUCCESS
        assert relay.agent.state.log == ["x"]


async def test_what_has_no_json_form_cannot_be_kept() -> None:
    """Arguments and results without a JSON form are refused with the node's path, before and after the call."""
    calls: list[int] = []

    async def give() -> object:
        calls.append(1)
        return object()

    async def bad_argument(node: Any) -> None:
        await node.once("k", calls.append, object())

    async def bad_result(node: Any) -> None:
        await node.once("k", give)

    for act, count in ((bad_argument, 0), (bad_result, 1)):
        calls.clear()
        agent = Agent(seq("main", Talk("act", act)), Desk)
        with anyio.fail_after(5), pytest.raises(SetupError, match="main/act"):
            await agent.run()
        assert len(calls) == count
        assert json.dumps(agent.dump_checkpoint())
