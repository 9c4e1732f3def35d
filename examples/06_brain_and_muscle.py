"""Brain and muscle: a slow planner thinks between the steps, while fast control is ticked by your own loop.

step() ticks the tree once and returns the fields with the scope "step": what is to be done now. In a simulation or a
game your loop owns the time. `async with agent:` is the place where coroutines go on between the steps.
"""

from typing import Annotated

import anyio
from py_trees.common import ParallelPolicy
from pydantic import BaseModel

from jianmu import Agent, AsyncNode, Ephemeral, Node, Status
from jianmu.nodes import Parallel


class Game(BaseModel):
    """What the figure sees, where it is to go, and its move in this step."""

    position: int = 0
    goal: int | None = None
    move: Annotated[int, Ephemeral("step")] = 0


class Plan(AsyncNode):
    """The brain: takes long, and writes a goal."""

    async def update_async(self) -> Status:
        """Think; the state may have changed in the meantime."""
        await self.context.deps.wait()
        here = self.read_state().position
        self.write_state({"goal": here + 3})
        return Status.SUCCESS


class Walk(Node):
    """The muscle: one move in each step, towards the goal if there is one."""

    def update(self) -> Status:
        """Write the move of this step."""
        state = self.read_state()
        if state.goal is not None and state.position != state.goal:
            self.write_state({"move": 1 if state.goal > state.position else -1})
        return Status.RUNNING


async def main() -> None:
    """Eight frames of a game; in the third one the planner gets its answer."""
    thought = anyio.Event()
    tree = Parallel("figure", policy=ParallelPolicy.SuccessOnAll(), children=[Plan("brain"), Walk("muscle")])
    agent = Agent(tree, state_schema=Game, deps=thought)
    position = 0
    async with agent:
        for frame in range(1, 9):
            fields = await agent.step({"position": position})
            position += fields["move"]
            print(f"frame {frame}: move {fields['move']:+d}, position {position}, goal {agent.state.goal}")
            if frame == 3:
                thought.set()
                await anyio.sleep(0.001)  # the frame's pause, in which the planner goes on


if __name__ == "__main__":
    anyio.run(main)
