"""Cases I01-I08, I10-I12: a run stops at a question, and the answer goes to the node that asked."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from datetime import date
from typing import Any, Optional

import anyio
import pytest
from py_trees.behaviour import Behaviour
from pydantic import BaseModel, create_model

from jianmu.agent import Agent
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request
from jianmu.errors import (
    AlreadyAnsweredError,
    AmbiguousAnswerError,
    InvalidAnswerError,
    SwallowedSuspensionError,
    UnknownSuspensionError,
)
from jianmu.nodes import AskHuman, Choose, Invert, Timer, WaitFor
from tests.cases.people import (
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
    seq,
)
from tests.conftest import FULL

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("asking", [ask, AskInside])
async def test_i01_what_finished_before_the_question_is_not_done_again(
    way: Way, memory: bool, asking: Callable[[str], Behaviour]
) -> None:
    """Charge runs once, before the question; Ship runs once, after the answer."""
    done: list[str] = []
    relay = Relay(way, lambda: seq("main", Work("charge", done), asking("ok"), Work("ship", done), memory=memory))
    with anyio.fail_after(5):
        first = await relay.begin()
        assert (first.status, first.suspended, done) == (RUNNING, True, ["charge"])
        assert [(one.path, one.message) for one in first.suspensions] == [("main/ok", "ok?")]
        last = await relay.resume("yes")
    assert (last.status, last.suspended, last.suspensions) == (SUCCESS, False, ())
    assert done == ["charge", "ship"]
    assert relay.values == {"ok": "yes"}
    assert relay.agent.state.log == ["charge", "ship"]


async def test_i01_plain_leaves_behind_the_place_of_a_memory_sequence_are_not_done_again(way: Way) -> None:
    """The same for leaves that are done within the pass."""
    done: list[str] = []
    relay = Relay(way, lambda: seq("main", Note("charge", done), ask("ok"), Note("ship", done)))
    with anyio.fail_after(5):
        await relay.begin()
        assert (await relay.resume(1)).status is SUCCESS
    assert done == ["charge", "ship"]


async def test_i02_a_node_asks_until_it_is_content(way: Way) -> None:
    """`request` is called once, `on_answer` four times with exactly the four answers; four questions, four ids."""
    told: list[Any] = []
    relay = Relay(way, lambda: seq("main", AskAgain("age", told)))
    ids = []
    with anyio.fail_after(5):
        outcome = await relay.begin()
        for said in ("a", "b", "c"):
            ids.append(outcome.suspensions[0].id)
            outcome = await relay.resume(said)
            assert outcome.suspended
            assert outcome.suspensions[0].message.startswith(repr(said))
        ids.append(outcome.suspensions[0].id)
        assert (await relay.resume(7)).status is SUCCESS
    assert told == ["request", "a", "b", "c", 7]
    assert len(set(ids)) == 4
    assert relay.values == {"age": 7}


async def test_i03_each_answer_goes_to_its_own_question(way: Way) -> None:
    """Whatever takes how long before and after a restart, and whichever is answered first: no answer is swapped."""
    seeds = random.Random(3)

    def build() -> Behaviour:
        branches = [
            seq(f"{name} branch", Timer("wait", seconds=seeds.uniform(0, 9)), asking(name))
            for name, asking in (("refund", ask), ("delete", AskInside))
        ]
        return par("main", *branches)

    with anyio.fail_after(60):
        for _ in range(60 if FULL else 8):  # each has stores of its own, whose connections stay
            relay = Relay(way, build)
            await relay.begin()
            for name in seeds.sample(["refund", "delete"], 2):
                await relay.resume(f"for {name}", f"main/{name} branch/{name}")
            assert relay.values == {"refund": "for refund", "delete": "for delete"}
            assert relay.agent.status is SUCCESS


@pytest.mark.parametrize("asking", [ask, AskInside])
async def test_i04_steps_without_an_answer_leave_the_next_question_open(
    way: Way, asking: Callable[[str], Behaviour]
) -> None:
    """The first answer is used once: five more steps find the second question open, under the same id."""
    done: list[str] = []
    relay = Relay(way, lambda: seq("main", asking("q1"), Work("between", done, 0.0), asking("q2")))
    with anyio.fail_after(5):
        await relay.begin()
        outcome = await relay.resume("one")
        id = outcome.suspensions[0].id
        for _ in range(5):
            await relay.move()
            await relay.agent.step(settle=True, thread_id="t1")
            assert relay.pending == {"main/q2": id}
            assert relay.agent.status is RUNNING
        assert relay.values == {"q1": "one"}
        assert (await relay.resume("two")).status is SUCCESS
    assert relay.values == {"q1": "one", "q2": "two"}
    assert done == ["between"]


async def test_i05_a_repeated_key_is_the_same_answer_and_all_else_is_refused(way: Way) -> None:
    """The same key again: nothing happens; another key, or an id that never was: typed refusals, nothing changed."""
    relay = Relay(way, lambda: seq("main", ask("q1"), ask("q2")))
    with anyio.fail_after(5):
        q1 = (await relay.begin()).suspensions[0].id
        first = Answer(q1, "x", key="k1")
        q2 = (await relay.resume(first)).suspensions[0].id
        await relay.move()
        interaction = relay.agent.interaction
        before = (relay.values, relay.pending)
        again = await interaction.answer(first)
        assert again[0].answer == first
        assert await interaction.answer(Answer(q1, "other text", key="k1")) == again
        assert (await relay.agent.resume(first, thread_id="t1")).suspensions[0].id == q2
        for late in (Answer(q1, "x", key="k2"), Answer(q1, "x"), Answer(q1, None, action="decline")):
            with pytest.raises(AlreadyAnsweredError) as told:
                await interaction.answer(late)
            assert told.value.record == interaction.record(q1)
        with pytest.raises(UnknownSuspensionError, match=q2):
            await relay.agent.resume("x", suspension_id="never", thread_id="t1")
        assert (relay.values, relay.pending) == before


async def test_i05_a_repeated_answer_to_a_run_that_has_ended_runs_nothing(way: Way) -> None:
    """The sender of an answer repeats it because the reply got lost; the run has ended meanwhile."""
    done: list[str] = []
    relay = Relay(way, lambda: seq("main", Note("before", done), ask("q1"), Note("after", done)))
    with anyio.fail_after(5):
        answer = Answer((await relay.begin()).suspensions[0].id, "x", key="k1")
        last = await relay.resume(answer)
        await relay.move()
        again = await relay.agent.resume(answer, thread_id="t1")
    assert (again.status, again.suspended, again.output) == (SUCCESS, False, last.output)
    assert done == ["before", "after"]


JSON_VALUES = [
    None,
    False,
    True,
    0,
    0.0,
    -1,
    1.5,
    10**20,
    "",
    "0",
    "null",
    [],
    [None],
    {},
    {"": {"a": [1, None]}},
    "\u0000",
    "木",
]


@pytest.mark.parametrize(
    "asking", [ask, AskInside, lambda name: WaitFor(name, into=f"values.{name}")], ids=["leaf", "coroutine", "wait"]
)
async def test_i06_every_json_value_is_an_answer(way: Way, asking: Callable[[str], Behaviour]) -> None:
    """Each is taken, and arrives exactly as it was given: nothing empty or false counts as missing."""
    with anyio.fail_after(20):
        for value in JSON_VALUES:
            relay = Relay(way, lambda: seq("main", asking("q")))
            assert (await relay.begin()).suspended
            assert (await relay.resume(value)).status is SUCCESS
            kept = relay.values["q"]
            assert kept == value
            assert json.dumps(kept) == json.dumps(value)


@pytest.mark.parametrize("asking", [ask, AskInside])
async def test_i07_answering_one_leaves_the_other_as_it_is(way: Way, asking: Callable[[str], Behaviour]) -> None:
    """After A's answer, B alone is open, under the same id, and it was asked once."""
    told: list[Any] = []
    relay = Relay(way, lambda: par("main", asking("a"), AskAgain("b", told), asking("c")))
    with anyio.fail_after(5):
        await relay.begin()
        before = relay.pending
        assert sorted(before) == ["main/a", "main/b", "main/c"]
        outcome = await relay.resume("A", "main/a")
        assert [(one.path, one.id) for one in outcome.suspensions] == [
            (path, before[path]) for path in ("main/b", "main/c")
        ]
        assert told == ["request"]
        with pytest.raises(AmbiguousAnswerError):
            await relay.agent.resume("C", thread_id="t1")
        await relay.resume("C", "main/c")
        assert (await relay.resume(1)).status is SUCCESS
    assert relay.values == {"a": "A", "b": 1, "c": "C"}


