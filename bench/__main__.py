"""Run the table: `python -m bench [--short] [words of the rows wanted]`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import traceback
from importlib.metadata import version
from pathlib import Path

from bench.measure import Effort, Pair
from bench.rows import ROWS, Row

RESULTS = Path(__file__).with_name("results.json")
PEERS = ("anyio", "langgraph", "py-trees", "pydantic", "structlog", "trio")


def duration(seconds: float) -> str:
    """Return a duration with three digits and a unit that a reader can compare."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def measured(row: Row, effort: Effort) -> Pair | None:
    """Measure one row, or print why it cannot be and return None."""
    try:
        return row.measure(effort)
    except Exception:  # noqa: BLE001  # a row that fails is reported, the others are measured all the same
        traceback.print_exc()
        return None


def record(row: Row, pair: Pair | None) -> dict[str, object]:
    """Return a row as JSON; durations are in seconds."""
    told: dict[str, object] = {"work": row.work, "against": row.against, "bar": row.bar}
    if pair is None:
        return {**told, "error": True, "met": False}
    return {**told, "ours": pair.ours, "peer": pair.peer, "ratio": row.ratio(pair), "met": row.is_met(pair)}


def line(row: Row, pair: Pair | None) -> str:
    """Return a row as a line of the table."""
    head = f"{row.work:<48} {row.against:<31}"
    if pair is None:
        return f"{head} {'error':>28}"
    verdict = "met" if row.is_met(pair) else "MISSED"
    return f"{head} {duration(pair.ours):>9} {duration(pair.peer):>9} {row.ratio(pair):>8.2f}  {row.bar:<15} {verdict}"


def main() -> int:
    """Measure, print, write the results, and return the exit status."""
    options = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    options.add_argument("--short", action="store_true", help="few repeats; fails only on errors, writes nothing")
    options.add_argument("words", nargs="*", help="measure only rows whose text has one of these; writes nothing")
    chosen = options.parse_args()
    rows = [
        row for row in ROWS if not chosen.words or any(word in f"{row.work} {row.against}" for word in chosen.words)
    ]
    print(f"{'work':<48} {'against':<31} {'ours':>9} {'peer':>9} {'ratio':>8}  {'bar':<15}")
    records: list[dict[str, object]] = []
    for row in rows:
        pair = measured(row, Effort(chosen.short))
        records.append(record(row, pair))
        print(line(row, pair), flush=True)
    if not chosen.short and not chosen.words:
        versions = {"python": platform.python_version(), **{name: version(name) for name in PEERS}}
        RESULTS.write_text(json.dumps({"versions": versions, "rows": records}, indent=2, ensure_ascii=False) + "\n")
    failed = any("error" in told for told in records) if chosen.short else not all(told["met"] for told in records)
    return 1 if failed else 0


sys.exit(main())
