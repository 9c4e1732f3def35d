"""What all stores do for those who look after threads; no tree is needed for it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from jianmu.engine.checkpoint import Checkpointer, QuestionRow, Sought, check_thread_id
from jianmu.engine.decisions import step
from jianmu.engine.journal import Entry
from jianmu.engine.log import log
from jianmu.engine.outside import held, settle
from jianmu.engine.questions import Suspension
from jianmu.errors import CorruptRecordError, UnknownSuspensionError
from jianmu.stores import effects, fork, history, threads
from jianmu.stores.history import ThreadView, Written
from jianmu.stores.inbox import Inbox
from jianmu.stores.threads import ThreadInfo, present


class Store(Checkpointer):
    """The operations on threads that need no tree, over the rows that a subclass keeps; see `Checkpointer` for these.

    `now` is an instant with its time zone; None is the present.
    """

    @property
    def inbox(self) -> Inbox:
        """The questions of all threads, for people."""
        return Inbox(self)

    async def list(
        self, status: str | None = None, *, after: str | None = None, limit: int = 100
    ) -> tuple[ThreadInfo, ...]:
        """Return how threads stand, in the order of their ids.

        Args:
            status: which ones; `crashed` are those that were running when their holder's lease ran out.
            after: the id of the last one of the page before.
            limit: how many at most.

        Raises:
            StoreError: there is no such status.
        """
        return await threads.list_threads(self, status, after, limit)

    async def show(self, thread_id: str, at: int | None = None) -> ThreadView:
        """Return how a thread stands, with its state, position, questions and effects, or stood at an earlier number.

        Raises:
            UnknownThreadError: there is no such thread.
            StoreError: the log does not have that number.
        """
        return await history.show(self, thread_id, at)

    async def history(self, thread_id: str, after: int = 0, limit: int = 100) -> tuple[Written, ...]:
        """Return what a thread's transactions after a number did, the oldest first.

        Raises:
            UnknownThreadError: there is no such thread.
        """
        return await history.history(self, thread_id, after, limit)

    async def fork(
        self, thread_id: str, new_id: str | None = None, *, at: int | None = None, now: datetime | None = None
    ) -> str:
        """Make a new thread that goes on from a number of another one, and return its id.

        It needs nothing of its source. It has its state as it stood then, its questions that were not answered, with
        ids of their own, and what was done through `once` by then, which is not done again. No files are copied.

        Args:
            thread_id: the source, which may be running.
            new_id: the new thread's id; by default a new one.
            at: the number; None: the last one.
            now: the present.

        Raises:
            UnknownThreadError: there is no such thread.
            StoreError: the log does not have that number, or there is a thread with the new id.
        """
        new_id = uuid.uuid4().hex if new_id is None else new_id
        await fork.fork(self, thread_id, new_id, at, present(now))
        return new_id

    async def prune(self, thread_id: str, at: int | None = None) -> int:
        """Remove what only numbers before `at` needed, and return that number; None is the last one.

        The thread goes on as before, also while it runs; what still waits for an answer or a delivery stays.

        Raises:
            UnknownThreadError: there is no such thread.
            StoreError: the log does not have that number.
        """
        return await fork.prune(self, thread_id, at)

    async def sweep(self, now: datetime | None = None) -> tuple[Suspension, ...]:
        """Carry out what is due at the deadlines of open questions; return those that were escalated or have ended."""
        now = present(now)
        moved: list[Suspension] = []
        sought = Sought(due=now.timestamp())
        while rows := await self.questions(sought):
            for row in rows:
                moved += await _stepped(self, row, now)
            sought = replace(sought, after=(rows[-1].asked_at, rows[-1].id))
        return tuple(moved)

    async def settle(
        self,
        thread_id: str,
        effect: str,
        *,
        happened: bool,
        result: JsonValue = None,
        path: str | None = None,
        now: datetime | None = None,
    ) -> Entry:
        """Write down what became of an effect that was begun and whose outcome is not known; its thread is due then.

        Args:
            thread_id: the thread.
            effect: the effect's id, or the key of `once`.
            happened: whether it happened; else it is called again, under the same idempotency key.
            result: what it returned, JSON.
            path: the node's path, where several have used that key.
            now: the present.

        Raises:
            ThreadBusyError: somebody runs the thread.
            UnknownThreadError: there is no such thread.
            StoreError: no effect, or more than one, is meant; or the result is refused.
        """
        now = present(now)
        return await effects.settle(self, thread_id, effect, path=path, happened=happened, result=result, now=now)

    async def wake(self, thread_id: str, *, now: datetime | None = None) -> bool:
        """Have an unfinished thread be due, so that whoever drives goes on with it: one that was interrupted, say.

        Returns:
            Whether it is due now: not if its run has ended.

        Raises:
            ThreadBusyError: somebody runs the thread.
            UnknownThreadError: there is no such thread.
        """
        async with held(self, check_thread_id(thread_id)) as lease:
            stands = await self.thread(thread_id)
            if stands is None or stands.status in ("finished", "failed"):
                return False
            await self.commit(effects.outside_step(lease, stands, "wake", present(now)))
        return True


async def _stepped(store: Checkpointer, row: QuestionRow, now: datetime) -> list[Suspension]:
    """Carry out what is due of one question; one that cannot be read keeps the others from nothing."""
    try:
        changes = await settle(store, [(row.id, step(now))], now=now, wake_at=now.timestamp())
    except UnknownSuspensionError:  # its thread was deleted meanwhile
        return []
    except CorruptRecordError as error:
        log.warning("a question whose deadline has passed cannot be read", thread=row.thread_id, error=str(error))
        return []
    return [change.record.question for change in changes]
