"""Rules first: what a rule can answer costs nothing; the model gets the rest, and what it said becomes the answer."""

import re

import anyio

from jianmu import Agent, condition, human
from jianmu.message import ai
from jianmu.nodes import Selector, Sequence, action
from jianmu.prebuilt import ReActState, react
from jianmu.testing import ScriptedModel
from jianmu.tool import ToolCall, tool

HOURS = "We are open from 9 to 17."


@tool
async def order_status(number: int) -> str:
    """Look up where an order is."""
    return f"order {number} is on its way"


@condition
def asks_for_hours(state: ReActState) -> bool:
    """Whether the last message is about opening hours."""
    return re.search(r"\b(open|hours|close)\b", state.messages[-1].text.lower()) is not None


@action
def tell_hours(context) -> dict[str, object]:
    """Answer by the rule."""
    return {"messages": [ai(HOURS)], "final_answer": HOURS, "done": True}


def build(model: ScriptedModel) -> Selector:
    """Try the rule, then the model."""
    rule = Sequence("hours", memory=True, children=[asks_for_hours(), tell_hours()])
    return Selector("assistant", memory=True, children=[rule, react("model", model=model, tools=[order_status])])


async def main() -> None:
    """Ask what a rule knows, and what it does not."""
    look = ToolCall(id="1", name="order_status", arguments={"number": 7})
    model = ScriptedModel([look, "It is on its way."])
    agent = Agent(build(model), state_schema=ReActState)
    for text in ("When do you close?", "Where is my order 7?", "And are you open now?"):
        before = len(model.requests)
        await agent.run({"messages": [human(text)]})
        print(f"{text} {agent.state.final_answer} ({len(model.requests) - before} requests)")


if __name__ == "__main__":
    anyio.run(main)
