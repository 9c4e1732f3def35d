"""Asking people: questions, answers, approvals, and the node that asks inside of a pass."""

from __future__ import annotations

from jianmu.engine.controller import (
    Answer,
    Approval,
    Deed,
    InteractionController,
    Origin,
    Record,
    Request,
    Rounds,
    Suspension,
    default,
    digest_of_shown,
    escalate,
    fail,
)
from jianmu.engine.interactive import InteractiveNode

__all__ = [
    "Answer",
    "Approval",
    "Deed",
    "InteractionController",
    "InteractiveNode",
    "Origin",
    "Record",
    "Request",
    "Rounds",
    "Suspension",
    "default",
    "digest_of_shown",
    "escalate",
    "fail",
]
