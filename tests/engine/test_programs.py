"""Threads and programs that do not fit each other, and trees that cannot be kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Any, cast

import anyio
import pytest
from py_trees import behaviours, decorators
from py_trees.behaviour import Behaviour
from py_trees.composites import Composite, Sequence
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.node import AsyncNode, Node, NodeMixin
from jianmu.engine.programs import Program, check_keepable, check_program, unfit, uses_blackboard
from jianmu.engine.request import Request
from jianmu.engine.runrecord import RunRecord, load
from jianmu.engine.spots import MOVED
from jianmu.errors import SetupError, TreeMismatchError
from jianmu.nodes import Approve, AskHuman, Choose, ForEach, Inverter, LoopUntilSuccess, Race, Timeout, WaitFor
from tests.cases.people import RUNNING, SUCCESS, Desk, Note, Talk, ask, par, seq

Make = Callable[[], Behaviour]
FITS: list[str] = []


async def suspended(root: Behaviour) -> RunRecord:
    """Return the record of a run that waits."""
    agent = Agent(root, Desk)
    with anyio.fail_after(5):
        await agent.run_until_suspend(thread_id="t1")
    return record_of(agent)


def record_of(agent: Agent[Any]) -> RunRecord:
    return load(json.loads(json.dumps(agent.dump_checkpoint())))


def wrong(root: Behaviour, record: RunRecord, **aliases: str) -> list[str]:
    """Return the paths that do not fit an agent's tree."""
    names = {old.replace("__", "/"): new for old, new in aliases.items()}
    return [path for path, _ in unfit(Agent(root, Desk).root, record, names)]


class Waits(Node):
    """A leaf that is RUNNING and keeps a number."""

    def update(self) -> Any:
        """Wait."""
        return RUNNING

    def memento(self) -> int:
        """Return the number."""
        return 1

    def restore(self, value: int) -> None:
        """Do nothing."""


class Looks(Node):
    """A leaf that is RUNNING and keeps nothing."""

    def update(self) -> Any:
        """Wait."""
        return RUNNING


class Works(AsyncNode):
    """A leaf whose coroutine ends never."""

    async def update_async(self) -> Any:
        """Wait."""
        await anyio.sleep_forever()


def stepped(root: Behaviour) -> RunRecord:
    """Return the record of a tree that was ticked once."""
    agent = Agent(root, Desk)
    agent.step_sync()
    return record_of(agent)


# What has to be there


@pytest.mark.anyio
async def test_every_path_that_does_not_fit_is_named_with_its_reason() -> None:
    """A node that is gone, one of another class, a branch with other children: one error tells all three."""
    record = await suspended(par("main", ask("a"), ask("b"), seq("s", Note("n", []), ask("c"))))
    root = Agent(par("main", Waits("b"), seq("s", Note("new", []), Note("n", []), ask("c"))), Desk).root
    assert dict(unfit(root, record)) == {
        "main/a": "it is not there",
        "main/b": "it is of the class Waits, and was of AskHuman",
        "main/s": "other children than before stand up to the one at which it goes on",
    }
    with pytest.raises(TreeMismatchError, match=r"at 'main/a' \(it is not there\), 'main/b' \(.*\), 'main/s' ") as told:
        check_program(root, record)
    assert told.value.path == "main/a"
    assert "aliases={'main/a': '...'}" in str(told.value)


@pytest.mark.anyio
async def test_a_branch_is_not_blamed_for_a_child_that_is_named_itself() -> None:
    """Where the child at which a Sequence goes on is gone, that child is what does not fit."""
    record = await suspended(seq("main", ask("q")))
    assert wrong(seq("main", ask("other")), record) == ["main/q"]
    assert wrong(seq("main", Note("n", []), ask("q")), record) == ["main"]


@pytest.mark.parametrize(
    ("before", "today", "named"),
    [
        (lambda: [Looks("gone")], list, []),
        (lambda: [Looks("l")], lambda: [Waits("l")], []),
        (lambda: [Note("n", [])], lambda: [Looks("n"), Note("m", [])], []),
        (lambda: [Inverter("i", Looks("l"))], list, []),
        (lambda: [Inverter("i", Looks("l"))], lambda: [Looks("i")], ["main/i"]),
        (lambda: [seq("s", Looks("l"))], list, ["main/s"]),
    ],
)
def test_what_waits_for_nothing_may_be_another(before: Any, today: Any, named: list[str]) -> None:
    """Leaves that keep nothing and decorators over them may be gone, what had finished may be of another class."""
    record = stepped(par("main", *before(), Waits("w")))
    assert wrong(par("main", *today(), Waits("w")), record) == named


