"""ReAct: think, act, until there is a final answer (Yao et al., arXiv:2210.03629)."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict, TypeVar, Unpack  # Any: the snapshot, and options of an Agent

from py_trees.behaviour import Behaviour
from pydantic import BaseModel, Field

from jianmu.agent import Agent
from jianmu.engine.journal import OnUnknown
from jianmu.message import Message
from jianmu.model.base import ChatModel, Settings
from jianmu.nodes import AgentLLMNode, ForceFailure, HasFinalAnswer, Invert, LoopUntilSuccess, Selector
from jianmu.nodes import Sequence as InOrder
from jianmu.nodes.approvals import ApprovalOptions, Remember
from jianmu.nodes.base import Number
from jianmu.nodes.delegating import acting
from jianmu.nodes.fields import RepliesState
from jianmu.nodes.llm import Tools
from jianmu.nodes.replies import Prompt

S = TypeVar("S", bound=BaseModel)
MAX_ROUNDS = 20


class ReActState(RepliesState):
    """What a ReAct agent keeps, the conversation and all that its nodes write; derive from it to add fields.

    Attributes:
        messages: the conversation.
    """

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list[Message])


class ActOptions(TypedDict, total=False):
    """The options of the ToolExecutor in a ready tree."""

    limit: Number | None
    timeout: Number | None
    on_unknown: OnUnknown
    remember: Remember
    approval: ApprovalOptions | None


def react(
    name: str = "react",
    *,
    model: ChatModel | str,
    tools: Tools = (),
    system: Prompt = None,
    settings: Settings | None = None,
    max_rounds: Number | None = MAX_ROUNDS,
    **act: Unpack[ActOptions],
) -> Behaviour:
    """Return a tree that thinks and acts until the model gives a final answer.

    Each reply with the results of its calls is a round. The state needs `messages`, and `final_answer` or `done`;
    `ReActState` has all that the nodes write.
    SUCCESS when there is a final answer.
    RUNNING while the model is asked, a tool is called, and a question of a tool is open.
    FAILURE when a request to the model has failed, and when `max_rounds` rounds were made without an answer.

    Args:
        name: the name of the tree's root; below it are `rounds/round/think` and `rounds/round/next/act`.
        model: who thinks.
        tools: what it may call: a Toolbox, or tools, functions and boxes; delegates too.
        system: the system prompt, or a function of the snapshot that returns it.
        settings: how the model is to answer.
        max_rounds: how many replies at most; None: as many as it takes.
        act: options of the ToolExecutor.
    """
    act_node, box = acting("act", tools, **act)
    think = AgentLLMNode("think", model=model, tools=box, system=system, settings=settings)
    # A round ends the loop if the model fails or has answered; else what it wants is done, and the next one follows.
    steps: list[Behaviour] = [Invert("is lost", think), HasFinalAnswer("is done"), ForceFailure("next", act_node)]
    rounds = LoopUntilSuccess("rounds", Selector("round", memory=True, children=steps), max_iterations=max_rounds)
    return InOrder(name, memory=True, children=[rounds, HasFinalAnswer("has answer")])


def react_agent(
    model: ChatModel | str,
    tools: Tools = (),
    *,
    system: Prompt = None,
    settings: Settings | None = None,
    max_rounds: Number | None = MAX_ROUNDS,
    state_schema: type[BaseModel] = ReActState,
    act: ActOptions | None = None,
    **agent: Any,
) -> Agent[Any]:
    """Return an agent with the tree of `react`.

        await react_agent("openai:gpt-5", [search]).run({"messages": [human("hi")]})

    Args:
        model: who thinks.
        tools: what it may call.
        system: the system prompt, or a function of the snapshot that returns it.
        settings: how the model is to answer.
        max_rounds: how many replies at most; None: as many as it takes.
        state_schema: `ReActState`, or a schema with fields of your own.
        act: options of the ToolExecutor.
        agent: options of the Agent.
    """
    tree = react(
        model=model, tools=tools, system=system, settings=settings, max_rounds=max_rounds, **(act or ActOptions())
    )
    return Agent(tree, state_schema, **agent)
