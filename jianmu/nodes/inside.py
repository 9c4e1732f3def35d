"""Cancellations that nobody around has asked for, as of a task that something waits for."""

from __future__ import annotations

import math

import anyio


def is_from_inside() -> bool:
    """Whether a cancellation that was caught came from what was called there: no scope around is cancelled."""
    return anyio.current_effective_deadline() > -math.inf
