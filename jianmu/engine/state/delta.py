"""The effect of a write on what is stored, as JSON; folding deltas loads a state without calling a reducer.

Pure: values here are JSON values, and the manager is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any  # any JSON value
Deed: TypeAlias = Literal["set", "splice", "keys", "append", "drop", "spent"]


@dataclass(frozen=True, slots=True)
class Delta:
    """One effect on one field.

    Attributes:
        field: the full name; empty for "spent".
        deed: "set" (data: the value), "splice" (data: [start, deleted, items]), "keys" (data: [set, deleted]),
            "append" (data: the text at the end), "drop" (an extra value is gone), "spent" (data: the fields that
            a step has returned).
        data: as the deed has it.
    """

    field: str
    deed: Deed
    data: Json = None

    def to_json(self) -> list[Json]:
        """Return the delta as a JSON list."""
        return [self.field, self.deed, self.data]

    @classmethod
    def from_json(cls, data: list[Json]) -> Delta:
        """Return the delta that `to_json` made the list of."""
        return cls(data[0], data[1], data[2])


def fold(checkpoint: Mapping[str, Json], deltas: Iterable[Delta], version: int | None = None) -> dict[str, Json]:
    """Return the checkpoint as it is after some deltas; the one given is left as it is.

    Args:
        checkpoint: what `dump_checkpoint` returned.
        deltas: in the order of their commits.
        version: the version after them, where it is known.
    """
    values: dict[str, Json] = dict(checkpoint["fields"])
    spent: list[str] = list(checkpoint.get("spent", ()))
    own: set[str] = set()
    for delta in deltas:
        if delta.deed == "spent":
            spent = list(delta.data)
        else:
            spent = [name for name in spent if name != delta.field]
            _apply(values, delta, own)
    return {
        **checkpoint,
        "fields": values,
        "spent": spent,
        "version": checkpoint["version"] if version is None else version,
    }


def _apply(values: dict[str, Json], delta: Delta, own: set[str]) -> None:
    """Apply one delta; `own` are the fields whose value belongs to this fold and may be changed in place."""
    name, data = delta.field, delta.data
    match delta.deed:
        case "splice":
            start, deleted, items = data
            _owned(values, name, list, own)[start : start + deleted] = items
        case "keys":
            held = _owned(values, name, dict, own)
            held.update(data[0])
            for key in data[1]:
                held.pop(key, None)
        case "append":
            values[name] = (values.get(name) or "") + data
        case "drop":
            values.pop(name, None)
        case _:
            values[name] = data
            own.discard(name)


def _owned(values: dict[str, Json], name: str, kind: type, own: set[str]) -> Json:
    """Return a field's list or dict, copied once."""
    if name not in own:
        own.add(name)
        values[name] = kind(values.get(name) or ())
    return values[name]
