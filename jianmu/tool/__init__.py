"""Tools that a model can call."""

from __future__ import annotations

from jianmu.tool.base import Tool, tool
from jianmu.tool.mcp import MCPToolbox, mcp_http, mcp_stdio
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import FilePart, ImagePart, TextPart, ToolCall, ToolResult

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
