"""Async nodes: work that takes time is a coroutine; the tree goes on when it is done."""

import anyio
from pydantic import BaseModel

from jianmu import Agent, AsyncNode, In, Out, Race, Status, Timeout
from jianmu.nodes import Sequence


class Trip(BaseModel):
    """A question and what was found."""

    city: str = ""
    weather: str = ""
    hotel: str = ""


class Fetch(AsyncNode):
    """Ask a slow service. SUCCESS with the result in `found`."""

    city: In[str]
    found: Out[str]

    def __init__(self, name: str, seconds: float, **ports: object) -> None:
        super().__init__(name, **ports)
        self.seconds = seconds

    async def update_async(self) -> Status:
        """Wait, then write; a halt cancels this."""
        print(f"{self.name}: asked")
        await self.context.clock.sleep(self.seconds)
        self.found = f"{self.city}, says the {self.name}"
        print(f"{self.name}: answered")
        return Status.SUCCESS

    async def cleanup(self) -> None:
        """Put things in order after a halt; whatever comes next waits for this."""
        print(f"{self.name}: connection closed")


def build() -> Sequence:
    """Ask for the weather, then two hotel services at once."""
    weather = Timeout("in time", Fetch("weather service", 0.01, city="city", found="weather"), seconds=1)
    hotels = [
        Fetch("big hotel", 0.01, city="city", found="hotel"),
        Fetch("small hotel", 5, city="city", found="hotel"),
    ]
    return Sequence("plan", memory=True, children=[weather, Race("the faster one", hotels)])


async def main() -> None:
    """Run the tree; nothing of it is alive afterwards."""
    agent = Agent(build(), state_schema=Trip)
    status = await agent.run({"city": "Chengdu"})
    print(status.name, agent.output)


if __name__ == "__main__":
    anyio.run(main)
