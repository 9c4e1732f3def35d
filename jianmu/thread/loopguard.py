"""LoopGuard: a model that wishes for the same call again and again is reminded, refused, and brought to an end.

1. It is repetition that counts, not length: equal calls, by tool and arguments, wherever in a run they stand.
2. The counts are in the state, for the run: a suspension or another process changes nothing of them.
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
from jianmu.engine.tree import ancestors, path_of
from jianmu.errors import SetupError
from jianmu.model.base import ModelRequest
from jianmu.nodes import conversation
from jianmu.nodes.base import call_of, is_number
from jianmu.nodes.calldecorator import CallDecorator
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.projections import RequestProjection, note
from jianmu.nodes.tools import ToolExecutor
from jianmu.thread.part import Kinds, Part
from jianmu.tool.types import ToolCall

WARN = 3
STOP = 5
_LAST = (
    "You go on with a call that was refused, since it was made too often. No tool can be called any more: give your "
    "final answer now, with what you have, and say what is missing."
)
_ENDED = "the model repeats itself: told to answer without tools, it went on calling them"


class LoopGuard(Part, RequestProjection, CallDecorator):
    """Keep the model below from making the same call over and over: the same tool with the same arguments, in one run.

    When it has wished for a call `warn` times, a note in the next request tells it so. From the time `stop` on the call
    is refused. If it wishes for a refused call once more, it may call no tool until it has answered: requests say so
    and have `tool_choice="none"`. If it calls one nevertheless, the node ends.
    Reads `messages` and `repeats`; counts in `repeats`, which is of the run; arguments in another order are the same.
    SUCCESS, FAILURE, RUNNING: as the child.
    FAILURE also when the model calls tools though it was told to answer: the child is halted, each call has a result
    that says that it was not called, and the feedback says why.
    Halting halts the child.

    Args:
        name: the node's name.
        child: what asks the model and carries out its calls, round by round.
        warn: with which wish for the same call it is reminded.
        stop: from which wish on the call is refused.
        exempt: tools that may be called the same way again, such as one that looks how far a job is.
    """

    reads: ClassVar[tuple[str, ...]] = ("messages", "repeats")
    writes: ClassVar[tuple[str, ...]] = ("repeats",)
    wraps: ClassVar[Kinds] = (AgentLLMNode, ToolExecutor)

    def __init__(
        self, name: str, child: Behaviour, *, warn: int = WARN, stop: int = STOP, exempt: Iterable[str] = ()
    ) -> None:
        super().__init__(name, child)
        if not (is_number(warn, int) and is_number(stop, int) and 2 <= warn <= stop):
            given = f"warn={warn!r}, stop={stop!r}"
            raise SetupError(f"{call_of(self, 'stop')} takes whole numbers, 2 <= warn <= stop, not {given}")
        self._warn, self._stop, self._exempt = warn, stop, {*exempt}

    def on_bound(self) -> None:
        """Refuse a guard inside of another one: each call would count twice."""
        super().on_bound()
        for above in ancestors(self):
            if getattr(above, "inner_state", None) is not None:
                break
            if isinstance(above, LoopGuard):
                raise self._refused(f"stands below '{path_of(above)}', and each call would count twice: leave one out")

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
        """Count the calls of a reply, and whether it goes on with what was refused."""
        before, counts = self._repeats, Counter(map(key_of, self._counted(calls)))
        goes_on = self._gone_on(before) > 0 or any(before.get(key, 0) >= self._stop for key in counts)
        if counts or goes_on:
            self.write_state({"repeats": {**counts, **({self._key: 1} if goes_on else {})}})

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Refuse a call that was wished for too often."""
        if call.name in self._exempt:
            return None
        number = _number(call, snapshot)
        if number < self._stop:
            return None
        return (
            f"'{call.name}' was not called: this is the wish number {number} for it with the same arguments in this "
            "run, and it would bring nothing new. Do something else, or answer with what you have."
        )

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with a reminder, or as the last one, without tools."""
        path = self.context.path
        if self._gone_on(snapshot.repeats):
            settings = replace(request.settings, tool_choice="none") if request.tools else request.settings
            return replace(request, settings=settings, messages=[*request.messages, note(f"loop:{path}", _LAST)])
        reply = conversation.last_reply(snapshot.messages)
        calls = {key_of(call): call for call in self._counted(reply.tool_calls if reply is not None else ())}
        due = {call.name: count for key, call in calls.items() if (count := snapshot.repeats.get(key, 0)) >= self._warn}
        if not due:
            return request
        return replace(request, messages=[*request.messages, note(f"loop:{path}", self._reminder(due))])

    def _reminder(self, due: Mapping[str, int]) -> str:
        told = " and ".join(f"{name} {count} times" for name, count in due.items())
        more = f"From the time {self._stop} on it is refused. Do something else, or answer with what you have."
        return f"In this run you have called {told} with the same arguments each time. {more}"

    def _counted(self, calls: Collection[ToolCall]) -> list[ToolCall]:
        return [call for call in calls if call.name not in self._exempt]

    @property
    def _repeats(self) -> Mapping[str, int]:
        return self.context.manager.read("repeats") or {}

    @property
    def _key(self) -> str:
        return f"loop:{digest(self.context.path)[:16]}"

    def _gone_on(self, repeats: Mapping[str, int]) -> int:
        """Return how many replies went on, since the node was entered, with what was refused."""
        return repeats.get(self._key, 0)


def key_of(call: ToolCall) -> str:
    """Return the key of `repeats` under which equal calls are counted."""
    return f"call:{digest(call.name, call.arguments, call.raw)[:16]}"


def _number(call: ToolCall, snapshot: Any) -> int:
    """Return how many equal calls the run has had with this one; those of a reply were counted together."""
    key, reply = key_of(call), conversation.last_reply(snapshot.messages)
    calls = reply.tool_calls if reply is not None else ()
    later = calls[calls.index(call) + 1 :] if call in calls else ()
    return snapshot.repeats.get(key, 0) - sum(key_of(one) == key for one in later)
