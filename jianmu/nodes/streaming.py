"""The text of a reply as it comes in: shown in the state and told as events, in time that grows with its length alone.

1. What came in is shown when the node is about to wait for more: at most once in each turn of the event loop.
2. A write costs what the whole text is long. So a long text is shown in pieces that grow with it, or when it has not
   been shown for a while.
3. The first pieces of a reply are an event each, and so are later ones, unless they come faster than anybody can read.
4. What is held back is shown and told soon, also when nothing more comes: the tree is ticked then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, Literal, TypeVar  # Any: what an event loop and its coroutines exchange

from jianmu.engine.context import NodeContext
from jianmu.engine.events import Token

T = TypeVar("T")
LONG = 500
"""Characters from which on a text is shown in growing pieces."""
SHARE = 32
"""A long text is shown when a piece of this share of it has come in."""
EACH = 100
"""Pieces of a reply that are an event each, however fast they come."""
FAST = 0.005
"""Seconds within which later pieces become one event."""
SOON = 0.1
"""Seconds after which what is held back is shown and told."""


class Shown:
    """Shows the text of one reply in a field, if the state has one, and tells its pieces as `Token` events.

    Args:
        context: the node's.
        write: writes the whole text to the state, or None if it is not shown there.
    """

    __slots__ = ("_clock", "_context", "_events", "_fresh", "_is_void", "_kind", "_late", "_length", "_shown_at",
                 "_text", "_told", "_told_at", "_wakes_at", "_write")  # fmt: skip

    def __init__(self, context: NodeContext, write: Callable[[str], None] | None) -> None:
        self._context = context
        self._events = context.run.events
        self._clock = context.clock
        self._write = write
        self._text = ""
        self._fresh: list[str] = []
        self._length = 0
        self._late: list[str] = []
        self._kind: Literal["text", "reasoning"] = "text"
        self._told = 0
        self._is_void = False
        self._shown_at = self._told_at = context.clock.now()
        self._wakes_at = 0.0

    def take(self, piece: str) -> None:
        """Take a piece of the text."""
        if self._write is not None:
            self._fresh.append(piece)
            self._length += len(piece)
        if self._events.is_heard:
            self._hear(piece, "text")

    def think(self, piece: str) -> None:
        """Take a piece of the reasoning: it is told, and is in no text."""
        if self._events.is_heard:
            self._hear(piece, "reasoning")

    def _hear(self, piece: str, kind: Literal["text", "reasoning"]) -> None:
        if kind != self._kind:
            self.tell()
            self._kind = kind
        if self._told < EACH:
            self._told += 1
            self._context.emit(Token(text=piece, kind=kind))
        else:
            self._late.append(piece)

    def void(self) -> None:
        """Forget the text: it is no part of the reply."""
        self.tell()
        self._fresh.clear()
        self._length = 0
        self._is_void = bool(self._text)
        self._text = ""

    def show(self) -> None:
        """Show and tell what came in, if it is time; else soon."""
        if not (self._late or self._fresh or self._is_void):
            return
        now = self._clock.now()
        if self._late and now - self._told_at >= FAST:
            self.tell()
        if self._is_time(now):
            self.write()
        if (self._late or self._fresh) and self._wakes_at <= now:
            self._wakes_at = now + SOON
            self._context.wake(after=SOON)

    def catch_up(self) -> None:
        """Show and tell what has been held back for long."""
        if (self._late or self._fresh) and self._clock.now() >= self._wakes_at:
            self.tell()
            self.write()

    def tell(self) -> None:
        """Tell what was held back."""
        if self._late:
            late, self._late = self._late, []
            self._told_at = self._clock.now()
            self._context.emit(Token(text="".join(late), count=len(late), kind=self._kind))

    def write(self) -> None:
        """Write the text, if it differs from what is shown."""
        text = self.rest()
        if text is not None and self._write is not None:
            self._shown_at = self._clock.now()
            self._write(text)

    def rest(self) -> str | None:
        """Return the whole text if that is not what is shown, and take it as shown."""
        if not (self._fresh or self._is_void):
            return None
        self._text += "".join(self._fresh)
        self._fresh.clear()
        self._length = 0
        self._is_void = False
        return self._text

    def _is_time(self, now: float) -> bool:
        known = len(self._text)
        return known < LONG or self._length * SHARE >= known or now - self._shown_at >= SOON


class Pausing(Awaitable[T], Generic[T]):
    """Awaits `work` and calls `pause` each time before the event loop gets its turn.

    What `pause` raises is raised where `work` was waiting, when it goes on.
    """

    def __init__(self, work: Awaitable[T], pause: Callable[[], None]) -> None:
        self._work = work
        self._pause = pause

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on with the work, turn by turn, as `await` does."""
        inner: Any = self._work.__await__()  # Any: a coroutine's, which also has throw() and close()
        go_on: Callable[[], Any] = partial(next, inner)
        while True:
            try:
                wish = go_on()
            except StopIteration as end:
                return end.value
            problem = self._attempt()
            try:
                given = yield wish
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:  # noqa: BLE001  # whatever the event loop throws in goes to the work
                go_on = partial(inner.throw, error)
            else:
                go_on = partial(inner.send, given) if problem is None else partial(inner.throw, problem)

    def _attempt(self) -> Exception | None:
        try:
            self._pause()
        except Exception as error:  # noqa: BLE001  # raised in the work, which is in the midst of a wait
            return error
        return None
