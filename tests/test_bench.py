"""The judge of the benchmarks: a bar is met or missed, and a failure is neither."""

from __future__ import annotations

import gc

import pytest

from bench.measure import Effort, Pair, block, in_turns
from bench.row import Result, Row, Unit, amount, measured


def fail(effort: Effort) -> Pair:
    """A measurement that cannot be made."""
    raise ValueError("no peer here")


@pytest.mark.parametrize(("ours", "met"), [(1.0, True), (1.5, True), (1.51, False)])
def test_at_most_bounds_ours_by_the_peer(ours: float, met: bool) -> None:
    """`at_most` 1.5 is met up to 1.5 times the peer's time."""
    result = Result(Row("work", "peer", lambda _: Pair(ours, 1.0), at_most=1.5), Pair(ours, 1.0))
    assert result.is_met is met
    assert result.record()["ratio"] == ours


@pytest.mark.parametrize(("peer", "met"), [(20.0, True), (19.9, False), (40.0, True)])
def test_at_least_asks_for_a_faster_one(peer: float, met: bool) -> None:
    """`at_least` 20 is met when the peer takes 20 times as long, or longer."""
    result = Result(Row("work", "peer", lambda _: Pair(1.0, peer), at_least=20), Pair(1.0, peer))
    assert result.is_met is met
    assert result.record()["ratio"] == peer


def test_a_row_that_raises_is_an_error_and_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    """What a row raises is shown on stderr, and the row counts as an error."""
    result = measured(Row("work", "peer", fail, at_most=1.0), Effort(short=True))
    assert (result.is_error, result.is_met) == (True, False)
    assert "no peer here" in capsys.readouterr().err
    assert "ERROR" in result.line()


def test_both_sides_run_in_turns_and_the_best_round_counts() -> None:
    """Sides alternate in who is first; the warm-up round is not counted."""
    order: list[str] = []
    ours, peer = iter([0.1, 3.0, 2.0]), iter([0.1, 5.0, 6.0])

    def side(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    pair = in_turns(lambda: side("ours", next(ours)), lambda: side("peer", next(peer)), rounds=2)
    assert pair == Pair(2.0, 5.0)
    assert order == ["peer", "ours", "ours", "peer", "peer", "ours"]


def test_the_collector_is_off_while_time_is_taken() -> None:
    """Neither side pays for the other's garbage, and the collector is on again afterwards."""
    seen: list[bool] = []
    assert block(lambda: seen.append(gc.isenabled()), times=3) > 0
    assert seen == [False, False, False]
    assert gc.isenabled()


def test_bytes_are_compared_as_seconds_are() -> None:
    """A row may bound bytes: the bar, the line and the record say so."""
    row = Row("kept", "peer", lambda _: Pair(1_000, 46_000), at_least=45, unit="B")
    result = measured(row, Effort(short=True))
    assert result.is_met
    assert row.bar == "≥ 45 × smaller"
    assert "1 kB     46 kB    46.00" in result.line()
    assert result.record()["unit"] == "B"


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (2.0, "s", "2 s"),
        (0.0123, "s", "12.3 ms"),
        (4.5e-5, "s", "45 µs"),
        (3.3e-8, "s", "33 ns"),
        (20_774_912, "B", "20.8 MB"),
        (305_000, "B", "305 kB"),
        (0.5, "B", "0.5 B"),
    ],
)
def test_amounts_are_readable(number: float, unit: Unit, text: str) -> None:
    """An amount has the largest unit of which there is at least one, else the smallest."""
    assert amount(number, unit) == text
