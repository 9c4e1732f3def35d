"""What stands beside the conversation: the tree with its statuses, and the fields of the state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import cast

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jianmu.draw import lines
from jianmu.engine.state import Internal, Transient
from jianmu.message import Message
from jianmu.terminal.blocks import short

MOST_LINES = 200
WIDTH = 120
FOLDED = 28
"""Characters of a field that is in no checkpoint: it is on one line beside its name."""


def tree_lines(root: Behaviour, most: int = MOST_LINES) -> list[tuple[str, Status]]:
    """Return the lines of a tree with the statuses of their nodes; of a large tree only what is at work is open."""
    whole = [(line, node.status) for line, node in islice(lines(root), most + 1)]
    if len(whole) <= most:
        return whole
    folded = lines(root, lambda node: node.status is Status.RUNNING)
    shown = [(line, node.status) for line, node in islice(folded, most + 1)]
    return shown if len(shown) <= most else [*shown[:most], ("⋮", Status.INVALID)]


def state_lines(state: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield the name of each field and what it holds, on one line; not those that hold nothing or are the tree's own.

    Args:
        state: the snapshot.
    """
    for name, field in type(state).model_fields.items():
        value = getattr(state, name, None)
        if not _has(field, Internal) and not _is_empty(value, field.default):
            yield name, shown(value, FOLDED if _has(field, Transient) else WIDTH)
    for name, value in (state.model_extra or {}).items():
        if not _is_empty(value):
            yield name, shown(value)


def _has(field: FieldInfo, mark: type[Internal | Transient]) -> bool:
    return any(isinstance(one, mark) or one is mark for one in field.metadata)


def _is_empty(value: object, default: object = None) -> bool:
    """Whether there is nothing to see: no value, no items, or a 0 or False that was never anything else."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return all(_is_empty(getattr(value, name, None), field.default) for name, field in fields)
    if isinstance(value, Sized):
        return not len(value)
    return value is None or (not value and value == default and type(value) is type(default))


def shown(value: object, most: int = WIDTH) -> str:
    """Return a value on one line; of a long list or dict the beginning and its length."""
    match value:
        case str():
            text = value or '""'
        case BaseModel():
            text = _named(value)
        case Mapping():
            items = cast("Mapping[object, object]", value)
            text = _all("{", [f"{key}: {shown(items[key], most // 3)}" for key in islice(items, 4)], len(items), "}")
        case Sequence():
            text = _listed(cast("Sequence[object]", value), most)
        case None | bool() | int() | float():
            text = json.dumps(value)
        case _:
            text = str(value)
    return short(text, most)


def _listed(value: Sequence[object], most: int) -> str:
    if value and isinstance(value[0], Message):
        return f"{len(value)} message{'s' if len(value) > 1 else ''}"
    return _all("[", [shown(one, most // 3) for one in value[:4]], len(value), "]")


def _named(value: BaseModel) -> str:
    fields = ((name, getattr(value, name, None)) for name in type(value).model_fields)
    told = [f"{name}={shown(one, WIDTH // 3)}" for name, one in fields if one not in (None, "", 0)]
    return f"{type(value).__name__}({', '.join(told)})"


def _all(start: str, inner: list[str], count: int, end: str) -> str:
    rest = f", … {count} in all" if count > len(inner) else ""
    return f"{start}{', '.join(inner)}{rest}{end}"
