"""Errors in the words of somebody who chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from py_trees.behaviour import Behaviour

from jianmu.engine.tree import path_of
from jianmu.errors import (
    BadReplyError,
    BadRequestError,
    ContextTooLongError,
    InvalidAnswerError,
    LimitExceeded,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    RateLimitedError,
    SchemaVersionError,
    ThreadBusyError,
    TreeMismatchError,
)
from jianmu.nodes.reasons import failed_node
from jianmu.terminal.blocks import safe

MOST = 600
"""Characters of an error that are shown."""
HINTS: tuple[tuple[type[Exception], str], ...] = (
    (ThreadBusyError, "Another program is at work on this thread. Ctrl-R looks again, Ctrl-N begins a new one."),
    (RateLimitedError, "Wait a while, then send it again."),
    (ModelUnavailableError, "Send it again; if that does not help, look whether the provider can be reached."),
    (ContextTooLongError, "The conversation has grown too long for this model: begin a new one (Ctrl-N)."),
    (ModelRefusedError, "Say it differently."),
    (BadRequestError, "Look at the name of the model and at its key."),
    (BadReplyError, "Send it again."),
    (LimitExceeded, "The agent allows no more than this."),
    (TreeMismatchError, "This thread was made by another agent, or by another version of this one."),
    (SchemaVersionError, "This thread was made by a newer version of the agent."),
)


def told(error: BaseException) -> str:
    """Return what went wrong, where, and what can be done about it."""
    if isinstance(error, BaseExceptionGroup):
        found = cast("Sequence[BaseException]", error.exceptions)
        return "\n".join(map(told, found[:3]))
    text = str(error)
    if isinstance(error, ThreadBusyError):
        text = text.partition(": answer")[0]
    lines = [f"{type(error).__name__}: {_cut(text)}".rstrip(": ")]
    lines += [note for note in getattr(error, "__notes__", ()) if note.startswith("raised by ")]
    if isinstance(error, ModelError):
        lines += [_cut(error.detail)] if error.detail and error.detail not in lines[0] else []
        lines += [f"The provider says: in {error.retry_after:.0f} s."] if error.retry_after else []
    lines += [hint for kind, hint in HINTS if isinstance(error, kind)][:1]
    return safe("\n".join(lines))


def refusal(error: Exception) -> str:
    """Return why an answer was not taken, without the schema that it should fit."""
    text = str(error)
    if isinstance(error, InvalidAnswerError):
        text = text.partition(" was refused: ")[2] or text
    return safe(_cut(text.partition("; it has to fit ")[0]))


def failure(root: Behaviour) -> str:
    """Return which node made the tree fail, and why."""
    node = failed_node(root)
    why = f": {node.feedback_message}" if node.feedback_message else ""
    return safe(f"The turn failed at '{path_of(node)}'{why}")


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[:MOST]}…"
