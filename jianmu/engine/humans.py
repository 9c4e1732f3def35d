"""Who answers under run(): the agent's `human` is asked each question once; without one the log says that it waits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup

from jianmu.engine.context import RunContext
from jianmu.engine.questions import Answer, Suspension
from jianmu.errors import InteractionError, InvalidAnswerError, SetupError

Human = Callable[[Suspension], Awaitable[Any]]  # Any: the answer's own type


class Humans:
    """Asks a `human` the open questions, each in a task that ends with its question.

    Args:
        human: returns the payload, or an `Answer` where more than a payload is to be said; None: there is nobody.
        context: whose questions are asked, and takes the answers.
        failed: told an exception of the human, which ends the run.
    """

    def __init__(self, human: Human | None, context: RunContext, failed: Callable[[BaseException], None]) -> None:
        self._human = human
        self._context = context
        self._failed = failed
        self._asked: dict[str, anyio.CancelScope] = {}
        self._missed = set[str]()

    def look(self, pending: Sequence[Suspension], group: TaskGroup | None) -> None:
        """Ask what is new, unless it waits for no person; stop asking what somebody else has settled."""
        open_ids = {question.id for question in pending}
        for id in [id for id in self._asked if id not in open_ids]:
            self._asked.pop(id).cancel()
        for question in pending:
            if group is not None and question.id not in self._asked and question.reason != "wait":
                scope = self._asked[question.id] = anyio.CancelScope()
                group.start_soon(self._ask, question, scope)

    def miss(self) -> None:
        """Say of questions for which alone the run waits, and which nobody is asked, what can be done about them."""
        for question in () if self._human is not None else self._context.interaction.pending:
            if question.id not in self._missed and question.reason != "wait":
                self._missed.add(question.id)
                self._context.log_at(question.path).info(
                    "a question waits, and run() has nobody to ask: give Agent(human=...), or call run_until_suspend()"
                )

    def dismiss(self) -> None:
        """Stop asking."""
        self._missed.clear()
        for scope in self._asked.values():
            scope.cancel()
        self._asked.clear()

    async def _ask(self, question: Suspension, scope: anyio.CancelScope) -> None:
        """Ask one question and hand the answer in."""
        assert self._human is not None
        with scope:
            try:
                said = await _awaitable(self._human(question))
                await self._context.interaction.answer(said if isinstance(said, Answer) else Answer(question.id, said))
            except InvalidAnswerError as wrong:
                self._failed(wrong)
            except InteractionError:
                return  # settled by somebody else meanwhile
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  # it ends the run, not this group
                self._failed(error)


def _awaitable(said: Any) -> Awaitable[Any]:  # Any: the answer's own type
    """Return what a human returned, if it can be awaited."""
    if not inspect.isawaitable(said):
        raise SetupError(f"human= returned {type(said).__name__}: write `async def human(question)`")
    return said
