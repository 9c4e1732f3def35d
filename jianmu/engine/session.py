"""The thread that an agent works on: taken, restored from its record, saved."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from py_trees.common import Status
from pydantic import BaseModel, TypeAdapter

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer, RunRecord, check_thread_id, load
from jianmu.engine.events import Saved
from jianmu.engine.limits import Usage
from jianmu.engine.mementos import check_position, dump_position, load_position
from jianmu.engine.node import AsyncNode
from jianmu.engine.phases import Phase
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.tree import descend, fingerprint
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
            if self.thread_id is not None:
                await self.runner.abandon(withdraw=False)
            self._start_over(wanted)

    def take_now(self) -> None:
        """Make a new thread the current one where there is none."""
        if self.thread_id is None:
            self._start_over(uuid.uuid4().hex)

    async def load(self, thread_id: str) -> None:
        """Make a kept thread the current one.

        Raises:
            UnknownThreadError: the store does not have it.
        """
        kept = await self._store.load(check_thread_id(thread_id)) if self._store is not None else None
        if kept is None and thread_id != self.thread_id:
            raise UnknownThreadError(f"there is no thread '{thread_id}' in the store", thread_id=thread_id)
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
        runner, context = self.runner, self.runner.context
        is_cut = self.standing == "interrupted" and runner.parked is not None
        return RunRecord(
            schema_version=self._version,
            fingerprint=fingerprint(runner.root),
            thread_id=self.thread_id or "",
            run=context.run,
            status=self.standing,
            error=self.error,
            state=runner.manager.dump_checkpoint(),
            inner={path: manager.dump_checkpoint() for path, manager in runner.binder.inner.items()},
            position=runner.parked if is_cut else dump_position(runner.root),
            questions=context.interaction.dump(),
            journal=context.journal.dump(),
            usage=asdict(context.usage),
        ).dump()

    async def restore(self, data: JsonObject) -> None:
        """Take over what `dump` has written, after what is left of the thread before has been halted."""
        self._read(data)
        await self.runner.abandon(withdraw=False)
        self.restore_now(data)

    def restore_now(self, data: JsonObject) -> None:
        """Take over what `dump` has written, where no coroutine is alive.

        Raises:
            CorruptRecordError, SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
            AgentBusyError: a coroutine is alive.
        """
        record = self._read(data)
        self._start_over(record.thread_id)
        context, binder = self.runner.context, self.runner.binder
        self.runner.manager.load_checkpoint(record.state)
        for path, state in record.inner.items():
            binder.inner[self._rename(path)].load_checkpoint(state)
        context.run = context.events.run = record.run
        context.usage = TypeAdapter(Usage).validate_python(record.usage)
        context.interaction.load(record.questions, self._rename)
        context.journal.load(record.journal, self._rename)
        self.standing, self.error, self._saved = record.status, record.error, data
        if record.status in UNFINISHED:
            self.runner.parked = self._renamed(record.position)
            self._reload()
        if record.status == "suspended":
            self.runner.phase = Phase.SUSPENDED

    def revive(self) -> None:
        """Put a parked tree back to its position and have the coroutines of RUNNING nodes enter again.

        Those that wait for an answer go on waiting.
        """
        if self.standing == "interrupted" and self.runner.root.status is not Status.RUNNING:
            self._reload()
        if not self._is_loaded:
            return
        self._is_loaded = False
        pending = self.runner.context.interaction.pending
        for node in descend(self.runner.root):
            activity = node.context.activity if isinstance(node, AsyncNode) else None
            if activity is not None and node.status is Status.RUNNING:
                activity.resume([question.id for question in pending if question.path == activity.path])

    def _read(self, data: JsonObject) -> RunRecord:
        """Return the record, if it fits the tree."""
        record = load(data, schema_version=self._version)
        if self.runner.tasks.is_busy:
            raise AgentBusyError("coroutines of this agent are alive: `await agent.reset()` first, or leave its block")
        if record.status in UNFINISHED:
            check_position(self.runner.root, self._renamed(record.position))
        return record

    def _reload(self) -> None:
        """Put the tree to the position that was parked."""
        runner = self.runner
        load_position(runner.root, runner.parked, keeps=keeps_running, adopt=runner.context.ticker.meet)
        self._is_loaded = True

    def _start_over(self, thread_id: str) -> None:
        """Make an empty thread the current one."""
        runner, context = self.runner, self.runner.context
        if self.thread_id is not None:
            runner.manager.initialize()
            for manager in runner.binder.inner.values():
                manager.initialize()
        context.interaction.load({"records": []})
        context.journal.clear()
        context.usage = Usage()
        context.run = context.events.run = 0
        context.events.thread_id = context.thread_id = self.thread_id = thread_id
        self.standing, self.error, self._saved, runner.parked = "new", None, None, None
        self._is_loaded = False

    def _rename(self, path: str) -> str:
        return self._aliases.get(path, path)

    def _renamed(self, position: Any) -> Any:  # Any: JSON
        """Return a position with today's names for its paths."""
        if isinstance(position, dict) and "paths" in position:
            return {**position, "paths": [self._rename(path) for path in position["paths"]]}
        return position


def keeps_running(node: Any) -> bool:  # Any: any node
    """Whether a RUNNING node without a memento stays RUNNING when it is loaded: its work is entered again."""
    return isinstance(node, AsyncNode)
