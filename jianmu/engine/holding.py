"""An agent's hold on a thread of a store: its lease, the commits of its log, and what comes from outside.

1. Only the holder of the lease writes the log. One commit is under way at a time and carries all that is pending.
2. After a commit that failed, or a lease that was lost, nothing more is written and no pass follows.
3. Before a node sees the end of a question, the store has it; where the store has another end, that one counts.
4. A commit is not cut off: what was sent is waited for, also in a cancelled task.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Literal, ParamSpec, TypeVar

import anyio
from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine import outside
from jianmu.engine.answers import JsonObject
from jianmu.engine.attendance import Attendance, Turn
from jianmu.engine.checkpoint import Checkpointer, Known, Lease, Row, Sought, Stored, Taken, Transaction
from jianmu.engine.context import RunContext
from jianmu.engine.decisions import Change, Decision, Deed, step
from jianmu.engine.events import Saved
from jianmu.engine.holders import this_process
from jianmu.engine.inputs import Inputs, queued_row
from jianmu.engine.lease import SECONDS, Keeper
from jianmu.engine.point import Point
from jianmu.engine.questionrows import record_of, text_of
from jianmu.engine.questions import Answer
from jianmu.engine.record import Record
from jianmu.engine.recording import NOTHING, Cut, Recording, Standing
from jianmu.errors import LeaseLostError, StoreError

T = TypeVar("T")
P = ParamSpec("P")
Level = Literal["sync", "async", "exit"]

MOST = 1_000_000
"""Bytes that may be pending before the next pass waits."""


class Holding:
    """Holds one thread at a time.

    Args:
        store: keeps the threads.
        recording: what the run has done.
        context: the run's.
        level: when passes are saved.
        poll: seconds between two looks for answers from other processes.
        max_block: seconds that the loop may stand still before the lease is let go.
        standing: tells how the thread stands.
        wake_at: tells when somebody has to drive the thread, in seconds since 1970.
        failed: told what went wrong; it ends the run.
    """

    def __init__(
        self,
        store: Checkpointer,
        recording: Recording,
        context: RunContext,
        *,
        level: Level,
        poll: float,
        max_block: float,
        standing: Callable[[], Standing],
        wake_at: Callable[[], float | None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.store = store
        self.level: Level = level
        self.recording = recording
        self.error: BaseException | None = None
        self.inputs = Inputs(self.put)
        self.has_input = False  # whether a step was given an input that is not kept yet
        self.was_kept = False  # whether the store has had what memory has
        self.is_due = False  # whether somebody was to drive it when it was taken
        self._context = context
        self._max_block = max_block
        self._standing = standing
        self._wake_at = wake_at
        self._failed = failed
        self._token = uuid.uuid4().hex[:12]
        self._lease: Lease | None = None
        self._keeper: Keeper | None = None
        self._thread_id: str | None = None
        self._number = -1
        self._made_at: float | None = None
        self._seen = 0
        self._asked = self._done = 0
        self._has_to_last = False
        self._rows: list[tuple[Row, bool]] = []
        self._turn = Turn()
        pause, save = max(0.01, min(poll, max_block / 4)), self.flush if level == "async" else None
        self.attendance = Attendance(save, self._look_for_mail, pause)

    @property
    def is_current(self) -> bool:
        """Whether memory stands where the log of the held thread does."""
        return self._number >= 0

    def goes_on_with(self, thread_id: str) -> bool:
        """Whether this thread is held, and memory stands where its log does."""
        return self.is_current and self._lease is not None and self._lease.thread_id == thread_id

    # Taking and giving back

    async def take(self, thread_id: str, *, create: bool, answer: Answer | None = None) -> Taken:
        """Take a thread's lease, and have an answer carried out with it if nothing is new.

        Raises:
            ThreadBusyError: somebody else holds it.
            UnknownThreadError: there is none, and `create` is False.
        """
        interaction, now, name = self._context.interaction, self._context.clock.utc(), this_process(self._token)
        is_known = self.is_current and thread_id == self._thread_id
        known = Known(self._number, self._seen, self._made_at) if is_known else None
        first = interaction.foresee(answer, now) if known and answer is not None else outside.Foreseen()
        due, moves = now.timestamp(), first.moves
        taken = await self._call(
            self.store.take, thread_id, name, SECONDS, create=create, known=known, moves=moves, wake_at=due
        )
        self._lease, self.error = taken.lease, None
        interaction.hear()
        self._turn = Turn()
        self._keeper = Keeper(self.store, taken.lease, self._max_block, self._lose)
        if not taken.is_known:
            self._number = -1
            return taken
        self.is_due = taken.lease.mail != self._seen
        if self.is_due:
            await self.read_mail()
        elif taken.has_moved:
            self._seen += 1
            interaction.take_over(change.record for change in first.changes)
        return taken

    def took_over(self, thread_id: str, stored: Stored | None, point: Point | None = None) -> None:
        """Note that memory stands where the store does, and its log has come to."""
        self.recording.begin(stored, point)
        self._rows.clear()
        self._thread_id = thread_id
        self._number, self._seen = (0, 0) if stored is None else (stored.thread.number, stored.thread.mail)
        self._made_at = stored.thread.created_at if stored is not None else self._lease and self._lease.made_at
        self.was_kept = stored is not None
        self.is_due = stored is not None and stored.thread.wake_at is not None
        rows, asked = ((), ()) if stored is None else (stored.rows, stored.questions)
        self.inputs.take_over(rows)
        self.inputs.may_apply = bool(asked) and all(row.consumed is not None for row in asked)

    def forget(self) -> None:
        """Note that memory stands nowhere: the next time the thread is read again."""
        self._number, self.was_kept = -1, False

    async def leave(self) -> None:
        """Give the lease back, if it is held; what was said too late for the run is kept for the next one."""
        lease, interaction = self._lease, self._context.interaction
        self._end_work()
        with anyio.CancelScope(shield=True) if lease or interaction.has_said else nullcontext():
            if lease is not None:
                await self._call(self.store.release, lease)
            await interaction.stop_hearing()

    async def _call(self, call: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        """Have the store do something to its end, whatever becomes of this task; a clock turned by hand waits."""
        found: list[T] = []
        with anyio.CancelScope(shield=True), self._context.clock.working():
            found.append(await call(*args, **options))
        return found[0]

    def _lose(self) -> None:
        """Note that the lease is another holder's; called in any thread."""
        text = f"the lease on thread '{self._context.thread_id}' was lost: another holder goes on with it"
        self._fail(LeaseLostError(text, thread_id=self._context.thread_id))

    def _fail(self, error: BaseException) -> None:
        self.error, self._number = error, -1
        self._failed(error)

    # Saving

    async def flush(self, what: str = "pass", *, has_to_last: bool = False) -> None:
        """Have all that was done so far saved; one commit serves all that wait for it.

        Raises:
            StoreError: it could not be saved; the run ends.
        """
        self._asked = wanted = self._asked + 1
        self._has_to_last |= has_to_last
        async with self._turn:
            if self.error is not None:
                raise self.error
            if self._done < wanted:
                await self._commit(what)

    async def close(self, what: str, *, heeds_mail: bool) -> bool:
        """Save the end of a run and give the lease back, in one transaction; the caller's shield is round it.

        Returns:
            Whether it was done; False if there is mail that counts and that the run has not read.
        """
        async with self._turn:
            if self.error is not None or self._lease is None:
                return True
            self._has_to_last = True
            with self._context.clock.working():
                is_done = await self._commit(what, releases=True, heeds_mail=heeds_mail)
        if is_done:
            self.is_due = False
            self._end_work()
        return is_done

    def put(self, row: Row, *, is_done: bool = False) -> None:
        """Have a row written with the next commit; its numbers are those of the commit."""
        self._rows.append((row, is_done))

    async def _commit(self, what: str, *, releases: bool = False, heeds_mail: bool = False) -> bool:
        """Cut and commit; nothing is written where nothing has changed and the lease is kept."""
        lease = self._lease
        if lease is None:
            raise StoreError("the thread is held by nobody here: nothing can be saved", thread_id=self._thread_id)
        covered, number, standing = self._asked, self._number + 1, self._standing()
        lasts, self._has_to_last = self._has_to_last, False
        rows = [replace(row, came=number, went=number if is_done else None) for row, is_done in self._rows]
        send = self.store.commit if releases else partial(self._call, self.store.commit)
        try:
            cut = self.recording.cut(number, standing, what)
            if cut is None and not (releases or rows):
                self._done = covered
                return True
            ending = self._transaction(cut or NOTHING, lease, rows, standing, has_to_last=lasts, releases=releases)
            is_done = await send(ending)
            if not is_done and heeds_mail:  # what the cut has taken is saved all the same
                await send(replace(ending, releases=False))
            elif not is_done:  # whoever drives the thread next reads it
                ending = replace(ending, seen=None, wake_at=self._context.clock.utc().timestamp())
                is_done = await send(ending)
            self._number, self._done, self.was_kept = number, covered, True
            del self._rows[: len(rows)]
            if cut is not None:
                await self._tell(cut)
        except BaseException as error:
            self._fail(error)
            raise
        return is_done

    def _transaction(self, cut: Cut, lease: Lease, rows: list[Row], standing: Standing, **how: bool) -> Transaction:
        context = self._context
        waiting = sorted({record.question.path for record in context.interaction.all_open()})
        told = {"run": context.run, "error": standing.error, "waiting": waiting, "passes": context.passes}
        record = text_of({**told, "usage": context.usage.told()})
        stands = {"status": standing.status, "record": record, "wake_at": self._wake_at(), "seen": self._seen}
        return cut.step(lease, self._number, rows, **stands, **how)

    async def _tell(self, cut: Cut) -> None:
        """Show the questions that were saved, look what came of those that the tree gave up, and tell the save."""
        interaction = self._context.interaction
        if cut.given_up:
            await self._look_at(cut.given_up)
        interaction.show(cut.asked)
        if self._context.events.is_heard:
            self._context.events.emit(Saved())

    # What comes from outside

    async def settle(self, decided: Sequence[tuple[str, Decision]], now: datetime) -> list[Record]:
        """Carry out decisions about questions in the store, all or none, and take over what came of them.

        Raises:
            InteractionError: one was refused; nothing was changed.
        """
        ids = [id for id, _ in decided]
        is_open = {record.id: record for record in self._context.interaction.all_open()}
        expected = [is_open[id] for id in ids] if is_open.keys() >= set(ids) else []
        try:
            changes = await self._settle(decided, now, expected)
        except BaseException:
            await self._look_at(ids)
            raise
        found = {change.record.id: change.record for change in changes}
        self._context.interaction.take_over(found.values())
        found |= await self._look_at([id for id in ids if id not in found])
        return [found[id] for id in ids]

    async def _settle(
        self, decided: Sequence[tuple[str, Decision]], now: datetime, expected: Sequence[Record] = ()
    ) -> list[Change]:
        """Carry out decisions in the store; the mail that this makes needs no reading."""
        wake_at, seen = now.timestamp(), self._seen
        thread = self._context.thread_id
        changes = await self._call(
            outside.settle, self.store, decided, now=now, wake_at=wake_at, thread_id=thread, expected=expected
        )
        is_ours = any(change.record.origin.thread_id == self._thread_id for change in changes)
        if is_ours and self._seen == seen:  # else it may have been read meanwhile, and would be counted twice
            self._seen += 1
        return changes

    # Inputs

    async def input(self, id: str) -> JsonObject | None:
        """Return what is kept of an input that was delivered under this id before."""
        row = await self._call(self.store.row, self._context.thread_id, "input", id)
        return None if row is None else json.loads(row.body)

    async def enqueue(self, thread_id: str, values: Mapping[str, object], id: str | None) -> None:
        """Have an input wait for its turn; one that was delivered before is not added again."""
        at = self._context.clock.utc().timestamp()
        await self._call(self.store.enqueue, thread_id, queued_row(values, id), wake_at=at)

    def note(self, deed: Deed, record: Record) -> None:
        """Have what the run did with a question saved with the next commit."""
        self.inputs.may_apply = deed != "asked"
        self.recording.note(deed, record)

    async def before_pass(self) -> None:
        """Save what nodes are about to see, and wait while too much is pending.

        Raises:
            StoreError: something was not saved, and no pass may follow.
        """
        if self.error is not None:
            raise self.error
        if self.has_input:
            self.has_input = False
            await self.flush("input", has_to_last=True)
        interaction, now = self._context.interaction, self._context.clock.utc()
        due = [] if interaction.is_quiet else interaction.due_ids(now)
        if interaction.has_unshown and (due or interaction.has_said):
            await self.flush()  # the store has to have a question before anything can become of it
        await interaction.keep_said()
        if due:
            await self.settle([(id, step(now)) for id in due], now)
        if self.inputs.queued and self.inputs.may_apply and interaction.is_quiet:
            self.inputs.apply(self.recording.manager, self._context.run)
        if self.recording.size > MOST:
            await self.flush()

    async def _look_at(self, ids: Sequence[str]) -> dict[str, Record]:
        """Take over how some questions stand in the store, and return them."""
        sought = Sought(ids=tuple(ids), status=None, limit=len(ids))
        rows = await self._call(self.store.questions, sought) if ids else []
        found = {row.id: record_of(row) for row in rows}
        self._context.interaction.take_over(found.values())
        return found

    async def read_mail(self) -> None:
        """Take over what has come from outside: ends of open questions, and inputs."""
        thread = self._context.thread_id
        seen = await self._call(self.store.mail, thread)
        await self._look_at([question.id for question in self._context.interaction.all_open()])
        self.inputs.take_over(await self._call(self.store.rows, thread, "input"))
        self._seen = seen

    async def _look_for_mail(self) -> None:
        """Have the lease's keeper know that the loop turns; take over what has come, if the run waits for anything."""
        if self._keeper is not None:
            self._keeper.beat()
        try:
            if self._context.interaction.all_open() and await self.store.mail(self._context.thread_id) != self._seen:
                await self.read_mail()
                self._context.signal()
        except Exception as error:  # noqa: BLE001  # it ends the run, not the group of its coroutines
            self._fail(error)

    async def after_pass(self) -> bool:
        """Save the pass, or have it saved: by `level`; look for mail from now on. Whether the store was waited for."""
        number = self._number
        self.attendance.begin()
        if self.level == "sync" or (self.level == "exit" and self._context.interaction.has_unshown):
            await self.flush()
        else:
            self.attendance.stir()
        return self._number != number

    def wake(self) -> None:
        """Have a live run keep what was said."""
        self._context.signal()

    def freeze(self) -> None:
        """Keep the position as it is now: the tree is about to be halted."""
        self.recording.freeze()

    def keep_late(self, node: Behaviour, status: Status) -> None:
        """Have a result stand in the position that was kept."""
        self.recording.keep_late(node, status)

    def _end_work(self) -> None:
        """Give the lease up, in memory."""
        if self._keeper is not None:
            self._keeper.stop()
        self.attendance.end()
        self._lease = self._keeper = None
