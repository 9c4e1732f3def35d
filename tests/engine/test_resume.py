"""A run goes on in another agent, and what does not fit is refused before it changes a thing."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from pydantic import ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request
from jianmu.engine.state import Transient
from jianmu.engine.tree import paths
from jianmu.errors import (
    AgentBusyError,
    AlreadyAnsweredError,
    CorruptRecordError,
    JianmuError,
    SchemaVersionError,
    StateWriteError,
    StoreError,
    TreeMismatchError,
    UnknownSuspensionError,
    UnknownThreadError,
)
from jianmu.nodes import Approve, Finally, ForEach, Race, Retry, Switch, Timeout, Timer
from jianmu.stores import MemoryStore
from tests.cases.people import FAILURE, INVALID, RUNNING, SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, seq
from tests.conftest import FULL

pytestmark = pytest.mark.anyio


class Handle:
    """Something that has no JSON form."""


class Kept(Desk):
    """A state with something that is in no checkpoint."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    handle: Annotated[Handle | None, Transient()] = Field(default=None)


def rich() -> Behaviour:
    """Return a tree in which much stands in the middle when it suspends."""

    async def act(node: Any) -> None:
        await node.once("pay", lambda: 1)
        await node.ask(Request("a?"), key="a")

    inner = Agent(seq("deep", ask("in", int)), Desk).as_node("agent", outputs={"note": "note"})
    return par(
        "main",
        seq("first", Note("done", []), Timeout("limit", ask("q", int), seconds=50)),
        Retry("retry", Talk("act", act), attempts=3),
        Approve("ok", Note("pay", []), message="?"),
        ForEach("each", lambda item, _: ask(item), over=lambda _: ["x", "y"]),
        Race("race", [Note("lost", [], result=FAILURE), AskInside("r")]),
        Switch("case", lambda s: s.amount, {4: Note("four", []), 5: ask("five")}),
        inner,
    )


def new(**options: Any) -> Agent[Any]:
    """Return an agent with that tree."""
    return Agent(rich(), Kept, **{"clock": VirtualClock(autojump=True), "version": 3, **options})


async def suspended(**options: Any) -> Agent[Any]:
    """Return such an agent, suspended on the thread "t1"."""
    agent = new(**options)
    assert (await agent.run_until_suspend(thread_id="t1")).suspended
    return agent


def picture(agent: Agent[Any]) -> Any:
    """Return all that must stay the same when something is refused."""
    runner, data = agent.runner, {**agent.dump_checkpoint(), "fingerprint": "items are built when they are restored"}
    names, nodes = data["position"]["paths"], data["position"]["nodes"]
    return (
        {
            **data,
            "position": {names[int(at)]: {**one, "child": names[one.get("child", 0)]} for at, one in nodes.items()},
        },
        runner.phase,
        runner.parked,
        agent.state,
        agent.state_manager.version,
        agent.thread_id,
        agent.errors,
        {path: node.status for node, path in paths(agent.root) if node.status is not INVALID},
        agent.interaction.pending,
    )


async def fresh() -> Agent[Any]:
    """Return an agent that has done nothing yet."""
    return new()


async def elsewhere() -> Agent[Any]:
    """Return an agent that is suspended on another thread, holding what has no JSON form."""
    agent = new()
    await agent.run_until_suspend({"handle": Handle(), "note": "mine"}, thread_id="t2")
    return agent


async def over() -> Agent[Any]:
    """Return an agent whose run was given up by a halt."""
    agent = new()
    await agent.run_until_suspend(thread_id="t2")
    await agent.reset()
    return agent


async def cut() -> Agent[Any]:
    """Return an agent whose run was cut short."""
    agent = new()
    await agent.run_until_suspend(limits=Limits(max_ticks=1), thread_id="t2")
    return agent


def at(data: Any, *place: Any) -> Any:
    """Return a part of a JSON document."""
    for step in place:
        data = data[step]
    return data


def number(data: Any, path: str) -> str:
    """Return the number of a node in a checkpoint's position."""
    return str(data["position"]["paths"].index(path))


