"""Cases I09, I13-I19, I21-I29: deadlines, races, approvals, loops, effects and new input around open questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from py_trees.behaviour import Behaviour
from py_trees.decorators import Repeat as StockRepeat

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request, default, escalate, fail
from jianmu.errors import (
    AlreadyAnsweredError,
    ExpiredError,
    InvalidAnswerError,
    NotAnsweredError,
    UnfinishedRunError,
    WithdrawnError,
)
from jianmu.nodes import Approve, ForceSuccess, ForEach, LoopUntilSuccess, Repeat, Retry
from jianmu.stores import MemoryStore
from tests.cases.people import (
    FAILURE,
    RUNNING,
    SUCCESS,
    AskAgain,
    AskInside,
    Desk,
    Note,
    Relay,
    Talk,
    Way,
    Work,
    ask,
    par,
    sel,
    seq,
)

pytestmark = pytest.mark.anyio
each_asking = pytest.mark.parametrize("asking", [ask, AskInside])


class Bank:
    """Effects that note their calls and idempotency keys; the first so many calls break."""

    def __init__(self, broken: int = 0) -> None:
        self.broken = broken
        self.calls: list[str] = []
        self.keys: list[str] = []

    def act(self, node: Any, name: str) -> Callable[[], Any]:
        """Return an effect of a node."""

        async def f() -> str:
            self.calls.append(name)
            self.keys.append(node.context.idempotency_key)
            if len(self.calls) <= self.broken:
                raise ConnectionError(name)
            return f"{name} {len(self.calls)}"

        return f

    def leaf(self, name: str, *before_asks: str) -> Talk:
        """Return a leaf that acts, then asks under these keys."""

        async def talk(node: Any) -> None:
            done = await node.once("pay", self.act(node, name))
            for key in before_asks:
                node.merge_dict("values", {key: await node.ask(Request(f"{key}?", answer=str), key=key)})
            node.merge_dict("values", {name: done})

        return Talk(name, talk)


async def test_i09_once_far_down_is_called_once(way: Way) -> None:
    """`once` in a subtree of a subtree that were built before the agent and its store."""
    bank = Bank()
    relay = Relay(
        way, lambda: seq("main", seq("outer", seq("inner", bank.leaf("pay"), bank.leaf("both", "q"))), ask("z"))
    )
    with anyio.fail_after(5):
        await relay.begin()
        await relay.resume("x")
        assert (await relay.resume("y")).status is SUCCESS
    assert bank.calls == ["pay", "both"]
    assert relay.values == {"pay": "pay 1", "q": "x", "both": "both 2", "z": "y"}


@each_asking
async def test_i13_an_expired_question_is_a_failure_and_late_answers_are_refused(
    way: Way, asking: Callable[..., Behaviour]
) -> None:
    """Asked at 0, restarted at 30, nobody answered at 61: the node fails, the fallback runs, the answer is late."""
    done: list[str] = []

    def build() -> Behaviour:
        leaf = asking("q", expires=[fail(after=60)])
        return sel("main", leaf if asking is ask else _forgiving(leaf), Note("fallback", done))

    relay = Relay(way, build, clock=VirtualClock())
    with anyio.fail_after(5):
        outcome = await relay.begin()
        asked = outcome.suspensions[0]
        assert outcome.wake_at == asked.expires_at
        assert (outcome.wake_at - relay.clock.utc()).total_seconds() == 60
        await relay.clock.advance(30)
        await relay.move()
        assert (await relay.agent.recover("t1")).suspended
        await relay.clock.advance(31)
        await relay.move()
        with pytest.raises(ExpiredError):
            await relay.agent.resume("late", thread_id="t1")
        assert (await relay.agent.recover("t1")).status is SUCCESS
        assert done == ["fallback"]
        assert relay.agent.interaction.record(asked.id).status == "expired"
        await relay.move()
        with pytest.raises(ExpiredError):
            await relay.agent.resume("late", suspension_id=asked.id, thread_id="t1")
    assert done == ["fallback"]
    assert relay.values == {}


def _forgiving(leaf: AskInside) -> Talk:
    """Return a leaf that asks as another one does, and fails without an answer."""

    async def talk(node: Any) -> Any:
        try:
            node.merge_dict("values", {leaf.name: await node.ask(leaf.request)})
        except NotAnsweredError as refused:
            node.feedback_message = refused.reason
            return FAILURE
        return None

    return Talk(leaf.name, talk)


async def test_i13_a_live_run_fails_the_node_at_its_deadline() -> None:
    """Under `run()` the clock itself ends the question, at its time and not later."""
    clock = VirtualClock(autojump=True)
    times: list[float] = []

    async def note(node: Any) -> None:
        times.append(clock.now())

    agent = Agent(
        sel("main", ask("q", expires=[escalate("boss", 20), fail(40)]), Talk("fallback", note)), Desk, clock=clock
    )
    with anyio.fail_after(5):
        assert await agent.run() is SUCCESS
    assert times == [60]


async def test_i14_new_input_is_refused_while_a_question_is_open(way: Way) -> None:
    """The error names the question; nothing was changed, and the question can be answered."""
    relay = Relay(way, lambda: seq("main", ask("q")))
    with anyio.fail_after(5):
        id = (await relay.begin({"note": "first"})).suspensions[0].id
        for call in (relay.begin, relay.agent.run, relay.agent.run_until_suspend):
            await relay.move()
            version = relay.agent.state_manager.version
            with pytest.raises(UnfinishedRunError, match=id):
                await call({"note": "hi"})
            assert (relay.agent.state.note, relay.agent.state_manager.version) == ("first", version)
            assert relay.pending == {"main/q": id}
        assert (await relay.resume("x")).status is SUCCESS
    assert relay.agent.state.note == "first"


@each_asking
async def test_i14_new_input_can_withdraw_what_is_open(way: Way, asking: Callable[..., Behaviour]) -> None:
    """Policy withdraw: the question is withdrawn, the input applied in a new run, a late answer refused."""
    relay = Relay(way, lambda: seq("main", asking("q")))
    with anyio.fail_after(5):
        old = (await relay.begin({"note": "first"})).suspensions[0].id
        await relay.move()
        outcome = await relay.begin({"note": "hi"}, on_new_input="withdraw")
        new = outcome.suspensions[0].id
        assert (relay.agent.state.note, len(outcome.suspensions)) == ("hi", 1)
        assert new != old
        await relay.move()
        assert relay.agent.interaction.record(old).status == "withdrawn"
        with pytest.raises(WithdrawnError):
            await relay.agent.resume("late", suspension_id=old, thread_id="t1")
        assert (await relay.resume("x")).status is SUCCESS
    assert relay.values == {"q": "x"}


async def test_i25_withdrawing_input_ends_all_open_questions(way: Way) -> None:
    """Two are open, of a leaf and of a coroutine: both are withdrawn."""
    relay = Relay(way, lambda: par("main", ask("a"), AskInside("b")))
    with anyio.fail_after(5):
        ids = [one.id for one in (await relay.begin()).suspensions]
        await relay.move()
        outcome = await relay.begin({"note": "hi"}, on_new_input="withdraw")
        assert len(outcome.suspensions) == 2
        assert not set(ids) & {one.id for one in outcome.suspensions}
        assert [relay.agent.interaction.record(id).status for id in ids] == ["withdrawn", "withdrawn"]


async def test_a_run_over_one_that_was_cut_short_leaves_no_question_of_it_open() -> None:
    """Without a store an interrupted run is given up by the next one: what it asked is withdrawn, not waited for."""
    clock = VirtualClock(autojump=True)
    agent = Agent(par("main", ask("a"), Work("work", [], 10.0)), Desk, clock=clock)
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend(limits=Limits(timeout=1))
        assert (outcome.limit, len(agent.interaction.pending)) == ("timeout", 1)
        old = agent.interaction.pending[0].id
        outcome = await agent.run_until_suspend()
        assert [one.id for one in outcome.suspensions] != [old]
        assert len(outcome.suspensions) == 1
        assert agent.interaction.record(old).status == "withdrawn"
        assert (await agent.resume("x")).status is SUCCESS


@pytest.mark.parametrize("names", [("approve", "reject"), ("reject", "approve")])
async def test_i15_one_of_two_racing_decisions_is_taken(way: Way, names: tuple[str, str]) -> None:
    """`approve` and `reject` at the same moment: one is accepted, the other told so; the node goes on once."""
    done: list[str] = []
    relay = Relay(way, lambda: seq("main", Approve("ok", Note("pay", done), message="pay?")))
    with anyio.fail_after(5):
        id = (await relay.begin()).suspensions[0].id
        await relay.move()
        refused: list[str] = []

        async def decide(name: str) -> None:
            try:
                await getattr(relay.agent.interaction, name)(id)
            except AlreadyAnsweredError as told:
                refused.append(name)
                records.append(told.record)

        records: list[Any] = []
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(decide, name)
        assert (len(refused), records) == (1, [relay.agent.interaction.record(id)])
        outcome = await relay.agent.recover("t1")
    is_approved = refused == ["reject"]
    assert outcome.status is (SUCCESS if is_approved else FAILURE)
    assert done == (["pay"] if is_approved else [])


async def test_i15_the_same_key_twice_is_recorded_and_used_once(way: Way) -> None:
    """Two deliveries of one answer: both calls return the one record, and `on_answer` is called once."""
    told: list[Any] = []
    relay = Relay(way, lambda: seq("main", AskAgain("q", told)))
    with anyio.fail_after(5):
        id = (await relay.begin()).suspensions[0].id
        await relay.move()
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(relay.agent.interaction.answer, Answer(id, 7, key="k"))
        assert (await relay.agent.recover("t1")).status is SUCCESS
    assert told == ["request", 7]


@each_asking
async def test_i16_the_question_of_an_agent_in_an_agent_in_an_agent(way: Way, asking: Callable[..., Behaviour]) -> None:
    """One question at the top, with the whole path; the answer goes straight there; nothing above runs again."""
    done: list[str] = []

    def build() -> Behaviour:
        inner = Agent(seq("deep", Note("deep first", done), asking("q")), Desk)
        middle = Agent(
            seq(
                "mid",
                Note("mid first", done),
                inner.as_node("inner", inputs={"note": "note"}, outputs={"values": "values"}),
            ),
            Desk,
        )
        node = middle.as_node("middle", inputs={"note": "note"}, outputs={"values": "values"})
        return seq("main", Note("first", done), node, Note("last", done))

    relay = Relay(way, build)
    with anyio.fail_after(5):
        outcome = await relay.begin({"note": "for all"})
        assert [one.path for one in outcome.suspensions] == ["main/middle/mid/inner/deep/q"]
        assert relay.values == {}
        assert (await relay.resume("yes")).status is SUCCESS
    assert done == ["first", "mid first", "deep first", "last"]
    assert relay.values == {"q": "yes"}


async def test_i17_an_approval_holds_for_what_was_shown(way: Way) -> None:
    """The amount was changed before the approval came: a new question shows the new one, and that is approved."""
    done: list[Any] = []

    class Pay(Note):
        def update(self) -> Any:
            done.append(self.read_state().amount)
            return SUCCESS

    def build() -> Behaviour:
        return seq(
            "main", Approve("ok", Pay("pay", []), message="pay?", show=lambda s: {"to": "a", "amount": s.amount})
        )

    relay = Relay(way, build)
    with anyio.fail_after(5):
        first = (await relay.begin()).suspensions[0]
        assert first.data == {"to": "a", "amount": 5}
        await relay.move()
        relay.agent.state_manager.update({"amount": 50})
        if way == "store":
            await relay.agent.save()
        second = (await relay.resume(True)).suspensions[0]
        assert (second.data, done) == ({"to": "a", "amount": 50}, [])
        assert (second.id != first.id, second.digest != first.digest) == (True, True)
        with pytest.raises(AlreadyAnsweredError):
            await relay.agent.interaction.approve(first.id)
        assert (await relay.resume(True)).status is SUCCESS
    assert done == [50]


@each_asking
async def test_i18_new_deps_are_used_after_the_restart(way: Way, asking: Callable[..., Behaviour]) -> None:
    """Not asked again; the node goes on with the answer and the new deps."""
    seen: list[Any] = []

    async def talk(node: Any) -> None:
        said = await node.ask(Request("?"), key="q")
        seen.append((said, node.context.deps))

    relay = Relay(way, lambda: seq("main", Talk("q", talk), asking("z")), deps="old")
    with anyio.fail_after(5):
        await relay.begin()
        await relay.move(deps="new")
        outcome = await relay.agent.resume("x", thread_id="t1", deps=None if way != "here" else "new")
    assert seen == [("x", "new")]
    assert [one.path for one in outcome.suspensions] == ["main/z"]


LOOPS: dict[str, Callable[[Behaviour], Behaviour]] = {
    "repeat": lambda child: Repeat("loop", child, times=2),
    "stock": lambda child: StockRepeat("loop", child=child, num_success=2),
    "until": lambda child: LoopUntilSuccess("loop", child, max_iterations=2),
}


@each_asking
@pytest.mark.parametrize("loop", LOOPS)
async def test_i19_each_round_asks_anew(way: Way, asking: Callable[..., Behaviour], loop: str) -> None:
    """Two rounds over two questions: four questions with four ids; no round takes an answer of the other."""
    end = Note("end", [], FAILURE if loop == "until" else SUCCESS)
    relay = Relay(
        way, lambda: LOOPS[loop](seq("round", par("both", asking("a"), asking("b")), Note("end", [], end.result)))
    )
    ids: list[str] = []
    with anyio.fail_after(5):
        outcome = await relay.begin()
        for turn in range(2):
            assert sorted(one.key for one in outcome.suspensions) == ["a", "b"]
            ids += [one.id for one in outcome.suspensions]
            await relay.resume(f"a{turn}", "loop/round/both/a")
            assert relay.values.get("b") == (None if turn == 0 else "b0")
            outcome = await relay.resume(f"b{turn}", "loop/round/both/b")
            assert relay.values == {"a": f"a{turn}", "b": f"b{turn}"}
    assert len(set(ids)) == 4
    assert outcome.status is end.result


@each_asking
async def test_i19_each_item_is_a_round(way: Way, asking: Callable[..., Behaviour]) -> None:
    """A ForEach asks for each item, and each answer goes to its own."""
    relay = Relay(way, lambda: ForEach("each", lambda item, _: seq(item, asking(item)), over=lambda _: ["x", "y", "x"]))
    with anyio.fail_after(5):
        outcome = await relay.begin()
        paths = sorted(one.path for one in outcome.suspensions)
        assert paths == ["each/x/x", "each/x[2]/x", "each/y/y"]
        for path in reversed(paths):
            outcome = await relay.resume(path, path)
    assert outcome.status is SUCCESS
    assert relay.values == {"x": "each/x/x", "y": "each/y/y"}


@each_asking
async def test_i21_waiting_for_a_person_is_no_running_time(way: Way, asking: Callable[..., Behaviour]) -> None:
    """Limit 10: suspended at 3, answered at 3603, one more second of work."""
    done: list[str] = []
    clock = VirtualClock(autojump=True)
    limits = Limits(timeout=10)
    relay = Relay(
        way, lambda: seq("main", Work("a", done, 3), asking("q"), Work("b", done, 1)), clock=clock, limits=limits
    )
    with anyio.fail_after(5):
        await relay.begin()
        assert clock.now() == 3
        await clock.advance(3600)
        assert (await relay.resume("x")).status is SUCCESS
    assert clock.now() == 3604
    assert done == ["a", "b"]


@each_asking
@pytest.mark.parametrize("after", [6.5, 4.0])
async def test_i21_nor_is_it_under_run(asking: Callable[..., Behaviour], after: float) -> None:
    """A live run waits an hour for the answer; then only its own seconds count, and they still do."""
    done: list[str] = []
    clock = VirtualClock(autojump=True)

    async def human(_: Any) -> Any:
        await clock.sleep(3600)
        return "x"

    agent = Agent(
        seq("main", Work("a", done, 3), asking("q"), Work("b", done, after)), Desk, clock=clock, human=human,
        limits=Limits(timeout=8),
    )  # fmt: skip
    with anyio.fail_after(5):
        if after > 5:
            with pytest.raises(Exception, match="8 seconds"):
                await agent.run()
            assert clock.now() == 3608
        else:
            assert await agent.run() is SUCCESS
            assert clock.now() == 3607


@each_asking
async def test_i22_a_subtree_mounted_twice_asks_twice(way: Way, asking: Callable[..., Behaviour]) -> None:
    """Two ids and two paths; answering the first leaves the second untouched."""
    relay = Relay(way, lambda: par("main", *(seq("form", asking("q"), Note("n", [])) for _ in range(2))))
    with anyio.fail_after(5):
        await relay.begin()
        before = relay.pending
        assert sorted(before) == ["main/form/q", "main/form[2]/q"]
        await relay.resume("one", "main/form/q")
        assert relay.pending == {"main/form[2]/q": before["main/form[2]/q"]}
        assert relay.agent.state.log == ["n"]
        assert (await relay.resume("two")).status is SUCCESS
    assert relay.agent.state.log == ["n", "n"]


async def test_i23_effects_and_questions_of_one_node_take_turns(way: Way) -> None:
    """once, ask, once, ask in one node, restarted before each answer: each effect once, each answer its own."""
    bank = Bank()

    async def talk(node: Any) -> None:
        node.context.deps.append("entered")
        paid = await node.once("pay", bank.act(node, "f"))
        a = await node.ask(Request("a?"), key="a")
        noted = await node.once("log", bank.act(node, "g"))
        b = await node.ask(Request("b?"), key="b")
        node.write_state({"values": {"all": [paid, a, noted, b]}})

    entries: list[str] = []
    relay = Relay(way, lambda: seq("main", Talk("talk", talk)), deps=entries)
    with anyio.fail_after(5):
        await relay.begin()
        await relay.resume("A")
        await relay.move()
        assert (await relay.resume("B")).status is SUCCESS
    assert bank.calls == ["f", "g"]
    assert relay.values == {"all": ["f 1", "A", "g 2", "B"]}
    assert len(entries) == 3


async def test_a_refusal_is_told_at_each_entry_of_the_round(way: Way) -> None:
    """A question was declined, the node asks something else: after that answer it is told the refusal again."""
    told: list[str] = []

    async def talk(node: Any) -> None:
        try:
            await node.ask(Request("a?"), key="a")
        except NotAnsweredError as refused:
            told.append(refused.reason)
        node.merge_dict("values", {"b": await node.ask(Request("b?"), key="b")})

    relay = Relay(way, lambda: seq("main", Talk("talk", talk)))
    with anyio.fail_after(5):
        await relay.begin()
        outcome = await relay.resume(Answer(None, action="decline"))
        assert [one.key for one in outcome.suspensions] == ["b"]
        assert (await relay.resume("B")).status is SUCCESS
    assert told == ["declined", "declined"]
    assert relay.values == {"b": "B"}


@each_asking
async def test_after_a_refusal_the_next_attempt_asks_anew(way: Way, asking: Callable[..., Behaviour]) -> None:
    """A refusal holds for the activation that was told it: what a Retry enters again asks again, in the same round."""
    leaf = (lambda: ask("q")) if asking is ask else (lambda: _forgiving(AskInside("q")))
    relay = Relay(way, lambda: Retry("retry", leaf(), attempts=2))
    with anyio.fail_after(5):
        first = (await relay.begin()).suspensions[0].id
        outcome = await relay.resume(Answer(None, action="decline"))
        assert [one.id != first for one in outcome.suspensions] == [True]
        assert (await relay.resume("x")).status is SUCCESS
    assert relay.values == {"q": "x"}


@each_asking
async def test_i24_a_default_is_the_deadlines_answer(way: Way, asking: Callable[..., Behaviour]) -> None:
    """At 60 the node gets "no", and the record says that it came from the deadline, from nobody."""
    relay = Relay(way, lambda: seq("main", asking("q", expires=[default("no", after=60)])), clock=VirtualClock())
    with anyio.fail_after(5):
        id = (await relay.begin()).suspensions[0].id
        await relay.clock.advance(60)
        await relay.move()
        assert (await relay.agent.recover("t1")).status is SUCCESS
        record = relay.agent.interaction.record(id)
    assert relay.values == {"q": "no"}
    assert (record.status, record.source, record.answer and record.answer.by) == ("expired", "deadline", None)


@pytest.mark.parametrize("asking", [ask, None])
async def test_i26_a_withdrawn_question_stays_withdrawn(way: Way, asking: Any) -> None:
    """The answer to A is refused; A's node fails with the reason as feedback; B's answer is used."""
    relay = Relay(
        way, lambda: par("main", ForceSuccess("f", ask("a") if asking else _forgiving(AskInside("a"))), ask("b"))
    )
    with anyio.fail_after(5):
        await relay.begin()
        await relay.move()
        a = relay.id_of("main/f/a")
        await relay.agent.interaction.withdraw(a, "no longer needed")
        await relay.move()
        with pytest.raises(WithdrawnError, match="no longer needed"):
            await relay.agent.interaction.answer(Answer(a, "x"))
        with pytest.raises(WithdrawnError):
            await relay.agent.interaction.withdraw(a)
        assert (await relay.resume("B", "main/b")).status is SUCCESS
    assert relay.agent.interaction.record(a).status == "withdrawn"
    assert relay.values == {"b": "B"}
    node = relay.agent.root.children[0].children[0]
    assert (node.status, node.feedback_message) == (FAILURE, "no longer needed")


async def _from_a_thread(agent: Agent[Any], id: str) -> None:
    await anyio.to_thread.run_sync(agent.interaction.answer_nowait, Answer(id, "x"))


async def _from_a_task(agent: Agent[Any], id: str) -> None:
    await agent.interaction.answer(Answer(id, "x", by="ann"))


@pytest.mark.parametrize("answer", [_from_a_thread, _from_a_task])
@each_asking
@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_i27_an_answer_wakes_a_live_run(
    answer: Callable[..., Any], asking: Callable[..., Behaviour], store: Any
) -> None:
    """Under `run()` the question is answered at 5, from another task or thread: the run goes on at once."""
    done: list[str] = []
    clock = VirtualClock(autojump=True)
    agent = Agent(
        seq("main", Work("before", done, 1), asking("q"), Work("after", done, 1)),
        Desk,
        clock=clock,
        store=store and store(),
    )
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def person() -> None:
                await clock.sleep(5)
                ids.extend(one.id for one in agent.interaction.pending)
                await answer(agent, ids[0])

            ids: list[str] = []
            group.start_soon(person)
            assert await agent.run() is SUCCESS
    assert (clock.now(), done, len(ids)) == (6, ["before", "after"], 1)
    assert agent.state.values == {"q": "x"}
    assert agent.interaction.record(ids[0]).consumed_at is not None


async def test_i28_attempts_share_a_key_and_rounds_do_not(way: Way) -> None:
    """Retry: two calls, one key. Repeat: two calls, two other keys. Restarts in between change none of them."""
    keys: dict[str, list[str]] = {}
    for loop in ("retry", "repeat"):
        bank = Bank(broken=1 if loop == "retry" else 0)

        async def talk(node: Any, bank: Bank = bank) -> Any:
            try:
                await node.once("pay", bank.act(node, "f"))
            except ConnectionError:
                return FAILURE
            return None

        def build(loop: str = loop, talk: Any = talk) -> Behaviour:
            child = sel("try", Talk("pay", talk), seq("else", AskInside("q"), Note("fail", [], FAILURE)))
            body = seq("round", child, AskInside("z")) if loop == "repeat" else child
            over = Retry("loop", body, attempts=3) if loop == "retry" else Repeat("loop", body, times=2)
            return seq("main", over, ask("last"))

        relay = Relay(way, build)
        with anyio.fail_after(5):
            outcome = await relay.begin()
            while outcome.suspended:
                outcome = await relay.resume("x")
        assert outcome.status is SUCCESS
        keys[loop] = bank.keys
    assert len(keys["retry"]) == 2
    assert len(set(keys["retry"])) == 1
    assert len(set(keys["repeat"])) == len(keys["repeat"]) == 2
    assert not set(keys["retry"]) & set(keys["repeat"])


@each_asking
async def test_i29_several_answers_are_taken_all_or_none(way: Way, asking: Callable[..., Behaviour]) -> None:
    """The third does not fit: all stay open. Mended, all are answered and nothing runs; `recover` gives each out."""
    relay = Relay(way, lambda: par("main", asking("a"), asking("b"), asking("c", int)))
    with anyio.fail_after(5):
        await relay.begin()
        await relay.move()
        before = relay.pending
        a, b, c = (before[f"main/{name}"] for name in "abc")
        with pytest.raises(InvalidAnswerError):
            await relay.agent.interaction.answer(Answer(a, 1), Answer(b, 2), Answer(c, "three"))
        await relay.move()
        assert relay.pending == before
        ticks = relay.agent.tree.count
        await relay.agent.interaction.answer(Answer(a, 1), Answer(b, 2), Answer(c, 3))
        assert (relay.agent.tree.count, relay.values, relay.agent.status) == (ticks, {}, RUNNING)
        await relay.move()
        assert (await relay.agent.recover("t1")).status is SUCCESS
    assert relay.values == {"a": 1, "b": 2, "c": 3}
