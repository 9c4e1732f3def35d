"""One life of a program that runs an agent on a store: it goes on where the life before has ended, and may be killed.

A life does what a careful caller does: it delivers its input under an id, answers what is open under a key of its
own, settles what nobody knows, and goes on until the run has ended. What it did, and what it found in the store when
it began, is in the notes.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import threading
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio
from py_trees.common import Status
from pydantic_core import to_jsonable_python

from jianmu import Agent
from jianmu.engine.checkpoint import QuestionRow, Sought
from jianmu.engine.clock import RealClock
from jianmu.engine.outcome import Outcome
from jianmu.engine.questionrows import record_of
from jianmu.engine.questions import Answer, Suspension
from jianmu.errors import InvalidAnswerError, OutcomeUnknownError, StoreError, UnknownThreadError, WithdrawnError
from jianmu.stores import MemoryStore, PostgresStore, SQLiteStore
from jianmu.stores.base import Store
from tests.crash.hooks import Hook
from tests.crash.notes import Notes
from tests.crash.points import Point, Tracer
from tests.crash.shapes import INPUT, QUEUED, SHAPES, Order

THREAD = "t1"
FAR = 10_000


@dataclass(frozen=True)
class Moment:
    """A death at some time, wherever the program is then; whoever has started it sees to that."""

    seconds: float


Death = Point | Hook | tuple[Hook, ...] | Moment | None


@dataclass(frozen=True)
class Plan:
    """What is to be run, and where it dies.

    Attributes:
        shape: the name of the tree.
        store: `sqlite`, `postgres` or `memory`.
        place: the file, or the dsn.
        backend: `asyncio` or `trio`.
        level: when passes are saved.
        way: how questions are answered: at the `inbox`, by `resume`, at the `agent`; or, in the first life, while the
            run waits for it: in memory (`nowait`), or at the inbox (`outside`).
        schema: of PostgreSQL.
        deaths: where each life ends; None is not at all.
        is_counted: whether the points that are passed are counted, in the first life.
        since: what has to be noted before points count: nothing, or `accepted`.
    """

    shape: str
    store: str
    place: str
    backend: str
    level: Any
    way: str = "inbox"
    schema: str = ""
    deaths: tuple[Death, ...] = ()
    is_counted: bool = False
    since: str = ""

    @property
    def combination(self) -> str:
        """The store, backend and level."""
        return f"{self.store}-{self.backend}-{self.level}"

    def dying(self, *deaths: Death) -> Plan:
        """Return the same with these deaths; after them comes a life without one."""
        return replace(self, deaths=deaths, is_counted=False)

    def death(self, life: int) -> Death:
        """Return where a life ends."""
        return self.deaths[life] if life < len(self.deaths) else None


class ShiftedClock(RealClock):
    """The real clock, put forward."""

    shift = timedelta()

    def utc(self) -> datetime:
        """Return the instant it shows."""
        return super().utc() + self.shift


@dataclass
class Life:
    """One life of the program."""

    plan: Plan
    notes: Notes
    clock: ShiftedClock = field(default_factory=ShiftedClock)
    tracer: Tracer | None = None
    running: Agent[Order] | None = None

    def __post_init__(self) -> None:
        """Prepare its death."""
        self.shape = SHAPES[self.plan.shape]
        death = self.plan.death(self.notes.life)
        if isinstance(death, Point):
            self.tracer = Tracer(death)
        elif isinstance(death, Hook | tuple):
            for hook in (death,) if isinstance(death, Hook) else death:
                hook.install(partial(self.do, hook.deed))
        elif self.plan.is_counted and not self.notes.life:
            self.tracer = Tracer()

    def do(self, deed: str) -> None:
        """Do what a hook is there for."""
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif deed == "stop":
            self.notes.write("stopped", process=os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
        elif deed == "halt" and self.running is not None:
            self.running.halt()
        elif deed == "copy":
            self.copy()
        elif deed.startswith("answer"):
            other = threading.Thread(target=anyio.run, args=(self.answer_from_outside,))
            other.start()
            other.join()
            self.do(deed.removeprefix("answer").lstrip())

    def copy(self) -> None:
        """Copy the file, and note which copy it is."""
        number = len(self.notes.all("copied"))
        to = f"{self.plan.place}.{number}"
        with closing(sqlite3.connect(self.plan.place)) as source, closing(sqlite3.connect(to)) as target:
            source.backup(target)
        self.notes.write("copied", number=number)

    async def answer_from_outside(self) -> None:
        """Answer all that is open, as another process would."""
        async with self.store() as store:
            await self.answer(None, store, await store.inbox.pending(thread_id=THREAD))

    def store(self) -> AbstractAsyncContextManager[Store]:
        """Return the store, which nobody has opened yet."""
        plan = self.plan
        if plan.store == "memory":
            return MemoryStore()
        return SQLiteStore(plan.place) if plan.store == "sqlite" else PostgresStore(plan.place, schema=plan.schema)

    def agent(self, store: Store) -> Agent[Order]:
        """Return the agent."""
        level, clock = self.plan.level, self.clock
        return Agent(
            self.shape.build(), Order, store=store, durability=level, deps=self.notes, clock=clock, poll_answers=0.02
        )

    async def live(self) -> None:
        """Live: look what is there, go on with it, and tell how it ended."""
        async with self.store() as store:
            if self.notes.life:
                self.notes.write("found", **await found(store, self.latest()))
            await self.work(store)
            self.notes.write("final", **await found(store, self.latest()))

    def latest(self) -> datetime:
        """Return an instant that no life's clock has reached."""
        return self.clock.utc() + timedelta(days=self.shape.ending == "clock")

    async def work(self, store: Store) -> None:
        """Do what is to be done, watched."""
        if self.tracer is not None:
            self.tracer.counts = not self.plan.since
            self.tracer.start()
        try:
            await self.drive(store)
        finally:
            if self.tracer is not None:
                self.tracer.stop()
                self.notes.write("passed", points=list(self.tracer.counted()))

    async def drive(self, store: Store) -> None:
        """Run until the run has ended, then deliver the input once more."""
        agent = self.running = self.agent(store)
        deliver: dict[str, Any] = {"thread_id": THREAD, "input_id": "first"}
        if self.plan.way in ("nowait", "outside") and not self.notes.life:
            await self.run_answered(agent, store, deliver)
        outcome = await self.attempt(agent.run_until_suspend(INPUT, **deliver))
        for name in QUEUED if self.shape.ending == "queue" else ():
            given = {"thread_id": THREAD, "input_id": name, "on_new_input": "queue"}
            await self.attempt(agent.run_until_suspend({"inputs": [name]}, **given))
        while outcome is None or outcome.suspended or outcome.status is Status.INVALID:
            outcome = await self.go_on(agent, store, outcome)
        again = await agent.run_until_suspend(INPUT, **deliver)
        self.notes.write("again", status=again.status.name, is_same=to_jsonable_python(outcome.output) == again.output)

    async def run_answered(self, agent: Agent[Order], store: Store, deliver: dict[str, Any]) -> None:
        """Run to the end, while somebody answers."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.answer_all, agent, store)
            await agent.run(INPUT, **deliver)
            group.cancel_scope.cancel()

    async def answer_all(self, agent: Agent[Order], store: Store) -> None:
        """Answer whatever comes up."""
        while True:
            await anyio.sleep(0.005)
            for question in agent.interaction.pending:
                with suppress(WithdrawnError):
                    if self.plan.way == "outside":
                        await self.answer(None, store, (question,))
                    else:
                        agent.interaction.answer_nowait(Answer(question.id, self.payload(question)))

    async def attempt(self, call: Awaitable[Outcome]) -> Outcome | None:
        """Await a call and note what it tells; None: an effect has an outcome that nobody knows."""
        try:
            outcome = await call
        except OutcomeUnknownError as error:
            self.notes.write("unknown", key=error.key)
            return None
        self.notes.write("told", status=outcome.status.name, asked=[question.id for question in outcome.suspensions])
        return outcome

    async def go_on(self, agent: Agent[Order], store: Store, outcome: Outcome | None) -> Outcome | None:
        """Do what the run waits for, then go on with it; where it was interrupted, look at it first."""
        if outcome is None or not outcome.suspended:
            self.notes.write("found", **await found(store, self.latest()))
        if outcome is None:
            await self.settle(store)
        elif not outcome.suspended:
            pass
        elif self.shape.ending == "clock":
            await self.turn_clock(store)
        else:
            if self.shape.ending == "tidy":
                await self.tidy(store)
            pending = await store.inbox.pending(thread_id=THREAD)
            if self.plan.way == "resume" and pending:
                return await self.attempt(self.resume(agent, pending[0]))
            await self.answer(agent, store, pending)
        return await self.attempt(agent.recover(THREAD))

    async def settle(self, store: Store) -> None:
        """Say what became of the effect that fails where its outcome is unknown."""
        unknown = [entry for entry in (await store.show(THREAD)).unknown if entry.origin.path.endswith("/fails")]
        for entry in unknown:
            done = [note["receipt"] for note in self.notes.all("effect") if note["key"] == entry.idempotency_key]
            await store.settle(THREAD, entry.id, happened=bool(done), result=done[0] if done else None)

    async def tidy(self, store: Store) -> None:
        """Prune the thread, and fork it, unless that was done."""
        if self.notes.all("tidied"):
            return
        await store.prune(THREAD)
        with suppress(StoreError):
            await store.fork(THREAD, "t2")
        self.notes.write("tidied")

    async def turn_clock(self, store: Store) -> None:
        """Have the deadline of a question pass: the store is swept, or the agent finds it out."""
        self.clock.shift += timedelta(minutes=61)
        if self.plan.way == "inbox":
            await store.sweep(self.clock.utc())

    async def answer(self, agent: Agent[Order] | None, store: Store, pending: tuple[Suspension, ...]) -> None:
        """Answer all open questions, all or none; a first attempt may be refused."""
        door = agent.interaction if agent is not None and self.plan.way == "agent" else store.inbox
        answers = [Answer(question.id, self.payload(question), key=f"key of {question.id}") for question in pending]
        for answer in answers:
            self.notes.write("sent", id=answer.id, payload=answer.payload)
        if self.shape.ending == "mend":
            with suppress(InvalidAnswerError):
                await door.answer(*answers[:-1], Answer(answers[-1].id, "no dict"))
            still = await store.inbox.pending(thread_id=THREAD)
            self.notes.write("refused", open=[question.id for question in still])
        await door.answer(*answers)
        for answer in answers:
            self.notes.write("accepted", id=answer.id, payload=answer.payload)
        if self.tracer is not None and self.plan.since == "accepted":
            self.tracer.counts = True

    async def resume(self, agent: Agent[Order], question: Suspension) -> Outcome:
        """Answer one question and go on in one call."""
        answer = Answer(question.id, self.payload(question), key=f"key of {question.id}")
        self.notes.write("sent", id=answer.id, payload=answer.payload)
        return await agent.resume(answer, thread_id=THREAD)

    def payload(self, question: Suspension) -> Any:
        """Return what is said: who says it, or the truth about an effect."""
        if question.reason == "approval":
            return True
        if question.reason != "unknown_outcome":
            return {"by": self.notes.life, "to": question.message.rstrip("?")}
        assert isinstance(question.data, dict)
        key = question.data["idempotency_key"]
        done = [note["receipt"] for note in self.notes.all("effect") if note["key"] == key]
        return {"happened": True, "result": done[0]} if done else {"happened": False}


async def found(store: Store, now: datetime) -> dict[str, Any]:
    """Return all that a store tells of the thread, also whether it is due."""
    info = [one.model_dump(mode="json") for one in await store.list()]
    asked = await store.questions(Sought(thread_id=THREAD, status=None, limit=FAR))
    told: dict[str, Any] = {"list": info, "due": await store.due(now), "asked": [_question(row) for row in asked]}
    try:
        view = await store.show(THREAD)
    except UnknownThreadError:
        return told
    row = await store.thread(THREAD)
    stored = await store.read(THREAD)
    return told | {
        "log": [[number, _digest(body)] for number, body in await store.log(THREAD, limit=FAR)],
        "effects": {
            json.loads(one.body)["idempotency_key"]: json.loads(one.body) for one in await store.rows(THREAD, "effect")
        },
        "fields": view.fields,
        "position": view.position,
        "status": view.status,
        "mail": row and row.mail,
        "fence": row and row.fence,
        "wake_at": row and row.wake_at,
        "is_read": stored is not None,
    }


def _question(row: QuestionRow) -> dict[str, Any]:
    record = record_of(row)
    told = {"id": row.id, "of": record.question.message.rstrip("?"), "count": record.count, "status": row.status}
    ends = {"payload": record.answer and record.answer.payload, "source": record.source, "unused": row.unused}
    return told | ends | {"reason": row.reason, "asked": _digest(row.asked), "consumed": row.consumed}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def live(plan: Plan, notes: str, number: int) -> None:
    """Live one life."""
    anyio.run(Life(plan, Notes(notes, number)).live, backend=plan.backend)
