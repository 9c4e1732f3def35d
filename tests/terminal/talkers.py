"""Agents for chats in a real terminal."""

from __future__ import annotations

from typing import Any

from py_trees.behaviours import Success

from jianmu.agent import Agent
from jianmu.terminal.assistant import scripted_agent

mute = Agent(Success("mute"))


def quick() -> Agent[Any]:
    """The scripted assistant, without pauses."""
    return scripted_agent(0.0)


def slow() -> Agent[Any]:
    """The scripted assistant, with long pauses."""
    return scripted_agent(0.1)
