"""Cases of durability that need no store on disk: K07, K12, K15, K16, K20, K21, K26, K37, S26, S28; K22 in memory."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from pydantic import ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.node import Node
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request
from jianmu.engine.state import Ephemeral, Transient
from jianmu.errors import AlreadyAnsweredError, CorruptRecordError, StateWriteError, TreeMismatchError
from tests.anystore import Stores, each_store
from tests.cases.leaves import Do
from tests.cases.people import (
    RUNNING,
    SUCCESS,
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
from tests.house import imported, sources

pytestmark = pytest.mark.anyio


async def test_k06_a_field_whose_type_has_changed_is_an_error_before_the_first_tick() -> None:
    """The stored value fits the new type in no way: an error that names the field, never the raw value in its place."""

    class Old(Desk):
        place: dict[str, int] = Field(default_factory=dict)

    class New(Desk):
        place: tuple[int, int] = (0, 0)

    old = Agent(seq("main", ask("q")), Old)
    await old.run_until_suspend({"place": {"x": 1}})
    fresh = Agent(seq("main", ask("q")), New)
    with pytest.raises(StateWriteError, match="place"):
        fresh.load_checkpoint(old.dump_checkpoint())
    assert (fresh.state.place, fresh.interaction.pending, fresh.tree.count) == ((0, 0), (), 0)


@pytest.mark.parametrize("spoil", [
    lambda _: b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
    lambda data: {**data, "state": b"\x80\x04."},
    lambda data: {**data, "state": {"__reduce__": ["os.system", ["touch pwned"]]}},
    lambda data: {**data, "questions": {"records": [{"py/object": "os.system"}]}},
    lambda data: {**data, "journal": {"entries": ["!!python/object/apply:os.system"]}},
])  # fmt: skip
async def test_k07_a_record_that_names_code_runs_nothing(spoil: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Pickles and names of functions are no records: a typed error, and nothing is imported or called."""
    monkeypatch.chdir(tmp_path)
    old = Agent(seq("main", ask("q")), Desk)
    await old.run_until_suspend()
    with pytest.raises(CorruptRecordError):
        Agent(seq("main", ask("q")), Desk).load_checkpoint(spoil(old.dump_checkpoint()))
    assert not tmp_path.joinpath("pwned").exists()


def test_k07_no_file_of_the_package_can_call_what_a_record_names() -> None:
    """Neither pickle nor its relatives are imported anywhere."""
    unsafe = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml"}
    found = [
        (file.where, name) for file in sources("jianmu") for node in ast.walk(file.tree) for name in imported(node)
    ]
    assert [place for place in found if place[1].split(".")[0] in unsafe] == []


async def test_k12_cut_off_at_any_await_after_the_answer_nothing_is_asked_or_done_twice() -> None:
    """A copy is taken at each await; a run that goes on from any copy has the answer, and each effect at most twice."""
    copies: list[tuple[str, Any]] = []
    calls: list[str] = []
    keys: dict[str, set[str]] = {}

    def build(watch: bool) -> Agent[Any]:
        async def effect(node: Any, name: str) -> str:
            calls.append(name)
            keys.setdefault(name, set()).add(node.context.idempotency_key)
            await pause(f"in {name}")
            return name

        async def pause(where: str) -> None:
            for turn in range(2):
                if watch:
                    copies.append((f"{where} {turn}", json.loads(json.dumps(agent.dump_checkpoint()))))
                await anyio.lowlevel.checkpoint()

        async def talk(node: Any) -> None:
            async def f() -> str:
                return await effect(node, "one")

            async def g() -> str:
                return await effect(node, "two")

            await pause("before")
            one = await node.once("one", f)
            await pause("between")
            said = await node.ask(Request("?"), key="q")
            await pause("answered")
            two = await node.once("two", g)
            await pause("after")
            node.merge_dict("values", {"all": [one, said, two]})

        agent = Agent(seq("main", Talk("talk", talk), Note("end", [])), Desk)
        return agent

    with anyio.fail_after(20):
        agent = build(watch=True)
        outcome = await agent.run_until_suspend(thread_id="t1")
        await agent.resume("yes")
        assert calls == ["one", "two"]
        assert len(copies) > 14
        for where, copy in copies:
            calls.clear()
            later = build(watch=False)
            later.load_checkpoint(copy)
            end = await later.recover()
            if end.suspended:
                assert copy["questions"]["records"] == [] or not where.startswith(("answered", "in two", "after"))
                end = await later.resume("yes")
            assert end.status is SUCCESS, where
            assert later.state.values == {"all": ["one", "yes", "two"]}, where
            begun = {one["key"]: one["state"] for one in copy["journal"]["entries"]}
            expected = [name for name in ("one", "two") if begun.get(name) != "done"]
            assert calls == expected, where
            with pytest.raises(AlreadyAnsweredError):
                await later.resume("no", suspension_id=outcome.suspensions[0].id)
    assert all(len(each) == 1 for each in keys.values())


