"""One line of the table: what is measured, against what, the bar, and how it turned out."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.measure import Effort, Pair

Unit = Literal["s", "B"]

SCALES: dict[Unit, dict[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9},
    "B": {"GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0},
}
LESS: dict[Unit, str] = {"s": "faster", "B": "smaller"}


@dataclass(frozen=True)
class Row:
    """One line: `at_most` bounds ours / peer, `at_least` bounds peer / ours."""

    work: str
    against: str
    measure: Callable[[Effort], Pair]
    at_most: float | None = None
    at_least: float | None = None
    unit: Unit = "s"

    @property
    def bar(self) -> str:
        """The bar in words."""
        return f"≤ {self.at_most:g} ×" if self.at_most is not None else f"≥ {self.at_least:g} × {LESS[self.unit]}"

    def ratio(self, pair: Pair) -> float:
        """Return the ratio that the bar bounds."""
        return pair.ours / pair.peer if self.at_most is not None else pair.peer / pair.ours

    def is_met(self, pair: Pair) -> bool:
        """Tell whether the measurement meets the bar."""
        if self.at_most is not None:
            return self.ratio(pair) <= self.at_most
        return self.at_least is not None and self.ratio(pair) >= self.at_least


def amount(number: float, unit: Unit) -> str:
    """Return seconds or bytes with three digits and a unit that a reader can compare."""
    scale = SCALES[unit]
    name = next((name for name, size in scale.items() if number >= size), [*scale][-1])
    return f"{number / scale[name]:.3g} {name}"


@dataclass(frozen=True)
class Result:
    """A row with what was measured; None where measuring failed."""

    row: Row
    pair: Pair | None

    @property
    def is_error(self) -> bool:
        """Whether the row could not be measured."""
        return self.pair is None

    @property
    def is_met(self) -> bool:
        """Whether the bar was measured and is met."""
        return self.pair is not None and self.row.is_met(self.pair)

    def record(self) -> dict[str, object]:
        """Return the result as JSON; `unit` is that of what was measured on each side."""
        row = self.row
        told: dict[str, object] = {"work": row.work, "against": row.against, "bar": row.bar, "unit": row.unit}
        if self.pair is not None:
            told |= {"ours": self.pair.ours, "peer": self.pair.peer, "ratio": self.row.ratio(self.pair)}
        return {**told, "met": self.is_met, "error": self.is_error}

    def line(self) -> str:
        """Return the result as a line of the table."""
        head = f"{self.row.work:<48} {self.row.against:<35}"
        if self.pair is None:
            return f"{head} {'':>28}  {self.row.bar:<16} ERROR"
        sides = (amount(side, self.row.unit) for side in (self.pair.ours, self.pair.peer))
        measured = " ".join([*(f"{side:>9}" for side in sides), f"{self.row.ratio(self.pair):>8.2f}"])
        return f"{head} {measured}  {self.row.bar:<16} {'met' if self.is_met else 'MISSED'}"


HEAD = f"{'work':<48} {'against':<35} {'ours':>9} {'peer':>9} {'ratio':>8}  {'bar':<16}"


def measured(row: Row, effort: Effort) -> Result:
    """Measure one row; where that fails print why, so that the others are measured all the same."""
    try:
        return Result(row, row.measure(effort))
    except Exception:  # noqa: BLE001  # whatever a row raises is shown and makes the run fail
        traceback.print_exc()
        return Result(row, None)
