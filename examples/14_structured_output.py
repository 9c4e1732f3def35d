"""Structured output: a model's answer as a validated object; one that does not fit is sent back to it once."""

import anyio
from pydantic import BaseModel, Field

from jianmu import Agent
from jianmu.model import ScriptedModel
from jianmu.nodes import Selector, SimpleLLMNode, action


class Invoice(BaseModel):
    """An invoice, as far as a letter tells."""

    to: str
    amount: float = Field(gt=0, description="in euros")


class Desk(BaseModel):
    """What came in, and what was read in it."""

    letter: str = ""
    invoice: Invoice | None = None


@action
def by_hand(context) -> None:
    """Put the letter on somebody's desk."""
    print("  put on the desk of a person")


def build(model: ScriptedModel) -> Selector:
    """Read a letter with a model; what it cannot read, people do."""
    read = SimpleLLMNode(
        "read",
        model=model,
        prompt=lambda state: f"What is to be paid?\n\n{state.letter}",
        output=Invoice,
        into="invoice",
    )
    return Selector("desk", memory=True, children=[read, by_hand()])


async def main() -> None:
    """Read two letters; the model needs two attempts for the first one, and fails with the second one."""
    scripts = {
        "Please send 20 euros to Ada.": ['{"to": "Ada"}', '{"to": "Ada", "amount": 20}'],
        "Best wishes!": ["There is nothing to be paid.", "Really, nothing."],
    }
    for letter, script in scripts.items():
        model = ScriptedModel(script)
        agent = Agent(build(model), state_schema=Desk)
        print(letter)
        await agent.run({"letter": letter})
        print("  told:", model.requests[-1].messages[-1].text.splitlines()[1])
        print("  read:", agent.state.invoice)


if __name__ == "__main__":
    anyio.run(main)
