"""Ready trees: agents that think and act, that try again, and that delegate."""

from __future__ import annotations

from jianmu.prebuilt.delegate import delegate
from jianmu.prebuilt.react import ReActState, react, react_agent

__all__ = ["ReActState", "delegate", "react", "react_agent"]
