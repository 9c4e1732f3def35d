"""The chat as an app of textual.

1. Textual runs on asyncio alone: this app and the widgets are the only part of jianmu that trio cannot run. What a chat
   does is in `Conversation`, which both can run.
2. The app looks at the conversation again and again (`FRAME_SECONDS`) and shows what has changed: what comes in between
   two looks costs one update. Turns run outside of it, in the task group of whoever shows the app.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar  # Any: what a screen returns

from py_trees.common import Status
from pydantic import JsonValue
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.css.query import NoMatches
from textual.screen import ModalScreen, Screen
from textual.widget import MountError
from textual.widgets import Footer, Markdown, Static

from jianmu.engine.interaction import Suspension
from jianmu.errors import JianmuError
from jianmu.terminal.conversation import Conversation, Standing
from jianmu.terminal.dialogs import Action, Dialog
from jianmu.terminal.panes import state_lines, tree_lines
from jianmu.terminal.picker import NEW, ThreadPicker, thread_lines
from jianmu.terminal.prompt import Prompt
from jianmu.terminal.questions import dialog_of
from jianmu.terminal.telling import told
from jianmu.terminal.views import TranscriptView

FRAME_SECONDS = 1 / 20
SLOWER = 5
"""Looks after which the tree and the state are shown anew while a turn is on."""
Turn = Callable[[], Coroutine[object, object, None]]
Start = Callable[[Turn], object]
"""Starts a task that outlives the call."""
STYLES = {
    Status.SUCCESS: "$text-success",
    Status.FAILURE: "$text-error",
    Status.RUNNING: "bold $text-primary",
    Status.INVALID: "$text-muted",
}
HELP = (
    ("Enter", "send"),
    ("Ctrl-J", "a new line; Shift-Enter too, where the terminal tells it"),
    ("Up, Down", "what was sent before"),
    ("Ctrl-C", "stop the turn; twice when nothing is going on: quit"),
    ("Ctrl-T", "the tree and the state"),
    ("Ctrl-R", "answer the question that waits; look again, where another program has the thread"),
    ("Ctrl-Y", "approve, or answer, in a question"),
    ("Ctrl-G", "go on with a turn that was cut short"),
    ("Ctrl-O, Ctrl-N", "other threads, a new thread"),
    ("Tab, Enter", "go to a tool call or a thought, and open it"),
    ("Page Up, Down", "scroll"),
    ("Ctrl-Q", "quit; the thread is kept"),
)
GOES_ON = "A turn is going on: Ctrl-C stops it."
STANDING_NOTES: dict[Standing, str] = {
    "cut": "The last turn was cut short. Ctrl-G goes on with it; a new message gives it up.",
    "busy": "Another program is at work on this thread.\n"
    "Its questions are answered there. Ctrl-R looks again, Ctrl-N begins a new one.",
}


class HelpScreen(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,enter,q", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        """Show them."""
        lines = [Content.assemble((f"{key:<16}", "bold"), what) for key, what in HELP]
        with VerticalScroll(classes="dialog"):
            yield Static(Content("\n").join(lines), markup=False)
        yield Footer(show_command_palette=False)


class ChatApp(App[None]):
    """Shows a conversation.

    Args:
        conversation: which one.
        start: starts a task in a group that outlives the app.
        hint: what stands in the empty prompt.
        has_thread: whether the conversation's thread is to be opened at once, and not begun.
    """

    CSS_PATH = "chat.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012  # typed so by textual
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop", "Stop", priority=True),
        Binding("ctrl+t", "side", "Tree"),
        Binding("ctrl+r", "question", "Question"),
        Binding("ctrl+g", "go_on", "Go on"),
        Binding("ctrl+o", "threads", "Threads"),
        Binding("ctrl+n", "new", "New"),
        Binding("f1", "keys", "Keys"),
        Binding("ctrl+q", "leave", "Quit", priority=True),
        Binding("pageup", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(1)", show=False),
    ]

    def __init__(self, conversation: Conversation, start: Start, *, hint: str = "", has_thread: bool = False) -> None:
        super().__init__()
        self.conversation = conversation
        self._start_task = start
        self._hint = hint
        self._has_thread = has_thread
        self._put_off = set[str]()
        self._dialog: Dialog | None = None
        self._is_following = False
        self._is_warned = False
        self._frame = 0
        self._shown_state = ("", -1)
        self._shown_status = Content()

    # What is shown

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        with Horizontal(id="body"):
            yield TranscriptView(self.conversation.transcript)
            with Vertical(id="side"):
                yield Static("tree", classes="title")
                with VerticalScroll(id="tree", can_focus=False):
                    yield Static(id="tree-text", markup=False)
                yield Static("state", classes="title")
                with VerticalScroll(id="state", can_focus=False):
                    yield Static(id="state-text", markup=False)
        yield Prompt(self._hint or "Say something; Enter sends, F1 shows the keys")
        yield Static(id="status", markup=False)
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        """Begin to look."""
        self.query_one(Prompt).focus()
        if self._has_thread:
            await self._open(self.conversation.thread_id)
        await self.follow()
        self.set_interval(FRAME_SECONDS, self.follow)

    async def follow(self) -> None:
        """Show what has changed since the last look."""
        if self._is_following or not self.screen_stack:
            return
        self._is_following = True
        try:
            self.conversation.drain()
            await self._follow()
        except (NoMatches, MountError, IndexError):
            if self.is_running and self.screen_stack:
                raise  # else the screen is being taken down
        finally:
            self._is_following = False

    async def _follow(self) -> None:
        base = self.screen_stack[0]
        await base.query_one(TranscriptView).follow()
        self._frame += 1
        if self._frame % SLOWER == 0 or not self.conversation.is_on:
            self._follow_panes(base)
        status = self._status()
        if status != self._shown_status:
            self._shown_status = status
            base.query_one("#status", Static).update(status)
        self._follow_questions()

    def _follow_panes(self, base: Screen[Any]) -> None:
        """Show the tree and the state, where they have changed."""
        if self.conversation.has_moved:
            self.conversation.has_moved = False
            base.query_one("#tree-text", Static).update(self._tree())
        shown = (self.conversation.thread_id, self.conversation.agent.state_manager.version)
        if shown != self._shown_state:
            self._shown_state = shown
            base.query_one("#state-text", Static).update(self._state())

    def _tree(self) -> Content:
        lines = [Content.styled(line, STYLES[status]) for line, status in tree_lines(self.conversation.agent.root)]
        return Content("\n").join(lines)

    def _state(self) -> Content:
        state = self.conversation.state
        if state is None:
            return Content.styled("nothing yet", "$text-muted")
        lines = [Content.assemble((f"{name}: ", "$text-muted"), value) for name, value in state_lines(state)]
        return Content("\n").join(lines)

    def _status(self) -> Content:
        talk = self.conversation
        questions = len(talk.questions)
        if talk.is_busy:
            doing = ("■ another program has this thread", "$text-warning")
        elif questions:
            doing = ("? 1 question waits" if questions == 1 else f"? {questions} questions wait", "$text-warning")
        else:
            doing = ("▶ working" if talk.is_on else "● ready", "$text-primary" if talk.is_on else "$text-success")
        spent = f"  ·  {talk.transcript.spent:,} tokens" if talk.transcript.spent else ""
        return Content.assemble(doing, f"  ·  {talk.thread_id}{spent}")

    # Turns

    async def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Say what was typed."""
        event.stop()
        if self._is_in_turn():
            return
        prompt = self.query_one(Prompt)
        prompt.remember(event.text)

        async def turn() -> None:
            if not await self.conversation.send(event.text):
                prompt.put_back(event.text)

        self._begin(turn)

    def _begin(self, turn: Turn) -> None:
        self._is_warned = False
        self._put_off.clear()
        self.query_one(TranscriptView).anchor()
        self._start_task(turn)

    def action_go_on(self) -> None:
        """Go on with a turn that was cut short."""
        if not self.conversation.is_on and not self.conversation.is_new:
            self._begin(self._go_on)

    async def _go_on(self) -> None:
        transcript = self.conversation.transcript
        known = len(transcript.blocks)
        if not await self.conversation.go_on() and len(transcript.blocks) == known:
            transcript.note("There is nothing to go on with.")

    def action_stop(self) -> None:
        """Copy what is selected; else stop the turn; else quit at the second time."""
        if self.screen.get_selected_text():
            self.screen.action_copy_text()
        elif self.conversation.is_on:
            self.conversation.stop()
        elif self._is_warned:
            self.action_leave()
        else:
            self._is_warned = True
            self.notify("Ctrl-C once more quits.")

    def action_leave(self) -> None:
        """Quit; the thread is kept, and its open questions stay open."""
        self.conversation.leave()
        self.exit()

    # Questions

    def _follow_questions(self) -> None:
        """Have the oldest question that was not put off be asked, and take away one that has ended."""
        open_ones = self.conversation.questions
        if self._dialog is not None:
            if self._dialog.question.id not in {one.id for one in open_ones}:
                self._dialog.close()
            return
        wanted = [one for one in open_ones if one.id not in self._put_off]
        if wanted and len(self.screen_stack) == 1:
            self._ask(wanted[0], len(open_ones))

    def _ask(self, question: Suspension, count: int) -> None:
        self._dialog = dialog_of(question, self._answer, count)

        def closed(is_answered: bool | None) -> None:
            self._dialog = None
            if not is_answered:
                self._put_off.add(question.id)

        self.push_screen(self._dialog, closed)

    async def _answer(self, id: str, payload: JsonValue, action: Action) -> None:
        await self.conversation.answer(id, payload, action)

    async def action_question(self) -> None:
        """Ask again what was put off; look again whether a thread is free."""
        self._put_off.clear()
        if self.conversation.is_busy:
            await self._open(self.conversation.thread_id)
            if self.conversation.is_busy:
                self.notify("Still held by another program.", severity="warning")
        elif not self.conversation.questions:
            self.notify("No question waits.")

    # Threads

    async def _open(self, thread_id: str) -> None:
        """Show a thread, and go on with it if it waits for an answer."""
        try:
            standing = await self.conversation.open(thread_id)
        except JianmuError as error:
            self.conversation.transcript.note(told(error), "error")
            return
        if standing in STANDING_NOTES:
            self.conversation.transcript.note(STANDING_NOTES[standing], "warning")
        if standing == "waits":
            self._begin(self._go_on)

    async def action_threads(self) -> None:
        """Choose another thread."""
        store = self.conversation.store
        if self._is_in_turn() or len(self.screen_stack) > 1:
            return
        if store is None:
            self.notify("This agent keeps no threads: it has no store.")
            return
        try:
            threads = await thread_lines(store)
        except JianmuError as error:
            self.conversation.transcript.note(told(error), "error")
            return
        self.push_screen(ThreadPicker(threads, self.conversation.thread_id), self._chosen)

    async def _chosen(self, thread_id: str | None) -> None:
        if thread_id == NEW:
            self.conversation.begin()
        elif thread_id is not None:
            await self._open(thread_id)

    def action_new(self) -> None:
        """Begin a new thread."""
        if not self._is_in_turn():
            self.conversation.begin()

    def _is_in_turn(self) -> bool:
        """Whether a turn is on; then say so."""
        if self.conversation.is_on:
            waits = "A question waits: Ctrl-R."
            self.notify(waits if self.conversation.questions else GOES_ON, severity="warning")
        return self.conversation.is_on

    # The screen

    def action_side(self) -> None:
        """Show or hide the tree and the state: beside the conversation, or in its place where there is no room."""
        base = self.screen_stack[0]
        base.toggle_class("side-shown" if base.has_class("-narrow") else "side-hidden")

    def action_keys(self) -> None:
        """Show the keys."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_scroll(self, pages: int) -> None:
        """Scroll the conversation by pages."""
        view = self.query_one(TranscriptView)
        (view.scroll_page_up if pages < 0 else view.scroll_page_down)(animate=False)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Show where a link leads, and copy it; nothing is opened."""
        self.copy_to_clipboard(event.href)
        self.notify(f"copied: {event.href}", markup=False)
