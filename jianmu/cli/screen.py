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

from jianmu.cli.keyboard import Keyboard
from jianmu.cli.picture import STYLES, picture
from jianmu.cli.telling import ROUTINE, Teller
from jianmu.draw.outline import MARKS
from jianmu.engine.events import Event

FRAME_SECONDS = 0.1
Footer = Callable[[], Iterable[RenderableType]]


class Lines:
    """Writes one line for each event that is worth it; while a question waits, the lines wait too.

    Args:
        silent: kinds of events that are not shown.
    """

    def __init__(self, silent: tuple[type[Event], ...] = ()) -> None:
        self._teller = Teller(silent)
        self._start = time.monotonic()
        self._held: list[str] = []
        self._is_paused = False
        self._is_prompting = False

    @property
    def console_file(self) -> TextIO:
        """Where questions are shown: stderr, unless that is no terminal and stdout is one."""
        stdout = sys.__stdout__
        is_there = stdout is not None and stdout.isatty() and not sys.stderr.isatty()
        return stdout if is_there and stdout is not None else sys.stderr

    def take(self, event: Event) -> None:
        """Show an event."""
        line = self._teller.line(event)
        if line is None:
            return
        if self._is_paused:
            self.remember(line)
        else:
            self.tell(line)

    def remember(self, line: str) -> None:
        """Write a line when the question that is asked is done with."""
        self._held.append(line)

    def tell(self, line: str) -> None:
        """Write a line."""
        print(line, file=sys.stderr, flush=True)

    def summary(self, status: Status) -> str:
        """Return how a run stands, in a line."""
        seconds = time.monotonic() - self._start
        passes = self._teller.passes
        return f"{MARKS[status]} {status.name} · {passes} {'pass' if passes == 1 else 'passes'} · {seconds:.1f} s"

    async def refresh(self) -> None:
        """Keep what is shown up to date until cancelled."""

    def pause(self, lines: list[str]) -> None:
        """Let what moves stand still, and show what leads to a prompt."""
        self._is_paused = True
        for line in lines:
            print(line, file=self.console_file)

    async def ask(self, keyboard: Keyboard, prompt: str) -> str:
        """Return what is typed after a prompt."""
        was_typed_ahead = keyboard.has_more()
        print(prompt, end="", file=self.console_file, flush=True)
        self._is_prompting = True
        line = await keyboard.line()
        self._is_prompting = False
        if was_typed_ahead:
            print(line, file=self.console_file, flush=True)
        return line

    def reject(self, why: str) -> None:
        """Say why what was typed is no answer."""
        print(why, file=self.console_file, flush=True)

    def resume(self) -> None:
        """Let what stood still go on."""
        if self._is_prompting:
            print(file=self.console_file, flush=True)
        self._is_paused = self._is_prompting = False
        held, self._held = self._held, []
        for line in held:
            self.tell(line)

    def close(self) -> None:
        """Put in order what is left."""


class LiveTree(Lines):
    """Shows the tree while it works, at the foot of the terminal; lines scroll by above it.

    Args:
        root: the tree.
        console: the terminal.
        footer: returns the lines below the tree.
    """

    def __init__(self, root: Behaviour, console: Console, footer: Footer | None = None) -> None:
        super().__init__(ROUTINE)
        self._root = root
        self._console = console
        self._footer = footer or self._progress
        self._live: Live | None = None
        self._room = 0
        self._rows = 0
        self._tried = 0
        self._is_unsure = False
        self._stood: list[Text] = []

    @property
    def console_file(self) -> TextIO:
        """The terminal."""
        return self._console.file  # pyright: ignore[reportReturnType]  # rich types it as IO[str]

    def tell(self, line: str) -> None:
        """Write a line above the tree."""
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
        self._room = sum(map(self._height, asked)) + 2
        self._rows = self._close()
        self._room = self._tried = 0
        self._rows += sum(map(self._height, asked))
        super().pause(asked)

    async def ask(self, keyboard: Keyboard, prompt: str) -> str:
        """Return what is typed after a prompt, and note the rows that it takes."""
        line = await super().ask(keyboard, prompt)
        self._tried += self._height(prompt + line)
        self._is_unsure = keyboard.has_more()
        return line

    def reject(self, why: str) -> None:
        """Put the reason in the place of what was typed."""
        self._erase(self._tried)
        self._tried = self._height(why)
        super().reject(why)

    def resume(self) -> None:
        """Take the question away and let the tree move on."""
        self._erase(self._rows + self._tried)
        self._is_prompting = False
        self._open()
        super().resume()

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
        return Group(*self._tree(max(rows, 3)), *below)

    def _tree(self, rows: int) -> list[Text]:
        """Return the lines of the tree; of a run that was cut short they show where it stood."""
        if self._root.status is not Status.INVALID or not self._stood:
            self._stood = picture(self._root, rows)
        return self._stood

    def _progress(self) -> list[Text]:
        status = self._root.status
        if status is Status.INVALID:
            return []
        return [Text(self.summary(status), style=STYLES[status])]

    def _erase(self, rows: int) -> None:
        """Clear the rows above the cursor, unless more was typed ahead, whose rows nobody has counted.

        Line by line, since some terminals keep what is cleared in one stroke.
        """
        if self._is_unsure:
            return
        up = min(rows, self._console.height - 1)
        self._console.file.write("\r" + "\x1b[2K\x1b[1A" * up + "\x1b[2K")
        self._console.file.flush()

    def _height(self, text: str) -> int:
        return max(1, math.ceil(cell_len(text) / self._console.width))


def is_live(console: Console) -> bool:
    """Whether a terminal can show a tree that moves."""
    return sys.stderr.isatty() and not console.is_dumb_terminal
