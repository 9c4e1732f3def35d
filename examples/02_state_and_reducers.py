"""State: one typed model; reducers fold what is written, scopes set it back, bad writes are refused."""

import operator
from typing import Annotated

from pydantic import BaseModel, Field

from jianmu import Agent, Clear, Ephemeral, Reducer, Replace, StateManager, StateWriteError, action


class Diary(BaseModel):
    """What is kept, and for how long."""

    notes: Annotated[list[str], operator.add] = Field(default_factory=list)  # an update appends
    best: Annotated[int, Reducer(max)] = 0  # an update keeps the greater one
    mood: str = "calm"  # an update replaces
    steps: Annotated[int, Ephemeral("run")] = Field(0, ge=0)  # back to 0 when a run starts


def write_by_hand() -> None:
    """Use the state without a tree."""
    state = StateManager(Diary)
    state.update({"notes": ["woke up"], "mood": "sleepy", "best": 7})
    state.update({"notes": ["had tea"], "mood": "awake", "best": 3})
    print(state.get())

    state.update({"notes": Replace(["a new page"]), "mood": Clear()})
    state.transform_field("steps", lambda steps: steps + 1)
    print(state.get())

    try:
        state.update({"notes": ["never kept"], "steps": -1})
    except StateWriteError as error:
        print("refused:", error)
    print("notes after that:", state.get().notes)

    try:
        state.get().notes.append("past the manager")
    except StateWriteError as error:
        print("read-only:", error)


@action
def walk(context) -> None:
    """Count, in one step that nobody can come between."""
    context.transform_field("steps", lambda steps: steps + 1)
    context.write_state({"notes": ["walked"]})


def main() -> None:
    """Write by hand, then from a node."""
    write_by_hand()
    agent = Agent(walk("walk"), state_schema=Diary)
    agent.run_sync()
    agent.run_sync({"mood": "brisk"})
    print("two runs:", agent.state.notes, agent.state.steps, agent.state.mood)


if __name__ == "__main__":
    main()
