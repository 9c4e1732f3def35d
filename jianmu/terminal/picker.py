"""Where another thread is chosen, or a new one begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from jianmu.engine.checkpoint import Checkpointer
from jianmu.stores.titles import titles_of
from jianmu.terminal.blocks import safe

MOST = 1_000
TITLED = 100
"""Threads whose titles are looked up: the last changed ones."""
NEW = ""
WIDEST = 48
"""Columns of a name."""
UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


@dataclass(frozen=True)
class ThreadLine:
    """A thread that can be chosen.

    Attributes:
        thread_id: its id.
        status: how it stands.
        age: how long ago it was changed.
        title: what it is called, or an empty text.
    """

    thread_id: str
    status: str
    age: str
    title: str = ""


async def thread_lines(store: Checkpointer, now: datetime | None = None) -> list[ThreadLine]:
    """Return the threads of a store, the last changed first."""
    present = (now or datetime.now(UTC)).timestamp()
    rows = await store.threads(limit=MOST)
    rows.sort(key=lambda row: row.updated_at, reverse=True)
    titles = await titles_of(store, [row.thread_id for row in rows[:TITLED]])
    return [
        ThreadLine(
            row.thread_id,
            "crashed" if row.status == "running" and not row.is_held else row.status,
            ago(present - row.updated_at),
            titles.get(row.thread_id, ""),
        )
        for row in rows
    ]


def ago(seconds: float) -> str:
    """Return how long ago something was."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def _name(line: ThreadLine) -> str:
    """Return what a thread is listed as: its title, cut where it is too long, or its id."""
    name = " ".join(safe(line.title or line.thread_id).split())
    is_cut = line.title and cell_len(name) > WIDEST
    return f"{set_cell_size(name, WIDEST - 1).rstrip()}…" if is_cut else name


class ThreadPicker(ModalScreen[str | None]):
    """A list of threads; the result is the id of the one that was chosen, `NEW` (which no thread is called), or None.

    Args:
        threads: what can be chosen.
        current: the id of the one that is shown now.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(self, threads: Sequence[ThreadLine], current: str) -> None:
        super().__init__()
        self.threads = threads
        self._current = current

    def compose(self) -> ComposeResult:
        """Show the list."""
        width = min(max((cell_len(_name(line)) for line in self.threads), default=0), WIDEST)
        with Vertical(classes="dialog"):
            yield Static("Threads", classes="question")
            yield OptionList(
                Option(Content.styled("a new thread", "bold"), id=NEW),
                *(Option(self._text(line, width)) for line in self.threads),
            )
        yield Footer(show_command_palette=False)

    def _text(self, line: ThreadLine, width: int) -> Content:
        mark = "●" if line.thread_id == self._current else " "
        name = _name(line)
        pad = " " * (width - cell_len(name))
        return Content.assemble(f"{mark} {name}{pad}  ", (f"{line.status:<11} {line.age}", "$text-muted"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return what was chosen."""
        event.stop()
        self.dismiss(NEW if event.option_index == 0 else self.threads[event.option_index - 1].thread_id)
