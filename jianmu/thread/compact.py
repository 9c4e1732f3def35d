"""Compact: a request that does not grow with its conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar  # Any: snapshots

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.errors import SetupError
from jianmu.message import Message
from jianmu.model.base import ChatModel, ModelRequest, Settings
from jianmu.nodes import Sequence as InOrder
from jianmu.nodes.base import FINITE, Number, Option, Shape, Wrapper, check_child, plain, whole
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.projections import RequestProjection, is_added, note, tokens_of
from jianmu.thread.asking import Nobody
from jianmu.thread.part import Kinds, Part
from jianmu.thread.spans import Spans, place_after, summarised
from jianmu.thread.summary import FAILED, MOST_FAILED, Summary

_SHARE: Shape = (lambda value: FINITE[0](value) and 0 < value <= 1), "a number above 0, up to 1"
_SECONDS: Shape = (lambda value: FINITE[0](value) and value > 0), "seconds above 0"


class Compact(Part, RequestProjection):
    """Have what is old of a conversation said in short, once, and the summary in its place in each request.

    Put it around the model node, so that it looks before each request. When there is more of the conversation than
    `messages` or `tokens`, the oldest is summarised by `model`, as much as leaves the share `keep` of that, before the
    child is ticked; the summary, of a quarter of `tokens` at most, is extended when it has grown as far again. It is in
    `summary_text`, and the id of the last message that it holds in `summary_upto`; `messages` stays whole. In the
    request the summary stands in the place of what it holds. System messages, the newest message of a person and what
    other projections have added always stay, and a reply with calls stays or goes together with its results. Plans,
    promoted tools and all else that is a field are not touched.
    Without a model, or where it has failed (in one run it is asked for twice in vain at most), the oldest messages are
    left out of the request without a summary.
    SUCCESS, FAILURE: as the child. RUNNING while the summary is made, and while the child is. Halting halts both.

    Args:
        name: the node's name.
        child: what is below.
        model: who makes the summary, a cheap one will do; None: nobody.
        messages: the most messages, or a function of the snapshot; None: any number.
        tokens: the most tokens, or a function of the snapshot; None: any number.
        keep: the share of them that stays when the others are summarised, or a function of the snapshot.
        count: returns the tokens of a message; by default a token is taken for four characters.
        seconds: how long one request for a summary may take, or a function of the snapshot.
        settings: how that model is to answer.
    """

    reads: ClassVar[tuple[str, ...]] = ("messages", "summary_text", "summary_upto", "repeats")
    wraps: ClassVar[Kinds] = (AgentLLMNode,)
    twice: ClassVar[str] = "the conversation would be summarised"

    def __init__(
        self,
        name: str,
        child: Behaviour,
        *,
        model: ChatModel | str | None,
        messages: Number | None = None,
        tokens: Number | None = 60_000,
        keep: Number = 0.5,
        count: Callable[[Message], int] | None = None,
        seconds: Number = 60.0,
        settings: Settings | None = None,
    ) -> None:
        check_child(f'Compact("{name}", child, model=...)', child)
        if messages is None and tokens is None:
            raise SetupError(f'Compact("{name}", child) limits nothing: give messages=... or tokens=...')
        summary = Summary("summary", model=Nobody() if model is None else model, settings=settings)
        due = WhenDue("when due", summary, is_due=self._is_due)
        super().__init__(name, InOrder("in order", memory=True, children=[due, child]))
        self._has_model, self._count = model is not None, 0
        limits = {"messages": messages, "tokens": tokens}
        most = [None if one is None else Option(self, word, one, whole(1)) for word, one in limits.items()]
        if count is not None:
            plain(self, "count", count)
        self._spans = Spans(most[0], most[1], Option(self, "keep", keep, _SHARE), count or tokens_of)
        summary.spans, summary.seconds = self._spans, Option(self, "seconds", seconds, _SECONDS)

    def _is_due(self) -> bool:
        """Whether a summary is to be made now."""
        state = self.read_state()
        if not self._has_model or state.repeats.get(FAILED, 0) >= MOST_FAILED:
            return False
        return self._summarised(state)[2]

    def _summarised(self, state: Any) -> tuple[int, str | None, bool]:
        """Return how many messages the summary holds, the summary, and whether there is too much after it."""
        self._count, text = summarised(state.messages, state.summary_text, state.summary_upto, self._count)
        text = text and self._spans.cut(text)
        return self._count, text, self._spans.is_over(state.messages, self._count, text)

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request with the summary in the place of what it holds, cut where that is not enough."""
        count, text, is_over = self._summarised(snapshot)
        if not text and not is_over:
            return request
        guess = count + len(request.messages) - len(snapshot.messages)  # others add before it what they add
        place = (place_after(request.messages, snapshot.summary_upto, guess) or 0) if count else 0
        newest = next((one for one in reversed(request.messages) if one.role == "human" and not is_added(one)), None)
        stays = [one for one in request.messages[:place] if _is_fixed(one) or one is newest]
        rest = [*request.messages[place:]]
        kept = self._cut(rest, newest, text) if is_over else rest
        told = _told(text, has_gap=len(kept) < len(rest))
        return replace(request, messages=_opened([*stays, *kept], told, f"summary:{self.context.path}"))

    def _cut(self, messages: Sequence[Message], newest: Message | None, text: str | None) -> list[Message]:
        """Return what there is room for of messages beside the summary, and what always stays."""
        fixed = {id(one) for one in messages if _is_fixed(one)}
        groups = self._spans.newest([one for one in messages if id(one) not in fixed], text)
        kept = fixed | {id(one) for group in groups for one in group} | {id(newest)}
        return [one for one in messages if id(one) in kept]


class WhenDue(Wrapper):
    """Let the child run only if it is due when it is entered.

    SUCCESS, FAILURE, RUNNING: as the child; SUCCESS at once where it is not due. Halting halts the child.

    Args:
        name: the node's name.
        child: what is below.
        is_due: says so.
    """

    def __init__(self, name: str, child: Behaviour, *, is_due: Callable[[], bool]) -> None:
        super().__init__(name, child)
        self._is_due = is_due

    def steps(self) -> Steps:
        """Ask whether the child is due, then tick it."""
        if self.decorated.status is not Status.RUNNING and not self._is_due():
            return Status.SUCCESS
        yield self.decorated
        return self.update()


def _is_fixed(message: Message) -> bool:
    """Whether a message stays in every request."""
    return message.role == "system" or is_added(message)


def _told(text: str | None, *, has_gap: bool) -> str:
    """Return what stands in the place of what is left out."""
    if text is None:
        return "Earlier messages of this conversation are left out." if has_gap else ""
    gap = "\n[Messages after that are left out.]" if has_gap else ""
    return f"What was said before, in short:\n{text}{gap}"


def _opened(messages: Sequence[Message], text: str, id: str) -> list[Message]:
    """Return a conversation with a text before it, after the system prompt."""
    start = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
    return [*messages[:start], *([note(id, text)] if text else []), *messages[start:]]
