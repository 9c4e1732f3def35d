"""Two web requests: one starts a run that stops at a question, another one brings the answer. No server: functions."""

import tempfile
from pathlib import Path

import anyio
from pydantic import BaseModel

from jianmu import Agent, AlreadyAnsweredError, Answer, AskHuman, InvalidAnswerError, action
from jianmu.nodes import Sequence
from jianmu.stores import SQLiteStore


class Trip(BaseModel):
    """What a customer books."""

    to: str = ""
    seats: int = 0
    ticket: str = ""


@action
def print_ticket(context) -> dict[str, str]:
    """Write the ticket."""
    state = context.read_state()
    return {"ticket": f"{state.seats} x {state.to}"}


class Desk:
    """What a web application would have as its handlers; each returns an HTTP status and a body."""

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store

    def agent(self) -> Agent[Trip]:
        """Return an agent for one request; many requests may run at once."""
        ask = AskHuman("seats", message=lambda s: f"How many seats to {s.to}?", answer=int, into="seats")
        return Agent(Sequence("trip", memory=True, children=[ask, print_ticket()]), state_schema=Trip, store=self.store)

    async def start(self, request_id: str, body: dict) -> tuple[int, dict]:
        """POST /trips: a request that is sent again, since its reply was lost, starts nothing again."""
        thread_id = f"trip-{request_id}"
        outcome = await self.agent().run_until_suspend(body, thread_id=thread_id, input_id=request_id)
        return (202 if outcome.suspended else 200), outcome.output

    async def pending(self, thread_id: str) -> list[dict]:
        """GET /questions: what a page has to show, with the schema for its form; nothing is loaded for it."""
        found = await self.store.inbox.pending(thread_id=thread_id)
        return [{"id": one.id, "message": one.message, "schema": one.response_schema} for one in found]

    async def answer(self, id: str, payload: object) -> tuple[int, dict]:
        """POST /answers: the answer is kept first; then whoever is free goes on, and here it is this request."""
        try:
            (record,) = await self.store.inbox.answer(Answer(id, payload))
        except InvalidAnswerError as error:
            return 422, {"error": str(error).partition(": ")[2]}
        except AlreadyAnsweredError:
            return 409, {"error": "answered before"}
        outcome = await self.agent().recover(record.question.thread_id, wait=True)
        return 200, outcome.output


async def main() -> None:
    """Send a few requests."""
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteStore(Path(folder) / "trips.db") as store:
            desk = Desk(store)
            print("start   ", *await desk.start("r1", {"to": "Chengdu"}))
            print("again   ", *await desk.start("r1", {"to": "Chengdu"}))
            (question,) = await desk.pending("trip-r1")
            print("pending ", question["message"], question["schema"])
            for payload in ("two", 2, 3):
                print(f"answer {payload!s:3}", *await desk.answer(question["id"], payload))
            print("start r1", *await desk.start("r1", {"to": "Chengdu"}))


if __name__ == "__main__":
    anyio.run(main)
