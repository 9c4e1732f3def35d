"""A conversation with an agent: turns, questions and threads. It knows no screen, and runs on asyncio and trio.

1. One turn at a time. Its events are collected in whatever thread they come, and read on the loop by `drain`.
2. What a turn raises is told in the transcript; a turn that was refused before it began has changed nothing.
3. A new message to a thread whose run is unfinished gives that run up (`on_new_input="withdraw"`).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, cast  # Any: agents of every schema

from anyio import CancelScope
from py_trees.common import Status
from pydantic import BaseModel, JsonValue

from jianmu.agent import Agent
from jianmu.engine.checkpoint import Checkpointer
from jianmu.engine.events import Answered, Event, NodeFinished, NodeHalted, NodeStarted, RunStarted, StateChanged
from jianmu.engine.interaction import Answer, Record, Suspension
from jianmu.engine.outcome import Outcome
from jianmu.engine.typefit import fits
from jianmu.errors import (
    JianmuError,
    LimitExceeded,
    SetupError,
    StateError,
    ThreadBusyError,
    UnknownSuspensionError,
    UnknownThreadError,
)
from jianmu.message import Message, human
from jianmu.terminal.blocks import short
from jianmu.terminal.telling import failure, told
from jianmu.terminal.transcript import Transcript

AnyAgent = Agent[Any]
Standing = Literal["new", "over", "waits", "cut", "busy"]
"""How a thread stands: nothing was said, its run is over, waits for answers, was cut short, or is somebody else's."""
STANDS: dict[str, Standing] = {"suspended": "waits", "interrupted": "cut", "running": "cut"}
FIELD = "messages"
STOPPED = "Stopped. What the model was saying is not part of the conversation."
GO_ON = "\nCtrl-G goes on with the turn; a new message gives it up."


