"""An agent's runs: begun anew or gone on with, driven, concluded.

1. What a run opens it closes, also after errors; then the thread is saved, then the end is told.
2. A thread is given back only if nothing has come that its run has not read; else the run goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.engine.activity import RESULTS
from jianmu.engine.answers import JsonObject
from jianmu.engine.ends import End
from jianmu.engine.entries import Call, Entries, OnNewInput, Values, standing_of
from jianmu.engine.events import RunEnded, RunStarted
from jianmu.engine.holding import Holding
from jianmu.engine.node import AsyncNode
from jianmu.engine.outcome import Outcome, waiting_outcome
from jianmu.engine.phases import Phase
from jianmu.engine.thread import UNFINISHED
from jianmu.engine.tree import descend, path_of
from jianmu.errors import ThreadBusyError, UnfinishedRunError

S = TypeVar("S", bound=BaseModel)


class Runs(Entries[S]):
    """The runs of one agent."""

    async def fresh(self, input: Values | None, call: Call, *, until_suspend: bool) -> End:
        """Start a new run, or do with the input what the thread's policy says."""
        with self.claimed("run_until_suspend()" if until_suspend else "run()"):
            self._check_input(input)
            policy = call.on_new_input or self._defaults.on_new_input
            try:
                async with self._session.taken(call.thread_id):
                    return await self._fresh(input, call, policy, until_suspend)
            except ThreadBusyError as busy:
                if policy != "queue" or self._session.holding is None or busy.thread_id is None:
                    raise
                await self._session.holding.enqueue(busy.thread_id, input or {}, call.input_id)
                return End(Status.RUNNING, outcome=waiting_outcome(busy.thread_id))

    async def _fresh(self, input: Values | None, call: Call, policy: OnNewInput | None, until_suspend: bool) -> End:
        """Start a new run of the thread that was taken."""
        known = await self._known(call, until_suspend)
        if known is not None:
            return known
        gives_up, holding = self._session.standing in UNFINISHED, self._session.holding
        if self._session.is_unfinished:
            if policy == "queue" and holding is not None:
                return await self._queue(holding, input, call)
            self._refuse_unfinished(policy)
            if holding is not None:
                self._session.put_back()  # its nodes are halted as where it would have been loaded
            self._session.settle("new")
        elif holding is None and self._context.interaction.all_open():
            self._session.put_back()  # those that asked are halted where they wait
        elif holding is not None and holding.inputs.queued:  # what came before has its turn before
            await self._queue(holding, input, call)
            return await self.go_on(call, until_suspend=until_suspend)
        self._is_refused = True  # until it has begun
        try:
            await self._give_up("new input", input, is_cut_short=gives_up)
            return await self._drive(partial(self._begin_new, input, call), call, until_suspend)
        except BaseException:
            if self._is_refused and gives_up and holding is not None:
                holding.forget()  # nothing of it was kept: the thread stands as it did
            raise

    async def _give_up(self, reason: str, input: Values | None = None, *, is_cut_short: bool) -> None:
        """Halt what is left of a run, withdraw its questions, and keep with its inputs that nothing comes of them."""
        self._context.interaction.withdraw_open(path_of(self._runner.root), reason)
        await self._runner.abandon()
        for node in descend(self._runner.root) if is_cut_short else ():
            if isinstance(node, AsyncNode) and getattr(node, "bound_to", None) is self._context:  # not put in since
                node.on_given_up(input or {})
        if self._session.holding is not None:
            self._session.holding.inputs.end(lambda: self._told(End(Status.INVALID)))

    def _told(self, end: End) -> JsonObject:
        """Return the outcome of a run as it is kept with its inputs."""
        return self.outcome(end).as_json(self._runner.manager.output_json())

    async def _begin_new(self, input: Values | None, call: Call) -> None:
        """Number the run and apply its input: the first transaction, before the first pass."""
        self._begin_run(call)
        self._enter(self._runner.manager.reset_run_fields, input)
        self._is_refused = False
        holding = self._session.holding
        if holding is not None:
            holding.inputs.begin(call.input_id, self._context.run)
            holding.recording.thaw()  # where the run before was cut short, its position was kept until now
            await holding.flush("input", has_to_last=True)

    async def _known(self, call: Call, until_suspend: bool) -> End | None:
        """Return what became of an input that was delivered before: its outcome, or what comes of going on."""
        holding = self._session.holding
        if holding is None or call.input_id is None:
            return None
        row = await holding.input(call.input_id)
        if row is None:
            return None
        told = row.get("outcome")
        if told is None and row.get("run") == self._context.run and self._session.is_unfinished:
            return await self.go_on(call, until_suspend=until_suspend)
        if told is None and "run" not in row and not self._session.is_unfinished:  # it waits, and nobody drives
            return await self.go_on(call, until_suspend=until_suspend)
        if not isinstance(told, dict):
            return End(Status.RUNNING, is_suspended=self._session.standing == "suspended")
        await self._rest()
        outcome = Outcome.of_json(told)
        return End(outcome.status, outcome=outcome)

    async def _queue(self, holding: Holding, input: Values | None, call: Call) -> End:
        """Keep an input for when the open questions are answered; how the thread stands is the outcome."""
        await holding.enqueue(self._session.thread_id or "", input or {}, call.input_id)
        await holding.read_mail()
        return End(Status.RUNNING, is_suspended=self._session.standing == "suspended")

    async def go_on(self, call: Call, *, until_suspend: bool = True) -> End:
        """Go on with the run of the current thread, until it ends or, if wanted, suspends; the agent is claimed.

        Of a run that has ended it returns how it ended, and runs nothing, unless an input waits for its turn.
        """
        if self._session.standing in UNFINISHED:
            return await self._drive(partial(self._begin_again, call), call, until_suspend)
        if self._has_queued():
            return await self._drive(partial(self._begin_queued, call), call, until_suspend)
        await self._rest()
        return End(self._session.result)

    async def _rest(self) -> None:
        """Have a thread that has ended, and in which nothing waits, be due no longer."""
        holding, is_over = self._session.holding, self._session.standing not in UNFINISHED
        if holding is not None and holding.is_due and is_over and not self._has_queued():
            with anyio.CancelScope(shield=True):
                await self._session.close("end")

    async def _begin_again(self, call: Call) -> None:
        self._is_refused = False
        self._set(call)
        if self._context.events.is_heard:
            self._context.events.emit(RunStarted(resumed=True))
        self._session.revive()
        self._runner.is_over = self._runner.root.status in RESULTS

    async def _begin_queued(self, call: Call) -> None:
        """Start a new run with an input that waited for its turn."""
        assert self._session.holding is not None
        self._is_refused = False
        self._begin_run(call)
        self._runner.manager.reset_run_fields()
        self._session.holding.inputs.begin(None, self._context.run)
        self._session.holding.recording.thaw()
        self._session.holding.inputs.apply(self._runner.manager, self._context.run)

    async def _begin_after_mail(self) -> None:
        """Go on where a run stood when something came."""
        self._is_refused = False

    def _has_queued(self) -> bool:
        holding = self._session.holding
        return holding is not None and bool(holding.inputs.queued)

    async def _drive(self, begin: Callable[[], Awaitable[None]], call: Call, until_suspend: bool) -> End:
        """Drive the tree until nothing goes on: at the end of a run, look what has come meanwhile."""
        while True:
            end, is_over = await self._drive_once(begin, until_suspend)
            if is_over:
                return end
            is_new = not end.is_suspended and self._has_queued()
            begin = partial(self._begin_queued, call) if is_new else self._begin_after_mail

    async def _drive_once(self, begin: Callable[[], Awaitable[None]], until_suspend: bool) -> tuple[End, bool]:
        """Drive the tree with its nodes set up and open; keep and tell how it ended, and whether that is the end."""
        self._resources.setup()
        is_outside = self._stack is None
        if is_outside:
            await self._resources.open()
        end, is_over = End(Status.INVALID), True
        self._session.is_at_work = self._is_refused = True
        try:
            async with self._runner.host.at_hand(partial(self._attend, at_once=True)):
                self._attend()
                end = await self._runner.drive(begin, until_suspend=until_suspend)
                if self._session.holding is not None:
                    self._session.holding.attendance.end()
            if end.error is not None:
                raise end.error
        finally:
            with anyio.CancelScope(shield=True):
                is_over = await self._conclude(end, is_outside)
        unsaved = self._unsaved()
        if unsaved is not None:
            raise unsaved  # the run has ended, and nobody will know it
        return end, is_over

    def _unsaved(self) -> BaseException | None:
        """Return why what the run has done could not be saved."""
        return None if self._session.holding is None else self._session.holding.error

    async def _conclude(self, end: End, is_outside: bool) -> bool:
        """Close what was opened for this call, save the thread, tell the end; whether it is the end."""
        is_suspended = self._runner.phase is Phase.SUSPENDED
        standing, is_over = "suspended" if is_suspended else standing_of(end), True
        try:  # none keeps the others from their turn
            try:
                if is_outside:
                    await (self._resources.close() if is_suspended else self._resources.end())
            finally:
                is_over = await self._save_end(end, standing)
        finally:
            if is_over or end.status in RESULTS:
                self._tell_end(end)
        return is_over

    async def _save_end(self, end: End, standing: str) -> bool:
        """Save how a call has left the thread; False: something has come, and the run goes on."""
        if self._is_refused:
            self._session.is_at_work = False
            return True
        self._session.settle(standing, end.error or end.limit)
        holding = self._session.holding
        if holding is None:
            return True
        is_ended = end.status in RESULTS
        if is_ended:
            holding.inputs.end(lambda: self._told(end))
        if is_ended and holding.inputs.queued:
            await holding.flush("end", has_to_last=True)
            return False
        if end.is_suspended and self._context.interaction.has_said:
            return False
        is_done = await self._session.close("end", heeds_mail=is_ended or end.is_suspended)
        if is_done or end.is_suspended or holding.inputs.queued:
            return is_done
        return await self._session.close("end")

    def _tell_end(self, end: End) -> None:
        if self._context.events.is_heard:
            told = end if self._unsaved() is None else End(Status.INVALID)
            self._context.events.emit(RunEnded(outcome=self.outcome(told)))

    def _refuse_unfinished(self, policy: OnNewInput | None) -> None:
        """Refuse new input while the thread's run is unfinished, unless it is to be given up."""
        if policy == "withdraw":
            return
        thread = self._session.thread_id
        question = self._context.interaction.suspension
        give_up = 'or give it up with on_new_input="withdraw"'
        if question is None:
            raise UnfinishedRunError(
                f"thread '{thread}' has an unfinished run: go on with agent.recover('{thread}'), {give_up}"
            )
        raise UnfinishedRunError(
            f"thread '{thread}' waits for an answer to question {question.id} of '{question.path}' "
            f"({question.message}): answer it with agent.resume(...), {give_up}",
            path=question.path,
        )
