"""A language model with a tool: it thinks, a tool acts, until it answers; its words are shown as they come in."""

import operator
from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from jianmu import Agent, Ephemeral, LoopUntilSuccess, Message, human
from jianmu.engine.events import Token, ToolCalled
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, HasFinalAnswer, Sequence, ToolExecutor
from jianmu.tool import tool
from jianmu.tool.types import ToolCall


class Talk(BaseModel):
    """A conversation; what only belongs to one run, or to one call of the model, is set back by itself."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    streaming_output: Annotated[str, Ephemeral(scope="call")] = ""
    final_answer: Annotated[str | None, Ephemeral(scope="run")] = None
    rounds: Annotated[int, Ephemeral(scope="run")] = 0


@tool
async def depth(sea: str) -> str:
    """Look up how deep a sea is.

    Args:
        sea: the name of the sea.
    """
    return {"Baltic": "459 m"}.get(sea, "not known")


# What a real model would say; with a key write model="openai:..." or "anthropic:...", and install jianmu[llm].
MODEL = ScriptedModel([ToolCall(id="1", name="depth", arguments={"sea": "Baltic"}), "The Baltic is 459 m deep."])


def build() -> LoopUntilSuccess:
    """Ask the model and carry out its calls, round by round, until it answers without a call."""
    think = AgentLLMNode("think", model=MODEL, tools=[depth], system="You know the seas. Be short.")
    act = ToolExecutor("act", tools=[depth])
    return LoopUntilSuccess("react", Sequence("round", memory=True, children=[think, act, HasFinalAnswer()]))


async def main() -> None:
    """Ask, and show what comes in."""
    agent = Agent(build(), state_schema=Talk)
    async with agent.stream({"messages": [human("How deep is the Baltic?")]}) as events:
        async for event in events:
            match event:
                case Token(kind="text"):
                    print(f"  {event.text!r}")
                case ToolCalled():
                    print(f"  calls {event.name}({event.arguments})")
    for message in agent.state.messages:
        print(f"{message.role}: {message.text or [call.name for call in message.tool_calls]}")
    print(f"{agent.status.name} after {agent.state.rounds} rounds: {agent.state.final_answer}")


if __name__ == "__main__":
    anyio.run(main)
