"""The conversation of a thread."""

from __future__ import annotations

from jianmu.thread.messages import StateMessageStore

__all__ = ["StateMessageStore"]
