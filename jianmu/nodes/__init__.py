"""The nodes that trees are built of: jianmu's own, and py_trees' under their own names."""

from __future__ import annotations

from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Selector, Sequence

# isort: off
from py_trees.decorators import Condition, Count, EternalGuard, FailureIsRunning, FailureIsSuccess, Inverter, OneShot
from py_trees.decorators import PassThrough, RunningIsFailure, RunningIsSuccess, StatusToBlackboard
from py_trees.decorators import SuccessIsFailure, SuccessIsRunning

from jianmu.engine.control import Control
from jianmu.engine.interaction import Answer, Request, default, escalate, fail
from jianmu.engine.interactive import InteractiveNode
from jianmu.nodes.ask import Approve, AskHuman, Choose, WaitFor
from jianmu.nodes.calldecorator import CallDecorator
from jianmu.nodes.control import IfThenElse, Race, Switch, Utility
from jianmu.nodes.decorators import Catch, Finally, ForceFailure, ForceSuccess, Guard, Invert, LoopUntilSuccess
from jianmu.nodes.decorators import Repeat, Retry
from jianmu.nodes.delegates import Delegate
from jianmu.nodes.delegating import DelegateExecutor, acting
from jianmu.nodes.foreach import ForEach
from jianmu.nodes.function import action, async_action, async_condition, condition
from jianmu.nodes.llm import AgentLLMNode, HasFinalAnswer
from jianmu.nodes.projections import ContextBudget, Reminders, RequestProjection
from jianmu.nodes.simple import SimpleLLMNode
from jianmu.nodes.skill import Skill
from jianmu.nodes.subagent import SubAgent
from jianmu.nodes.timing import Cooldown, Timeout, Timer
from jianmu.nodes.tools import ToolExecutor
from jianmu.nodes.turn import CallOutcome
from jianmu.nodes.verdicts import AskingTool

__all__ = [
    "AgentLLMNode", "Answer", "Approve", "AskHuman", "AskingTool", "CallDecorator", "CallOutcome", "Catch", "Choose",
    "Condition", "ContextBudget", "Control", "Cooldown", "Count", "Delegate", "DelegateExecutor", "EternalGuard",
    "FailureIsRunning", "FailureIsSuccess", "Finally", "ForEach", "ForceFailure", "ForceSuccess", "Guard",
    "HasFinalAnswer", "IfThenElse", "InteractiveNode", "Invert", "Inverter", "LoopUntilSuccess", "OneShot",
    "Parallel", "ParallelPolicy", "PassThrough", "Race", "Reminders", "Repeat", "Request", "RequestProjection",
    "Retry", "RunningIsFailure", "RunningIsSuccess", "Selector", "Sequence", "SimpleLLMNode", "Skill",
    "StatusToBlackboard", "SubAgent", "SuccessIsFailure", "SuccessIsRunning", "Switch", "Timeout", "Timer",
    "ToolExecutor", "Utility", "WaitFor", "acting", "action", "async_action", "async_condition", "condition",
    "default", "escalate", "fail",
]  # fmt: skip
