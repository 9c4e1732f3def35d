"""The thread that an agent works on: taken, restored, saved; in memory, or held in a store."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer, Stored, check_thread_id
from jianmu.engine.holding import Holding, Level
from jianmu.engine.limits import Usage
from jianmu.engine.mementos import check_position, dump_position, load_position
from jianmu.engine.node import AsyncNode
from jianmu.engine.phases import REST, Phase
from jianmu.engine.point import run_record
from jianmu.engine.recording import Recording, Standing, inner_managers
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.runrecord import RunRecord, StateRecord, load
from jianmu.engine.tree import descend, fingerprint, path_of
from jianmu.errors import AgentBusyError, StoreError, UnknownThreadError

S = TypeVar("S", bound=BaseModel)
UNFINISHED = ("suspended", "interrupted", "idle")


@dataclass(frozen=True)
class Keeping:
    """How threads are kept.

    Attributes:
        store: where, or None.
        version: of the state's schema.
        aliases: old paths and what they are called now.
        level: when passes are saved.
        poll: seconds between two looks for answers from other processes.
        max_block: seconds that the event loop may stand still before a lease is let go.
    """

    store: Checkpointer | None = None
    version: int | None = None
    aliases: Mapping[str, str] | None = None
    level: Level = "async"
    poll: float = 0.5
    max_block: float = 60.0


class Session(Generic[S]):
    """One agent's hold on its threads, one at a time.

    Args:
        runner: the tree and the state.
        keeping: how threads are kept.
    """

    def __init__(self, runner: ReactiveRunner[S], keeping: Keeping) -> None:
        self.runner = runner
        self.thread_id: str | None = None
        self.standing = "new"
        self.error: dict[str, str | None] | None = None
        self.holding: Holding | None = None
        self.keeps_lease = False
        self.is_at_work = False
        self._keeping = keeping
        self._version = keeping.version
        self._aliases = keeping.aliases or {}
        self._is_loaded = False
        if keeping.store is not None:
            self.attach(keeping.store)

    def attach(self, store: Checkpointer) -> None:
        """Keep threads in a store from now on."""
        runner = self.runner
        self.holding = runner.log = runner.context.interaction.desk = self._hold(store, self._keeping)
        runner.context.sync = self._sync

    def _hold(self, store: Checkpointer, keeping: Keeping) -> Holding:
        runner = self.runner
        return Holding(
            store,
            Recording(runner, self._version),
            runner.context,
            level=keeping.level,
            poll=keeping.poll,
            max_block=keeping.max_block,
            standing=self._standing,
            wake_at=self._wake_at,
            failed=runner.fail,
        )

    async def _sync(self) -> None:
        """Return when what an effect has recorded is durable."""
        assert self.holding is not None
        await self.holding.flush("once", has_to_last=True)

    @property
    def is_unfinished(self) -> bool:
        """Whether the thread's run can go on: it waits for answers, or was cut short with a store."""
        return self.standing == "suspended" or (self.standing == "interrupted" and self.holding is not None)

    @property
    def result(self) -> Status:
        """What the thread's last run has ended with; INVALID if it gave no result."""
        return {"finished": Status.SUCCESS, "failed": Status.FAILURE}.get(self.standing, Status.INVALID)

    # Taking a thread

    @asynccontextmanager
    async def taken(
        self, thread_id: str | None, *, create: bool = True, as_it_is: bool = False
    ) -> AsyncGenerator[None]:
        """Have a thread be the current one, and hold it while a call is on.

        Args:
            thread_id: the thread; None: the current one, or a new one.
            create: whether a thread that is not there is begun.
            as_it_is: whether memory counts, and a thread that somebody went on with is refused.

        Raises:
            ThreadBusyError: somebody else holds it.
            UnknownThreadError: there is none, and `create` is False.
        """
        if thread_id is None and self.thread_id is None and not create:
            yield
            return
        wanted = self._wanted(thread_id)
        if self.holding is None:
            await self._take_in_memory(wanted, create=create)
            yield
            return
        if not (self.holding.is_held and wanted == self.thread_id):
            await self.holding.leave()
            stored = await self.holding.take(wanted, create=create)
        else:
            stored = None
        try:
            await self._take_stored(self.holding, wanted, stored, as_it_is=as_it_is)
            yield
        finally:
            if not self.keeps_lease:
                await self.holding.leave()

    def take_now(self) -> None:
        """Make a new thread the current one where there is none."""
        if self.thread_id is None:
            self._start_over(uuid.uuid4().hex)

    def _wanted(self, thread_id: str | None) -> str:
        return check_thread_id(thread_id) if thread_id is not None else (self.thread_id or uuid.uuid4().hex)

    async def _take_in_memory(self, wanted: str, *, create: bool) -> None:
        if wanted == self.thread_id:
            return
        if not create:
            raise UnknownThreadError(f"there is no thread '{wanted}': this agent has no store", thread_id=wanted)
        await self._leave()
        self._start_over(wanted)

    async def _take_stored(self, holding: Holding, wanted: str, stored: Stored | None, *, as_it_is: bool) -> None:
        """Have memory stand where the store does."""
        if holding.is_current:
            return
        if as_it_is and stored is not None:
            text = f"somebody went on with thread '{wanted}' meanwhile: load it again, then edit and save it"
            raise StoreError(text, thread_id=wanted)
        if stored is not None:
            await self._restore(run_record(stored, schema_version=self._version))
        elif wanted != self.thread_id or self.standing == "new":
            await self._leave()
            self._start_over(wanted)
        holding.took_over(wanted, stored)

    async def load(self, thread_id: str) -> None:
        """Make a kept thread the current one, without holding it.

        Raises:
            UnknownThreadError: the store does not have it.
        """
        wanted = check_thread_id(thread_id)
        stored = await self.holding.store.read(wanted) if self.holding is not None else None
        if self.holding is not None and stored is not None:
            await self._restore(run_record(stored, schema_version=self._version))
            self.holding.took_over(wanted, stored)
        elif wanted != self.thread_id:
            raise UnknownThreadError(f"there is no thread '{wanted}' in the store", thread_id=wanted)

    async def save(self) -> None:
        """Keep the current thread in the store, if there is one."""
        if self.holding is None or self.thread_id is None:
            return
        if self.keeps_lease and self.holding.is_held:
            await self.holding.flush("save", has_to_last=True)
            return
        async with self.taken(None, as_it_is=True):
            await self.close("save")

    async def close(self, what: str, *, heeds_mail: bool = False) -> bool:
        """Save how the thread stands, and give it back.

        Returns:
            Whether it was done; False: something has come that the run has not read yet.
        """
        if self.holding is None:
            return True
        if self.keeps_lease:
            await self.holding.flush(what, has_to_last=True)
            return True
        return await self.holding.close(what, heeds_mail=heeds_mail)

    async def give_back(self) -> None:
        """Save and give back a thread that was kept over several calls."""
        self.keeps_lease = False
        if self.holding is not None and self.holding.is_held:
            await self.holding.close("end", heeds_mail=False)
            await self.holding.leave()

    # How it stands

    def settle(self, standing: str, error: BaseException | None = None) -> None:
        """Note how the thread stands after a call."""
        self.standing, self.is_at_work = standing, False
        self.error = None
        if error is not None:
            path = next((path for path, raised in self.runner.failures.errors if raised is error), None)
            self.error = {"type": type(error).__name__, "text": str(error), "path": path}

    def _standing(self) -> Standing:
        is_on = self.is_at_work or self.runner.phase not in REST
        return Standing("running") if is_on else Standing(self.standing, self.error)

    def _wake_at(self) -> float | None:
        """Return when somebody has to drive the thread, if nobody holds it."""
        context = self.runner.context
        if self.holding is not None and self.holding.inputs.queued and self.standing != "suspended":
            return context.clock.utc().timestamp()
        deadline = context.interaction.next_deadline() if self.standing == "suspended" else None
        return None if deadline is None else deadline.timestamp()

    # The whole run as JSON

    def dump(self) -> JsonObject:
        """Return all that is needed to go on with the thread elsewhere, as JSON."""
        return self._record(self.runner.manager.dump_checkpoint(), self._inner_states()).dump()

    def restore_now(self, data: JsonObject) -> None:
        """Take over what `dump` has written, where no coroutine is alive.

        Raises:
            CorruptRecordError, SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
            StateWriteError: a value does not fit today's schema; nothing was changed.
            AgentBusyError: a coroutine is alive.
        """
        self._restore_now(load(data, schema_version=self._version))
        if self.holding is not None:
            self.holding.forget()

    async def _restore(self, record: RunRecord) -> None:
        self._check(record)
        await self._leave()
        self._restore_now(record)

    def _restore_now(self, record: RunRecord) -> None:
        self._check(record)
        go_back = self._bookmark()
        try:
            self._take_over(record)
        except Exception:
            go_back()
            raise

    def revive(self) -> None:
        """Put a parked tree back to its position and have the coroutines of RUNNING nodes enter again.

        Those that wait for an answer go on waiting.
        """
        if self.standing == "interrupted" and self.runner.root.status is not Status.RUNNING:
            self._reload(self._inner_states())
        if self.holding is not None:
            self.holding.recording.thaw()
        if not self._is_loaded:
            return
        self._is_loaded = False
        pending = self.runner.context.interaction.all_open()
        for node in descend(self.runner.root):
            activity = node.context.activity if isinstance(node, AsyncNode) else None
            if activity is not None and node.status is Status.RUNNING:
                activity.resume([record.id for record in pending if record.question.path == activity.path])

    def _record(self, state: JsonObject | None, inner: dict[str, StateRecord]) -> RunRecord:
        """Return how the thread stands; in the midst of a call, as a kill at this moment would leave it."""
        runner, context = self.runner, self.runner.context
        is_on = runner.phase not in REST
        is_cut = runner.parked is not None and runner.root.status is not Status.RUNNING
        return RunRecord(
            schema_version=self._version,
            fingerprint=fingerprint(runner.root),
            thread_id=self.thread_id or "",
            run=context.run,
            status="interrupted" if is_on else self.standing,
            error=None if is_on else self.error,
            state=None if state is None else StateRecord.model_validate(state),
            inner=inner,
            position=runner.parked if is_cut else dump_position(runner.root),
            questions=context.interaction.dump(),
            journal=context.journal.dump(),
            usage=replace(context.usage),
        )

    def _inner_states(self) -> dict[str, StateRecord]:
        """Return the states of agents inside of this one, by path."""
        found = inner_managers(self.runner.root)
        return {path: StateRecord.model_validate(manager.dump_checkpoint()) for path, manager in found}

    def _check(self, record: RunRecord) -> None:
        """Refuse a record that does not fit the tree."""
        if self.runner.tasks.is_busy:
            raise AgentBusyError("coroutines of this agent are alive: `await agent.reset()` first, or leave its block")
        if record.status in UNFINISHED:
            check_position(self.runner.root, self._renamed(record.position))

    def _bookmark(self) -> Callable[[], None]:
        """Return what puts everything back to how it is now."""
        runner = self.runner
        stands = {"status": "suspended", "position": dump_position(runner.root)}
        before = self._record(None, {}).model_copy(update=stands)
        held = (self.thread_id, self.standing, self.error)
        parked, phase = runner.parked, runner.phase
        states = [manager.bookmark() for _, manager in ((None, runner.manager), *inner_managers(runner.root))]

        def go_back() -> None:
            self._take_over(before, is_own=True)
            for put_back in states:
                put_back()
            self.thread_id, self.standing, self.error = held
            runner.parked, runner.phase = parked, phase
            self._is_loaded = runner.root.status is Status.RUNNING

        return go_back

    def _take_over(self, record: RunRecord, *, is_own: bool = False) -> None:
        """Make a record the current thread; a record of its `own` has paths of today and no states."""
        rename = str if is_own else self._rename
        context = self.runner.context
        self._lay_down()
        self._start_over(record.thread_id)
        if record.state is not None:
            self.runner.manager.load_checkpoint(dict(record.state))
        context.run = context.events.run = record.run
        context.usage = replace(record.usage)
        context.interaction.load(record.questions, rename)
        context.journal.load(record.journal, rename)
        self.standing, self.error = record.status, record.error
        if record.status in UNFINISHED:
            self.runner.parked = record.position if is_own else self._renamed(record.position)
        self._reload({rename(path): state for path, state in record.inner.items()})
        if record.status == "suspended":
            self.runner.phase = Phase.SUSPENDED

    def _reload(self, inner: Mapping[str, StateRecord]) -> None:
        """Put the tree to the position that was parked; agents inside of it get the states given."""
        runner = self.runner
        meet = runner.context.ticker.meet

        def adopt(node: Behaviour) -> None:
            meet(node)
            manager = getattr(node, "inner_state", None)
            state = inner.get(path_of(node)) if manager is not None else None
            if manager is not None and state is not None:
                manager.load_checkpoint(dict(state))

        load_position(runner.root, runner.parked, keeps=keeps_running, adopt=adopt)
        self._is_loaded = runner.parked is not None

    async def _leave(self) -> None:
        """Take the tree off the current thread. A suspended one is left as it was kept: nothing of it is halted."""
        if self.runner.phase is Phase.SUSPENDED and not self.runner.tasks.is_busy:
            self._lay_down()
        else:
            await self.runner.abandon(withdraw=False)

    def _lay_down(self) -> None:
        """Make all nodes INVALID; no callback is called."""
        runner = self.runner
        for activity in [node.context.activity for node in descend(runner.root) if isinstance(node, AsyncNode)]:
            if activity is not None:
                activity.forget()
        load_position(runner.root, None)
        runner.context.deadlines.clear()
        runner.phase = Phase.IDLE

    def _start_over(self, thread_id: str) -> None:
        """Make an empty thread the current one."""
        runner, context = self.runner, self.runner.context
        if self.thread_id is not None:
            runner.manager.initialize()
            for _, manager in inner_managers(runner.root):
                manager.initialize()
        context.interaction.load({"records": []})
        context.journal.clear()
        context.usage = Usage()
        context.run = context.events.run = 0
        context.events.thread_id = context.thread_id = self.thread_id = thread_id
        self.standing, self.error, runner.parked = "new", None, None
        self._is_loaded = False

    def _rename(self, path: str) -> str:
        """Return what a path is called now; a branch that was renamed takes what is below it along."""
        for old in sorted(self._aliases, key=len, reverse=True):
            if path == old or path.startswith(f"{old}/"):
                return self._aliases[old] + path[len(old) :]
        return path

    def _renamed(self, position: JsonValue) -> JsonValue:
        """Return a position with today's names for its paths."""
        names = position.get("paths") if isinstance(position, dict) else None
        if isinstance(position, dict) and isinstance(names, list):
            return {**position, "paths": [self._rename(str(path)) for path in names]}
        return position


def keeps_running(node: Any) -> bool:  # Any: any node
    """Whether a RUNNING node without a memento stays RUNNING when it is loaded: its work is entered again."""
    return isinstance(node, AsyncNode)
