"""Lists that grow at their end without being copied."""

from __future__ import annotations

from jianmu.engine.state.markers import Value
from jianmu.engine.state.readonly import Hint, ReadOnlyList


class Growing:
    """One version of a list; all versions share one buffer.

    A version that is not the newest copies the buffer before it grows, so a refused write leaves no trace.
    """

    __slots__ = ("buffer", "hint", "made", "size")

    def __init__(self, buffer: list[Value], size: int, hint: Hint) -> None:
        self.buffer = buffer
        self.size = size
        self.hint = hint
        self.made: ReadOnlyList | None = None

    def grown(self, items: list[Value]) -> Growing:
        """Return the version with these items at its end."""
        buffer = self.buffer if len(self.buffer) == self.size else self.buffer[: self.size]
        buffer.extend(items)
        return Growing(buffer, self.size + len(items), self.hint)

    def shown(self) -> ReadOnlyList:
        """Return the list that readers see; made once."""
        made = self.made
        if made is None:
            whole = self.buffer
            made = ReadOnlyList(whole if len(whole) == self.size else whole[: self.size], self.hint)
            if len(made) > self.size:  # another thread has written since the sizes were compared
                super(ReadOnlyList, made).__delitem__(slice(self.size, None))
            self.made = made
        return made


def shown(value: Value) -> Value:
    """Return a stored value as readers see it."""
    return value.shown() if type(value) is Growing else value
