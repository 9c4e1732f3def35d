"""The blocks of a transcript as widgets, each of which follows its block."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Markdown, Static

from jianmu.terminal.blocks import Asking, Block, Call, Note, Reply, Said, Thought, safe, short
from jianmu.terminal.segments import Segments
from jianmu.terminal.transcript import Transcript

SHOWN = 100
"""Blocks that are laid out when a conversation is opened."""
CALL_LINES = 6
"""Lines of a result that are shown before it is opened."""
CALL_CHARACTERS = 20_000
THOUGHT_CHARACTERS = 60
CALL_MARKS = {
    "wanted": ("·", "$text-muted"),
    "asks": ("?", "$text-warning"),
    "running": ("▶", "$text-primary"),
    "done": ("✓", "$text-success"),
    "failed": ("✗", "$text-error"),
    "stopped": ("■", "$text-warning"),
}
NOTE_STYLES = {"info": "$text-muted", "warning": "$text-warning", "error": "$text-error"}


class BlockView(Static):
    """A block that is a few lines of text."""

    def __init__(self, block: Block) -> None:
        super().__init__(markup=False, classes=type(block).__name__.lower())
        self.block = block

    def on_mount(self) -> None:
        """Show the block."""
        self.update(self.content_of())

    async def follow(self) -> None:
        """Show the block as it is now."""
        self.update(self.content_of())

    def content_of(self) -> Content:
        """Return what is shown."""
        match self.block:
            case Said(text=text):
                return Content(text)
            case Note(text=text, kind=kind):
                return Content.styled(text, NOTE_STYLES[kind])
            case Asking():
                return _asking(self.block)
            case _:
                return Content("")


class OpenView(BlockView, can_focus=True):
    """A block of which a part is shown; Enter or a click opens it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "open", "Open", show=False)]
    is_open = False

    def action_open(self) -> None:
        """Open or close it."""
        self.is_open = not self.is_open
        self.update(self.content_of())

    def on_click(self) -> None:
        """Open or close it."""
        self.action_open()


class CallView(OpenView):
    """A tool call with its arguments and its result."""

    def __init__(self, block: Call) -> None:
        super().__init__(block)
        self.call = block

    def content_of(self) -> Content:
        """Return the call, and as much of its result as is wanted."""
        return call_content(self.call, is_open=self.is_open)


class ThoughtView(OpenView):
    """What a model thinks before it answers: a line, until it is opened."""

    def __init__(self, block: Thought) -> None:
        super().__init__(block)
        self.thought = block

    def content_of(self) -> Content:
        """Return the end of the thought, or all of it."""
        self.display = self.thought.state != "void"
        return thought_content(self.thought, is_open=self.is_open)


class ReplyView(Vertical):
    """A reply as Markdown, in segments, so that a piece that comes in costs what one segment is long."""

    def __init__(self, block: Reply) -> None:
        super().__init__(classes="reply")
        self.block = block
        self._segments = Segments()
        self._read = 0
        self._parts: list[Markdown] = []

    async def on_mount(self) -> None:
        """Show the reply."""
        await self.follow()

    async def follow(self) -> None:
        """Lay out what came in since the last call."""
        block = self.block
        self.set_class(block.state == "stopped", "stopped")
        self.set_class(not block.is_message and block.state == "done", "aside")
        self.display = block.state != "void"
        for piece in block.pieces[self._read :]:
            self._segments.add(piece)
        self._read = len(block.pieces)
        for index, text in self._segments.take(is_end=block.state != "live"):
            await self._put(index, text)

    async def _put(self, index: int, text: str) -> None:
        if index < len(self._parts):
            await self._parts[index].append(text)
            return
        part = Markdown(text, open_links=False)
        self._parts.append(part)
        await self.mount(part)