async def test_i08_only_the_asking_leaf_goes_on(way: Way) -> None:
    """Three levels down: `initialise` of every ancestor and earlier sibling is called once in all."""
    entered: list[str] = []

    class Branch(type(seq("x"))):
        def initialise(self) -> None:
            entered.append(self.name)
            super().initialise()

        def memento(self) -> None:
            """Nothing is kept."""

        def restore(self, value: Any) -> None:
            """Nothing was kept."""

    class Turn(Invert):
        def initialise(self) -> None:
            entered.append(self.name)
            super().initialise()

        def memento(self) -> None:
            """Nothing is kept."""

        def restore(self, value: Any) -> None:
            """Nothing was kept."""

    class First(Note):
        def initialise(self) -> None:
            entered.append(self.name)

    def build() -> Behaviour:
        inner = Branch("inner", memory=True, children=[First("first", []), ask("q"), First("last", [])])
        return Branch("main", memory=True, children=[First("earlier", []), Turn("turn", inner)])

    relay = Relay(way, build)
    with anyio.fail_after(5):
        await relay.begin()
        assert entered == ["main", "earlier", "turn", "inner", "first"]
        outcome = await relay.resume("x")
    assert entered == ["main", "earlier", "turn", "inner", "first", "last"]
    assert outcome.status is not RUNNING
    assert relay.values == {"q": "x"}


