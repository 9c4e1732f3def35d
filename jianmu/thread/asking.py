"""What the nodes share that ask a model for something on the side: nobody sees it come in, and no run fails for it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import Literal

import anyio

from jianmu.engine.clock import Clock
from jianmu.errors import NodeCancelledError, SetupError
from jianmu.message import Message
from jianmu.model.base import REAL, ChatModel, ModelRequest, Stream
from jianmu.nodes.inside import is_from_inside
from jianmu.nodes.replies import ModelNode
from jianmu.nodes.streaming import Shown

_THOUGHT = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)


class Nobody(ChatModel):
    """Stands for a model where none is asked."""

    name = "nobody"

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Refuse to be asked."""
        raise SetupError("nobody can be asked")


class Unheard(Shown):
    """A text that is shown and told nowhere as it comes in."""

    __slots__ = ()

    def _hear(self, piece: str, kind: Literal["text", "reasoning"]) -> None:
        """Drop a piece."""


class SideModelNode(ModelNode):
    """A node that asks a model on the side, past all projections; whatever goes wrong with that model, it goes on."""

    async def open(self) -> None:
        """Open the model, if it can be opened."""
        if error := await _problem(super().open()):
            self._tell(error)

    async def close(self) -> None:
        """Close the model, if it was opened."""
        if self._opened and (error := await _problem(super().close())):
            self._tell(error)

    async def _told(self, messages: Sequence[Message], seconds: float) -> str | None:
        """Return what the model answers, without its thoughts.

        None if it fails, answers nothing, takes longer than it may, or the run may ask no more.
        """
        answers: list[str] = []
        problems: list[Exception] = [TimeoutError(f"no answer within {seconds:g} seconds")]

        async def ask() -> None:
            request = ModelRequest(messages, settings=self._settings)
            reply = await self._reply(request, Unheard(self.context, None))
            answers.append(_THOUGHT.sub("", reply.message.text).strip())

        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await self.context.clock.sleep(seconds)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            if error := await _problem(ask()):
                problems.insert(0, error)
            group.cancel_scope.cancel()
        if not answers:
            self._tell(problems[0])
        return (answers or [""])[0] or None

    def _tell(self, error: Exception) -> None:
        self.feedback_message = f"the model failed: {error}"
        self.context.log.warning("a model on the side failed", error=type(error).__name__, reason=str(error))


async def _problem(work: Awaitable[None]) -> Exception | None:
    """Return what went wrong with a model on the side, which fails no run."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  # returned
        return error
    except anyio.get_cancelled_exc_class():
        if not is_from_inside():
            raise
        return NodeCancelledError("it was cancelled from inside")
    return None
