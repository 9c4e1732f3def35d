"""Whatever is cancelled, asked, answered, edited, loaded or given up: conversations stay what models take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.engine.questions import Answer, Suspension
from jianmu.engine.request import Request
from jianmu.errors import UnknownThreadError
from jianmu.message import Message, human
from jianmu.model import ModelRequest
from jianmu.nodes import AskHuman
from jianmu.prebuilt import delegate, react_agent
from jianmu.stores import MemoryStore
from jianmu.testing import ScriptedModel
from jianmu.tool import Tool, ToolCall
from tests.conftest import FULL
from tests.prebuilt.test_delegate import Inner, about

KINDS = ["quick", "slow", "bad", "asks", "approve", "delegate", "unknown", "raw", "twice"]
REPLIES = st.lists(st.lists(st.sampled_from(KINDS), max_size=4), max_size=6)
WHEN = st.sampled_from([None, None, 0.0, 0.5, 1.0, 1.5])
STEP = st.one_of(
    st.tuples(st.just("say"), WHEN),
    st.tuples(st.just("recover"), WHEN),
    st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from(["yes", "no", "edit", "decline", "withdraw"])),
    st.tuples(st.just("load")),
)


def check(messages: Sequence[Message]) -> None:
    """Fail unless each call has one result, next to it, in call order, and no result is without a call."""
    left: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert left, messages
            assert message.tool_call_id == left.pop(0), messages
            continue
        assert left == [], messages
        left = [call.id for call in message.tool_calls]
        assert len({*left}) == len(left), messages
    assert left == [], messages


class Story:
    """A model with a plan, an agent, and what is done with it.

    Args:
        replies: the calls of each reply; one that has none, and all after the last, are answers.
    """

    def __init__(self, replies: list[list[str]]) -> None:
        self.replies = [*replies]
        self.requests = 0
        self.clock = VirtualClock(autojump=True)
        self.agent = self.make()

    def speak(self, request: ModelRequest) -> Any:
        """Check the request, and say what is next."""
        check(request.messages)
        self.requests += 1
        kinds = self.replies.pop(0) if self.replies else []
        return [self.call(place, kind) for place, kind in enumerate(kinds)] or "done"

    def call(self, place: int, kind: str) -> ToolCall:
        """Return a call of a kind."""
        id = f"{self.requests}.{0 if kind == 'twice' else place}"
        if kind == "raw":
            return ToolCall.parse(id, "quick", '{"topic"')
        return ToolCall(id=id, name="quick" if kind == "twice" else kind, arguments={"topic": id})

    def make(self) -> Agent[Any]:
        """Return an agent as a new process would have it."""

        async def work(topic: str) -> str:
            await self.clock.sleep(1)
            return topic

        async def asks(topic: str, context: NodeContext) -> str:
            return f"{topic}: {await context.ask(Request('?'), key='ask')}"

        def bad(topic: str) -> str:
            raise ValueError(topic)

        def quick(topic: str) -> str:
            return topic

        tools: list[Any] = [Tool(quick), Tool(work, name="slow"), Tool(bad), Tool(asks)]
        tools.append(Tool(work, name="approve", requires_approval=True))
        tree = lambda: AskHuman("ask", message="?", into="answer")  # noqa: E731  # built anew for each agent
        tools.append(delegate("delegate", tree, state_schema=Inner, arguments=about, result="answer"))
        model = ScriptedModel([self.speak] * 1000)
        return react_agent(model, tools, clock=self.clock, act={"limit": 2}, on_new_input="withdraw")

    async def do(self, step: tuple[Any, ...]) -> None:
        """Do what is next."""
        what = step[0]
        if what == "say":
            await self.until(step[1], lambda: self.say("go on"))
        elif what == "recover" and self.agent.thread_id is not None:
            await self.until(step[1], self.recover)
        elif what == "answer" and self.agent.interaction.pending:
            pending = self.agent.interaction.pending
            await self.answer(pending[step[1] % len(pending)], step[2])
        elif what == "load" and self.agent.thread_id is not None:
            data = self.agent.dump_checkpoint()
            self.agent = self.make()
            self.agent.load_checkpoint(data)

    async def say(self, text: str) -> Any:
        """Say something, on the one thread."""
        return await self.agent.run_until_suspend({"messages": [human(text)]}, thread_id="t")

    async def recover(self) -> None:
        """Go on, if there is anything to go on with: a run that was cancelled at once has not begun."""
        with suppress(UnknownThreadError):
            await self.agent.recover()

    async def until(self, when: float | None, work: Any) -> None:
        """Do something, and cancel it after so many seconds."""
        async with anyio.create_task_group() as group:

            async def whole() -> None:
                await work()
                group.cancel_scope.cancel()

            group.start_soon(whole)
            if when is not None:
                await self.clock.sleep(when)
                group.cancel_scope.cancel()

    async def answer(self, question: Suspension, how: str) -> None:
        """Answer a question."""
        interaction, is_approval = self.agent.interaction, question.reason == "approval"
        if how == "withdraw":
            await interaction.withdraw(question.id)
        elif how == "decline":
            await interaction.answer(Answer(question.id, action="decline"))
        elif not is_approval:
            await interaction.answer(Answer(question.id, how))
        elif how == "edit":
            await interaction.approve(question.id, edited={"topic": "edited"})
        else:
            await interaction.answer(Answer(question.id, how == "yes"))

    async def end(self) -> None:
        """Say one more thing, answer all that is asked, and look at the conversation."""
        outcome = await self.say("end")
        while outcome.suspended:
            for question in outcome.suspensions:
                await self.answer(question, "yes")
            outcome = await self.agent.recover()
        assert outcome.status is Status.SUCCESS
        assert self.agent.state.messages[-1].text == "done"


class Stored(Story):
    """The same with a store: a load is another agent on the thread."""

    def __init__(self, replies: list[list[str]]) -> None:
        self.store = MemoryStore()
        super().__init__(replies)

    def make(self) -> Agent[Any]:
        """Return an agent on the store."""
        made = super().make()
        made.attach(self.store)
        return made

    async def do(self, step: tuple[Any, ...]) -> None:
        """Do what is next, on the thread."""
        with suppress(UnknownThreadError):
            if step[0] == "load":
                self.agent = self.make()
            else:
                await self.agent.load("t")
        await super().do(step if step[0] != "load" else ("nothing",))

    async def end(self) -> None:
        """End as ever; all calls are paired in the state itself."""
        await super().end()
        check(self.agent.state.messages)


async def live_stored(replies: list[list[str]], steps: list[tuple[Any, ...]]) -> None:
    """Live through a story with a store."""
    await live(replies, steps, Stored)


async def live(replies: list[list[str]], steps: list[tuple[Any, ...]], kind: type[Story] = Story) -> None:
    """Live through a story."""
    story = kind(replies)
    with anyio.fail_after(20):
        for step in steps:
            await story.do(step)
        await story.end()


def test_requests_are_paired_on_asyncio() -> None:
    """Each request that leaves has one result next to each call, whatever has been; and the agent can go on."""

    @settings(max_examples=400 if FULL else 30)
    @given(REPLIES, st.lists(STEP, max_size=8))
    def law(replies: list[list[str]], steps: list[tuple[Any, ...]]) -> None:
        anyio.run(live, replies, steps)

    law()


def test_requests_are_paired_on_trio() -> None:
    """The same on trio."""

    @settings(max_examples=400 if FULL else 15)
    @given(REPLIES, st.lists(STEP, max_size=8))
    def law(replies: list[list[str]], steps: list[tuple[Any, ...]]) -> None:
        anyio.run(live, replies, steps, backend="trio")

    law()


@settings(max_examples=400 if FULL else 20)
@given(REPLIES, st.lists(STEP, max_size=8))
@example([["slow", "asks"]], [("say", 0.5)])
def test_conversations_in_a_store_are_paired(replies: list[list[str]], steps: list[tuple[Any, ...]]) -> None:
    """With a store the conversation itself has one result next to each call, whatever has been."""
    anyio.run(live_stored, replies, steps)


@settings(max_examples=400 if FULL else 20)
@given(st.lists(st.sampled_from(["quick", "slow", "bad", "unknown", "raw", "twice"]), min_size=1, max_size=8))
def test_n_calls_have_n_results_in_their_order(kinds: list[str]) -> None:
    """A reply with n calls is followed by n results, the k-th that of the k-th call."""

    async def turn() -> None:
        story = Story([kinds])
        await story.agent.run({"messages": [human("go")]})
        _, reply, *results, _ = story.agent.state.messages
        assert [one.tool_call_id for one in results] == [call.id for call in reply.tool_calls]
        assert len(results) == len(kinds)

    anyio.run(turn)
