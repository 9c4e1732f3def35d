"""The thread that an agent works on: taken, restored from its record, saved."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer, check_thread_id
from jianmu.engine.events import Saved
from jianmu.engine.limits import Usage
from jianmu.engine.mementos import check_position, dump_position, load_position
from jianmu.engine.node import AsyncNode
from jianmu.engine.phases import Phase
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.runrecord import RunRecord, StateRecord, load
from jianmu.engine.state import StateManager
from jianmu.engine.tree import descend, fingerprint, path_of, paths
from jianmu.errors import AgentBusyError, UnknownThreadError

S = TypeVar("S", bound=BaseModel)
UNFINISHED = ("suspended", "interrupted", "idle")


class Session(Generic[S]):
    """One agent's hold on its threads, one at a time.

    Args:
        runner: the tree and the state.
        store: where threads are kept, or None.
        version: the version of the state's schema.
        aliases: old paths and what they are called now.
    """

    def __init__(
        self,
        runner: ReactiveRunner[S],
        store: Checkpointer | None,
        version: int | None,
        aliases: Mapping[str, str],
    ) -> None:
        self.runner = runner
        self.thread_id: str | None = None
        self.standing = "new"
        self.error: dict[str, str | None] | None = None
        self._store = store
        self._version = version
        self._aliases = aliases
        self._saved: JsonObject | None = None
        self._is_loaded = False

    @property
    def is_unfinished(self) -> bool:
        """Whether the thread's run can go on: it waits for answers, or was cut short with a store."""
        return self.standing == "suspended" or (self.standing == "interrupted" and self._store is not None)

    @property
    def result(self) -> Status:
        """What the thread's last run has ended with; INVALID if it gave no result."""
        return {"finished": Status.SUCCESS, "failed": Status.FAILURE}.get(self.standing, Status.INVALID)

    async def take(self, thread_id: str | None) -> None:
        """Make a thread the current one; None means the current one, or a new one.

        What is kept in the store counts: another agent may have gone on with the thread.
        """
        wanted = check_thread_id(thread_id) if thread_id is not None else (self.thread_id or uuid.uuid4().hex)
        kept = await self._store.load(wanted) if self._store is not None else None
        if kept is not None and kept != self._saved:
            await self.restore(kept)
        elif wanted != self.thread_id:
            await self._leave()
            self._start_over(wanted)

    def take_now(self) -> None:
        """Make a new thread the current one where there is none."""
        if self.thread_id is None:
            self._start_over(uuid.uuid4().hex)

    async def load(self, thread_id: str | None) -> None:
        """Make a kept thread the current one; None means the current one, with which another agent may have gone on.

        Raises:
            UnknownThreadError: the store does not have it.
        """
        wanted = self.thread_id if thread_id is None else check_thread_id(thread_id)
        if wanted is None:
            return
        kept = await self._store.load(wanted) if self._store is not None else None
        if kept is None and wanted != self.thread_id:
            raise UnknownThreadError(f"there is no thread '{wanted}' in the store", thread_id=wanted)
        if kept is not None and kept != self._saved:
            await self.restore(kept)

    async def save(self) -> None:
        """Keep the thread in the store, if there is one."""
        if self._store is None or self.thread_id is None:
            return
        record = self.dump()
        await self._store.save(self.thread_id, record)
        self._saved = await self._store.load(self.thread_id)
        self.runner.context.events.emit(Saved())

    def settle(self, standing: str, error: BaseException | None = None) -> None:
        """Note how the thread stands after a call."""
        self.standing = standing
        self.error = None
        if error is not None:
            path = next((path for path, raised in self.runner.failures.errors if raised is error), None)
            self.error = {"type": type(error).__name__, "text": str(error), "path": path}

    def dump(self) -> JsonObject:
        """Return all that is needed to go on with the thread elsewhere, as JSON."""
        return self._record(self.runner.manager.dump_checkpoint(), self._inner_states()).dump()

    async def restore(self, data: JsonObject) -> None:
        """Take over what `dump` has written; see `restore_now`."""
        self._read(data)
        await self._leave()
        self.restore_now(data)

    def restore_now(self, data: JsonObject) -> None:
        """Take over what `dump` has written, where no coroutine is alive.

        Raises:
            CorruptRecordError, SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
            StateWriteError: a value does not fit today's schema; nothing was changed.
            AgentBusyError: a coroutine is alive.
        """
        record = self._read(data)
        go_back = self._bookmark()
        try:
            self._take_over(record)
        except Exception:
            go_back()
            raise
        self._saved = data

    def revive(self) -> None:
        """Put a parked tree back to its position and have the coroutines of RUNNING nodes enter again.

        Those that wait for an answer go on waiting.
        """
        if self.standing == "interrupted" and self.runner.root.status is not Status.RUNNING:
            self._reload(self._inner_states())
        if not self._is_loaded:
            return
        self._is_loaded = False
        pending = self.runner.context.interaction.pending
        for node in descend(self.runner.root):
            activity = node.context.activity if isinstance(node, AsyncNode) else None
            if activity is not None and node.status is Status.RUNNING:
                activity.resume([question.id for question in pending if question.path == activity.path])

    def _record(self, state: JsonObject | None, inner: dict[str, StateRecord]) -> RunRecord:
        """Return how the thread stands; in the midst of a call, as a kill at this moment would leave it."""
        runner, context = self.runner, self.runner.context
        is_on = runner.phase in (Phase.DRIVING, Phase.STEPPING, Phase.PARKING)
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

    def _read(self, data: JsonObject) -> RunRecord:
        """Return the record, if it fits the tree."""
        record = load(data, schema_version=self._version)
        if self.runner.tasks.is_busy:
            raise AgentBusyError("coroutines of this agent are alive: `await agent.reset()` first, or leave its block")
        if record.status in UNFINISHED:
            check_position(self.runner.root, self._renamed(record.position))
        return record

    def _bookmark(self) -> Callable[[], None]:
        """Return what puts everything back to how it is now."""
        runner = self.runner
        stands = {"status": "suspended", "position": dump_position(runner.root)}
        before = self._record(None, {}).model_copy(update=stands)
        held = (self.thread_id, self.standing, self.error, self._saved)
        parked, phase = runner.parked, runner.phase
        states = [manager.bookmark() for _, manager in ((None, runner.manager), *inner_managers(runner.root))]

        def go_back() -> None:
            self._take_over(before, is_own=True)
            for put_back in states:
                put_back()
            self.thread_id, self.standing, self.error, self._saved = held
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
        self.standing, self.error, self._saved, runner.parked = "new", None, None, None
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


def inner_managers(root: Behaviour) -> Iterator[tuple[str, StateManager[Any]]]:  # Any: any schema
    """Yield the states of agents inside of a tree, with their paths."""
    for node, path in paths(root):
        manager = getattr(node, "inner_state", None)
        if manager is not None:
            yield path, manager


def keeps_running(node: Any) -> bool:  # Any: any node
    """Whether a RUNNING node without a memento stays RUNNING when it is loaded: its work is entered again."""
    return isinstance(node, AsyncNode)
