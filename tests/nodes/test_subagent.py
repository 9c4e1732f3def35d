"""SubAgent: an agent inside of an agent."""

from __future__ import annotations

import json
import operator
from typing import Annotated, Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.composites import Selector, Sequence
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.ports import Const
from jianmu.engine.state import Ephemeral, Internal, StateManager
from jianmu.errors import SetupError
from jianmu.nodes import AskHuman, Guard, SubAgent
from tests.cases.leaves import FAILURE, SUCCESS, Do, Forever, Sleep
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


class Inner(BaseModel):
    """The state of the inner agent."""

    question: str = ""
    answer: str | None = None
    count: Annotated[int, Ephemeral(scope="run")] = 0
    total: int = 0
    lines: Annotated[list[str], operator.add] = Field(default_factory=list)
    hidden: Annotated[int, Internal()] = 0


class Think(AsyncNode):
    """Answers after a second."""

    async def update_async(self) -> Any:
        await self.context.clock.sleep(1)
        self.write_state({"answer": self.read_state().question.upper(), "count": self.read_state().count + 1})
        self.write_state({"total": self.read_state().total + 1, "lines": ["thought"]})
        return SUCCESS


def sub(root: Behaviour | None = None, **options: Any) -> SubAgent:
    """An inner agent that answers `name` into `answer`."""
    options = {"inputs": {"question": "name"}, "outputs": {"answer": "answer"}, **options}
    return SubAgent("sub", root or Think("think"), StateManager(Inner), **options)


async def test_inputs_go_in_and_outputs_come_out() -> None:
    """Inputs are copied from the outer state, outputs are written when the inner tree has finished, by this node."""
    table = Table(lambda diary: Sequence("s", memory=True, children=[sub()]), {"name": "abc"})
    assert await table.run() is SUCCESS
    assert table.state.answer == "ABC"
    assert table.agent.state_manager.last_change("answer")[1] == "s/sub"


async def test_outputs_are_written_after_failure_too() -> None:
    """FAILURE of the inner tree is FAILURE, and its outputs are written."""

    def give_up(node: Do) -> Any:
        node.write_state({"answer": "no"})
        return FAILURE

    table = Table(lambda diary: sub(Do("x", give_up)))
    assert await table.run() is FAILURE
    assert table.state.answer == "no"


async def test_keys_of_dict_fields_and_literals_can_be_bound() -> None:
    """`field.key` on either side of the outer state, and a literal as an input."""
    table = Table(
        lambda diary: sub(
            inputs={"question": "outs.q", "lines": Const(["a"])}, outputs={"outs.a": "answer", "log": "lines"}
        ),
        {"outs": {"q": "x", "other": 1}, "log": ["old"]},
    )
    assert await table.run() is SUCCESS
    assert table.state.outs == {"q": "x", "other": 1, "a": "X"}
    assert table.state.log == ["old", "a", "thought"]


async def test_the_states_do_not_touch_each_other() -> None:
    """Nothing crosses over but what is bound: fields of the same name are two fields."""
    table = Table(lambda diary: sub(outputs={}), {"name": "abc", "answer": "mine"})
    assert await table.run() is SUCCESS
    assert table.state.answer == "mine"


async def test_run_fields_start_anew_and_others_stay() -> None:
    """When it is entered the run fields of the inner state are set back; its other fields are kept."""
    node = sub()
    table = Table(lambda diary: node, {"name": "a"})
    assert await table.run() is SUCCESS
    assert await table.agent.run() is SUCCESS
    state = node.inner_state.get()
    assert (state.count, state.total, state.lines) == (1, 2, ["thought", "thought"])


class Until(Node):
    """Waits for a field of the inner state."""

    def update(self) -> Any:
        return SUCCESS if self.read_state().question == "3" else self.status.RUNNING


async def test_n03_an_input_that_changes_outside_wakes_the_inner_tree() -> None:
    """A subtree whose input is bound to a field of the outer state waits until it is "3"."""
    table = Table(lambda diary: sub(Until("until")), {"name": "1"})
    assert await table.run_with(table.writing(1, name="2"), table.writing(2, name="3")) is SUCCESS
    assert table.clock.now() == pytest.approx(2)


async def test_a_change_of_the_inner_state_wakes_the_run() -> None:
    """A write to the inner state alone has the tree ticked."""
    node = sub(Until("until"), inputs={})
    table = Table(lambda diary: node)

    async def write() -> None:
        await table.clock.sleep(1)
        node.inner_state.update({"question": "3"})

    assert await table.run_with(write) is SUCCESS


async def test_an_input_is_copied_again_only_when_it_was_changed() -> None:
    """What the inner tree has made of its input stays, while other fields of the outer state change."""
    seen: list[str] = []

    class Keep(AsyncNode):
        async def update_async(self) -> Any:
            self.write_state({"question": "mine"})
            await self.context.clock.sleep(2)
            seen.append(self.read_state().question)
            return SUCCESS

    table = Table(lambda diary: sub(Keep("keep")), {"name": "theirs"})
    assert await table.run_with(table.writing(1, n=1)) is SUCCESS
    assert seen == ["mine"]


