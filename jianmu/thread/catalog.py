"""What a catalogue of tools is known by."""

from __future__ import annotations

from collections.abc import Iterable

from jianmu.engine.questions import digest
from jianmu.model.base import ToolSpec
from jianmu.thread.items import Promoted
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox


def catalog_hash(tools: Iterable[Tool | ToolSpec]) -> str:
    """Return what a catalogue is known by: another name, description or schema of a tool makes another catalogue.

    The order of the tools makes no difference, nor that of keys in their schemas.

    Returns:
        The first 16 hex digits of SHA-256 over what a model is told of the tools.
    """
    told = {tool.name: [tool.description, tool.parameters if isinstance(tool, Tool) else tool.schema] for tool in tools}
    return digest("catalog", told)[:16]


class Catalogue:
    """Deferred tools, as they are now.

    Args:
        box: the tools.
    """

    def __init__(self, box: Toolbox) -> None:
        self.box = box
        self._known: tuple[Tool, ...] = ()
        self._hash = catalog_hash(())

    @property
    def hash(self) -> str:
        """What the tools are known by, as they are now."""
        tools = self.box.tools
        if len(tools) != len(self._known) or any(one is not two for one, two in zip(tools, self._known, strict=True)):
            self._known, self._hash = tools, catalog_hash(tools)
        return self._hash

    def hidden(self, promoted: Promoted | None) -> list[str]:
        """Return the names of the tools that were not found in this catalogue."""
        found = set(promoted.names) if promoted is not None and promoted.catalog_hash == self.hash else set[str]()
        return [name for name in self.box.names if name not in found]
