"""ForEach: one subtree for each item."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from py_trees.behaviour import Behaviour
from py_trees.composites import Sequence

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.node import AsyncNode, Node
from jianmu.errors import RunError, SetupError
from jianmu.nodes import AskHuman, ForceSuccess, ForEach, Guard, Repeat, Retry, Selector, Timeout
from jianmu.nodes import Sequence as InOrder
from jianmu.stores import MemoryStore
from tests.cases.leaves import FAILURE, INVALID, RUNNING, SUCCESS, Diary, Do, Forever, Scripted, Sleep, passes_of
from tests.nodes.kit import Desk, Item, Table

pytestmark = pytest.mark.anyio


def sleeper(diary: Diary) -> Any:
    """A body: each item is the seconds that its leaf takes."""
    return lambda item, index: Sleep(f"{index}", item, diary)


async def test_items_run_side_by_side() -> None:
    """SUCCESS when the subtrees of all items have succeeded; they run at the same time."""
    table = Table(lambda diary: ForEach("each", sleeper(diary), over="numbers"), {"numbers": [3, 1, 2]})
    assert await table.run() is SUCCESS
    assert table.clock.now() == pytest.approx(3)
    assert table.diary.order("end") == ["end 1", "end 2", "end 0"]


@pytest.mark.parametrize("limit", [2, lambda s: s.amount - 3])
async def test_a_limit_lets_so_many_run(limit: Any) -> None:
    """With a `limit`, the next one starts when one has finished."""
    table = Table(lambda diary: ForEach("e", sleeper(diary), over="numbers", limit=limit), {"numbers": [3, 1, 1, 5]})
    assert await table.run() is SUCCESS
    assert [table.diary.at("start", str(index)) for index in range(4)] == [[0.0], [0.0], [1.0], [2.0]]


async def test_a_limit_of_one_over_leaves_that_take_no_time_needs_one_pass() -> None:
    """Items that are done at once follow each other in one pass."""
    table = Table(
        lambda diary: ForEach("e", lambda item, index: Scripted(f"{index}", SUCCESS), over=[1, 2, 3], limit=1)
    )
    passes = passes_of(table.agent)
    assert await table.run() is SUCCESS
    assert len(passes) == 1


async def test_the_first_failed_item_halts_the_others() -> None:
    """FAILURE when one has failed; the others are halted and nothing is written."""

    def body(item: int, index: int) -> Any:
        return Sleep(f"{index}", item, diary, result=FAILURE if item == 1 else SUCCESS), "n"

    diary = Diary()
    table = Table(lambda _: ForEach("e", body, over=[3, 1], into="results"), {"results": ["old"]})
    assert await table.run() is FAILURE
    assert diary.order("end", "cleanup") == ["end 1", "cleanup 0"]
    assert table.state.results == ["old"]


@pytest.mark.parametrize("values", [{"numbers": []}, {"numbers": None}])
async def test_an_empty_list_succeeds_at_once(values: dict[str, Any]) -> None:
    """SUCCESS at once for an empty list, and for None; the results are empty too."""
    table = Table(
        lambda diary: ForEach("e", lambda item, index: (Scripted("a", SUCCESS), "n"), over="numbers", into="results"),
        {**values, "results": [1]},
    )
    assert await table.run() is SUCCESS
    assert table.state.results == []


class Double(AsyncNode):
    """Waits for the item's seconds and writes its double to a key of `outs`."""

    def __init__(self, item: int, index: int) -> None:
        super().__init__(f"double {index}")
        self.item, self.index = item, index

    async def update_async(self) -> Any:
        await self.context.clock.sleep(self.item)
        self.merge_dict("outs", {str(self.index): self.item * 2})
        return SUCCESS


async def test_results_are_written_in_the_order_of_the_items() -> None:
    """Results are written to `into` in item order when all have succeeded, whoever was first."""
    table = Table(
        lambda diary: ForEach(
            "e", lambda item, index: (Double(item, index), f"outs.{index}"), over=[3, 1, 2], into="results"
        )
    )
    assert await table.run() is SUCCESS
    assert table.state.results == [6, 2, 4]


async def test_a_result_is_read_when_its_subtree_has_finished() -> None:
    """Plain items may write one field after another: each result is read in its turn."""

    def body(item: int, index: int) -> Any:
        return Do(f"{index}", lambda node: node.write_state({"n": item})), "n"

    table = Table(lambda diary: ForEach("e", body, over=[5, 6, 7], into="outs.all"))
    assert await table.run() is SUCCESS
    assert table.state.outs == {"all": [5, 6, 7]}


async def test_the_list_is_fixed_when_the_node_is_entered() -> None:
    """What is written to `over` meanwhile changes nothing; the next entry takes the list anew."""
    table = Table(lambda diary: ForEach("e", sleeper(diary), over="numbers"), {"numbers": [2, 2]})
    assert await table.run_with(table.writing(1, numbers=[2, 2, 2])) is SUCCESS
    assert table.diary.count("start", "2") == 0
    assert await table.agent.run() is SUCCESS
    assert table.diary.count("start", "2") == 1


