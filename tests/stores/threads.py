"""Threads in a store, written row by row as a run writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from jianmu.engine.checkpoint import Delivery, Lease, Row, Sought, Transaction
from jianmu.engine.journal import Entry
from jianmu.engine.outside import held
from jianmu.engine.questionrows import row_of, text_of
from jianmu.engine.questions import Origin, Suspension, digest, question_id
from jianmu.engine.record import Record, ends_at
from jianmu.engine.request import Request
from jianmu.stores.base import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ASK = Request("Go on?", answer=str)
TREE = text_of({"classes": ["Sequence", "Ask"], "nodes": [[0, "root", 0], [1, "ask", 1]]})
FAR_TOO_MANY = 100_000


def record(
    thread_id: str, request: Request = ASK, *, at: datetime = NOON, path: str = "root/ask", count: int = 0
) -> Record:
    """Return a question of a thread's first run."""
    origin = Origin(thread_id, 1, path)
    question = Suspension(
        id=question_id(origin, "ask", count),
        thread_id=thread_id,
        path=path,
        key="ask",
        reason=request.reason,
        message=str(request.message),
        response_schema=request.door.schema,
        expires_at=ends_at(at, request.steps),
        assignee=request.assignee,
        metadata=request.details,
    )
    return Record(
        question=question, origin=origin, count=count, steps=request.steps, asked_at=at, private=request.private
    )


def effect(thread_id: str, key: str = "pay", path: str = "root/ask", **fields: Any) -> Entry:
    """Return a journal entry of a thread's first run; without fields one that was begun."""
    origin = Origin(thread_id, 1, path)
    usual = {"name": "pay", "arguments": "a", "state": "started", "attempts": 1}
    return Entry(origin=origin, key=key, idempotency_key=digest("idempotency", thread_id, key), **usual | fields)


def row(entry: Entry, came: int, went: int | None = None) -> Row:
    """Return the row of an effect."""
    return Row("effect", entry.id, entry.model_dump_json(exclude_defaults=True), came, went)


@dataclass
class Run:
    """Writes the log of one thread under its lease."""

    store: Store
    lease: Lease
    number: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin where the log stands."""
        self.number = self.lease.number

    async def write(self, body: dict[str, Any] | None = None, **fields: Any) -> None:
        """Write the next transaction."""
        self.number += 1
        told = {"time": NOON.timestamp() + self.number, "what": "pass", **(body or {})}
        usual = {"status": "running", "record": text_of({"run": 1, "usage": {"ticks": self.number}}), "wake_at": None}
        step = Transaction(self.lease, self.number - 1, text_of(told), **usual | fields)
        assert await self.store.commit(step)

    async def begin(self, more: dict[str, Any] | None = None, **fields: Any) -> None:
        """Write the input; `more` is in the body too."""
        state = {"version": 1, "fields": {"log": [], "n": 1}, "spent": []}
        head = {"what": "input", "run": 1, "status": "running", "state": state, "usage": {"ticks": 1}, **(more or {})}
        await self.write(head, **fields)

    async def append(self, text: str, **fields: Any) -> None:
        """Write a pass that appends to the log in the state."""
        await self.write({"v": self.number + 1, "s": [["log", "splice", [self.number - 1, 0, [text]]]]}, **fields)

    async def ask(self, *asked: Record, **fields: Any) -> None:
        """Write a pass in which the node asks and the run is suspended."""
        nodes = {"0": ["R", 1], "1": ["R", None, {"asked": [one.id for one in asked]}]}
        tree = Row("tree", "tree1", TREE, self.number + 1)
        rows = {"questions": tuple(row_of(one, came=self.number + 1) for one in asked), "rows": (tree,)}
        body = {"status": "suspended", "tree": tree.id, "pass": self.number, "nodes": nodes}
        await self.write(body, **{"status": "suspended", **rows} | fields)

    async def deliver(self, *ids: str, **fields: Any) -> None:
        """Write a pass in which ends are delivered."""
        told = tuple(Delivery(id, consumed=True) for id in ids)
        await self.write({"status": "running", "nodes": {"1": ["S"]}}, delivered=told, **fields)

    async def end(self, *ids: str) -> None:
        """Write the end of the run, with which its questions are done with."""
        told = tuple(Delivery(id, consumed=True, is_gone=True) for id in ids)
        fields = {"status": "finished", "delivered": told, "releases": True}
        await self.write({"what": "end", "status": "finished", "tree": None}, **fields)


async def suspended(store: Store, thread_id: str, *asked: Record) -> tuple[Record, ...]:
    """Make a thread of two transactions that waits for the answers to its questions."""
    asked = asked or (record(thread_id),)
    async with held(store, thread_id, create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        await run.ask(*asked)
    return asked


async def idle(store: Store, thread_id: str) -> None:
    """Make a thread of one transaction that waits for nothing."""
    lease = await store.acquire(thread_id, "{}", 60, create=True)
    assert await store.commit(Transaction(lease, 0, "{}", "finished", "{}", None, releases=True))


async def finished(store: Store, thread_id: str) -> None:
    """Make a thread of four transactions whose run has ended."""
    async with held(store, thread_id, create=True) as lease:
        run = Run(store, lease)
        await run.begin()
        await run.append("a")
        await run.append("b")
        await run.end()


async def picture(store: Store, thread_id: str) -> tuple[object, ...]:
    """Return all that can be seen of a thread."""
    asked = await store.questions(Sought(thread_id=thread_id, status=None, limit=FAR_TOO_MANY))
    log = await store.log(thread_id, limit=FAR_TOO_MANY)
    return (await store.thread(thread_id), await store.read(thread_id), log, asked)
