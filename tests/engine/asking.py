"""A clock, a place in a tree and a controller, for tests of questions without a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jianmu.engine.interaction import InteractionController, Origin

START = datetime(2030, 1, 1, tzinfo=UTC)


class HandClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def utc(self) -> datetime:
        """Return the instant it was set to."""
        return at(self.seconds)


class Shown:
    """Stands for the state: shows a runtime namespace."""

    def __init__(self) -> None:
        self._show: Callable[[], Mapping[str, Any]] = dict

    @property
    def keys(self) -> Mapping[str, Any]:
        """What is shown."""
        return self._show()

    def runtime_show(self, namespace: str, names: tuple[str, ...], show: Callable[[], Mapping[str, Any]], /) -> None:
        """Show the keys from now on."""
        assert {*names} == {f"{namespace}.{key}" for key in show()}
        self._show = show


def at(seconds: float) -> datetime:
    """Return the instant `seconds` after the start."""
    return START + timedelta(seconds=seconds)


def origin(path: str = "main/ask", *rounds: tuple[str, object], run: int = 1, thread_id: str = "t") -> Origin:
    """Return a place in a tree."""
    return Origin(thread_id, run, path, rounds)


def loaded(old: InteractionController, clock: HandClock) -> InteractionController:
    """Return a controller as another process would load it."""
    new = InteractionController(clock)
    new.load(old.dump())
    return new
