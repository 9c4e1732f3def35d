"""Questions of a run as dialogs: approvals with their arguments, and forms for everything else.

1. A dialog has no focus when it comes up: what is being typed then answers nothing.
2. Keys are worked off in their order: an answer is given by a binding that waits for what was typed before it.
3. It closes when its question was answered here, or has ended elsewhere; Escape puts it off.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Literal

from pydantic import JsonValue
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, Footer, Input, RadioButton, RadioSet, Static, TextArea

from jianmu.engine.interaction import Suspension
from jianmu.errors import InteractionError
from jianmu.terminal.blocks import safe
from jianmu.terminal.forms import Field, FormError, Given, answer_of, fields_of, parse_json, parse_object
from jianmu.terminal.telling import refusal

Action = Literal["accept", "decline", "cancel"]
Answering = Callable[[str, JsonValue, Action], Awaitable[None]]
DATA_CHARACTERS = 4_000
FRAME = 5
"""Lines of a dialog around the question: its border, what is wrong, the buttons."""


class Option(RadioButton):
    """One of several, as many lines long as its text is; what is chosen can be told without colours.

    Args:
        text: what it says.
        value: whether it is chosen.
    """

    BUTTON_INNER = " "

    def __init__(self, text: str, *, value: bool = False) -> None:
        super().__init__(Content(" ".join(safe(text).split("\n"))), value=value)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many lines its text takes."""
        return self.render().get_height(self.styles.get_rules(), width)

    def watch_value(self) -> None:
        """Mark it if it is chosen."""
        self.BUTTON_INNER = "●" if self.value else " "  # pyright: ignore[reportConstantRedefinition]  # read by textual
        super().watch_value()


class Options(RadioSet):
    """Several of which one is chosen; the one that the cursor is at is kept in sight."""

    def on_focus(self) -> None:
        """Show where the cursor is."""
        self._keep_in_sight()

    def action_next_button(self) -> None:
        """Go to the next one."""
        super().action_next_button()
        self._keep_in_sight()

    def action_previous_button(self) -> None:
        """Go to the one before."""
        super().action_previous_button()
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        for option in self.query(".-selected"):
            self.call_after_refresh(option.scroll_visible, animate=False)


class Box(Checkbox):
    """Yes or no; a yes can be told without colours."""

    BUTTON_INNER = " "

    def watch_value(self) -> None:
        """Mark it if it says yes."""
        self.BUTTON_INNER = "X" if self.value else " "  # pyright: ignore[reportConstantRedefinition]  # read by textual
        super().watch_value()


