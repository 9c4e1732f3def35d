"""Which dialog a question has, and the one for what a model wants to know."""

from __future__ import annotations

from pydantic import JsonValue
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, RadioSet, Static

from jianmu.engine.interaction import Suspension
from jianmu.terminal.blocks import safe
from jianmu.terminal.dialogs import Answering, ApprovalDialog, Dialog, FormDialog, Option, Options, chosen_of
from jianmu.terminal.forms import Field, FormError, Given, is_approval

REASON = "clarification"
ELSE = "something else:"


class ClarificationDialog(FormDialog):
    """Asks what a model wants to know: its options to choose from, and a line for anything else where that is taken.

    The mark decides what the answer is; who types something else has marked that.
    """

    def __init__(self, question: Suspension, answering: Answering, count: int = 1) -> None:
        super().__init__(question, answering, count)
        self._text, self._options = _parts(question.data)
        self._takes_more = bool(self._options) and self.fields[0].kind == "text"

    @property
    def message(self) -> str:
        """The question without its options, which stand below it."""
        return self._text or super().message

    def compose_shown(self) -> ComposeResult:
        """Show until when it waits; the data are the question once more."""
        until = self.question.expires_at
        if until is not None:
            yield Static(Content(safe(f"until {until:%H:%M:%S} UTC")), markup=False, classes="where")

    def compose_form(self) -> ComposeResult:
        """Show the options, and a line for anything else."""
        if not self._takes_more:
            yield from super().compose_form()
            return
        with Options(id="options", compact=True):
            for text in [*self._options, ELSE]:
                yield Option(text)
        yield Input(id="field-0", compact=True, placeholder="type it here")

    def on_mount(self) -> None:
        """Mark "something else" when it is typed: at once, before an answer is given."""
        if self._takes_more:
            self.watch(self.query_one("#field-0", Input), "value", self._mark_else, init=False)

    def given(self, number: int, field: Field) -> Given:
        """Return the option that is marked, or what was typed instead."""
        if not self._takes_more:
            return super().given(number, field)
        chosen = chosen_of(self.query_one("#options", RadioSet))
        if chosen is None:
            raise FormError("", "choose one, or type something else")
        if chosen < len(self._options):
            return self._options[chosen]
        text = super().given(number, field)
        if not text or not str(text).strip():
            raise FormError("", "type what else")
        return text

    def _mark_else(self, text: str) -> None:
        if text:
            self.query(Option).last().value = True


def dialog_of(question: Suspension, answering: Answering, count: int = 1) -> Dialog:
    """Return the dialog for a question."""
    if question.reason == REASON and _parts(question.data)[0]:
        return ClarificationDialog(question, answering, count)
    kind = ApprovalDialog if is_approval(question.response_schema) else FormDialog
    return kind(question, answering, count)


def _parts(data: JsonValue) -> tuple[str, list[str]]:
    """Return the question and the options of a model that wants to know something; nothing of other data."""
    if not isinstance(data, dict) or not isinstance(text := data.get("question"), str):
        return "", []
    options = data.get("options")
    return text, [one for one in options if isinstance(one, str)] if isinstance(options, list) else []
