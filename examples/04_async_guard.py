"""An async guard: a slow check stands over a slow action, and is made again when what it reads has changed.

The Sequence has no memory, so every pass looks at the guard again. A finished async node is not run again by being
looked at: it holds its result. Only conditions are evaluated again, in the background, and only when a field that
they watch was written.
"""

import anyio
from pydantic import BaseModel

from jianmu import Agent, AsyncNode, Status, async_action, async_condition
from jianmu.nodes import Selector, Sequence


class Robot(BaseModel):
    """Where it is, and how warm its motor is."""

    temperature: int = 20
    position: int = 0


@async_condition(reads=("temperature",))
async def is_cool(state: Robot) -> bool:
    """Ask a slow sensor service."""
    await anyio.sleep(0.002)
    print(f"checked at {state.temperature} degrees")
    return state.temperature < 60


class Drive(AsyncNode):
    """Drive ten metres; on the hill the motor gets warm."""

    async def update_async(self) -> Status:
        """Write the position in every step: each write wakes the tree, and the guard is looked at."""
        print("drives")
        for metre in range(1, 11):
            self.write_state({"position": metre})
            if metre == 5:
                self.write_state({"temperature": 90})
            await anyio.sleep(0.001 if metre < 5 else 1)
        return Status.SUCCESS

    async def cleanup(self) -> None:
        """Stop the motor; what comes next waits for this."""
        print(f"brakes at {self.read_state().position} m")


@async_action
async def rest(context) -> None:
    """Stand still for a while."""
    print("rests")
    await anyio.sleep(0.001)


def build() -> Selector:
    """Drive while it is cool, else rest."""
    drive = Sequence("drive if cool", memory=False, children=[is_cool("is it cool"), Drive("drive")])
    return Selector("move", memory=False, children=[drive, rest("rest")])


async def main() -> None:
    """Run until the robot has rested."""
    agent = Agent(build(), state_schema=Robot)
    status = await agent.run()
    print(status.name, agent.output)


if __name__ == "__main__":
    anyio.run(main)
