"""When the next pass is due, and whether a tree drives itself in circles."""

from __future__ import annotations

HOT = 10


class Pace:
    """Decides from what has happened when the next pass is due; holds no clock of its own.

    Args:
        poll_interval: seconds between passes while something has to be polled.
        min_interval: least seconds from the start of one pass to that of the next.
    """

    def __init__(self, poll_interval: float, min_interval: float) -> None:
        self._poll_interval = poll_interval
        self._min_interval = min_interval
        self._last = float("-inf")
        self._is_woken = False
        self._by_own_write = False
        self._hot = 0
        self.poll_at: float | None = None
        self.timer_at: float | None = None

    def start(self) -> None:
        """Begin a run: its first pass is due at once."""
        self._is_woken, self._by_own_write = True, False
        self._hot = 0
        self.poll_at = self.timer_at = None

    @property
    def is_woken(self) -> bool:
        """Whether a pass is due for another reason than time."""
        return self._is_woken or self._by_own_write

    def wake(self) -> None:
        """Something happened."""
        self._is_woken = True

    def wake_by_own_write(self) -> None:
        """A write was made during the pass that is on."""
        self._by_own_write = True

    def begin_pass(self, now: float) -> bool:
        """Note that a pass starts; return True if it is the tenth in a row that only writes of passes have woken."""
        is_hot = self._by_own_write and not self._is_woken and not self._is_timed(now)
        self._hot = self._hot + 1 if is_hot else 0
        self._is_woken = self._by_own_write = False
        self._last = now
        self.timer_at = None
        return self._hot == HOT

    def end_pass(self, *, polled: bool, again: bool) -> None:
        """Note what a pass found: something to poll, a loop that goes on at once."""
        self.poll_at = self._last + self._poll_interval if polled else None
        if again:
            self._is_woken = True

    def due(self, timer_at: float | None) -> float | None:
        """Return when the next pass is due (it may be past), or None if nothing asks for one."""
        if self.is_woken:
            return self._last + self._min_interval
        ends = [end for end in (self.poll_at, self.timer_at, timer_at) if end is not None]
        return max(min(ends), self._last + self._min_interval) if ends else None

    def _is_timed(self, now: float) -> bool:
        """Whether a poll or a timer was due as well."""
        return any(end is not None and end <= now for end in (self.poll_at, self.timer_at))
