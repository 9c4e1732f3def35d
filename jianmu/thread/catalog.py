"""What a catalogue of tools is known by."""

from __future__ import annotations

from collections.abc import Iterable

from jianmu.engine.questions import digest
from jianmu.model.base import ToolSpec
from jianmu.tool.base import Tool


def catalog_hash(tools: Iterable[Tool | ToolSpec]) -> str:
    """Return what a catalogue is known by: another name, description or schema of a tool makes another catalogue.

    The order of the tools makes no difference, nor that of keys in their schemas.

    Returns:
        The first 16 hex digits of SHA-256 over what a model is told of the tools.
    """
    told = {tool.name: [tool.description, tool.parameters if isinstance(tool, Tool) else tool.schema] for tool in tools}
    return digest("catalog", told)[:16]
