"""LoopGuard: a model that asks for the same call again and again is reminded, refused, and brought to an end.

1. It is repetition that counts, not length: equal calls, by tool and arguments, wherever in a run they stand.
2. What brings something else than the time before is no repetition, nor what comes after something new; but there is
   an end to that as well.
3. The counts are in the state, for the run: a suspension or another process changes nothing of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar  # Any: snapshots are the users'

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.engine.questions import digest
from jianmu.errors import SetupError
from jianmu.model.base import ModelRequest
from jianmu.nodes import conversation
from jianmu.nodes.base import call_of, is_number
from jianmu.nodes.calldecorator import CallDecorator, names_of
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.projections import RequestProjection, note
from jianmu.nodes.tools import ToolExecutor
from jianmu.thread.part import Kinds, Part
from jianmu.thread.repetition import NOT_CALLED, key_of, wishes
from jianmu.tool.types import ToolCall

WARN = 3
STOP = 5
MOST = 20
_LAST = (
    "You go on with a call that was refused, since it was made too often. No tool can be called any more: give your "
    "final answer now, with what you have, and say what is missing."
)
_ENDED = "the model repeats itself: told to answer without tools, it went on calling them"


class LoopGuard(Part, RequestProjection, CallDecorator):
    """Keep the model below from making the same call over and over: the same tool with the same arguments, in one run.

    When a call has brought the same `warn` times, a note in the next request tells the model so; the request that would
    make it `stop` times is refused. A call whose result has changed, such as a test after an edit, begins anew, and so
    does one since which the model has done something new; at request `most` it is refused all the same.
    If the model goes on with what was refused, it may call no tool until it has answered: requests say so and have
    `tool_choice="none"`. If it calls one nevertheless, the node ends.
    Reads `messages` and `repeats`; counts in `repeats`, which is of the run; arguments in another order are the same.
    SUCCESS, FAILURE, RUNNING: as the child.
    FAILURE also when the model calls tools though it was told to answer: the child is halted, each call has a result
    that says that it was not called, and the feedback says why.
    Halting halts the child.

    Args:
        name: the node's name.
        child: what asks the model and carries out its calls, round by round.
        warn: after how many calls with the same result the model is reminded.
        stop: which request for a call is refused, when all before have brought the same.
        most: which request for a call is refused, whatever it has brought.
        exempt: tools that may be called the same way again, such as one that looks how far a job is.
    """

    reads: ClassVar[tuple[str, ...]] = ("messages", "repeats")
    writes: ClassVar[tuple[str, ...]] = ("repeats",)
    wraps: ClassVar[Kinds] = (AgentLLMNode, ToolExecutor)
    twice: ClassVar[str] = "each call would count"

    def __init__(
        self,
        name: str,
        child: Behaviour,
        *,
        warn: int = WARN,
        stop: int = STOP,
        most: int = MOST,
        exempt: Iterable[str] = (),
    ) -> None:
        super().__init__(name, child)
        if not (all(is_number(one, int) for one in (warn, stop, most)) and 2 <= warn <= stop <= most):
            given = f"warn={warn!r}, stop={stop!r}, most={most!r}"
            raise SetupError(f"{call_of(self, 'stop')} takes whole numbers, 2 <= warn <= stop <= most, not {given}")
        self._warn, self._stop, self._most = warn, stop, most
        self._exempt = names_of(self, "exempt", exempt)

    def initialise(self) -> None:
        """Begin without a refused call that the model has gone on with; what it has called in this run stays."""
        super().initialise()
        if count := self._gone_on(self._repeats):
            self.write_state({"repeats": {self._key: -count}})

    def steps(self) -> Steps:
        """Tick the child; end if the model goes on though it was told to answer."""
        yield self.decorated
        if self.decorated.status is Status.RUNNING and self._gone_on(self._repeats) > 1:
            self.halt(self.decorated)
            self.feedback_message = _ENDED
            return Status.FAILURE
        return self.update()

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        """Count the calls of a reply, which of them are refused, and whether it goes on with what was refused."""
        before, counted = self._repeats, self._counted(calls)
        counts = Counter(map(key_of, counted))
        now = {**before, **{key: before.get(key, 0) + count for key, count in counts.items()}}
        messages = conversation.messages_of(self.context)
        refused = {_refused_key(call) for call in counted if self._is_due(*wishes(call, messages, now))}
        goes_on = self._gone_on(before) > 0 or any(before.get(key, 0) for key in refused)
        changes = {**counts, **dict.fromkeys(refused, 1), **({self._key: 1} if goes_on else {})}
        if changes:
            self.write_state({"repeats": changes})

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Refuse a call that was asked for too often."""
        number, alike = wishes(call, snapshot.messages, snapshot.repeats)
        if call.name in self._exempt or not self._is_due(number, alike):
            return None
        return (
            f"'{call.name}' {NOT_CALLED}: this is request number {number} for it with the same arguments in this "
            "run, and it would bring nothing new. Do something else, or answer with what you have."
        )

    def _is_due(self, number: int, alike: int) -> bool:
        """Whether a request for a call is refused."""
        return alike >= self._stop or number >= self._most

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with a reminder, or as the last one, without tools."""
        path = self.context.path
        if self._gone_on(snapshot.repeats):
            settings = replace(request.settings, tool_choice="none") if request.tools else request.settings
            return replace(request, settings=settings, messages=[*request.messages, note(f"loop:{path}", _LAST)])
        reply = conversation.last_reply(snapshot.messages)
        calls = {key_of(call): call for call in self._counted(reply.tool_calls if reply is not None else ())}
        alike = [(one.name, wishes(one, snapshot.messages, snapshot.repeats)[1]) for one in calls.values()]
        due = [(name, count) for name, count in alike if count >= self._warn]
        if not due:
            return request
        return replace(request, messages=[*request.messages, note(f"loop:{path}", self._reminder(due))])

    def _reminder(self, due: Sequence[tuple[str, int]]) -> str:
        told = " and ".join(f"{name} {count} times" for name, count in due)
        more = f"From the time {self._stop} on it is refused. Do something else, or answer with what you have."
        return f"In this run you have called {told}, with the same arguments and the same result. {more}"

    def _counted(self, calls: Collection[ToolCall]) -> list[ToolCall]:
        return [call for call in calls if call.name not in self._exempt]

    @property
    def wants_answer(self) -> bool:
        """Whether the model was told to give its final answer now, without tools."""
        return self._gone_on(self._repeats) > 0

    @property
    def _repeats(self) -> Mapping[str, int]:
        return self.context.manager.read("repeats") or {}

    @property
    def _key(self) -> str:
        return f"loop:{digest(self.context.path)[:16]}"

    def _gone_on(self, repeats: Mapping[str, int]) -> int:
        """Return how many replies went on, since the node was entered, with what was refused."""
        return repeats.get(self._key, 0)


def _refused_key(call: ToolCall) -> str:
    return f"refused:{key_of(call)}"
