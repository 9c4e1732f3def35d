"""Language models: what one is, scripted ones, those of providers, and models that try again."""

from __future__ import annotations

from jianmu.message import Usage
from jianmu.model.base import (
    Again,
    ChatModel,
    Delta,
    Event,
    Finish,
    ModelRequest,
    OutputSpec,
    Reason,
    Settings,
    Stream,
    ToolSpec,
    complete,
)
from jianmu.model.providers import ProviderModel, lookup
from jianmu.model.retry import Fallback, Retrying
from jianmu.model.scripted import ScriptedModel, Turn

__all__ = [
    "Again",
    "ChatModel",
    "Delta",
    "Event",
    "Fallback",
    "Finish",
    "ModelRequest",
    "OutputSpec",
    "ProviderModel",
    "Reason",
    "Retrying",
    "ScriptedModel",
    "Settings",
    "Stream",
    "ToolSpec",
    "Turn",
    "Usage",
    "complete",
    "lookup",
]
