"""Who answers under run(): the agent's `human` is asked each question once."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from anyio.abc import TaskGroup

from jianmu.engine.controller import InteractionController
from jianmu.engine.questions import Answer, Suspension
from jianmu.errors import InteractionError, InvalidAnswerError, SetupError

Human = Callable[[Suspension], Awaitable[Any]]  # Any: the answer's own type


class Humans:
    """Asks a `human` the open questions, each in a task that ends with its question.

    Args:
        human: returns the payload, or an `Answer` where more than a payload is to be said.
        interaction: takes the answers.
        failed: told an exception of the human, which ends the run.
    """

    def __init__(
        self, human: Human, interaction: InteractionController, failed: Callable[[BaseException], None]
    ) -> None:
        self._human = human
        self._interaction = interaction
        self._failed = failed
        self._asked: dict[str, anyio.CancelScope] = {}

    def look(self, pending: Sequence[Suspension], group: TaskGroup | None) -> None:
        """Ask what is new, unless it waits for no person; stop asking what somebody else has settled."""
        open_ids = {question.id for question in pending}
        for id in [id for id in self._asked if id not in open_ids]:
            self._asked.pop(id).cancel()
        for question in pending:
            if group is not None and question.id not in self._asked and question.reason != "wait":
                scope = self._asked[question.id] = anyio.CancelScope()
                group.start_soon(self._ask, question, scope)

    def dismiss(self) -> None:
        """Stop asking."""
        for scope in self._asked.values():
            scope.cancel()
        self._asked.clear()

    async def _ask(self, question: Suspension, scope: anyio.CancelScope) -> None:
        """Ask one question and hand the answer in."""
        with scope:
            try:
                said = await _awaitable(self._human(question))
                await self._interaction.answer(said if isinstance(said, Answer) else Answer(question.id, said))
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
