"""Cases of runs on a store: K05, K06, K07, K10, K11, K19, K30, K32, and what is refused before anything is written."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import RunEnded
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.request import Request
from jianmu.engine.rows import Transaction
from jianmu.errors import (
    CorruptRecordError,
    JianmuError,
    SchemaError,
    SetupError,
    StateWriteError,
    StoreError,
    UnknownThreadError,
)
from jianmu.nodes import Repeat
from jianmu.stores.sql import SQLStore
from tests.anystore import Stores, each_store
from tests.cases.leaves import Do, events_of, of_kind
from tests.cases.people import SUCCESS, AskInside, Desk, Note, Talk, Work, ask, par, seq

pytestmark = pytest.mark.anyio
Calls = Callable[[Agent[Any]], Any]
GOING_ON: dict[str, Calls] = {
    "load": lambda agent: agent.load("t1"),
    "recover": lambda agent: agent.recover("t1"),
    "resume": lambda agent: agent.resume("x", thread_id="t1"),
    "run": lambda agent: agent.run({"note": "new"}, thread_id="t1", on_new_input="withdraw"),
    "step": lambda agent: agent.step(thread_id="t1", settle=True),
}


class Plain:
    """A class of the user's without a JSON form."""


class Unkept(Desk):
    """A state with a field that no store can keep."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    handle: Plain | None = None


async def test_k05_a_field_without_a_json_form_is_refused_when_the_store_is_attached(any_store: Stores) -> None:
    """The error names the field; no node has run, and nothing was written. Without a store the state is a state."""
    done: list[str] = []
    with pytest.raises(SchemaError, match=r"Unkept\.handle"):
        Agent(Note("n", done), Unkept, store=any_store())
    agent = Agent(Note("n", done), Unkept)
    with pytest.raises(SchemaError, match=r"Unkept\.handle"):
        agent.attach(any_store())
    assert (done, any_store.count()["threads"]) == ([], 0)
    with anyio.fail_after(5):
        assert await agent.run({"handle": Plain()}) is SUCCESS


class Old(Desk):
    """A state as it was saved."""

    place: dict[str, int] = Field(default_factory=dict)


class New(Desk):
    """The state whose field has another shape now."""

    place: tuple[int, int] = (0, 0)


@each_store
@pytest.mark.parametrize("call", GOING_ON)
async def test_k06_a_field_whose_type_has_changed_is_refused_before_the_first_tick(
    any_store: Stores, call: str
) -> None:
    """Whoever goes on with the thread gets an error that names the field; the store is unchanged, nothing is held."""
    with anyio.fail_after(10):
        old = Agent(seq("main", ask("q")), Old, store=any_store())
        await old.run_until_suspend({"place": {"x": 1}}, thread_id="t1")
        kept = any_store.rows("t1")
        fresh = Agent(seq("main", ask("q")), New, store=any_store())
        with pytest.raises(StateWriteError, match="'place'"):
            await GOING_ON[call](fresh)
        assert (fresh.state.place, fresh.interaction.pending, fresh.tree.count) == ((0, 0), (), 0)
        assert any_store.rows("t1") == kept
        again = Agent(seq("main", ask("q")), Old, store=any_store())
        assert (await again.resume("x", thread_id="t1")).status is SUCCESS


NAMES_CODE = {"__reduce__": ["os.system", ["touch pwned"]], "py/object": "os.system"}
PICKLED = base64.b64encode(pickle.dumps({"status": "running"})).decode()


def _log_names_code(text: str) -> str:
    return json.dumps(json.loads(text) | {"state": NAMES_CODE})


SPOILT: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "log names code": ("log", "body", _log_names_code),
    "log is pickled": ("log", "body", lambda _: PICKLED),
    "log is another object": ("log", "body", lambda _: '"os.system"'),
    "log is cut off": ("log", "body", lambda text: text[:-9]),
    "log is deep": ("log", "body", lambda _: "[" * 100_000),
    "tree is pickled": ("rows", "body", lambda _: PICKLED),
    "tree names code": ("rows", "body", lambda _: json.dumps({"classes": [NAMES_CODE], "nodes": "os.system"})),
    "question names code": ("questions", "asked", lambda _: json.dumps(NAMES_CODE)),
    "question is pickled": ("questions", "asked", lambda _: PICKLED),
    "answer names code": ("questions", "ended", lambda _: json.dumps({"answer": NAMES_CODE})),
}


def spoil(store: SQLStore, table: str, column: str, change: Callable[[str], str]) -> None:
    """Change one column of the last row of a table, as something else than jianmu would."""

    def write(say: Any) -> None:
        key = "number" if table == "log" else "seq"
        of_t1 = "thread = (SELECT pk FROM threads WHERE thread_id = 't1')"
        found = say(f"SELECT {key}, {column} FROM {table} WHERE {of_t1} ORDER BY {key} DESC LIMIT 1").fetchall()
        say(f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {of_t1}", (change(found[0][1]), found[0][0]))

    store.work("write", write)


@each_store
@pytest.mark.parametrize("what", SPOILT)
async def test_k07_a_row_that_was_changed_by_hand_runs_nothing(
    any_store: Stores, what: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typed error for whoever goes on; nothing is imported or called, and other threads are as they were."""
    monkeypatch.chdir(tmp_path)
    done: list[str] = []

    def build() -> Agent[Any]:
        return Agent(seq("main", Note("n", done), ask("q")), Desk, store=any_store())

    with anyio.fail_after(20):
        await build().run_until_suspend(thread_id="other")
        await build().run_until_suspend(thread_id="t1")
        spoil(any_store(), *SPOILT[what])
        done.clear()
        for name, call in GOING_ON.items():
            fresh = build()
            with pytest.raises(CorruptRecordError):
                await call(fresh)
            assert (name, fresh.tree.count, done) == (name, 0, [])
        assert not (tmp_path / "pwned").exists()
        assert (await build().resume("x", thread_id="other")).status is SUCCESS


