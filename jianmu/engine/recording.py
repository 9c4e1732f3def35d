"""The run's side of a thread's log: what has changed since the last cut, and the transaction that it makes.

1. Deltas are collected inside the commits that make them, as text; a cut takes all up to one version.
2. A cut is taken on the loop's thread, between passes: state, position, questions, journal of one moment.
3. What a cut has taken is not offered again; a transaction that fails ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple  # Any: any schema; JSON; fields of a transaction

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import JsonValue

from jianmu.engine import passes
from jianmu.engine.answers import JsonObject
from jianmu.engine.checkpoint import Delivery, Kind, Lease, QuestionRow, Row, Stored, Transaction
from jianmu.engine.context import RunContext
from jianmu.engine.decisions import Deed
from jianmu.engine.deltastream import StateStream
from jianmu.engine.point import KEPT, Point
from jianmu.engine.positions import Change, Nodes, Positions, fold
from jianmu.engine.questionrows import ended_of, row_of, text_of
from jianmu.engine.record import Record
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.state import StateManager
from jianmu.engine.tree import fingerprint, paths

LEAST = 256
"""Bytes that each body of a log counts as at least."""
SNAPSHOT = 1_000_000
"""Bytes that a log has to grow by before a snapshot is written."""

ENDED = ("finished", "failed")


class Standing(NamedTuple):
    """How a thread stands at a cut."""

    status: str
    error: dict[str, str | None] | None = None


@dataclass
class Cut:
    """What one transaction is to write.

    Attributes:
        body: the log's body, or None: what is written changes nothing of it.
        questions: new ones.
        delivered: what became of others.
        rows: kept rows.
        closed: kept rows that are done with.
        gone: kept rows that are removed.
        asked: the questions that may be shown when it is written.
        given_up: the questions that the tree has withdrawn.
    """

    body: str | None
    questions: tuple[QuestionRow, ...] = ()
    delivered: tuple[Delivery, ...] = ()
    rows: tuple[Row, ...] = ()
    closed: tuple[tuple[Kind, str], ...] = ()
    gone: tuple[tuple[Kind, str], ...] = ()
    asked: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()

    def step(self, lease: Lease, expected: int, rows: list[Row], *, has_to_last: bool, **others: Any) -> Transaction:
        """Return the transaction that writes it, and rows beside it."""
        return Transaction(
            lease=lease,
            expected=expected,
            body=self.body,
            questions=self.questions,
            delivered=self.delivered,
            rows=(*self.rows, *rows),
            closed=self.closed,
            gone=self.gone,
            has_to_last=has_to_last or bool(self.questions),
            **others,
        )


NOTHING = Cut(None)


class Recording:
    """What a run has done since the last cut.

    Args:
        runner: the tree and the state.
        version: of the schema.
        check_edits: raises if the tree was edited and could not be loaded again.
    """

    def __init__(self, runner: ReactiveRunner[Any], version: int | None, check_edits: Callable[[], None]) -> None:
        self._runner = runner
        self._check_edits = check_edits
        self._context: RunContext = runner.context
        self._version = version
        self._positions = Positions(runner.root)
        self._context.journal.is_recorded = True
        self._frozen: Change | None = None
        self._is_frozen = False
        self._streams: dict[str, StateStream] = {}
        self._questions: dict[str, bool] = {}
        self._begin(Point())
        self.watch()

    def watch(self) -> None:
        """Record the states of the agent and of the agents inside of it."""
        managers = [("", self._runner.manager), *inner_managers(self._runner.root)]
        known = {id(stream.manager): stream for stream in self._streams.values()}
        self._streams = {path: known.get(id(manager)) or StateStream(manager) for path, manager in managers}

    def _begin(self, point: Point) -> None:
        self._header: dict[str, JsonValue] = dict(point.values)
        self._tree = point.tree
        self._nodes: Nodes = point.nodes
        self._trees: dict[str, str] = {}
        self._done_with: list[tuple[Kind, str]] = []
        self._came: dict[str, int] = {}
        self._cache: str | None = None
        self._grown = 0
        self._most = SNAPSHOT
        self._kept: set[str] = set()
        self._questions.clear()
        self._context.journal.take_changes()
        self._context.interaction.take_closed()

    def begin(self, stored: Stored | None, point: Point | None = None) -> None:
        """Go on from what is in the store and was taken over, and has come to a point: None is a new thread."""
        self._begin(point or Point())
        for path, stream in self._streams.items():
            stream.clear(is_whole=stored is None)
            stream.told = (point or Point()).states.get(path, {}).get("version", -1)
        self.thaw()
        self._positions.stale()
        if stored is None:
            self._questions = dict.fromkeys(self._context.interaction.ids(), True)
            self._context.journal.touch_all()
            return
        self._trees = {row.id.partition("-")[0]: row.id for row in stored.rows if row.kind == "tree"}
        self._came = {row.id: row.came for row in stored.rows if row.kind == "effect"}
        self._grown = sum(max(LEAST, len(body)) for _, body in stored.log)
        if stored.snapshot is not None:
            self._most = max(SNAPSHOT, len(stored.snapshot.body))
            self._cache = stored.snapshot.id if stored.snapshot.kind == "cache" else None
        self._kept = {row.id for row in stored.questions}
        if self._tree is not None:
            tree = self._positions.news()[0]  # the tree was put there just now
            if tree is None or self._trees.get(tree.id) != self._tree:
                self._positions.stale()

    def restart(self) -> None:
        """Have all that was taken over written anew: it is of a later version, or at other paths, now."""
        for stream in self._streams.values():
            stream.clear(is_whole=True)
        self._positions.stale()
        self._questions = dict.fromkeys(self._kept, True)
        self._context.journal.touch_all()
        today = {entry.id for entry in self._context.journal.entries}
        self._done_with.extend(("effect", id) for id in self._came if id not in today)
        self._came = {id: came for id, came in self._came.items() if id in today}
        self._grown = max(self._grown, self._most + 1)

    def rebuild(self, root: Behaviour) -> None:
        """Record another tree."""
        self._positions = Positions(root)
        self.watch()

    # Between cuts

    @property
    def manager(self) -> StateManager[Any]:
        """The agent's state."""
        return self._runner.manager

    @property
    def size(self) -> int:
        """About how many bytes of state wait to be written."""
        return sum(stream.size for stream in self._streams.values())

    def note(self, deed: Deed, record: Record) -> None:
        """Note what became of a question."""
        if deed == "asked" or record.id not in self._questions:
            self._questions[record.id] = deed == "asked"

    def mark(self) -> Callable[[], None]:
        """Return what forgets the deltas from here on."""
        backs = [stream.mark() for stream in self._streams.values()]

        def back() -> None:
            for go_back in backs:
                go_back()

        return back

    def freeze(self) -> None:
        """Keep the position as it is, whatever the tree does: it is about to be halted."""
        if not self._is_frozen:
            self._frozen, self._is_frozen = self._positions.changes(), True

    def keep_late(self, node: Behaviour, status: Status) -> None:
        """Have a result stand in the frozen position: its coroutine was done when the tree was halted."""
        number, kept = self._positions.with_result(node, status)
        nodes: Nodes = {number: kept}
        late = Change(next(passes.NUMBERS), None, nodes, {})
        self._frozen = late if self._frozen is None else replace(self._frozen, nodes=self._frozen.nodes | nodes)

    def thaw(self) -> None:
        """Watch the tree again: it stands where it was kept."""
        self._frozen, self._is_frozen = None, False

    # Cutting

    def cut(self, number: int, standing: Standing, what: str) -> Cut | None:
        """Return what has changed as the transaction with this number, or None if nothing has."""
        rows: list[Row] = []
        is_ended = standing.status in ENDED
        head = self._header_changes(standing)
        head |= self._position(number, rows, is_ended=is_ended)
        is_due = self._grown > self._most
        wholes, parts = self._states(is_due=is_due)
        questions, delivered, asked, given_up = self._of_questions(number, is_ended=is_ended)
        closed = self._of_effects(number, rows, is_ended=is_ended)
        closed, self._done_with = (*closed, *self._done_with), []
        has_state = any(text for _, text in parts.values()) or any(each.is_whole for each in self._streams.values())
        trifles = {"usage", "pass"} if standing.status == "running" else set[str]()
        if not (head.keys() - trifles or has_state or questions or delivered or rows or closed):
            return None
        if self._times and "nodes" not in head:
            head |= {"nodes": self._times}
            self._nodes = fold(self._nodes, self._times)
        self._header.update({key: value for key, value in head.items() if key in KEPT})
        whole = {path: state for path, state in wholes.items() if self._streams[path].is_whole}
        text = _body({"time": self._context.clock.utc().timestamp(), "what": what, **head}, whole, parts)
        for path, (version, _) in parts.items():
            self._streams[path].was_written(version)
        self._grown += max(LEAST, len(text))
        gone = self._snapshot(number, wholes, rows) if is_due else ()
        return Cut(text, questions, delivered, tuple(rows), closed, gone, tuple(asked), tuple(given_up))

    def _header_changes(self, standing: Standing) -> dict[str, Any]:
        """Return what has changed of the run itself."""
        context = self._context
        now: dict[str, Any] = {"run": context.run, "status": standing.status, "error": standing.error}
        now |= {"usage": context.usage.told(), "asked": context.asked or None, "schema": self._version}
        return {key: value for key, value in now.items() if self._header.get(key) != value}

    def _position(self, number: int, rows: list[Row], *, is_ended: bool) -> dict[str, Any]:
        """Return what has changed of the position, and add the row of a tree that is not in the store."""
        self._times: Nodes = {}
        if is_ended or self._runner.is_left:
            return self._no_position()
        change, self._frozen = self._frozen if self._is_frozen else self._positions.changes(), None
        if change is None or (change.is_empty and self._tree is not None):
            self._times = {} if change is None else change.times
            return {}
        head: dict[str, Any] = {"pass": change.number, "nodes": change.all}
        self._header["pass"] = change.number
        if change.tree is not None:
            self._check_edits()
            self.watch()
            digest, self._nodes = change.tree.id, {}
            if digest not in self._trees:
                self._trees[digest] = f"{digest}-{number}"  # a tree that comes back later is a row of its own
                rows.append(Row("tree", self._trees[digest], change.tree.body, came=number))
            head["tree"] = self._tree = self._trees[digest]
            head["fingerprint"] = self._header["fingerprint"] = fingerprint(self._runner.root)
        self._nodes = fold(self._nodes, change.all)
        return head

    def _no_position(self) -> dict[str, Any]:
        """Return that no run is under way; trees that the last one had on its way are done with."""
        self._positions.stale()
        self.thaw()
        if self._tree is None:
            return {}
        self._done_with.extend(("tree", id) for id in self._trees.values() if id != self._tree)
        self._trees = {digest: id for digest, id in self._trees.items() if id == self._tree}
        self._tree, self._nodes = None, {}
        return {"tree": None}

    def _states(self, *, is_due: bool) -> tuple[dict[str, JsonObject], dict[str, tuple[int, str]]]:
        """Return the states that are written whole, and the deltas of all, with the versions after them."""
        wholes: dict[str, JsonObject] = {}
        parts: dict[str, tuple[int, str]] = {}
        for path, stream in self._streams.items():
            if is_due or stream.is_whole:
                version, wholes[path], text = stream.take_whole()
            else:
                version, text = stream.take()
            if stream.is_whole or text or version != stream.told:
                parts[path] = (version, text)
        return wholes, parts

    def _of_questions(
        self, number: int, *, is_ended: bool
    ) -> tuple[tuple[QuestionRow, ...], tuple[Delivery, ...], list[str], list[str]]:
        """Return the rows of new questions, what became of others, and the ids of those asked and those given up."""
        changed, self._questions = self._questions, {}
        self._kept |= changed.keys()
        gone = self._over(is_all=is_ended)
        new: list[QuestionRow] = []
        told: list[Delivery] = []
        for id in dict.fromkeys((*changed, *gone)):
            record = self._context.interaction.record(id)
            is_over = record.consumed_at is not None or record.unused
            if changed.get(id):
                marks = {"consumed": number if is_over else None, "went": number if id in gone else None}
                new.append(row_of(record, came=number, **marks))
            else:
                ended = ended_of(record) if record.source == "tree" else None
                told.append(Delivery(id, ended, consumed=is_over, unused=record.unused, is_gone=id in gone))
        given_up = [each.id for each in told if each.ended is not None]
        return tuple(new), tuple(told), [row.id for row in new], given_up

    def _over(self, *, is_all: bool) -> set[str]:
        """Return the questions that the run needs no more: all, or those of rounds that were closed."""
        closed = self._context.interaction.take_closed()
        gone = {*self._kept} if is_all else self._kept.intersection(closed)
        self._kept -= gone
        return gone

    def _of_effects(self, number: int, rows: list[Row], *, is_ended: bool) -> tuple[tuple[Kind, str], ...]:
        """Add the rows of effects that have changed; return those that are done with."""
        changed, closed = self._context.journal.take_changes()
        for id, entry in changed.items():
            came = self._came.setdefault(id, number)
            rows.append(Row("effect", id, entry.model_dump_json(exclude_defaults=True), came=came))
        closed = [*self._came] if is_ended else [id for id in closed if id in self._came]
        for id in closed:
            del self._came[id]
        return tuple(("effect", id) for id in closed)

    def _snapshot(self, number: int, states: dict[str, JsonObject], rows: list[Row]) -> tuple[tuple[Kind, str], ...]:
        """Add a snapshot of this cut, and return the one before, which it replaces."""
        body = Point(self._header, states, self._tree, self._nodes).body()
        gone: tuple[tuple[Kind, str], ...] = () if self._cache is None else (("cache", self._cache),)
        self._cache, self._grown, self._most = str(number), 0, max(SNAPSHOT, len(body))
        rows.append(Row("cache", self._cache, body, came=number))
        return gone


def _body(head: dict[str, Any], wholes: dict[str, JsonObject], parts: dict[str, tuple[int, str]]) -> str:
    """Return a body of the log as text, with the texts of deltas as they are."""
    states = dict(wholes)
    if "" in states:
        head |= {"state": states.pop("")}
    if states:
        head |= {"inner": states}
    deltas = {path: part for path, part in parts.items() if path not in wholes}
    text = text_of(head)[:-1]
    if "" in deltas:
        version, own = deltas.pop("")
        text += f',"v":{version},"s":[{own}]'
    inner = (f"{text_of(path)}:[{version},[{own}]]" for path, (version, own) in deltas.items())
    return text + (f',"i":{{{",".join(inner)}}}' if deltas else "") + "}"


def inner_managers(root: Behaviour) -> Iterator[tuple[str, StateManager[Any]]]:
    """Yield the states of agents inside of a tree, with their paths."""
    for node, path in paths(root):
        manager = getattr(node, "inner_state", None)
        if manager is not None:
            yield path, manager
