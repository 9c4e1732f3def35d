"""How a command ends: exit codes, and errors on one line."""

from __future__ import annotations

import sys
import traceback
from enum import IntEnum

from jianmu.draw.outline import one_line
from jianmu.errors import InvalidAnswerError, JianmuError, StateError


class Exit(IntEnum):
    """What an exit code says."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    SUSPENDED = 3
    INTERRUPTED = 130
    TERMINATED = 143


class UsageError(JianmuError):
    """The command line cannot be carried out as it was given; nothing was run."""


def describe(error: BaseException) -> str:
    """Return an error on one line: its class, its text, and the node where that is known."""
    text = " ".join(str(error).split())
    where = [note for note in getattr(error, "__notes__", ()) if note.startswith("raised by ")]
    path = getattr(error, "path", None)
    if not where and path and str(path) not in text:
        where = [f"node '{path}'"]
    thread = getattr(error, "thread_id", None)
    if not where and thread and str(thread)[:80] not in text:
        where = [f"thread '{thread}'"]
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return one_line(f"{said} ({where[0]})" if where else said)


def describe_refusal(error: InvalidAnswerError, hint: str) -> str:
    """Return why an answer was refused on one line, with what would not be instead of a whole schema."""
    return f"{describe(error).partition('; it has to fit ')[0]}; answer with {hint}"


def is_usage(error: BaseException) -> bool:
    """Whether the command line is at fault, its input included."""
    return isinstance(error, UsageError) or (isinstance(error, StateError) and error.path == "input")


def report(error: BaseException, *, debug: bool) -> Exit:
    """Tell an error on stderr and return its exit code; with `debug` the traceback comes before it."""
    if debug:
        traceback.print_exception(error)
    complain(str(error) if isinstance(error, UsageError) else describe(error))
    return Exit.USAGE if is_usage(error) else Exit.FAILURE


def complain(text: str) -> None:
    """Write one line of error to stderr."""
    print(f"error: {one_line(text)}", file=sys.stderr, flush=True)