async def test_k13_cut_off_in_the_first_work_the_input_is_there() -> None:
    """The copy is taken while the first leaf is at work: the state holds the input, the run goes on with it."""
    taken: list[Any] = []

    async def work(node: Any) -> None:
        if not taken:
            taken.append(json.loads(json.dumps(agent.dump_checkpoint())))
        node.write_state({"log": [node.read_state().note]})

    agent = Agent(seq("main", Talk("w", work)), Desk)
    with anyio.fail_after(5):
        assert await agent.run({"note": "hi"}) is SUCCESS
        later = Agent(seq("main", Talk("w", work)), Desk)
        later.load_checkpoint(taken[0])
        assert later.state.note == "hi"
        assert (await later.recover()).status is SUCCESS
    assert later.state.log == ["hi"]


@pytest.mark.parametrize("asking", [ask, AskInside])
async def test_k15_leaves_of_one_name_in_two_branches_are_told_apart(way: Way, asking: Any) -> None:
    """The first `send` has finished and is not run again; the second one asks and gets the answer."""
    done: list[str] = []
    relay = Relay(way, lambda: par("main", seq("a", Work("send", done)), seq("b", asking("send"), Note("end", done))))
    with anyio.fail_after(5):
        outcome = await relay.begin()
        assert [one.path for one in outcome.suspensions] == ["main/b/send"]
        assert (await relay.resume("x")).status is SUCCESS
    assert done == ["send", "end"]
    assert relay.values == {"send": "x"}


@each_store
@pytest.mark.parametrize("other", [False, True])
async def test_k16_a_run_on_a_thread_finds_the_state_and_then_its_input(any_store: Stores, other: bool) -> None:
    """Three runs, inputs 1, 2, 3, in one agent or in three that share the threads: first restored, then the input."""
    seen: list[Any] = []

    def look(node: Any) -> None:
        seen.append((node.read_state().amount, list(node.read_state().log)))
        node.write_state({"log": [node.read_state().amount]})

    agent = Agent(seq("main", Do("look", look)), Desk, store=any_store())
    for n in (1, 2, 3):
        if other:
            agent = Agent(seq("main", Do("look", look)), Desk, store=any_store())
        with anyio.fail_after(5):
            assert await agent.run({"amount": n}, thread_id="t1") is SUCCESS
    assert seen == [(1, []), (2, [1]), (3, [1, 2])]
    assert (await any_store().show("t1")).run == 3


@pytest.mark.parametrize("asking", [ask, AskInside])
async def test_k20_a_renamed_node_is_found_by_its_alias(asking: Any) -> None:
    """Without: an error that names the old path, before the first tick. With: the old question can be answered."""
    old = Agent(seq("root", Note("first", []), asking("ask")), Desk)
    with anyio.fail_after(5):
        id = (await old.run_until_suspend()).suspensions[0].id
        data = json.loads(json.dumps(old.dump_checkpoint()))
        done: list[str] = []

        def build(**options: Any) -> Agent[Any]:
            return Agent(seq("root", Note("first", done), asking("confirm")), Desk, **options)

        fresh = build()
        with pytest.raises(TreeMismatchError, match="'root/ask'") as told:
            fresh.load_checkpoint(data)
        assert told.value.path == "root/ask"
        assert (fresh.tree.count, fresh.interaction.pending) == (0, ())
        fresh = build(aliases={"root/ask": "root/confirm"})
        fresh.load_checkpoint(data)
        assert [(one.id, one.path) for one in fresh.interaction.pending] == [(id, "root/confirm")]
        assert (await fresh.resume("x", suspension_id=id)).status is SUCCESS
    assert done == []
    if asking is ask:
        assert fresh.state.values == {"confirm": "x"}


async def test_k21_done_half_way_and_asking_each_goes_on_as_it_was(way: Way) -> None:
    """A Parallel of the three ends as without a break; what was done is not done again."""
    done: list[str] = []

    class Half(Node):
        ticks = 0

        def update(self) -> Any:
            self.ticks += 1
            done.append(f"half {self.ticks}")
            return SUCCESS if self.ticks == 3 else RUNNING

        def memento(self) -> int:
            return self.ticks

        def restore(self, value: int) -> None:
            self.ticks = value

    relay = Relay(way, lambda: par("main", Work("done", done), Half("half"), ask("q")))
    with anyio.fail_after(5):
        await relay.agent.step(settle=True, thread_id="t1")
        await relay.move()
        await relay.agent.step(settle=True, thread_id="t1")
        assert done == ["half 1", "done", "half 2"]
        await relay.move()
        id = relay.pending["main/q"]
        await relay.agent.interaction.answer(Answer(id, "x"))
        await relay.move()
        await relay.agent.step(settle=True, thread_id="t1")
        assert relay.agent.status is SUCCESS
    assert done == ["half 1", "done", "half 2", "half 3"]


