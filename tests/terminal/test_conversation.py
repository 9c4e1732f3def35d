"""Turns, questions and threads of a conversation, on asyncio and trio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from py_trees.behaviours import Success
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.limits import Limits
from jianmu.engine.request import Request
from jianmu.errors import InvalidAnswerError, SetupError, TreeMismatchError
from jianmu.message import Message, human
from jianmu.stores import MemoryStore
from jianmu.terminal.conversation import Conversation, new_thread_id, said
from tests.terminal.kit import SECONDS, Says, agent_of, blocks, echo, endless, until

pytestmark = pytest.mark.anyio


async def asking(node: Says) -> None:
    """Ask for a number, and reply with it."""
    number = await node.ask(Request("How many?", answer=int), key="number")
    node.say(f"{number} it is")


@asynccontextmanager
async def turn(talk: Conversation, begin: Callable[..., Awaitable[Any]], *given: Any) -> AsyncGenerator[None]:
    """Have a turn go on while the block runs, and see that it ends."""
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(begin, *given)
            await until(lambda: talk.is_on)
            yield
    assert not talk.is_on


async def test_a_turn_is_shown_from_what_was_said_to_the_reply() -> None:
    """The streamed text and the message are one block."""
    talk = Conversation(agent_of(), "t")
    assert await talk.send("hi")
    assert blocks(talk) == [("Said", "hi"), ("Reply", "You said: hi", "done")]
    assert [one.role for one in talk.agent.state.messages] == ["human", "ai"]


async def test_a_turn_that_is_stopped_leaves_a_valid_conversation() -> None:
    """What was broken off is shown as such and is in no message; the next turn works."""
    node = Says(endless)
    talk = Conversation(agent_of(node), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: len(blocks(talk)) == 2)
        talk.stop()
    assert blocks(talk)[1:] == [
        ("Reply", "Well, let me think", "stopped"),
        ("Note", "Stopped. What the model was saying is not part of the conversation.", "warning"),
    ]
    assert [one.role for one in talk.agent.state.messages] == ["human"]
    node.script = echo
    assert await talk.send("again")
    assert blocks(talk)[-1] == ("Reply", "You said: again", "done")


async def test_what_a_node_raises_is_told_and_the_chat_goes_on() -> None:
    """The error with its node; the next turn works."""

    async def fails(node: Says) -> None:
        node.script = echo
        raise ValueError("no key")

    talk = Conversation(agent_of(Says(fails, name="think")), "t")
    assert await talk.send("hi")
    kind, text, colour = blocks(talk)[-1]
    assert (kind, colour) == ("Note", "error")
    assert text.splitlines()[0] == "ValueError: no key"
    assert "think" in text.splitlines()[1]
    assert await talk.send("again")
    assert blocks(talk)[-1] == ("Reply", "You said: again", "done")


async def test_a_turn_that_fails_says_why() -> None:
    """The feedback of the node that failed."""

    async def fails(node: Says) -> Status:
        node.feedback_message = "the model is gone"
        return Status.FAILURE

    talk = Conversation(agent_of(fails), "t")
    assert await talk.send("hi")
    assert blocks(talk)[-1] == ("Note", "The turn failed at 'says': the model is gone", "error")


async def test_a_run_that_was_halted_by_others_says_so() -> None:
    """A halt from elsewhere is no stop of the person."""
    talk = Conversation(agent_of(endless), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: len(blocks(talk)) == 2)
        talk.agent.halt()
    assert blocks(talk)[-1] == ("Note", "The run was halted.", "warning")


async def test_a_limit_that_was_used_up_is_told() -> None:
    """Also where the run goes on after a reload."""
    talk = Conversation(agent_of(endless, limits=Limits(max_ticks=1), store=MemoryStore()), "t")
    assert await talk.send("hi")
    assert "The agent allows no more than this." in blocks(talk)[-1][1]
    await talk.go_on()
    assert blocks(talk)[-1][1].startswith("LimitExceeded: the run has used up its limit 'max_ticks'")


async def test_a_question_is_answered_and_shown_with_its_answer() -> None:
    """The turn goes on after it; a refused answer changes nothing."""
    talk = Conversation(agent_of(asking), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: talk.questions)
        (question,) = talk.questions
        with pytest.raises(InvalidAnswerError):
            await talk.answer(question.id, "many")
        assert talk.questions == (question,)
        await talk.answer(question.id, 3)
    assert blocks(talk)[1:] == [("Asking", "How many?", "answered"), ("Reply", "3 it is", "done")]
    asked = talk.transcript.blocks[1]
    assert getattr(asked, "answer", None) == "3"
    assert talk.questions == ()


async def test_what_was_decided_is_shown_in_a_word() -> None:
    """Of an approval the decision and the reason, of other answers the value."""
    assert said({"approved": True, "editedArgs": None}) == "approved"
    assert said({"approved": False, "reason": "too dear"}) == "rejected, too dear"
    assert said({"a": "x" * 1000})[-1] == "…"


async def test_a_new_message_gives_an_open_question_up() -> None:
    """The conversation goes on with the new message; the question is withdrawn."""
    node = Says(asking)
    talk = Conversation(agent_of(node, store=MemoryStore()), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: talk.questions)
        talk.stop()
    node.script = echo
    assert await talk.send("never mind")
    assert blocks(talk)[1] == ("Asking", "How many?", "withdrawn")
    assert [one.text for one in talk.agent.state.messages] == ["hi", "never mind", "You said: never mind"]


async def test_who_quits_at_a_question_finds_it_again() -> None:
    """Leaving keeps the thread suspended; opened again it goes on, and takes the answer."""
    store = MemoryStore()
    talk = Conversation(agent_of(asking, store=store), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: talk.questions)
        talk.leave()
    row = await store.thread("t")
    assert row is not None
    assert row.status == "suspended"
    other = Conversation(agent_of(asking, store=store), "t")
    assert await other.open("t") == "waits"
    assert blocks(other) == [("Said", "hi")]
    async with turn(other, other.go_on):
        await until(lambda: other.questions)
        await other.answer(other.questions[0].id, 2)
    assert blocks(other)[1:] == [("Asking", "How many?", "answered"), ("Reply", "2 it is", "done")]


async def test_a_turn_that_was_cut_short_can_be_gone_on_with() -> None:
    """A stopped thread is opened as cut; going on enters the node anew."""
    store = MemoryStore()
    talk = Conversation(agent_of(endless, store=store), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: len(blocks(talk)) == 2)
        talk.stop()
    other = Conversation(agent_of(echo, store=store), "t")
    assert await other.open("t") == "cut"
    assert await other.go_on()
    assert blocks(other) == [("Said", "hi"), ("Reply", "You said: hi", "done")]
    assert not await other.go_on()


async def test_two_chats_on_one_thread_take_turns() -> None:
    """While one has a turn the other is refused, and told so; then it goes on with all that was said."""
    store = MemoryStore()
    node = Says(endless)
    one, two = Conversation(agent_of(node, store=store), "t"), Conversation(agent_of(echo, store=store), "t")
    async with turn(one, one.send, "hi"):
        await until(lambda: len(blocks(one)) == 2)
        assert await two.open("t") == "busy"
        assert not await two.send("me too")
        assert blocks(two)[-1][1].startswith("ThreadBusyError: thread 't' is held by")
        one.stop()
    assert await two.send("and now?")
    assert [block[1] for block in blocks(two) if block[0] == "Said"] == ["hi", "and now?"]
    node.script = echo
    assert await one.send("back")
    assert [block[1] for block in blocks(one) if block[0] == "Said"] == ["hi", "and now?", "back"]


async def test_a_thread_is_shown_as_it_was_left() -> None:
    """Another agent with the same store shows the same conversation."""
    store = MemoryStore()
    await Conversation(agent_of(store=store), "t").send("hi")
    talk = Conversation(agent_of(store=store), "other")
    assert talk.state is None
    assert await talk.open("t") == "over"
    assert blocks(talk) == [("Said", "hi"), ("Reply", "You said: hi", "done")]
    assert talk.state is not None
    talk.begin()
    assert (blocks(talk), talk.state) == ([], None)
    assert await talk.send("new")
    assert [one.text for one in talk.agent.state.messages] == ["new", "You said: new"]


async def test_a_thread_that_is_not_there_is_a_new_one() -> None:
    """It is begun by the first message."""
    talk = Conversation(agent_of(store=MemoryStore()), "t")
    assert await talk.open("other") == "new"
    assert talk.is_new
    assert await talk.send("hi")
    assert talk.thread_id == talk.agent.thread_id == "other"


async def test_a_thread_of_another_agent_changes_nothing() -> None:
    """It is refused; the conversation stays as it was shown."""
    store = MemoryStore()
    talk = Conversation(agent_of(Says(asking, name="other"), store=store), "t")
    async with turn(talk, talk.send, "hi"):
        await until(lambda: talk.questions)
        talk.leave()
    mine = Conversation(agent_of(store=store), "mine")
    await mine.send("hello")
    with pytest.raises(TreeMismatchError):
        await mine.open("t")
    assert mine.thread_id == "mine"
    assert blocks(mine)[0] == ("Said", "hello")
    assert await mine.send("still here")


async def test_a_conversation_in_a_plain_list_grows_too() -> None:
    """A field without a reducer is written whole."""

    class Plain(BaseModel):
        messages: list[Message] = []

    async def silent(node: Says) -> None:
        """Say nothing."""

    talk = Conversation(agent_of(silent, schema=Plain), "t")
    assert await talk.send("one")
    assert await talk.send("two")
    assert [one.text for one in talk.agent.state.messages] == ["one", "two"]
    talk.begin()
    assert await talk.send("three")
    assert [one.text for one in talk.agent.state.messages] == ["three"]


async def test_an_agent_without_a_conversation_is_refused() -> None:
    """The error has the line to write."""
    with pytest.raises(SetupError) as raised:
        Conversation(Agent(Success("s")))
    assert "write messages: Annotated[list[Message], operator.add] = Field(default_factory=list)" in str(raised.value)


async def test_what_happens_after_the_end_is_not_heard() -> None:
    """A closed conversation keeps no events."""
    agent = agent_of()
    talk = Conversation(agent, "t")
    talk.close()
    await agent.run({"messages": [human("hi")]})
    assert blocks(talk) == []
    assert not agent.runner.context.events.is_heard


async def test_new_threads_have_names_of_their_own() -> None:
    """They say when they were begun."""
    names = {new_thread_id() for _ in range(20)}
    assert len(names) > 15
    assert all(name.startswith("chat-20") for name in names)
