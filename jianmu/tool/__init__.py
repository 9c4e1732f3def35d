"""Tools that a model can call."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from jianmu.tool.base import Tool, tool
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import FilePart, ImagePart, TextPart, ToolCall, ToolResult

if TYPE_CHECKING:
    from jianmu.tool.mcp import MCPToolbox, mcp_http, mcp_stdio

__all__ = [
    "FilePart",
    "ImagePart",
    "MCPToolbox",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Toolbox",
    "mcp_http",
    "mcp_stdio",
    "tool",
]


def __getattr__(name: str) -> object:
    """Return what belongs to the extra `mcp`: it is loaded for those who ask for it."""
    if name not in ("MCPToolbox", "mcp_http", "mcp_stdio"):
        raise AttributeError(f"module 'jianmu.tool' has no attribute '{name}'")
    return getattr(importlib.import_module("jianmu.tool.mcp"), name)