@each_store
@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_k22_a_cancelled_run_is_kept_and_then_the_cancellation_goes_on(any_store: Stores, level: Any) -> None:
    """Cancelled at 1, a node wrote at 0.9: the store has it, with the position, before the cancellation comes out."""
    clock = VirtualClock(autojump=True)

    async def write(node: Any) -> None:
        await clock.sleep(0.9)
        node.write_state({"amount": 1})
        await clock.sleep(99)

    agent = Agent(seq("main", Talk("w", write)), Desk, clock=clock, store=any_store(), durability=level)
    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    await clock.sleep(1)
                    scope.cancel()

                group.start_soon(stop)
                await agent.run(thread_id="t1")
        assert scope.cancelled_caught
        kept = await any_store().show("t1")
        assert (kept.status, kept.fields["amount"], kept.position) == (
            "interrupted",
            1,
            {"main": "RUNNING", "main/w": "RUNNING"},
        )
        fresh = Agent(seq("main", Talk("w", write)), Desk, clock=clock, store=any_store())
        assert (await fresh.recover("t1")).status is SUCCESS
    assert clock.now() == 1 + 99.9


@pytest.mark.parametrize("has_memento", [True, False])
async def test_k26_a_count_goes_on_or_starts_anew(way: Way, has_memento: bool) -> None:
    """With a memento the count goes on after loading; without it starts from its first value."""
    seen: list[int] = []

    class Count(Behaviour):
        def __init__(self) -> None:
            super().__init__("count")
            self.at = 0

        def initialise(self) -> None:
            self.at = 0

        def update(self) -> Any:
            self.at += 1
            seen.append(self.at)
            return RUNNING if self.at < 5 else SUCCESS

    class Keeps(Count):
        def memento(self) -> int:
            return self.at

        def restore(self, value: int) -> None:
            self.at = value

    relay = Relay(way, lambda: par("main", Keeps() if has_memento else Count(), ask("q")))
    with anyio.fail_after(5):
        for _ in range(3):
            await relay.agent.step(thread_id="t1")
        await relay.move()
        for _ in range(2):
            await relay.agent.step(thread_id="t1")
    goes_on = has_memento or way == "here"
    assert seen == ([1, 2, 3, 4, 5] if goes_on else [1, 2, 3, 1, 2])


@pytest.mark.parametrize("asking", [ask, AskInside])
@pytest.mark.parametrize("changed", [
    lambda asking: par("main", asking("ask"), asking("ask"), asking("ask")),
    lambda asking: par("main", asking("ask")),
    lambda asking: par("main", Note("ask", []), asking("ask")),
    lambda asking: par("main", Note("new", []), asking("ask"), asking("ask")),
])  # fmt: skip
async def test_k37_one_of_same_named_siblings_is_not_taken_for_another(asking: Any, changed: Any) -> None:
    """The second `ask` is open and the new code has others beside it: an error with the path. The old code loads."""
    old = Agent(par("main", asking("ask"), asking("ask")), Desk)
    with anyio.fail_after(5):
        outcome = await old.run_until_suspend()
        first = next(one.id for one in outcome.suspensions if one.path == "main/ask")
        id = (await old.resume("one", suspension_id=first)).suspensions[0].id
        data = json.loads(json.dumps(old.dump_checkpoint()))
        fresh = Agent(changed(asking), Desk)
        with pytest.raises(TreeMismatchError, match=r"main/ask\[2\]"):
            fresh.load_checkpoint(data)
        assert (fresh.interaction.pending, fresh.tree.count) == ((), 0)
        again = Agent(par("main", asking("ask"), asking("ask")), Desk)
        again.load_checkpoint(data)
        assert [one.id for one in again.interaction.pending] == [id]
        assert (await again.resume("two")).status is SUCCESS


class Handle:
    """Something that has no JSON form."""


class Scopes(Desk):
    """A state with fields that last for different times."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    rounds: Annotated[int, Ephemeral("run")] = 0
    handle: Annotated[Handle, Transient()] = Field(default_factory=Handle)


async def test_s26_a_resume_resets_no_run_field(way: Way) -> None:
    """2 when it suspends, 3 at the end of the resumed run; the next run starts at 0."""

    def count(node: Any) -> None:
        node.transform_field("rounds", lambda n: n + 1)

    relay = Relay(way, lambda: seq("main", Do("one", count), Do("two", count), ask("q"), Do("three", count)), Scopes)
    with anyio.fail_after(5):
        await relay.begin()
        assert relay.agent.state.rounds == 2
        await relay.resume("x")
        assert relay.agent.state.rounds == 3
        await relay.move()
        await relay.begin()
        assert relay.agent.state.rounds == 2


async def test_s28_what_has_no_json_form_is_one_object_in_a_run_and_a_new_one_after_a_load(way: Way) -> None:
    """Not in the stored bytes; after loading a fresh default, never an error."""
    seen: list[Any] = []

    def look(node: Any) -> None:
        seen.append(node.read_state().handle)

    relay = Relay(way, lambda: seq("main", Do("a", look), Do("b", look), ask("q"), Do("c", look)), Scopes)
    given = Handle()
    with anyio.fail_after(5):
        await relay.begin({"handle": given})
        assert seen == [given, given]
        assert "handle" not in relay.agent.dump_checkpoint()["state"]["fields"]
        assert (await relay.resume("x")).status is SUCCESS
    assert isinstance(seen[2], Handle)
    assert (seen[2] is given) == (way == "here")
