"""A kill in the middle of a payment: the next process goes on, and the money is taken once."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic import BaseModel

from jianmu import Agent, AsyncNode, Status, action
from jianmu.nodes import Sequence
from jianmu.stores import SQLiteStore


class Order(BaseModel):
    """What is bought, and what came of it."""

    item: str = ""
    receipt: str = ""


class Bank:
    """A service that takes money once for each idempotency key, like the real ones; its books are a folder."""

    def __init__(self, books: Path, dies: bool) -> None:
        self.books, self.dies = books, dies

    def take(self, item: str, key: str) -> str:
        """Take the money, unless this key was seen before."""
        page = self.books / f"{key}.paid"
        print(f"    bank: {'known already' if page.exists() else 'takes the money'}", flush=True)
        page.touch()
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)  # the money is gone, and nobody was told
        return f"receipt for a {item}"


class Pay(AsyncNode):
    """`once` has written down that the call begins before it begins, and its result before anybody sees it."""

    async def update_async(self) -> Status:
        """Pay; after a kill the call is made again under the same key."""
        self.write_state({"receipt": await self.once("charge", self.charge, self.read_state().item)})
        return Status.SUCCESS

    def charge(self, item: str) -> str:
        """Call the bank; a plain function is run in a thread."""
        return self.context.deps.take(item, self.context.idempotency_key)


@action
def look_up(context) -> None:
    """Stand before the payment in the tree; it has finished, so it is not done again."""
    print("    looked up the price", flush=True)


def order(folder: Path, dies: bool) -> None:
    """Start the order, or go on with it: the input's id tells that it is the same one."""
    tree = Sequence("shop", memory=True, children=[look_up("look up"), Pay("pay")])
    agent = Agent(tree, state_schema=Order, store=SQLiteStore(folder / "runs.db"), deps=Bank(folder, dies))
    outcome = agent.run_until_suspend_sync({"item": "teapot"}, thread_id="order-1", input_id="click-1")
    print(f"    {outcome.status.name}: {agent.state.receipt}", flush=True)


def main() -> None:
    """Start the same program twice; the first time it dies."""
    with tempfile.TemporaryDirectory() as folder:
        for fate in ("dies", "lives"):
            done = subprocess.run([sys.executable, __file__, folder, fate], check=False)
            print("exit code", done.returncode, flush=True)
        print("payments in the books:", len([*Path(folder).glob("*.paid")]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        order(Path(sys.argv[1]), sys.argv[2] == "dies")
    else:
        main()
