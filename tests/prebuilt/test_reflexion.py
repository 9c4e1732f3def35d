"""Reflexion: draft, score, try again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jianmu.agent import Agent
from jianmu.errors import ModelUnavailableError, RunError, SetupError
from jianmu.prebuilt import ReflexionState, Review, reflexion
from jianmu.testing import ScriptedModel
from tests.cases.leaves import FAILURE, SUCCESS

pytestmark = pytest.mark.anyio
TASK: Any = {"task": "write a haiku"}


def agent_of(model: ScriptedModel, judge: Any, **options: Any) -> Agent[Any]:
    """Return an agent with the tree."""
    return Agent(reflexion(model=model, judge=judge, **options), ReflexionState)


async def test_it_tries_again_with_the_critique() -> None:
    """A model scores each draft; the next request has the last draft and what was said of it."""
    reviews = [json.dumps({"score": score, "critique": text}) for score, text in ((0.3, "too long"), (0.9, ""))]
    with ScriptedModel(["first", "second"]) as model, ScriptedModel(reviews) as judge:
        agent = agent_of(model, judge)
        assert await agent.run(TASK) is SUCCESS
    state = agent.state
    assert (state.final_answer, state.best, state.lessons) == ("second", 0.9, ["too long"])
    first, second = (request.messages[-1].text for request in model.requests)
    assert first == "write a haiku"
    assert ("Your last draft, which was not good enough:\nfirst" in second, "- too long" in second) == (True, True)
    assert "Draft:\nfirst" in judge.requests[0].messages[-1].text


async def test_the_best_draft_is_kept_when_none_is_good_enough() -> None:
    """FAILURE after `max_tries`; the answer is the draft with the highest score."""
    scores = iter([0.2, 0.5, 0.4])
    agent = agent_of(ScriptedModel(["a", "b", "c"]), lambda _: next(scores))
    assert await agent.run(TASK) is FAILURE
    assert (agent.state.final_answer, agent.state.best) == ("b", 0.5)


async def a_review(state: Any) -> Review:
    """Review."""
    return Review(score=len(state.draft) / 10, critique="longer!")


@pytest.mark.parametrize("judge", [a_review, lambda state: len(state.draft) >= 8, lambda state: len(state.draft) / 10])
async def test_a_function_may_score(judge: Any) -> None:
    """Sync or async; a Review, a number or a bool."""
    agent = agent_of(ScriptedModel(["short", "long enough"[:9]]), judge)
    assert await agent.run(TASK) is SUCCESS
    assert agent.state.final_answer == "long enou"


async def test_a_model_that_fails_is_a_try() -> None:
    """The next try follows."""
    agent = agent_of(ScriptedModel([ModelUnavailableError("gone", model="m"), "fine"]), lambda _: True)
    assert await agent.run(TASK) is SUCCESS


async def test_the_next_run_begins_afresh() -> None:
    """Draft, review and answer are those of one run."""
    model = ScriptedModel(["one", "two"])
    agent = agent_of(model, lambda _: True)
    await agent.run(TASK)
    await agent.run({"task": "write another"})
    assert (model.requests[1].messages[-1].text, agent.state.final_answer) == ("write another", "two")


async def test_a_score_of_another_form_is_an_error() -> None:
    """The error names the node and what is wanted."""
    agent = agent_of(ScriptedModel(["one"]), lambda _: "good")
    with pytest.raises(RunError, match=r"'reflexion/try/score': judge= has to return a Review, or a number from 0 to"):
        await agent.run(TASK)


async def test_a_judge_of_another_kind_is_refused() -> None:
    """At once."""
    with pytest.raises(SetupError, match=r"reflexion\(judge=...\) takes a model or a function of the snapshot, not 3"):
        agent_of(ScriptedModel([]), 3)
