"""Asks a run's open questions at the terminal, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol  # Any: agents of every schema

import anyio
from pydantic import JsonValue

from jianmu.agent import Agent
from jianmu.cli.faults import describe
from jianmu.cli.forms import Form, form_of
from jianmu.cli.keyboard import Keyboard, NoMoreInputError
from jianmu.draw.outline import one_line, printable
from jianmu.engine.events import Answered, Asked, Event, RunStarted
from jianmu.engine.interaction import Answer, Suspension
from jianmu.errors import InteractionError, InvalidAnswerError, StoreError

Show = Callable[[Suspension], list[str]]


class Stage(Protocol):
    """Where questions are shown; whatever else is shown there stands still in between."""

    def pause(self, lines: list[str]) -> None:
        """Stop, and show what leads to a prompt."""
        ...

    async def ask(self, keyboard: Keyboard, prompt: str) -> str:
        """Return what is typed after a prompt."""
        ...

    def reject(self, why: str) -> None:
        """Say why what was typed is no answer."""
        ...

    def remember(self, line: str) -> None:
        """Show a line when it goes on."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...


class Asker:
    """Asks whatever is open, the oldest first, and hands the answers in.

    Args:
        agent: whose questions.
        stage: where to show them.
        keyboard: where the answers are typed.
        show: returns the lines that show a question.

    Attributes:
        is_over: whether the input has ended; questions stay open.
    """

    def __init__(self, agent: Agent[Any], stage: Stage, keyboard: Keyboard, show: Show | None = None) -> None:
        self.is_over = False
        self._agent = agent
        self._stage = stage
        self._keyboard = keyboard
        self._show = show or shown
        self._asked = anyio.Event()
        self._scope = anyio.CancelScope()
        self._current: str | None = None

    def take(self, event: Event) -> None:
        """Take note of a question, or of the end of the one that is being asked."""
        if isinstance(event, (Asked, RunStarted)):  # a run that goes on has questions that are asked no more
            self._asked.set()
        if isinstance(event, Answered) and event.id == self._current:
            self._scope.cancel()

    async def work(self) -> None:
        """Ask until the input ends; then have the run halted, its questions left open."""
        try:
            while True:
                await self._ask_all()
                await self._asked.wait()
                self._asked = anyio.Event()
        except NoMoreInputError:
            self.is_over = True
            self._agent.halt("no more input")

    async def _ask_all(self) -> None:
        while (question := self._agent.interaction.suspension) is not None:
            form = form_of(question.response_schema)
            lines = [*self._show(question), *map(one_line, form.options)]
            prompt = f"{lines.pop()} {form.prompt}" if form.is_inline else form.prompt
            self._stage.pause(lines)
            try:
                await self._ask(question, form, prompt)
            finally:
                self._stage.resume()

    async def _ask(self, question: Suspension, form: Form, prompt: str) -> None:
        """Ask one question until its answer is taken, or it is settled elsewhere."""
        self._current = question.id
        with anyio.CancelScope() as self._scope:
            while not await self._is_answered(question, form, prompt):
                pass
        self._current = None
        if self._scope.cancelled_caught:
            self._keyboard.forget()  # half a line must not become the answer to another question
            status = self._agent.interaction.record(question.id).status
            self._stage.remember(f"? {one_line(question.path)}: {status} meanwhile")

    async def _is_answered(self, question: Suspension, form: Form, prompt: str) -> bool:
        """Read one line; whether the question is answered by it, or takes no answer any more."""
        line = await self._stage.ask(self._keyboard, prompt)
        try:
            answer = form.parse(line)
        except (ValueError, RecursionError):
            self._stage.reject(form.wanted)
            return False
        return await self._is_taken(question, answer)

    async def _is_taken(self, question: Suspension, answer: JsonValue) -> bool:
        self._current = None  # the event of this very answer must not cancel the answering
        try:
            await self._agent.interaction.answer(Answer(question.id, answer))
        except InvalidAnswerError as refused:
            self._stage.reject(refusal(refused))
            self._current = question.id
            return False
        except StoreError as refused:
            self._stage.reject(describe(refused))
            self._current = question.id
            return False
        except InteractionError as refused:
            self._stage.reject(one_line(str(refused)))
        return True


def refusal(error: InvalidAnswerError) -> str:
    """Return what is wrong with an answer, without the question's id."""
    return one_line(str(error).partition(" was refused: ")[2] or str(error))


def shown(question: Suspension) -> list[str]:
    """Return a question as a person reads it: who asks, what belongs to it, and the message last."""
    lines = [f"? {one_line(question.path)}"]
    if question.assignee:
        lines.append(f"  for: {one_line(question.assignee)}")
    if question.expires_at is not None:
        lines.append(f"  until: {question.expires_at.astimezone():%Y-%m-%d %H:%M:%S}")
    return [*lines, *_data(question.data), *(printable(question.message).splitlines() or [""])]


def _data(data: JsonValue) -> list[str]:
    """Return the lines of what is shown beside a message."""
    if data is None:
        return []
    if isinstance(data, dict):
        return [f"  {one_line(key)}: {_value(value)}" for key, value in data.items()]
    return [f"  {line}" for line in printable(json.dumps(data, ensure_ascii=False, indent=1)).splitlines()]


def _value(value: JsonValue) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