def spoiled(*place: Any, value: Any) -> Callable[[Any], Any]:
    """Return what puts a value at a place of a checkpoint; a path of the tree stands for its number."""

    def spoil(data: Any) -> Any:
        steps = [number(data, step[1:]) if isinstance(step, str) and step.startswith("@") else step for step in place]
        at(data, *steps[:-1])[steps[-1]] = value
        return data

    return spoil


def without(*place: Any) -> Callable[[Any], Any]:
    """Return what takes a place out of a checkpoint."""

    def spoil(data: Any) -> Any:
        del at(data, *place[:-1])[place[-1]]
        return data

    return spoil


REFUSED: dict[str, tuple[Callable[[Any], Any], type[JianmuError]]] = {
    "nothing": (lambda _: None, CorruptRecordError),
    "a list": (lambda data: [data], CorruptRecordError),
    "a text": (lambda _: "os.system", CorruptRecordError),
    "empty": (lambda _: {}, CorruptRecordError),
    "a newer form": (spoiled("format", value=2), SchemaVersionError),
    "a newer schema": (spoiled("schema_version", value=4), SchemaVersionError),
    "more than is known": (spoiled("call", value="os.system"), CorruptRecordError),
    "no thread": (spoiled("thread_id", value=""), StoreError),
    "run": (spoiled("run", value="1"), CorruptRecordError),
    "usage": (spoiled("usage", "ticks", value="many"), CorruptRecordError),
    "state": (spoiled("state", value={"n": 1}), CorruptRecordError),
    "state's version": (spoiled("state", "version", value="x"), CorruptRecordError),
    "state's marks": (spoiled("state", "spent", value=[1]), CorruptRecordError),
    "a field": (spoiled("state", "fields", "amount", value="s3cret"), StateWriteError),
    "a field of the inner agent": (spoiled("inner", "main/agent", "fields", "amount", value="s3cret"), StateWriteError),
    "position": (spoiled("position", value="x"), CorruptRecordError),
    "position's nodes": (without("position", "nodes"), CorruptRecordError),
    "position's paths": (without("position", "paths", 2), CorruptRecordError),
    "a status": (spoiled("position", "nodes", "@main", "status", value="ASLEEP"), CorruptRecordError),
    "a number": (spoiled("position", "nodes", "x", value={}), CorruptRecordError),
    "a child": (spoiled("position", "nodes", "@main/first", "child", value=99), CorruptRecordError),
    "a timer": (spoiled("position", "nodes", "@main/first/limit", "memento", value={"s3cret": 1}), CorruptRecordError),
    "a retry": (spoiled("position", "nodes", "@main/retry", "memento", value=[1]), CorruptRecordError),
    "a choice": (spoiled("position", "nodes", "@main/case", "memento", value=7), CorruptRecordError),
    "a race": (spoiled("position", "nodes", "@main/race", "memento", value=["x"]), CorruptRecordError),
    "items": (spoiled("position", "nodes", "@main/each", "memento", value={"items": 5}), CorruptRecordError),
    "a question of a node": (
        spoiled("position", "nodes", "@main/first/limit/q", "memento", value={"asked": "never"}),
        JianmuError,
    ),
    "questions": (without("questions", "records"), CorruptRecordError),
    "a question": (spoiled("questions", "records", 0, "count", value="x"), CorruptRecordError),
    "another answer": (
        spoiled("questions", "records", 0, "question", "response_schema", value={"type": "string"}),
        TreeMismatchError,
    ),
    "journal": (spoiled("journal", "entries", 0, "state", value="lost"), CorruptRecordError),
    "another class": (spoiled("position", "classes", 0, value="Selector"), TreeMismatchError),
}


@pytest.mark.parametrize("situation", [fresh, elsewhere, over, cut])
async def test_what_cannot_be_loaded_changes_nothing(situation: Callable[[], Any]) -> None:
    """Garbage, newer checkpoints and other trees: a typed error without values, and the agent is what it was."""
    good = json.dumps((await suspended()).dump_checkpoint())
    agent = await situation()
    before = picture(agent)
    for name, (spoil, error) in REFUSED.items():
        data = spoil(json.loads(good))
        with pytest.raises(error) as told:
            agent.load_checkpoint(data)
        assert isinstance(told.value, JianmuError), name
        assert "s3cret" not in str(told.value), name
        assert picture(agent) == before, name


