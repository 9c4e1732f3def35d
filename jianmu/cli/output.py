"""What commands write to stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeVar  # Any: JSON

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jianmu.cli.faults import UsageError
from jianmu.cli.options import Options
from jianmu.draw.outline import one_line

T = TypeVar("T")
Fetch = Callable[..., Awaitable[Sequence[T]]]
"""Returns a page: up to `limit` rows `after` the cursor of one."""
UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
PAGE = 100
LEAST = {"cut": 12, "fold": 16}
"""Cells of a column that has given way."""
WIDE = 2000
"""Columns of what is no terminal."""


def stdout() -> TextIO:
    """Return the process's stdout, wherever `print` goes."""
    return sys.__stdout__ or sys.stdout


def write_json(value: object, *, indent: int | None = None) -> None:
    """Write a JSON value on one line, or indented."""
    told = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    plain = to_jsonable_python(told, fallback=str, inf_nan_mode="null")
    is_unicode = "utf" in (stdout().encoding or "").lower()
    say(json.dumps(plain, ensure_ascii=not is_unicode, indent=indent, allow_nan=False))


def show_output(output: dict[str, Any]) -> None:
    """Write the output of a run as JSON: indented on a terminal, else on one line."""
    write_json(output, indent=2 if stdout().isatty() else None)


def say(line: str) -> None:
    """Write a line."""
    print(line, file=stdout(), flush=True)


def tell(told: object, line: str, options: Options) -> None:
    """Write what was done: JSON for programs, a line for people."""
    if options.json:
        write_json(told)
    else:
        say(one_line(line))


def width() -> int:
    """Return how many columns there are."""
    return shutil.get_terminal_size().columns if stdout().isatty() else WIDE


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: stands above it.
        gives: how it gives way where the terminal is narrow: what does not fit is cut off, or folded.
        is_number: whether it is set to the right.
    """

    title: str
    gives: Literal["cut", "fold"] | None = None
    is_number: bool = False


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
    """Write a table that fits the terminal; what holds text of others is shown as it is, and obeyed by nobody."""
    cells = [[cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, cells_wide in zip(columns, _widths(columns, cells), strict=True):
        table.add_column(
            column.title,
            width=cells_wide,
            justify="right" if column.is_number else "left",
            no_wrap=column.gives != "fold",
            overflow="fold" if column.gives == "fold" else "ellipsis",
        )
    for row in cells:
        table.add_row(*row)
    console = Console(file=stdout(), width=width(), highlight=False, markup=False, emoji=False)
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        say(line.rstrip())


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> list[int]:
    """Return how wide each column is: those that are cut give way first."""
    widths = [
        max(cell_len(text) for text in (column.title, *(row[number].plain for row in rows)))
        for number, column in enumerate(columns)
    ]
    excess = sum(widths) + 2 * len(widths) - width()
    for gives, least in LEAST.items():
        mine = [number for number, column in enumerate(columns) if column.gives == gives]
        while excess > 0 and mine and widths[widest := max(mine, key=widths.__getitem__)] > least:
            widths[widest] -= 1
            excess -= 1
    return widths


async def rows_of(fetch: Fetch[T], cursor: Callable[[T], object], after: object, limit: int | None) -> AsyncIterator[T]:
    """Yield what is there, page by page, up to a limit."""
    left = sys.maxsize if limit is None else limit
    while left > 0:
        page = await fetch(after=after, limit=min(left, PAGE))
        for row in page:
            yield row
        if len(page) < min(left, PAGE):
            return
        after, left = cursor(page[-1]), left - len(page)


async def first_of(fetch: Fetch[T], cursor: Callable[[T], object], after: object, limit: int) -> tuple[list[T], bool]:
    """Return up to so many rows, and whether there are more."""
    found = [row async for row in rows_of(fetch, cursor, after, limit + 1)]
    return found[:limit], len(found) > limit


def check_limit(limit: int | None) -> int | None:
    """Return how many rows are wanted.

    Raises:
        UsageError: it is no such number.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: at least one")
    return limit


def duration(text: str, what: str) -> float:
    """Return seconds from a text like `90`, `30s`, `15m`, `2h`, `1d`.

    Raises:
        UsageError: it is none; `what` says what was read.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in UNITS:
        raise UsageError(f"{what} {text}: write it like 90, 15m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def span(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def ago(then: datetime) -> str:
    """Return how long ago an instant was."""
    seconds = (datetime.now(UTC) - then).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 60 else "just now"


def ahead(then: datetime | None) -> str:
    """Return how far away an instant is; nothing for None."""
    if then is None:
        return ""
    seconds = (then - datetime.now(UTC)).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else "now"


def short(then: datetime | None) -> str:
    """Return an instant as the clock on the wall shows it, without the year."""
    return "" if then is None else f"{then.astimezone():%m-%d %H:%M:%S}"


def local(then: datetime) -> str:
    """Return an instant as the clock on the wall shows it."""
    return f"{then.astimezone():%Y-%m-%d %H:%M:%S}"
