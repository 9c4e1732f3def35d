"""AgentLLMNode when something goes wrong: errors of the model, limits, halts, retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Selector

from jianmu import Limits
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import Retried, Token
from jianmu.errors import (
    BadReplyError,
    BadRequestError,
    ContextTooLongError,
    LimitExceeded,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    RateLimitedError,
)
from jianmu.message import Usage, human
from jianmu.model import Fallback, Retrying, ScriptedModel, Turn
from jianmu.nodes import AgentLLMNode, Catch, Retry, Sequence, SimpleLLMNode, Timeout
from jianmu.stores import MemoryStore
from tests.cases.leaves import FAILURE, SUCCESS, Do
from tests.nodes.talk import agent, call, events_of, run

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "kind", [ModelRefusedError, ContextTooLongError, RateLimitedError, ModelUnavailableError, BadReplyError]
)
async def test_an_error_that_a_tree_can_answer_is_failure(kind: type[ModelError]) -> None:
    """FAILURE with the reason; nothing is appended, the void text is gone, and another branch can take over."""
    with ScriptedModel([Turn(["some ", "text"], error=kind("no", model="m"), pause=1)]) as model:
        think = AgentLLMNode("think", model=model)
        made = agent(Selector("s", memory=True, children=[think, Do("rules", lambda node: None)]))
        assert await run(made, human("hello")) is SUCCESS
    assert think.status is FAILURE
    assert think.feedback_message == "model 'm': no"
    assert ([m.text for m in made.state.messages], made.state.streaming_output, made.state.rounds) == (["hello"], "", 0)
    assert made.state.usage == Usage(requests=1)


@pytest.mark.parametrize("error", [BadRequestError("the key is wrong", model="m"), ZeroDivisionError("x")])
async def test_an_error_of_the_program_is_raised(error: Exception) -> None:
    """What the tree cannot put right ends the run with the exception itself; the stream is closed."""
    with ScriptedModel([Turn("text", error=error)]) as model:
        made = agent(AgentLLMNode("think", model=model))
        with pytest.raises(type(error)) as found:
            await run(made, human("hello"))
    assert found.value is error
    assert model.alive == 0
    assert [m.text for m in made.state.messages] == ["hello"]


@pytest.mark.parametrize(("reason", "text"), [("content_filter", "policy"), ("error", "broke off")])
async def test_a_reply_that_was_stopped_is_failure(reason: Any, text: str) -> None:
    """A reply that a policy has stopped, or that broke off, is no reply: nothing of it is kept."""
    with ScriptedModel([Turn("half a", reason=reason, pause=1)]) as model:
        made = agent(AgentLLMNode("think", model=model))
        assert await run(made, human("hello")) is FAILURE
    assert text in made.root.feedback_message
    assert (len(made.state.messages), made.state.streaming_output) == (1, "")


async def test_a_reply_that_was_cut_off_says_so() -> None:
    """A reply that has as many tokens as it may have is kept; the feedback says that it was cut off."""
    with ScriptedModel([Turn("half a", reason="length")]) as model:
        made = agent(AgentLLMNode("think", model=model))
        assert await run(made, human("hello")) is SUCCESS
    assert made.root.feedback_message == "the reply was cut off: it has as many tokens as it may have"


# Attempts


async def test_another_attempt_clears_the_stream() -> None:
    """`Again` voids what was shown: the stream starts anew, an event says so, and both requests are counted."""
    broken = Turn(["one ", "two"], error=ModelUnavailableError("cut", model="m"), pause=1)
    texts: list[str] = []
    with ScriptedModel([broken, Turn(["three"], delay=5)]) as model:
        made = agent(AgentLLMNode("think", model=Retrying(model, after_text=True, jitter=0)))
        made.state_manager.subscribe(
            lambda change: texts.append(made.state.streaming_output) if "streaming_output" in change.changed else None
        )
        events = await events_of(made, human("hello"))
    assert texts == ["one ", "one two", "", "three"]
    told = [event for event in events if isinstance(event, Token | Retried)]
    assert [type(event).__name__ for event in told] == ["Token", "Token", "Retried", "Token"]
    assert isinstance(told[2], Retried)
    assert (told[2].reason, told[2].wait, told[2].model, told[2].path) == ("model 'm': cut", 0.5, "scripted", "think")
    assert [m.text for m in made.state.messages] == ["hello", "three"]
    assert made.state.usage.requests == made.runner.context.usage.requests == 2


async def test_another_model_steps_in() -> None:
    """With a fallback the second model's reply is the reply."""
    with ScriptedModel([Turn(error=RateLimitedError("no"))]) as first, ScriptedModel(["fine"]) as second:
        made = agent(AgentLLMNode("think", model=Fallback(first, second)))
        assert await run(made, human("hello")) is SUCCESS
    assert made.state.final_answer == "fine"


async def test_retry_tries_a_failure_again() -> None:
    """Retry around the node asks again after a FAILURE; the conversation has one reply."""
    with ScriptedModel([ModelUnavailableError("no"), "fine"]) as model:
        made = agent(Retry("r", AgentLLMNode("think", model=model), attempts=2))
        assert await run(made, human("hello")) is SUCCESS
    assert [m.text for m in made.state.messages] == ["hello", "fine"]


# Limits


