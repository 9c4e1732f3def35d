"""A language model with a tool: it thinks and acts, round by round, until it has an answer."""

import anyio

from jianmu import human
from jianmu.draw import text
from jianmu.prebuilt import react_agent
from jianmu.testing import ScriptedModel
from jianmu.tool import ToolCall, tool

STOCK = {"kettle": 3, "teapot": 0}


@tool
async def stock(item: str) -> int:
    """Look up how many of an item are in the shop.

    Args:
        item: what it is called, in the singular.
    """
    return STOCK[item]


def calls(*items: str) -> list[ToolCall]:
    """Return the calls that the model makes in one reply."""
    return [ToolCall(id=f"call {item}", name="stock", arguments={"item": item}) for item in items]


async def main() -> None:
    """Ask about three things; a model without a script would be `react_agent("openai:...", [stock])`."""
    model = ScriptedModel([calls("kettle", "teapot", "samovar"), "There are 3 kettles, and nothing else."])
    agent = react_agent(model, [stock], system="You keep a shop.")
    print(text(agent.root))
    status = await agent.run({"messages": [human("What is there?")]})
    for message in agent.state.messages:
        told = message.text or ", ".join(str(call.arguments) for call in message.tool_calls)
        print(f"{message.role}: {told}")
    print(status.name, agent.state.rounds, "rounds")


if __name__ == "__main__":
    anyio.run(main)