@pytest.mark.anyio
async def test_a_coroutine_that_waits_for_nobody_may_be_gone() -> None:
    """One that was at work is entered anew where it is; where it is not, nothing of it is lost that was promised."""
    agent = Agent(par("main", Works("gone"), Waits("w")), Desk)
    with anyio.fail_after(5):
        async with agent:
            await agent.step(thread_id="t1")
            record = record_of(agent)
    assert wrong(par("main", Waits("w")), record) == []


@pytest.mark.anyio
async def test_an_effect_of_unknown_outcome_is_waited_for() -> None:
    """The node whose `once` was begun and has no result has to be there, unless it had a result."""

    def build(state: str) -> RunRecord:
        entry = {**entries[0], "state": state}
        return record.model_copy(update={"journal": {"entries": [entry]}})

    async def pay(node: Any) -> None:
        await node.once("pay", work)
        await anyio.sleep_forever()

    async def work() -> int:
        return 1

    agent = Agent(par("main", Talk("pay", pay), Waits("w")), Desk)
    with anyio.fail_after(5):
        async with agent:
            await agent.step(thread_id="t1")
            while not agent.dump_checkpoint()["journal"]["entries"]:
                await anyio.lowlevel.checkpoint()
            record = record_of(agent)
    entries = cast("list[dict[str, Any]]", record.journal["entries"])
    for state in ("started", "unknown"):
        assert wrong(par("main", Waits("w")), build(state)) == ["main/pay"]
        assert wrong(par("main", Waits("w"), Talk("paid", pay)), build(state), main__pay="main/paid") == []
    assert wrong(par("main", Waits("w")), build("failed")) == []


def test_a_class_that_declares_another_version_does_not_fit() -> None:
    """Its version, as an attribute of the class, is that of its memento; what does not wait may have another."""
    second = type("Waits", (Waits,), {"version": 2})
    third = type("Waits", (Waits,), {"version": "three"})
    done = type("Note", (Note,), {"version": 2})
    for before, today in ((Waits, second), (second, Waits), (second, third)):
        record = stepped(seq("main", Note("n", []), before("w")))
        assert wrong(seq("main", Note("n", []), today("w")), record) == ["main/w"]
        assert wrong(seq("main", Note("n", []), before("w")), record) == []
    record = stepped(par("main", Note("n", []), second("w")))
    assert wrong(par("main", done("n", []), second("w")), record) == []
    assert record.position is not None


@pytest.mark.parametrize("above", [par, lambda name, *nodes: Race(name, list(nodes))])
def test_same_named_siblings_are_told_apart_by_all_of_them(above: Any) -> None:
    """Below every branch, one of jianmu's too; also where only one above is ambiguous; an alias says which is meant."""
    record = stepped(above("main", Waits("w"), Inverter("w", Waits("x"))))
    assert wrong(above("main", Waits("w"), Inverter("w", Waits("x"))), record) == []
    more = above("main", Waits("w"), Inverter("w", Waits("x")), Looks("w"))
    assert wrong(more, record) == ["main/w", "main/w[2]/x"]
    names = {"main/w": "main/w", "main/w[2]": "main/w[2]"}
    more = above("main", Waits("w"), Inverter("w", Waits("x")), Looks("w"))
    assert unfit(Agent(more, Desk).root, record, names) == []
    moved = above("main", Looks("w"), Waits("w"), Inverter("w", Waits("x")))
    names = {"main/w": "main/w[2]", "main/w[2]": "main/w[3]"}
    has_memory = above is not par
    assert unfit(Agent(moved, Desk).root, record, names) == ([("main", MOVED)] if has_memory else [])


def test_two_nodes_cannot_be_mapped_to_one() -> None:
    """Which of them was meant could only be guessed."""
    record = stepped(par("main", Waits("a"), Waits("b")))
    assert wrong(par("main", Waits("c")), record, main__a="main/c", main__b="main/c") == ["main/a", "main/b"]


def test_a_node_that_was_moved_is_found_by_its_alias() -> None:
    """Also to another branch; but not below a composite that would begin anew, and with it the node."""
    record = stepped(par("main", Inverter("i", Waits("w")), Looks("l")))
    assert wrong(par("main", Waits("w"), Looks("l")), record, main__i__w="main/w") == []
    new = par("main", seq("new", Waits("w")), Looks("l"))
    assert wrong(new, record, main__i__w="main/new/w") == ["main/i/w"]
    decorated = par("main", LoopUntilSuccess("i", Inverter("j", Waits("w"))), Looks("l"))
    assert wrong(decorated, record, main__i__w="main/i/j/w", main__i="main/i/j") == []