class Json(TextArea):
    """JSON to edit."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+y", "screen.accept", show=False)]  # elsewhere it redoes

    def __init__(self, text: str, id: str) -> None:
        super().__init__(text, id=id, compact=True, classes="json", placeholder="JSON")


class Dialog(ModalScreen[bool]):
    """What all questions have.

    Args:
        question: what is asked.
        answering: hands an answer in.
        count: how many questions are open.
    """

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "later", "Later"),
        Binding("tab", "app.focus_next", "Choose"),
        Binding("ctrl+c", "app.stop", "Stop the turn", priority=True),
    ]

    def __init__(self, question: Suspension, answering: Answering, count: int = 1) -> None:
        super().__init__()
        self.question = question
        self._answering = answering
        self._count = count

    def compose(self) -> ComposeResult:
        """Show what is asked, what is to be filled in, and the buttons."""
        more = f"  (1 of {self._count})" if self._count > 1 else ""
        with Vertical(classes="dialog"):
            with VerticalScroll(classes="asked", can_focus=False):
                yield Static(Content(safe(self.message) + more), markup=False, classes="question")
                yield from self.compose_shown()
                yield from self.compose_form()
            yield Static("", id="problem", markup=False)
            with Horizontal(classes="buttons"):
                yield from self.compose_buttons()
        yield Footer(show_command_palette=False)

    @property
    def message(self) -> str:
        """What is asked."""
        return self.question.message

    def on_resize(self, event: Resize) -> None:
        """Keep the buttons in sight, and the end of the conversation too; the question scrolls."""
        room = max(3, event.size.height * 6 // 10)
        self.query_one(".asked").styles.max_height = room
        self.query_one(".dialog").styles.max_height = room + FRAME

    def compose_shown(self) -> ComposeResult:
        """Show what the question shows beside its text."""
        asked = self.question
        if asked.url is not None:
            yield Static(Content(f"Answer it there, then say so here: {safe(asked.url)}"), markup=False)
        if asked.data is not None:
            text = asked.data if isinstance(asked.data, str) else json.dumps(asked.data, indent=2, ensure_ascii=False)
            yield Static(Content(safe(text[:DATA_CHARACTERS])), markup=False, classes="data")
        yield self.where()

    def where(self) -> Static:
        """Return who asks, and until when."""
        until = self.question.expires_at
        text = f"asked by {self.question.path}" + (f", until {until:%H:%M:%S} UTC" if until else "")
        return Static(Content(safe(text)), markup=False, classes="where")

    def compose_form(self) -> ComposeResult:
        """Show what is to be filled in."""
        yield from ()

    def compose_buttons(self) -> ComposeResult:
        """Show the ways to answer."""
        yield from ()

    async def give(self, payload: JsonValue, action: Action = "accept") -> None:
        """Hand an answer in, and close if it was taken."""
        try:
            await self._answering(self.question.id, payload, action)
        except InteractionError as error:
            self.complain(refusal(error))
        else:
            self.close()

    def close(self) -> None:
        """Go away, for the question has ended; once."""
        if self.is_current:
            self.dismiss(True)

    def complain(self, problem: str) -> None:
        """Say why what was filled in is no answer."""
        self.query_one("#problem", Static).update(Content(safe(problem)))

    @on(Input.Changed)
    @on(TextArea.Changed)
    @on(RadioSet.Changed)
    def on_filled_in(self) -> None:
        """Say no more what was wrong before."""
        self.complain("")

    def action_later(self) -> None:
        """Leave the question open."""
        self.dismiss(False)


class ApprovalDialog(Dialog):
    """Asks whether something may be done, with the arguments that a person may edit."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+y", "accept", "Approve")]

    def compose_shown(self) -> ComposeResult:
        """Show the arguments where they can be edited; other data as they are."""
        if self._arguments() is None:
            yield from super().compose_shown()
        else:
            yield self.where()

    def compose_form(self) -> ComposeResult:
        """Show the arguments, a place for a reason, and whether to remember."""
        arguments = self._arguments()
        if arguments is not None:
            yield Static("its arguments, which you may edit:", markup=False, classes="where")
            yield Json(json.dumps(arguments, indent=2, ensure_ascii=False), "arguments")
        yield Input(placeholder="a message, if you reject it", id="reason", compact=True)
        remembers = self.question.metadata.get("remembers")
        if remembers is not None:  # else nobody would
            what = "this tool" if remembers == "tool" else "the same"
            yield Box(f"Do not ask for {what} again in this thread", id="remember", compact=True)

    def compose_buttons(self) -> ComposeResult:
        """Approve or reject."""
        yield Button("Approve", id="approve", variant="success", compact=True)
        yield Button("Reject", id="reject", variant="error", compact=True)

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        """Hand the decision in."""
        event.stop()
        await (self.action_accept() if event.button.id == "approve" else self._reject())

    async def on_input_submitted(self) -> None:
        """A message was typed: that is a rejection."""
        await self._reject()

    async def action_accept(self) -> None:
        """Approve, with the arguments as they are now."""
        arguments = edited = self._arguments()
        if arguments is not None:
            text = self.query_one("#arguments", TextArea).text
            try:
                edited = parse_object(text) if isinstance(arguments, dict) else parse_json(text)
            except FormError as error:
                self.complain(str(error))
                return
        given = None if edited == arguments else edited
        await self.give({"approved": True, "editedArgs": given, "remember": self._remembers()})

    async def _reject(self) -> None:
        reason = self.query_one("#reason", Input).value.strip() or None
        await self.give({"approved": False, "reason": reason, "remember": self._remembers()})

    def _arguments(self) -> JsonValue:
        """Return the arguments of the tool call that is to be approved, or None."""
        data = self.question.data
        return data.get("arguments") if isinstance(data, dict) and self.question.tool_call_id is not None else None

    def _remembers(self) -> bool:
        boxes = self.query(Checkbox)
        return bool(boxes) and boxes.first().value


