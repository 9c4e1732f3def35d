"""What was done, so that it is not done twice: the entries of `once`.

1. An entry is known by thread, run, path, rounds and key; name and arguments are checked against it.
2. A start without a result means that the outcome is unknown, whether by a crash or by a halt.
3. The idempotency key belongs to the entry: attempts share it, other rounds have others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, cast, get_args  # Any: the functions and results are the user's

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from jianmu.engine.answers import JsonObject
from jianmu.engine.effects import Call, Result, digest_of, shielded
from jianmu.engine.questions import Origin, Place, Rounds, digest
from jianmu.engine.record import read_rows
from jianmu.engine.request import Request
from jianmu.engine.state.freeze import instance
from jianmu.engine.suspend import is_suspension
from jianmu.errors import CorruptRecordError, JournalMismatchError, OutcomeUnknownError, SetupError

Per = Literal["round", "activation"]
OnUnknown = Literal["rerun", "ask", "fail"]
ACTING: ContextVar[Entry | None] = ContextVar("acting", default=None)
_PER, _ON_UNKNOWN = get_args(Per), get_args(OnUnknown)


class OnceScope(NamedTuple):
    """What `once` needs of the node that calls it.

    Attributes:
        origin: who acts.
        used: the keys used since the node was entered.
        halt_timeout: seconds that a call which is being halted is waited for.
        ask: asks a person, and returns the validated answer.
        sync: returns when what was recorded is durable.
    """

    origin: Origin
    used: set[str]
    halt_timeout: float
    ask: Callable[..., Awaitable[Any]]
    sync: Callable[[], Awaitable[None]]


class Entry(BaseModel):
    """One effect.

    Attributes:
        origin: who acts.
        key: tells the effects of one node apart.
        activation: counts the activations that acted under this key; None for an effect of a round.
        is_past: whether the activation is over; the next one acts anew.
        name: the function's qualified name.
        arguments: the digest of its arguments.
        idempotency_key: what makes a repeated call harmless outside.
        state: how it stands; None before its first start.
        attempts: how often it was begun.
        result: what it returned, as JSON.
        error: the type of the exception that it raised.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    origin: Origin
    key: str
    activation: int | None = None
    is_past: bool = False
    name: str
    arguments: str
    idempotency_key: str
    state: Literal["started", "done", "failed", "unknown"] | None = None
    attempts: int = 0
    result: JsonValue = Field(default=None, repr=False)
    error: str | None = None

    @property
    def id(self) -> str:
        """What the entry is known by."""
        return self.origin.identity("effect" if self.activation is None else "activation", self.key)

    @property
    def place(self) -> Place:
        """What it is known by in this process."""
        return (self.origin.place, "round" if self.activation is None else "activation", self.key)

    def sealed(self) -> Entry:
        """Return the entry with its digests, which are made when they are wanted."""
        per = "round" if self.activation is None else "activation"
        again = (self.activation,) if self.activation else ()
        own = self.idempotency_key or digest("idempotency", self.origin.identity(per, self.key), *again)
        return _entry(self.__dict__, arguments=digest_of(self.arguments), idempotency_key=own)


_FRESH = {name: field.default for name, field in Entry.model_fields.items()} | {"idempotency_key": ""}


