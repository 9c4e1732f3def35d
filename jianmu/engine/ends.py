"""How a runner is set up, and how its drives end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.humans import Human
from jianmu.engine.outcome import Outcome
from jianmu.errors import LimitExceeded


class Log(Protocol):
    """What a run needs of the log of its thread."""

    async def before_pass(self) -> None:
        """Save what the pass must not see before it is saved."""
        ...

    async def after_pass(self) -> bool:
        """Save the pass, or have it saved; whether that was waited for, and the loop has turned."""
        ...

    def freeze(self) -> None:
        """Keep the position as it is now: the tree is about to be halted."""
        ...

    def keep_late(self, node: Behaviour, status: Status) -> None:
        """Have a result stand in the position that was kept."""
        ...


@dataclass(frozen=True)
class Options:
    """How a runner paces itself; times in seconds (design.md, section 5)."""

    poll_interval: float = 0.05
    min_interval: float = 0.0
    halt_timeout: float = 5.0
    on_stall: Literal["wait", "raise"] = "wait"
    human: Human | None = None


@dataclass(frozen=True)
class End:
    """How a drive ended; `error` is raised by whoever called, and an `outcome` that is known already is returned."""

    status: Status
    is_suspended: bool = False
    is_stalled: bool = False
    limit: LimitExceeded | None = None
    error: BaseException | None = None
    outcome: Outcome | None = None

    @classmethod
    def by(cls, error: BaseException) -> End:
        """Return the end of a run by an exception; a limit that a node came up against is an end of its own."""
        if isinstance(error, LimitExceeded):
            return cls(Status.INVALID, limit=error)
        return cls(Status.INVALID, error=error)
