"""How a coroutine ends when it has asked: an exception that no `except Exception` catches."""

from __future__ import annotations

from typing import cast


class Suspended(BaseException):  # not an error: the coroutine waits for an answer
    """Raised by `ask` to end the coroutine; the node is entered from its top when the answer is in."""


def is_suspension(error: BaseException) -> bool:
    """Whether an exception is a suspension, also when it comes in exception groups with nothing but its like."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_suspension(inner) for inner in cast("tuple[BaseException, ...]", error.exceptions))
    return isinstance(error, Suspended)
