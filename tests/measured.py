"""The table of measured figures in the README: `python -m tests.measured` writes it from bench/results.json."""

from __future__ import annotations

import json
import re
from typing import Any

from bench.row import LESS, Unit, amount
from tests.house import ROOT

README = ROOT / "README.md"
TABLE = re.compile(r"(?<=<!-- measured -->\n).*?(?=\n<!-- /measured -->)", re.DOTALL)
MORE: dict[Unit, str] = {"s": "slower", "B": "larger"}
HEAD = "| work | beside | jianmu | the other | |\n|---|---|--:|--:|---|"


def results() -> dict[str, Any]:
    """Return the results of the last full run of the benchmarks."""
    return json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))


def factor(row: dict[str, Any]) -> float:
    """Return how many times faster, or smaller, jianmu was."""
    return row["peer"] / row["ours"]


def peers() -> list[dict[str, Any]]:
    """Return the rows that were measured beside another library."""
    return [
        row
        for row in results()["rows"]
        if not row["error"] and ("LangGraph" in row["against"] or "py_trees" in row["against"])
    ]


def table() -> str:
    """Return the table as Markdown."""
    lines = [HEAD]
    for row in peers():
        times, unit = factor(row), row.get("unit", "s")
        verdict = f"{times:.3g} × {LESS[unit]}" if times >= 1 else f"{1 / times:.3g} × {MORE[unit]}"
        ours, peer = amount(row["ours"], unit), amount(row["peer"], unit)
        lines.append(f"| {row['work']} | {row['against']} | {ours} | {peer} | {verdict} |")
    versions = results()["versions"]
    names = {"Python": "python", "LangGraph": "langgraph", "py_trees": "py-trees", "Pydantic": "pydantic"}
    used = ", ".join(f"{name} {versions[package]}" for name, package in names.items())
    return "\n".join([*lines, "", f"With {used}. Faster or slower is as seen from jianmu."])


def shown() -> dict[tuple[str, str], float]:
    """Return how many times faster, or smaller, the README says that jianmu is, by row."""
    found = TABLE.search(README.read_text(encoding="utf-8"))
    assert found is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in found[0].splitlines()[2:]
        if line.startswith("|")
    ]
    return {(cells[0], cells[1]): _times(cells[4]) for cells in rows}


def _times(verdict: str) -> float:
    number = float(verdict.split()[0])
    return number if verdict.endswith(tuple(LESS.values())) else 1 / number


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: table(), README.read_text(encoding="utf-8")), encoding="utf-8")
