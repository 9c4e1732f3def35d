"""Drawings of a tree with the statuses of its nodes; each is a function of the tree alone."""

from __future__ import annotations

from jianmu.draw.as_dot import dot
from jianmu.draw.as_mermaid import mermaid
from jianmu.draw.as_text import lines, text

__all__ = ["dot", "lines", "mermaid", "text"]