@pytest.mark.parametrize("situation", [elsewhere, cut])
async def test_after_a_refusal_the_run_goes_on(situation: Callable[[], Any]) -> None:
    """What was suspended or cut short before is answered and finished after."""
    data = (await suspended()).dump_checkpoint()
    with anyio.fail_after(5):
        for name in ("a retry", "another answer", "a field of the inner agent"):
            agent = await situation()
            with pytest.raises(REFUSED[name][1]):
                agent.load_checkpoint(REFUSED[name][0](copy.deepcopy(data)))
            outcome = await agent.recover()
            while outcome.suspended:
                one = outcome.suspensions[0]
                outcome = await agent.resume(_fitting(one), suspension_id=one.id)
            assert outcome.status is SUCCESS


def _fitting(question: Any) -> Any:
    """Return an answer that fits."""
    return {"q": 1, "in": 1, "ok": True}.get(question.key, "text")


def _places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield all places of a JSON document."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield (*above, key)
        yield from _places(data[key], (*above, key))


SCRAP = (None, True, 0, -1, 7, 1.5, "", "x", "RUNNING", [], [0], {}, {"x": 1})


async def test_whatever_is_changed_in_a_checkpoint_is_taken_or_refused_whole() -> None:
    """One place of a checkpoint is replaced or removed: it is loaded, or a typed error has changed nothing."""
    document = (await suspended()).dump_checkpoint()
    places = list(_places(document))
    chance = random.Random(7)
    agent, before, taken = await elsewhere(), None, 0
    for turn in range(20_000 if FULL else 150):
        spoilt = copy.deepcopy(document)
        *above, last = chance.choice(places)
        if chance.random() < 0.3:
            del at(spoilt, *above)[last]
        else:
            at(spoilt, *above)[last] = chance.choice(SCRAP)
        before = before or picture(agent)
        try:
            agent.load_checkpoint(spoilt)
        except JianmuError:
            assert picture(agent) == before, (turn, above, last)
        else:
            agent, before, taken = await elsewhere(), None, taken + 1
    assert taken > 10


async def test_a_checkpoint_is_not_loaded_while_coroutines_are_alive() -> None:
    """Nor while another call is on."""
    data = (await suspended()).dump_checkpoint()
    agent = Agent(seq("main", Work("work", [], 5)), Desk, clock=VirtualClock(), version=3)
    with anyio.fail_after(5):
        async with agent:
            await agent.step()
            with pytest.raises(AgentBusyError):
                agent.load_checkpoint(data)
            assert agent.status is RUNNING


# Refused in the other agent


@pytest.mark.parametrize("way", ["json", "store"])
async def test_ids_are_refused_in_the_other_agent_too(way: str) -> None:
    """Answered and unknown ids, in an agent that has only what was kept; nothing changes."""
    store = MemoryStore()
    first = Agent(seq("main", ask("a"), ask("b")), Desk, store=store)
    with anyio.fail_after(5):
        a = (await first.run_until_suspend(thread_id="t1")).suspensions[0].id
        b = (await first.resume("x", thread_id="t1")).suspensions[0].id
        second = Agent(seq("main", ask("a"), ask("b")), Desk, store=store if way == "store" else None)
        if way == "json":
            second.load_checkpoint(first.dump_checkpoint())
        for id, name in ((a, "AlreadyAnsweredError"), ("never", "UnknownSuspensionError")):
            with pytest.raises(JianmuError) as told:
                await second.resume("y", suspension_id=id, thread_id="t1")
            assert (type(told.value).__name__, second.interaction.suspension and second.interaction.suspension.id) == (
                name,
                b,
            )
        assert second.state.values == {"a": "x"}
        assert (await second.resume("y", suspension_id=b, thread_id="t1")).status is SUCCESS
        with pytest.raises(AlreadyAnsweredError):
            await (first if way == "store" else second).resume("z", suspension_id=b)
        assert (await second.recover("t1")).status is SUCCESS


