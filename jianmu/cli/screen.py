"""What a run shows on stderr: a live tree, plain lines, or nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from jianmu.cli.picture import STYLES, picture
from jianmu.cli.telling import Teller
from jianmu.draw.outline import MARKS
from jianmu.engine.events import Event, NodeFinished, NodeHalted

FRAME_SECONDS = 0.1
Footer = Callable[[], Iterable[RenderableType]]


class Lines:
    """Writes one line for each event that is worth it.

    Args:
        is_quiet: show questions only.
        is_terse: show nothing of nodes.
    """

    def __init__(self, *, is_quiet: bool = False, is_terse: bool = False) -> None:
        self._teller = Teller(is_terse=is_terse)
        self._is_quiet = is_quiet
        self._start = time.monotonic()

    @property
    def console_file(self) -> TextIO:
        """Where questions are shown: stderr, unless that is no terminal and stdout is one."""
        return sys.__stdout__ if _is_shown_on_stdout() and sys.__stdout__ else sys.stderr

    def take(self, event: Event) -> None:
        """Show an event."""
        line = self._teller.line(event)
        if line is not None and not self._is_quiet:
            self.tell(line)

    def tell(self, line: str) -> None:
        """Write a line."""
        print(line, file=sys.stderr, flush=True)

    def summary(self, status: Status) -> str:
        """Return how a run has ended, in a line."""
        seconds = time.monotonic() - self._start
        passes = self._teller.passes
        return f"{MARKS[status]} {status.name} · {passes} {'pass' if passes == 1 else 'passes'} · {seconds:.1f} s"

    async def refresh(self) -> None:
        """Keep what is shown up to date until cancelled."""

    def pause(self, lines: list[str]) -> None:
        """Show what leads to a prompt."""
        for line in lines:
            self.say(line)

    def say(self, text: str, *, end: str = "\n") -> None:
        """Show a text while paused."""
        print(text, end=end, file=self.console_file, flush=True)

    def typed(self, line: str) -> None:
        """Nothing: the terminal shows what is typed."""

    def resume(self) -> None:
        """Nothing: there is nothing that stood still."""

    def close(self) -> None:
        """Nothing is left to be put in order."""


class LiveTree(Lines):
    """Shows the tree while it works, at the foot of the terminal; lines scroll by above it.

    Args:
        root: the tree.
        console: the terminal.
        footer: returns the lines below the tree.
        is_terse: show nothing of nodes but the tree.
    """

    def __init__(
        self, root: Behaviour, console: Console, footer: Footer | None = None, *, is_terse: bool = False
    ) -> None:
        super().__init__(is_terse=is_terse)
        self._root = root
        self._console = console
        self._footer = footer or self._progress
        self._live: Live | None = None
        self._room = 0
        self._rows = 0
        self._prompt = ""
        self._held: list[str] = []

    @property
    def console_file(self) -> TextIO:
        """The terminal."""
        return self._console.file  # pyright: ignore[reportReturnType]  # rich types it as IO[str]

    def take(self, event: Event) -> None:
        """Show an event, unless the tree shows it."""
        line = self._teller.line(event)
        if line is not None and not isinstance(event, (NodeFinished, NodeHalted)) and not line.startswith("?"):
            self.tell(line)

    def tell(self, line: str) -> None:
        """Write a line above the tree, once it moves."""
        if self._live is None:
            self._held.append(line)
        else:
            self._console.print(Text(line), soft_wrap=True)

    async def refresh(self) -> None:
        """Draw the tree again and again until cancelled."""
        self._open()
        while True:
            await anyio.sleep(FRAME_SECONDS)
            if self._live is not None:
                self._live.refresh()

    def pause(self, lines: list[str]) -> None:
        """Let the tree stand still and show a question below it."""
        asked = [line[: self._console.width * 4] for line in ["", *lines]]
        self._room = sum(map(self._height, asked)) + 1
        self._rows = self._close() if self._live is not None else 0
        self._room = 0
        super().pause(asked)

    def say(self, text: str, *, end: str = "\n") -> None:
        """Show a text while paused, and count the rows that it takes."""
        self._rows += self._height(text) if end else 0
        self._prompt = "" if end else text
        super().say(text, end=end)

    def typed(self, line: str) -> None:
        """Count the row that was typed, with its prompt."""
        self._rows += self._height(self._prompt + line)

    def resume(self) -> None:
        """Take the question away and let the tree move on."""
        up = min(self._rows, self._console.height - 1)
        self._console.file.write(f"\r\x1b[{up}A\x1b[J")
        self._open()
        held, self._held = self._held, []
        for line in held:
            self.tell(line)

    def close(self) -> None:
        """Leave the tree as it stands and give the terminal back."""
        self._close()

    def _open(self) -> None:
        self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._frame)
        self._live.start(refresh=True)

    def _close(self) -> int:
        """Stop the tree where it is and return the rows that it takes."""
        live, self._live = self._live, None
        if live is None:
            return 0
        live.refresh()
        live.stop()
        return len(self._frame().renderables)

    def _frame(self) -> Group:
        """Return the tree and what stands below it, in the room that there is."""
        below: list[RenderableType] = list(self._footer())
        rows = self._console.height - len(below) - self._room - 1
        return Group(*picture(self._root, max(rows, 3)), *below)

    def _progress(self) -> list[Text]:
        return [Text(self.summary(self._root.status), style=STYLES[self._root.status])]

    def _height(self, text: str) -> int:
        return max(1, math.ceil(cell_len(text) / self._console.width))


def _is_shown_on_stdout() -> bool:
    stdout = sys.__stdout__
    return stdout is not None and stdout.isatty() and not sys.stderr.isatty()


def is_live(console: Console) -> bool:
    """Whether a terminal can show a tree that moves."""
    return sys.stderr.isatty() and not console.is_dumb_terminal
