"""Approval: a call that needs a person waits, with all its siblings, until somebody has decided."""

import anyio

from jianmu import human
from jianmu.prebuilt import react_agent
from jianmu.testing import ScriptedModel
from jianmu.tool import ToolCall, tool


@tool
async def balance() -> int:
    """Return what is on the account."""
    print("  looks at the account")
    return 100


@tool(requires_approval=lambda args: args["euros"] > 20)
async def pay(to: str, euros: int) -> str:
    """Pay somebody."""
    print(f"  pays {to} {euros}")
    return "paid"


def bills(**euros: int) -> list[ToolCall]:
    """Return a call for each bill, after a look at the account."""
    calls = [ToolCall(id=f"pay {to}", name="pay", arguments={"to": to, "euros": sum}) for to, sum in euros.items()]
    return [ToolCall(id="look", name="balance"), *calls]


async def main() -> None:
    """Three bills: a small one, one that is rejected, one that is edited."""
    model = ScriptedModel([bills(Ada=5, Bob=50, Eve=80), "Two of the bills are paid."])
    agent = react_agent(model, [balance, pay])
    outcome = await agent.run_until_suspend({"messages": [human("Pay the bills.")]})
    print("nothing is done yet; it is asked:")
    for question in outcome.suspensions:
        print(f"  {question.tool_call_id}: {question.message} {question.data}")
    bob, eve = outcome.suspensions
    await agent.interaction.reject(bob.id, "that was paid in May")
    await agent.interaction.approve(eve.id, edited={"to": "Eve", "euros": 60})
    outcome = await agent.recover()
    for message in agent.state.messages:
        if message.role == "tool":
            print(f"{message.tool_call_id}: {message.text}")
    print(outcome.status.name, "-", agent.state.final_answer)


if __name__ == "__main__":
    anyio.run(main)
