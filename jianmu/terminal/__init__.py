"""A chat with an agent in the terminal."""

from __future__ import annotations

from jianmu.errors import MissingExtraError

try:
    from jianmu.terminal.showing import chat
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "textual":
        raise
    raise MissingExtraError("the chat", "cli") from None

__all__ = ["chat"]
