"""The report of the refund desk, as Markdown or JSON; its counts add up to the lines of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, NamedTuple

from jianmu.cli.demo.records import Desk, Request
from jianmu.cli.demo.showing import crop
from jianmu.cli.load import write_text
from jianmu.draw.outline import one_line

End = Literal["finished", "interrupted", "left open"]
ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#~"})
ORDER = ("paid", "unpaid", "declined", "refused", "open", "skipped")


class Row(NamedTuple):
    """One request as it stands in the report."""

    request: Request
    outcome: str
    by: str
    note: str


def rows(state: Desk) -> list[Row]:
    """Return a row for each request, those that are still open too."""
    done = [Row(each.request, each.outcome, each.by, each.note) for each in state.filed]
    decided = [
        Row(each.request, "open", each.by, _standing(each.outcome, each.request, state.paying))
        for each in state.decisions[len(done) :]
    ]
    left = [Row(each, "open", "", "not decided") for each in state.requests[len(state.decisions) :]]
    return [*done, *decided, *left]


def _standing(outcome: str, request: Request, paying: str | None) -> str:
    """Return how a request stands that was decided and not filed."""
    if outcome == "approved" and request.id == paying:
        return "approved; the payment was begun, its outcome is not known"
    return f"{outcome}, not {'paid' if outcome == 'approved' else 'filed'}"


def counts(state: Desk) -> dict[str, int]:
    """Return how many lines ended in which way; together they are all lines."""
    outcomes = [row.outcome for row in rows(state)]
    found = {name: outcomes.count(name) for name in ORDER}
    return {**found, "skipped": len(state.skipped)}


def sum_line(state: Desk) -> str:
    """Return the counts as a sum."""
    parts = [f"{count} {name}" for name, count in counts(state).items() if count]
    lines = f"{state.lines} line{'' if state.lines == 1 else 's'}"
    return f"{lines} = {' + '.join(parts)}" if parts else f"{lines}, nothing to do"


def write_report(target: Path, state: Desk, source: Path, end: End) -> None:
    """Write the report: JSON if the file is named so, else Markdown."""
    render = _json if target.suffix == ".json" else _markdown
    write_text(target, render(state, source, end))


def _json(state: Desk, source: Path, end: End) -> str:
    report = {
        "file": str(source),
        "end": end,
        "lines": state.lines,
        "counts": counts(state),
        "requests": [
            {**row.request.model_dump(mode="json"), "outcome": row.outcome, "by": row.by, "note": row.note}
            for row in rows(state)
        ],
        "skipped": [each.model_dump(mode="json") for each in state.skipped],
    }
    return json.dumps(report, ensure_ascii=False, indent=1) + "\n"


def _markdown(state: Desk, source: Path, end: End) -> str:
    lines = ["# Refund desk", "", f"{_plain(source.name)}, {end}: {sum_line(state)}", ""]
    found = rows(state)
    if found:
        lines += ["| line | id | customer | amount | outcome | by | note |", "|--:|---|---|--:|---|---|---|"]
        lines += [_row(row) for row in found] + [""]
    if state.skipped:
        lines += [
            "## Skipped lines",
            "",
            *(f"- line {each.line}: {_plain(each.problem)}" for each in state.skipped),
            "",
        ]
    return "\n".join(lines)


def _row(row: Row) -> str:
    request = row.request
    cells = (str(request.line), request.id, request.customer, request.price, row.outcome, row.by, row.note)
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return one_line(crop(text, 200)).translate(ESCAPES)
