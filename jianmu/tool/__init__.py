"""Tools that a model can call."""

from __future__ import annotations

from jianmu.tool.types import ToolCall, ToolResult

__all__ = ["ToolCall", "ToolResult"]
