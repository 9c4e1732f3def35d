"""A question: the run stops where a person is needed, and goes on with the answer; or human= answers as it runs."""

import anyio
from pydantic import BaseModel

from jianmu import Agent, Approve, AskHuman, InvalidAnswerError, Suspension, action
from jianmu.nodes import Sequence


class Letter(BaseModel):
    """What is to be sent."""

    to: str = ""
    text: str = ""
    copies: int = 1


@action
def write(context) -> dict[str, str]:
    """Write the letter; done once, however often the run stops after it."""
    print("  writes the letter")
    return {"text": f"Dear {context.read_state().to}"}


@action
def send(context) -> None:
    """Send it."""
    state = context.read_state()
    print(f"  sends {state.copies} x {state.text!r}")


def build() -> Sequence:
    """Write, ask how often, and send only what was approved."""
    ask = AskHuman("how many", message="How many copies?", answer=int, into="copies")
    gate = Approve("sure", send("send"), message=lambda state: f"Send {state.copies} x {state.text!r}?")
    return Sequence("mail", memory=True, children=[write("write"), ask, gate])


async def stop_and_resume() -> None:
    """Stop at each question; each answer goes to the node that asked."""
    agent = Agent(build(), state_schema=Letter)
    outcome = await agent.run_until_suspend({"to": "Ada"})
    print("asked:", outcome.suspensions[0].message)
    try:
        await agent.resume("many")
    except InvalidAnswerError as error:
        print("refused:", str(error).replace(str(error.id), "<id>"))
    outcome = await agent.resume(2)
    print("asked:", outcome.suspensions[0].message)
    outcome = await agent.resume(True)
    print(outcome.status.name)


async def answer(question: Suspension) -> object:
    """Answer as soon as something is asked; here a person would sit."""
    print("asked:", question.message)
    return 1 if question.path == "mail/how many" else False


async def main() -> None:
    """Do it both ways."""
    await stop_and_resume()
    print("-- run() waits for answers, and human= gives them")
    agent = Agent(build(), state_schema=Letter, human=answer)
    status = await agent.run({"to": "Bob"})
    print(status.name, "-", agent.root.children[-1].feedback_message)


if __name__ == "__main__":
    anyio.run(main)