async def test_halting_halts_all_items() -> None:
    """Halting halts every item, and all are awaited."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                ForEach("e", lambda item, index: Forever(f"{index}", diary, cleanup=item), over=[1, 2]),
            ],
        )
    )
    assert await table.run_with(table.writing(1, n=1)) is SUCCESS
    assert table.diary.at("start", "other") == [3.0]


@pytest.mark.parametrize("over", [lambda s: s.items[1:], "items", lambda s: (i for i in s.items)])
async def test_the_list_may_come_from_a_function(over: Any) -> None:
    """`over` is a field, a function of the snapshot or a list; the body gets the item itself and its index."""
    seen: list[Any] = []

    def body(item: Item, index: int) -> Behaviour:
        seen.append((item.id, index))
        return Scripted("a", SUCCESS)

    table = Table(lambda diary: ForEach("e", body, over=over), {"items": [Item(id="x"), Item(id="y")]})
    assert await table.run() is SUCCESS
    assert seen[-1] == ("y", len(seen) - 1)


async def test_same_named_items_have_paths_of_their_own() -> None:
    """Subtrees of the same name get [2], [3] in their paths."""
    paths: list[str] = []
    table = Table(
        lambda diary: ForEach(
            "e", lambda item, index: Do("a", lambda node: paths.append(node.context.path)), over=[1, 2, 3]
        )
    )
    assert await table.run() is SUCCESS
    assert paths == ["e/a", "e/a[2]", "e/a[3]"]


@pytest.mark.parametrize(("key", "expected"), [(None, [0, 1]), (lambda item: item.id, ["x", "y"])])
async def test_each_item_is_a_round(key: Any, expected: list[Any]) -> None:
    """Each item is a round of its own: by its key, else by its index."""
    rounds: list[Any] = []

    def body(item: Item, index: int) -> Behaviour:
        return Do(f"{index}", lambda node: rounds.append(node.context.origin().rounds))

    table = Table(lambda diary: ForEach("e", body, over="items", key=key), {"items": [Item(id="x"), Item(id="y")]})
    assert await table.run() is SUCCESS
    assert rounds == [(("e", name),) for name in expected]


async def test_looking_again_does_not_begin_again() -> None:
    """A memoryless Sequence that looks again at a finished ForEach with coroutines starts nothing twice."""
    table = Table(
        lambda diary: Sequence(
            "s", memory=False, children=[ForEach("e", sleeper(diary), over=[1, 1]), Sleep("b", 2, diary)]
        )
    )
    assert await table.run_with(table.writing(1.5, n=1), table.writing(2, n=2)) is SUCCESS
    assert table.diary.count("start", "0") == 1
    assert table.diary.count("start", "b") == 1


async def test_questions_of_items_are_not_asked_again_by_looking() -> None:
    """The same for items that ask: two questions in all."""
    table = Table(
        lambda diary: Sequence(
            "s",
            memory=False,
            children=[
                ForEach(
                    "e", lambda item, index: AskHuman(f"{index}", message="?", into=f"outs.{item}"), over=["a", "b"]
                ),
                Sleep("b", 2, diary),
            ],
        )
    )
    outcome = await table.agent.run_until_suspend()
    first, second = (question.id for question in outcome.suspensions)
    outcome = await table.agent.resume("one", suspension_id=first)
    assert outcome.suspended
    outcome = await table.agent.resume("two", suspension_id=second)
    assert outcome.status is SUCCESS
    assert table.state.outs == {"a": "one", "b": "two"}
    assert len(table.agent.interaction.dump()["records"]) == 2


async def test_in_another_process_it_goes_on_with_the_same_items() -> None:
    """From JSON alone, with the list changed meanwhile: the items are what they were, as objects; results too."""
    kinds: set[type] = set()

    def make() -> Agent[Desk]:
        def body(item: Item, index: int) -> Any:
            kinds.add(type(item))
            if item.size == 0:
                return Do(item.id, lambda node: node.merge_dict("outs", {item.id: index})), f"outs.{item.id}"
            return AskHuman(item.id, message="?", into=f"outs.{item.id}"), f"outs.{item.id}"

        return Agent(
            ForEach("e", body, over="items", into="results", key=lambda item: item.id), Desk, clock=VirtualClock()
        )

    first = make()
    items = [Item(id="a"), Item(id="b", size=1), Item(id="c", size=1)]
    outcome = await first.run_until_suspend({"items": items}, thread_id="t")
    assert [question.path for question in outcome.suspensions] == ["e/b", "e/c"]
    first.state_manager.update({"items": [Item(id="z")]})
    second = make()
    second.load_checkpoint(json.loads(json.dumps(first.dump_checkpoint())))
    for question in outcome.suspensions:
        outcome = await second.resume(f"answer {question.key}", suspension_id=question.id)
    assert outcome.status is SUCCESS
    assert second.state.results == [0, "answer b", "answer c"]
    assert kinds == {Item}


async def test_items_without_a_json_form_cannot_be_saved() -> None:
    """An item that JSON cannot hold is an error with the path when the position is saved, not a wrong item later."""
    table = Table(lambda diary: ForEach("e", lambda item, index: AskHuman("a", message="?"), over=[object()]))
    await table.agent.run_until_suspend()
    with pytest.raises(RunError, match=r"node 'e' cannot be saved: its items or results hold object"):
        table.agent.dump_checkpoint()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"over": "numbrs"}, "did you mean 'numbers'"),
        ({"over": "numbers", "into": "reslts"}, "did you mean 'results'"),
        ({"over": "numbers", "into": "name"}, "the port gives list"),
        ({"over": "numbers", "limit": 0}, "whole number from 1 up"),
        ({"over": "numbers", "key": 3}, "takes a function, not 3"),
    ],
)
def test_wrong_options_are_refused_before_the_first_tick(options: dict[str, Any], text: str) -> None:
    """Names that the schema does not have, and options of a wrong kind: SetupError."""
    with pytest.raises(SetupError, match=text):
        Agent(ForEach("e", lambda item, index: (Scripted("a", SUCCESS), "n"), **options), Desk).step_sync()


@pytest.mark.parametrize(
    ("body", "over", "text"),
    [
        (lambda item, index: 3, [1], "takes a node of a tree, not 3"),
        (lambda item, index: Scripted("a", SUCCESS), [1], r"return \(subtree, \"<field>\"\)"),
        (lambda item, index: (Scripted("a", SUCCESS), "n"), lambda s: 3, "has to return a list, not int"),
        (lambda item, index: (Scripted("a", SUCCESS), "n"), "name", "has to return a list, not str"),
    ],
)
async def test_what_the_functions_give_is_checked(body: Any, over: Any, text: str) -> None:
    """A body that builds no node or does not say where results are, a list that is none: errors with the path."""
    table = Table(lambda diary: ForEach("e", body, over=over, into="results"))
    with pytest.raises((RunError, SetupError), match=text):
        await table.agent.run()


def test_statuses_of_items_not_started() -> None:
    """Items that wait for room are INVALID."""
    agent = Agent(ForEach("e", lambda item, index: Scripted(f"{index}", RUNNING), over=[1, 2, 3], limit=2), Desk)
    agent.step_sync()
    assert [child.status for child in agent.root.children] == [RUNNING, RUNNING, INVALID]


async def test_starts_within_a_foreach_do_not_wait_for_each_other() -> None:
    """Items are beside each other: a cleanup in one holds back no start in another."""

    def body(item: str, index: int) -> Behaviour:
        if item == "slow":
            return Timeout("t", Forever("x", diary, cleanup=3), seconds=1) if index else Scripted("never", SUCCESS)
        return Sequence("b", memory=True, children=[Sleep("b1", 1, diary), Sleep("b2", 1, diary)])

    table = Table(
        lambda _: ForEach("e", lambda item, index: ForceSuccess("f", body(item, index)), over=["fast", "slow"])
    )
    diary = table.diary
    assert await table.run() is SUCCESS
    assert diary.at("start", "b2") == [1.0]


class Size(IntEnum):
    """A number with a name."""

    ONE = 1


class Once(AsyncNode):
    """Does something once."""

    def __init__(self, name: str, work: Any, *given: Any) -> None:
        super().__init__(name)
        self.work, self.given = work, given

    async def update_async(self) -> Any:
        await self.once("it", self.work, *self.given)
        return SUCCESS


class FailsFirst(Node):
    """Fails for the first time in a run."""

    def update(self) -> Any:
        is_first = self.read_state().ok
        self.write_state({"ok": False})
        return FAILURE if is_first else SUCCESS


@pytest.mark.parametrize("key", [lambda item: (item, 1), lambda item: UUID(int=item), Size])
async def test_rounds_below_are_closed_after_a_load_whatever_names_the_items(key: Any) -> None:
    """A loop inside that is entered anew does all its rounds again, also where an answer came to another agent."""
    done: list[int] = []

    def body(item: int, _: int) -> Behaviour:
        pay = Once("pay", done.append, item)
        rounds = Repeat("rounds", InOrder("round", True, [pay, AskHuman("ask", message="?", into="answer")]), times=2)
        return Retry("retry", InOrder("attempt", True, [rounds, FailsFirst("fails")]), attempts=2)

    store = MemoryStore()

    def agent() -> Agent[Desk]:
        return Agent(ForEach("each", body, over=[1], key=key), Desk, store=store)

    outcome = await agent().run_until_suspend({}, thread_id="t")
    for _ in range(4):
        assert outcome.suspensions
        outcome = await agent().resume("yes", thread_id="t")
    assert (outcome.status, done) == (SUCCESS, [1] * 4)


async def test_a_key_that_has_no_json_form_ends_the_run() -> None:
    """An error with the node and the class of what `key` has returned."""
    table = Table(lambda diary: ForEach("e", lambda item, _: Scripted("a", SUCCESS), over=[1], key=lambda _: object()))
    with pytest.raises(RunError, match="node 'e' cannot name its rounds: key= returns object, which has no JSON form"):
        await table.run()
