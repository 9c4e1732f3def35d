"""A delegate: a tree that the model calls as a tool. It has a state of its own, and its questions are the run's."""

from typing import Any

import anyio
from pydantic import BaseModel

from jianmu import AskHuman, human
from jianmu.nodes import Sequence, SimpleLLMNode
from jianmu.prebuilt import delegate, react_agent
from jianmu.testing import ScriptedModel
from jianmu.tool import ToolCall


class Trip(BaseModel):
    """What the delegate knows: what it was given, and what it finds out."""

    city: str = ""
    budget: int = 0
    plan: str = ""


writer = ScriptedModel(["A day by the harbour, for 40 euros."])


def planner() -> Sequence:
    """Ask for the budget, then write a plan."""
    budget = AskHuman("budget", message=lambda trip: f"How much for {trip.city}?", answer=int, into="budget")
    write = SimpleLLMNode("write", model=writer, prompt=lambda trip: f"{trip.city}, {trip.budget} euros", into="plan")
    return Sequence("plan", memory=True, children=[budget, write])


def wish(city: str) -> dict[str, Any]:
    """Plan a trip to a city."""
    return {"city": city}


async def main() -> None:
    """Have a trip planned by somebody who sees nothing of the conversation but the city."""
    plan = delegate("plan_trip", planner, state_schema=Trip, arguments=wish, result="plan")
    model = ScriptedModel([ToolCall(id="1", name="plan_trip", arguments={"city": "Kiel"}), "Go to the harbour."])
    agent = react_agent(model, [plan])
    outcome = await agent.run_until_suspend({"messages": [human("Where shall we go? Keep it secret.")]})
    question = outcome.suspensions[0]
    print(f"{question.path}\n  asks: {question.message}")
    outcome = await agent.resume(40)
    print("the delegate's model was asked:", writer.requests[0].messages[-1].text)
    print("the result:", agent.state.messages[2].text)
    print(outcome.status.name, "-", agent.state.final_answer)


if __name__ == "__main__":
    anyio.run(main)
