"""A server of the Model Context Protocol: its tools are the model's, and what it asks is a question of the run."""

import sys
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

from jianmu import Agent, human
from jianmu.model import ScriptedModel
from jianmu.prebuilt import ReActState, react
from jianmu.tool import mcp_stdio
from jianmu.tool.types import ToolCall


class Reason(BaseModel):
    """What the server wants to know before it gives money back."""

    reason: str


def serve() -> None:
    """Be the server: a program of its own, written with the package `mcp`, that speaks on stdin and stdout."""
    server = MCPServer("shop")

    @server.tool()
    def orders(customer: str) -> list[str]:
        """Look up the orders of a customer."""
        return {"Ada": ["teapot", "kettle"]}.get(customer, [])

    def ask() -> Elicit[Reason]:
        """Ask whoever is in charge."""
        return Elicit("Why is the money given back?", Reason)

    @server.tool()
    def refund(order: str, reason: Annotated[Reason, Resolve(ask)]) -> str:
        """Give the money for an order back."""
        return f"{order}: refunded ({reason.reason})"

    server.run("stdio")


# What a real model would say; with a key write model="openai:..." or "anthropic:...", and install jianmu[llm].
MODEL = ScriptedModel(
    [
        ToolCall(id="1", name="orders", arguments={"customer": "Ada"}),
        ToolCall(id="2", name="refund", arguments={"order": "kettle"}),
        "The kettle is refunded.",
    ]
)


async def main() -> None:
    """Have the model use the server's tools; answer what the server asks in between."""
    shop = mcp_stdio(sys.executable, [__file__, "serve"], name="shop")
    agent = Agent(react(model=MODEL, tools=shop), state_schema=ReActState)
    async with shop:  # else each call of the agent starts the server anew
        for tool in shop:
            print(f"{tool.name}: {tool.description}")
        outcome = await agent.run_until_suspend({"messages": [human("Refund Ada's kettle.")]})
        (question,) = outcome.suspensions
        print(f"{question.metadata['mcp']['server']} asks: {question.message}")
        await agent.resume({"reason": "broken"})
    for message in agent.state.messages:
        print(f"{message.role}: {message.text or [call.name for call in message.tool_calls]}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else anyio.run(main)