class TranscriptView(VerticalScroll):
    """The blocks of a conversation; it stays at its end until somebody scrolls."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(id="transcript")
        self.transcript = transcript
        self._views: dict[int, BlockView | ReplyView] = {}
        self._generation = -1

    def on_mount(self) -> None:
        """Stay at the end."""
        self.anchor()

    async def follow(self) -> None:
        """Show what has changed in the transcript."""
        changed = self.transcript.changes()
        if self._generation != self.transcript.generation:
            await self._start_over()
            return
        new = [block for block in changed if block.key not in self._views]
        for block in changed:
            view = self._views.get(block.key)
            if view is not None:
                await view.follow()
        await self._show(block for block in new if block.key >= self._first)

    async def _start_over(self) -> None:
        self._generation = self.transcript.generation
        self._views.clear()
        await self.remove_children()
        blocks = self.transcript.blocks
        self._first = max(0, len(blocks) - SHOWN)
        if self._first:
            await self.mount(Static(f"… {self._first} earlier blocks are not shown", markup=False, classes="note"))
        await self._show(blocks[self._first :])
        self.anchor()

    async def _show(self, blocks: Iterable[Block]) -> None:
        views = {block.key: _view(block) for block in blocks}
        self._views |= views
        if views:
            await self.mount_all(views.values())

    _first = 0


def _view(block: Block) -> BlockView | ReplyView:
    if isinstance(block, Reply):
        return ReplyView(block)
    if isinstance(block, Thought):
        return ThoughtView(block)
    return CallView(block) if isinstance(block, Call) else BlockView(block)


def thought_content(thought: Thought, *, is_open: bool) -> Content:
    """Return a thought as text: where it is not open, what was thought last, or how much it was."""
    text = thought.text.strip()
    if is_open:
        return Content.styled(f"∴ {text[-CALL_CHARACTERS:]}", "$text-muted")
    last = ("…" if len(text) > THOUGHT_CHARACTERS else "") + " ".join(text[-THOUGHT_CHARACTERS:].split())
    what = f"thinking: {last}" if thought.state == "live" else f"thought, {len(text):,} characters"
    return Content.styled(f"∴ {what}", "$text-muted")


def call_content(call: Call, *, is_open: bool) -> Content:
    """Return a call as text: its name and arguments, how it stands, its result."""
    mark, style = CALL_MARKS[call.state]
    head = Content.assemble((f"{mark} ", style), *_wanted(call, is_open))
    if call.state == "asks":
        what = "an answer" if call.is_question else "your approval"
        head = Content.assemble(head, (f"  waits for {what} (Ctrl-R)", style))
    if call.state == "stopped":
        head = Content.assemble(head, ("  stopped", style))
    if call.result is None:
        return head
    return Content("\n").join([head, *_result(call, is_open)])


def _wanted(call: Call, is_open: bool) -> list[str | tuple[str, str]]:
    """Return what the model wants: a question as it is asked, any other call with its name and arguments."""
    given = call.arguments if isinstance(call.arguments, dict) else {}
    question, options = given.get("question"), given.get("options")
    if call.is_question and isinstance(question, str) and not is_open:
        listed = [short(one, 60) for one in options] if isinstance(options, list) else []
        return [safe(question), (f"  ({' / '.join(listed)})" if listed else "", "$text-muted")]
    return [(call.name, "bold"), "  ", (arguments_of(call, is_open), "$text-muted")]


def arguments_of(call: Call, is_open: bool) -> str:
    """Return the arguments of a call: on one line, or as JSON where it is open."""
    if is_open and not isinstance(call.arguments, str):
        return "\n" + safe(json.dumps(call.arguments, indent=2, ensure_ascii=False))
    if isinstance(call.arguments, dict):
        return ", ".join(
            f"{name}={short(json.dumps(one, ensure_ascii=False), 60)}" for name, one in call.arguments.items()
        )
    return short(call.arguments)


def _result(call: Call, is_open: bool) -> list[Content]:
    text = (call.result or "")[:CALL_CHARACTERS]
    lines = text.splitlines() or ["(nothing)"]
    most = len(lines) if is_open else CALL_LINES
    style = "$text-error" if call.state == "failed" else ""
    shown = [Content.assemble(("  │ ", "$text-muted"), (line, style)) for line in lines[:most]]
    if len(lines) > most:
        shown.append(Content.styled(f"  │ … {len(lines) - most} more lines: Enter or a click opens it", "$text-muted"))
    if len(call.result or "") > CALL_CHARACTERS:
        shown.append(Content.styled(f"  │ … cut off at {CALL_CHARACTERS} characters", "$text-muted"))
    return shown


def _asking(block: Asking) -> Content:
    end = f"  {block.end}" if block.end else "  waits for an answer (Ctrl-R)"
    if block.answer:
        end = f"  {block.end}: {block.answer}"
    return Content.assemble(("? ", "$text-warning"), block.text, (end, "$text-muted"))
