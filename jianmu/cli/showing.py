"""How a thread is shown to people."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from py_trees.common import Status
from pydantic import JsonValue
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from jianmu.cli.forms import hint
from jianmu.cli.output import ago, ahead, local, say, span, width
from jianmu.draw.outline import MARKS, one_line
from jianmu.engine.holders import is_held
from jianmu.engine.interaction import Suspension
from jianmu.engine.journal import Entry
from jianmu.stores.history import ThreadView
from jianmu.stores.threads import ThreadInfo

STYLES = {
    "running": "cyan",
    "suspended": "yellow",
    "interrupted": "magenta",
    "crashed": "bold red",
    "failed": "red",
    "finished": "green",
}


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, style=STYLES.get(status, ""))


def standing(info: ThreadInfo) -> str:
    """Return what else there is to know of how a thread stands, in a line."""
    if info.status == "crashed":
        return f"was held by {holder(info.holder)}"
    if _is_held(info):
        return f"held by {holder(info.holder)}"
    if info.error is not None and info.status in ("interrupted", "failed"):
        return _error(info.error)
    if info.waiting and not info.questions:
        return f"can go on at {', '.join(info.waiting)}"
    if info.waiting:
        more = f", {info.questions} open" if info.questions > 1 else ""
        return f"waits at {', '.join(info.waiting)}{more}"
    return ""


def _is_held(info: ThreadInfo) -> bool:
    until = None if info.lease_until is None else info.lease_until.timestamp()
    return is_held(json.dumps(info.holder), until, datetime.now(UTC).timestamp())


def holder(told: JsonValue) -> str:
    """Return who holds a thread, or held it."""
    if not isinstance(told, dict):
        return "nobody"
    return f"process {told.get('pid')} on {str(told.get('host')).partition(' ')[0]}"


def _error(error: dict[str, str | None]) -> str:
    where = f" at {error.get('path')}" if error.get("path") else ""
    return f"{error.get('type')}{where}: {' '.join((error.get('text') or '').split())}"


def show_thread(view: ThreadView, place: str) -> None:
    """Write all that a person wants to know of a thread; `place` is the option that names its store."""
    for name, text in _head(view):
        say(_cut(f"{name:<9} {text}"))
    id = view.thread_id
    _section("open questions", [line for question in view.asked for line in _question(question, place)])
    _section("effects of unknown outcome", [line for entry in view.unknown for line in _effect(entry, id, place)])
    _section("inputs that wait", [_cut(_json(value)) for value in view.inputs])
    _section("position", [_cut(f"{MARKS[Status[status]]} {path}") for path, status in view.position.items()])
    _section("state", _fields(view.fields))
    for path, fields in view.inner.items():
        is_idle = view.position.get(path) != Status.RUNNING.name
        if not (is_idle and _is_blank(fields)):
            _section(f"state of {path}{' (idle)' if is_idle else ''}", _fields(fields))


def _head(view: ThreadView) -> Iterator[tuple[str, str]]:
    yield "thread", view.thread_id
    yield "status", view.status
    told = standing(view)
    if told:
        yield "", told
    yield "log", f"number {view.number}, run {view.run}"
    yield "changed", f"{local(view.updated_at)}, {ago(view.updated_at)}"
    if view.wake_at is not None:
        overdue = (datetime.now(UTC) - view.wake_at).total_seconds()
        yield "due", f"for {span(overdue)}" if overdue >= 0 else ahead(view.wake_at)
    used = {name: value for name, value in asdict(view.usage).items() if value}
    if used:
        yield "usage", ", ".join(f"{name} {value:,.6g}" for name, value in used.items())


def _question(question: Suspension, place: str) -> Iterator[str]:
    told = " ".join(question.message.split())
    yield _cut(f"{question.path}: {told}")
    yield f"  jianmu answer {question.id} JSON{place}"
    yield _cut(f"  JSON is {hint(question.response_schema)}{_for_whom(question)}")


def _for_whom(question: Suspension) -> str:
    whom = f", for {question.assignee}" if question.assignee else ""
    return whom if question.expires_at is None else f"{whom}, until {local(question.expires_at)}"


def _effect(entry: Entry, thread: str, place: str) -> Iterator[str]:
    yield f"{entry.origin.path}: {entry.name} (key {entry.key}), begun {entry.attempts} times"
    yield f"  id {entry.id}, idempotency key {entry.idempotency_key}"
    yield f"  jianmu settle {shlex.quote(thread)} {entry.id}{place} --happened --result JSON, or --not-happened"


def _fields(fields: dict[str, JsonValue]) -> list[str]:
    return [_cut(f"{name} = {_json(value)}") for name, value in fields.items()]


def _is_blank(value: JsonValue) -> bool:
    """Whether nothing was ever done with a value: as a state is before its first use."""
    return all(map(_is_blank, value.values())) if isinstance(value, dict) else not value


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _section(title: str, lines: Iterable[str]) -> None:
    """Write a part of what is shown, unless there is nothing in it."""
    found = list(lines)
    if found:
        say("")
        say(f"{title}:")
        for line in found:
            say(f"  {one_line(line)}")


def _cut(line: str) -> str:
    """Return a line that fits a terminal, in a part of what is shown."""
    text, columns = one_line(line), width() - 2
    return text if cell_len(text) <= columns else f"{set_cell_size(text, columns - 1).rstrip()}…"
