"""The thread that an agent works on: taken, restored, saved; in memory, or held in a store."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled
from py_trees.behaviour import Behaviour
from pydantic import BaseModel

from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Checkpointer, Stored, Taken, check_thread_id
from jianmu.engine.holding import Holding, Level
from jianmu.engine.phases import REST
from jianmu.engine.point import run_record, stored_point
from jianmu.engine.programs import Program, check_keepable, uses_blackboard
from jianmu.engine.questions import Answer
from jianmu.engine.recording import Recording, Standing
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.runrecord import load
from jianmu.engine.thread import UNFINISHED, Build, Thread
from jianmu.engine.tree import path_of
from jianmu.errors import SetupError, StoreError, ThreadBusyError, UnknownThreadError

S = TypeVar("S", bound=BaseModel)


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
        build: makes the tree for a state, where the tree is edited at run time.
    """

    store: Checkpointer | None = None
    version: int | None = None
    aliases: Mapping[str, str] | None = None
    level: Level = "async"
    poll: float = 0.5
    max_block: float = 60.0
    build: Build | None = None


class Session(Thread[S]):
    """One agent's hold on its threads, one at a time.

    Args:
        runner: the tree and the state.
        keeping: how threads are kept.
    """

    def __init__(self, runner: ReactiveRunner[S], keeping: Keeping) -> None:
        super().__init__(runner, keeping.version, keeping.aliases, keeping.build)
        self.holding: Holding | None = None
        self.keeps_lease = False
        self._is_imported = False  # whether memory has a thread that was never in the store
        self._keeping = keeping
        self._program = Program(runner.root)
        if keeping.store is not None:
            self.attach(keeping.store)

    def refuse_inside(self, name: str) -> None:
        """Refuse a place inside of another agent, under this name, for a tree with a store of its own."""
        if self.holding is not None:
            raise _inside(name)

    def attach(self, store: Checkpointer) -> None:
        """Keep threads in a store from now on.

        Raises:
            SetupError: a branch of the tree does not say what it keeps, or the tree is inside of another agent's.
            SchemaError: a field of the state has no JSON form.
        """
        runner = self.runner
        if runner.root.parent is not None:
            raise _inside(path_of(runner.root))
        check_keepable(runner.root)
        if uses_blackboard(runner.root):
            runner.context.log_at(None).warning("the blackboard of py_trees is kept in no store")
        self.holding = runner.log = runner.context.interaction.desk = self._hold(store, self._keeping)
        runner.context.sync = self._sync

    def _hold(self, store: Checkpointer, keeping: Keeping) -> Holding:
        runner = self.runner
        return Holding(
            store,
            Recording(runner, self._version, self._check_edits),
            runner.context,
            level=keeping.level,
            poll=keeping.poll,
            max_block=keeping.max_block,
            standing=self._standing,
            wake_at=self._wake_at,
            failed=runner.fail,
        )

    def _check_edits(self) -> None:
        """Refuse to save a tree that was edited, if nobody can build it again."""
        edited = self._program.edited() if self._build is None else []
        if edited:
            text = f"the tree was edited at '{edited[0]}', and could not be loaded again: give Agent(build=...)"
            raise SetupError(text, path=edited[0])

    def _rebuild(self, root: Behaviour) -> None:
        super()._rebuild(root)
        self._program = Program(root)
        if self.holding is not None:
            self.holding.recording.rebuild(root)

    def on_revived(self) -> None:
        """Watch the tree again."""
        if self.holding is not None:
            self.holding.recording.thaw()

    async def _sync(self) -> None:
        """Return when what an effect has recorded is durable."""
        assert self.holding is not None
        await cancel_shielded_checkpoint()  # effects that begin in the same turn of the loop are in one commit
        await self.holding.flush("once", has_to_last=True)
        await checkpoint_if_cancelled()  # a node that was halted meanwhile goes no further

    @property
    def is_unfinished(self) -> bool:
        """Whether the thread's run can go on: it waits for answers, or was cut short with a store."""
        return self.standing == "suspended" or (self.standing == "interrupted" and self.holding is not None)

    # Taking a thread

    @asynccontextmanager
    async def taken(
        self,
        thread_id: str | None,
        *,
        create: bool = True,
        as_it_is: bool = False,
        waits: bool = False,
        answer: Answer | None = None,
    ) -> AsyncGenerator[bool]:
        """Have a thread be the current one, and hold it while a call is on; whether it has taken the answer.

        Args:
            thread_id: the thread; None: the current one, or a new one.
            create: whether a thread that is not there is begun.
            as_it_is: whether memory counts, and a thread that somebody went on with is refused.
            waits: whether another holder is waited for.
            answer: what is to be answered as soon as the thread is held, if that is one transaction.

        Raises:
            ThreadBusyError: somebody else holds it.
            UnknownThreadError: there is none, and `create` is False.
        """
        if thread_id is None and self.thread_id is None and (as_it_is or not create):
            yield False
            return
        wanted = self._wanted(thread_id)
        if self.holding is None:
            await self._take_in_memory(wanted, create=create)
            yield False
            return
        taken = None
        try:
            create |= self._is_imported and wanted == self.thread_id
            if not self.holding.goes_on_with(wanted):
                await self.holding.leave()
                taken = await self._acquire(self.holding, wanted, create=create, waits=waits, answer=answer)
            await self._take_stored(self.holding, wanted, taken and taken.stored, as_it_is=as_it_is)
            yield taken is not None and taken.has_moved
        finally:
            if not self.keeps_lease:
                await self.holding.leave()

    async def _acquire(
        self, holding: Holding, wanted: str, *, create: bool, waits: bool, answer: Answer | None
    ) -> Taken:
        while True:
            try:
                return await holding.take(wanted, create=create, answer=answer)
            except ThreadBusyError:
                if not waits:
                    raise
            await anyio.sleep(self._keeping.poll)

    def take_now(self) -> None:
        """Make a new thread the current one where there is none."""
        if self.thread_id is None:
            self.start_over(uuid.uuid4().hex)

    def _wanted(self, thread_id: str | None) -> str:
        return check_thread_id(thread_id) if thread_id is not None else (self.thread_id or uuid.uuid4().hex)

    async def _take_in_memory(self, wanted: str, *, create: bool) -> None:
        if wanted == self.thread_id:
            return
        if not create:
            raise UnknownThreadError(f"there is no thread '{wanted}': this agent has no store", thread_id=wanted)
        await self.leave()
        self.start_over(wanted)

    async def _take_stored(self, holding: Holding, wanted: str, stored: Stored | None, *, as_it_is: bool) -> None:
        """Have memory stand where the store does."""
        if holding.is_current:
            return
        if as_it_is and stored is not None:
            text = f"somebody went on with thread '{wanted}' meanwhile: load it again, then edit and save it"
            raise StoreError(text, thread_id=wanted)
        if stored is not None:
            await self._take_over_stored(holding, stored)
            return
        if as_it_is and holding.was_kept:
            text = f"thread '{wanted}' was deleted meanwhile: run(input, thread_id=…) makes another one"
            raise UnknownThreadError(text, thread_id=wanted)
        if wanted != self.thread_id or not (as_it_is or self._is_imported):
            await self.leave()
            self.start_over(wanted)
        holding.took_over(wanted, None)
        if self._is_imported:  # its questions have to be in the store before they are answered
            self._is_imported = False
            await holding.flush("import", has_to_last=True)

    async def _take_over_stored(self, holding: Holding, stored: Stored) -> None:
        self._is_imported = False
        point = stored_point(stored)
        has_changed = await self.restore(run_record(stored, point, schema_version=self._version))
        holding.took_over(stored.thread.thread_id, stored, point)
        if has_changed:
            holding.recording.restart()

    async def load(self, thread_id: str) -> None:
        """Make a kept thread the current one, without holding it.

        Raises:
            UnknownThreadError: the store does not have it.
        """
        wanted, stored = check_thread_id(thread_id), None
        if self.holding is not None:
            self._refuse_busy()
            await self.holding.leave()
            stored = await self.holding.store.read(wanted)
        if self.holding is not None and stored is not None:
            await self._take_over_stored(self.holding, stored)
        elif wanted != self.thread_id or (self.holding is not None and not self._is_imported):
            raise UnknownThreadError(f"there is no thread '{wanted}' in the store", thread_id=wanted)

    async def save(self) -> None:
        """Keep the current thread in the store, if there is one."""
        if self.holding is None or self.thread_id is None:
            return
        async with self.taken(None, as_it_is=True):
            with anyio.CancelScope(shield=True):
                await self.close("save")

    async def close(self, what: str, *, heeds_mail: bool = False) -> bool:
        """Save how the thread stands, and give it back; the caller's shield is round it.

        Returns:
            Whether it was done; False: something has come that the run has not read yet.
        """
        if self.holding is None:
            return True
        if self.keeps_lease:
            await self.holding.flush(what, has_to_last=True)
            return True
        if await self.holding.close(what, heeds_mail=True):
            return True
        await self.holding.read_mail()
        return not heeds_mail and await self.holding.close(what, heeds_mail=False)

    @asynccontextmanager
    async def given_back(self) -> AsyncGenerator[None]:
        """Save and give back a thread that was kept over several calls, whatever happens before that."""
        self.keeps_lease = False
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as stack:
                if self.holding is not None:
                    stack.push_async_callback(self.holding.leave)
                    stack.push_async_callback(self.close, "end")
                yield

    # How it stands

    def _standing(self) -> Standing:
        is_on = self.is_at_work or self.runner.phase not in REST
        return Standing("running") if is_on else Standing(self.standing, self.error)

    def _wake_at(self) -> float | None:
        """Return when somebody has to drive the thread, if nobody holds it."""
        context, is_suspended = self.runner.context, self.standing == "suspended"
        has_input = self.holding is not None and self.holding.inputs.queued and not is_suspended
        if has_input or (self.standing in UNFINISHED and self.error is None and context.interaction.has_news):
            return context.clock.utc().timestamp()
        deadline = context.interaction.next_deadline() if is_suspended else None
        return None if deadline is None else deadline.timestamp()

    # The whole run as JSON

    def restore_now(self, data: JsonObject) -> None:
        """Take over what `dump` has written, where no coroutine is alive.

        Raises:
            CorruptRecordError, SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
            StateWriteError: a value does not fit today's schema; nothing was changed.
            AgentBusyError: a coroutine is alive.
        """
        self.put(self.fit(load(data, schema_version=self._version)))
        self._is_imported = True
        if self.holding is not None:
            self.holding.forget()


def _inside(name: str) -> SetupError:
    return SetupError(f"'{name}': an agent inside of another is kept in that one's store: give it no store")