async def _plainly(node: Any) -> Any:
    try:
        return await node.ask(Request("?"))
    except Exception:
        node.write_state({"note": "swallowed"})
        raise


async def _suppressed(node: Any) -> Any:
    with contextlib.suppress(Exception):
        return await node.ask(Request("?"))
    node.write_state({"note": "swallowed"})
    return None


async def _in_a_group(node: Any) -> Any:
    said: list[Any] = []

    async def inside() -> None:
        said.append(await node.ask(Request("?")))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(inside)
    except Exception:
        node.write_state({"note": "swallowed"})
        raise
    return said[0]


async def _with_finally(node: Any) -> Any:
    try:
        return await node.ask(Request("?"))
    finally:
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("asked", [_plainly, _suppressed, _in_a_group, _with_finally])
async def test_i10_a_suspension_is_no_exception_of_the_users(way: Way, asked: Callable[[Any], Any]) -> None:
    """`except Exception` lets it through, in whatever form; after the answer `ask` returns it."""

    async def talk(node: Any) -> None:
        node.merge_dict("values", {"q": await asked(node)})

    relay = Relay(way, lambda: seq("main", Talk("talk", talk)))
    with anyio.fail_after(5):
        assert (await relay.begin()).suspended
        assert relay.agent.state.note == ""
        assert (await relay.resume("yes")).status is SUCCESS
    assert (relay.values, relay.agent.state.note) == ({"q": "yes"}, "")


async def _by_base(node: Any) -> None:
    try:
        await node.ask(Request("?"))
    except BaseException:
        return


