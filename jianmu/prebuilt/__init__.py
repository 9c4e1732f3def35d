"""Ready trees: agents that think and act, that try again, and that delegate."""

from __future__ import annotations

from jianmu.prebuilt.delegate import delegate
from jianmu.prebuilt.react import ReActState, react, react_agent
from jianmu.prebuilt.reflexion import ReflexionState, Review, reflexion

__all__ = ["ReActState", "ReflexionState", "Review", "delegate", "react", "react_agent", "reflexion"]