async def test_halting_halts_the_inner_tree_and_writes_nothing() -> None:
    """Halted: the inner coroutines are cleaned up; no output is written."""
    table = Table(
        lambda diary: Selector(
            "s",
            memory=False,
            children=[
                Guard("g", Sleep("other", 1, diary), condition=lambda s: s.n == 1),
                sub(Sequence("q", memory=True, children=[Think("think"), Forever("f", diary, cleanup=1)])),
            ],
        ),
        {"name": "a"},
    )
    assert await table.run_with(table.writing(2, n=1)) is SUCCESS
    assert table.diary.at("start", "other") == [3.0]
    assert table.state.answer is None


async def test_looking_again_does_not_begin_again() -> None:
    """A memoryless Sequence that looks again finds the result; the inner state is not set back."""
    node = sub()
    table = Table(lambda diary: Sequence("s", memory=False, children=[node, Sleep("b", 2, diary)]), {"name": "a"})
    assert await table.run_with(table.writing(1.5, n=1), table.writing(2, n=2)) is SUCCESS
    assert node.inner_state.get().count == 1


async def test_i16_its_questions_have_the_whole_path() -> None:
    """An agent in an agent in an agent asks: one question at the top, answered straight to that leaf, from JSON too."""

    def make() -> Agent[Desk]:
        ask = AskHuman("ask", message=lambda s: f"what about {s.question}?", into="answer")
        inner = SubAgent(
            "inner", ask, StateManager(Inner), inputs={"question": "question"}, outputs={"answer": "answer"}
        )
        return Agent(Sequence("top", memory=True, children=[sub(inner)]), Desk, clock=VirtualClock())

    first, second = make(), make()
    outcome = await first.run_until_suspend({"name": "x"})
    question = outcome.suspensions[0]
    assert (question.path, question.message) == ("top/sub/inner/ask", "what about x?")
    second.load_checkpoint(json.loads(json.dumps(first.dump_checkpoint())))
    for agent in (first, second):
        outcome = await agent.resume("this")
        assert outcome.status is SUCCESS
        assert agent.state.answer == "this"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"inputs": {"qestion": "name"}},
            "node 'sub' binds 'qestion', but Inner takes no such field: did you mean 'question'",
        ),
        (
            {"outputs": {"answer": "anser"}},
            "node 'sub' binds 'anser', but Inner gives no such field: did you mean 'answer'",
        ),
        ({"inputs": {"hidden": "n"}}, r"binds 'hidden', but Inner takes no such field"),
        ({"outputs": {"n": "hidden"}}, r"binds 'hidden', but Inner gives no such field"),
        ({"inputs": {"question": "nmae"}}, "binds port 'inputs.question' to 'nmae', but Desk has no field .*'name'"),
        (
            {"outputs": {"anwser": "answer"}},
            "binds port 'outputs.anwser' to 'anwser', but Desk has no field .*'answer'",
        ),
        ({"inputs": {"question": "n"}}, "the port takes str, but 'n' is int"),
        ({"outputs": {"n": "answer"}}, "the port gives .*, but 'n' is int"),
    ],
)
def test_wrong_names_and_types_are_refused_before_the_first_tick(options: dict[str, Any], text: str) -> None:
    """Each wrong name, inner or outer, and each type that cannot fit, is a SetupError with the path."""
    with pytest.raises(SetupError, match=text):
        Agent(sub(**options), Desk).step_sync()


async def test_an_input_replaces_what_was_there() -> None:
    """An inner field with a reducer is replaced, at each copy: it is what the outer field is."""
    node = sub(Until("until"), inputs={"question": "name", "lines": "log"}, outputs={})
    table = Table(lambda diary: node, {"log": ["a"]})
    assert await table.run_with(table.writing(1, log=["b"]), table.writing(2, name="3")) is SUCCESS
    assert node.inner_state.get().lines == ["a", "b"]


async def test_in_another_process_inputs_are_not_copied_again() -> None:
    """From JSON alone: what the inner tree has made of its input stays."""

    def make() -> Agent[Desk]:
        mine = Do("mine", lambda node: node.write_state({"question": "mine"}))
        ask = AskHuman("ask", message="?", into="answer")
        root = sub(Sequence("q", memory=True, children=[mine, ask]), outputs={"answer": "question"})
        return Agent(root, Desk, clock=VirtualClock())

    first, second = make(), make()
    await first.run_until_suspend({"name": "theirs"})
    second.load_checkpoint(json.loads(json.dumps(first.dump_checkpoint())))
    await second.resume("yes")
    assert second.state.answer == "mine"