def test_what_is_built_when_it_is_restored_need_not_be_there_yet() -> None:
    """The items of a ForEach: in a fresh tree, and in one that has items of another run."""
    items = [1, 2]

    def build() -> Behaviour:
        return ForEach("each", lambda _item, _index: Waits("w"), over=lambda _: items)

    record = stepped(build())
    assert wrong(build(), record) == []
    items = [1]
    used = Agent(build(), Desk)
    used.step_sync()
    assert unfit(used.root, record) == []
    assert wrong(Inverter("each", Waits("v")), record) == ["each", "each/w", "each/w[2]"]


def test_a_thread_at_rest_fits_every_program() -> None:
    """Finished threads keep their state and no position."""
    record = stepped(seq("main", Waits("w")))
    for status in ("new", "finished", "failed"):
        assert wrong(Looks("other"), record.model_copy(update={"status": status})) == []
    assert wrong(Looks("other"), record.model_copy(update={"status": "interrupted", "position": None})) == []


@pytest.mark.anyio
async def test_a_question_without_a_position_has_to_have_its_node() -> None:
    """Where the position could not be kept, the path of the question still has to be there, or may be built."""
    record = (await suspended(seq("main", ask("q")))).model_copy(update={"position": None})
    assert wrong(seq("main", ask("q")), record) == []
    assert wrong(seq("main", ask("other")), record) == ["main/q"]
    assert wrong(ForEach("main", lambda _i, _n: ask("q"), over=[1]), record) == []


# Questions


class Person(BaseModel):
    """An answer with a type."""

    name: str
    born: date


class Asks(InteractiveNode):
    """A leaf that asks for a person; counts how often it was asked what it asks."""

    calls = 0
    got: Any = None

    def request(self) -> Request:
        """Return what it asks."""
        type(self).calls += 1
        return Request("Who?", answer=Person)

    def on_answer(self, answer: Any) -> Any:
        """Keep it."""
        type(self).got = answer
        return SUCCESS


CHANGED: dict[str, tuple[Make, Make, bool]] = {
    "another type": (lambda: ask("q", int), lambda: ask("q", str), True),
    "another reason": (lambda: ask("q", int), lambda: ask("q", int, reason="other"), True),
    "another message": (lambda: ask("q", int), lambda: AskHuman("q", message="!", answer=int), False),
    "another name of the type": (
        lambda: ask("q", Person),
        lambda: ask("q", type("Other", (Person,), {"__doc__": "Another."})),
        False,
    ),
    "other options": (
        lambda: Choose("q", message="?", options=["a", "b"], into="note"),
        lambda: Choose("q", message="?", options=["a"], into="note"),
        True,
    ),
    "options that follow the state": (
        lambda: Choose("q", message="?", options=["a", "b"], into="note"),
        lambda: Choose("q", message="?", options=lambda _: ["a"], into="note"),
        False,
    ),
    "approval for another reason": (
        lambda: Approve("q", Note("n", []), message="?"),
        lambda: Approve("q", Note("n", []), message="?", reason="other"),
        True,
    ),
    "the same wait": (lambda: WaitFor("q", seconds=5), lambda: WaitFor("q", message="!"), False),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("before", "today", "is_other"), CHANGED.values(), ids=CHANGED)
async def test_a_question_has_to_be_that_of_its_node(before: Make, today: Make, is_other: bool) -> None:
    """Type, without titles and descriptions, and reason; what the node says only when it asks is not known before."""
    record = await suspended(seq("main", before()))
    assert wrong(seq("main", before()), record) == []
    assert wrong(seq("main", today()), record) == (["main/q"] if is_other else [])