@pytest.mark.parametrize(
    ("limits", "name"),
    [(Limits(requests=1), "requests"), (Limits(tokens=5), "tokens"), (Limits(cost=0.5), "cost")],
)
async def test_a_request_over_the_limit_is_not_sent(limits: Limits, name: str) -> None:
    """What is used up ends the run with LimitExceeded before the request is sent; the state has what came before."""
    turn = Turn("one", usage=Usage(input_tokens=4, output_tokens=1, cost=0.5))
    with ScriptedModel([turn]) as model:
        nodes = [AgentLLMNode("a", model=model), AgentLLMNode("b", model=model)]
        made = agent(Sequence("s", memory=True, children=nodes), limits=limits)
        with pytest.raises(LimitExceeded) as found:
            await run(made, human("hello"))
    assert (found.value.limit, found.value.path) == (name, "s/b")
    assert str(found.value).startswith("the run has used its ")
    assert [m.text for m in made.state.messages] == ["hello", "one"]


async def test_an_outcome_names_the_limit_and_a_higher_one_goes_on() -> None:
    """`run_until_suspend` reports the limit; what was used survives, and `recover` with a higher one goes on there."""
    model = ScriptedModel(["one", "two"])

    def build() -> Any:
        nodes = [AgentLLMNode("a", model=model), AgentLLMNode("b", model=model)]
        return agent(Sequence("s", memory=True, children=nodes), store=store, limits=Limits(requests=1))

    store = MemoryStore()
    with anyio.fail_after(20):
        outcome = await build().run_until_suspend({"messages": [human("hello")]}, thread_id="t")
        assert (outcome.status, outcome.limit) == (Status.INVALID, "requests")
        assert (await build().recover("t")).limit == "requests"
        made = build()
        outcome = await made.recover("t", limits=Limits(requests=2))
    assert outcome.status is SUCCESS
    assert [m.text for m in made.state.messages] == ["hello", "one", "two"]
    model.check()


async def test_attempts_count_for_the_limit() -> None:
    """An attempt that the run may not have any more is not made."""
    with ScriptedModel([ModelUnavailableError("no")]) as model:
        made = agent(AgentLLMNode("think", model=Retrying(model)), limits=Limits(requests=1))
        with pytest.raises(LimitExceeded):
            await run(made, human("hello"))
    assert model.alive == 0


# Halting


async def halted_at(seconds: float, make: Callable[[ScriptedModel], Any]) -> Any:
    """Run a node under a Timeout and see that the next turn works; return the agent."""
    model = ScriptedModel([Turn(["one ", "two ", "three"], delay=2, pause=2, calls=[call("1")]), "fine"])
    made = agent(Timeout("t", make(model), seconds=seconds))
    assert await run(made, human("hello")) is FAILURE
    assert model.alive == 0
    assert [m.text for m in made.state.messages] == ["hello"]
    assert (made.state.actions, made.state.rounds, made.state.done) == ([], 0, False)
    assert await run(made, human("again")) is SUCCESS
    assert [m.text for m in made.state.messages] == ["hello", "again", "fine"]
    assert made.state.streaming_output == "fine"
    return made


@pytest.mark.parametrize("seconds", [1, 3, 5, 7, 9])
async def test_a_halt_ends_the_request_and_writes_nothing(seconds: float) -> None:
    """Halted while it waits for the first, a later or the last piece: no message, no stream is open, the next works."""
    await halted_at(seconds, lambda model: AgentLLMNode("think", model=model))


async def test_a_halt_while_it_waits_for_another_attempt() -> None:
    """Halted in the pause before another attempt: nothing is sent any more."""
    clock = VirtualClock(autojump=True)
    model = ScriptedModel([ModelUnavailableError("no"), "late"])
    think = AgentLLMNode("think", model=Retrying(model, backoff=10, jitter=0))
    made = agent(Timeout("t", think, seconds=5), clock=clock)
    assert await run(made, human("hello")) is FAILURE
    assert len(model.requests) == 1


async def test_a_cancelled_run_leaves_a_valid_conversation() -> None:
    """Cancelled from outside in the midst of a reply: nothing is alive, and the next run goes on."""
    model = ScriptedModel([Turn(["one ", "two"], pause=10), "fine"])
    made = agent(AgentLLMNode("think", model=model), clock=None)
    with anyio.fail_after(20):
        with anyio.move_on_after(0.05):
            await made.run({"messages": [human("hello")]})
        assert model.alive == 0
        assert await made.run({"messages": [human("again")]}) is SUCCESS
    assert [m.text for m in made.state.messages] == ["hello", "again", "fine"]


async def test_two_in_parallel_are_ended_by_one_limit() -> None:
    """Of two requests at once the one over the limit ends the run; the other is cancelled with it."""
    model = ScriptedModel([Turn("slow", delay=5), "never"])
    nodes = [SimpleLLMNode(name, model=model, prompt="topic", into="answer") for name in "ab"]
    made = agent(Parallel("p", policy=ParallelPolicy.SuccessOnAll(), children=nodes), limits=Limits(requests=1))
    with pytest.raises(LimitExceeded):
        await run(made, topic="x")
    assert (model.alive, len(model.requests)) == (0, 1)


async def test_a_limit_is_not_caught() -> None:
    """Catch takes no LimitExceeded: what a run may use is not for the tree to decide."""
    made = agent(Catch("c", AgentLLMNode("a", model=ScriptedModel()), on=Exception), limits=Limits(requests=0))
    with pytest.raises(LimitExceeded):
        await run(made, human("hello"))


async def test_a_cost_that_is_not_reported_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A limit of cost that a model's replies cannot count for is no silent one."""
    made = agent(AgentLLMNode("a", model=ScriptedModel(["x"])), limits=Limits(cost=1))
    await run(made, human("hello"))
    assert "cost is not counted" in caplog.text
