"""Run the table: `python -m bench [--short] [words of the rows wanted]`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from bench.measure import Effort
from bench.row import HEAD, Result, measured
from bench.rows import ROWS

RESULTS = Path(__file__).with_name("results.json")
PACKAGES = ("anyio", "langgraph", "langgraph-checkpoint-sqlite", "py-trees", "pydantic", "structlog", "trio")


def write(results: list[Result]) -> None:
    """Write the results of a full run, with the versions that they belong to."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    told = {"versions": versions, "rows": [result.record() for result in results]}
    RESULTS.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, print, write the results, and return the exit status."""
    options = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    options.add_argument("--short", action="store_true", help="few repeats; fails only on errors, writes nothing")
    options.add_argument("words", nargs="*", help="measure only rows whose text has one of these; writes nothing")
    chosen = options.parse_args()
    rows = [
        row for row in ROWS if not chosen.words or any(word in f"{row.work} {row.against}" for word in chosen.words)
    ]
    print(HEAD)
    results: list[Result] = []
    for row in rows:
        results.append(measured(row, Effort(chosen.short)))
        print(results[-1].line(), flush=True)
    if not chosen.short and not chosen.words:
        write(results)
    failed = any(result.is_error if chosen.short else not result.is_met for result in results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
