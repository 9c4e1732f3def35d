"""All questions of a thread, under one lock.

1. Decisions run under the lock, so exactly one of racing ends wins; no user code runs there.
2. Several decisions are carried out all or none.
3. A question is live until its end was delivered to its node; only live ones cost anything.
4. What was said and is not kept yet counts for those who say more, and for nobody else.
5. What was asked in a round that is closed counts no more under its identity; its record stays.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from jianmu.engine.decisions import Change, Decision, deed, is_repeated
from jianmu.engine.questions import Answer, Rounds
from jianmu.engine.record import Record
from jianmu.errors import AmbiguousAnswerError, RunError, UnknownSuspensionError


class Book:
    """The questions of a thread, safe from every thread.

    Attributes:
        is_deaf: whether nobody keeps what is said.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.is_deaf = False
        self._lock = threading.Lock()
        self.fill(records)

    def fill(self, records: Iterable[Record]) -> None:
        """Put these in the place of all others; they come in the order in which they were asked."""
        found = {record.id: record for record in records}
        newest = {_identity(record): record.id for record in found.values()}
        with self._lock:
            self._records, self._newest = found, newest
            self._live = {id: None for id, record in found.items() if record.is_live}
            self._current = dict.fromkeys(found)
            self._closed: list[str] = []
            self._said: dict[str, Record] = {}
            self._waiting = deque[dict[str, Record]]()

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._live

    def all(self) -> list[Record]:
        """Return every question, in the order in which they were asked."""
        with self._lock:
            return list(self._records.values())

    def live(self) -> list[Record]:
        """Return those for which somebody waits, the oldest first."""
        with self._lock:
            return [self._records[id] for id in self._live]

    def open(self) -> list[Record]:
        """Return the open ones, the oldest first."""
        return [record for record in self.live() if record.status == "open"]

    def unanswered(self) -> list[Record]:
        """Return the open ones to which nothing was said, the oldest first."""
        return [record for record in self.open() if record.id not in self._said]

    def newest(self, identity: str) -> Record | None:
        """Return the one asked last under an identity."""
        with self._lock:
            id = self._newest.get(identity)
            return None if id is None else self._records[id]

    def close_round(self, rounds: Rounds) -> int:
        """Have what is over and was asked in a round count no more; return the most that were asked of one identity."""
        with self._lock:
            asked = [self._records[id] for id in self._current]
            over = [one for one in asked if one.origin.rounds[: len(rounds)] == rounds and not one.is_live]
            for record in over:
                self._drop(record)
        return max((record.count + 1 for record in over), default=0)

    def _drop(self, record: Record) -> None:
        """Have a question count no more under its identity."""
        del self._current[record.id]
        self._closed.append(record.id)
        if self._newest.get(_identity(record)) == record.id:
            del self._newest[_identity(record)]

    def current(self) -> list[Record]:
        """Return every question but those of closed rounds, in the order in which they were asked."""
        return [record for record in self.all() if record.id in self._current]

    def take_closed(self) -> list[str]:
        """Return the questions of rounds that were closed since this was called last."""
        with self._lock:
            taken, self._closed = self._closed, []
        return taken

    def get(self, id: str) -> Record:
        """Return a question by its id."""
        with self._lock:
            found = self._records.get(id)
        if found is None:
            raise UnknownSuspensionError(id, [record.id for record in self.open()])
        return found

    def find(self, answer: Answer) -> Record:
        """Return the question that an answer is for: by its id, its key, or as the only open one."""
        if answer.id is not None:
            return self.get(answer.id)
        heard = () if answer.key is None else self._heard()
        known = [record for record in heard if is_repeated(record, answer)] or self.unanswered()
        if len(known) == 1:
            return known[0]
        ids = [record.id for record in known]
        raise AmbiguousAnswerError(ids) if ids else UnknownSuspensionError(None)

    def _heard(self) -> list[Record]:
        """Return every question as those see it who say something."""
        with self._lock:
            return list((self._records | self._said).values())

    def heard(self, id: str) -> Record:
        """Return a question as those see it who say something."""
        return self._said.get(id) or self.get(id)

    @property
    def has_said(self) -> bool:
        """Whether something was said that is not kept yet."""
        return bool(self._said)

    def say(self, decisions: Sequence[tuple[str, Decision]]) -> None:
        """Have all these decisions wait until they are kept or, when one raises, none.

        Raises:
            RunError: nobody is there to keep them.
        """
        with self._lock:
            if self.is_deaf:
                raise RunError("answer_nowait() is for a run that is on, and none is: write `await answer(...)`")
            after = self._decided(decisions, self._records | self._said)
            self._said |= after
            self._waiting.extend([after] if after else [])

    def go_deaf(self) -> bool:
        """Refuse what is said from now on, unless something waits; whether it is so."""
        with self._lock:
            self.is_deaf = not self._said
            return self.is_deaf

    def next_said(self) -> dict[str, Record]:
        """Return what was said at once, the first that waits, as it is to be; nothing if nothing waits."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else {}

    def said_again(self, said: dict[str, Record]) -> None:
        """Have it wait again: it could not be kept."""
        with self._lock:
            self._waiting.appendleft(said)

    def was_kept(self, said: dict[str, Record]) -> None:
        """Note that it was kept, or refused."""
        with self._lock:
            self._said = {id: record for id, record in self._said.items() if id not in said}

    def add(self, record: Record) -> tuple[Record, bool]:
        """Add a new question, unless one is open there; return the one that stands and whether it is new."""
        identity = _identity(record)
        with self._lock:
            last = self._newest.get(identity)
            if last is not None and self._records[last].count >= record.count:
                return self._records[last], False
            self._records[record.id], self._newest[identity] = record, record.id
            self._live[record.id] = self._current[record.id] = None
            return record, True

    def sweep(self, decide: Decision) -> list[Change]:
        """Decide about each live question."""
        with self._lock:
            return self._apply([(id, decide) for id in self._live])

    def settle(self, decisions: Sequence[tuple[str, Decision]]) -> list[Change]:
        """Carry out all these decisions or, when one raises, none."""
        with self._lock:
            return self._apply(decisions)

    def adopt(self, records: Iterable[Record]) -> list[Change]:
        """Have known questions stand as they do elsewhere; what the run has done with them stays."""
        with self._lock:
            known = [(record.id, _taking(record)) for record in records if record.id in self._records]
            return self._apply(known)

    def _apply(self, decisions: Sequence[tuple[str, Decision]]) -> list[Change]:
        moved = self._decided(decisions, self._records)
        changes = [Change(deed(self._records[id], after), after) for id, after in moved.items()]
        self._records.update(moved)
        for id, after in moved.items():
            if not after.is_live:
                self._live.pop(id, None)
        return changes

    def _decided(self, decisions: Sequence[tuple[str, Decision]], records: Mapping[str, Record]) -> dict[str, Record]:
        """Return what the decisions come to, of the questions that change."""
        moved: dict[str, Record] = {}
        for id, decide in decisions:
            after = decide(moved.get(id) or records[id])
            if after is not None:
                moved[id] = after
        return moved


def _taking(theirs: Record) -> Decision:
    """Return the decision to take over how a question stands elsewhere: an end is never taken back."""

    def decide(mine: Record) -> Record | None:
        if theirs.status == "open" and mine.status != "open":
            return None
        consumed, unused = mine.consumed_at or theirs.consumed_at, mine.unused or theirs.unused
        is_all = (consumed, unused) == (theirs.consumed_at, theirs.unused)
        after = theirs if is_all else theirs.changed(consumed_at=consumed, unused=unused)
        return None if after.status == mine.status and after == mine else after

    return decide


def _identity(record: Record) -> str:
    return record.origin.identity("question", record.question.key)