@pytest.mark.anyio
async def test_on_answer_tells_what_kind_of_answer_its_node_wants() -> None:
    """Where a node has no `answers`, the type of that argument is what is known of it before it asks."""

    class Number(Asks):
        def request(self) -> Request:
            return Request("?", answer=int)

    class WantsText(Number):
        def on_answer(self, answer: str) -> Any:
            return SUCCESS

    class WantsOne(Number):
        def on_answer(self, answer: int | str) -> Any:
            return SUCCESS

    record = await suspended(seq("main", Number("q")))
    other = {kind: type("Number", (kind,), {})("q") for kind in (Number, WantsText, WantsOne)}
    assert [wrong(seq("main", node), record) for node in other.values()] == [[], ["main/q"], []]


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["hint", "request"])
async def test_an_answer_is_read_as_its_type_in_another_process(how: str) -> None:
    """By the type of `on_answer`'s argument, else by what `request()` says; that is not called where it need not be."""
    body = {"on_answer": hinted} if how == "hint" else {}
    kind = type("Asks", (Asks,), {"calls": 0, "got": None, **body})
    agent = Agent(seq("main", kind("q")), Desk)
    with anyio.fail_after(5):
        await agent.run_until_suspend(thread_id="t1")
        later = Agent(seq("main", kind("q")), Desk)
        later.load_checkpoint(json.loads(json.dumps(agent.dump_checkpoint())))
        assert kind.calls == 1
        assert (await later.resume({"name": "Ann", "born": "1990-05-01"})).status is SUCCESS
    assert kind.got == Person(name="Ann", born=date(1990, 5, 1))
    assert kind.calls == (1 if how == "hint" else 2)


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [str, int, {"enum": ["x", 3]}])
async def test_request_is_not_called_again_for_what_json_can_say(answer: Any) -> None:
    """What was asked and committed is not asked for again: texts, whole numbers and options need no type."""

    class Plain(Asks):
        calls = 0

        def request(self) -> Request:
            type(self).calls += 1
            return Request("?", answer=answer)

    agent = Agent(seq("main", Plain("q")), Desk)
    given = "x" if answer is str else 3
    with anyio.fail_after(5):
        await agent.run_until_suspend(thread_id="t1")
        later = Agent(seq("main", Plain("q")), Desk)
        later.load_checkpoint(json.loads(json.dumps(agent.dump_checkpoint())))
        assert (await later.resume(given)).status is SUCCESS
    assert (Plain.calls, Plain.got) == (1, given)


def hinted(self: Any, answer: Person) -> Any:
    type(self).got = answer
    return SUCCESS


@pytest.mark.anyio
@pytest.mark.parametrize("first", [True, False])
async def test_what_request_says_otherwise_is_refused_and_nothing_is_consumed(first: bool) -> None:
    """Another type at delivery is an error with the path; of a question that `on_answer` asked it tells nothing."""

    class Other(Asks):
        def request(self) -> Request:
            return Request("?", answer=Person if not first and self.is_new else list[int])

        is_new = False

        def on_answer(self, answer: Any) -> Any:
            if isinstance(answer, Person):
                return Request("?", answer=dict[str, Person])
            type(self).got = answer
            return SUCCESS

    Other.__name__ = "Asks"
    agent = Agent(seq("main", Asks("q") if first else Other("q")), Desk)
    ann = {"name": "Ann", "born": "1990-05-01"}
    with anyio.fail_after(5):
        if first:
            await agent.run_until_suspend(thread_id="t1")
        else:
            Other.is_new = True
            await agent.run_until_suspend(thread_id="t1")
            await agent.resume(ann)
            Other.is_new = False
        later = Agent(seq("main", Other("q")), Desk)
        later.load_checkpoint(json.loads(json.dumps(agent.dump_checkpoint())))
        if not first:
            assert (await later.resume({"a": ann})).status is SUCCESS
            assert Other.got == {"a": ann}
            return
        with pytest.raises(TreeMismatchError, match="node 'main/q' asks for an answer of another type") as told:
            await later.resume(ann)
        assert told.value.path == "main/q"
        record = record_of(later)
        back = Agent(seq("main", Asks("q")), Desk)
        back.load_checkpoint(record.dump())
        assert (await back.recover()).status is SUCCESS


@pytest.mark.anyio
async def test_a_node_that_is_only_looked_at_writes_nothing() -> None:
    """A `request()` that writes, or raises, is no help: the answer stays JSON, and the state as it is."""

    class Writes(Asks):
        def request(self) -> Request:
            self.write_state({"log": ["asked"]})
            return super().request()

    agent = Agent(seq("main", Writes("q")), Desk)
    with anyio.fail_after(5):
        await agent.run_until_suspend(thread_id="t1")
        later = Agent(seq("main", Writes("q")), Desk)
        later.load_checkpoint(json.loads(json.dumps(agent.dump_checkpoint())))
        answer = {"name": "Ann", "born": "1990-05-01"}
        assert (await later.resume(answer)).status is SUCCESS
    assert (Writes.got, later.state.log) == (answer, ["asked"])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (Request("?", answer=str), "for an answer of another type"),
        (Request("?", answer=int, reason="r"), "of another reason"),
    ],
)
async def test_a_coroutine_that_asks_for_something_else_after_a_load_is_refused(request_: Request, what: str) -> None:
    """The answer is not consumed: the program that asked can still take it."""

    def build(request: Request) -> Behaviour:
        async def talk(node: Any) -> None:
            node.write_state({"amount": await node.ask(request)})

        return seq("main", Talk("q", talk))

    old = Request("?", answer=int)
    agent = Agent(build(old), Desk)
    with anyio.fail_after(5):
        await agent.run_until_suspend(thread_id="t1")
        later = Agent(build(request_), Desk)
        later.load_checkpoint(json.loads(json.dumps(agent.dump_checkpoint())))
        with pytest.raises(TreeMismatchError, match=f"node 'main/q' asks {what}") as told:
            await later.resume(7)
        assert told.value.path == "main/q"
        back = Agent(build(old), Desk)
        back.load_checkpoint(json.loads(json.dumps(later.dump_checkpoint())))
        assert (await back.recover()).status is SUCCESS
    assert back.state.amount == 7