async def test_unknown_threads() -> None:
    """A thread that nobody knows cannot be loaded or recovered, and has no question."""
    agent = Agent(seq("main", ask("a")), Desk, store=MemoryStore())
    for call in (agent.load, agent.recover):
        with pytest.raises(UnknownThreadError):
            await call("never")
    with pytest.raises(UnknownThreadError):
        await agent.resume("x", thread_id="never")
    with pytest.raises(UnknownSuspensionError):
        await agent.resume("x")


# One agent, several threads


async def test_an_agent_serves_threads_in_turn() -> None:
    """Three threads at the same questions: each goes on where it was, with its own state, questions and effects."""
    calls: list[str] = []

    async def talk(node: Any) -> None:
        await node.once("pay", calls.append, node.read_state().note)
        for key in ("a", "b"):
            node.merge_dict("values", {key: await node.ask(Request(f"{key}?"), key=key)})

    agent = Agent(par("main", Talk("talk", talk), ask("c")), Desk, store=MemoryStore())
    names = ("t1", "t2", "t3")
    with anyio.fail_after(10):
        for name in names:
            await agent.run_until_suspend({"note": name}, thread_id=name)
        for key in ("a", "c", "b"):
            for name in reversed(names):
                await agent.load(name)
                id = next(one.id for one in agent.interaction.pending if one.key == key)
                outcome = await agent.resume(f"{key} of {name}", suspension_id=id, thread_id=name)
                assert {one.thread_id for one in outcome.suspensions} <= {name}
                assert outcome.output["note"] == name
        for name in names:
            await agent.load(name)
            assert agent.state.values == {key: f"{key} of {name}" for key in "abc"}
    assert calls == ["t1", "t2", "t3"]


async def test_a_suspended_tree_that_is_left_for_another_thread_is_not_halted() -> None:
    """No `terminate`, no `Finally`, no withdrawal: the thread stays as it was kept, and its end comes later."""
    log: list[str] = []

    class Hold(Note):
        def update(self) -> Any:
            return RUNNING if not self.read_state().note else SUCCESS

        def terminate(self, new_status: Any) -> None:
            log.append(new_status.name)

        def memento(self) -> bool:
            return True

        def restore(self, value: bool) -> None:
            """Nothing is kept."""

    tree = Finally("f", par("both", Hold("hold", []), AskInside("q")), lambda _: log.append("cleanup"))
    agent = Agent(tree, Desk, store=MemoryStore())
    with anyio.fail_after(5):
        first = await agent.step(thread_id="t1", settle=True)
        assert first == {}
        id = agent.interaction.pending[0].id
        await agent.step(thread_id="t2", settle=True)
        assert log == []
        await agent.load("t1")
        assert (log, [one.id for one in agent.interaction.pending]) == ([], [id])
        agent.state_manager.update({"note": "go"})
        await agent.save()
        assert (await agent.resume("x", thread_id="t1")).status is SUCCESS
    assert log == ["SUCCESS", "cleanup"]


# Programs that changed


async def test_a_tree_that_does_not_fit_is_named_node_by_node() -> None:
    """What waits must be found with its class; what has finished or not begun may be another."""
    old = Agent(seq("main", Note("gone", []), ask("q"), Note("later", [])), Desk)
    with anyio.fail_after(5):
        await old.run_until_suspend()
        data = json.loads(json.dumps(old.dump_checkpoint()))
        for tree, path in (
            (seq("main", Note("gone", []), ask("other"), Note("later", [])), "main/q"),
            (seq("top", Note("gone", []), ask("q"), Note("later", [])), "main"),
            (seq("main", Note("gone", []), Note("q", [])), "main/q"),
            (seq("main", ask("q"), Note("gone", [])), "main"),
            (seq("main", Note("new", []), Note("gone", []), ask("q")), "main"),
        ):
            with pytest.raises(TreeMismatchError, match=f"'{path}'"):
                Agent(tree, Desk).load_checkpoint(data)
        fits = Agent(seq("main", Note("gone", []), ask("q"), Note("another", []), Note("more", [])), Desk)
        fits.load_checkpoint(data)
        assert (await fits.resume("x")).status is SUCCESS
        assert fits.state.log == ["gone", "another", "more"]


