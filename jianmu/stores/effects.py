"""Effects of which nobody knew whether they happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from jianmu.engine.answers import json_copy
from jianmu.engine.checkpoint import Checkpointer, Lease, Row, Stored, ThreadRow, Transaction, check_thread_id
from jianmu.engine.journal import Entry, read_entries
from jianmu.engine.outside import held
from jianmu.engine.questionrows import text_of
from jianmu.errors import StoreError
from jianmu.stores.history import UNKNOWN, record_at, stored_at


async def settle(
    store: Checkpointer,
    thread_id: str,
    effect: str,
    *,
    path: str | None,
    happened: bool,
    result: JsonValue,
    now: datetime,
) -> Entry:
    """Write down what became of an effect; the thread is due then.

    Raises:
        ThreadBusyError: somebody runs the thread.
        UnknownThreadError: there is no such thread.
        StoreError: no effect of unknown outcome, or several, are meant; or the result has no JSON form.
    """
    settled = _end(check_thread_id(thread_id), happened, result)
    async with held(store, thread_id) as lease:
        stored = await stored_at(store, thread_id, None)
        row, entry = _found(stored, effect, path)
        entry = entry.model_copy(update=settled)
        kept = Row("effect", row.id, entry.model_dump_json(exclude_defaults=True), came=row.came)
        await store.commit(replace(outside_step(lease, stored.thread, "settle", now), rows=(kept,)))
    return entry


def outside_step(lease: Lease, stands: ThreadRow, what: str, now: datetime) -> Transaction:
    """Return the transaction of somebody who does not run a thread: it stands as it did, and is due."""
    return Transaction(
        lease=lease,
        expected=lease.number,
        body=text_of({"time": now.timestamp(), "what": what}),
        status=stands.status,
        record=stands.record,
        wake_at=now.timestamp(),
        has_to_last=True,
        releases=True,
    )


def _end(thread_id: str, happened: bool, result: JsonValue) -> dict[str, object]:
    """Return what changes in an entry: what has not happened is called again under the same idempotency key."""
    try:
        kept = json_copy(result)
    except ValueError as error:
        problem = str(error)
    else:
        if happened:
            return {"state": "done", "result": kept}
        if kept is None:
            return {"state": "failed"}
        problem = "what has not happened has no result"
    raise StoreError(f"the result of an effect was refused: {problem}", thread_id=thread_id)


def _found(stored: Stored, effect: str, path: str | None) -> tuple[Row, Entry]:
    """Return the effect that is meant, by its id, or by its key and the path of its node."""
    rows = [row for row in stored.rows if row.kind == "effect"]
    entries = read_entries(record_at(stored).journal)
    unknown = [(row, one) for row, one in zip(rows, entries, strict=True) if one.state in UNKNOWN]
    meant = [(row, one) for row, one in unknown if effect == row.id or _is_named(one, effect, path)]
    if len(meant) == 1:
        return meant[0]
    raise StoreError(_wrong(effect, [one for _, one in meant or unknown]), thread_id=stored.thread.thread_id)


def _is_named(entry: Entry, key: str, path: str | None) -> bool:
    return entry.key == key and path in (None, entry.origin.path)


def _wrong(effect: str, entries: Sequence[Entry]) -> str:
    named = ", ".join(f"{entry.id} (key '{entry.key}' in node '{entry.origin.path}')" for entry in entries)
    what = f"no one effect of unknown outcome is meant by {effect[:80]!r}"
    return f"{what}: {f'give the id of one of {named}' if named else 'the thread has none'}"
