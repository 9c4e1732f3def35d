"""What a run may use, and what it has used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from jianmu.errors import LimitExceeded


class Limits(BaseModel):
    """The most that one run may use; None is no limit.

    Attributes:
        max_ticks: passes over the tree.
        timeout: seconds of running; waiting for people does not count.
        requests: requests to models.
        tokens: tokens of models, in and out.
        cost: money, in the unit that the models report.
        tool_calls: calls of tools.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    max_ticks: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    requests: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0)
    tool_calls: int | None = Field(default=None, ge=0)

    @cached_property
    def given(self) -> tuple[tuple[str, float], ...]:
        """The limits that were set, with their values."""
        return tuple((name, most) for name in COUNTED if (most := getattr(self, name)) is not None)


@dataclass(slots=True)
class Usage:
    """What a run has used so far; it survives a suspension."""

    ticks: int = 0
    seconds: float = 0.0
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0
    tool_calls: int = 0

    def told(self) -> dict[str, float]:
        """Return what was used at all, by name."""
        return {name: used for name, _ in COUNTED.values() if (used := getattr(self, name))}


COUNTED = {
    "max_ticks": ("ticks", "passes"),
    "timeout": ("seconds", "seconds"),
    "requests": ("requests", "requests"),
    "tokens": ("tokens", "tokens"),
    "cost": ("cost", "of cost"),
    "tool_calls": ("tool_calls", "tool calls"),
}

USED_BY_GOING_ON = ("max_ticks", "timeout")
"""What a run that goes on uses in any case; of the others it may use all and need no more."""


def exceeded(limits: Limits, usage: Usage) -> LimitExceeded | None:
    """Return the error for the first limit that is used up while more is wanted, or None."""
    for name, most in limits.given:
        counter, unit = COUNTED[name]
        used = getattr(usage, counter)
        if used > most or (used == most and name in USED_BY_GOING_ON):
            return _over(name, most, unit)
    return None


def spend(limits: Limits, usage: Usage, amounts: Mapping[str, float | None], path: str) -> None:
    """Add what a node is about to use, or raise and add nothing, if that is more than the run may use.

    Args:
        limits: the most.
        usage: what was used so far.
        amounts: by the names of `Usage`; None for what is not known yet: something has to be left of it.
        path: the node's path.
    """
    for name, most in limits.given:
        counter, unit = COUNTED[name]
        amount, used = amounts.get(counter, 0), getattr(usage, counter)
        if used >= most if amount is None else amount > 0 and used + amount > most:
            raise _over(name, most, unit, path)
    for counter, amount in amounts.items():
        setattr(usage, counter, getattr(usage, counter) + (amount or 0))


def _over(name: str, most: float, unit: str, path: str | None = None) -> LimitExceeded:
    text = f"the run has used its {most:g} {unit}: go on with agent.recover(limits=Limits({name}=...))"
    return LimitExceeded(text, limit=name, path=path)
