"""Questions, answers and approvals: what a run asks of people, and what they say.

1. The door checks an answer before anything changes; several are taken all or none.
2. What is changed is told after the lock is left: first to the state's view, then to the listener.
3. With a desk (a store behind it) a person's word goes there first, and memory takes over what came of it; a new
   question is shown when it was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any  # Any: snapshots and validated answers, whose types are the user's

from anyio.lowlevel import checkpoint
from pydantic import JsonValue, ValidationError

from jianmu.engine import decisions
from jianmu.engine.answers import Door, JsonObject, door_of, door_of_stored
from jianmu.engine.asking import asked
from jianmu.engine.book import Book
from jianmu.engine.decisions import Change, Decision, Deed
from jianmu.engine.desk import Desk, UtcClock
from jianmu.engine.log import log
from jianmu.engine.outside import Foreseen, admit, foreseen
from jianmu.engine.questions import Answer, Origin, Rounds, Suspension
from jianmu.engine.record import Record, read_records
from jianmu.engine.request import Request
from jianmu.engine.shapes import is_same_shape
from jianmu.engine.view import RuntimeState, View
from jianmu.errors import InteractionError, InvalidAnswerError, NotAnsweredError, TreeMismatchError


class InteractionController:
    """The questions of a thread: asked and told by its run, answered by anybody.

    Args:
        clock: gives the instants of asks, answers and deadlines.
        state: shows the live questions in its namespace `interaction`.
        listener: called with (deed, record) after each change, outside locks, in the thread that made it.

    Attributes:
        desk: where the questions are kept beside this process, or None.
    """

    def __init__(
        self,
        clock: UtcClock,
        state: RuntimeState | None = None,
        *,
        listener: Callable[[Deed, Record], None] | None = None,
    ) -> None:
        self.listener = listener
        self.desk: Desk | None = None
        self._unshown: set[str] = set()
        self._clock = clock
        self._book = Book()
        self._doors: dict[str, Door] = {}
        self._view = View(state, self._book, self._unshown)

    @property
    def is_quiet(self) -> bool:
        """Whether no question waits for its answer or its delivery."""
        return self._book.is_quiet

    @property
    def has_unshown(self) -> bool:
        """Whether a question waits to be saved before it is shown."""
        return bool(self._unshown)

    @property
    def has_news(self) -> bool:
        """Whether a question has ended whose node waits for nothing else."""
        waiting = {record.origin.path for record in self._book.open()}
        return any(record.origin.path not in waiting for record in self._book.live())

    @property
    def pending(self) -> tuple[Suspension, ...]:
        """The open questions, the oldest first."""
        return tuple(record.shown for record in self._book.unanswered() if record.id not in self._unshown)

    @property
    def has_said(self) -> bool:
        """Whether something was said that is not kept yet."""
        return self._book.has_said

    def ids(self) -> list[str]:
        """Return the ids of all questions, in the order in which they were asked."""
        return [record.id for record in self._book.all()]

    def current(self) -> list[Record]:
        """Return all questions but those of closed rounds."""
        return self._book.current()

    def all_open(self) -> list[Record]:
        """Return the open questions, also those that are not saved yet."""
        return self._book.open()

    @property
    def suspension(self) -> Suspension | None:
        """The oldest open question, or None."""
        return next(iter(self.pending), None)

    def record(self, id: str) -> Record:
        """Return a question with all that has become of it.

        Raises:
            UnknownSuspensionError: there is none with this id.
        """
        return self._book.get(id)

    async def answer(self, *answers: Answer) -> tuple[Record, ...]:
        """Take one or several answers, all or none; they are kept when this returns. It runs nothing.

        Raises:
            InteractionError: one of them was refused, and nothing was changed.
        """
        if self.desk is None:
            return self.answer_nowait(*answers)
        now = self._clock.utc()
        await self.keep_said()
        found = [(answer.id or self._book.find(answer).id, answer) for answer in answers]
        return tuple(await self.desk.settle([(id, admit(answer, now, self._door)) for id, answer in found], now))

    def foresee(self, answer: Answer, now: datetime) -> Foreseen:
        """Return what an answer comes to if its question is as it is known here; nothing where `answer` may refuse."""
        is_clear = not (self.has_said or self._unshown)
        return foreseen(answer, self._book.find, self._door, now) if is_clear else Foreseen()

    def answer_nowait(self, *answers: Answer) -> tuple[Record, ...]:
        """Take answers from any thread, for a live run, which keeps them before it uses them.

        Raises:
            InteractionError: one of them was refused, and nothing was changed.
            RunError: there is a store, and no run is on that would keep them.
        """
        decided = self._admitted(answers)
        if self.desk is None:
            self._tell(self._book.settle(decided))
        else:
            self._book.say(decided)
            self.desk.wake()
        return tuple(self._book.heard(id) for id, _ in decided)

    async def keep_said(self) -> None:
        """Have the desk keep what was said by `answer_nowait`; what it refuses came too late, and is logged."""
        while self.desk is not None and (said := self._book.next_said()):
            first = next(iter(said.values()))
            now = first.ended_at or self._clock.utc()
            taken = [(id, decisions.accept(one.answer, now)) for id, one in said.items() if one.answer is not None]
            try:
                await self.desk.settle(taken, now)
            except InteractionError as late:
                log.warning("an answer came too late", question=late.id, error=type(late).__name__)
            except BaseException:
                self._book.said_again(said)
                raise
            self._book.was_kept(said)

    def hear(self) -> None:
        """Have somebody keep what other threads say from now on."""
        self._book.is_deaf = False

    async def stop_hearing(self) -> None:
        """Keep what was said; from now on nobody does."""
        while not (self._book.is_deaf or self._book.go_deaf()):
            await self.keep_said()
            await checkpoint()  # another task may be at it, and has to come to its end

    async def approve(
        self, id: str | None = None, *, edited: JsonValue = None, by: str | None = None, remember: bool = False
    ) -> Record:
        """Approve what a question shows, with `edited` arguments if given; see `answer`."""
        payload: JsonObject = {"approved": True, "editedArgs": edited, "reason": None, "remember": remember}
        return await self._decide(id, payload, by, is_bare=edited is None and not remember)

    async def reject(self, id: str | None = None, reason: str | None = None, *, by: str | None = None) -> Record:
        """Reject what a question shows; see `answer`."""
        payload: JsonObject = {"approved": False, "editedArgs": None, "reason": reason, "remember": False}
        return await self._decide(id, payload, by, is_bare=reason is None)

    async def withdraw(self, id: str, reason: str = "withdrawn") -> Record:
        """End an open question without an answer; its node is told the reason.

        Raises:
            InteractionError: it is not open, and nothing was changed.
        """
        self._book.get(id)
        decided = [(id, decisions.withdraw(self._clock.utc(), reason))]
        if self.desk is None:
            self._tell(self._book.settle(decided))
        else:
            await self.desk.settle(decided, self._clock.utc())
        return self._book.get(id)

    def ask(
        self,
        origin: Origin,
        request: Request,
        snapshot: Any = None,
        *,
        key: str | None = None,
        tool_call_id: str | None = None,
        group: str | None = None,
        url: str | None = None,
        asked_before: int = 0,
    ) -> Record:
        """Return the open question of this identity, or a new one.

        Args:
            origin: who asks.
            request: what; its functions are called with `snapshot`, only for a new question.
            snapshot: the state.
            key: used instead of the request's; without both it is the last part of the path.
            tool_call_id: the tool call that it is about.
            group: questions that belong together.
            url: where to answer, if elsewhere.
            asked_before: the most questions that one identity had in rounds that are closed.

        Raises:
            SetupError: a function of the request returned something that cannot be shown.
        """
        key = key or request.key or origin.path.rpartition("/")[2]
        last = self._book.newest(origin.identity("question", key))
        if last is not None and last.status == "open":
            self._adopt(last, request.door)
            return last
        count = asked_before if last is None else max(asked_before, last.count + 1)
        record = asked(origin, request, key, count, snapshot=snapshot, now=self._clock.utc())
        record = record.with_question(tool_call_id=tool_call_id, group=group, url=url)
        self._doors[record.id] = request.door
        record, is_new = self._book.add(record)
        if is_new and self.desk is not None:
            self._unshown.add(record.id)
            self.desk.note("asked", record)
        elif is_new:
            self._tell([Change("asked", record)])
        return record

    def show(self, ids: Iterable[str]) -> None:
        """Show questions that were saved."""
        self._unshown.difference_update(ids)
        self._tell([Change("asked", self._book.get(id)) for id in ids])

    def latest(self, origin: Origin, key: str) -> Record | None:
        """Return the question of this identity that counts: the newest, unless a halt has made it void."""
        record = self._book.newest(origin.identity("question", key))
        return None if record is None or record.unused else record

    def deliver(self, id: str, request: Request | None = None) -> Any:
        """Return the answer to its node, as the type that was asked for; marked once as consumed.

        Args:
            id: the question's id.
            request: gives the type where the question was asked in another process.

        Raises:
            NotAnsweredError: it was declined, cancelled, withdrawn, has expired, or is still open.
        """
        record = self._book.get(id)
        if record.status == "open" or record.unused:
            raise NotAnsweredError(id, "it is still open" if record.status == "open" else "its node was halted")
        if request is not None:
            self._adopt(record, request.door)
        value = self._read(record)
        self._note(self._book.settle([(id, decisions.consume(self._clock.utc()))]))
        if record.refusal is not None:
            raise NotAnsweredError(id, record.refusal)
        return value

    def close_round(self, rounds: Rounds) -> int:
        """Have questions of a closed round count no more; return the most that one identity had there, with numbers."""
        return self._book.close_round(rounds)

    def take_closed(self) -> list[str]:
        """Return the questions of rounds that were closed since this was called last."""
        return self._book.take_closed()

    def withdraw_open(self, where: str | Origin, reason: str = "halted") -> list[Record]:
        """Void the questions of a node that the tree has halted, or of all nodes at and below a path.

        Open ones are withdrawn; ends that were not delivered yet stay in the record, as unused.
        """
        return self._note(self._book.sweep(decisions.halt(where, self._clock.utc(), reason)))

    def due(self, now: datetime) -> list[Record]:
        """Carry out all steps that are due and return the questions moved by it."""
        return self._tell(self._book.sweep(decisions.step(now)))

    def due_ids(self, now: datetime) -> list[str]:
        """Return the open questions of which a step is due."""
        return [record.id for record in self._book.open() if record.next_at is not None and record.next_at <= now]

    def take_over(self, records: Iterable[Record]) -> list[Change]:
        """Have questions stand as they do at the desk, but for what the run has done with them."""
        changes = self._book.adopt(records)
        self._tell(changes)
        return changes

    def next_deadline(self) -> datetime | None:
        """Return when the next step of an open question is due, UTC."""
        return min((record.next_at for record in self._book.open() if record.next_at), default=None)

    def attach_adapter(self, id: str, answer: object) -> None:
        """Give a loaded question the type of its answer again.

        Raises:
            TreeMismatchError: it was asked for something else.
        """
        record = self._book.get(id)
        if not self._adopt(record, door_of(answer)):
            raise TreeMismatchError(
                f"question '{id}' of node '{record.question.path}' was asked for an answer of another shape",
                path=record.question.path,
            )

    def dump(self) -> JsonObject:
        """Return all questions but those of closed rounds as JSON."""
        return {"records": [record.model_dump(mode="json") for record in self.current()]}

    def load(self, data: object) -> None:
        """Put the questions of a dump, or some records, in the place of all others; their ids stay what they are.

        Raises:
            CorruptRecordError: it is no such dump; nothing was changed.
        """
        self._book.fill(read_records(data))
        self._doors.clear()
        self._unshown.clear()
        self._view.refresh()

    def _admitted(self, answers: tuple[Answer, ...]) -> list[tuple[str, Decision]]:
        """Return the decision to take each of some answers, if it fits what was asked for."""
        now = self._clock.utc()
        found = [(self._book.find(answer).id, answer) for answer in answers]
        decided = [(id, admit(answer, now, self._door)) for id, answer in found]
        for id, decide in decided:
            decide(self._book.heard(id))
        return decided

    async def _decide(self, id: str | None, payload: JsonObject, by: str | None, *, is_bare: bool) -> Record:
        record = self._book.find(Answer(id))
        is_bool = record.question.response_schema.get("type") == "boolean"
        answer = Answer(record.id, payload["approved"] if is_bool and is_bare else payload, by=by)
        return (await self.answer(answer))[0]

    def _note(self, changes: list[Change]) -> list[Record]:
        """Tell what the run itself has done, and have it saved with its next commit."""
        for deed, record in changes:
            if self.desk is not None:
                self.desk.note(deed, record)
        return self._tell(changes)

    def _tell(self, changes: list[Change]) -> list[Record]:
        if changes:
            self._view.refresh()
        for deed, record in changes:
            if self.listener is not None:
                self.listener(deed, record)
        return [record for _, record in changes]

    def _adopt(self, record: Record, door: Door) -> bool:
        """Use a door for a question whose type this process does not know yet; whether it fits."""
        fits = is_same_shape(door.schema, record.question.response_schema)
        if fits:
            self._doors[record.id] = door
        return fits

    def _door(self, record: Record) -> Door:
        known = self._doors.get(record.id)
        return known or self._doors.setdefault(record.id, door_of_stored(record.question.response_schema))

    def _read(self, record: Record) -> Any:
        if record.refusal is not None or record.answer is None:
            return None
        try:
            return self._door(record).read(record.answer.payload)
        except ValidationError:
            pass
        raise InvalidAnswerError(record.id, "its stored answer no longer fits the type that is asked for")
