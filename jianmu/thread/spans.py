"""Which messages of a conversation a request has room for, and which are to be summarised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from jianmu.message import Message, human
from jianmu.nodes.base import Option
from jianmu.nodes.pairing import Held
from jianmu.nodes.projections import groups_of

Count = Callable[[Message], int]
Group = Sequence[Message]
SHARE = 0.25
"""The share of the tokens that a summary may have."""
LONGEST, SHORTEST = 20_000, 200
"""Characters that a summary has at most, and those that it may have in any case."""


def place_after(messages: Sequence[Message], id: str, guess: int = 0) -> int | None:
    """Return the place after the message with an id, or None where there is none; a right guess spares the search."""
    if 0 < guess <= len(messages) and messages[guess - 1].id == id:
        return guess
    return next((place + 1 for place in reversed(range(len(messages))) if messages[place].id == id), None)


def summarised(
    messages: Sequence[Message], text: str | None, upto: str | None, guess: int = 0
) -> tuple[int, str | None]:
    """Return how many messages a summary holds, and the summary: none where the last message that it holds is gone."""
    if not text or upto is None:
        return 0, text or None
    place = place_after(messages, upto, guess)
    return (0, None) if place is None else (place, text)


class Spans:
    """How much of a conversation a request has, counted in messages, in tokens, or both.

    A message that was counted is not counted again: a long conversation costs what is new in it. It is counted anew
    when one of its messages has changed.

    Args:
        messages: the most messages, or None.
        tokens: the most tokens, or None.
        keep: the share of that which stays when the rest is summarised.
        count: returns the tokens of a message.
    """

    def __init__(self, messages: Option | None, tokens: Option | None, keep: Option, count: Count) -> None:
        self._limits, self._keep, self._count = (messages, tokens), keep, count
        self._held, self._tokens = Held(), 0
        self._measured = "", 0

    def cut(self, summary: str) -> str:
        """Return a summary, cut where it has more than its share of the tokens."""
        text, most = summary[:LONGEST], self.room_for_summary
        while len(text) > SHORTEST and (have := self._size(text)) > most:
            text = text[: max(SHORTEST, int(len(text) * most / have))]
        return text

    @property
    def room_for_summary(self) -> float:
        """Tokens that a summary may have."""
        return self._room(SHARE)[1]

    def is_over(self, messages: Sequence[Message], start: int, summary: str | None) -> bool:
        """Whether there is more from a place on, and in the summary of what is before, than there is room for."""
        have = (len(messages) - start, 0 if self._limits[1] is None else self._counted(messages[start:]))
        return any(most < count for most, count in zip(self._beside(summary), have, strict=True))

    def _counted(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages; what is new in them is counted, or all where one of them has changed."""
        talk = [*messages]
        fresh = self._held.fresh(talk)
        if fresh is None:
            self._tokens, fresh = 0, talk
        self._tokens += sum(map(self._count, fresh))
        self._held.hold(talk)
        return self._tokens

    def old(self, messages: Sequence[Message]) -> list[Group]:
        """Return what is too old of a conversation, in pieces that stay together; a summary of it has room then."""
        keep, most = self._room(self._keep()), self._room(1)
        return self._split(messages, [keep[0], min(keep[1], most[1] - self.room_for_summary)])[0]

    def newest(self, messages: Sequence[Message], summary: str | None) -> list[Group]:
        """Return what there is room for of a conversation beside the summary; the newest piece always."""
        return self._split(messages, self._beside(summary))[1]

    def _beside(self, summary: str | None) -> list[float]:
        """Return the room beside a summary."""
        messages, tokens = self._room(1)
        return [messages, tokens - (self._size(summary) if summary and self._limits[1] else 0)]

    def _size(self, summary: str) -> int:
        """Return the tokens of a summary."""
        if summary != self._measured[0]:
            self._measured = summary, self._count(human(summary))
        return self._measured[1]

    def _split(self, messages: Sequence[Message], room: list[float]) -> tuple[list[Group], list[Group]]:
        """Return what there is no room for, and what there is; the newest piece always stays."""
        groups = groups_of(messages)
        stays = 0
        for group in reversed(groups):
            room = self._less(room, group)
            if stays and min(room) < 0:
                break
            stays += 1
        return [*groups[: len(groups) - stays]], [*groups[len(groups) - stays :]]

    def pieces(self, groups: Sequence[Group]) -> Iterator[list[Message]]:
        """Yield what is too old, in pieces that a model can read at once."""
        piece, room = list[Message](), self._room(1)
        for group in groups:
            room = self._less(room, group)
            if piece and min(room) < 0:
                yield piece
                piece, room = [], self._less(self._room(1), group)
            piece.extend(group)
        if piece:
            yield piece

    def _room(self, share: float) -> list[float]:
        return [math.inf if limit is None else limit() * share for limit in self._limits]

    def _less(self, room: Sequence[float], group: Group) -> list[float]:
        return [room[0] - len(group), room[1] - (sum(map(self._count, group)) if self._limits[1] else 0)]