class Journal:
    """The effects of a thread's run; used on the loop's thread.

    Attributes:
        is_recorded: whether somebody takes what changes.
    """

    def __init__(self) -> None:
        self._entries: dict[Place, Entry] = {}
        self.is_recorded = False
        self._changed: dict[Place, Entry] = {}
        self._closed: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done through `once` in this run."""
        return not self._entries

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order in which they were first begun."""
        return tuple(entry.sealed() for entry in self._entries.values())

    async def once(
        self,
        scope: OnceScope,
        key: str,
        fn: Callable[..., Any],
        *args: Any,
        result: Any = Any,
        on_unknown: OnUnknown = "rerun",
        effect: bool = True,
        per: Per = "round",
        is_fixed: bool = False,
    ) -> Any:
        """Return the result of `fn(*args)`, which is called once in this round, whatever happens in between.

        Args:
            scope: the node that acts.
            key: tells the effects of one node apart.
            fn: async, or sync and then run in a thread.
            args: its arguments, which need a JSON form.
            result: the type of the result; it passes through JSON the first time too.
            on_unknown: what to do if a call was begun and its outcome is not known.
            effect: False for reads and pure state writes: no start is recorded.
            per: what the result holds for.
            is_fixed: whether the arguments are JSON that cannot change.

        Raises:
            JournalMismatchError: the key was used for another function or other arguments, or in this entry already.
            OutcomeUnknownError: the outcome is not known, and `on_unknown` is "fail".
            SetupError: an argument or the result has no JSON form.
        """
        where = f"once('{key}') in node '{scope.origin.path}'"
        if per not in _PER or on_unknown not in _ON_UNKNOWN:
            raise SetupError(f'{where}: per is "round" or "activation", on_unknown "rerun", "ask" or "fail"')
        call, kind = Call(where, fn, args, is_fixed=is_fixed), Result(where, result)
        entry = self.find(scope.origin, key, call.name, call.arguments, per=per)
        if key in scope.used:
            raise _mismatch(entry, "it is used twice since the node was entered: each effect needs its own key")
        scope.used.add(key)
        if entry.state in ("started", "unknown"):
            entry = await self._settle(scope, entry, kind, on_unknown)
        if entry.state != "done":
            return await self._act(scope, entry, call, kind, effect)
        return kind.from_json(entry.result)

    def find(self, origin: Origin, key: str, name: str, text: str | Callable[[], str], *, per: Per = "round") -> Entry:
        """Return the entry of an effect, or a new one that nothing was recorded of yet.

        Raises:
            JournalMismatchError: the key was used for another function, or other arguments.
        """
        known = self._entries.get((origin.place, per, key))
        if known is None or (known.is_past and known.activation is not None):
            number = None if per == "round" else 0 if known is None else (known.activation or 0) + 1
            return _entry(_FRESH, origin=origin, key=key, activation=number, name=name, arguments=text)
        if known.name != name:
            raise _mismatch(known, f"it was used for {known.name}, and now for {name}: each effect needs its own key")
        if digest_of(known.arguments) != digest_of(text):
            raise _mismatch(known, f"{name} was called with other arguments before: a key stands for one call")
        return known

    def begin(self, entry: Entry) -> Entry:
        """Record that the function is about to be called."""
        return self._put(entry, state="started", attempts=entry.attempts + 1, error=None)

    def finish(self, entry: Entry, result: JsonValue) -> Entry:
        """Record what it returned."""
        return self._put(entry, state="done", result=result)

    def fail(self, entry: Entry, error: BaseException) -> Entry:
        """Record that it raised, or has asked and waits for the answer; the next attempt calls it again."""
        return self._put(entry, state="failed", error=type(error).__name__)

    def lose(self, entry: Entry) -> Entry:
        """Record that nobody knows what became of the call."""
        return self._put(entry, state="unknown")

    def new_activation(self, origin: Origin) -> None:
        """Record that a node starts anew (not that it goes on): its effects per activation are called again."""
        for entry in [*self._entries.values()]:
            if entry.activation is not None and not entry.is_past and entry.origin.place == origin.place:
                self._put(entry, is_past=True)

    def recorded(self, origin: Origin, key: str, *, per: Per = "round") -> Entry | None:
        """Return an effect as it stands, or None if this round or activation has none under the key."""
        entry = self._entries.get((origin.place, per, key))
        return None if entry is None or entry.is_past else entry

    def close_round(self, rounds: Rounds) -> None:
        """Remove the entries of a closed round: the rounds around the loop, then (loop path, round)."""
        self._remove([one for one in self._entries.values() if one.origin.rounds[: len(rounds)] == rounds])

    def clear(self) -> None:
        """Remove all entries: the run has ended."""
        self._remove([*self._entries.values()])

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            del self._entries[entry.place]
            if self.is_recorded:
                self._closed.append(entry.id)

    def touch_all(self) -> None:
        """Have all entries count as changed."""
        self._changed.update(self._entries)

    def take_changes(self) -> tuple[dict[str, Entry], list[str]]:
        """Return the entries that have changed since this was called last, by id, and the ids of those removed."""
        changed = {entry.id: entry.sealed() for entry in self._changed.values()}
        closed, self._changed, self._closed = self._closed, {}, []
        return changed, closed

    def dump(self) -> JsonObject:
        """Return all entries as JSON."""
        return {"entries": [entry.model_dump(mode="json") for entry in self.entries]}

    def load(self, data: object, rename: Callable[[str], str] = str) -> None:
        """Put the entries of a dump in the place of all others; idempotency keys stay what they are.

        Args:
            data: what `dump` has returned.
            rename: maps the paths of the dump to those of today's tree.

        Raises:
            CorruptRecordError: it is no such dump; nothing was changed.
        """
        self._entries = {entry.place: entry for entry in read_entries(data, rename)}

    def _put(self, entry: Entry, **changes: Any) -> Entry:
        made = self._entries[entry.place] = _entry(entry.__dict__, **changes)
        if self.is_recorded:
            self._changed[entry.place] = made
        return made

    async def _act(self, scope: OnceScope, planned: Entry, call: Call, kind: Result, effect: bool) -> Any:
        """Return the function's result, of which a record is kept; a call that is cut off stays unknown."""
        entry = self.begin(planned) if effect else planned
        done: list[Any] = []

        async def attempt() -> None:
            try:
                value = await call.run()
            except BaseException as error:
                if effect and (isinstance(error, Exception) or is_suspension(error)):
                    self.fail(entry, error)
                if effect and isinstance(error, Exception):
                    await scope.sync()
                raise
            kept, read = kind.passed(value)
            self.finish(entry, kept)
            done.append(read)
            await scope.sync()

        token = ACTING.set(entry)
        try:
            if effect:
                await scope.sync()
            await (attempt() if call.is_async else shielded(attempt, scope.halt_timeout))
        finally:
            ACTING.reset(token)
            if self._entries.get(entry.place) is entry:
                self.lose(entry)
        return done[0]

    async def _settle(self, scope: OnceScope, entry: Entry, kind: Result, policy: OnUnknown) -> Entry:
        """Carry out the policy for a call whose outcome is not known."""
        if policy == "fail":
            place = entry.origin
            raise OutcomeUnknownError(entry.key, entry.name, path=place.path, thread_id=place.thread_id)
        if policy == "rerun":
            return entry
        request = Request(
            f"Did {entry.name} ({entry.key}) happen? It was begun, and its outcome is not known.",
            answer=kind.outcome,
            reason="unknown_outcome",
            data={"key": entry.key, "name": entry.name, "idempotency_key": entry.sealed().idempotency_key},
        )
        told = await scope.ask(request, key=f"once:{entry.key}:{entry.attempts}")
        return self.finish(entry, kind.passed(told.result)[0]) if told.happened else entry


def _entry(values: Mapping[str, Any], **changes: Any) -> Entry:
    """Return an entry of values that need no look."""
    made: Any = instance(Entry, {**values, **changes}, (), None, None)
    return made


def read_entries(data: object, rename: Callable[[str], str] = str) -> list[Entry]:
    """Return the entries of a dump, at the paths that `rename` gives for theirs.

    Raises:
        CorruptRecordError: it is no such dump.
    """
    rows = cast("dict[str, object]", data).get("entries") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise CorruptRecordError("the journal of a checkpoint is no list of entries")
    entries = read_rows("journal entry", Entry, cast("list[object]", rows))
    return [entry.model_copy(update={"origin": entry.origin.renamed(rename)}) for entry in entries]


def _mismatch(entry: Entry, problem: str) -> JournalMismatchError:
    return JournalMismatchError(entry.key, problem, path=entry.origin.path, thread_id=entry.origin.thread_id)
