"""Another process: a run stops at a question, its checkpoint lies in a file, and a second program goes on with it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic import BaseModel

from jianmu import Agent, AsyncNode, Request, Status, action
from jianmu.nodes import Sequence


class Order(BaseModel):
    """What is bought, and what came of it."""

    item: str = ""
    receipt: str = ""


async def charge(item: str) -> str:
    """Take the money. This must not happen twice."""
    print(f"    charged for a {item}")
    return f"receipt for a {item}"


class Buy(AsyncNode):
    """Charge, then ask where to deliver: after the answer the coroutine is entered from its top again."""

    async def update_async(self) -> Status:
        """`once` keeps the result of the call, `ask` the answer."""
        receipt = await self.once("charge", charge, self.read_state().item)
        address = await self.ask(Request("Where shall it go?"), key="address")
        self.write_state({"receipt": f"{receipt}, to {address}"})
        return Status.SUCCESS


@action
def look_up(context) -> None:
    """Stand before the question in the tree; it is not done again either."""
    print("    looked up the price")


def build() -> Agent[Order]:
    """Both processes build the same tree."""
    return Agent(Sequence("shop", memory=True, children=[look_up("look up"), Buy("buy")]), state_schema=Order)


def start(file: Path) -> None:
    """Run as far as it goes, and keep where it stands."""
    agent = build()
    outcome = agent.run_until_suspend_sync({"item": "teapot"})
    file.write_text(json.dumps(agent.dump_checkpoint()))
    print(f"    {outcome.suspensions[0].message} ({outcome.suspensions[0].path})", flush=True)


def go_on(file: Path, answer: str) -> None:
    """Take over and answer."""
    agent = build()
    agent.load_checkpoint(json.loads(file.read_text()))
    outcome = agent.resume_sync(answer)
    print(f"    {outcome.status.name}: {agent.state.receipt}", flush=True)


def main() -> None:
    """Start two processes, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for words in (["start"], ["go_on", "Lake Street 3"]):
            print("a process:", *words, flush=True)
            subprocess.run([sys.executable, __file__, f"{folder}/run.json", *words], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"start": start, "go_on": go_on}[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:])
    else:
        main()
