"""The ReAct tree: think, act, answer."""

from __future__ import annotations

from typing import Any

import pytest

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.tree import path_of
from jianmu.errors import ModelUnavailableError
from jianmu.message import human
from jianmu.nodes.pairing import paired
from jianmu.prebuilt import ReActState, react, react_agent
from jianmu.testing import ScriptedModel
from jianmu.tool import ToolCall
from tests.cases.leaves import FAILURE, SUCCESS, nothing_left

pytestmark = pytest.mark.anyio


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sum_of(id: str, a: int, b: int) -> ToolCall:
    """Return a call of `add`."""
    return ToolCall(id=id, name="add", arguments={"a": a, "b": b})


GO: Any = {"messages": [human("go")]}


async def test_it_thinks_and_acts_until_it_answers() -> None:
    """Each round is a reply with the results of its calls; the last reply is the answer."""
    with ScriptedModel([[sum_of("1", 1, 2), sum_of("2", 3, 4)], sum_of("3", 3, 7), "ten"]) as model:
        agent = react_agent(model, [add], system="Be brief.")
        with nothing_left(agent):
            assert await agent.run(GO) is SUCCESS
    state = agent.state
    assert (state.final_answer, state.done, state.rounds, state.streaming_output) == ("ten", True, 3, "ten")
    assert [message.role for message in state.messages] == ["human", "ai", "tool", "tool", "ai", "tool", "ai"]
    assert [message.text for message in state.messages if message.role == "tool"] == ["3", "7", "10"]
    assert [message.role for message in model.requests[0].messages] == ["system", "human"]
    assert [tool.name for tool in model.requests[0].tools] == ["add"]


async def test_without_an_answer_it_fails_after_so_many_rounds() -> None:
    """`max_rounds` replies, each with its results; then FAILURE."""
    model = ScriptedModel([sum_of(str(number), 1, 1) for number in range(9)])
    agent = react_agent(model, [add], max_rounds=3)
    assert await agent.run(GO) is FAILURE
    assert (agent.state.rounds, agent.state.final_answer) == (3, None)
    assert paired(agent.state.messages) == [*agent.state.messages]


async def test_a_model_that_fails_ends_it() -> None:
    """FAILURE, and no other request."""
    model = ScriptedModel([ModelUnavailableError("gone", model="m"), "never"])
    agent = react_agent(model, [add])
    assert await agent.run(GO) is FAILURE
    assert len(model.requests) == 1


async def test_the_next_run_goes_on_with_the_conversation() -> None:
    """A second run on the same thread asks anew: the answer of the first is not taken for its own."""
    model = ScriptedModel(["first", sum_of("1", 1, 1), "second"])
    agent = react_agent(model, [add])
    await agent.run(GO)
    await agent.run({"messages": [human("more")]})
    assert (agent.state.final_answer, agent.state.rounds) == ("second", 2)


async def test_the_paths_of_its_nodes() -> None:
    """They are those that the page tells."""
    agent = react_agent(ScriptedModel(["hi"]), [add])
    assert [path_of(node) for node in agent.root.iterate()] == [
        "react/rounds/round/is lost/think",
        "react/rounds/round/is lost",
        "react/rounds/round/is done",
        "react/rounds/round/next/act",
        "react/rounds/round/next",
        "react/rounds/round",
        "react/rounds",
        "react/has answer",
        "react",
    ]


async def test_it_is_a_tree_like_others() -> None:
    """`react()` gives the tree alone, for a place in another one and a schema of your own."""

    class Mine(ReActState):
        n: int = 0

    agent = Agent(react("mine", model=ScriptedModel(["hi"])), Mine, clock=VirtualClock())
    assert await agent.run(GO) is SUCCESS
    assert agent.state.final_answer == "hi"


async def test_options_of_the_executor_are_handed_on() -> None:
    """`act=` takes the options of a ToolExecutor."""
    with pytest.raises(Exception, match=r'ToolExecutor\("act", limit=...\)'):
        react_agent(ScriptedModel([]), [add], act={"limit": 0})


async def test_approvals_cannot_be_given_as_input() -> None:
    """What people have decided is written by the executor only."""
    agent = react_agent(ScriptedModel(["hi"]))
    with pytest.raises(Exception, match="approvals"):
        await agent.run({"approvals": {"add": {"approved": True}}})
