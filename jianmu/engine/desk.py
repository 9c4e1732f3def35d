"""What the questions of a thread need: a clock, and where they are kept beside this process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from jianmu.engine.decisions import Decision, Deed
from jianmu.engine.record import Record


class UtcClock(Protocol):
    """What questions need of a clock."""

    def utc(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...


class Desk(Protocol):
    """Where the questions of a thread are kept beside this process."""

    async def settle(self, decided: Sequence[tuple[str, Decision]], now: datetime) -> Sequence[Record]:
        """Carry out decisions, all or none, have memory take over what came of them, and return the records."""
        ...

    def wake(self) -> None:
        """Have a live run keep what was said; called from any thread."""
        ...

    def note(self, deed: Deed, record: Record) -> None:
        """Have what the run did with a question saved with its next commit."""
        ...
