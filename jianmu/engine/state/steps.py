"""What a write is to do, value by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from jianmu.engine.state.folding import Others, frozen
from jianmu.engine.state.freeze import Unfit
from jianmu.engine.state.markers import MISSING, Op, Replace, Value
from jianmu.engine.state.namespaces import Target
from jianmu.engine.state.schema import StateField

Default: TypeAlias = Callable[[], Value]
Folding: TypeAlias = Callable[[StateField, Value, Value, Others, Default], Value]


class Step(NamedTuple):
    """What is to be done with one value.

    Attributes:
        target: the value meant.
        folding: called with the field, the value before, `raw`, the other fields, and what gives the default.
        raw: what was written.
    """

    target: Target
    folding: Folding
    raw: Value = None


def asks(step: Step) -> bool:
    """Sort what asks for the other fields behind them."""
    return step.target.field.has_info


def given(step: Step) -> str | None:
    """Return the type of what was written, for an error's text."""
    raw = step.raw.value if isinstance(step.raw, Replace) else step.raw
    return None if isinstance(raw, Op) or callable(raw) or raw is MISSING else type(raw).__name__


def guess(step: Step, others: dict[str, Value]) -> Value:
    """Return what a field will be, before its validators have run; as it is where that is not known."""
    raw = step.raw.value if isinstance(step.raw, Replace) else step.raw
    if isinstance(raw, Op) or callable(raw) or raw is MISSING:
        return others.get(step.target.name)
    try:
        return frozen(step.target.field, step.target.field.incoming, raw, others)
    except Unfit:
        return others.get(step.target.name)
