"""A model that says what a script has it say: for tests, examples and a first chat."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self  # Any: JSON

from jianmu.engine.clock import Clock
from jianmu.message import Usage, ai
from jianmu.model.base import REAL, ChatModel, Delta, Event, Finish, ModelRequest, Reason, Stream
from jianmu.tool.types import ToolCall

_FREE = Usage.model_construct()  # without the validator, which takes Pydantic 40 ms to build at import
_WORDS = re.compile(r"\s*\S+\s*")


@dataclass(frozen=True)
class Turn:
    """What a scripted model does with one request.

    Attributes:
        text: the answer, which comes word by word; a sequence comes piece by piece.
        calls: the tools that it calls; a call's arguments come in one piece.
        reasoning: what it thinks before it answers, as `text`.
        error: what is raised after all that, instead of an end: a `ModelError`, or whatever a test needs.
        delay: seconds before the first piece, on the clock of the run; 0: without giving the event loop a turn.
        pause: seconds between pieces; None: they come at once, without giving the event loop a turn.
        check: is called with the request; it raises, or returns False, when that is not what was expected.
        usage: what the reply costs.
        reason: why it ends; by default "tool_calls" or "stop".
        metadata: the message's.
    """

    text: str | Sequence[str] = ""
    calls: Sequence[ToolCall] = ()
    reasoning: str | Sequence[str] = ""
    error: BaseException | None = None
    delay: float = 0.0
    pause: float | None = None
    check: Callable[[ModelRequest], object] | None = None
    usage: Usage = _FREE
    reason: Reason | None = None
    metadata: dict[str, Any] | None = None

    def events(self, model: str) -> Iterable[Event]:
        """Yield what the model says.

        Args:
            model: the model's name.
        """
        for piece in _pieces(self.reasoning):
            yield Delta(piece, "reasoning")
        pieces = _pieces(self.text)
        for piece in pieces:
            yield Delta(piece)
        for number, call in enumerate(self.calls):
            arguments = json.dumps(call.arguments) if call.raw is None else call.raw
            yield Delta(arguments, "call", number, call.id, call.name)
        if self.error is not None:
            raise self.error
        message = ai("".join(pieces), tool_calls=self.calls, metadata=self.metadata, usage=self.usage)
        yield Finish(message, self.usage, self.reason or ("tool_calls" if self.calls else "stop"), model)


_SILENCE = Turn()
Script = Turn | str | ToolCall | Sequence[ToolCall] | BaseException | Callable[[ModelRequest], Any]
"""A turn, or short for one: a text, a call or calls, an error, or a function of the request that returns such."""


class ScriptedModel(ChatModel):
    """A model that answers by a script: `ScriptedModel([ToolCall(id="1", name="add"), "the sum is 3"])`.

    Use it as a block, `with ScriptedModel([...]) as model:`, and the test fails when turns are left over at its end,
    or when a request found no turn or not what it expected, even if something caught that error.

    Args:
        turns: what it does, request by request.
        name: its name.

    Attributes:
        requests: all that it was asked.
        alive: how many of its streams are open now.
    """

    def __init__(self, turns: Iterable[Script] = (), *, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self.alive = 0
        self._left = list(turns)
        self._faults: list[str] = []

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Return the reply of the next turn."""
        return _Speech(self, request, clock)

    def take(self, request: ModelRequest) -> Turn:
        """Note a request and return its turn.

        Raises:
            AssertionError: no turn is left, or the request is not what the turn expects.
        """
        self.requests.append(request)
        where = f"request {len(self.requests)} to the model '{self.name}'"
        if not self._left:
            self._fail(f"{where} has no turn: the script has {len(self.requests) - 1}")
        turn = _turn(self._left.pop(0), request)
        try:
            is_right = turn.check is None or turn.check(request) is not False
        except Exception as error:
            self._faults.append(f"{where}: {error}")
            raise
        if not is_right:
            self._fail(f"{where} is not what the script expects")
        return turn

    def check(self) -> None:
        """Fail if turns are left over, or if a request was not as it should be."""
        assert not self._faults, "; ".join(self._faults)
        assert not self._left, f"{len(self._left)} turns of the model '{self.name}' were not asked for: {self._left}"

    def __enter__(self) -> Self:
        """Begin a block at whose end all turns must have been asked for."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Check the script, unless the test has failed anyway."""
        if error is None:
            self.check()

    def _fail(self, problem: str) -> None:
        self._faults.append(problem)
        raise AssertionError(problem)


class _Speech:
    """The stream of one turn."""

    def __init__(self, model: ScriptedModel, request: ModelRequest, clock: Clock) -> None:
        self._model = model
        self._request = request
        self._clock = clock
        self._turn = _SILENCE
        self._events: Iterator[Event] = iter(())
        self._wait: float | None = None

    async def __aenter__(self) -> Self:
        self._turn = self._model.take(self._request)
        self._events = iter(self._turn.events(self._model.name))
        self._wait = self._turn.delay or None
        self._model.alive += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.alive -= 1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._wait is not None:
            await self._clock.sleep(self._wait)
        self._wait = self._turn.pause
        for event in self._events:
            return event
        raise StopAsyncIteration


def _turn(said: Script, request: ModelRequest) -> Turn:
    """Return the turn that a line of a script is short for."""
    if callable(said):
        return _turn(said(request), request)
    match said:
        case Turn():
            return said
        case str():
            return Turn(text=said)
        case ToolCall():
            return Turn(calls=(said,))
        case BaseException():
            return Turn(error=said)
        case _:
            return Turn(calls=said)


def _pieces(text: str | Sequence[str]) -> Sequence[str]:
    """Return a text word by word, or its pieces as they are."""
    return (_WORDS.findall(text) or [text]) if isinstance(text, str) and text else text