async def test_a_case_is_not_taken_for_another_one() -> None:
    """A node that keeps the place of its child is refused where another child has this place."""
    old = Agent(Switch("main", lambda s: s.amount, {4: ask("four"), 5: ask("five")}), Desk)
    await old.run_until_suspend()
    fresh = Agent(Switch("main", lambda s: s.amount, {5: ask("five"), 4: ask("four")}), Desk)
    with pytest.raises(TreeMismatchError, match="'main'"):
        fresh.load_checkpoint(old.dump_checkpoint())


async def test_a_branch_that_was_renamed_takes_what_is_below_it_along() -> None:
    """One alias for a branch: questions, effects and rounds in it are found under the new name."""
    calls: list[str] = []

    async def talk(node: Any) -> None:
        await node.once("pay", calls.append, "paid")
        node.merge_dict("values", {"a": await node.ask(Request("a?"))})

    def tree(name: str) -> Behaviour:
        return seq("main", seq(name, Retry("retry", Talk("a", talk), attempts=2), Timer("t", seconds=1)), ask("b"))

    old = Agent(tree("before"), Desk)
    new_one = Agent(tree("after"), Desk, aliases={"main/before": "main/after"}, clock=VirtualClock(autojump=True))
    with anyio.fail_after(5):
        await old.run_until_suspend()
        new_one.load_checkpoint(json.loads(json.dumps(old.dump_checkpoint())))
        outcome = await new_one.resume("x")
        assert [one.path for one in outcome.suspensions] == ["main/b"]
        assert (await new_one.resume("y")).status is SUCCESS
    assert calls == ["paid"]
    assert new_one.state.values == {"a": "x", "b": "y"}


# Agents inside of agents, and items


async def test_agents_that_are_built_for_items_keep_their_states() -> None:
    """A ForEach builds an agent for each item; their states go along, also after a run was cut short here."""

    def each(item: Any, _: int) -> Behaviour:
        inner = Agent(seq("deep", Note("n", []), ask("a"), ask("b")), Desk)
        return inner.as_node(item, outputs={f"values.{item}": "values"})

    def build() -> Agent[Any]:
        return Agent(ForEach("each", each, over=lambda _: ["x", "y"]), Desk)

    for way in ("here", "cut", "json"):
        agent = build()
        with anyio.fail_after(5):
            outcome = await agent.run_until_suspend()
            for key in ("a", "b"):
                for one in [one for one in outcome.suspensions if one.key == key]:
                    if way == "json":
                        data = json.loads(json.dumps(agent.dump_checkpoint()))
                        agent = build()
                        agent.load_checkpoint(data)
                    elif way == "cut":
                        assert (await agent.recover(limits=Limits(max_ticks=1))).limit == "max_ticks"
                    outcome = await agent.resume(f"{one.path}", suspension_id=one.id)
            assert outcome.status is SUCCESS, way
        assert agent.state.values == {
            item: {"a": f"each/{item}/deep/a", "b": f"each/{item}/deep/b"} for item in ("x", "y")
        }, way


@pytest.mark.parametrize("memory", [True, False])
async def test_items_that_have_finished_are_not_begun_again(memory: bool) -> None:
    """Behind a question that is looked at again, a ForEach that has finished stays so in the other agent."""

    def build() -> Agent[Any]:
        each = ForEach("each", lambda item, _: AskInside(item), over=lambda _: ["x", "y"])
        return Agent(seq("main", each, ask("last"), memory=memory), Desk)

    agent = build()
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend()
        while outcome.suspended:
            asked = [one.path for one in outcome.suspensions]
            data = json.loads(json.dumps(agent.dump_checkpoint()))
            agent = build()
            agent.load_checkpoint(data)
            assert (await agent.recover()).suspended
            assert sorted(one.path for one in agent.interaction.pending) == sorted(asked)
            outcome = await agent.resume(Answer(agent.interaction.pending[0].id, asked[0]))
    assert len(agent.state.values) == 3
    assert outcome.status is SUCCESS