@pytest.mark.anyio
async def test_in_the_process_that_asked_a_type_may_follow_the_state() -> None:
    """What was asked here is answered as it was asked, whatever the same line would ask for now."""
    agent: Agent[Any]

    async def talk(node: Any) -> None:
        request = Request("?", answer=int if not agent.state.log else str)
        node.write_state({"amount": await node.ask(request)})

    agent = Agent(par("main", Talk("q", talk), ask("other")), Desk)
    with anyio.fail_after(5):
        outcome = await agent.run_until_suspend(thread_id="t1")
        agent.state_manager.update({"log": ["changed"]})
        ids = {one.path: one.id for one in outcome.suspensions}
        await agent.resume(7, suspension_id=ids["main/q"])
    assert agent.state.amount == 7


# What cannot be kept


class Counts(NodeMixin, Composite):
    """A composite that begins anew by `initialise`."""

    def initialise(self) -> None:
        """Begin."""
        self.count = 0

    def tick(self) -> Any:
        """Be done."""
        self.status = SUCCESS
        yield self


class Keeps(Counts):
    """The same, with what it keeps."""

    def memento(self) -> Any:
        """Return nothing."""
        return None

    def restore(self, value: Any) -> None:
        """Do nothing."""


class CountsToo(decorators.Retry):
    """A decorator of py_trees with more to begin."""

    def initialise(self) -> None:
        """Begin."""
        super().initialise()
        self.count = 0


def test_a_branch_that_begins_anew_has_to_say_what_it_keeps() -> None:
    """A user's composite or decorator with `initialise` and without memento and restore is a SetupError."""
    half = type("Half", (Counts,), {"memento": Keeps.memento})
    for node in (Counts("vote"), CountsToo("vote", Looks("l"), 3), half("vote")):
        kind = type(node).__name__
        with pytest.raises(
            SetupError, match=f"'main/vote' .* {kind} overrides initialise.*give {kind} a memento"
        ) as told:
            check_keepable(seq("main", node))
        assert told.value.path == "main/vote"
    plain = type("Plain", (Composite,), {"tick": Counts.tick})
    check_keepable(seq("main", Keeps("a"), plain("b", [Looks("l")]), Race("c", [Waits("w")]), Note("d", [])))
    check_keepable(decorators.Retry("r", Timeout("t", decorators.Repeat("x", Looks("l"), 2), seconds=1), 2))


def test_nodes_with_a_client_of_the_blackboard_are_found() -> None:
    """Stock nodes that read or write it, a ForEach of py_trees', and nodes that attached a client."""
    mine = Looks("mine")
    mine.attach_blackboard_client("mine")
    checks = behaviours.CheckBlackboardVariableExists("checks", "x")
    loop = decorators.ForEach("loop", Looks("l"), "items", "item")
    assert uses_blackboard(par("main", mine, checks, loop, Looks("not"))) == ["main/mine", "main/checks", "main/loop"]
    assert uses_blackboard(seq("main", Looks("not"))) == []


def test_an_edited_tree_is_told_from_one_that_builds_its_nodes() -> None:
    """Nodes put in, taken out, replaced or moved are found; those that a node builds itself are no edit."""
    each = ForEach("each", lambda _item, _index: Looks("l"), over=[1, 2])
    root = Sequence("main", memory=True, children=[Note("a", []), each])
    agent = Agent(root, Desk)
    program = Program(agent.root)
    agent.step_sync()
    a = root.children[0]
    assert len(each.children) == 2
    assert program.edited() == []
    root.insert_child(Looks("new"), 1)
    assert program.edited() == ["main/new"]
    root.remove_child(a)
    assert program.edited() == ["main", "main/new"]
    root.replace_child(root.children[0], a)
    assert program.edited() == []
    root.children.reverse()
    assert program.edited() == ["main"]
