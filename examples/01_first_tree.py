"""A tree: do all of a Sequence, or the first of a Selector that works."""

from pydantic import BaseModel

from jianmu import Agent, Const, In, action, condition
from jianmu.draw import text
from jianmu.nodes import Selector, Sequence


class Kitchen(BaseModel):
    """What the program knows."""

    has_tea: bool = False
    cup: str = "empty"


@condition
def has_tea(state: Kitchen) -> bool:
    """SUCCESS or FAILURE."""
    return state.has_tea


@action
def pour(context, what: In[str]) -> dict[str, str]:
    """Fill the cup; the dict is written to the state."""
    return {"cup": f"a cup of {what}"}


def build() -> Selector:
    """Tea if there is some, else water."""
    tea = Sequence("tea", memory=True, children=[has_tea("is there tea"), pour("pour tea", what=Const("tea"))])
    return Selector("drink", memory=True, children=[tea, pour("pour water", what=Const("water"))])


def main() -> None:
    """Run one tree twice, on two inputs."""
    agent = Agent(build(), state_schema=Kitchen)
    for has_some in (True, False):
        status = agent.run_sync({"has_tea": has_some})
        print(f"tea in the house: {has_some} -> {status.name}, {agent.state.cup}")
        print(text(agent.root), end="\n\n")


if __name__ == "__main__":
    main()