class Left(BaseModel):
    """A kind of pet."""

    kind: Literal["left"] = "left"


class Stays(BaseModel):
    """Another kind of pet."""

    kind: Literal["stays"] = "stays"


class Other(BaseModel):
    """A third kind of pet."""

    kind: Literal["other"] = "other"


class Before(Desk):
    """A state with a union of three."""

    pets: list[Annotated[Left | Stays | Other, Field(discriminator="kind")]] = Field(default_factory=list)


class After(Desk):
    """The union has lost a member."""

    pets: list[Annotated[Stays | Other, Field(discriminator="kind")]] = Field(default_factory=list)


@pytest.mark.parametrize("call", GOING_ON)
async def test_k30_a_union_that_has_lost_a_member_of_a_list_is_refused(any_store: Stores, call: str) -> None:
    """The error names the field and the tag; the run is not started, the store is unchanged."""
    with anyio.fail_after(5):
        old = Agent(seq("main", ask("q")), Before, store=any_store())
        await old.run_until_suspend({"pets": [Stays(), Left()]}, thread_id="t1")
        kept = any_store.rows("t1")
        fresh = Agent(seq("main", ask("q")), After, store=any_store())
        with pytest.raises(StateWriteError, match=r"'pets'.*left"):
            await GOING_ON[call](fresh)
        assert (fresh.tree.count, any_store.rows("t1")) == (0, kept)


