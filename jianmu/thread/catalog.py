"""Deferred tools as a catalogue: what it is known by, and what of it was found."""

from __future__ import annotations

from jianmu.thread.items import Promoted
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox


class Catalogue:
    """Deferred tools, as they are now.

    Args:
        box: the tools.
    """

    def __init__(self, box: Toolbox) -> None:
        self.box = box
        self._known: tuple[Tool, ...] | None = None
        self._hash = ""

    @property
    def hash(self) -> str:
        """What the tools are known by, as they are now."""
        tools, known = self.box.tools, self._known
        if known is None or [*map(id, tools)] != [*map(id, known)]:
            self._known, self._hash = tools, self.box.catalogue_hash
        return self._hash

    def hidden(self, promoted: Promoted | None) -> list[str]:
        """Return the names of the tools that were not found in this catalogue."""
        found = set(promoted.names) if promoted is not None and promoted.catalog_hash == self.hash else set[str]()
        return [name for name in self.box.names if name not in found]
