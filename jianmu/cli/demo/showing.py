"""How the refund desk shows a request."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from jianmu.cli.demo.records import Filed, Outcome, Request
from jianmu.draw.outline import one_line

MARKS: dict[Outcome, str] = {"paid": "✓", "unpaid": "!", "declined": "✗", "refused": "✗"}


def card(request: Request, why: str) -> list[str]:
    """Return the lines of a question about a request."""
    days = f"bought {request.days} {'day' if request.days == 1 else 'days'} ago"
    lines = [one_line(f"{request.id} · {request.customer} · {request.price} · {days}")]
    lines += [f'"{one_line(crop(request.reason, 300))}"'] if request.reason else []
    return [*lines, f"{why[:1].upper()}{why[1:]}. Refund {request.price}?"]


def entry(filed: Filed) -> str:
    """Return the line of a request that is done with."""
    request = filed.request
    name = set_cell_size(one_line(crop(request.customer, 16)), 16)
    how = (
        f"{filed.outcome} by {filed.by}" if filed.outcome in ("paid", "declined") else f"{filed.outcome}: {filed.note}"
    )
    return f"{MARKS[filed.outcome]} {one_line(crop(request.id, 12)):<8} {name} {request.price:>13}  {how}"


def crop(text: str, cells: int) -> str:
    """Return a text on one line that takes so many cells of a terminal at most."""
    line = " ".join(text.split())
    return line if cell_len(line) <= cells else f"{set_cell_size(line, cells - 1).rstrip()}…"
