"""What threads are called: the field `title` of their states, where they have one, without their program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any  # Any: JSON

from jianmu.engine.checkpoint import Checkpointer, Stored
from jianmu.engine.point import body_of
from jianmu.engine.state import Delta, fold

FIELD = "title"
_NEEDED = (f'"{FIELD}"', '"state"')
"""A body of the log in which none of them stands says nothing of a title, and is not read."""


async def titles_of(store: Checkpointer, thread_ids: Iterable[str]) -> dict[str, str]:
    """Return the titles of threads by their ids; one that has none, or cannot be read, is left out."""
    found: dict[str, str] = {}
    for thread_id in thread_ids:
        stored = await store.read(thread_id)
        title = None if stored is None else _title(stored)
        if isinstance(title, str) and title.strip():
            found[thread_id] = title
    return found


def _title(stored: Stored) -> Any:
    """Return what the field holds; of the state no other one is made."""
    bodies = [body for _, body in stored.log]
    state: dict[str, Any] = {"version": 0, "fields": {}}
    try:
        for text in bodies if stored.snapshot is None else [stored.snapshot.body, *bodies]:
            body: Any = body_of(text) if any(name in text for name in _NEEDED) else {}
            state = body.get("state") or state
            state = fold(state, (Delta.from_json(one) for one in body.get("s") or () if one[0] == FIELD))
        return state["fields"].get(FIELD)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # `show` says what is wrong with it