class Conversation:
    """A conversation with an agent.

    Args:
        agent: whom to talk with; its state has `messages`.
        thread_id: the thread; None: a new one.

    Attributes:
        transcript: what is shown of it.
        thread_id: the thread.
        is_on: whether a turn is on.
        is_busy: whether another program had the thread when it was last looked at.
        is_new: whether nothing was said in this thread.
        has_moved: whether a node has moved since this was set to False.

    Raises:
        SetupError: the state has no `messages`.
    """

    def __init__(self, agent: AnyAgent, thread_id: str | None = None) -> None:
        check_agent(agent)
        self.agent = agent
        self.transcript = Transcript()
        self.thread_id = thread_id or new_thread_id()
        self.is_on = self.is_busy = False
        self.is_new = True
        self.has_moved = False
        self._is_stopped = self._has_begun = False
        self._scope = CancelScope()
        self._news: deque[tuple[Event, Sequence[Message] | None]] = deque()
        self._forget = agent.runner.context.events.add(self._hear)

    def close(self) -> None:
        """Listen to the agent no more."""
        self._forget()

    @property
    def store(self) -> Checkpointer | None:
        """Where threads are kept."""
        return self.agent.store

    @property
    def state(self) -> BaseModel | None:
        """The snapshot of the state; None where this thread has none yet."""
        try:
            return None if self.is_new and not self.is_on else self.agent.state
        except JianmuError:
            return None

    @property
    def questions(self) -> tuple[Suspension, ...]:
        """The open questions of the turn that is on; not those of another program that has the thread."""
        return self.agent.interaction.pending if self.is_on and self._has_begun else ()

    # Threads

    async def open(self, thread_id: str) -> Standing:
        """Show a thread and return how it stands; nothing is run.

        Raises:
            JianmuError: it cannot be read, or does not fit the agent; all is as before.
        """
        standing: Standing = "new"
        try:
            await self.agent.load(thread_id)
            standing = await self._standing(thread_id)
        except UnknownThreadError:
            pass
        self._begin(thread_id, is_new=standing == "new")
        self.is_busy = standing == "busy"
        if standing != "new":
            self._sync(self._messages(), is_whole=True)
        return standing

    def begin(self) -> None:
        """Begin a new thread; it is made when something is said."""
        self._begin(new_thread_id(), is_new=True)

    def _begin(self, thread_id: str, *, is_new: bool) -> None:
        self._news.clear()
        self.transcript.clear()
        self.thread_id, self.is_new, self.is_busy = thread_id, is_new, False
        self.has_moved = True

    async def _standing(self, thread_id: str) -> Standing:
        if self.store is None:
            return "over"
        row = await self.store.thread(thread_id)
        if row is None:
            return "over"
        if row.status == "running" and not row.is_held and self.agent.interaction.pending:
            return "waits"  # its process died while somebody was asked
        return "busy" if row.is_held else STANDS.get(row.status, "over")

    # Turns

    async def send(self, text: str) -> bool:
        """Say something and wait until the turn is over.

        Returns:
            Whether it is in the conversation; else the transcript says why not.
        """
        message = human(text)
        await self._turn(self._send, message)
        return any(one.id == message.id for one in reversed(self._messages()))

    async def go_on(self) -> bool:
        """Go on with a turn that waits or was cut short; return whether there was one."""
        call = partial(self.agent.recover, self.thread_id, until_suspend=False)
        return await self._turn(self._recover, call)

    def stop(self) -> None:
        """End the turn that is on; the conversation stays valid."""
        if self.is_on:
            self._is_stopped = True
            self.agent.halt("stopped in the chat")

    def leave(self) -> None:
        """End the turn that is on, to go on with it later: one that only waits for answers stays as it is."""
        self._scope.cancel()

    async def answer(
        self, id: str, payload: JsonValue = None, action: Literal["accept", "decline", "cancel"] = "accept"
    ) -> None:
        """Answer a question of the turn.

        Raises:
            InteractionError: the answer was refused.
        """
        await self.agent.interaction.answer(Answer(id, payload, action=action))

    async def _send(self, message: Message) -> Status:
        given: Sequence[Message] = [message]
        if not self.agent.state_manager.has_reducer(FIELD):
            given = [*([] if self.is_new else self._messages()), message]
        fields = {FIELD: given}
        return await self.agent.run(fields, thread_id=self.thread_id, on_new_input="withdraw")

    async def _recover(self, call: Callable[[], Awaitable[Outcome]]) -> Status:
        outcome = await call()
        if outcome.limit is not None:
            raise LimitExceeded(f"the run has used up its limit '{outcome.limit}'", limit=outcome.limit)
        return outcome.status

    async def _turn(self, work: Callable[..., Awaitable[Status]], *given: object) -> bool:
        """Carry out a turn, and tell how it ended."""
        self.is_on, self._is_stopped = True, False
        self._has_begun = self.is_busy = False
        try:
            with CancelScope() as self._scope:
                self._tell(await work(*given))
        except Exception as error:  # noqa: BLE001  # whatever an agent raises is told, and the chat goes on
            self._settle()
            self.is_busy = isinstance(error, ThreadBusyError)
            self.transcript.note(told(error), "error")
            return self._has_begun
        finally:
            self.is_on = False
            self.transcript.leave()
        return self._has_begun

    def _tell(self, status: Status) -> None:
        """Show what came last, and say how the turn ended if it has not succeeded."""
        self._settle()
        if self._is_stopped:
            self.transcript.note(STOPPED if self.store is None else STOPPED + GO_ON, "warning")
        elif status is Status.FAILURE:
            self.transcript.note(failure(self.agent.root), "error")
        elif status is Status.INVALID:
            self.transcript.note("The run was halted.", "warning")

    # Events

    def _hear(self, event: Event) -> None:
        """Take an event, and the conversation as it is at that time; called in any thread, inside of commits."""
        self._has_begun |= isinstance(event, RunStarted)
        is_said = isinstance(event, StateChanged) and FIELD in event.fields
        self._news.append((event, self._messages() if is_said else None))

    def drain(self) -> None:
        """Show what has happened since the last call."""
        while self._news:
            event, messages = self._news.popleft()
            record = self._record(event.id) if isinstance(event, Answered) else None
            if record is not None:
                self.transcript.ask(record.question)  # it may have been asked in another process
            self.transcript.take(event)
            if record is not None and record.answer is not None:
                answer = record.answer
                text = said(answer.payload) if answer.action == "accept" else answer.action
                self.transcript.say_answer(record.id, text)
            self.has_moved |= isinstance(event, NodeStarted | NodeFinished | NodeHalted)
            if messages is not None and event.thread_id == self.thread_id:
                self._sync(messages)
        for question in self.questions:
            self.transcript.ask(question)

    def _record(self, id: str) -> Record | None:
        """Return a question with its answer, if it is known here."""
        try:
            return self.agent.interaction.record(id)
        except UnknownSuspensionError:
            return None

    def _settle(self) -> None:
        """Show the conversation as it is when a turn is over."""
        self.drain()
        self.has_moved = True
        if self.agent.thread_id == self.thread_id:
            self._sync(self._messages(), is_whole=True)

    def _sync(self, messages: Sequence[Message], *, is_whole: bool = False) -> None:
        self.is_new = False
        self.transcript.sync(messages, is_whole=is_whole)

    def _messages(self) -> Sequence[Message]:
        try:
            return cast("Sequence[Message]", self.agent.state_manager.read(FIELD) or ())
        except StateError:  # a field that was never written
            return ()


def check_agent(agent: AnyAgent) -> None:
    """Refuse an agent with which nobody can talk.

    Raises:
        SetupError: its state has no `messages`.
    """
    schema = agent.state_manager.schema
    if not fits(list[Message], schema.types.get(FIELD, int)):
        raise SetupError(
            f"a chat keeps the conversation in the field messages, which {schema.model.__name__} does not have: write "
            "messages: Annotated[list[Message], operator.add] = Field(default_factory=list)"
        )


def new_thread_id() -> str:
    """Return an id for a new thread."""
    return f"chat-{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"


def said(payload: JsonValue) -> str:
    """Return an answer on one line; of an approval what was decided."""
    if isinstance(payload, dict) and isinstance(payload.get("approved"), bool):
        reason = payload.get("reason")
        return ("approved" if payload["approved"] else "rejected") + (f", {short(reason)}" if reason else "")
    return short(payload, 100)
