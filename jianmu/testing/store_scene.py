"""What the checks of a store are played with: a writer of a thread, rows that are filled in, and demands."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count, cycle
from threading import Barrier
from typing import Any  # Any: fields of rows that a check names

import anyio
from anyio import to_thread

from jianmu.engine.checkpoint import Checkpointer, Delivery, Lease, Move, QuestionRow, Row, Sought, Transaction
from jianmu.errors import StoreError

Factory = Callable[[str], AbstractAsyncContextManager[Checkpointer]]
Size = Callable[[str], Awaitable[int]]
Work = Callable[[Checkpointer], Awaitable[object]]

NOON = 1_700_000_000.125
LONG = 600.0
PATIENCE = 60.0
FAR_TOO_MANY = 100_000
_holders = count(1)


def demand(holds: bool, what: str) -> None:
    """Fail unless something holds; an `assert` would be left out under `python -O`."""
    if not holds:
        raise AssertionError(what)


def same(found: object, wanted: object, what: str) -> None:
    """Fail unless two things are equal."""
    demand(found == wanted, f"{what} is {_short(found)}, not {_short(wanted)}")


async def refused(error: type[StoreError], call: Awaitable[object], what: str) -> None:
    """Fail unless a call raises an error of this type."""
    try:
        found = await call
    except error:
        return
    raise AssertionError(f"{what} was not refused with {error.__name__}, it gave {_short(found)}")


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"


def holder() -> str:
    """Return a holder that is nobody else, on no host that is this one."""
    return json.dumps({"host": "check-store.invalid", "pid": next(_holders)})


def key(thread_id: str, name: str) -> str:
    """Return an id for a question of a thread: unique in the store, short, safe in a URL."""
    return f"{name}-{sha256(thread_id.encode()).hexdigest()[:16]}"


def question(id: str, thread_id: str, **fields: Any) -> QuestionRow:
    """Return an open question."""
    asked = f'{{"ask":"{id}"}}'
    return replace(QuestionRow(id, thread_id, asked, "open", "input", None, NOON, None, None), **fields)


def answer(id: str, **fields: Any) -> Move:
    """Return the move that answers a question of which no step was taken."""
    return replace(Move(id, 0, "answered", '{"payload":true}', NOON, None, None, None, 0), **fields)


def expiry(id: str) -> Move:
    """Return the move that a deadline makes, as the first step of a question."""
    return answer(id, status="expired", ended='{"why":"expired"}', now=None, taken_after=1)


@dataclass
class Writer:
    """Writes the log of one thread, under one lease."""

    store: Checkpointer
    lease: Lease
    number: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin where the log stands."""
        self.number = self.lease.number

    def step(self, **fields: Any) -> Transaction:
        """Return the next transaction, with some of its fields."""
        usual = Transaction(self.lease, self.number, f"[{self.number + 1}]", "running", "{}", None)
        return replace(usual, **fields)

    async def write(self, **fields: Any) -> None:
        """Carry out the next transaction."""
        demand(await self.store.commit(self.step(**fields)), "a transaction was not carried out")
        self.number += 1

    async def ask(self, *ids: str, **fields: Any) -> None:
        """Ask questions, in one transaction."""
        rows = [question(id, self.lease.thread_id, came=self.number + 1, **fields) for id in ids]
        await self.write(questions=tuple(rows))

    async def end(self, status: str = "finished", **fields: Any) -> None:
        """Write the last transaction, which gives the lease back."""
        await self.write(status=status, releases=True, **fields)


async def take(store: Checkpointer, thread_id: str, seconds: float = LONG, *, create: bool = True) -> Writer:
    """Take a thread's lease, for a holder of its own."""
    return Writer(store, await store.acquire(thread_id, holder(), seconds, create=create))


async def begin(store: Checkpointer, thread_id: str, *asked: str, seconds: float = LONG) -> Writer:
    """Make a thread, with one transaction that asks these questions."""
    writer = await take(store, thread_id, seconds)
    await writer.ask(*asked)
    return writer


async def story(store: Checkpointer, thread_id: str) -> Writer:
    """Write a log of six transactions in which something of each kind comes, and something goes."""
    writer = await take(store, thread_id)
    opened, done = key(thread_id, "open"), key(thread_id, "done")
    await writer.write(rows=(Row("tree", "t", "[1]", 1), Row("input", "in", "[2]", 1)))
    rows = (Row("effect", "kept", "[3]", 2), Row("effect", "past", "[4]", 2))
    asked = tuple(question(id, thread_id, came=2) for id in (opened, done))
    await writer.write(rows=rows, questions=asked, has_to_last=True)
    await writer.write(rows=(Row("effect", "past", "[5]", 2, 3),))
    demand(await store.move([answer(done)], wake_at=NOON), "an answer to an open question was not taken")
    told = Delivery(done, consumed=True, is_gone=True)
    await writer.write(delivered=(told,), rows=(Row("cache", "c", "[6]", 4),))
    await writer.write(body=None)
    await writer.write(closed=(("input", "in"), ("effect", "never")))
    return writer


async def picture(store: Checkpointer, thread_id: str) -> tuple[object, ...]:
    """Return all that can be seen of a thread."""
    asked = await store.questions(Sought(thread_id=thread_id, status=None, limit=FAR_TOO_MANY))
    stored = await store.read(thread_id)
    kept = () if stored is None else tuple(sorted(stored.rows, key=lambda row: (row.kind, row.id)))
    rest = () if stored is None else (stored.thread, stored.snapshot, stored.log, stored.questions)
    log = await store.log(thread_id, limit=FAR_TOO_MANY)
    return (await store.thread(thread_id), await store.mail(thread_id), rest, kept, log, asked)


async def outcome(call: Awaitable[object]) -> object:
    """Return what a call gives, or the error with which the store refuses it."""
    try:
        return await call
    except StoreError as error:
        return error


async def at_once(*calls: Awaitable[object]) -> list[object]:
    """Return the outcomes of calls that are made at the same time."""
    found: list[object] = []

    async def make(call: Awaitable[object]) -> None:
        found.append(await outcome(call))

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(make, call)
    return found


@dataclass(frozen=True)
class Trial:
    """Where a check that needs more than one store gets them.

    Attributes:
        factory: opens a store over the data of a name.
        name: the name of the check's own data.
        size: gives the bytes that are stored under a name, or None.
    """

    factory: Factory
    name: str
    size: Size | None = None

    def open(self) -> AbstractAsyncContextManager[Checkpointer]:
        """Return a store of its own over the check's data."""
        return self.factory(self.name)

    async def in_threads(self, *works: Work) -> list[object]:
        """Return the outcomes of works done at once, each in a plain thread with its own event loop and store."""
        found: list[object] = []
        barrier = Barrier(len(works), timeout=30)

        async def work_alone(work: Work) -> None:
            with anyio.fail_after(PATIENCE):
                async with self.open() as store:
                    await store.mail("opened")
                    barrier.wait()
                    found.append(await outcome(work(store)))

        async def in_a_thread(work: Work, loop: str) -> None:
            def run() -> None:
                anyio.run(work_alone, work, backend=loop)

            await to_thread.run_sync(run, abandon_on_cancel=True)

        async with anyio.create_task_group() as group:
            for work, loop in zip(works, cycle(anyio.get_available_backends()), strict=False):
                group.start_soon(in_a_thread, work, loop)
        return found