def fill(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the commits of a store fail."""

    async def failing(transaction: Transaction) -> bool:
        raise StoreError("the disk is full", thread_id=transaction.lease.thread_id)

    monkeypatch.setattr(store, "commit", failing)


@each_store
@pytest.mark.parametrize("level", ["sync", "async", "exit"])
async def test_k10_a_save_that_fails_ends_the_run(
    any_store: Stores, level: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five leaves in a row; the save after the second fails: the run ends with that error, the third has no effect."""
    done: list[str] = []

    class Filling(Work):
        store: SQLStore | None = None

        async def update_async(self) -> Any:
            result = await super().update_async()
            if self.store is not None:
                fill(self.store, monkeypatch)
            return result

    def build(store: SQLStore) -> Agent[Any]:
        tree = seq("main", *(Filling(name, done) for name in "abcde"))
        return Agent(tree, Desk, clock=VirtualClock(autojump=True), store=store, durability=level)

    with anyio.fail_after(5):
        agent = build(store := any_store())
        agent.root.children[1].store = store
        with pytest.raises(StoreError, match="the disk is full"):
            await agent.run(thread_id="t1")
        assert done == ["a", "b"] if level == "sync" else done[:2] == ["a", "b"]
        monkeypatch.undo()
        kept = await any_store().show("t1")
        assert (kept.status, kept.fields["log"]) in [("crashed", []), ("crashed", ["a"])]
        done.clear()
        fresh = build(any_store())
        assert (await fresh.recover("t1")).status is SUCCESS
    assert done == list("abcde")[len(kept.fields["log"]) :]
    assert fresh.state.log == list("abcde")


async def test_k10_a_save_under_way_when_the_tree_ends_is_waited_for(
    any_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree has ended while a pass is being saved, and that fails: the run is no success."""
    store, begun, go = any_store(), anyio.Event(), anyio.Event()
    commit = store.commit

    async def failing(transaction: Transaction) -> bool:
        if transaction.expected == 0:
            return await commit(transaction)
        begun.set()
        await go.wait()
        raise StoreError("the disk is full")

    async def work(_: Any) -> None:
        await begun.wait()

    monkeypatch.setattr(store, "commit", failing)
    agent = Agent(seq("main", Talk("w", work), Do("n", lambda _: go.set())), Desk, store=store)
    events = events_of(agent)
    with anyio.fail_after(5):
        with pytest.raises(StoreError, match="the disk is full"):
            await agent.run(thread_id="t1")
        assert (await any_store().show("t1")).number == 1
    assert of_kind(events, RunEnded)[-1].outcome.status is not SUCCESS


async def _pay(amount: int) -> str:
    return f"paid {amount}"


async def busy_thread(store: SQLStore, thread_id: str) -> Agent[Any]:
    """Make a thread with two open questions, one that was answered, effects in rounds, and an input that waits."""

    async def talk(node: Any) -> None:
        await node.once("pay", _pay, 5)

    body = seq("round", Talk("talk", talk), AskInside("q"), Note("n", []))
    agent = Agent(par("main", Repeat("loop", body, times=3), ask("z")), Desk, store=store)
    outcome = await agent.run_until_suspend(thread_id=thread_id, input_id="first")
    await agent.resume("x", suspension_id=next(one.id for one in outcome.suspensions if one.key == "q"))
    await agent.run_until_suspend({"note": "later"}, thread_id=thread_id, on_new_input="queue")
    return agent


@each_store
async def test_k11_of_a_deleted_thread_nothing_is_left(any_store: Stores) -> None:
    """No row with its id in any table; other threads are byte for byte as they were, and are gone on with."""
    with anyio.fail_after(10):
        other = await busy_thread(any_store(), "other")
        kept, count = any_store.rows("other"), any_store.count()
        await busy_thread(any_store(), "doomed")
        assert [len(rows) > 1 for table, rows in any_store.rows("doomed").items() if table != "threads"] == [True] * 3
        assert await any_store().delete("doomed")
        assert (any_store.rows("doomed"), any_store.count(), any_store.rows("other")) == ({}, count, kept)
        with pytest.raises(UnknownThreadError):
            await Agent(ask("q"), Desk, store=any_store()).recover("doomed")
        assert not await any_store().delete("doomed")
        assert (await other.resume("y", suspension_id=other.interaction.pending[0].id)).suspended


IDS = [
    "../x",
    "user/1",
    'it\'s "quoted"',
    "a_b",
    "a%b",
    "A_B",
    "木" * 9,
    "x" * 500,
    " ",
    "a\nb",
    "-1",
    "{}",
    "..",
    "🙂",
]


@each_store
async def test_k19_k32_any_text_is_the_id_of_a_thread_of_its_own(any_store: Stores, tmp_path: Any) -> None:
    """Quotes, paths, wildcards and other scripts: each thread has its own state; one that is deleted takes no other."""
    with anyio.fail_after(30):
        for id in IDS:
            outcome = await Agent(ask("q"), Desk, store=any_store()).run_until_suspend({"note": id}, thread_id=id)
            assert (outcome.thread_id, outcome.suspensions[0].thread_id) == (id, id)
        left = sorted(IDS)
        assert [one.thread_id for one in await any_store().list()] == left
        for id in IDS[:4]:
            assert await any_store().delete(id)
            left.remove(id)
            assert [one.thread_id for one in await any_store().list()] == left
        for id in left:
            agent = Agent(ask("q"), Desk, store=any_store())
            assert (await agent.resume(f"for {id}", thread_id=id)).status is SUCCESS
            assert (agent.state.note, agent.state.values) == (id, {"q": f"for {id}"})
    assert {one.name.partition("-")[0] for one in tmp_path.iterdir()} <= {"store.db"}


@pytest.mark.parametrize("id", ["", "x" * 513, "a\0b", "\ud800", 5, b"a"])
async def test_what_is_no_id_is_refused_before_anything(any_store: Stores, id: Any) -> None:
    """The same rule for all stores, with a store and without: an error of jianmu's; no thread was made."""
    done: list[str] = []
    for store in (any_store(), None):
        agent = Agent(seq("main", Note("n", done), ask("q")), Desk, store=store)
        for call in (agent.run, agent.run_until_suspend, agent.step):
            with pytest.raises(JianmuError):
                await call(thread_id=id)
        for call in (agent.recover, agent.load):
            with pytest.raises(JianmuError):
                await call(id)
    assert (done, any_store.count()["threads"]) == ([], 0)


@each_store
@pytest.mark.parametrize("id", ["", "a\0b", "\ud800", "x" * 513])
async def test_what_is_no_id_of_an_input_is_refused_before_anything(any_store: Stores, id: Any) -> None:
    """The rule of thread ids: an error of jianmu's, under each policy; nothing was written."""
    done: list[str] = []
    with anyio.fail_after(5):
        for policy in ("refuse", "queue", "withdraw"):
            agent = Agent(seq("main", Note("n", done), ask("q")), Desk, store=any_store.reader())
            with pytest.raises(SetupError, match="input_id"):
                await agent.run_until_suspend(thread_id="t1", input_id=id, on_new_input=policy)
    assert (done, any_store.rows("t1")) == ([], {})


@each_store
@pytest.mark.parametrize(
    "wrong",
    [{"message": "\ud800"}, {"assignee": "\ud800"}, {"assignee": "a\0b"}, {"reason": "\ud800"}, {"key": "\ud800"}],
)
@pytest.mark.parametrize("asks", [False, True])
async def test_a_question_that_cannot_be_kept_is_refused_where_it_is_asked(
    any_store: Stores, wrong: dict[str, str], asks: bool
) -> None:
    """An error with the node's path: the thread stands there, and goes on when the node asks for something else."""
    request = [Request(**{"message": "?", **wrong})]

    class Asks(InteractiveNode):
        def request(self) -> Request:
            return request[0]

        def on_answer(self, answer: Any) -> Any:
            return SUCCESS

    async def talk(node: Any) -> None:
        await node.ask(request[0])

    def build() -> Agent[Any]:
        return Agent(seq("main", Note("n", []), Talk("q", talk) if asks else Asks("q")), Desk, store=any_store())

    with anyio.fail_after(5):
        with pytest.raises(SetupError, match="main/q"):
            await build().run_until_suspend(thread_id="t1")
        view = await any_store.reader().show("t1")
        assert (view.status, view.questions, view.error and view.error["path"]) == ("interrupted", 0, "main/q")
        request[0] = Request("?")
        assert (await build().recover("t1")).suspended


UNKEPT: dict[str, Any] = {"surrogate": "\ud800", "set": {1}, "object": Plain(), "nan": float("nan"), "bytes": b"\xff"}


@each_store
@pytest.mark.parametrize("what", UNKEPT)
async def test_a_value_without_a_faithful_json_form_is_refused_where_it_is_written(
    any_store: Stores, what: str
) -> None:
    """A typed error at the write, which names the field; as an input, before anything. The thread goes on without."""
    values = {"values": {"x": UNKEPT[what]}}
    with anyio.fail_after(5):
        agent = Agent(seq("main", Do("n", lambda node: node.write_state(values)), ask("q")), Desk, store=any_store())
        with pytest.raises(StateWriteError, match="'values'"):
            await agent.run(values, thread_id="t1")
        assert any_store.rows("t1") == {}
        with pytest.raises(StateWriteError, match="'values'"):
            await agent.run(thread_id="t1")
        kept = await any_store().show("t1")
        assert (kept.status, kept.error["path"], kept.fields["values"]) == ("interrupted", "main/n", {})
        fresh = Agent(seq("main", Do("n", lambda _: None), ask("q")), Desk, store=any_store())
        assert (await fresh.recover("t1")).suspended
