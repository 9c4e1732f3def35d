"""ForEach: one subtree for each item of a list, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias  # Any: items and snapshots, whose types are the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import JsonValue, TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from jianmu.engine.answers import json_text
from jianmu.engine.control import Steps
from jianmu.engine.ports import Port
from jianmu.errors import RunError
from jianmu.nodes.base import Branch, Number, Option, Shape, call_of, check_child, checked, give_ports, plain, whole

Body: TypeAlias = Callable[[Any, int], Behaviour | tuple[Behaviour, str]]
Over: TypeAlias = str | Sequence[Any] | Callable[[Any], Iterable[Any]]
Limit: TypeAlias = Number | None
Key: TypeAlias = Callable[[Any], JsonValue] | None
ITEMS: Shape = ((lambda v: isinstance(v, Iterable) and not isinstance(v, str | bytes | Mapping)), "a list")


class ForEach(Branch):
    """Run a subtree for each item of a list, side by side.

    The list is what the field `over` (or `field.key`), a function of the snapshot or a list has when the node is
    entered; None is an empty one. `body(item, index)` builds the item's subtree, or returns (subtree, field of its
    result), which is read when it has succeeded; it is called again after a load. Each item is a round of its own,
    named by its index or by `key(item)`, as JSON.
    SUCCESS when all have succeeded, at once for an empty list; then the results are written to `into`, in item order.
    FAILURE when one has failed; the others are halted, and nothing is written.
    RUNNING until then; with a `limit`, so many run at a time, and the next one starts when one has finished.
    Halting halts all; the next entry takes the list anew.
    """

    is_loop = True
    is_parallel: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        body: Body,
        *,
        over: Over,
        into: str | None = None,
        limit: Number | None = None,
        key: Key = None,
    ) -> None:
        super().__init__(name, [])
        for option, fn in (("body", body), ("key", key or str), ("over", over if callable(over) else str)):
            plain(self, option, fn)
        ports = {"over": Port("over", False, Any), "into": Port("into", True, list[Any], None)}
        give_ports(self, ports, {"over": over} if into is None else {"over": over, "into": into})
        self._body, self._key, self._into = body, key, into
        self._limit = None if limit is None else Option(self, "limit", limit, whole(1))
        self._items: list[Any] = []
        self._fields: list[str | None] = []
        self._results: dict[int, Any] = {}
        self._rounds: dict[Behaviour, JsonValue] = {}

    def initialise(self) -> None:
        """Take the list and build the subtrees."""
        self._build(self._listed())

    def steps(self) -> Steps:
        """Tick what is at work, and start as many as the limit allows."""
        room = len(self.children) if self._limit is None else self._limit()
        room -= sum(child.status is Status.RUNNING for child in self.children)
        for place, child in enumerate(self.children):
            if child.status is Status.SUCCESS or (child.status is not Status.RUNNING and room <= 0):
                continue
            room -= child.status is not Status.RUNNING
            yield child
            status: Status = self.children[place].status
            if status is Status.FAILURE:
                self.feedback_message = f"'{child.name}' failed: {child.feedback_message}"
                return Status.FAILURE
            if status is Status.SUCCESS:
                room += 1
                self._take_result(place)
        if any(child.status is not Status.SUCCESS for child in self.children):
            return Status.RUNNING
        if self._into is not None:
            self.write_port("into", [self._results[place] for place in range(len(self._items))])
        return Status.SUCCESS

    def round_of(self, child: Behaviour) -> JsonValue:
        """Return the key of the item that a subtree belongs to, or its index."""
        return self._rounds.get(child)

    def _listed(self) -> list[Any]:
        given = self.context.read_port("over")
        found = given(self.read_state()) if callable(given) else given
        return [] if found is None else list(checked(self, call_of(self, "over"), ITEMS, found))

    def _build(self, items: list[Any]) -> None:
        self.remove_all_children()
        self._items, self._fields, self._results, self._rounds = items, [], {}, {}
        for place, item in enumerate(items):
            made = self._body(item, place)
            child, field = made if isinstance(made, tuple) else (made, None)
            check_child(f"what body(item, {place}) of node '{self.context.path}' returns", child)
            if self._into is not None and not isinstance(field, str):
                raise self._error('has into=, but its body does not say where results are: return (subtree, "<field>")')
            self.add_child(child)
            self._fields.append(field)
            self._rounds[child] = place
            if self._key is not None:  # as it is after a load, a tuple as a list: what was done under it is found by it
                self._rounds[child] = self._as_json(self._key(item), "cannot name its rounds: key= returns")

    def _take_result(self, place: int) -> None:
        """Read the result of an item that has succeeded."""
        text = self._fields[place]
        if text is not None and self._into is not None:
            field, _, key = text.partition(".")
            value = self.context.manager.read(field)
            self._results[place] = value and value.get(key) if key else value

    def memento(self) -> Any:
        """Return the items and the results that are in, as JSON."""
        if self.status is not Status.RUNNING:
            return None
        results = {str(place): self._as_json(value) for place, value in self._results.items()}
        return {"items": [self._as_json(item) for item in self._items], "results": results}

    def restore(self, value: Any) -> None:
        """Build the subtrees of the same items again."""
        over = self.port_bindings["over"]
        kind = Any if over.key else self.context.manager.schema.types.get(over.field or "", Any)
        stored = TypeAdapter[Any](kind).validate_json(json_text(value["items"]))
        known = {json_text(self._as_json(item)): item for item in (*stored, *self._listed())}
        self._build([known.get(json_text(raw), item) for raw, item in zip(value["items"], stored, strict=True)])
        self._results = {int(place): result for place, result in value["results"].items()}

    def _as_json(self, value: Any, trouble: str = "cannot be saved: its items or results hold") -> JsonValue:
        try:
            return to_jsonable_python(value)
        except PydanticSerializationError:
            kind = type(value).__name__
        raise self._error(f"{trouble} {kind}, which has no JSON form")

    def _error(self, what: str) -> RunError:
        return RunError(f"node '{self.context.path}' {what}", path=self.context.path)
