"""The event loop of a command, and the signals that end it."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import anyio

T = TypeVar("T")


class Terminated(KeyboardInterrupt):  # like the interrupt that it is a kind of
    """The process was asked to end (SIGTERM)."""


def in_loop(function: Callable[[], Awaitable[T]]) -> T:
    """Run an async function in a loop of its own; Ctrl-C and SIGTERM cancel it, and its cleanups are awaited.

    Raises:
        KeyboardInterrupt: it was cancelled so; `Terminated` by SIGTERM.
    """
    terms: list[int] = []
    with _terminable(terms):
        try:
            return anyio.run(function)
        except KeyboardInterrupt:
            if terms:
                raise Terminated from None
            raise


@contextmanager
def _terminable(terms: list[int]) -> Generator[None]:
    """Treat SIGTERM as Ctrl-C, and note it."""

    def note(number: int, _: FrameType | None) -> None:
        terms.append(number)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
