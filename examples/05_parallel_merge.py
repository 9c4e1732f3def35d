"""Parallel: several nodes write into one dict at the same time, each its own keys, and nothing is lost."""

import anyio
from py_trees.common import ParallelPolicy
from pydantic import BaseModel, Field

from jianmu import Agent, AsyncNode, In, Out, Status, action
from jianmu.engine.state import StateChange
from jianmu.nodes import Parallel, Sequence


class Report(BaseModel):
    """A text, and what was found out about it."""

    text: str = ""
    findings: dict[str, int | str] = Field(default_factory=dict)


class CountWords(AsyncNode):
    """Count the words of `text`. The output is bound to one key of the dict: `findings.words`."""

    text: In[str]
    words: Out[int]

    async def update_async(self) -> Status:
        """Assign the output; other keys stay as they are."""
        await anyio.sleep(0.003)
        self.words = len(self.text.split())
        return Status.SUCCESS


class FindLanguage(AsyncNode):
    """Guess the language of `text`, and write two keys at once."""

    text: In[str]

    async def update_async(self) -> Status:
        """Write with merge_dict, all keys in one commit."""
        await anyio.sleep(0.001)
        is_english = " the " in f" {self.text} "
        self.merge_dict("findings", {"language": "English" if is_english else "unknown", "sure": "yes"})
        return Status.SUCCESS


@action
def tell(context) -> None:
    """Show what was found; runs when all three are done."""
    for key, value in sorted(context.read_state().findings.items()):
        print(f"{key}: {value}")


def build() -> Sequence:
    """Look at the text from two sides at once, then tell."""
    sides = [CountWords("words", text="text", words="findings.words"), FindLanguage("language", text="text")]
    both = Parallel("look", policy=ParallelPolicy.SuccessOnAll(), children=sides)
    return Sequence("report", memory=True, children=[both, tell("tell")])


def show(change: StateChange) -> None:
    """Show who wrote what; told after each commit."""
    if change.writer is not None:
        print(f"{change.writer} wrote {', '.join(change.fields)}")


async def main() -> None:
    """Run on one text."""
    agent = Agent(build(), state_schema=Report)
    agent.state_manager.subscribe(show)
    status = await agent.run({"text": "the tree between earth and sky"})
    print(status.name)


if __name__ == "__main__":
    anyio.run(main)
