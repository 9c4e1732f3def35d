"""Where a person types: Enter sends, Ctrl-J begins a new line, Up brings back what was sent."""

from __future__ import annotations

from dataclasses import dataclass

from textual.events import Key
from textual.message import Message
from textual.widgets import TextArea

NEW_LINE = ("ctrl+j", "shift+enter", "alt+enter")


class Prompt(TextArea):
    """A text that is sent with Enter.

    Args:
        hint: what stands there while it is empty.
    """

    @dataclass
    class Sent(Message):
        """A text was typed."""

        text: str

    def __init__(self, hint: str) -> None:
        super().__init__(id="prompt", placeholder=hint, compact=True, highlight_cursor_line=False)
        self._sent: list[str] = []
        self._at = 0

    def remember(self, text: str) -> None:
        """Keep a text that was sent, and begin the next one."""
        self._sent.append(text)
        self._at = len(self._sent)
        self.text = ""

    def put_back(self, text: str) -> None:
        """Show a text that was refused, unless another one was begun."""
        if not self.text:
            self.text = text
            self.move_cursor(self.document.end)

    async def _on_key(self, event: Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Sent(self.text.strip()))
        elif event.key in NEW_LINE:
            event.stop()
            event.prevent_default()
            self.insert("\n")
        elif event.key in ("up", "down") and self._recall(-1 if event.key == "up" else 1):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _recall(self, step: int) -> bool:
        """Show what was sent before or after; only while what is shown was not changed."""
        shown = self._sent[self._at] if self._at < len(self._sent) else ""
        if self.text != shown or not 0 <= self._at + step <= len(self._sent):
            return False
        self._at += step
        self.text = self._sent[self._at] if self._at < len(self._sent) else ""
        self.move_cursor(self.document.end)
        return True
