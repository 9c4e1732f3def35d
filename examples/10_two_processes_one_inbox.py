"""Two processes and one inbox: one runs until it needs people, another answers, and whoever comes next goes on."""

import subprocess
import sys
import tempfile

import anyio
from pydantic import BaseModel

from jianmu import Agent, Approve, action
from jianmu.stores import SQLiteStore


class Invoice(BaseModel):
    """What is to be paid."""

    supplier: str
    amount: float
    booked: bool = False


@action
def book(context) -> dict[str, bool]:
    """Book the payment; reached only with a person's leave."""
    return {"booked": True}


def build(store: SQLiteStore) -> Agent[Invoice]:
    """Only those who run threads need this tree; those who answer do not."""
    ask = Approve("ask", book(), message=lambda s: f"Pay {s.amount:.2f} to {s.supplier}?", assignee="Ada")
    return Agent(ask, state_schema=Invoice, store=store)


async def work(store: SQLiteStore) -> None:
    """Start a run for each invoice that came in; each stops at its question."""
    for number, supplier, amount in (("A-1", "Tea & Co", 90), ("A-2", "Rocket Ltd", 90000)):
        agent = build(store)
        outcome = await agent.run_until_suspend({"supplier": supplier, "amount": amount}, thread_id=number)
        print(f"    {number} waits: {outcome.suspended}")


async def review(store: SQLiteStore) -> None:
    """Look through Ada's questions, whatever thread they come from, and answer them."""
    for question in await store.inbox.pending(assignee="Ada"):
        if "Rocket" in question.message:
            await store.inbox.reject(question.id, "we have no launch pad", by="Ada")
        else:
            await store.inbox.approve(question.id, by="Ada")
        print(f"    {question.thread_id}: {question.message}")


async def drive(store: SQLiteStore) -> None:
    """Go on with all that is due; `jianmu drive` does this again and again."""
    for thread_id in await store.due():
        agent = build(store)
        outcome = await agent.recover(thread_id)
        why = agent.root.feedback_message or "by your leave"
        print(f"    {thread_id}: {outcome.status.name}, booked: {agent.state.booked} ({why})")


async def part(name: str, path: str) -> None:
    """Be one of the processes."""
    async with SQLiteStore(path) as store:
        await {"work": work, "review": review, "drive": drive}[name](store)


def main() -> None:
    """Start three processes, one after the other; all that they share is a file."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("work", "review", "drive"):
            print("a process:", name, flush=True)
            subprocess.run([sys.executable, __file__, name, f"{folder}/runs.db"], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(part, sys.argv[1], sys.argv[2])
    else:
        main()
