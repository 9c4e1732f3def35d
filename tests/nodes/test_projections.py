"""Projections of a request, and the check that each call in it has exactly one result, right after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jianmu.agent import Agent
from jianmu.errors import BadRequestError, ModelError, ModelRefusedError, RunError, SetupError
from jianmu.message import ImagePart, Message, ai, human, system, tool_result
from jianmu.model import ModelRequest, ScriptedModel
from jianmu.nodes import AgentLLMNode, ContextBudget, Invert, Reminders, RequestProjection, SimpleLLMNode
from jianmu.nodes import Sequence as InOrder
from jianmu.nodes.pairing import LOST, paired
from jianmu.nodes.projections import tokens_of
from jianmu.tool.types import ToolCall
from tests.cases.leaves import FAILURE
from tests.nodes.talk import Talk, agent, asked, call, request, run, texts

pytestmark = pytest.mark.anyio


# The pairing check


async def test_a_missing_result_says_that_it_is_not_known() -> None:
    """A call without a result gets one that says so, as an error; it is the same in each request."""
    one, other = (paired([ai(tool_calls=[call("1")])])[1] for _ in range(2))
    assert (one.text, one.is_error) == (LOST, True)
    assert one == other


async def test_an_id_that_is_used_again_is_told_apart() -> None:
    """Calls of several replies, or of one, with the same id: each has its own id and the result that came after it."""
    talk = [
        ai(tool_calls=[call("1")]),
        tool_result("1", "first"),
        ai(tool_calls=[call("1"), call("1")]),
        tool_result("1", "second"),
        tool_result("1", "third"),
        tool_result("1", "too many"),
    ]
    made = paired(talk)
    assert texts(made) == ["ai(1)", "result 1", "ai(1_2 1_3)", "result 1_2", "result 1_3"]
    assert [message.text for message in made if message.role == "tool"] == ["first", "second", "third"]


async def test_a_result_before_its_call_is_put_after_it() -> None:
    """A result that stands before its call is that of the call."""
    made = paired([tool_result("1", "early"), human("hm"), ai(tool_calls=[call("1")])])
    assert texts(made) == ["hm", "ai(1)", "result 1"]
    assert made[2].text == "early"


CALLS = st.lists(st.sampled_from("abcd"), max_size=3)
MESSAGES = st.one_of(
    st.builds(human, st.sampled_from(["hello", "and?"])),
    st.builds(system, st.just("rules")),
    st.builds(lambda ids: ai("text", tool_calls=[ToolCall(id=one, name="look") for one in ids]), CALLS),
    st.builds(tool_result, st.sampled_from("abcd"), st.sampled_from(["x", "y"])),
)


def check_paired(messages: Sequence[Message]) -> None:
    """Fail unless each call has one result, next to it, in call order, under an id that no other call has."""
    rest = list(messages)
    ids: list[str] = []
    while rest:
        message = rest.pop(0)
        assert message.role != "tool"
        for one in message.tool_calls:
            assert rest
            assert rest.pop(0).tool_call_id == one.id
            ids.append(one.id)
    assert len(ids) == len(set(ids))


@given(st.lists(MESSAGES, max_size=12))
def test_every_conversation_can_be_paired(messages: list[Message]) -> None:
    """Whatever was cut, edited or put elsewhere: each call has one result, next to it; all else is as it was."""
    before = [message.model_copy(deep=True) for message in messages]
    made = paired(messages)
    check_paired(made)
    assert messages == before
    assert [one.id for one in made if one.role != "tool"] == [one.id for one in messages if one.role != "tool"]
    known = {one.id for one in messages}
    assert all(one.id in known or one.text == LOST for one in made)
    assert paired(made) == made


@given(st.lists(MESSAGES, max_size=12), st.integers(1, 6), st.booleans(), st.data())
def test_every_request_is_paired(messages: list[Message], most: int, has_tokens: bool, data: Any) -> None:
    """A budget and reminders above a node leave each request paired, with the newest message of a person."""
    with ScriptedModel(["fine"]) as model:
        limits = {"tokens": most * 8} if has_tokens else {"messages": most}
        inner = ContextBudget("budget", AgentLLMNode("think", model=model), **limits)
        made = Agent(Reminders("remind", inner, remind="be kind"), state_schema=Talk)
        made.run_sync({"messages": messages})
    sent = asked(model)
    check_paired(sent)
    people = [one for one in messages if one.role == "human"]
    assert not people or people[-1] in sent
    assert [one for one in messages if one.role == "system"] == [one for one in sent if one.role == "system"]
    assert sent[-1].text == "<reminder>\nbe kind\n</reminder>"
    assert list(made.state.messages[:-1]) == messages


# Reminders


async def test_nothing_to_remind_of_changes_nothing() -> None:
    """None, an empty text and an empty list are no reminders."""
    for nothing in (None, "", []):
        sent = await request(lambda think, due=nothing: Reminders("r", think, remind=lambda _: due), human("hello"))
        assert texts(sent) == ["hello"]


async def test_a_late_projection_sees_what_others_have_left() -> None:
    """Wherever it stands it comes after those that are not late; of several that are, the nearest is first."""

    class Counting(RequestProjection):
        is_late = True

        def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
            return replace(request, messages=[*request.messages, human(f"{self.name} saw {len(request.messages)}")])

    def wrap(think: Any) -> Any:
        inner = Reminders("r", Counting("nearest", think), remind="be kind")
        return Counting("farthest", ContextBudget("b", inner, messages=2))

    sent = await request(wrap, human("a"), ai("b"), human("c"))
    assert texts(sent)[-3:] == ["<reminder>\nbe kind\n</reminder>", "nearest saw 2", "farthest saw 3"]


# The budget


async def test_a_reply_and_its_results_stay_or_go_together() -> None:
    """Where there is room for a part of a reply with its results only, all of it goes."""
    talk = [
        human("hello"),
        ai(tool_calls=[call("1"), call("2")]),
        tool_result("1", "a"),
        tool_result("2", "b"),
        ai("x"),
    ]
    for most, left in ((4, ["hello", "x"]), (5, ["hello", "ai(1 2)", "result 1", "result 2", "x"])):
        assert texts(await request(lambda think, most=most: ContextBudget("b", think, messages=most), *talk)) == left


async def test_tokens_are_counted() -> None:
    """`tokens` limits what `count` returns; by default four characters are a token, and a picture counts for more."""
    talk = [human("a"), human("b"), human("c")]
    sent = await request(lambda think: ContextBudget("b", think, tokens=20, count=lambda _: 10), *talk)
    assert texts(sent) == ["b", "c"]
    assert tokens_of(human("x" * 400)) == 104
    assert tokens_of(human(["x", ImagePart(url="https://x/y.png")])) > 1000


async def test_a_summary_stands_for_what_is_left_out() -> None:
    """`summary` is a text, or a function of the snapshot and of what is left out; it stands after the system prompt."""

    def summary(state: Talk, left_out: Sequence[Message]) -> str:
        return f"{state.topic}: {len(left_out)}"

    talk = [system("rules"), human("a"), ai("b"), human("c")]
    sent = await request(lambda think: ContextBudget("b", think, messages=2, summary=summary), *talk, topic="sea")
    assert texts(sent) == ["rules", "<summary>\nsea: 2\n</summary>", "c"]
    sent = await request(lambda think: ContextBudget("b", think, messages=9, summary=summary), *talk)
    assert texts(sent) == ["rules", "a", "b", "c"]


async def test_a_person_speaks_first() -> None:
    """Where a reply would come first, a note takes the place of what is left out: providers want a person first."""
    sent = await request(lambda think: ContextBudget("b", think, messages=2), human("a"), ai("b"), human("c"))
    assert texts(sent) == ["<summary>\nEarlier messages of this conversation are left out.\n</summary>", "b", "c"]


async def test_a_reminder_is_no_message_of_a_person() -> None:
    """What an inner projection has added stays, and the newest message of a person stays beside it."""
    sent = await request(
        lambda think: ContextBudget("b", Reminders("r", think, remind="be kind"), messages=1), human("a"), human("b")
    )
    assert texts(sent) == ["b", "<reminder>\nbe kind\n</reminder>"]


async def test_limits_may_follow_the_state() -> None:
    """`messages` and `tokens` may be functions of the snapshot."""
    sent = await request(
        lambda think: ContextBudget("b", think, messages=lambda state: len(state.topic)),
        human("a"),
        human("b"),
        topic="x",
    )
    assert texts(sent) == ["b"]


# Projections of one's own


def shout(request: ModelRequest, snapshot: Talk) -> ModelRequest:
    """Add what the topic is."""
    return replace(request, messages=[*request.messages, human(f"{snapshot.topic}!")])


async def test_projections_are_applied_from_the_nearest_up() -> None:
    """A request passes the nearest projection first, whatever other nodes are between; the check comes last."""

    class Cut(RequestProjection):
        def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
            return replace(request, messages=request.messages[1:])

    sent = await request(
        lambda think: Cut("cut", Invert("i", Invert("j", RequestProjection("p", think, project=shout)))),
        ai(tool_calls=[call("1")]),
        tool_result("1", "x"),
        topic="sea",
    )
    assert texts(sent) == ["sea!"]


async def test_a_projection_cannot_write() -> None:
    """A projection that writes is an error that names its path, and nothing is asked."""

    class Bad(RequestProjection):
        def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
            self.write_state({"topic": "x"})
            return request

    made = agent(Bad("bad", AgentLLMNode("think", model=ScriptedModel())))
    with pytest.raises(RunError, match="node 'bad' may not write while it is only looked at"):
        await run(made, human("hello"))


async def test_what_a_projection_returns_is_checked() -> None:
    """Anything but a request is an error with the path; a missing or async function is a SetupError."""
    think = AgentLLMNode("think", model=ScriptedModel())
    made = agent(RequestProjection("p", think, project=lambda request, _: request.messages))  # type: ignore[arg-type]  # the fault
    with pytest.raises(RunError, match=r"node 'p': project\(\) has to return a ModelRequest, not list"):
        await run(made, human("hello"))
    with pytest.raises(SetupError, match=r"RequestProjection\(\"p\", child, project=...\) takes a function"):
        RequestProjection("p", AgentLLMNode("think", model=ScriptedModel()))
    with pytest.raises(SetupError, match="limits nothing"):
        ContextBudget("b", AgentLLMNode("think", model=ScriptedModel()))


async def test_a_summary_is_a_text() -> None:
    """A function that returns something else is an error with the path; an async one is refused at once."""

    async def later(state: Any, left_out: Any) -> str:
        return "x"

    with pytest.raises(SetupError, match=r"summary=...\) is called inside the pass, where nothing is awaited"):
        ContextBudget("b", AgentLLMNode("think", model=ScriptedModel()), messages=1, summary=later)  # type: ignore[arg-type]  # the fault
    node = ContextBudget("b", AgentLLMNode("think", model=ScriptedModel()), messages=1, summary=lambda _, left: left)  # type: ignore[arg-type,return-value]  # the fault
    with pytest.raises(RunError, match=r"node 'b': the function given as .* has to return a text or None, not list"):
        await run(agent(node), human("a"), human("b"))


async def test_simple_nodes_and_several_nodes_are_projected() -> None:
    """All nodes below that ask a model are projected, SimpleLLMNode too."""
    with ScriptedModel(["a", "b"]) as model:
        nodes = [SimpleLLMNode("one", model=model, prompt="topic"), AgentLLMNode("two", model=model)]
        made = agent(Reminders("r", InOrder("s", memory=True, children=nodes), remind="be kind"))
        await run(made, human("hello"), topic="sea")
    assert [texts(one.messages)[-1] for one in model.requests] == ["<reminder>\nbe kind\n</reminder>"] * 2


async def test_a_projection_ends_at_an_agent_that_is_a_node() -> None:
    """What is outside of an agent used as a node is not seen by the requests inside."""
    with ScriptedModel(["a"]) as model:
        inner = agent(AgentLLMNode("think", model=model))
        node = inner.as_node("inner", inputs={"messages": "messages"})
        await run(agent(Reminders("r", node, remind="secret")), human("hello"))
    assert texts(asked(model)) == ["hello"]


async def test_a_projection_is_told_of_a_request_that_failed() -> None:
    """Each above is told why, and may write, whether the node fails or raises; of one that succeeded it is not told."""
    failed: list[str] = []

    class Noted(RequestProjection):
        def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
            return request

        def on_failed(self, error: ModelError) -> None:
            failed.append(f"{self.name}: {error}")
            self.write_state({"topic": type(error).__name__})

    for error in (ModelRefusedError("no"), BadRequestError("bad")):
        with ScriptedModel(["fine", error]) as model:
            nodes = [AgentLLMNode(name, model=model) for name in ("one", "two")]
            both = Noted("outer", Noted("inner", InOrder("both", memory=True, children=nodes)))
            made = agent(both)
            if isinstance(error, BadRequestError):
                with pytest.raises(BadRequestError):
                    await run(made, human("hello"))
            else:
                assert await run(made, human("hello")) is FAILURE
        assert made.state.topic == type(error).__name__
    assert failed == ["inner: no", "outer: no", "inner: bad", "outer: bad"]
