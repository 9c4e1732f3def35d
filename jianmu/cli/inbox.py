"""`jianmu inbox`, `answer`, `approve`, `reject`, `claim`, `release`: the questions of all threads of a store."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Annotated, TypeVar

from cyclopts import Parameter
from pydantic import JsonValue
from rich.text import Text

from jianmu.cli.faults import Exit, UsageError, describe, describe_refusal
from jianmu.cli.forms import hint
from jianmu.cli.load import parse_json
from jianmu.cli.options import DEFAULTS, Flag, Json, Number, Options
from jianmu.cli.output import (
    PAGE,
    Column,
    ago,
    check_limit,
    duration,
    first_of,
    local,
    rows_of,
    say,
    write_json,
    write_table,
)
from jianmu.cli.store import in_store
from jianmu.draw.outline import one_line
from jianmu.engine.checkpoint import Sought
from jianmu.engine.interaction import Answer, Record
from jianmu.engine.questionrows import record_of
from jianmu.errors import AlreadyAnsweredError, InteractionError, InvalidAnswerError, UnknownSuspensionError
from jianmu.stores.base import Store
from jianmu.stores.inbox import Counts, Pending

T = TypeVar("T")
By = Annotated[str | None, Parameter(help="who answers; a claim keeps all others from it.")]


def inbox(
    *,
    assignee: str | None = None,
    reason: str | None = None,
    older_than: str | None = None,
    thread: str | None = None,
    after: str | None = None,
    limit: Number = None,
    counts: Flag = False,
    options: Options = DEFAULTS,
) -> Exit:
    """List the open questions of all threads, the oldest first.

    Args:
        assignee: who is to answer.
        reason: what kind of question it is.
        older_than: how long ago they were asked at least, like 90, 15m, 2h or 1d.
        thread: the thread that asks.
        after: the cursor of the last one of the page before.
        limit: how many at most; by default 100, with --json all.
        counts: only say how many there are, by assignee, reason and age.
        options: where they are, and how they are told.
    """
    check_limit(limit)
    seconds = None if older_than is None else duration(older_than, "--older-than")
    sought = {"assignee": assignee, "reason": reason, "older_than": seconds, "thread_id": thread}
    if counts:
        if any(value is not None for value in sought.values()):
            raise UsageError("--counts counts all questions: leave the filters away")
        _tell_counts(in_store(options.store, lambda store: store.inbox.counts()), options)
    else:
        in_store(options.store, lambda store: _list(partial(store.inbox.pending, **sought), after, limit, options))
    return Exit.SUCCESS


async def _list(
    fetch: Callable[..., Awaitable[tuple[Pending, ...]]], after: str | None, limit: int | None, options: Options
) -> None:
    if options.json:
        async for question in rows_of(fetch, _cursor, after, limit):
            write_json({**question.model_dump(mode="json"), "cursor": question.cursor})
        return
    found, has_more = await first_of(fetch, _cursor, after, limit or PAGE)
    if not found:
        print("no open questions", file=sys.stderr)
        return
    write_table(
        [Column("id"), Column("asked"), Column("question", gives="cut")], [row for each in found for row in _rows(each)]
    )
    if has_more:
        print(f"there are more: --after '{found[-1].cursor}'", file=sys.stderr)


def _cursor(question: Pending) -> str:
    return question.cursor


def _rows(question: Pending) -> Iterator[tuple[str | Text, ...]]:
    """Yield two lines: what is asked, and all around it."""
    yield question.id, ago(question.asked_at), " ".join(question.message.split())
    parts = [f"{question.thread_id}: {question.path}"]
    parts += [] if question.reason == "input" else [question.reason]
    parts += [f"for {question.assignee}"] if question.assignee else []
    parts += [f"claimed by {question.claimed_by}"] if question.claimed_by else []
    parts += [f"until {local(question.expires_at)}"] if question.expires_at else []
    yield "", "", Text(one_line(", ".join(parts)), style="bright_black")


def _tell_counts(counts: Counts, options: Options) -> None:
    if options.json:
        listed = [{"assignee": name, "open": count} for name, count in counts.by_assignee.items()]
        write_json({**counts.model_dump(mode="json"), "by_assignee": listed})
        return
    say(f"{counts.open} open")
    rows = [("for", name or "nobody in particular", count) for name, count in _most(counts.by_assignee)]
    rows += [("reason", name, count) for name, count in _most(counts.by_reason)]
    rows += [("older than", f"1 {age}", count) for age, count in counts.older_than.items()]
    if counts.open:
        columns = [Column("by"), Column(""), Column("open", is_number=True)]
        write_table(columns, [(kind, name or "", f"{count:,}") for kind, name, count in rows])


def _most(counted: dict[T, int]) -> list[tuple[T, int]]:
    return sorted(counted.items(), key=lambda item: -item[1])


def answer(
    id: str,
    payload: Annotated[str, Parameter(name="JSON", allow_leading_hyphen=True)],
    /,
    *,
    by: By = None,
    key: str | None = None,
    options: Options = DEFAULTS,
) -> Exit:
    """Answer an open question; whoever drives its thread goes on with it.

    Args:
        id: the question's id.
        payload: the answer as JSON: true, 3, '"a text"'.
        by: who answers.
        key: the same answer under the same key is taken once.
        options: where it is, and how it is told.
    """

    async def take(store: Store) -> Record:
        said = Answer(id, await _parsed(store, id, payload, "the answer"), by=by, key=key)
        return (await store.inbox.answer(said))[0]

    return _answered(id, take, "answered", options)


def approve(
    id: str, /, *, edited: Json = None, remember: Flag = False, by: By = None, options: Options = DEFAULTS
) -> Exit:
    """Approve what a question shows.

    Args:
        id: the question's id.
        edited: do it with these arguments instead, JSON.
        remember: the same need not be asked again.
        by: who approves.
        options: where it is, and how it is told.
    """
    arguments = None if edited is None else parse_json(edited, "--edited")

    def take(store: Store) -> Awaitable[Record]:
        return store.inbox.approve(id, edited=arguments, remember=remember, by=by)

    return _answered(id, take, "approved", options)


def reject(id: str, /, *, reason: str | None = None, by: By = None, options: Options = DEFAULTS) -> Exit:
    """Reject what a question shows.

    Args:
        id: the question's id.
        reason: why.
        by: who rejects.
        options: where it is, and how it is told.
    """
    return _answered(id, lambda store: store.inbox.reject(id, reason, by=by), "rejected", options)


def claim(
    id: str, /, *, by: str, span: Annotated[str, Parameter(name="--for")] = "15m", options: Options = DEFAULTS
) -> Exit:
    """Keep others from answering an open question for a while.

    Args:
        id: the question's id.
        by: who claims it.
        span: how long, like 90, 15m or 2h.
        options: where it is, and how it is told.
    """
    seconds = duration(span, "--for")
    claimed = _in_inbox(id, lambda store: store.inbox.claim(id, by, seconds=seconds), options)
    if options.json:
        write_json(claimed)
    else:
        until = "" if claimed.claimed_until is None else f" until {local(claimed.claimed_until)}"
        say(one_line(f"claimed by {by}{until}: {claimed.thread_id}: {claimed.path}"))
    return Exit.SUCCESS


def release(id: str, /, *, by: str, options: Options = DEFAULTS) -> Exit:
    """Give up one's claim of a question.

    Args:
        id: the question's id.
        by: who has claimed it.
        options: where it is, and how it is told.
    """
    _in_inbox(id, lambda store: store.inbox.release(id, by), options)
    if options.json:
        write_json({"id": id, "claimed_by": None})
    else:
        say("released")
    return Exit.SUCCESS


def _answered(id: str, take: Callable[[Store], Awaitable[Record]], deed: str, options: Options) -> Exit:
    """Have an answer taken, and say so."""
    record = _in_inbox(id, take, options)
    if options.json:
        write_json(record)
    else:
        say(one_line(f"{deed}: {record.question.path} of thread '{record.question.thread_id}'"))
    return Exit.SUCCESS


def _in_inbox(id: str, work: Callable[[Store], Awaitable[T]], options: Options) -> T:
    """Do something with a question.

    Raises:
        UsageError: it was refused; the text says what would not be.
    """

    async def tried(store: Store) -> T:
        try:
            return await work(store)
        except InteractionError as error:
            refused = error
        raise UsageError(await _refusal(store, id, refused))

    return in_store(options.store, tried)


async def _refusal(store: Store, id: str, error: InteractionError) -> str:
    """Return why something was refused, and what would not be."""
    if isinstance(error, UnknownSuspensionError):
        many = await store.count(Sought())
        way = "none is open" if not many else f"`jianmu inbox` lists those that are open ({many:,})"
        return f"{type(error).__name__}: no question has the id '{id}': {way}"
    if isinstance(error, AlreadyAnsweredError):
        return f"{type(error).__name__}: question '{id}' was answered before{_by(error.record)}; that answer stands"
    if isinstance(error, InvalidAnswerError):
        return describe_refusal(error, await _wanted(store, id))
    return describe(error)


def _by(record: Record) -> str:
    who = f" by {record.answer.by}" if record.answer is not None and record.answer.by else ""
    return who if record.ended_at is None else f"{who}, {ago(record.ended_at)}"


async def _parsed(store: Store, id: str, text: str, what: str) -> JsonValue:
    """Return an answer that was given as JSON.

    Raises:
        UsageError: it is none; the text says what is wanted.
        UnknownSuspensionError: there is no such question.
    """
    try:
        return parse_json(text, what)
    except UsageError as error:
        problem = str(error)
    raise UsageError(f"{problem}; answer with {await _wanted(store, id)}")


async def _wanted(store: Store, id: str) -> str:
    """Return what JSON answers a question."""
    rows = await store.questions(Sought((id,), status=None))
    if not rows:
        raise UnknownSuspensionError(id)
    return hint(record_of(rows[0]).question.response_schema)