async def _by_star(node: Any) -> None:
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(node.ask, Request("?"))
    except* BaseException:
        pass


@pytest.mark.parametrize("swallow", [_by_base, _by_star])
async def test_i10_swallowing_a_suspension_is_an_error_with_the_path(way: Way, swallow: Callable[[Any], Any]) -> None:
    """A coroutine that catches everything does not end as if it had been answered."""
    relay = Relay(way, lambda: seq("main", Talk("talk", swallow)))
    with anyio.fail_after(5), pytest.raises(SwallowedSuspensionError, match="main/talk"):
        await relay.begin()


async def test_i11_an_agent_without_a_store_goes_on_itself() -> None:
    """`run_until_suspend()`, then `resume("yes")` on the same object; without a thread's id it is the current one."""
    agent = Agent(seq("main", ask("q")), Desk)
    with anyio.fail_after(5):
        assert (await agent.run_until_suspend()).suspended
        assert (await agent.resume("yes")).status is SUCCESS
    assert agent.state.values == {"q": "yes"}


class Address(BaseModel):
    """What a person is asked for."""

    street: str
    number: int = 1


TYPED = [
    (int, ["abc", "7", 7.5, True, None, [7]], 7, 7),
    (bool, ["true", 1, None], False, False),
    (date, ["yesterday", 5, "2030-13-01"], "2030-02-01", date(2030, 2, 1)),
    (Address, ["x", {"number": 1}, {"street": 5}], {"street": "x"}, Address(street="x")),
    (list[int], [1, ["1"], {}], [1, 2], [1, 2]),
    (str | None, [1, []], None, None),
    (
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
        [{}, {"a": "1"}],
        {"a": 1},
        {"a": 1},
    ),
]


def _leaf(kind: Any) -> Behaviour:
    return AskHuman("q", message="q?", answer=kind, into="said")


def _coroutine(kind: Any) -> Behaviour:
    async def talk(node: Any) -> None:
        node.write_state({"said": await node.ask(Request("q?", answer=kind))})

    return Talk("q", talk)


@pytest.mark.parametrize("asking", [_leaf, _coroutine])
@pytest.mark.parametrize(("kind", "bad", "payload", "value"), TYPED, ids=lambda one: str(one)[:20])
async def test_i12_an_answer_is_checked_at_the_door(
    way: Way, asking: Callable[..., Behaviour], kind: Any, bad: list[Any], payload: Any, value: Any
) -> None:
    """What does not fit is refused before any tick, wherever it is answered; then one that fits is taken."""
    kept = Any if isinstance(kind, dict) else kind
    schema = create_model("Said", said=(Optional[kept], None))  # noqa: UP045  # a type at run time
    relay = Relay(way, lambda: seq("main", asking(kind)), schema)
    with anyio.fail_after(5):
        id = (await relay.begin()).suspensions[0].id
        await relay.move()
        ticks = relay.agent.tree.count
        for wrong in bad:
            with pytest.raises(InvalidAnswerError):
                await relay.agent.resume(wrong, thread_id="t1")
            assert relay.pending == {"main/q": id}
        assert relay.agent.tree.count == ticks
        assert (await relay.resume(payload)).status is SUCCESS
    assert relay.agent.state.said == value
    assert isinstance(relay.agent.state.said, type(value))
    await relay.move()
    assert relay.agent.state.said == value


async def test_i12_a_choice_takes_its_options_and_nothing_else(way: Way) -> None:
    """Options that look alike are told apart."""
    relay = Relay(way, lambda: seq("main", Choose("q", message="?", options=[1, "one", None], into="values.q")))
    with anyio.fail_after(5):
        await relay.begin()
        for wrong in ("1", True, 1.0, "two", [], {}):
            with pytest.raises(InvalidAnswerError):
                await relay.resume(wrong)
        assert (await relay.resume(None)).status is SUCCESS
    assert relay.values == {"q": None}
