"""Asking people: questions, answers, approvals, and the node that asks inside of a pass."""

from __future__ import annotations

from jianmu.engine.answers import Approval
from jianmu.engine.controller import InteractionController
from jianmu.engine.decisions import Deed
from jianmu.engine.interactive import InteractiveNode
from jianmu.engine.questions import Answer, Origin, Rounds, Suspension, digest_of_shown
from jianmu.engine.record import Record
from jianmu.engine.request import Request, default, escalate, fail

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