class FormDialog(Dialog):
    """Asks anything else: a field for each part of the answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+y", "accept", "Answer")]

    def __init__(self, question: Suspension, answering: Answering, count: int = 1) -> None:
        super().__init__(question, answering, count)
        self.fields = fields_of(question.response_schema)
        self._is_told = False

    def compose_form(self) -> ComposeResult:
        """Show a field for each part of the answer."""
        for number, field in enumerate(self.fields):
            if field.name:
                optional = "" if field.is_required else " (may be left out)"
                yield Static(Content(safe(field.label) + optional), markup=False, classes="label")
            yield from _editor(field, f"field-{number}")

    def compose_buttons(self) -> ComposeResult:
        """Answer or decline."""
        yield Button("Answer", id="accept", variant="primary", compact=True)
        yield Button("Decline", id="decline", compact=True)

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        """Hand the answer in, or decline to."""
        event.stop()
        await (self.action_accept() if event.button.id == "accept" else self.give(None, "decline"))

    async def on_input_submitted(self) -> None:
        """Enter in the last field answers."""
        if self.query(Input).last().has_focus:
            await self.action_accept()
        else:
            self.focus_next()

    async def action_accept(self) -> None:
        """Hand in what was filled in."""
        try:
            given = {field.name: self.given(number, field) for number, field in enumerate(self.fields)}
            answer = answer_of(self.fields, given)
        except FormError as error:
            self.complain(str(error))
            return
        if self._is_bare(given):
            self.complain("nothing was typed: once more sends it so")
            return
        await self.give(answer)

    def _is_bare(self, given: Mapping[str, Given]) -> bool:
        """Whether a text that is wanted is empty, and that was not said yet."""
        wanted = [one for one in self.fields if one.kind == "text" and one.is_required and not one.may_be_null]
        is_bare = not self._is_told and any(not given[one.name] for one in wanted)
        self._is_told |= is_bare
        return is_bare

    def given(self, number: int, field: Field) -> Given:
        """Return what stands in a field.

        Raises:
            FormError: it cannot be left so.
        """
        id = f"#field-{number}"
        if field.kind in ("choice", "flag"):
            chosen = chosen_of(self.query_one(id, RadioSet))
            return chosen if field.kind == "choice" or chosen is None else int(chosen == 0)
        if field.kind == "json":
            return self.query_one(id, TextArea).text
        return self.query_one(id, Input).value


def chosen_of(options: RadioSet) -> int | None:
    """Return the number of the option that was chosen; the one before it may still be marked."""
    marked = [number for number, option in enumerate(options.query(RadioButton)) if option.value]
    new = [number for number in marked if number != options.pressed_index]
    return next(iter(new or marked), None)


def _editor(field: Field, id: str) -> ComposeResult:
    """Yield what a field is filled in with."""
    if field.kind in ("choice", "flag"):
        texts = field.texts if field.kind == "choice" else ["yes", "no"]
        preset = field.options.index(field.preset) if field.preset in field.options else None
        if field.kind == "flag" and isinstance(field.preset, bool):
            preset = int(not field.preset)
        with Options(id=id, compact=True):
            for number, text in enumerate(texts):
                yield Option(text, value=number == preset)
    elif field.kind == "json":
        text = "" if field.preset is None else json.dumps(field.preset, indent=2, ensure_ascii=False)
        yield Json(text, id)
    else:
        hint = {"integer": "a whole number", "number": "a number"}.get(field.kind, "")
        preset = "" if field.preset is None else str(field.preset)
        yield Input(preset, id=id, compact=True, placeholder=hint)
